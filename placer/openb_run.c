/* placer/openb_run.c - one run of the published experiment. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/xalloc.h"
#include "placer/openb.h"
#include "placer/picker.h"

const struct openb_policy openb_policies[] = {
    {"random", NULL},    {"bestfit", &score_bestfit},
    {"fgd", &score_fgd}, {"penstock", &score_penstock},
    {NULL, NULL},
};

const struct openb_policy *openb_policy_find(const char *name, size_t len)
{
    for (const struct openb_policy *p = openb_policies; p->name != NULL; p++)
        if (strlen(p->name) == len && memcmp(p->name, name, len) == 0)
            return p;
    return NULL;
}

struct run {
    const struct openb *o;
    const struct openb_policy *policy;
    struct rng rng;
    uint32_t *node_of; /* the pack's node -> the file's */
    struct pack pack;
    struct picker *picker; /* NULL for the random policy */
    uint32_t *with_room;   /* scratch of the random policy: nodes */
    uint32_t *arrivals;    /* task indices */
    size_t n_arrivals, cap_arrivals;
};

static uint32_t *shuffled(size_t n, struct rng *rng)
{
    uint32_t *const order = xcalloc(n, sizeof(*order));

    for (size_t i = 0; i < n; i++)
        order[i] = (uint32_t)i;
    for (size_t i = n; i > 1; i--) {
        const size_t j = rng_below(rng, i);
        const uint32_t moved = order[i - 1];

        order[i - 1] = order[j];
        order[j] = moved;
    }
    return order;
}

static const struct shape *shape_of(const struct openb *o, uint32_t task)
{
    return &o->shapes.shapes[o->tasks[task].shape];
}

static uint64_t task_milli(const struct openb *o, uint32_t task)
{
    const struct shape *const s = shape_of(o, task);

    return (uint64_t)s->n_cards * s->card_milli;
}

/* Tasks at random are added until the cards asked for would pass 130 % of those there, or taken
 * away until they don't. The published test of the end looks at what the next task asks for of one
 * card, not of all. */
static void inflate(struct run *run)
{
    const struct openb *const o = run->o;
    const uint64_t limit_milli = o->capacity_milli * OPENB_INFLATION_PCT / 100;
    uint64_t asked_milli = 0;

    for (size_t i = 0; i < run->n_arrivals; i++)
        asked_milli += task_milli(o, run->arrivals[i]);
    while (asked_milli > limit_milli) {
        const size_t i = rng_below(&run->rng, run->n_arrivals);

        asked_milli -= task_milli(o, run->arrivals[i]);
        memmove(&run->arrivals[i], &run->arrivals[i + 1],
                (run->n_arrivals - i - 1) * sizeof(*run->arrivals));
        run->n_arrivals--;
        if (asked_milli <= limit_milli)
            return;
    }
    for (;;) {
        const uint32_t task = (uint32_t)rng_below(&run->rng, o->n_tasks);

        if (asked_milli + shape_of(o, task)->card_milli > limit_milli ||
            run->n_arrivals >= OPENB_MAX_ARRIVALS)
            return;
        if (run->n_arrivals == run->cap_arrivals) {
            run->cap_arrivals *= 2;
            run->arrivals = xrealloc(run->arrivals, run->cap_arrivals, sizeof(*run->arrivals));
        }
        run->arrivals[run->n_arrivals++] = task;
        asked_milli += task_milli(o, task);
    }
}

static void run_init(struct run *run, const struct openb *o, const struct openb_policy *policy,
                     uint64_t seed)
{
    struct pack_node_spec *const specs = xcalloc(o->n_nodes, sizeof(*specs));
    uint64_t *const counts = xcalloc(o->shapes.n, sizeof(*counts));

    *run = (struct run){.o = o, .policy = policy};
    rng_init(&run->rng, seed);
    run->node_of = shuffled(o->n_nodes, &run->rng);
    for (size_t i = 0; i < o->n_nodes; i++)
        specs[i] = o->nodes[run->node_of[i]];
    run->n_arrivals = run->cap_arrivals = o->n_tasks;
    run->arrivals = shuffled(o->n_tasks, &run->rng);
    inflate(run);

    pack_init(&run->pack, specs, o->n_nodes, &o->shapes);
    for (size_t i = 0; i < o->n_tasks; i++)
        counts[o->tasks[i].shape]++;
    pack_set_typical(&run->pack, counts, OPENB_COVERAGE_PCT);
    if (policy->score != NULL)
        run->picker = picker_new(&run->pack, policy->score);
    else
        run->with_room = xcalloc(o->n_nodes, sizeof(*run->with_room));
    free(counts);
    free(specs);
}

