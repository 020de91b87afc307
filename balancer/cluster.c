#include "balancer/cluster.h"

#include <string.h>

#include "balancer/balancer.h"
#include "base/check.h"
#include "base/xalloc.h"

/* Add m to the list under construction. */
static void push(struct cluster *c, struct member *m)
{
    const uint64_t sum = c->n_usable > 0 ? c->weight_sums[c->n_usable - 1] : 0;

    c->usable[c->n_usable] = m;
    c->weight_sums[c->n_usable] = sum + m->weight;
    c->n_usable++;
}

static void reserve(struct cluster *c)
{
    if (c->cap >= c->n_members)
        return;
    c->cap = c->n_members;
    c->usable = xrealloc(c->usable, c->cap, sizeof(struct member *));
    c->weight_sums = xrealloc(c->weight_sums, c->cap, sizeof(uint64_t));
}

void cluster_refresh(struct cluster *c, uint64_t now_us)
{
    size_t n_solid = 0;

    if (!c->stale && now_us < c->refresh_at_us)
        return;
    c->stale = false;
    c->refresh_at_us = UINT64_MAX;
    c->n_usable = 0;
    reserve(c);
    for (size_t i = 0; i < c->n_members; i++) {
        struct member *const m = c->members[i];

        if (m->state != ENDPOINT_READY)
            continue;
        if (m->out != MEMBER_IN && now_us >= m->out_until_us) {
            m->out = MEMBER_IN;
            m->on_trial = true;
        }
        if (m->out != MEMBER_IN) {
            if (m->out_until_us < c->refresh_at_us)
                c->refresh_at_us = m->out_until_us;
            continue;
        }
        n_solid += !m->on_trial;
        push(c, m);
    }
    for (size_t i = 0; i < c->n_usable; i++)
        c->usable[i]->gated = c->usable[i]->on_trial && n_solid > 0;
}

bool cluster_has_other(const struct cluster *c, const struct member *m, uint64_t now_us)
{
    for (size_t i = 0; i < c->n_members; i++) {
        const struct member *const other = c->members[i];

        if (other != m && !other->on_trial && other->out == MEMBER_IN &&
            member_is_usable(other, now_us))
            return true;
    }
    return false;
}

bool cluster_is_ready(struct cluster *c, uint64_t now_us)
{
    cluster_refresh(c, now_us);
    return !c->left && c->n_usable > 0;
}

/* Why did nobody of the view take it? */
static enum pick refusal(const struct lb_view *v)
{
    enum pick why = v->n == 0 ? PICK_NO_ENDPOINT : PICK_ALL_TRIED;

    for (size_t i = 0; i < v->n; i++) {
        if (lb_refuses(v, v->members[i]) == LB_FULL)
            why = PICK_ALL_FULL;
    }
    return why;
}

static struct lb_view view_of(struct cluster *c, const uint64_t *tried, size_t n_tried)
{
    return (struct lb_view){.members = c->usable,
                            .weight_sums = c->weight_sums,
                            .n = c->n_usable,
                            .tried = tried,
                            .n_tried = n_tried,
                            .in_flight = c->in_flight,
                            .fair_picks = &c->fair_picks};
}

/* Nobody is usable, or this call has been to all who are: READY but out, or UNHEALTHY. */
static enum pick pick_any(struct cluster *c, struct rng *rng, const uint64_t *tried, size_t n_tried,
                          struct member **ret_member)
{
    c->stale = true; /* the arrays serve for this list now */
    c->n_usable = 0;
    for (size_t i = 0; i < c->n_members; i++) {
        if (c->members[i]->state == ENDPOINT_READY || c->members[i]->state == ENDPOINT_UNHEALTHY) {
            c->members[i]->gated = false;
            push(c, c->members[i]);
        }
    }
    const struct lb_view v = view_of(c, tried, n_tried);

    *ret_member = v.n > 0 ? c->policy->pick(&v, rng) : NULL;
    return *ret_member != NULL ? PICK_OK : refusal(&v);
}

enum pick cluster_pick(struct cluster *c, struct rng *rng, uint64_t now_us, const uint64_t *tried,
                       size_t n_tried, struct member **ret_member)
{
    enum pick r = PICK_NO_ENDPOINT;
    struct member *m = NULL;

    if (!c->left) {
        cluster_refresh(c, now_us);
        const struct lb_view v = view_of(c, tried, n_tried);

        m = v.n > 0 ? c->policy->pick(&v, rng) : NULL;
        r = m != NULL ? PICK_OK : refusal(&v);
        if (r == PICK_NO_ENDPOINT || r == PICK_ALL_TRIED)
            r = pick_any(c, rng, tried, n_tried, &m);
    }
    *ret_member = m;
    if (m == NULL) {
        c->wants_room = true;
        return r;
    }
    m->in_flight++;
    m->endpoint->in_flight++;
    m->endpoint->started++;
    c->in_flight++;
    return PICK_OK;
}
