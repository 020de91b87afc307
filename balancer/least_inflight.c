/* balancer/least_inflight.c - the least loaded of all. Best when one worker sees every call; with
 * many workers or gateways they herd on the same replica, which p2c avoids. */
#include "balancer/endpoint.h"
#include "balancer/lb.h"
#include "balancer/score.h"

static struct member *least_pick(const struct lb_view *view, struct rng *rng)
{
    struct member *const m = lb_scan(view, rng);

    if (m != NULL)
        lb_note_pick(view, m);
    return m;
}

const struct lb_ops lb_least_inflight = {.name = "least_inflight", .pick = least_pick};
