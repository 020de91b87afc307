#include "gateway/shapes.h"

#include <stdlib.h>

#include "base/xalloc.h"

#define ROWS         64u
#define PATIENCE     2u /* so two shapes that share a row do not push each other out in turn */
#define PATIENCE_MAX 4096u

static struct shape_row *shapes_row(const struct shapes *t, enum walker_kind kind,
                                    const uint8_t *message, uint32_t message_bytes)
{
    uint32_t h = message_bytes * 31 + (uint32_t)kind;

    if (message_bytes >= 2) {
        /* A short string at the front, where the name is: its length and last byte. */
        const uint32_t last = 1u + message[1];

        h = (h * 31 + message[1]) * 31 + (last < message_bytes ? message[last] : 0);
    }
    return &t->rows[(h ^ h >> 8) % ROWS];
}

void shapes_init(struct shapes *t)
{
    t->rows = xcalloc(ROWS, sizeof(*t->rows));
    shapes_reset(t);
}

void shapes_fini(struct shapes *t)
{
    free(t->rows);
    t->rows = NULL;
}

void shapes_reset(struct shapes *t)
{
    for (size_t i = 0; i < ROWS; i++) {
        t->rows[i].shape.message_bytes = 0;
        t->rows[i].patience = PATIENCE;
    }
}

const struct shape_row *shapes_find(struct shapes *t, enum walker_kind kind, const uint8_t *message,
                                    uint32_t message_bytes)
{
    struct shape_row *row = shapes_row(t, kind, message, message_bytes);

    if (!walker_shape_fits(&row->shape, kind, message, message_bytes)) {
        if (row->missed_bytes != message_bytes) {
            row->misses = 0;
            row->patience = PATIENCE;
        }
        row->misses++;
        row->missed_bytes = message_bytes;
        return NULL;
    }
    row->misses = 0;
    return row;
}

void shapes_learn(struct shapes *t, enum walker_kind kind, const uint8_t *message,
                  uint32_t message_bytes, const struct route *route)
{
    struct shape_row *row = shapes_row(t, kind, message, message_bytes);

    if (row->misses < row->patience)
        return;
    row->misses = 0;
    if (walker_take_shape(&row->shape, &row->walked, kind, message, message_bytes)) {
        row->route = *route;
        row->patience = PATIENCE;
        return;
    }
    row->shape.message_bytes = 0;
    if (row->patience < PATIENCE_MAX)
        row->patience *= 2;
}
