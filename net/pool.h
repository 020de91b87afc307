/* net/pool.h - our connections to one address, for one worker.
 *
 * Owns:      its connections; streams opened through it belong to their h2 (valid to on_close).
 * Called by: gateway/attempt (one pool per endpoint and worker), net/grpc_client.
 * Lifetime:  pool_new .. pool_free. pool_free closes the connections: each open stream gets its
 *            on_close(H2_CONNECT_ERROR) from inside pool_free; waiters must be gone.
 * Thread:    its loop's.
 *
 * Invariants:
 *  - A stream is only opened on a connection that is ready and has room, so nothing queues inside
 *    an engine. Among those the one with the fewest streams is taken.
 *  - The pool dials one more connection when the ready ones are filled to grow_ratio of the peer's
 *    MAX_CONCURRENT_STREAMS (counting ours), up to max_conns: before the limit, not at it.
 *  - A connection that got GOAWAY takes no new stream, a replacement is dialled at once, and it is
 *    closed when its last stream ends.
 *  - At most one dial at a time; after a failed one the next waits (back-off, doubled, with
 * jitter).
 *  - Waiters are served in order, from the loop's flush phase: never from inside pool_wait,
 *    pool_open or an event.
 */
#ifndef NET_POOL_H
#define NET_POOL_H

#include "net/conn.h"

struct pool;

enum pool_state {
    POOL_IDLE = 0, /* no connection and no wish for one (lazy, or all were closed while idle) */
    POOL_DIALLING, /* none ready yet, a dial is under way, none failed since the last success */
    POOL_UP,       /* at least one connection is ready */
    POOL_DOWN, /* the last dial failed, the last connection broke, or none allowed streams; dialled
                  again by back-off */
};
const char *pool_state_name(enum pool_state s);

struct pool_conf {
    struct conn_conf conn;
    uint32_t min_conns;   /* kept open while the pool lives; 0: dial at the first need */
    uint32_t max_conns;   /* >= 1 */
    uint32_t max_streams; /* of one connection, our own cap beside the peer's; 0: the peer's only */
    double grow_ratio;    /* 0..1 */
    uint64_t backoff_min_us; /* after the first failure; then doubled, +-20 % */
    uint64_t backoff_max_us;
    uint64_t no_streams_us; /* no connection allows a stream for so long: down; 0: for ever */
    uint64_t seed;          /* of the jitter */
};
void pool_conf_default(struct pool_conf *c);

struct pool_ops {
    /* Stream events (on_headers, on_data, on_sent, on_close). Connection events (on_goaway,
     * on_settings, on_ping_ack, on_dirty) are the pool's: leave them NULL. */
    struct h2_events h2;
    void (*on_state)(void *user, enum pool_state state, const char *why); /* NULL: don't care */
};

/* user: of every event. */
struct pool *pool_new(struct loop *l, const struct net_addr *addr, const struct pool_conf *conf,
                      const struct pool_ops *ops, void *user);
struct pool *pool_free(struct pool *p);

/* set: what the request begins with; NULL: fields are all. Open a stream on the least loaded
 * connection that has room, or NULL: "not now" (and a connection is being dialled if the limits
 * allow). Then pool_wait, or try elsewhere. */
struct h2_stream *pool_open(struct pool *p, struct h2_set *set, const struct h2_field *fields,
                            size_t n, bool end, void *stream_user);
bool pool_can_open(const struct pool *p);

/* Woken once: ok: pool_open will succeed if called now; false: the pool went down (why: last
 * connect error) and nothing was started; so too, in the next flush phase, when it is down already
 * and its back-off runs. Off the list when woken. */
struct pool_waiter {
    struct list node;
    bool patient; /* set by the caller: stay over failed dials, only ok wakes it */
    void (*wake)(struct pool_waiter *w, bool ok, const char *why);
};
void pool_wait(struct pool *p, struct pool_waiter *w);
void pool_wait_cancel(struct pool *p, struct pool_waiter *w); /* safe when not waiting */

enum pool_state pool_state(const struct pool *p);
const char *pool_why_down(const struct pool *p); /* "" while up */
uint32_t pool_n_streams(const struct pool *p);
uint32_t pool_n_conns(const struct pool *p); /* dialling, ready and draining ones */
const struct net_addr *pool_addr(const struct pool *p);

/* Other TLS settings from now on (NULL: cleartext): connections that are there take no new stream
 * and close when theirs have ended. */
void pool_set_tls(struct pool *p, struct tls_ctx *tls);
bool pool_has_tls(const struct pool *p);

/* Dial now although nobody needs a stream yet (a probe wants to know). Also ends a back-off. */
void pool_warm(struct pool *p);
/* Who answers there was not there before (a replica became ready): forget the failed dials, dial
 * now; until that ends the pool is DIALLING, not DOWN. Nothing happens while it is UP. */
void pool_renew(struct pool *p);
/* No new streams; connections close when their streams have ended; on_drained then (NULL: don't
 * care), from the flush phase. */
void pool_drain(struct pool *p, void (*on_drained)(void *user));

#endif
