#include "placer/picker.h"

#include <stdlib.h>

#include "base/check.h"
#include "base/xalloc.h"
#include "placer/max_tree.h"

struct shape_tree {
    struct max_tree scores;
    uint64_t seen;  /* changes of the pack's log that are in the scores */
    uint64_t epoch; /* of the pack's typical tasks; 0: never built */
};

struct picker {
    const struct pack *pack;
    const struct score_ops *score;
    struct shape_tree *trees; /* by shape number */
    size_t n_trees, tree_bytes, used_bytes;
    uint64_t n_scored;
};

struct picker *picker_new(const struct pack *p, const struct score_ops *score)
{
    struct picker *const k = xcalloc(1, sizeof(*k));

    k->pack = p;
    k->score = score;
    /* the levels above the numbers add a fifteenth, and a part of a block each */
    k->tree_bytes = ((size_t)p->n_nodes * MAX_TREE_WIDTH / (MAX_TREE_WIDTH - 1) +
                     (size_t)MAX_TREE_LEVELS * MAX_TREE_WIDTH) *
                    sizeof(int32_t);
    return k;
}

struct picker *picker_free(struct picker *k)
{
    if (k == NULL)
        return NULL;
    for (size_t i = 0; i < k->n_trees; i++)
        max_tree_fini(&k->trees[i].scores);
    free(k->trees);
    free(k);
    return NULL;
}

static int32_t score_node(const struct picker *k, const struct pack_node *n, const struct shape *s,
                          uint32_t *ret_card)
{
    return pack_fits(n, s) ? k->score->score(k->pack, n, s, ret_card) : MAX_TREE_NONE;
}

static void score_all(struct picker *k, struct shape_tree *t, const struct shape *s)
{
    const struct pack *const p = k->pack;
    int32_t *const numbers = max_tree_numbers(&t->scores);
    uint32_t card = 0;

    for (uint32_t i = 0; i < p->n_nodes; i++)
        numbers[i] = score_node(k, &p->nodes[i], s, &card);
    max_tree_build(&t->scores);
    k->n_scored += p->n_nodes;
}

/* Nodes far apart are in no cache: ask for the one that comes so many later. */
#define AHEAD 8

static void score_changed(struct picker *k, struct shape_tree *t, const struct shape *s)
{
    const struct pack *const p = k->pack;
    uint32_t card = 0;

    for (uint64_t at = t->seen; at < p->n_changes; at++) {
        const uint32_t node = p->log[at & p->log_mask];
        const uint32_t later = p->log[(at + AHEAD) & p->log_mask]; /* any number at the end */
        const struct pack_node *const n = &p->nodes[node];

        __builtin_prefetch(&p->nodes[later]);
        __builtin_prefetch(&max_tree_numbers(&t->scores)[later]);
        if (n->last_change != (uint32_t)at)
            continue; /* comes again further on */
        max_tree_set(&t->scores, node, score_node(k, n, s, &card));
        k->n_scored++;
    }
}

/* The shape's tree, up to date; NULL: there is no memory for one more. */
static const struct max_tree *tree_of(struct picker *k, uint32_t shape)
{
    const struct pack *const p = k->pack;

    if (shape >= k->n_trees) {
        k->trees = xrealloc(k->trees, p->shapes->n, sizeof(*k->trees));
        while (k->n_trees < p->shapes->n)
            k->trees[k->n_trees++] = (struct shape_tree){.epoch = 0};
    }

    struct shape_tree *const t = &k->trees[shape];
    const struct shape *const s = &p->shapes->shapes[shape];

    if (t->epoch == 0) {
        if (k->used_bytes + k->tree_bytes > PICKER_TREE_BYTES)
            return NULL;
        k->used_bytes += k->tree_bytes;
        max_tree_init(&t->scores, p->n_nodes);
    }
    if (t->epoch != p->epoch || p->n_changes - t->seen > p->log_mask)
        score_all(k, t, s);
    else
        score_changed(k, t, s);
    t->epoch = p->epoch;
    t->seen = p->n_changes;
    return &t->scores;
}

static struct pack_spot spot_on(const struct picker *k, uint32_t node, const struct shape *s)
{
    const struct pack_node *const n = &k->pack->nodes[node];
    uint32_t card = 0;

    k->score->score(k->pack, n, s, &card);
    return (struct pack_spot){.node = node, .cards = pack_cards(n, s, card)};
}

bool picker_scan(const struct picker *k, uint32_t shape, struct pack_spot *ret_spot)
{
    check(shape < k->pack->shapes->n);

    const struct shape *const s = &k->pack->shapes->shapes[shape];
    int32_t best = MAX_TREE_NONE;
    uint32_t best_node = 0, card = 0;

    for (uint32_t i = 0; i < k->pack->n_nodes; i++) {
        const int32_t score = score_node(k, &k->pack->nodes[i], s, &card);

        if (score > best) {
            best = score;
            best_node = i;
        }
    }
    if (best == MAX_TREE_NONE)
        return false;
    *ret_spot = spot_on(k, best_node, s);
    return true;
}

bool picker_pick(struct picker *k, uint32_t shape, struct pack_spot *ret_spot)
{
    check(shape < k->pack->shapes->n);

    const struct max_tree *const scores = tree_of(k, shape);

    if (scores == NULL) {
        k->n_scored += k->pack->n_nodes;
        return picker_scan(k, shape, ret_spot);
    }

    const int64_t node = max_tree_first(scores);

    if (node < 0)
        return false;
    *ret_spot = spot_on(k, (uint32_t)node, &k->pack->shapes->shapes[shape]);
    return true;
}

uint64_t picker_n_scored(const struct picker *k)
{
    return k->n_scored;
}
