/* balancer/round_robin.c - in turn, by weight, evenly mixed (a a b a, not a a a b); blind to load.
 *
 * rr_current starts at random below the member's weight (balancer.c), so that workers and gateways
 * do not march in step.
 * Source: nginx "smooth" weighted round robin.
 */
#include "balancer/endpoint.h"
#include "balancer/lb.h"

static struct member *round_robin_pick(const struct lb_view *view, struct rng *rng)
{
    struct member *best = NULL;
    int64_t total = 0;

    (void)rng;
    for (size_t i = 0; i < view->n; i++) {
        struct member *const m = view->members[i];

        if (lb_refuses(view, m) != LB_MAY)
            continue;
        m->rr_current += m->weight;
        total += m->weight;
        if (best == NULL || m->rr_current > best->rr_current)
            best = m;
    }
    if (best != NULL)
        best->rr_current -= total;
    return best;
}

const struct lb_ops lb_round_robin = {.name = "round_robin", .pick = round_robin_pick};
