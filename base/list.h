/* base/list.h - intrusive doubly linked list.
 *
 * Owns:      nothing: the node is a member of the object; the list head is one too.
 * Thread:    one.
 */
#ifndef BASE_LIST_H
#define BASE_LIST_H

#include <stdbool.h>
#include <stddef.h>

#include "base/check.h"

struct list {
    struct list *prev, *next;
};

static inline void list_init(struct list *l)
{
    l->prev = l->next = l;
}

static inline bool list_is_empty(const struct list *l)
{
    return l->next == l;
}

/* True for a node that is on a list (a zeroed or removed node is on none). */
static inline bool list_is_linked(const struct list *node)
{
    return node->next != NULL && node->next != node;
}

static inline void list_insert_before(struct list *pos, struct list *node)
{
    node->prev = pos->prev;
    node->next = pos;
    pos->prev->next = node;
    pos->prev = node;
}

static inline void list_push_back(struct list *l, struct list *node)
{
    list_insert_before(l, node);
}

static inline void list_push_front(struct list *l, struct list *node)
{
    list_insert_before(l->next, node);
}

/* Safe on a zeroed or already removed node. */
static inline void list_remove(struct list *node)
{
    if (node->next == NULL)
        return;
    node->prev->next = node->next;
    node->next->prev = node->prev;
    node->prev = node->next = NULL;
}

static inline struct list *list_pop_front(struct list *l)
{
    struct list *node = l->next;

    if (node == l)
        return NULL;
    list_remove(node);
    return node;
}

#define list_entry(node, type, member) container_of(node, type, member)

#define list_first(l, type, member) (list_is_empty(l) ? NULL : list_entry((l)->next, type, member))

/* The body may remove the node that it stands on. */
#define list_each(l, it)                                                                           \
    for (struct list *it = (l)->next, *it##_next = it->next; it != (l);                            \
         it = it##_next, it##_next = it->next)

#endif
