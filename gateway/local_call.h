/* gateway/local_call.h - inside of the local answers: one call, and the table of methods.
 *
 * Owns:      see gateway/local.h.
 * Called by: gateway/local.c and the local_*.c that answer.
 * Thread:    one worker's.
 */
#ifndef GATEWAY_LOCAL_CALL_H
#define GATEWAY_LOCAL_CALL_H

#include <stdbool.h>

#include "base/list.h"
#include "gateway/local.h"

struct local {
    struct snapshot *snap; /* NULL before the first local_apply */
    struct list calls;
};

struct local_call {
    struct list node; /* local.calls */
    struct local *local;
    const struct local_method *method;
    const struct local_sink *sink;
    void *user;
    bool finished;
    bool got_message;
    char *watched;   /* health Watch: the name asked for */
    int watch_state; /* last ServingStatus sent; -1: none */
};

struct local_method {
    const char *service; /* "grpc.health.v1.Health" */
    const char *method;
    bool client_streams; /* any number of messages; else exactly one */
    bool stays_open;     /* the answer goes on after the client's half-close */
    void (*on_message)(struct local_call *c, const uint8_t *message, size_t len);
    void (*on_apply)(struct local_call *c); /* NULL: snapshots change nothing */
};

/* Tables end with service NULL. */
extern const struct local_method local_health_methods[], local_reflection_methods[],
    local_kserve_methods[];

/* For the answering files. */
void local_send(struct local_call *c, const uint8_t *message, size_t len);
void local_finish(struct local_call *c, uint32_t grpc_status, const char *message);

/* Packs a protobuf-c message and sends it. */
struct ProtobufCMessage;
void local_send_packed(struct local_call *c, const struct ProtobufCMessage *message);
void local_bad_request(struct local_call *c); /* finish: the request can't be decoded */

/* NULL: none of that name, or no snapshot yet. */
const struct snap_model *local_find_model(const struct local *l, const char *name, size_t len);

/* Calls fn for each service name that clients can call here, our own first; each name once. */
typedef void (*local_service_fn)(void *arg, const char *service, bool can_serve);
void local_each_service(const struct local *l, local_service_fn fn, void *arg);

#endif
