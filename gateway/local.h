/* gateway/local.h - calls that the gateway answers itself: health, reflection, KServe server calls.
 *
 *   grpc.health.v1.Health            Check, Watch, List: "" (any route can serve), service names,
 *                                    model:NAME, model:NAME/VERSION
 *   grpc.reflection.v1 and v1alpha   ServerReflectionInfo from the descriptors compiled in
 *   inference.GRPCInferenceService   ServerLive, ServerReady, ServerMetadata, ModelReady
 *
 * Owns:      its open calls; it knows nothing of streams: the caller moves the messages.
 * Called by: gateway/stream.c, when local_find says so.
 * Lifetime:  local_new .. local_free; a call local_open .. local_close.
 * Thread:    one struct local per worker.
 * Source:    grpc/health/v1/health.proto, gRFC A90 (List), grpc/reflection/v1.
 */
#ifndef GATEWAY_LOCAL_H
#define GATEWAY_LOCAL_H

#include <stddef.h>
#include <stdint.h>

#include "conf/snapshot.h"

struct local;
struct local_call;
struct local_method;

#define LOCAL_MESSAGE_BYTES 65536u /* a request message larger than this: RESOURCE_EXHAUSTED */

/* What a call wants sent. Both may be called from inside local_open, local_on_message, local_on_end
 * and local_apply. */
struct local_sink {
    /* One response message, without its 5-byte prefix; copied by the callee. */
    void (*send)(void *user, const uint8_t *message, size_t len);
    /* The status that ends the call; nothing follows. message: plain text, not percent-encoded.
     * The caller still owes local_close. */
    void (*finish)(void *user, uint32_t grpc_status, const char *message);
};

struct local *local_new(void);
struct local *local_free(struct local *l); /* no call may be open; returns NULL */
/* New answers from now on; Watch calls whose answer changed are told. Takes its own reference. */
void local_apply(struct local *l, struct snapshot *s);

/* NULL: not answered here, route it on. Always NULL when a "*" service takes every path
 * (`penstock relay`). */
const struct local_method *local_find(const struct local *l, const char *path, size_t path_len);

struct local_call *local_open(struct local *l, const struct local_method *m,
                              const struct local_sink *sink, void *user);
/* One whole request message, without prefix, uncompressed. Ignored after finish. Feed the next one
 * when what was sent has mostly left: a client that does not read must not fill our memory. */
void local_on_message(struct local_call *c, const uint8_t *message, size_t len);
void local_on_end(struct local_call *c); /* the client half-closed */
/* The stream is over, however; frees c. Never from inside the sink. Returns NULL. */
struct local_call *local_close(struct local_call *c);

#endif
