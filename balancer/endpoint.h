/* balancer/endpoint.h - one replica as one worker sees it: calls in flight and passive health.
 *
 * An endpoint is an address; a member is that endpoint's place in one cluster (a model version). A
 * server that holds many versions is one endpoint and a member of each of their clusters, so that
 * its load is counted once while its health is known per version: Triton can be ready for one
 * version and not for the next.
 *
 * Owns:      the counts and the ejection state. The `pool` slot is the worker's.
 * Called by: cluster_pick begins a call at a member; gateway/attempt.c ends it with member_done.
 * Lifetime:  made by balancer_apply; freed there or in member_done, when no snapshot names it and
 * its last call has ended. Thread:    one worker's; no locks, no I/O, no clock.
 *
 * Invariants:
 *  - endpoint.in_flight is the sum of in_flight over its members.
 *  - A member that is out (ejected, stopping, quarantined) is so until out_until_us. It comes back
 * on trial: one call at a time until one succeeds.
 *  - Ejection never takes the last usable member of a cluster.
 */
#ifndef BALANCER_ENDPOINT_H
#define BALANCER_ENDPOINT_H

#include <stdbool.h>
#include <stdint.h>

#include "balancer/outcome.h"
#include "base/list.h"
#include "conf/snapshot.h"

struct cluster;
struct upstream; /* of whoever uses the balancer: never looked into */

struct endpoint {
    struct list node;    /* balancer.endpoints */
    struct list members; /* struct member.of_endpoint */
    struct balancer *balancer;
    char *address;
    uint64_t id;   /* never used twice: what "already tried" lists hold */
    uint64_t mark; /* the last balancer_apply that named it */
    uint32_t in_flight;
    uint64_t started;
    uint64_t failed;       /* ended with an outcome that is the replica's fault */
    struct upstream *pool; /* the worker's connections; filled in hooks.endpoint_added */
    bool left;             /* no snapshot names it; ends with its last call */
};

enum member_out { MEMBER_IN = 0, MEMBER_EJECTED, MEMBER_STOPPING, MEMBER_QUARANTINED };

struct member {
    struct list of_endpoint;
    struct endpoint *endpoint;
    struct cluster *cluster;
    char *replica;             /* name for messages */
    enum endpoint_state state; /* the snapshot's */
    uint32_t weight;           /* >= 1 */
    uint32_t slots;            /* of this worker; 0: no limit */
    uint32_t in_flight;
    bool left; /* no snapshot names it; ends with its last call */

    /* passive health */
    enum member_out out;
    enum outcome out_why; /* while it is ejected */
    uint64_t out_until_us;
    uint32_t n_outs; /* in a row: the back-off */
    uint32_t failures_in_row;
    uint64_t last_failure_us;
    bool on_trial;
    bool gated; /* on trial while others are not: one call at a time */

    /* what policies keep */
    double picks;       /* see score.h */
    int64_t rr_current; /* see round_robin.c */
    uint64_t mark;      /* the last balancer_apply that named it */
};

/* The rest is balancer.c's. */
void member_reset_health(struct member *m); /* a clean sheet */

/* The call that cluster_pick began at m has ended. m may be freed by this: do not touch it after.
 */
void member_done(struct member *m, enum outcome how, uint64_t now_us);

/* A connection to ep stands again: members that are out because none could be made come back, on
 * trial, now. */
void endpoint_connected(struct endpoint *ep, uint64_t now_us);

/* May calls go to m? True for READY ones that are not out. */
bool member_is_usable(const struct member *m, uint64_t now_us);
const char *member_out_name(const struct member *m); /* "", "ejected", "stopping", "quarantined" */

#endif
