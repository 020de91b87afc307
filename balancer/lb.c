#include "balancer/lb.h"

#include "balancer/endpoint.h"
#include "balancer/score.h"
#include "base/check.h"

#define LEAD_MAX            64.0  /* calls remembered */
#define LEAD_GAIN           0.125 /* calls of load that one call of lead weighs */
#define LEAD_COUNTS_OF_LOAD 0.25  /* of the in-flight that is a member's due */

const struct lb_ops *lb_of_policy(enum model_policy policy)
{
    static const struct lb_ops *const by_policy[] = {
        [POLICY_P2C] = &lb_p2c,
        [POLICY_LEAST_INFLIGHT] = &lb_least_inflight,
        [POLICY_ROUND_ROBIN] = &lb_round_robin,
    };

    check((unsigned)policy < ARRAY_LEN(by_policy));
    return by_policy[policy];
}

enum lb_refusal lb_refuses(const struct lb_view *view, const struct member *m)
{
    for (size_t i = 0; i < view->n_tried; i++) {
        if (view->tried[i] == m->endpoint->id)
            return LB_TRIED;
    }
    if (m->slots > 0 && m->in_flight >= m->slots)
        return LB_FULL;
    if (m->gated && m->in_flight > 0)
        return LB_TRIED; /* not now, and nothing to wait for: others can take it */
    return LB_MAY;
}

static uint64_t total_weight(const struct lb_view *view)
{
    return view->weight_sums[view->n - 1];
}

static double lead_of(const struct lb_view *view, const struct member *m)
{
    return m->picks - *view->fair_picks * m->weight;
}

static double clamp(double x, double limit)
{
    return x > limit ? limit : x < -limit ? -limit : x;
}

/* What is the same for all members of a view. */
struct scale {
    double fair_picks;
    double limit_per_weight;
};

static struct scale scale_of(const struct lb_view *view)
{
    return (struct scale){.fair_picks = *view->fair_picks,
                          .limit_per_weight = LEAD_COUNTS_OF_LOAD * (double)view->in_flight /
                                              (double)total_weight(view)};
}

static double score_of(const struct scale *scale, const struct member *m)
{
    const double weight = m->weight, due = scale->limit_per_weight * weight;
    const double lead = (m->picks - scale->fair_picks * weight) * LEAD_GAIN;

    return (m->endpoint->in_flight + clamp(lead, due > 0.5 ? due : 0.5)) / weight;
}

double lb_score(const struct lb_view *view, const struct member *m)
{
    const struct scale scale = scale_of(view);

    return score_of(&scale, m);
}

struct member *lb_scan(const struct lb_view *view, struct rng *rng)
{
    /* A tie-break: an unevenness of 2^-32 does no harm, and costs no division. */
    size_t at = (size_t)((rng_next(rng) >> 32) * (uint64_t)view->n >> 32);
    const struct scale scale = scale_of(view);
    struct member *best = NULL;
    double best_score = 0;

    for (size_t i = 0; i < view->n; i++) {
        struct member *const m = view->members[at];

        at = at + 1 < view->n ? at + 1 : 0;
        if (lb_refuses(view, m) != LB_MAY)
            continue;

        const double score = score_of(&scale, m);

        if (best == NULL || score < best_score) {
            best = m;
            best_score = score;
        }
    }
    return best;
}

void lb_note_pick(const struct lb_view *view, struct member *m)
{
    const double lead = lead_of(view, m);
    const double cut = clamp(lead, LEAD_MAX) - lead;

    /* Leads sum to 0 before and after: one call more for m, and what the cut forgave it. */
    m->picks += 1 + cut;
    *view->fair_picks += (1 + cut) / (double)total_weight(view);
}
