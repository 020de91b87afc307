/* placer/order.h - the order in which the jobs of a queue are tried, and which of them may be put
 * aside for others.
 *
 * Owns:      nothing: an order is a constant table of functions over plain data.
 * Called by: placer/job_sim.c at every event of a replay; placer/job_place.c for the order
 *            of the waiting jobs of a queue, and no more.
 * Thread:    any; no state, no clock.
 *
 * To add an order: its file, its row in order.c, its test.
 */
#ifndef PLACER_ORDER_H
#define PLACER_ORDER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What an order may know of a job. */
struct order_job {
    uint64_t number; /* breaks ties: the smaller goes first */
    uint64_t submit_us;
    uint64_t run_us;  /* useful run time so far */
    uint64_t left_us; /* still to run; only for orders that say knows_durations */
    uint32_t gpus;    /* whole cards of the gang, >= 1 */
};

enum order_preempt {
    ORDER_PREEMPT_NEVER = 0,  /* what runs stays until it ends */
    ORDER_PREEMPT_EACH_EVENT, /* every arrival and end may put any job aside */
    ORDER_PREEMPT_PERIODIC,   /* each period_us; between them free cards are filled in order */
};

struct order_ops {
    const char *name;
    bool knows_durations;
    bool strict; /* a job that has no room holds up all behind it */
    enum order_preempt preempt;
    uint64_t period_us;
    /* The smallest key goes first, then the smallest number. The key of a waiting job may change
     * only when it has run. */
    uint64_t (*key)(const struct order_job *job);
    /* How long a job may wait without a whole period of run; then it goes in front of all others,
     * the longest overdue first, until it has run for one. NULL: as long as it takes. */
    uint64_t (*patience_us)(const struct order_job *job);
};

extern const struct order_ops order_fifo, order_srtf, order_srsf, order_levels;

/* NULL: no order of this name. */
const struct order_ops *order_find(const char *name);
/* The i-th order, NULL past the last: for messages and tables. */
const struct order_ops *order_at(size_t i);

#endif
