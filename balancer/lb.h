/* balancer/lb.h - the choice among a cluster's usable members: one ops table per policy.
 *
 * Owns:      nothing; what a policy keeps lies in struct member and struct cluster.
 * Called by: cluster_pick.
 * Thread:    one worker's; no locks, no I/O, no clock.
 */
#ifndef BALANCER_LB_H
#define BALANCER_LB_H

#include <stddef.h>
#include <stdint.h>

#include "base/rng.h"
#include "conf/model.h"

struct member;

/* The members that may take a call now. */
struct lb_view {
    struct member *const *members; /* n >= 1 */
    const uint64_t *weight_sums;   /* running sums of weights; the last is the total */
    size_t n;
    const uint64_t *tried; /* endpoint ids that this call has been to: skipped */
    size_t n_tried;
    uint32_t in_flight; /* at all members of the cluster */
    double *fair_picks; /* of the cluster, see score.h */
};

struct lb_ops {
    const char *name; /* the word used in the config */
    /* NULL: every member is full or tried. */
    struct member *(*pick)(const struct lb_view *view, struct rng *rng);
};

extern const struct lb_ops lb_p2c, lb_least_inflight, lb_round_robin;
const struct lb_ops *lb_of_policy(enum model_policy policy);

enum lb_refusal { LB_MAY = 0, LB_FULL, LB_TRIED };
/* Why m can't take this call now. */
enum lb_refusal lb_refuses(const struct lb_view *view, const struct member *m);

#endif
