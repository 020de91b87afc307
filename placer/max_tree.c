#include "placer/max_tree.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/xalloc.h"

static int32_t block_max(const int32_t *block)
{
    int32_t max = block[0];

    for (int i = 1; i < MAX_TREE_WIDTH; i++)
        max = block[i] > max ? block[i] : max;
    return max;
}

static size_t blocks_of(size_t n)
{
    return (n + MAX_TREE_WIDTH - 1) / MAX_TREE_WIDTH;
}

void max_tree_init(struct max_tree *t, size_t n)
{
    check(n > 0);
    t->n = n;
    t->n_levels = 0;
    for (size_t blocks = n; blocks > 1 || t->n_levels == 0;) {
        check(t->n_levels < MAX_TREE_LEVELS);
        blocks = blocks_of(blocks);

        int32_t *const level = xcalloc(blocks * MAX_TREE_WIDTH, sizeof(*level));

        for (size_t i = 0; i < blocks * MAX_TREE_WIDTH; i++)
            level[i] = MAX_TREE_NONE;
        t->levels[t->n_levels++] = level;
    }
}

void max_tree_fini(struct max_tree *t)
{
    for (size_t i = 0; i < t->n_levels; i++)
        free(t->levels[i]);
    memset(t, 0, sizeof(*t));
}

void max_tree_set(struct max_tree *t, size_t i, int32_t value)
{
    check(i < t->n);

    const int32_t old = t->levels[0][i];

    if (value == old)
        return;
    t->levels[0][i] = value;
    if (t->n_levels > 1) { /* most changes are of one that neither was nor becomes the largest */
        const int32_t max = t->levels[1][i / MAX_TREE_WIDTH];

        if (old < max && value <= max)
            return;
    }
    for (size_t l = 0; l + 1 < t->n_levels; l++) {
        const size_t block = i / MAX_TREE_WIDTH;
        const int32_t max = block_max(t->levels[l] + block * MAX_TREE_WIDTH);

        if (t->levels[l + 1][block] == max)
            return;
        t->levels[l + 1][block] = max;
        i = block;
    }
}

int64_t max_tree_first(const struct max_tree *t)
{
    size_t i = 0;

    for (size_t l = t->n_levels; l-- > 0;) {
        const int32_t *const block = t->levels[l] + i * MAX_TREE_WIDTH;
        const int32_t max = block_max(block);
        size_t first = 0;

        if (max == MAX_TREE_NONE)
            return -1;
        while (block[first] != max)
            first++;
        i = i * MAX_TREE_WIDTH + first;
    }
    return (int64_t)i;
}

int32_t *max_tree_numbers(struct max_tree *t)
{
    return t->levels[0];
}

void max_tree_build(struct max_tree *t)
{
    size_t blocks = t->n;

    for (size_t l = 0; l + 1 < t->n_levels; l++) {
        blocks = blocks_of(blocks);
        for (size_t b = 0; b < blocks; b++)
            t->levels[l + 1][b] = block_max(t->levels[l] + b * MAX_TREE_WIDTH);
    }
}
