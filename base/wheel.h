/* base/wheel.h - many timers, most of which never fire: started and stopped in constant time.
 *
 * A hierarchical timing wheel: nine levels of 64 slots, a slot of level 0 one tick wide, each level
 * 64 times as coarse as the one before. A timer lies at the level of the highest six bits in which
 * its tick differs from the wheel's; it moves down when the wheel comes to its slot.
 *
 * Owns:      its slots; timers are members of their objects.
 * Called by: net/loop.c (one per loop).
 * Lifetime:  wheel_init; nothing to end: what still runs must not be touched after the wheel.
 * Thread:    one.
 * Source:    Varghese and Lauck, "Hashed and Hierarchical Timing Wheels", SOSP 1987, scheme 6.
 *
 * Invariants:
 *  - A timer never fires before its time, and is due at most one tick after it.
 *  - All timers of one level agree with the wheel's tick in the bits above that level, and lie in
 *    slots past the wheel's own of that level.
 */
#ifndef BASE_WHEEL_H
#define BASE_WHEEL_H

#include <stdbool.h>
#include <stdint.h>

#include "base/list.h"

#define WHEEL_TICK_BITS 10 /* 1,024 us */
#define WHEEL_SLOT_BITS 6
#define WHEEL_SLOTS     (1u << WHEEL_SLOT_BITS)
#define WHEEL_LEVELS    9 /* 54 bits of ticks: all of 64-bit microseconds */

struct wheel_timer {
    struct list node;
    uint64_t tick; /* due when the wheel is there */
    uint8_t level, slot;
};

struct wheel {
    uint64_t tick;
    uint64_t used[WHEEL_LEVELS]; /* a bit for each slot that may hold a timer */
    struct list slots[WHEEL_LEVELS][WHEEL_SLOTS];
};

void wheel_init(struct wheel *w, uint64_t now_us);
/* Moves t when it runs. A time that has passed: due with the next tick. */
void wheel_start(struct wheel *w, struct wheel_timer *t, uint64_t at_us);
void wheel_stop(struct wheel *w, struct wheel_timer *t); /* safe when it does not run */
static inline bool wheel_timer_runs(const struct wheel_timer *t)
{
    return list_is_linked(&t->node);
}

/* Move on to now_us and append what is due to due (struct wheel_timer.node), earliest tick first.
 * A timer of that list may still be stopped, or started anew. */
void wheel_advance(struct wheel *w, uint64_t now_us, struct list *due);
/* When to call wheel_advance: nothing is due before. UINT64_MAX: no timer runs. */
uint64_t wheel_next_us(const struct wheel *w);

#endif
