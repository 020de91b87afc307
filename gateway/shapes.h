/* gateway/shapes.h - what a worker knows of the messages that its clients send: most of them differ
 * only in bytes that nobody but the replica reads.
 *
 * Owns:      its rows.
 * Called by: inbound.c (the first message of a call), worker.c (another snapshot).
 * Lifetime:  member of struct worker; shapes_init .. shapes_fini.
 * Thread:    its worker's.
 *
 * A row answers for a message when every byte that the walker would read is the same: the walk, and
 * the look-up of the model by its name, are what they were then. The routes are those of one
 * snapshot: shapes_reset forgets them.
 */
#ifndef GATEWAY_SHAPES_H
#define GATEWAY_SHAPES_H

#include "gateway/route.h"

struct shape_row {
    struct walker_shape shape;
    struct route route;
    uint32_t misses;       /* since it last fitted: one that fits no more makes room */
    uint32_t missed_bytes; /* length of the message that missed last */
    uint32_t patience;     /* misses before the next is learnt; more when learning was in vain */
    struct walker walked;  /* after such a message */
};

struct shapes {
    struct shape_row *rows;
};

void shapes_init(struct shapes *t);
void shapes_fini(struct shapes *t);
void shapes_reset(struct shapes *t);

/* message: whole, uncompressed. NULL: not known. Valid until the next call. */
const struct shape_row *shapes_find(struct shapes *t, enum walker_kind kind, const uint8_t *message,
                                    uint32_t message_bytes);
/* It was not known, was walked, and went this way. */
void shapes_learn(struct shapes *t, enum walker_kind kind, const uint8_t *message,
                  uint32_t message_bytes, const struct route *route);

#endif
