#include "base/heap.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/xalloc.h"

#define FIRST_CAP 16

void heap_fini(struct heap *h)
{
    for (size_t i = 0; i < h->n; i++)
        h->nodes[i]->index_plus_1 = 0;
    free(h->nodes);
    memset(h, 0, sizeof(*h));
}

static void put(struct heap *h, size_t i, struct heap_node *node)
{
    h->nodes[i] = node;
    node->index_plus_1 = i + 1;
}

static void sift_up(struct heap *h, size_t i, struct heap_node *node)
{
    while (i > 0 && h->nodes[(i - 1) / 2]->key > node->key) {
        put(h, i, h->nodes[(i - 1) / 2]);
        i = (i - 1) / 2;
    }
    put(h, i, node);
}

static void sift_down(struct heap *h, size_t i, struct heap_node *node)
{
    for (size_t child; (child = 2 * i + 1) < h->n; i = child) {
        if (child + 1 < h->n && h->nodes[child + 1]->key < h->nodes[child]->key)
            child++;
        if (node->key <= h->nodes[child]->key)
            break;
        put(h, i, h->nodes[child]);
    }
    put(h, i, node);
}

/* node is on no heap. O(log n). */
void heap_push(struct heap *h, struct heap_node *node, uint64_t key)
{
    check(node->index_plus_1 == 0);
    if (h->n == h->cap) {
        h->cap = h->cap > 0 ? h->cap * 2 : FIRST_CAP;
        h->nodes = xrealloc(h->nodes, h->cap, sizeof(struct heap_node *));
    }
    node->key = key;
    sift_up(h, h->n++, node);
}

void heap_remove(struct heap *h, struct heap_node *node)
{
    const size_t i = node->index_plus_1 - 1;
    struct heap_node *last;

    if (node->index_plus_1 == 0)
        return;
    check(i < h->n && h->nodes[i] == node);
    node->index_plus_1 = 0;
    last = h->nodes[--h->n];
    if (last == node)
        return;
    if (i > 0 && h->nodes[(i - 1) / 2]->key > last->key)
        sift_up(h, i, last);
    else
        sift_down(h, i, last);
}

struct heap_node *heap_min(const struct heap *h)
{
    return h->n > 0 ? h->nodes[0] : NULL;
}
