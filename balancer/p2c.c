/* balancer/p2c.c - power of two choices: two draws by weight, the less loaded one of them.
 *
 * Draws are by weight, not uniform: with weights 1:1:2:4 a uniform draw shows the heavy one in half
 * of the pairs only, so it could never get its half of the calls unless it won them all. Comparing
 * two instead of all keeps workers that don't see each other's calls from herding on one replica.
 */
#include "balancer/endpoint.h"
#include "balancer/lb.h"
#include "balancer/score.h"

#define DRAWS 4 /* for each of the two; then a scan: most members are full or tried */

/* Index of a member by weight: the first whose running sum is above a uniform number. */
static size_t draw(const struct lb_view *view, struct rng *rng)
{
    const uint64_t at = rng_below(rng, view->weight_sums[view->n - 1]);
    size_t low = 0, high = view->n - 1;

    while (low < high) {
        const size_t mid = low + (high - low) / 2;

        if (at < view->weight_sums[mid])
            high = mid;
        else
            low = mid + 1;
    }
    return low;
}

static struct member *draw_allowed(const struct lb_view *view, struct rng *rng,
                                   const struct member *not_this)
{
    for (int i = 0; i < DRAWS; i++) {
        struct member *const m = view->members[draw(view, rng)];

        if (m != not_this && lb_refuses(view, m) == LB_MAY)
            return m;
    }
    return NULL;
}

static struct member *p2c_pick(const struct lb_view *view, struct rng *rng)
{
    struct member *a = NULL, *b = NULL;

    if (view->n > 2) {
        a = draw_allowed(view, rng, NULL);
        b = a != NULL ? draw_allowed(view, rng, a) : NULL;
    }
    if (b == NULL)
        a = lb_scan(view, rng);
    else if (lb_score(view, b) < lb_score(view, a))
        a = b;
    if (a != NULL)
        lb_note_pick(view, a);
    return a;
}

const struct lb_ops lb_p2c = {.name = "p2c", .pick = p2c_pick};
