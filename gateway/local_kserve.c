/* gateway/local_kserve.c - the KServe v2 calls that are about the server as a whole, and
 * ModelReady: from the catalogue, without a hop to a replica.
 *
 * ModelReady of a model or version that the catalogue does not have is `ready: false`, as Triton
 * answers; MLServer says UNKNOWN and KServe NOT_FOUND, which clients report as a failed call. */
#include <string.h>

#include "gateway/local_call.h"
#include "gateway/ready.h"
#include "proto/grpc.h"
#include "proto/kserve_v2.pb-c.h"

static void live_on_message(struct local_call *c, const uint8_t *message, size_t len)
{
    Inference__ServerLiveResponse r = INFERENCE__SERVER_LIVE_RESPONSE__INIT;

    (void)message;
    (void)len;
    r.live = true;
    local_send_packed(c, &r.base);
    local_finish(c, GRPC_OK, "");
}

static void ready_on_message(struct local_call *c, const uint8_t *message, size_t len)
{
    Inference__ServerReadyResponse r = INFERENCE__SERVER_READY_RESPONSE__INIT;

    (void)message;
    (void)len;
    r.ready = ready_any(c->local->snap);
    local_send_packed(c, &r.base);
    local_finish(c, GRPC_OK, "");
}

static void metadata_on_message(struct local_call *c, const uint8_t *message, size_t len)
{
    static char name[] = "penstock", version[] = PENSTOCK_VERSION;
    Inference__ServerMetadataResponse r = INFERENCE__SERVER_METADATA_RESPONSE__INIT;

    (void)message;
    (void)len;
    r.name = name;
    r.version = version;
    local_send_packed(c, &r.base);
    local_finish(c, GRPC_OK, "");
}

static bool is_ready(const struct local *l, const char *name, const char *version)
{
    const struct snap_model *const m = local_find_model(l, name, strlen(name));

    if (m == NULL || m->conf->protocol != PROTOCOL_KSERVE)
        return false;
    if (version[0] == '\0')
        return ready_model(m);
    const int v = snap_model_version(m, version, strlen(version));
    return v >= 0 && ready_version(&m->versions[v]);
}

static void model_on_message(struct local_call *c, const uint8_t *message, size_t len)
{
    Inference__ModelReadyRequest *const q =
        inference__model_ready_request__unpack(NULL, len, message);
    Inference__ModelReadyResponse r = INFERENCE__MODEL_READY_RESPONSE__INIT;

    if (q == NULL) {
        local_bad_request(c);
        return;
    }
    r.ready = is_ready(c->local, q->name, q->version);
    inference__model_ready_request__free_unpacked(q, NULL);
    local_send_packed(c, &r.base);
    local_finish(c, GRPC_OK, "");
}

#define KSERVE "inference.GRPCInferenceService"

const struct local_method local_kserve_methods[] = {
    {.service = KSERVE, .method = "ServerLive", .on_message = live_on_message},
    {.service = KSERVE, .method = "ServerReady", .on_message = ready_on_message},
    {.service = KSERVE, .method = "ServerMetadata", .on_message = metadata_on_message},
    {.service = KSERVE, .method = "ModelReady", .on_message = model_on_message},
    {.service = NULL},
};
