/* penstock/fleet_weigh.c - the weights that the workers get, while those of the config change.
 *
 * A version whose weight rises (a canary, a switch) may have no replica yet. It takes over only
 * what its ready replicas cover; the rest stays lent to the versions that had it, as long as they
 * have ready replicas. So a switch to a cold version makes no call wait, and one to a version that
 * never starts changes nothing. How many replicas its share needs is judged by the model's load
 * now.
 *
 * Weights of a model, before -> wanted:   v1 10000 -> 0    v2 0 -> 10000
 *   v2 has 0 of 4 ready                   v1 10000         v2 0
 *   v2 has 1 of 4 ready                   v1 7500          v2 2500
 *   v2 has 4 of 4 ready                   v1 0             v2 10000
 */
#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "penstock/fleet_parts.h"

static double larger(double a, double b)
{
    return a > b ? a : b;
}

/* Replicas that the run's whole weight asks for, by what the model has in flight now. */
static uint32_t needed_for(const struct fleet *f, const struct run *run)
{
    const struct scaling_conf *const s = &run->model_conf->scaling;
    double inflight = 0, qps = 0;

    list_each (&f->runs, node) {
        const struct run *const other = list_entry(node, struct run, node);

        if (other->model_conf != run->model_conf)
            continue;
        inflight += larger(other->last.stable.inflight, other->last.burst.inflight);
        qps += larger(other->last.stable.qps, other->last.burst.qps);
    }
    const double share = (double)run->weight / WEIGHT_WHOLE;
    double n = inflight * share / run_target_inflight(run);

    if (s->target_qps > 0)
        n = larger(n, qps * share / s->target_qps);
    n = ceil(n);
    return n < 1 ? 1 : n > s->max ? s->max : (uint32_t)n;
}

/* The weight that its ready replicas cover; never less than it has. */
static uint32_t covered(struct fleet *f, struct run *run, uint64_t now_us)
{
    const uint32_t ready = run_count(run, REPLICA_READY);
    const uint32_t needed = needed_for(f, run);

    if (needed > run->needed || now_us >= run->needed_until_us)
        run->needed = needed;
    run->needed_until_us = now_us + run->model_conf->scaling.stable_window_s * US_PER_S;
    if (ready >= run->needed || (ready > 0 && run->no_room[0] != '\0'))
        return run->weight; /* without room there will be no more of them */
    const uint32_t part = run->weight * ready / run->needed;

    return part > run->shown ? part : run->shown;
}

static void show(struct fleet *f, struct run *run, uint32_t weight, uint64_t now_us)
{
    if (weight == run->shown)
        return;
    if (weight < run->shown)
        run_keep_warm(f, run, run->model_conf->scaling.warm_s, now_us);
    run->shown = weight;
    f->endpoints_changed = true;
}

static void tell(struct fleet *f, struct run *run, bool held)
{
    const uint32_t ready = run_count(run, REPLICA_READY);

    if (held && !run->held)
        decisions_add(
            f->decisions, "traffic_held", run->model, run->version,
            "it is to have %u parts and gets %u for now: %u of %u replicas are ready; the "
            "versions that had the others keep them",
            run->weight, run->shown, ready, run->needed);
    if (!held && run->held)
        decisions_add(f->decisions, "traffic_moved", run->model, run->version,
                      "it has its %u parts: %u replica%s ready", run->weight, ready,
                      ready == 1 ? " is" : "s are");
    f->n_held += held;
    run->held = held;
}

static bool can_lend(const struct run *run)
{
    return run->shown > run->weight && run_count(run, REPLICA_READY) > 0;
}

/* Of `whole`, the share part/total, such that the shares of all parts sum to it: taken holds what
 * was given before, and done the parts. */
static uint32_t share_of(uint32_t whole, uint32_t part, uint32_t total, uint32_t *done,
                         uint32_t *taken)
{
    *done += part;
    const uint32_t until = (uint32_t)((uint64_t)whole * *done / total);
    const uint32_t mine = until - *taken;

    *taken = until;
    return mine;
}

static void weigh_model(struct fleet *f, const struct model_conf *m, bool at_once, uint64_t now_us)
{
    struct run *runs[VERSIONS_MAX];
    uint32_t holds[VERSIONS_MAX] = {0}; /* of each rising one, wished */
    uint32_t n_hold = 0, n_lend = 0, done = 0, taken = 0;

    for (size_t i = 0; i < m->n_versions; i++) {
        runs[i] = fleet_run(f, m->name, m->versions[i].name);
        if (runs[i] != NULL && runs[i]->conf == NULL)
            runs[i] = NULL; /* somebody else runs it: it takes and gives at once */
        if (runs[i] != NULL && can_lend(runs[i]))
            n_lend += runs[i]->shown - runs[i]->weight;
    }
    for (size_t i = 0; i < m->n_versions && n_lend > 0 && !at_once; i++) {
        if (runs[i] != NULL && runs[i]->weight > runs[i]->shown)
            holds[i] = runs[i]->weight - covered(f, runs[i], now_us);
        n_hold += holds[i];
    }
    const uint32_t lent = n_hold < n_lend ? n_hold : n_lend;
    uint32_t lend_done = 0, lend_taken = 0;

    for (size_t i = 0; i < m->n_versions; i++) {
        struct run *const run = runs[i];
        uint32_t shown = 0;

        if (run == NULL)
            continue;
        shown = run->weight;
        if (holds[i] > 0)
            shown -= share_of(lent, holds[i], n_hold, &done, &taken);
        else if (lent > 0 && can_lend(run))
            shown += share_of(lent, run->shown - run->weight, n_lend, &lend_done, &lend_taken);
        const bool held = shown < run->weight;

        show(f, run, shown, now_us);
        tell(f, run, held);
    }
}

void fleet_weigh(struct fleet *f, bool at_once, uint64_t now_us)
{
    f->n_held = 0;
    for (size_t i = 0; i < f->generation->n_models; i++)
        weigh_model(f, &f->generation->models[i], at_once, now_us);
}
