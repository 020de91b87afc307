/* placer/max_tree.h - the first of the largest among many numbers that change now and then.
 *
 * A tournament of sixteen a round: a change looks at one block of sixteen a level (a cache line), a
 * question too; 10,000 numbers have four levels.
 *
 * Owns:      its numbers.
 * Called by: placer/picker.c, one tree a shape.
 * Lifetime:  max_tree_init .. max_tree_fini.
 * Thread:    one.
 */
#ifndef PLACER_MAX_TREE_H
#define PLACER_MAX_TREE_H

#include <stddef.h>
#include <stdint.h>

#define MAX_TREE_WIDTH  16
#define MAX_TREE_LEVELS 8 /* 16^8 numbers */
#define MAX_TREE_NONE   INT32_MIN

struct max_tree {
    int32_t *levels[MAX_TREE_LEVELS]; /* [0]: the numbers; each padded to whole blocks */
    size_t n_levels;
    size_t n;
};

void max_tree_init(struct max_tree *t, size_t n); /* n > 0 numbers, each MAX_TREE_NONE */
void max_tree_fini(struct max_tree *t);           /* works on a zeroed tree */
void max_tree_set(struct max_tree *t, size_t i, int32_t value);
/* The lowest index of the largest number; -1: all are MAX_TREE_NONE. */
int64_t max_tree_first(const struct max_tree *t);

/* For many changes at once: fill numbers [0 .. n), then build. */
int32_t *max_tree_numbers(struct max_tree *t);
void max_tree_build(struct max_tree *t);

#endif
