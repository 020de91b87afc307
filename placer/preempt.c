#include "placer/preempt.h"

#include <stdlib.h>

#include "base/check.h"
#include "base/xalloc.h"

/* One search. */
struct search {
    const struct preempt_ask *ask;
    const struct preempt_victim *victims;
    size_t n_victims;
    struct cluster_view view; /* without the chosen ones, with the tasks placed so far */
    bool *is_chosen;          /* by victim */
    uint64_t *used_gpu_milli; /* by queue, without the chosen ones */
    size_t *by_cost;          /* victims, cheapest first */
    struct on_node {          /* placements of victims, by node, in a node cheapest first */
        uint32_t node;
        size_t victim, rank; /* rank: place in by_cost */
        const struct plan_placement *placement;
    } * on_nodes;
    size_t n_on_nodes;
    size_t n_chosen;
};

/* What a set of victims costs: the first that differs decides. */
struct cost {
    uint32_t highest_priority;
    uint64_t lost_gpu_ms;
    size_t n;
};

static bool cost_is_less(const struct cost *a, const struct cost *b)
{
    if (a->highest_priority != b->highest_priority)
        return a->highest_priority < b->highest_priority;
    if (a->lost_gpu_ms != b->lost_gpu_ms)
        return a->lost_gpu_ms < b->lost_gpu_ms;
    return a->n < b->n;
}

static void cost_add(struct cost *cost, const struct preempt_victim *v)
{
    if (v->priority > cost->highest_priority)
        cost->highest_priority = v->priority;
    cost->lost_gpu_ms += v->lost_gpu_ms;
    cost->n++;
}

static uint64_t victim_gpu_milli(const struct preempt_victim *v)
{
    uint64_t milli = 0;

    for (size_t i = 0; i < v->n_placements; i++)
        milli += (uint64_t)v->placements[i].gpu_milli * v->placements[i].n_cards;
    return milli;
}

static uint64_t ask_gpu_milli(const struct preempt_ask *ask)
{
    uint64_t milli = 0;

    for (size_t i = 0; i < ask->n_tasks; i++)
        milli += ask->tasks[i].gpu_milli;
    return milli;
}

/* The asking queue is within what it deserves with the gang: it may reclaim. */
static bool ask_may_reclaim(const struct preempt_ask *ask)
{
    const struct preempt_queue *q = &ask->queues[ask->queue];

    return q->used_gpu_milli + ask_gpu_milli(ask) <= q->deserved_gpu_milli;
}

/* Whether the rules let the victim go, given what its queue holds: used_gpu_milli, by queue. */
static bool victim_may_go(const struct preempt_ask *ask, const struct preempt_victim *v,
                          const uint64_t *used_gpu_milli)
{
    const uint64_t milli = victim_gpu_milli(v);

    if (v->queue == ask->queue)
        return v->priority < ask->priority;
    return milli > 0 && ask_may_reclaim(ask) && used_gpu_milli[v->queue] >= milli &&
           used_gpu_milli[v->queue] - milli >= ask->queues[v->queue].deserved_gpu_milli;
}

/* Cheapest first; arg: the victims. */
static int by_cost_cmp(const void *pa, const void *pb, void *arg)
{
    const struct preempt_victim *victims = arg;
    const size_t a = *(const size_t *)pa, b = *(const size_t *)pb;
    const struct preempt_victim *va = &victims[a], *vb = &victims[b];

    if (va->priority != vb->priority)
        return va->priority < vb->priority ? -1 : 1;
    if (va->lost_gpu_ms != vb->lost_gpu_ms)
        return va->lost_gpu_ms < vb->lost_gpu_ms ? -1 : 1;
    if (va->start_us != vb->start_us)
        return va->start_us > vb->start_us ? -1 : 1;
    return a < b ? -1 : a > b;
}

static int on_node_cmp(const void *pa, const void *pb)
{
    const struct on_node *a = pa, *b = pb;

    if (a->node != b->node)
        return a->node < b->node ? -1 : 1;
    return a->rank < b->rank ? -1 : a->rank > b->rank;
}

