/* placer/shape.h - what a task asks for, interned: equal requests are one shape with one number.
 *
 * A cluster sees few distinct requests (the openb trace: 151 among 8,152 tasks), so what is known
 * of a shape - its score on every node, say - is worth keeping (placer/picker.h).
 *
 * Owns:      shape_table: its shapes and the names of the card models.
 * Called by: placer/pack.c and whoever places tasks with it.
 * Lifetime:  shape_table_init .. _fini; numbers stay good until then.
 * Thread:    one; no clock, no I/O.
 */
#ifndef PLACER_SHAPE_H
#define PLACER_SHAPE_H

#include <stddef.h>
#include <stdint.h>

#include "base/hash.h"

#define SHAPE_MAX_MODELS 64 /* one bit each in shape.models */
#define SHAPE_ANY_MODEL  UINT64_MAX

struct shape {
    uint32_t cpu_milli, memory_mib;
    uint32_t n_cards;    /* 0: no card */
    uint32_t card_milli; /* of each card: 1000 (PLAN_CARD_MILLI), or less of one card; 0 without */
    uint64_t models;     /* acceptable ones, bit = model number; SHAPE_ANY_MODEL: all */
};

struct shape_table {
    struct shape *shapes;
    size_t n, cap;
    struct map by_bytes; /* shape -> number + 1 */
    char *models[SHAPE_MAX_MODELS];
    size_t n_models;
};

void shape_table_init(struct shape_table *t);
void shape_table_fini(struct shape_table *t); /* works on a zeroed table */

/* The number of the shape, which is added when it is new. A share is of one card only. */
uint32_t shape_intern(struct shape_table *t, const struct shape *s);
/* The number of the model, which is added when it is new; -1: that would be one too many. */
int shape_model(struct shape_table *t, const char *name, size_t len);

#endif
