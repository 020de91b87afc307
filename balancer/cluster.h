/* balancer/cluster.h - all endpoints and clusters of one worker, kept across snapshots.
 *
 * Owns:      endpoints, clusters, members and the per-model version splits. The `pool` slot of an
 *            endpoint and the `queue` slot of a cluster belong to the worker, which fills and
 *            empties them in the hooks.
 * Called by: gateway/worker.c (apply), route.c (model, split), attempt.c (pick, done).
 * Lifetime:  balancer_new .. balancer_free. Objects that a snapshot no longer names have `left`:
 *            they take no new calls and are freed, in member_done, when their last call has ended.
 * Thread:    one worker's; no locks, no I/O, no clock.
 *
 * Which member may take a call, in this order (cluster_pick):
 *  1. READY and not out;
 *  2. when no such member is left to try: READY but ejected, or UNHEALTHY. A wrong health verdict
 * on everybody must not turn into an outage; a right one costs an attempt that fails anyway;
 *  3. never STARTING (a model that is being loaded) and never DRAINING.
 */
#ifndef BALANCER_CLUSTER_H
#define BALANCER_CLUSTER_H

#include "balancer/endpoint.h"
#include "balancer/lb.h"
#include "balancer/split.h"
#include "base/hash.h"
#include "base/rng.h"

/* Called from balancer_apply, balancer_free and member_done. Any may be NULL. None may call back
 * into the balancer, except for cluster_left, which may pick from other clusters. */
struct balancer_hooks {
    void (*endpoint_added)(void *arg, struct endpoint *ep); /* fill ep->pool */
    void (*endpoint_left)(void *arg, struct endpoint *ep);  /* no new calls will come */
    void (*endpoint_removed)(void *arg,
                             struct endpoint *ep);       /* its last call has ended: free pool */
    void (*cluster_added)(void *arg, struct cluster *c); /* fill c->queue */
    void (*cluster_left)(void *arg, struct cluster *c);  /* queued calls must go elsewhere now */
    void (*cluster_removed)(void *arg, struct cluster *c);
    /* A slot may be free or a member usable that was not before: try the queue. Comes in
     * balancer_apply and member_done, when c was found full or empty since the last time. */
    void (*cluster_has_room)(void *arg, struct cluster *c);
};

struct cluster {
    struct balancer *balancer;
    struct list node; /* balancer.clusters */
    char *model, *version;
    const struct lb_ops *policy;
    struct member **members;
    size_t n_members;
    void *queue; /* the worker's calls that wait here */
    uint32_t in_flight;
    bool left;
    bool wants_room; /* a pick found it full or empty */
    uint64_t mark;

    /* the usable members, refreshed when something changes or an ejection ends */
    struct member **usable;
    uint64_t *weight_sums;
    size_t n_usable;
    size_t cap;
    bool stale;
    uint64_t refresh_at_us;
    double fair_picks;
};

/* One model: its split, and its clusters in the order of snap_model.versions. */
struct model_state {
    char *name;
    struct split split;
    struct cluster **clusters;
    bool *ready; /* scratch for the split */
    size_t n;
    uint64_t mark;
};

struct balancer;

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

enum pick {
    PICK_OK = 0,
    PICK_NO_ENDPOINT, /* nobody may take calls: hold, or answer UNAVAILABLE */
    PICK_ALL_FULL,    /* wait in the queue for a slot: hooks.cluster_has_room */
    PICK_ALL_TRIED,   /* everybody who could has been tried by this call */
};

/* Choose a member for one attempt and count the call there; member_done ends it.
 * tried: ids of endpoints this call has been to (compared, never followed); n_tried may be 0. */
enum pick cluster_pick(struct cluster *c, struct rng *rng, uint64_t now_us, const uint64_t *tried,
                       size_t n_tried, struct member **ret_member);

/* Is there a READY member that is not out (whether or not it has a free slot)? */
bool cluster_is_ready(struct cluster *c, uint64_t now_us);

/* For reports and the status page. */
typedef void (*balancer_endpoint_fn)(void *arg, const struct endpoint *ep);
void balancer_each_endpoint(const struct balancer *b, balancer_endpoint_fn fn, void *arg);
typedef void (*balancer_cluster_fn)(void *arg, struct cluster *c);
void balancer_each_cluster(struct balancer *b, balancer_cluster_fn fn, void *arg);

#endif
