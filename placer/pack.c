#include "placer/pack.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/xalloc.h"

#define CACHE_LINE 64
_Static_assert(sizeof(struct pack_node) == CACHE_LINE, "a node fills a cache line");

static int64_t useful_of(const struct typical *t, const struct pack_node *n)
{
    const int64_t *const row = typical_row(t, n->model, n->free_cpu_milli);
    int64_t useful = typical_whole(t, row, n->n_whole);

    for (uint32_t i = 0; i < n->n_cards; i++)
        useful += typical_card(t, row, n->free_milli[i]);
    return useful;
}

void pack_init(struct pack *p, const struct pack_node_spec *specs, size_t n,
               const struct shape_table *shapes)
{
    uint64_t log_size = 1024;

    check(n > 0 && n <= UINT32_MAX / 8);
    memset(p, 0, sizeof(*p));
    p->shapes = shapes;
    p->memory = xcalloc(n + 1, CACHE_LINE);
    p->nodes = (void *)(((uintptr_t)p->memory + CACHE_LINE - 1) & ~(uintptr_t)(CACHE_LINE - 1));
    p->n_nodes = (uint32_t)n;
    for (size_t i = 0; i < n; i++) {
        const struct pack_node_spec *const spec = &specs[i];
        struct pack_node *const node = &p->nodes[i];

        check(spec->n_cards <= PLAN_MAX_CARDS && spec->model < SHAPE_MAX_MODELS &&
              spec->max_tasks <= UINT16_MAX);
        *node = (struct pack_node){.free_cpu_milli = spec->cpu_milli,
                                   .free_memory_mib = spec->memory_mib,
                                   .max_tasks = (uint16_t)spec->max_tasks,
                                   .idle_milli = (uint16_t)(spec->n_cards * PLAN_CARD_MILLI),
                                   .n_cards = (uint8_t)spec->n_cards,
                                   .n_whole = (uint8_t)spec->n_cards,
                                   .model = (uint8_t)spec->model};
        for (uint32_t c = 0; c < spec->n_cards; c++)
            node->free_milli[c] = PLAN_CARD_MILLI;
        p->capacity_milli += node->idle_milli;
    }
    p->idle_milli = p->capacity_milli;
    while (log_size < 4 * n) /* a question after more changes looks at every node anyway */
        log_size *= 2;
    p->log = xcalloc(log_size, sizeof(*p->log));
    p->log_mask = log_size - 1;
    pack_set_typical(p, NULL, 100);
}

void pack_fini(struct pack *p)
{
    typical_fini(&p->typical);
    free(p->memory);
    free(p->log);
    memset(p, 0, sizeof(*p));
}

void pack_set_typical(struct pack *p, const uint64_t *counts, uint32_t coverage_pct)
{
    typical_fini(&p->typical);
    typical_init(&p->typical, p->shapes->shapes, counts, counts == NULL ? 0 : p->shapes->n,
                 p->shapes->n_models, coverage_pct);
    p->useful = 0;
    for (uint32_t i = 0; i < p->n_nodes; i++) {
        p->nodes[i].useful = useful_of(&p->typical, &p->nodes[i]);
        p->useful += p->nodes[i].useful;
    }
    p->epoch++;
}

bool pack_fits(const struct pack_node *n, const struct shape *s)
{
    if (n->free_cpu_milli < s->cpu_milli || n->free_memory_mib < s->memory_mib ||
        n->n_tasks >= n->max_tasks)
        return false;
    if (s->n_cards == 0)
        return true;
    if ((s->models >> n->model & 1) == 0)
        return false;
    if (s->card_milli == PLAN_CARD_MILLI || n->n_whole > 0)
        return n->n_whole >= s->n_cards;
    if (n->idle_milli < s->card_milli)
        return false;
    for (uint32_t i = 0; i < n->n_cards; i++)
        if (n->free_milli[i] >= s->card_milli)
            return true;
    return false;
}

