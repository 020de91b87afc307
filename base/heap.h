/* base/heap.h - intrusive binary min-heap keyed by uint64 (deadlines).
 *
 * Owns:      the array of pointers; nodes are members of the objects.
 * Thread:    one.
 */
#ifndef BASE_HEAP_H
#define BASE_HEAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct heap_node {
    uint64_t key;
    size_t index_plus_1; /* 0: on no heap */
};

struct heap {
    struct heap_node **nodes;
    size_t n, cap;
};

void heap_fini(struct heap *h); /* a zeroed heap is an empty heap */
void heap_push(struct heap *h, struct heap_node *node, uint64_t key);
void heap_remove(struct heap *h, struct heap_node *node); /* safe when on no heap */
struct heap_node *heap_min(const struct heap *h);         /* NULL: empty */
static inline bool heap_node_is_linked(const struct heap_node *n)
{
    return n->index_plus_1 != 0;
}

#endif
