/* placer/picker.h - which node takes the next task: the best score, the lowest node among equals.
 *
 * For each shape a tree of the scores of all nodes is kept. A change to a node only enters the
 * pack's log; a shape's tree is brought up to date when the shape is asked for, and only nodes that
 * changed since are scored again. The answer is the one that scoring every node would give.
 *
 * Owns:      the trees; the pack is the caller's.
 * Called by: placer/openb.c.
 * Lifetime:  picker_new .. picker_free; the pack outlives it.
 * Thread:    one; no clock, no I/O, no randomness. Allocates when a shape is first asked for.
 */
#ifndef PLACER_PICKER_H
#define PLACER_PICKER_H

#include "placer/pack.h"
#include "placer/score.h"

/* Past so many bytes of trees, more shapes are answered by scoring every node. */
#define PICKER_TREE_BYTES ((size_t)512 * 1024 * 1024)

struct picker;

struct picker *picker_new(const struct pack *p, const struct score_ops *score);
struct picker *picker_free(struct picker *k); /* NULL, also for NULL */

/* The spot for a task of this shape, which is not taken yet; false: no node has room. */
bool picker_pick(struct picker *k, uint32_t shape, struct pack_spot *ret_spot);
/* The same by scoring every node. */
bool picker_scan(const struct picker *k, uint32_t shape, struct pack_spot *ret_spot);

/* Nodes scored since picker_new. */
uint64_t picker_n_scored(const struct picker *k);

#endif
