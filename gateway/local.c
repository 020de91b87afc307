#include "gateway/local.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/xalloc.h"
#include "gateway/local_call.h"
#include "gateway/ready.h"
#include "proto/grpc.h"
#include "proto/grpc_health_v1.pb-c.h"

static const struct local_method *const tables[] = {
    local_health_methods,
    local_reflection_methods,
    local_kserve_methods,
};

struct local *local_new(void)
{
    struct local *const l = xcalloc(1, sizeof(*l));

    list_init(&l->calls);
    return l;
}

struct local *local_free(struct local *l)
{
    if (l == NULL)
        return NULL;
    check(list_is_empty(&l->calls));
    if (l->snap != NULL)
        snapshot_unref(l->snap);
    free(l);
    return NULL;
}

void local_apply(struct local *l, struct snapshot *s)
{
    struct snapshot *const old = l->snap;

    l->snap = snapshot_ref(s);
    if (old != NULL)
        snapshot_unref(old);
    list_each (&l->calls, it) {
        struct local_call *const c = list_entry(it, struct local_call, node);

        if (!c->finished && c->method->on_apply != NULL)
            c->method->on_apply(c);
    }
}

const struct local_method *local_find(const struct local *l, const char *path, size_t path_len)
{
    const char *service, *method;
    size_t service_len, method_len;

    if (!grpc_path_split(path, path_len, &service, &service_len, &method, &method_len))
        return NULL;
    for (size_t t = 0; t < ARRAY_LEN(tables); t++) {
        for (const struct local_method *m = tables[t]; m->service != NULL; m++) {
            if (strlen(m->service) != service_len ||
                memcmp(m->service, service, service_len) != 0 || strlen(m->method) != method_len ||
                memcmp(m->method, method, method_len) != 0)
                continue;
            /* A configured service of that name, or one that takes all, comes first. */
            const bool routed =
                l->snap != NULL && snapshot_service(l->snap, service, service_len) != NULL;
            return routed ? NULL : m;
        }
    }
    return NULL;
}

struct local_call *local_open(struct local *l, const struct local_method *m,
                              const struct local_sink *sink, void *user)
{
    struct local_call *const c = xcalloc(1, sizeof(*c));

    c->local = l;
    c->method = m;
    c->sink = sink;
    c->user = user;
    c->watch_state = -1;
    list_push_back(&l->calls, &c->node);
    return c;
}

struct local_call *local_close(struct local_call *c)
{
    if (c == NULL)
        return NULL;
    list_remove(&c->node);
    free(c->watched);
    free(c);
    return NULL;
}

void local_on_message(struct local_call *c, const uint8_t *message, size_t len)
{
    if (c->finished)
        return;
    if (len > LOCAL_MESSAGE_BYTES) {
        local_finish(c, GRPC_RESOURCE_EXHAUSTED,
                     "a request to the gateway itself is at most 64 KiB");
        return;
    }
    if (c->got_message && !c->method->client_streams) {
        local_finish(c, GRPC_INTERNAL, "this method takes one request message");
        return;
    }
    c->got_message = true;
    c->method->on_message(c, message, len);
}

void local_on_end(struct local_call *c)
{
    if (c->finished)
        return;
    if (!c->got_message && !c->method->client_streams)
        local_finish(c, GRPC_INTERNAL, "the request message is missing");
    else if (!c->method->stays_open)
        local_finish(c, GRPC_OK, "");
}

void local_send(struct local_call *c, const uint8_t *message, size_t len)
{
    check(!c->finished);
    c->sink->send(c->user, message, len);
}

void local_finish(struct local_call *c, uint32_t grpc_status, const char *message)
{
    check(!c->finished);
    c->finished = true;
    c->sink->finish(c->user, grpc_status, message);
}

void local_send_packed(struct local_call *c, const struct ProtobufCMessage *message)
{
    const size_t len = protobuf_c_message_get_packed_size(message);
    uint8_t *const packed = xcalloc(len + 1, 1);

    protobuf_c_message_pack(message, packed);
    local_send(c, packed, len);
    free(packed);
}

void local_bad_request(struct local_call *c)
{
    local_finish(c, GRPC_INTERNAL, "the request can't be decoded");
}

/* What the catalogue says. */

const struct snap_model *local_find_model(const struct local *l, const char *name, size_t len)
{
    for (size_t i = 0; l->snap != NULL && i < l->snap->n_models; i++) {
        const struct snap_model *const m = &l->snap->models[i];

        if (strlen(m->conf->name) == len && memcmp(m->conf->name, name, len) == 0)
            return m;
    }
    return NULL;
}

/* Does any model of this protocol exist, and can one of them serve? */
static bool protocol_is_used(const struct local *l, enum model_protocol protocol,
                             bool *ret_can_serve)
{
    bool used = false;

    *ret_can_serve = false;
    for (size_t i = 0; l->snap != NULL && i < l->snap->n_models; i++) {
        if (l->snap->models[i].conf->protocol != protocol)
            continue;
        used = true;
        *ret_can_serve = *ret_can_serve || ready_model(&l->snap->models[i]);
    }
    return used;
}

void local_each_service(const struct local *l, local_service_fn fn, void *arg)
{
    bool can_serve;

    fn(arg, "grpc.health.v1.Health", true);
    fn(arg, "grpc.reflection.v1.ServerReflection", true);
    fn(arg, "grpc.reflection.v1alpha.ServerReflection", true);
    if (protocol_is_used(l, PROTOCOL_KSERVE, &can_serve))
        fn(arg, "inference.GRPCInferenceService", can_serve);
    if (protocol_is_used(l, PROTOCOL_TENSORFLOW, &can_serve)) {
        fn(arg, "tensorflow.serving.PredictionService", can_serve);
        fn(arg, "tensorflow.serving.ModelService", can_serve);
    }
    for (size_t i = 0; l->snap != NULL && i < l->snap->n_models; i++) {
        const struct snap_model *const m = &l->snap->models[i];

        for (size_t k = 0; m->conf->protocol == PROTOCOL_GRPC && k < m->conf->n_services; k++)
            fn(arg, m->conf->services[k], ready_model(m));
    }
}
