#include "balancer/probe_question.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "proto/grpc.h"
#include "proto/grpc_health_v1.pb-c.h"
#include "proto/kserve_v2.pb-c.h"
#include "proto/tensorflow_serving.pb-c.h"

#define NO_SUCH_SERVICE "penstock.probe.no.such.service"

enum question question_first(const struct probe_target *t)
{
    switch (t->dialect) {
    case DIALECT_PLAIN:
        return ASK_CONNECTION;
    case DIALECT_TRITON:
    case DIALECT_MLSERVER:
    case DIALECT_KSERVE:
    case DIALECT_PENSTOCK:
        return t->model[0] != '\0' ? ASK_MODEL_READY : ASK_HEALTH;
    case DIALECT_TFSERVING:
        return t->model[0] != '\0' ? ASK_MODEL_STATUS : ASK_CONNECTION;
    case DIALECT_AUTO:
        break;
    }
    if (t->model[0] == '\0' || t->protocol == PROTOCOL_GRPC)
        return ASK_HEALTH;
    return t->protocol == PROTOCOL_TENSORFLOW ? ASK_MODEL_STATUS : ASK_MODEL_READY;
}

enum question question_next(const struct probe_target *t, enum question q)
{
    /* A Triton's health is about all its models at once, TF-Serving's is a constant. */
    const bool health_is_useless = t->dialect == DIALECT_TRITON || t->dialect == DIALECT_TFSERVING;

    switch (q) {
    case ASK_MODEL_READY:
    case ASK_MODEL_STATUS:
        return health_is_useless ? ASK_CONNECTION : ASK_HEALTH;
    case ASK_HEALTH:
    case ASK_HEALTH_DOUBT:
    case ASK_CONNECTION:
        break;
    }
    return ASK_CONNECTION;
}

const char *question_path(enum question q)
{
    static const char *const paths[] = {
        [ASK_MODEL_READY] = "/inference.GRPCInferenceService/ModelReady",
        [ASK_MODEL_STATUS] = "/tensorflow.serving.ModelService/GetModelStatus",
        [ASK_HEALTH] = "/grpc.health.v1.Health/Check",
        [ASK_HEALTH_DOUBT] = "/grpc.health.v1.Health/Check",
    };

    check((unsigned)q < ARRAY_LEN(paths));
    return paths[q];
}

static void pack(const ProtobufCMessage *m, struct buf *to)
{
    const size_t len = protobuf_c_message_get_packed_size(m);

    protobuf_c_message_pack(m, buf_reserve(to, len));
    to->len += len;
}

/* A version that is a number; TF-Serving knows no others. */
static bool version_number(const char *text, int64_t *ret_n)
{
    char *end;

    errno = 0;
    *ret_n = strtoll(text, &end, 10);
    return text[0] != '\0' && *end == '\0' && errno == 0;
}

static void write_model_status(const struct probe_target *t, struct buf *to)
{
    Tensorflow__Serving__GetModelStatusRequest q =
        TENSORFLOW__SERVING__GET_MODEL_STATUS_REQUEST__INIT;
    Tensorflow__Serving__ModelSpec spec = TENSORFLOW__SERVING__MODEL_SPEC__INIT;
    Google__Protobuf__Int64Value version = GOOGLE__PROTOBUF__INT64_VALUE__INIT;

    spec.name = (char *)(uintptr_t)t->model;
    if (version_number(t->version, &version.value)) {
        spec.version_choice_case = TENSORFLOW__SERVING__MODEL_SPEC__VERSION_CHOICE_VERSION;
        spec.version = &version;
    }
    q.model_spec = &spec;
    pack(&q.base, to);
}

