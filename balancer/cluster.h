/* balancer/cluster.h - the replicas of one model version, and the choice of one for an attempt.
 *
 * Owns:      its members. The `queue` slot is the worker's: calls that wait for room.
 * Called by: gateway/route.c and attempt.c (pick).
 * Lifetime:  made and freed by the balancer (balancer/balancer.h).
 * Thread:    one worker's; no locks, no I/O, no clock.
 *
 * Which member may take a call, in this order:
 *  1. READY and not out; one on trial only when it has no call;
 *  2. when no such member is left to try: any that is READY or UNHEALTHY. A wrong health verdict on
 *     everybody must not turn into an outage; a right one costs an attempt that fails anyway;
 *  3. never STARTING (a model that is being loaded) and never DRAINING.
 */
#ifndef BALANCER_CLUSTER_H
#define BALANCER_CLUSTER_H

#include "balancer/endpoint.h"
#include "balancer/lb.h"
#include "base/rng.h"

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
    bool in_hook;    /* cluster_has_room is running */
    uint64_t mark;   /* the last balancer_apply that named it */

    /* the usable members, refreshed when something changes or an ejection ends */
    struct member **usable;
    uint64_t *weight_sums;
    size_t n_usable;
    size_t cap;
    bool stale;
    uint64_t refresh_at_us;
    double fair_picks; /* see score.h */
};

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

/* For balancer.c and endpoint.c. */
void cluster_refresh(struct cluster *c, uint64_t now_us); /* `usable` is true afterwards */
bool cluster_has_other(const struct cluster *c, const struct member *m, uint64_t now_us);

#endif