static void run_fini(struct run *run)
{
    picker_free(run->picker);
    pack_fini(&run->pack);
    free(run->with_room);
    free(run->node_of);
    free(run->arrivals);
}

/* Any node with room, and any card with room for a share, each as likely as the next. */
static bool pick_random(struct run *run, const struct shape *s, struct pack_spot *ret_spot)
{
    const struct pack *const p = &run->pack;
    uint32_t card = 0;
    uint64_t n_seen = 0;

    for (uint32_t i = 0; i < p->n_nodes; i++)
        if (pack_fits(&p->nodes[i], s))
            run->with_room[n_seen++] = i;
    if (n_seen == 0)
        return false;
    ret_spot->node = run->with_room[rng_below(&run->rng, n_seen)];

    const struct pack_node *const n = &p->nodes[ret_spot->node];

    n_seen = 0;
    for (uint32_t c = 0; c < n->n_cards; c++)
        if (n->free_milli[c] >= s->card_milli && rng_below(&run->rng, ++n_seen) == 0)
            card = c;
    ret_spot->cards = pack_cards(n, s, card);
    return true;
}

uint64_t openb_state_hash(const struct pack *p, const uint32_t *at)
{
    uint64_t hash = 0;

    for (uint32_t i = 0; i < p->n_nodes; i++) {
        const struct pack_node *const n = &p->nodes[at != NULL ? at[i] : i];
        const uint32_t figures[] = {n->free_cpu_milli, n->free_memory_mib, n->n_tasks};

        hash = hash_bytes(figures, sizeof(figures), hash);
        hash = hash_bytes(n->free_milli, sizeof(n->free_milli), hash);
    }
    return hash;
}

static uint64_t hash_in_file_order(const struct run *run)
{
    uint32_t *const at = xcalloc(run->o->n_nodes, sizeof(*at));

    for (uint32_t i = 0; i < run->o->n_nodes; i++)
        at[run->node_of[i]] = i;

    const uint64_t hash = openb_state_hash(&run->pack, at);

    free(at);
    return hash;
}

/* What is measured after every arrival: asked for and allocated, both in % of all cards. */
static void measure(const struct run *run, uint64_t asked_milli, struct openb_result *ret)
{
    const struct pack *const p = &run->pack;
    const double capacity = (double)p->capacity_milli;
    const long arrived_pct = lround(100.0 * (double)asked_milli / capacity);
    struct openb_bin *bin;

    if (arrived_pct < 0 || arrived_pct >= OPENB_BINS)
        return;
    bin = &ret->bins[arrived_pct];
    bin->n++;
    bin->alloc_pct +=
        round(10000.0 * (double)(p->capacity_milli - p->idle_milli) / capacity) / 100.0;
    if (p->idle_milli > 0)
        bin->frag_ratio_pct += 100.0 * (double)pack_fragmented(p) /
                               ((double)p->idle_milli * (double)p->typical.weight);
}

void openb_run(const struct openb *o, const struct openb_policy *policy, uint64_t seed,
               openb_decision_fn on_decision, void *arg, struct openb_result *ret)
{
    struct run run;
    uint64_t asked_milli = 0;

    memset(ret, 0, sizeof(*ret));
    run_init(&run, o, policy, seed);
    for (size_t i = 0; i < run.n_arrivals; i++) {
        const struct openb_task *const task = &o->tasks[run.arrivals[i]];
        const struct shape *const s = &o->shapes.shapes[task->shape];
        struct pack_spot spot = {0};
        const bool placed = run.picker == NULL ? pick_random(&run, s, &spot)
                                               : picker_pick(run.picker, task->shape, &spot);

        if (placed)
            pack_take(&run.pack, s, spot);
        else
            ret->n_dropped++;
        asked_milli += (uint64_t)s->n_cards * s->card_milli;
        measure(&run, asked_milli, ret);
        if (on_decision != NULL) {
            const struct openb_decision d = {
                .number = i,
                .task = task->name,
                .node_name = placed ? o->node_names[run.node_of[spot.node]] : NULL,
                .spot = placed ? &spot : NULL};

            on_decision(arg, &d);
        }
    }
    ret->n_decisions = run.n_arrivals;
    ret->state_hash = hash_in_file_order(&run);
    for (size_t i = 0; i < OPENB_BINS; i++) {
        struct openb_bin *const bin = &ret->bins[i];

        if (bin->n > 0) {
            bin->alloc_pct /= bin->n;
            bin->frag_ratio_pct /= bin->n;
        }
    }
    run_fini(&run);
}
