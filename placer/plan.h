/* placer/plan.h - where tasks go: nodes and cards in integers, requests, placements, explanations.
 *
 * One code for serving replicas and batch tasks: a replica is a request of one, a gang is several
 * that are placed together or not at all. Units everywhere: thousandths of a core (cpu_milli), MiB,
 * thousandths of one card (gpu_milli), MiB of one card.
 *
 * Owns:      cluster_view: its nodes, their names and what is used of them. plan: its placements.
 * Called by: the controller (replicas), placer/job.c (gangs), `penstock simulate`.
 * Lifetime:  cluster_view_init .. _fini; plan_init .. plan_fini. Nodes are never removed, only set
 *            down, so a node's index is good for the life of its view.
 * Thread:    one; no clock, no I/O, no randomness: the same calls give the same answers.
 * Invariant: for each node and card, used = the sum of the placements that stand in it (kept plans
 *            and taken ones), and no placement is ever made that would pass a capacity.
 */
#ifndef PLACER_PLAN_H
#define PLACER_PLAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

#define PLAN_MAX_CARDS  16   /* of one node: the largest machines sold have 16 */
#define PLAN_CARD_MILLI 1000 /* one whole card */

struct plan_card {
    const char *id;    /* "0" or a uuid: what CUDA_VISIBLE_DEVICES gets; unique in its node */
    const char *model; /* "T4"; "" when unknown */
    uint32_t memory_mib;
    uint32_t used_milli;
    uint32_t used_memory_mib;
    uint32_t n_users; /* placements on it */
    bool down;        /* lost or unhealthy: nothing new goes there */
};

struct plan_node {
    const char *name;
    uint32_t cpu_milli, memory_mib;
    uint32_t used_cpu_milli, used_memory_mib;
    struct plan_card cards[PLAN_MAX_CARDS];
    uint32_t n_cards;
    bool down;
};

struct cluster_view {
    struct plan_node *nodes;
    size_t n_nodes, cap_nodes;
};

/* What is free. Capacity may have shrunk under what is used: then nothing is. */
static inline uint32_t plan_left(uint32_t capacity, uint32_t used)
{
    return capacity > used ? capacity - used : 0;
}

void cluster_view_init(struct cluster_view *view);
void cluster_view_fini(struct cluster_view *view); /* works on a zeroed view */
/* dst becomes a deep copy of src: for dry runs. dst is initialised by this. */
void cluster_view_copy(struct cluster_view *dst, const struct cluster_view *src);

/* What an inventory says of one node; strings are copied. */
struct node_spec {
    const char *name;
    uint32_t cpu_milli, memory_mib;
    struct card_spec {
        const char *id, *model;
        uint32_t memory_mib;
    } cards[PLAN_MAX_CARDS];
    uint32_t n_cards;
};
/* Add the node, or bring the one of this name up to date: cards are matched by id, one that is
 * missing goes down, what is used stays used (also where the new capacity is less: the node then
 * takes nothing until that much has ended). Returns the node's index, or -EINVAL (no name, the same
 * card twice, too many cards) with err filled. */
int cluster_view_set_node(struct cluster_view *view, const struct node_spec *spec, struct err *err);
int cluster_view_find(const struct cluster_view *view, const char *name); /* index, or -1 */

/* What one task asks for. gpu_milli: 0 none; 1..999 a share of one card; a multiple of 1000 that
 * many whole cards, all of one model, of one node. gpu_memory_mib: per card; a whole card is taken
 * with all its memory, so there it is a minimum. models: acceptable ones in order of preference;
 * none: any. */
struct plan_request {
    uint32_t cpu_milli, memory_mib;
    uint32_t gpu_milli, gpu_memory_mib;
    const char *const *models;
    size_t n_models;
};
/* 0, or -EINVAL with the rule that is broken. plan_task insists on a request that passed. */
int plan_request_check(const struct plan_request *req, struct err *err);

struct plan_placement {
    size_t task; /* index in the gang; 0 for plan_task */
    uint32_t node;
    uint32_t cpu_milli, memory_mib;
    uint32_t gpu_milli, gpu_memory_mib; /* taken of each of its cards */
    uint8_t cards[PLAN_MAX_CARDS];      /* indices into the node's cards, rising */
    uint8_t n_cards;
};

/* A transaction on a view: placements take at once, plan_rewind gives back. */
struct plan {
    struct cluster_view *view;
    struct plan_placement *placements;
    size_t n, cap;
};
struct plan_mark {
    size_t n;
};
void plan_init(struct plan *plan, struct cluster_view *view);
/* Frees the list; what was placed stays taken in the view: its owner gives it back later by
 * cluster_view_release. Rewind to 0 first to drop it. */
void plan_fini(struct plan *plan);
static inline struct plan_mark plan_mark(const struct plan *plan)
{
    return (struct plan_mark){plan->n};
}
void plan_rewind(struct plan *plan, struct plan_mark mark);

enum plan_outcome {
    PLAN_OK = 0,
    PLAN_E_NO_ROOM, /* it would fit if others left */
    PLAN_E_NEVER,   /* not even the empty cluster has room (only told when why is asked for) */
};

/* What stood in the way: for each node its first unmet need, counted, and the nearest miss. */
enum plan_short {
    PLAN_SHORT_NODE_DOWN = 0,
    PLAN_SHORT_MODEL,   /* no card of an acceptable model */
    PLAN_SHORT_CARDS,   /* not enough cards at all (of the model, with the memory) */
    PLAN_SHORT_GPU,     /* not enough free thousandths on one card, or free whole cards */
    PLAN_SHORT_GPU_MIB, /* thousandths are free, its memory is not */
    PLAN_SHORT_CPU,
    PLAN_SHORT_MEMORY,
    PLAN_N_SHORT
};
struct plan_why {
    uint32_t counts[PLAN_N_SHORT];
    size_t task;    /* index in the gang of the task that found no place */
    size_t n_tasks; /* of the gang */
    char text[512]; /* one line: "task 2 of 4 asks for ...: node a: 1 of 2 cards free; ..." */
};

/* Place one task: the fullest card (or node) that fits, appended to plan and taken in its view.
 * why: filled when it does not fit; NULL: don't care. O(nodes x cards), plus as much again to
 * explain. */
enum plan_outcome plan_task(struct plan *plan, const struct plan_request *req,
                            struct plan_why *why);

/* Place every task of a gang, or change nothing. Hardest tasks are placed first; one that finds no
 * place makes those before it try their next best ones, at most PLAN_MAX_BACKS times in all. The
 * placements name tasks by their index here; why is of the first that found no place.
 * O((n_tasks + PLAN_MAX_BACKS) x nodes x cards). */
#define PLAN_MAX_BACKS 64 /* enough for the last ten tasks or so; a gang that fails costs this */
enum plan_outcome plan_gang(struct plan *plan, const struct plan_request *tasks, size_t n_tasks,
                            struct plan_why *why);

/* Whether the node has what the request asks for, as it stands. */
bool plan_node_has_room(const struct plan_node *node, const struct plan_request *req);

/* Give back what a placement took. */
void cluster_view_release(struct cluster_view *view, const struct plan_placement *p);
/* Take again what stood before (restart, dry run); false, and nothing taken, when it has no room.
 */
bool cluster_view_take(struct cluster_view *view, const struct plan_placement *p);

#endif
