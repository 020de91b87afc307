/* penstock/decisions.h - the last decisions of the controller, each with its reason.
 *
 * Owns:      a ring of records; the oldest goes when it is full.
 * Called by: the fleet and the controller write; GET /v1/decisions (`penstock why`) reads.
 * Lifetime:  decisions_new .. decisions_free.
 * Thread:    the control loop's.
 */
#ifndef PENSTOCK_DECISIONS_H
#define PENSTOCK_DECISIONS_H

#include <stddef.h>
#include <stdint.h>

#include "base/check.h"

#define DECISIONS_KEPT 2000

struct decision_record {
    uint64_t at_us; /* wall clock */
    char model[136], version[136];
    char what[28]; /* scale, no_room, replica_start, replica_ready, keep_warm, apply, ... */
    char text[400];
};

struct decisions;
struct decisions *decisions_new(void);
struct decisions *decisions_free(struct decisions *d); /* returns NULL */

/* Record it, and log it as an info event of that name. version: "" for the whole model, model: ""
 * for all of them. */
void decisions_add(struct decisions *d, const char *what, const char *model, const char *version,
                   const char *fmt, ...) PRINTF_LIKE(5, 6);

/* i = 0 is the newest; NULL past the oldest. */
const struct decision_record *decisions_at(const struct decisions *d, size_t i);

#endif