uint16_t pack_cards(const struct pack_node *n, const struct shape *s, uint32_t card)
{
    uint32_t cards = 0, wanted = s->n_cards;

    if (s->n_cards == 1 && s->card_milli < PLAN_CARD_MILLI)
        return (uint16_t)(1u << card);
    for (uint32_t i = 0; wanted > 0; i++) {
        check(i < n->n_cards);
        if (n->free_milli[i] == PLAN_CARD_MILLI) {
            cards |= 1u << i;
            wanted--;
        }
    }
    return (uint16_t)cards;
}

bool pack_has_room(const struct pack *p, const struct shape *s, struct pack_spot spot)
{
    const struct pack_node *const n = &p->nodes[spot.node];

    if ((uint32_t)__builtin_popcount(spot.cards) != s->n_cards || !pack_fits(n, s))
        return false;
    for (uint32_t cards = spot.cards, i; cards != 0; cards &= cards - 1) {
        i = (uint32_t)__builtin_ctz(cards);
        if (i >= n->n_cards || n->free_milli[i] < s->card_milli)
            return false;
    }
    return true;
}

/* The node's figures have changed: what follows from them, and the log. */
static void node_changed(struct pack *p, uint32_t node)
{
    struct pack_node *const n = &p->nodes[node];
    const int64_t useful = useful_of(&p->typical, n);

    p->useful += useful - n->useful;
    n->useful = useful;
    n->last_change = (uint32_t)p->n_changes;
    p->log[p->n_changes++ & p->log_mask] = node;
}

void pack_take(struct pack *p, const struct shape *s, struct pack_spot spot)
{
    check(spot.node < p->n_nodes);

    struct pack_node *const n = &p->nodes[spot.node];
    const uint32_t taken_milli = s->n_cards * s->card_milli;
    uint32_t n_cards = 0;

    check(n->free_cpu_milli >= s->cpu_milli && n->free_memory_mib >= s->memory_mib &&
          n->n_tasks < n->max_tasks);
    n->free_cpu_milli -= s->cpu_milli;
    n->free_memory_mib -= s->memory_mib;
    n->n_tasks++;
    n->idle_milli = (uint16_t)(n->idle_milli - taken_milli);
    p->idle_milli -= taken_milli;
    for (uint32_t cards = spot.cards, i; cards != 0; cards &= cards - 1, n_cards++) {
        i = (uint32_t)__builtin_ctz(cards);
        check(i < n->n_cards && n->free_milli[i] >= s->card_milli);
        n->n_whole = (uint8_t)(n->n_whole - (n->free_milli[i] == PLAN_CARD_MILLI));
        n->free_milli[i] = (uint16_t)(n->free_milli[i] - s->card_milli);
    }
    check(n_cards == s->n_cards);
    node_changed(p, spot.node);
}

void pack_release(struct pack *p, const struct shape *s, struct pack_spot spot)
{
    check(spot.node < p->n_nodes);

    struct pack_node *const n = &p->nodes[spot.node];
    const uint32_t freed_milli = s->n_cards * s->card_milli;
    uint32_t n_cards = 0;

    check(n->n_tasks > 0);
    n->free_cpu_milli += s->cpu_milli;
    n->free_memory_mib += s->memory_mib;
    n->n_tasks--;
    n->idle_milli = (uint16_t)(n->idle_milli + freed_milli);
    p->idle_milli += freed_milli;
    for (uint32_t cards = spot.cards, i; cards != 0; cards &= cards - 1, n_cards++) {
        i = (uint32_t)__builtin_ctz(cards);
        check(i < n->n_cards && n->free_milli[i] + s->card_milli <= PLAN_CARD_MILLI);
        n->free_milli[i] = (uint16_t)(n->free_milli[i] + s->card_milli);
        n->n_whole = (uint8_t)(n->n_whole + (n->free_milli[i] == PLAN_CARD_MILLI));
    }
    check(n_cards == s->n_cards);
    node_changed(p, spot.node);
}