void question_write(const struct probe_target *t, enum question q, struct buf *ret_message)
{
    static char empty[] = "", nobody[] = NO_SUCH_SERVICE;
    Inference__ModelReadyRequest ready = INFERENCE__MODEL_READY_REQUEST__INIT;
    Grpc__Health__V1__HealthCheckRequest health = GRPC__HEALTH__V1__HEALTH_CHECK_REQUEST__INIT;

    switch (q) {
    case ASK_MODEL_READY:
        ready.name = (char *)(uintptr_t)t->model;
        ready.version = (char *)(uintptr_t)t->version;
        pack(&ready.base, ret_message);
        break;
    case ASK_MODEL_STATUS:
        write_model_status(t, ret_message);
        break;
    case ASK_HEALTH:
    case ASK_HEALTH_DOUBT:
        health.service = q == ASK_HEALTH ? empty : nobody;
        pack(&health.base, ret_message);
        break;
    case ASK_CONNECTION:
        break;
    }
}

static enum verdict of_bool(bool ready)
{
    return ready ? VERDICT_READY : VERDICT_NOT_READY;
}

static enum verdict read_model_ready(const uint8_t *message, size_t len)
{
    Inference__ModelReadyResponse *const r =
        inference__model_ready_response__unpack(NULL, len, message);

    if (r == NULL)
        return VERDICT_FAILED;
    const bool ready = r->ready;
    inference__model_ready_response__free_unpacked(r, NULL);
    return of_bool(ready);
}

/* One AVAILABLE version is enough when none was asked for by number. */
static enum verdict read_model_status(const uint8_t *message, size_t len)
{
    Tensorflow__Serving__GetModelStatusResponse *const r =
        tensorflow__serving__get_model_status_response__unpack(NULL, len, message);
    bool available = false;

    if (r == NULL)
        return VERDICT_FAILED;
    for (size_t i = 0; i < r->n_model_version_status; i++)
        available = available || r->model_version_status[i]->state ==
                                     TENSORFLOW__SERVING__MODEL_VERSION_STATUS__STATE__AVAILABLE;
    tensorflow__serving__get_model_status_response__free_unpacked(r, NULL);
    return of_bool(available);
}

static enum verdict read_health(const uint8_t *message, size_t len)
{
    Grpc__Health__V1__HealthCheckResponse *const r =
        grpc__health__v1__health_check_response__unpack(NULL, len, message);

    if (r == NULL)
        return VERDICT_FAILED;
    const bool serving =
        r->status == GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__SERVING_STATUS__SERVING;
    grpc__health__v1__health_check_response__free_unpacked(r, NULL);
    return of_bool(serving);
}

static enum verdict read_status(enum question q, int status, bool by_server)
{
    if (!by_server)
        return VERDICT_FAILED;
    if (status == GRPC_UNIMPLEMENTED)
        return VERDICT_NEXT;
    switch (q) {
    case ASK_MODEL_READY: /* of a model that it does not have: MLServer says UNKNOWN, KServe
                             NOT_FOUND */
    case ASK_MODEL_STATUS:
        return status == GRPC_NOT_FOUND || status == GRPC_UNKNOWN || status == GRPC_UNAVAILABLE
                   ? VERDICT_NOT_READY
                   : VERDICT_FAILED;
    case ASK_HEALTH: /* has a health service but no word on the whole server */
        return status == GRPC_NOT_FOUND ? VERDICT_NEXT : VERDICT_FAILED;
    case ASK_HEALTH_DOUBT: /* it does answer by name: the "not serving" before was meant */
        return VERDICT_NOT_READY;
    case ASK_CONNECTION:
        break;
    }
    return VERDICT_FAILED;
}

enum verdict question_read(enum question q, int status, bool by_server, const uint8_t *message,
                           size_t len)
{
    if (status != GRPC_OK)
        return read_status(q, status, by_server);
    if (message == NULL)
        return VERDICT_FAILED;
    switch (q) {
    case ASK_MODEL_READY:
        return read_model_ready(message, len);
    case ASK_MODEL_STATUS:
        return read_model_status(message, len);
    case ASK_HEALTH:
        return read_health(message, len);
    case ASK_HEALTH_DOUBT: /* it says the same of any name: its health says nothing of ours */
        return VERDICT_NEXT;
    case ASK_CONNECTION:
        break;
    }
    return VERDICT_FAILED;
}
