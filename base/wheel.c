#include "base/wheel.h"

#include "base/check.h"

#define SLOT_MASK (WHEEL_SLOTS - 1)
#define TICK_MAX  ((UINT64_C(1) << (WHEEL_LEVELS * WHEEL_SLOT_BITS)) - 1)

static unsigned slot_of(uint64_t tick, unsigned level)
{
    return (unsigned)(tick >> (level * WHEEL_SLOT_BITS)) & SLOT_MASK;
}

/* t->tick is past the wheel's. */
static void wheel_place(struct wheel *w, struct wheel_timer *t)
{
    const unsigned high_bit = 63 - (unsigned)__builtin_clzll(t->tick ^ w->tick);

    t->level = (uint8_t)(high_bit / WHEEL_SLOT_BITS);
    t->slot = (uint8_t)slot_of(t->tick, t->level);
    w->used[t->level] |= UINT64_C(1) << t->slot;
    list_push_back(&w->slots[t->level][t->slot], &t->node);
}

void wheel_init(struct wheel *w, uint64_t now_us)
{
    w->tick = now_us >> WHEEL_TICK_BITS;
    for (unsigned level = 0; level < WHEEL_LEVELS; level++) {
        w->used[level] = 0;
        for (unsigned slot = 0; slot < WHEEL_SLOTS; slot++)
            list_init(&w->slots[level][slot]);
    }
}

void wheel_stop(struct wheel *w, struct wheel_timer *t)
{
    struct list *slot = &w->slots[t->level][t->slot];

    if (!list_is_linked(&t->node))
        return;
    list_remove(&t->node);
    if (list_is_empty(slot))
        w->used[t->level] &= ~(UINT64_C(1) << t->slot);
}

void wheel_start(struct wheel *w, struct wheel_timer *t, uint64_t at_us)
{
    const uint64_t whole = at_us >> WHEEL_TICK_BITS;
    const bool within = (at_us & ((1u << WHEEL_TICK_BITS) - 1)) != 0;

    wheel_stop(w, t);
    t->tick = whole + (within && whole < TICK_MAX);
    if (t->tick <= w->tick)
        t->tick = w->tick + 1;
    wheel_place(w, t);
}

/* The first tick that begins a slot in use; UINT64_MAX: none. The lowest level that has one has it:
 * what is in a higher one lies past all of the lower ones. */
static uint64_t wheel_next_tick(const struct wheel *w)
{
    for (unsigned level = 0; level < WHEEL_LEVELS; level++) {
        const unsigned shift = level * WHEEL_SLOT_BITS;

        if (w->used[level] == 0)
            continue;

        const uint64_t above = w->tick >> shift >> WHEEL_SLOT_BITS << WHEEL_SLOT_BITS;
        const unsigned slot = (unsigned)__builtin_ctzll(w->used[level]);

        check(slot > slot_of(w->tick, level));
        return (above | slot) << shift;
    }
    return UINT64_MAX;
}

void wheel_advance(struct wheel *w, uint64_t now_us, struct list *due)
{
    const uint64_t to = now_us >> WHEEL_TICK_BITS;
    uint64_t next;

    while ((next = wheel_next_tick(w)) <= to) {
        w->tick = next;
        /* Each level whose slot begins here, the coarsest first. */
        for (unsigned level = WHEEL_LEVELS; level-- > 0;) {
            const unsigned slot = slot_of(next, level);
            struct list *node;

            if ((w->used[level] & UINT64_C(1) << slot) == 0)
                continue;
            w->used[level] &= ~(UINT64_C(1) << slot);
            while ((node = list_pop_front(&w->slots[level][slot])) != NULL) {
                struct wheel_timer *t = list_entry(node, struct wheel_timer, node);

                if (t->tick <= next)
                    list_push_back(due, &t->node);
                else
                    wheel_place(w, t);
            }
        }
    }
    if (to > w->tick)
        w->tick = to;
}

uint64_t wheel_next_us(const struct wheel *w)
{
    const uint64_t tick = wheel_next_tick(w);

    return tick == UINT64_MAX ? UINT64_MAX : tick << WHEEL_TICK_BITS;
}
