/* gateway/worker.h - one gateway thread: its loop, listeners, sessions, balancer state, counters.
 *
 * Owns:      everything that its thread touches; nothing of it is shared.
 * Called by: gateway.c (start, messages); listener, session, stream, report on its own thread.
 * Lifetime:  worker_init (control thread, before the thread runs) .. worker_fini (after it ended).
 * Thread:    its own, once worker_run has begun; others post to loop.mbox.
 */
#ifndef GATEWAY_WORKER_H
#define GATEWAY_WORKER_H

#include <pthread.h>

#include "balancer/balancer.h"
#include "base/log.h"
#include "base/rng.h"
#include "gateway/addresses.h"
#include "gateway/door.h"
#include "gateway/gateway.h"
#include "gateway/handshakes.h"
#include "gateway/paths.h"
#include "gateway/shapes.h"
#include "gateway/stats.h"
#include "net/pool.h"
#include "net/tls.h"

struct listener;

/* Of a call without fields: its structs here and in the engine, and one chunk. */
#define CALL_BYTES 6144u

/* Addresses of replicas by their text, resolved on the control thread. Immutable. */
struct address_book {
    struct map by_text; /* struct net_addr * */
    struct map tls;     /* struct tls_ctx *, the gateway's; not there: cleartext */
};

struct worker {
    struct gateway *gateway;
    uint32_t index;
    pthread_t thread;
    bool runs;
    struct loop loop;
    struct rng rng;
    uint64_t counters[N_COUNTERS];

    struct snapshot *snap;
    struct address_book *addresses;
    struct balancer *balancer;
    struct local *local;
    bool routes_kserve, routes_tensorflow; /* the snapshot has such models: their paths are known */
    uint64_t epoch; /* counts snapshots: what was worked out for another is void */
    struct paths paths;
    struct shapes shapes;
    struct pool_conf upstream;

    struct list lanes;          /* struct lane.node */
    struct listener *listeners; /* worker 0 has their sockets, all have their settings */
    size_t n_listeners;
    struct door door;
    struct worker *peers; /* all workers; worker 0 hands them what it accepts */
    uint32_t n_peers, door_turn;
    struct list sessions; /* struct session.node */
    uint32_t max_sessions;
    struct handshakes handshakes;
    const struct tenant_conf *tenants; /* [n_tenants], the process's */
    size_t n_tenants;
    struct tenant_counts *tenant_counts;
    struct addresses addresses_of_clients;
    uint64_t request_us;        /* until a call has named its model; 0: no limit */
    uint32_t memory_mib;        /* the budget, of which the next are parts */
    size_t memory_shrink_bytes; /* past it streams get small windows */
    bool is_shrunk;             /* they have them */
    uint32_t stream_window;     /* of clients' streams otherwise, at first */
    size_t memory_refuse_bytes; /* past it new calls make room or are refused */
    size_t memory_bytes;        /* of it; past it calls end and new ones are refused */
    size_t call_bytes;          /* of calls themselves: their fields and short messages */

    struct h2_field *scratch; /* header fields of one request or response while it is sent */
    size_t scratch_cap;
    struct list spare_streams; /* ended ones with their arenas' first chunk */
    uint32_t n_spare_streams;
    size_t trimmed_bytes;  /* freed by trimming, not yet told to the allocator */
    uint32_t streams_peak; /* most at once since the last report: so many spare ones are kept */
    struct list held;      /* streams whose response headers wait, oldest first */
    struct timer held_timer;
    struct list heavy; /* streams that hold bytes which one side does not take, longest first */

    struct timer report_timer;
    uint64_t report_sequence;
    uint64_t reported_us;
    struct log_limit attempt_log; /* failed attempts come in crowds */
    struct log_limit session_log; /* so do connections that end by their client's fault */
    struct log_limit memory_log;  /* and so do calls that are ended for their memory */
    struct log_limit handshake_log;

    bool draining;
    bool stopping;
    void (*on_drained)(struct worker *w); /* once, when draining and no session is left */
};

struct worker_conf {
    struct gateway *gateway;
    uint32_t index, n_workers;
    const struct process_conf *process;
    const struct h2_engine *engine;
    const struct certs *certs;        /* NULL: all listeners are cleartext */
    const struct net_addr *addresses; /* [process->n_listeners]; port 0 only for worker 0 */
    struct worker *workers;           /* [n_workers]; worker 0 is initialised first */
    struct snapshot *snap;            /* a reference is taken */
    struct address_book *book;        /* owned from here */
};

/* Binds the listeners; 0 or -errno with err (then worker_fini is still due). */
int worker_init(struct worker *w, const struct worker_conf *conf, struct err *err);
int worker_start(struct worker *w, struct err *err); /* the thread */
void worker_join(struct worker *w);                  /* after worker_post_stop */
void worker_fini(struct worker *w);                  /* works on a zeroed worker */
const struct net_addr *worker_listen_addr(const struct worker *w, size_t i);

/* From the control thread. */
void worker_post_snapshot(struct worker *w, struct snapshot *snap, struct address_book *book);
void worker_post_drain(struct worker *w, void (*on_drained)(struct worker *w));
void worker_post_close_sessions(struct worker *w); /* the drain's limit has passed */
void worker_post_stop(struct worker *w);

/* On its thread. */
static inline void worker_count(struct worker *w, enum counter c)
{
    w->counters[c]++;
}
static inline bool worker_is_over_memory(const struct worker *w, size_t budget_bytes)
{
    return w->loop.slabs.pinned_bytes + w->call_bytes > budget_bytes;
}
/* A call's own memory is now arena_bytes and what every call has. booked: what it was, kept. */
static inline void worker_book_call(struct worker *w, size_t *booked, size_t arena_bytes)
{
    w->call_bytes += arena_bytes + CALL_BYTES - *booked;
    *booked = arena_bytes + CALL_BYTES;
}
static inline void worker_unbook_call(struct worker *w, size_t *booked)
{
    w->call_bytes -= *booked;
    *booked = 0;
}
/* Run task on w's thread. From any thread. */
void worker_post_task(struct worker *w, void (*task)(struct worker *w));
/* There is room for TLS handshakes again: tell worker 0. */
void worker_accept_again(struct worker *w);
/* tenant: NULL: nobody's. */
static inline struct tenant_counts *worker_tenant_counts(struct worker *w,
                                                         const struct tenant_conf *tenant)
{
    return tenant != NULL ? &w->tenant_counts[tenant - w->tenants] : NULL;
}
/* A session has ended: a drain may be over. */
void worker_session_ended(struct worker *w);
static inline struct paths_rules worker_paths_rules(const struct worker *w)
{
    return (struct paths_rules){
        .local = w->local, .has_kserve = w->routes_kserve, .has_tensorflow = w->routes_tensorflow};
}
/* Room for n fields; valid until the next call. */
struct h2_field *worker_scratch(struct worker *w, size_t n);

struct address_book *address_book_new(void);
struct address_book *address_book_free(struct address_book *b);

#endif
