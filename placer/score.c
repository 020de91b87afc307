#include "placer/score.h"

/* 100 (1 - free CPU / 256000 - free milli / 16000), truncated; what is free is what would be left.
 * The denominators are twice the largest node of the trace. Source: the simulator of Weng et al. */
#define BESTFIT_CPU_MILLI  256000
#define BESTFIT_CARD_MILLI 16000

static uint32_t fullest_card(const struct pack_node *n, const struct shape *s)
{
    uint32_t best = 0, best_free = UINT32_MAX;

    for (uint32_t i = 0; i < n->n_cards; i++) {
        if (n->free_milli[i] >= s->card_milli && n->free_milli[i] < best_free) {
            best = i;
            best_free = n->free_milli[i];
        }
    }
    return best;
}

static int32_t bestfit(const struct pack *p, const struct pack_node *n, const struct shape *s,
                       uint32_t *ret_card)
{
    const int64_t cpu_milli = n->free_cpu_milli - s->cpu_milli;
    const int64_t card_milli = n->idle_milli - s->n_cards * s->card_milli;
    const int64_t per_card = BESTFIT_CPU_MILLI / BESTFIT_CARD_MILLI;

    (void)p;
    if (s->n_cards == 1)
        *ret_card = fullest_card(n, s);
    return (int32_t)(100 * (BESTFIT_CPU_MILLI - cpu_milli - per_card * card_milli) /
                     BESTFIT_CPU_MILLI);
}

/* What the node's cards are useful for when the shape stands there: by the card it is on for a
 * share, as useful = rest + what that card still gives. */
struct after {
    const struct typical *typical;
    const int64_t *row;
    int64_t useful; /* with the shape's CPU gone and its cards not */
    int64_t gain_0; /* gain = gain_0 + the useful that a choice of cards leaves */
};

static struct after after_cpu(const struct pack *p, const struct pack_node *n,
                              const struct shape *s)
{
    const struct typical *const t = &p->typical;
    struct after a = {.typical = t,
                      .row = typical_row(t, n->model, n->free_cpu_milli - s->cpu_milli)};

    a.useful = typical_whole(t, a.row, n->n_whole);
    for (uint32_t i = 0; i < n->n_cards; i++)
        a.useful += typical_card(t, a.row, n->free_milli[i]);
    /* F(before) - F(after) = idle taken x weight - useful before + useful after */
    a.gain_0 = (int64_t)(s->n_cards * s->card_milli) * t->weight - n->useful;
    return a;
}

static int64_t gain_of_wholes(const struct after *a, const struct pack_node *n,
                              const struct shape *s)
{
    const struct typical *const t = a->typical;

    return a->gain_0 + a->useful - (int64_t)s->n_cards * typical_card(t, a->row, PLAN_CARD_MILLI) -
           typical_whole(t, a->row, n->n_whole) + typical_whole(t, a->row, n->n_whole - s->n_cards);
}

static int64_t gain_of_share(const struct after *a, const struct pack_node *n,
                             const struct shape *s, uint32_t card)
{
    const struct typical *const t = a->typical;
    const uint32_t free_milli = n->free_milli[card];
    int64_t gain = a->gain_0 + a->useful - typical_card(t, a->row, free_milli) +
                   typical_card(t, a->row, free_milli - s->card_milli);

    if (free_milli == PLAN_CARD_MILLI)
        gain += typical_whole(t, a->row, n->n_whole - 1u) - typical_whole(t, a->row, n->n_whole);
    return gain;
}

/* The largest score_of(gain) over the cards, the lowest card among equals. */
static int32_t best_gain(const struct pack *p, const struct pack_node *n, const struct shape *s,
                         int32_t (*score_of)(const struct typical *t, int64_t gain),
                         uint32_t *ret_card)
{
    const struct after a = after_cpu(p, n, s);
    int32_t best = INT32_MIN;
    int64_t best_gain_yet = 0;

    if (s->n_cards != 1 || s->card_milli == PLAN_CARD_MILLI)
        return score_of(&p->typical, gain_of_wholes(&a, n, s));
    for (uint32_t i = 0; i < n->n_cards; i++) {
        if (n->free_milli[i] < s->card_milli)
            continue;

        const int64_t gain = gain_of_share(&a, n, s, i);

        if (best != INT32_MIN && gain <= best_gain_yet)
            continue; /* scores rise with the gain: no better one */

        const int32_t score = score_of(&p->typical, gain);

        if (score > best) {
            best = score;
            best_gain_yet = gain;
            *ret_card = i;
        }
    }
    return best;
}

static int32_t fgd(const struct pack *p, const struct pack_node *n, const struct shape *s,
                   uint32_t *ret_card)
{
    return best_gain(p, n, s, typical_sigmoid, ret_card);
}

/* Small differences of fragmentation are noise: placing into nodes in use matters more, and then
 * one order that never changes (equal scores at random cost five points of allocation on openb). */
#define STEP_MILLI 40

static int32_t steps_of(const struct typical *t, int64_t gain)
{
    const int64_t step = STEP_MILLI * (t->weight > 0 ? t->weight : 1);

    return (int32_t)(gain / step - (gain % step < 0)); /* rounded down */
}

static int32_t penstock(const struct pack *p, const struct pack_node *n, const struct shape *s,
                        uint32_t *ret_card)
{
    return 2 * best_gain(p, n, s, steps_of, ret_card) + (n->n_tasks > 0);
}

const struct score_ops score_bestfit = {"bestfit", bestfit};
const struct score_ops score_fgd = {"fgd", fgd};
const struct score_ops score_penstock = {"penstock", penstock};
