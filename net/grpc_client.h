/* net/grpc_client.h - gRPC calls to one address: unary and streaming both ways.
 *
 * Owns:      grpc_channel: a pool. grpc_call: itself; freed after on_end returned.
 * Called by: probes, penstock-load, penstock-train, penstock predict. The relay does not: it passes
 *            streams on as they are.
 * Lifetime:  grpc_channel_new .. grpc_channel_free (running calls end with UNAVAILABLE inside it);
 *            grpc_call_start .. on_end, exactly once, never from inside grpc_call_start or
 *            grpc_call_send.
 * Thread:    its loop's.
 * Source:    gRPC over HTTP/2 (PROTOCOL-HTTP2.md), gRPC statuses (statuscodes.md).
 */
#ifndef NET_GRPC_CLIENT_H
#define NET_GRPC_CLIENT_H

#include "net/pool.h"

struct grpc_channel;
struct grpc_call;

struct grpc_channel_conf {
    struct pool_conf pool;
    const char *authority;  /* NULL: the address text. Copied. */
    const char *user_agent; /* NULL: "penstock/VERSION". Copied. */
};
void grpc_channel_conf_default(struct grpc_channel_conf *c);

struct grpc_channel *grpc_channel_new(struct loop *l, const struct net_addr *addr,
                                      const struct grpc_channel_conf *conf);
struct grpc_channel *grpc_channel_free(struct grpc_channel *ch); /* NULL is fine; returns NULL */
struct pool *grpc_channel_pool(struct grpc_channel *ch);         /* state, counts */

/* Any may be NULL. fields, p and message are valid until the event returns. */
struct grpc_call_ops {
    /* Initial metadata (pseudo and content-type fields included); not called for Trailers-Only. */
    void (*on_headers)(void *user, struct grpc_call *c, const struct h2_field *fields, size_t n);
    /* One whole message. compressed: flag of its prefix (we never ask for compression). */
    void (*on_message)(void *user, struct grpc_call *c, const uint8_t *p, size_t len,
                       bool compressed);
    /* After grpc_call_queued was over GRPC_SEND_HIGH: it fell under half of it. */
    void (*on_writable)(void *user, struct grpc_call *c);
    /* The call is over. status: 0..16. trailers: NULL, 0 when the status was made here. */
    void (*on_end)(void *user, struct grpc_call *c, int status, const char *message,
                   const struct h2_field *trailers, size_t n);
};

#define GRPC_SEND_HIGH (256u * 1024) /* a streaming sender should pause above this */

struct grpc_call_conf {
    const char *path;                /* "/package.Service/Method" */
    const struct h2_field *metadata; /* further request fields; copied */
    size_t n_metadata;
    uint64_t deadline_us;       /* on the loop's clock; 0: none. Sent as grpc-timeout. */
    uint32_t max_message_bytes; /* of an answer; 0: 64 MiB. Past it: RESOURCE_EXHAUSTED */
    bool wait_for_ready; /* keep waiting while the address is down (the deadline still ends it) */
};

/* Starts a call; it waits while the channel dials or is full. */
struct grpc_call *grpc_call_start(struct grpc_channel *ch, const struct grpc_call_conf *conf,
                                  const struct grpc_call_ops *ops, void *user);
/* Start, send one message, half-close. */
struct grpc_call *grpc_call_unary(struct grpc_channel *ch, const struct grpc_call_conf *conf,
                                  const void *message, size_t len, const struct grpc_call_ops *ops,
                                  void *user);
/* One message (the 5-byte prefix is added), copied. last: half-close after it. */
void grpc_call_send(struct grpc_call *c, const void *message, size_t len, bool last);
/* The same without a copy: p lies in slab. */
void grpc_call_send_slab(struct grpc_call *c, struct slab *slab, const uint8_t *p, size_t len,
                         bool last);
void grpc_call_half_close(struct grpc_call *c);
size_t grpc_call_queued(const struct grpc_call *c); /* bytes sent that have not left yet */
/* Stop reading: the peer is held by its stream window (up to one more message may come). */
void grpc_call_pause(struct grpc_call *c);
void grpc_call_resume(struct grpc_call *c);
/* RST_STREAM(CANCEL); on_end(CANCELLED) follows, not from inside. */
void grpc_call_cancel(struct grpc_call *c);
/* As cancel, but no further event: the user may go away at once. */
void grpc_call_abandon(struct grpc_call *c);
void *grpc_call_user(const struct grpc_call *c);

#endif
