/* balancer/balancer.h - all endpoints and clusters of one worker, kept across snapshots.
 *
 * Owns:      endpoints, clusters, members and the per-model version splits. The `pool` slot of an
 *            endpoint and the `queue` slot of a cluster belong to the worker, which fills and
 *            empties them in the hooks.
 * Called by: gateway/worker.c (apply), route.c (model, split).
 * Lifetime:  balancer_new .. balancer_free. Objects that a snapshot no longer names have `left`:
 *            they take no new calls and are freed when their last call has ended.
 * Thread:    one worker's; no locks, no I/O, no clock.
 */
#ifndef BALANCER_BALANCER_H
#define BALANCER_BALANCER_H

#include "balancer/cluster.h"
#include "balancer/split.h"

/* Called from balancer_apply, balancer_free and member_done. Any may be NULL. Only cluster_left and
 * cluster_has_room may call back into the balancer: pick and member_done. */
struct balancer_hooks {
    void (*endpoint_added)(void *arg, struct endpoint *ep); /* fill ep->pool */
    void (*endpoint_ready)(void *arg, struct endpoint *ep); /* the prober says so, now */
    void (*endpoint_left)(void *arg, struct endpoint *ep);  /* no new calls will come */
    void (*endpoint_removed)(void *arg,
                             struct endpoint *ep);       /* its last call has ended: free pool */
    void (*cluster_added)(void *arg, struct cluster *c); /* fill c->queue */
    void (*cluster_left)(void *arg, struct cluster *c);  /* queued calls must go elsewhere now */
    void (*cluster_removed)(void *arg, struct cluster *c);
    /* A slot may be free or a member usable that was not before: try the queue. Comes in
     * balancer_apply and member_done, when c was found full or empty since the last time. */
    void (*cluster_has_room)(void *arg, struct cluster *c);
    /* m takes no calls for_us long (0: it is back for good): a line for the log. */
    void (*member_moved)(void *arg, const struct member *m, enum outcome why, uint64_t for_us);
};

struct balancer;

/* One model: its split, and its clusters in the order of snap_model.versions. */
struct model_state {
    char *name;
    struct split split;
    struct cluster **clusters;
    bool *ready; /* per version; refreshed by each model_pick_version */
    size_t n;
    uint64_t mark;
};

/* n_workers: a replica's slots are shared out among so many. seed: differs between workers. */
struct balancer *balancer_new(uint32_t n_workers, uint64_t seed, const struct balancer_hooks *hooks,
                              void *arg);
struct balancer *balancer_free(struct balancer *b); /* no call may be in flight; returns NULL */

/* Go over to a snapshot. Objects that stay keep their counts, health and pools. The balancer keeps
 * no pointer into it. */
void balancer_apply(struct balancer *b, const struct snapshot *s, uint64_t now_us);

/* Of the snapshot applied last: index is that of snapshot.models. */
struct model_state *balancer_model(struct balancer *b, size_t index);
/* Next version by the split; -1: no version has weight. */
int model_pick_version(struct model_state *m, uint64_t now_us);

/* For reports and the status page. */
typedef void (*balancer_endpoint_fn)(void *arg, const struct endpoint *ep);
void balancer_each_endpoint(const struct balancer *b, balancer_endpoint_fn fn, void *arg);
typedef void (*balancer_cluster_fn)(void *arg, struct cluster *c);
void balancer_each_cluster(struct balancer *b, balancer_cluster_fn fn, void *arg);

/* For cluster.c and endpoint.c. */
const struct balancer_hooks *balancer_hooks(const struct balancer *b, void **ret_arg);
void balancer_release(struct member *m); /* frees m, and what hung on it alone, when all is over */
void balancer_tell_room(struct cluster *c);

#endif