static void search_init(struct search *s, const struct cluster_view *view,
                        const struct preempt_ask *ask, const struct preempt_victim *victims,
                        size_t n_victims)
{
    size_t n = 0;

    *s = (struct search){.ask = ask, .victims = victims, .n_victims = n_victims};
    cluster_view_copy(&s->view, view);
    s->is_chosen = xcalloc(n_victims + 1, sizeof(*s->is_chosen));
    s->by_cost = xcalloc(n_victims + 1, sizeof(*s->by_cost));
    s->used_gpu_milli = xcalloc(ask->n_queues, sizeof(*s->used_gpu_milli));
    for (size_t q = 0; q < ask->n_queues; q++)
        s->used_gpu_milli[q] = ask->queues[q].used_gpu_milli;
    for (size_t v = 0; v < n_victims; v++) {
        s->by_cost[v] = v;
        n += victims[v].n_placements;
    }
    qsort_r(s->by_cost, n_victims, sizeof(*s->by_cost), by_cost_cmp, (void *)(uintptr_t)victims);
    s->on_nodes = xcalloc(n + 1, sizeof(*s->on_nodes));
    for (size_t rank = 0; rank < n_victims; rank++) {
        const struct preempt_victim *v = &victims[s->by_cost[rank]];

        if (!victim_may_go(ask, v, s->used_gpu_milli))
            continue;
        for (size_t i = 0; i < v->n_placements; i++)
            s->on_nodes[s->n_on_nodes++] =
                (struct on_node){v->placements[i].node, s->by_cost[rank], rank, &v->placements[i]};
    }
    qsort(s->on_nodes, s->n_on_nodes, sizeof(*s->on_nodes), on_node_cmp);
}

static void search_fini(struct search *s)
{
    cluster_view_fini(&s->view);
    free(s->is_chosen);
    free(s->by_cost);
    free(s->used_gpu_milli);
    free(s->on_nodes);
}

static void search_choose(struct search *s, size_t victim)
{
    const struct preempt_victim *v = &s->victims[victim];

    s->is_chosen[victim] = true;
    s->n_chosen++;
    s->used_gpu_milli[v->queue] -= victim_gpu_milli(v);
    for (size_t i = 0; i < v->n_placements; i++)
        cluster_view_release(&s->view, &v->placements[i]);
}

/* A way to make room on one node. */
struct room {
    size_t *victims; /* n_max of them have room */
    size_t n, n_max;
    struct cost cost;
};

/* End victims of the node, cheapest first, until the request fits; then keep those, costliest
 * first, that it fits beside. at: the first entry of the node in on_nodes, n of them. False: no
 * room even without all that may go, or not within the budget. */
static bool node_make_room(const struct search *s, const struct on_node *at, size_t n,
                           const struct plan_request *req, struct room *room)
{
    struct plan_node node = s->view.nodes[at->node];
    struct cluster_view one = {.nodes = &node, .n_nodes = 1};
    uint64_t *used = s->used_gpu_milli;
    bool fits = false;
    size_t upto = 0;

    room->n = 0;
    room->cost = (struct cost){0};
    while (upto < n && !fits) {
        const struct on_node *e = &at[upto++];
        struct plan_placement p = *e->placement;

        if (s->is_chosen[e->victim])
            continue;
        if (room->n == 0 || room->victims[room->n - 1] != e->victim) {
            if (!victim_may_go(s->ask, &s->victims[e->victim], used))
                continue;
            if (room->n == room->n_max)
                break;
            room->victims[room->n++] = e->victim;
            used[s->victims[e->victim].queue] -= victim_gpu_milli(&s->victims[e->victim]);
        }
        p.node = 0;
        cluster_view_release(&one, &p);
        fits = plan_node_has_room(&node, req);
    }
    for (size_t i = 0; i < room->n; i++) /* the search's own account: nothing is chosen yet */
        used[s->victims[room->victims[i]].queue] += victim_gpu_milli(&s->victims[room->victims[i]]);
    for (size_t i = fits ? room->n : 0; i-- > 0;) {
        const struct plan_node before = node;
        bool back = true;

        for (size_t k = 0; k < upto && back; k++) {
            struct plan_placement p = *at[k].placement;

            p.node = 0;
            if (at[k].victim == room->victims[i])
                back = cluster_view_take(&one, &p);
        }
        if (!back || !plan_node_has_room(&node, req)) {
            node = before;
            cost_add(&room->cost, &s->victims[room->victims[i]]);
            continue;
        }
        for (size_t k = i + 1; k < room->n; k++)
            room->victims[k - 1] = room->victims[k];
        room->n--;
    }
    return fits;
}

