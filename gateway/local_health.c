/* gateway/local_health.c - grpc.health.v1 from the catalogue: Check, Watch, List.
 *
 * Names: "" (at least one route can serve), a service, "model:NAME", "model:NAME/VERSION" (number
 * or label). Source: health.proto; gRFC A90 for List. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/xalloc.h"
#include "gateway/local_call.h"
#include "gateway/ready.h"
#include "proto/grpc.h"
#include "proto/grpc_health_v1.pb-c.h"

/* Short names of generated types. */
typedef Grpc__Health__V1__HealthCheckRequest health_request;
typedef Grpc__Health__V1__HealthCheckResponse health_response;
typedef Grpc__Health__V1__HealthListResponse health_list;
typedef Grpc__Health__V1__HealthListResponse__StatusesEntry health_entry;

enum {
    SERVING = GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__SERVING_STATUS__SERVING,
    NOT_SERVING = GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__SERVING_STATUS__NOT_SERVING,
    SERVICE_UNKNOWN = GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__SERVING_STATUS__SERVICE_UNKNOWN,
};

#define LIST_MAX 1000 /* names in one List answer; past it RESOURCE_EXHAUSTED, as A90 allows */

static int of_bool(bool can_serve)
{
    return can_serve ? SERVING : NOT_SERVING;
}

struct wanted {
    const char *service;
    int state;
};

static void match_service(void *arg, const char *service, bool can_serve)
{
    struct wanted *const w = arg;

    if (strcmp(service, w->service) == 0)
        w->state = of_bool(can_serve);
}

static int state_of_model(const struct local *l, const char *name)
{
    const char *const slash = strrchr(name, '/');
    const struct snap_model *m = local_find_model(l, name, strlen(name));

    if (m != NULL)
        return of_bool(ready_model(m));
    m = slash != NULL ? local_find_model(l, name, (size_t)(slash - name)) : NULL;
    if (m == NULL)
        return SERVICE_UNKNOWN;
    const int v = snap_model_version(m, slash + 1, strlen(slash + 1));
    return v < 0 ? SERVICE_UNKNOWN : of_bool(ready_version(&m->versions[v]));
}

static int state_of(const struct local *l, const char *service)
{
    static const char model_prefix[] = "model:";
    struct wanted w = {.service = service, .state = SERVICE_UNKNOWN};

    if (service[0] == '\0')
        return of_bool(ready_any(l->snap));
    if (strncmp(service, model_prefix, sizeof(model_prefix) - 1) == 0)
        return state_of_model(l, service + sizeof(model_prefix) - 1);
    local_each_service(l, match_service, &w);
    return w.state;
}

static void send_state(struct local_call *c, int state)
{
    health_response r = GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__INIT;

    r.status = (Grpc__Health__V1__HealthCheckResponse__ServingStatus)state;
    local_send_packed(c, &r.base);
}

static void check_on_message(struct local_call *c, const uint8_t *message, size_t len)
{
    health_request *const q = grpc__health__v1__health_check_request__unpack(NULL, len, message);

    if (q == NULL) {
        local_bad_request(c);
        return;
    }
    const int state = state_of(c->local, q->service);

    if (state == SERVICE_UNKNOWN) {
        char why[192];

        snprintf(why, sizeof(why),
                 "no health of \"%.128s\": neither a service nor model:NAME[/VERSION]", q->service);
        local_finish(c, GRPC_NOT_FOUND, why);
    }
    grpc__health__v1__health_check_request__free_unpacked(q, NULL);
    if (state == SERVICE_UNKNOWN)
        return;
    send_state(c, state);
    local_finish(c, GRPC_OK, "");
}

static void watch_tell(struct local_call *c)
{
    if (c->watched == NULL)
        return;
    const int state = state_of(c->local, c->watched);
    if (state == c->watch_state)
        return;
    c->watch_state = state;
    send_state(c, state);
}

static void watch_on_message(struct local_call *c, const uint8_t *message, size_t len)
{
    health_request *const q = grpc__health__v1__health_check_request__unpack(NULL, len, message);

    if (q == NULL) {
        local_bad_request(c);
        return;
    }
    c->watched = xstrdup(q->service);
    grpc__health__v1__health_check_request__free_unpacked(q, NULL);
    watch_tell(c);
}

struct listing {
    health_list *list;
    size_t n; /* wanted; those past LIST_MAX are counted only */
};

static void list_add(void *arg, const char *service, bool can_serve)
{
    struct listing *const l = arg;

    if (l->n++ >= LIST_MAX)
        return;
    health_entry *const e = xcalloc(1, sizeof(*e));
    grpc__health__v1__health_list_response__statuses_entry__init(e);
    e->key = xstrdup(service);
    e->value = xcalloc(1, sizeof(*e->value));
    grpc__health__v1__health_check_response__init(e->value);
    e->value->status = (Grpc__Health__V1__HealthCheckResponse__ServingStatus)of_bool(can_serve);
    l->list->statuses[l->list->n_statuses++] = e;
}

static void list_add_models(const struct local *l, struct listing *to)
{
    for (size_t i = 0; l->snap != NULL && i < l->snap->n_models; i++) {
        const struct snap_model *const m = &l->snap->models[i];
        char *const name = xasprintf("model:%s", m->conf->name);

        list_add(to, name, ready_model(m));
        free(name);
    }
}

static void list_on_message(struct local_call *c, const uint8_t *message, size_t len)
{
    health_list list = GRPC__HEALTH__V1__HEALTH_LIST_RESPONSE__INIT;
    struct listing to = {.list = &list};

    (void)message; /* HealthListRequest has no fields; unknown ones are skipped */
    (void)len;
    list.statuses = xcalloc(LIST_MAX, sizeof(health_entry *));
    list_add(&to, "", ready_any(c->local->snap));
    local_each_service(c->local, list_add, &to);
    list_add_models(c->local, &to);
    if (to.n <= LIST_MAX)
        local_send_packed(c, &list.base);
    for (size_t i = 0; i < list.n_statuses; i++) {
        free(list.statuses[i]->key);
        free(list.statuses[i]->value);
        free(list.statuses[i]);
    }
    free(list.statuses);
    if (to.n <= LIST_MAX)
        local_finish(c, GRPC_OK, "");
    else
        local_finish(c, GRPC_RESOURCE_EXHAUSTED, "more than 1000 names; use Check");
}

const struct local_method local_health_methods[] = {
    {.service = "grpc.health.v1.Health", .method = "Check", .on_message = check_on_message},
    {.service = "grpc.health.v1.Health",
     .method = "Watch",
     .stays_open = true,
     .on_message = watch_on_message,
     .on_apply = watch_tell},
    {.service = "grpc.health.v1.Health", .method = "List", .on_message = list_on_message},
    {.service = NULL},
};
