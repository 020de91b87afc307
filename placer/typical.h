/* placer/typical.h - the tasks that a cluster typically sees, and what a node's free cards are
 * worth to them.
 *
 * Fragmentation of a node, by the definition: for a typical task that asks for no card, wants
 * another model, or does not fit on the node, all its free card milli count; for one that fits,
 * those of the cards that have too little left for it. F(node) is the sum over the typical tasks,
 * weighted by how often they come. Here that is written the other way round, F = idle_milli x
 * weight - useful, useful: the sum over the typical tasks that fit of their weight x the free milli
 * of the cards that can serve them. As a share is of one card, useful falls into one term a card
 * and one for the whole free cards; both come from a table by model and free CPU, so it costs one
 * look-up a card.
 *
 * Owns:      its table.
 * Called by: placer/pack.c, placer/score.c.
 * Lifetime:  typical_init .. typical_fini; unchanged between.
 * Thread:    one; no clock, no I/O; integers only.
 * Source:    Weng et al., "Beware of Fragmentation", USENIX ATC 2023, section 3.
 */
#ifndef PLACER_TYPICAL_H
#define PLACER_TYPICAL_H

#include <stddef.h>
#include <stdint.h>

#include "placer/plan.h"
#include "placer/shape.h"

#define TYPICAL_MAX_TASKS 256 /* bounds the table; the openb workloads have 17 to 60 */

struct typical_task {
    uint32_t cpu_milli, n_cards, card_milli;
    uint64_t models;
    uint64_t count; /* how often it was seen: its weight */
};

struct typical {
    struct typical_task tasks[TYPICAL_MAX_TASKS]; /* most frequent first */
    size_t n;
    int64_t weight; /* the sum of their counts */
    /* A row for each model and class of free CPU: [0 .. n_grades] the weight of the shares that a
     * card of that grade serves, then [0 .. PLAN_MAX_CARDS] that of the whole-card tasks which so
     * many free cards serve. */
    int64_t *rows;
    size_t n_models, n_classes, n_grades, row_len;
    uint32_t class_cpu_milli[TYPICAL_MAX_TASKS]; /* rising: class c has at least [c - 1] */
    uint8_t grade_of[PLAN_CARD_MILLI + 1];       /* free milli -> number of share sizes that fit */
    int64_t at_least[101];                       /* see typical_sigmoid */
};

/* The distinct requests among those seen, by cpu, cards and models but not memory, most frequent
 * first until they cover coverage_pct of all.
 * shapes: of the table; counts: n of them, how often shape i was seen. n_models: models that nodes
 * may have, numbered from 0. */
void typical_init(struct typical *t, const struct shape *shapes, const uint64_t *counts, size_t n,
                  size_t n_models, uint32_t coverage_pct);
void typical_fini(struct typical *t); /* works on a zeroed typical */

/* The row for a node of this model with so much CPU free. */
const int64_t *typical_row(const struct typical *t, uint32_t model, uint32_t free_cpu_milli);

/* What one card with so much free adds to useful, and what n_whole free ones do. */
static inline int64_t typical_card(const struct typical *t, const int64_t *row, uint32_t free_milli)
{
    return (int64_t)free_milli * row[t->grade_of[free_milli]];
}

static inline int64_t typical_whole(const struct typical *t, const int64_t *row, uint32_t n_whole)
{
    return (int64_t)n_whole * PLAN_CARD_MILLI * row[t->n_grades + 1 + n_whole];
}

/* 100 / (1 + exp(-gain / (1000 x weight))), truncated: the published score of a gain in
 * milli x weight. */
int32_t typical_sigmoid(const struct typical *t, int64_t gain);

#endif