/* Choose what must end for one task: on the node where that costs least. */
static bool search_make_room(struct search *s, const struct plan_request *req)
{
    const size_t budget = s->ask->max_victims - s->n_chosen;
    struct room best = {.victims = xcalloc(budget + 1, sizeof(size_t)), .n_max = budget};
    struct room room = {.victims = xcalloc(budget + 1, sizeof(size_t)), .n_max = budget};
    bool found = false;

    for (size_t i = 0, n; i < s->n_on_nodes; i += n) {
        for (n = 1; i + n < s->n_on_nodes && s->on_nodes[i + n].node == s->on_nodes[i].node;)
            n++;
        if (!node_make_room(s, &s->on_nodes[i], n, req, &room))
            continue;
        if (!found || cost_is_less(&room.cost, &best.cost)) {
            const struct room swap = best;

            best = room;
            room = swap;
            found = true;
        }
    }
    for (size_t i = 0; found && i < best.n; i++)
        search_choose(s, best.victims[i]);
    free(best.victims);
    free(room.victims);
    return found;
}

/* Whether the gang fits in the view without the chosen victims; the proof. */
static bool gang_fits_without(const struct search *s, const struct cluster_view *view)
{
    struct cluster_view copy;
    struct plan plan;
    bool fits;

    cluster_view_copy(&copy, view);
    for (size_t v = 0; v < s->n_victims; v++)
        for (size_t i = 0; s->is_chosen[v] && i < s->victims[v].n_placements; i++)
            cluster_view_release(&copy, &s->victims[v].placements[i]);
    plan_init(&plan, &copy);
    fits = plan_gang(&plan, s->ask->tasks, s->ask->n_tasks, NULL) == PLAN_OK;
    plan_fini(&plan);
    cluster_view_fini(&copy);
    return fits;
}

enum plan_outcome preempt_plan(const struct cluster_view *view, const struct preempt_ask *ask,
                               const struct preempt_victim *victims, size_t n_victims,
                               size_t *ret_chosen, size_t *ret_n)
{
    struct search s;
    struct plan plan;
    bool fits;

    check(ask->queue < ask->n_queues);
    *ret_n = 0;
    search_init(&s, view, ask, victims, n_victims);
    fits = gang_fits_without(&s, view);
    if (!fits) {
        plan_init(&plan, &s.view);
        fits = true;
        for (size_t t = 0; t < ask->n_tasks && fits; t++)
            while (fits && plan_task(&plan, &ask->tasks[t], NULL) != PLAN_OK)
                fits = search_make_room(&s, &ask->tasks[t]);
        plan_fini(&plan);
        fits = fits && gang_fits_without(&s, view);
    }
    /* Trim: the costliest that the gang fits beside stays. */
    for (size_t i = n_victims; fits && s.n_chosen > 1 && i-- > 0;) {
        const size_t v = s.by_cost[i];

        if (!s.is_chosen[v])
            continue;
        s.is_chosen[v] = false;
        if (!gang_fits_without(&s, view))
            s.is_chosen[v] = true;
    }
    for (size_t v = 0; fits && v < n_victims; v++)
        if (s.is_chosen[v])
            ret_chosen[(*ret_n)++] = v;
    search_fini(&s);
    return fits ? PLAN_OK : PLAN_E_NO_ROOM;
}
