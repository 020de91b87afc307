/* loadtest/model_health.c - grpc.health.v1 of the model server, and its echo service. */
#include <stdio.h>
#include <string.h>

#include "loadtest/model.h"
#include "proto/grpc_health_v1.pb-c.h"

typedef Grpc__Health__V1__HealthCheckResponse check_response;

#define SERVING         GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__SERVING_STATUS__SERVING
#define NOT_SERVING     GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__SERVING_STATUS__NOT_SERVING
#define SERVICE_UNKNOWN GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__SERVING_STATUS__SERVICE_UNKNOWN

static const char *const services[] = {"", "inference.GRPCInferenceService",
                                       "tensorflow.serving.PredictionService",
                                       "penstock.test.Echo"};

/* Known: the services above, "model:NAME" and "model:NAME/VERSION". */
static bool is_known(const struct model *m, const char *service)
{
    const size_t name_len = strlen(m->name);

    for (size_t i = 0; i < ARRAY_LEN(services); i++) {
        if (strcmp(service, services[i]) == 0)
            return true;
    }
    if (strncmp(service, "model:", 6) != 0 || strncmp(service + 6, m->name, name_len) != 0)
        return false;

    const char *rest = service + 6 + name_len;
    if (*rest == '\0')
        return true;
    for (size_t i = 0; *rest == '/' && i < m->n_versions; i++) {
        if (strcmp(rest + 1, m->versions[i]->text) == 0)
            return true;
    }
    return false;
}

static void answer_status(struct model *m, const uint8_t *request, size_t len, bool is_watch,
                          struct model_answer *a)
{
    check_response res = GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__INIT;
    const Grpc__Health__V1__HealthCheckRequest *req =
        MODEL_UNPACK(m, grpc__health__v1__health_check_request__unpack, request, len);

    if (req == NULL) {
        model_answer_error(a, GRPC_INVALID_ARGUMENT,
                           "the message is no grpc.health.v1.HealthCheckRequest");
        return;
    }
    res.status = m->is_ready ? SERVING : NOT_SERVING;
    if (!is_known(m, req->service)) {
        if (!is_watch) {
            model_answer_error(a, GRPC_NOT_FOUND, "unknown service \"%.128s\"", req->service);
            return;
        }
        res.status = SERVICE_UNKNOWN;
    }
    model_pack(a, &res.base);
}

static void answer_check(struct model *m, const uint8_t *request, size_t len,
                         struct model_answer *a)
{
    answer_status(m, request, len, false, a);
}

static void answer_watch(struct model *m, const uint8_t *request, size_t len,
                         struct model_answer *a)
{
    answer_status(m, request, len, true, a);
}

static void answer_list(struct model *m, const uint8_t *request, size_t len, struct model_answer *a)
{
    Grpc__Health__V1__HealthListResponse res = GRPC__HEALTH__V1__HEALTH_LIST_RESPONSE__INIT;
    Grpc__Health__V1__HealthListResponse__StatusesEntry entries[ARRAY_LEN(services) + 1];
    Grpc__Health__V1__HealthListResponse__StatusesEntry *rows[ARRAY_LEN(entries)];
    check_response status = GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__INIT;
    char name[160];

    (void)request;
    (void)len;
    status.status = m->is_ready ? SERVING : NOT_SERVING;
    snprintf(name, sizeof(name), "model:%s", m->name);
    for (size_t i = 0; i < ARRAY_LEN(entries); i++) {
        grpc__health__v1__health_list_response__statuses_entry__init(&entries[i]);
        entries[i].key = (char *)(i < ARRAY_LEN(services) ? services[i] : name);
        entries[i].value = &status;
        rows[i] = &entries[i];
    }
    res.n_statuses = ARRAY_LEN(rows);
    res.statuses = rows;
    model_pack(a, &res.base);
}

static void answer_echo(struct model *m, const uint8_t *request, size_t len, struct model_answer *a)
{
    (void)m;
    if (!buf_append(&a->body, request, len))
        model_answer_error(a, GRPC_RESOURCE_EXHAUSTED, "an echo of %zu bytes", len);
}

const struct model_method health_methods[] = {
    {"/grpc.health.v1.Health/Check", answer_check, METHOD_UNARY, false},
    {"/grpc.health.v1.Health/Watch", answer_watch, METHOD_WATCH, false},
    {"/grpc.health.v1.Health/List", answer_list, METHOD_UNARY, false},
    {0},
};

/* Raw bytes, no message type: what comes goes back. */
const struct model_method echo_methods[] = {
    {"/penstock.test.Echo/Unary", answer_echo, METHOD_UNARY, true},
    {"/penstock.test.Echo/ClientStream", answer_echo, METHOD_GATHER, true},
    {"/penstock.test.Echo/ServerStream", answer_echo, METHOD_REPEAT, true},
    {"/penstock.test.Echo/Bidi", answer_echo, METHOD_EACH, true},
    {0},
};
