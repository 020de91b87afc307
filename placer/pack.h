/* placer/pack.h - a cluster in a compact form: what is free on each node, and how fragmented it is.
 *
 * For deciding tens of thousands of times a second about 100,000 cards; placer/plan.h has the same
 * nouns with names, ids and explanations. A node's number is its place in the fixed order that
 * breaks ties: the lowest wins.
 *
 * Owns:      its nodes, its typical tasks, the log of changed nodes. The shapes are the caller's.
 * Called by: placer/picker.c (which node), placer/openb.c (simulation).
 * Lifetime:  pack_init .. pack_fini, and the shapes outlive it; nodes are not added later.
 * Thread:    one; no clock, no I/O, no randomness; integers only.
 * Invariant: for each node, free + what its placements take = its capacity; idle_milli, n_whole and
 *            useful say of its free cards what placer/typical.h defines; log holds the last
 * changes.
 */
#ifndef PLACER_PACK_H
#define PLACER_PACK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "placer/plan.h"
#include "placer/shape.h"
#include "placer/typical.h"

struct pack_node { /* one cache line, and it begins with one */
    uint16_t free_milli[PLAN_MAX_CARDS];
    uint32_t free_cpu_milli, free_memory_mib;
    uint16_t idle_milli; /* sum of free_milli */
    uint16_t n_tasks, max_tasks;
    uint8_t n_cards;
    uint8_t n_whole; /* cards that are wholly free */
    uint8_t model;
    uint32_t last_change; /* its latest entry in the log, counted from 0; the low 32 bits */
    int64_t useful;       /* placer/typical.h */
};

struct pack {
    struct pack_node *nodes;
    void *memory; /* that the nodes are in */
    uint32_t n_nodes;
    const struct shape_table *shapes;
    struct typical typical;
    uint64_t epoch; /* of the typical tasks: with another one, all scores are others */
    int64_t idle_milli, useful, capacity_milli;
    uint32_t *log; /* of node numbers, a ring */
    uint64_t n_changes, log_mask;
};

struct pack_node_spec {
    uint32_t cpu_milli, memory_mib, n_cards, max_tasks;
    uint32_t model; /* of its cards, a number from shape_model; 0 without cards */
};

/* Where a task goes. */
struct pack_spot {
    uint32_t node;
    uint16_t cards; /* bit = card number */
};

/* specs: n > 0 nodes, in the fixed order. shapes: what is asked for; it may grow, but by models
 * only before a pack_set_typical. Nothing is typical yet. */
void pack_init(struct pack *p, const struct pack_node_spec *specs, size_t n,
               const struct shape_table *shapes);
void pack_fini(struct pack *p); /* works on a zeroed pack */

/* What the cluster typically sees from now on: counts: one for each shape of p->shapes, or NULL:
 * nothing. */
void pack_set_typical(struct pack *p, const uint64_t *counts, uint32_t coverage_pct);

/* Whether the node has room for the shape now. */
bool pack_fits(const struct pack_node *n, const struct shape *s);
/* The cards that the shape takes on a node with room: the lowest wholly free ones, or card (for a
 * share). As bits. */
uint16_t pack_cards(const struct pack_node *n, const struct shape *s, uint32_t card);

/* Whether just this spot is free for the shape. */
bool pack_has_room(const struct pack *p, const struct shape *s, struct pack_spot spot);

/* Take the spot (it must have room) or give it back (it must have been taken). */
void pack_take(struct pack *p, const struct shape *s, struct pack_spot spot);
void pack_release(struct pack *p, const struct shape *s, struct pack_spot spot);

/* Fragmented milli x p->typical.weight, of all nodes. */
static inline int64_t pack_fragmented(const struct pack *p)
{
    return p->idle_milli * p->typical.weight - p->useful;
}

#endif
