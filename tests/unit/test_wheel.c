/* base/wheel against a plain list of timers that is looked through each time. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/check.h"
#include "base/rng.h"
#include "base/wheel.h"

#define TICK_US (UINT64_C(1) << WHEEL_TICK_BITS)

struct thing {
    struct wheel_timer timer;
    uint64_t at_us; /* asked for */
    uint64_t began_us;
    bool runs; /* by the oracle */
};

static size_t advance(struct wheel *w, uint64_t now_us)
{
    struct list due;
    size_t n = 0;

    list_init(&due);
    wheel_advance(w, now_us, &due);
    while (list_pop_front(&due) != NULL)
        n++;
    return n;
}

static void a_timer_is_due_within_a_tick_after_its_time(void **state)
{
    static const uint64_t after_us[] = {1,         1023,           1024,      1025,
                                        65 * 1024, 300000,         999999,    4194304,
                                        30000000,  86400000000ull, 1ull << 55};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(after_us); i++) {
        for (uint64_t now = 0; now < 200000; now += 33333) {
            struct wheel w;
            struct wheel_timer t = {.tick = 0};
            uint64_t at = now + after_us[i];

            wheel_init(&w, now);
            wheel_start(&w, &t, at);
            while (wheel_next_us(&w) < at) { /* as a loop that sleeps until it is told to */
                now = wheel_next_us(&w);
                assert_int_equal(advance(&w, now), 0);
            }
            assert_in_range(wheel_next_us(&w), at, at + TICK_US - 1);
            assert_int_equal(advance(&w, wheel_next_us(&w)), 1);
            assert_false(wheel_timer_runs(&t));
            assert_true(wheel_next_us(&w) == UINT64_MAX);
            now = at;
        }
    }
}

static void a_time_that_has_passed_is_due_with_the_next_tick(void **state)
{
    struct wheel w;
    struct wheel_timer t = {.tick = 0};

    (void)state;
    wheel_init(&w, 10 * TICK_US);
    wheel_start(&w, &t, 3);
    assert_int_equal(advance(&w, 10 * TICK_US), 0);
    assert_int_equal(advance(&w, 11 * TICK_US), 1);
}

static void the_end_of_time_never_comes(void **state)
{
    struct wheel w;
    struct wheel_timer t = {.tick = 0};

    (void)state;
    wheel_init(&w, 12345678);
    wheel_start(&w, &t, UINT64_MAX);
    assert_int_equal(advance(&w, UINT64_MAX / 2), 0);
    assert_true(wheel_timer_runs(&t));
    wheel_stop(&w, &t);
    wheel_stop(&w, &t);
    assert_true(wheel_next_us(&w) == UINT64_MAX);
}

static void one_that_is_due_may_be_stopped_or_started_anew(void **state)
{
    struct wheel w;
    struct wheel_timer a = {.tick = 0}, b = {.tick = 0}, c = {.tick = 0};
    struct list due;

    (void)state;
    wheel_init(&w, 0);
    list_init(&due);
    wheel_start(&w, &a, 5000);
    wheel_start(&w, &b, 5000);
    wheel_start(&w, &c, 5000);
    wheel_advance(&w, 10000, &due);
    assert_ptr_equal(list_pop_front(&due), &a.node);
    wheel_stop(&w, &b);
    wheel_start(&w, &c, 20000);
    assert_true(list_is_empty(&due));
    assert_int_equal(advance(&w, 19000), 0);
    assert_int_equal(advance(&w, 21000), 1);
}

/* Random starts, moves, stops and steps of time: nothing early, nothing late, in order, and never
 * later than wheel_next_us had said. */
static void it_does_as_a_list_does(void **state)
{
    enum { THINGS = 200, STEPS = 40000 };
    static struct thing things[THINGS];
    struct wheel w;
    struct rng rng;
    uint64_t now = 987654321;
    size_t fired = 0;

    (void)state;
    rng_init(&rng, 7);
    wheel_init(&w, now);
    for (int step = 0; step < STEPS; step++) {
        struct thing *t = &things[rng_below(&rng, THINGS)];
        struct list due, *node;
        uint64_t last_tick = 0, first = UINT64_MAX;

        switch (rng_below(&rng, 4)) {
        case 0:
        case 1: /* from microseconds to hours, each size as likely */
            t->at_us = now + (rng_next(&rng) >> (30 + rng_below(&rng, 34)));
            t->began_us = now;
            t->runs = true;
            wheel_start(&w, &t->timer, t->at_us);
            continue;
        case 2:
            t->runs = false;
            wheel_stop(&w, &t->timer);
            continue;
        default:
            break;
        }
        now += rng_next(&rng) >> (40 + rng_below(&rng, 24));
        for (size_t i = 0; i < THINGS; i++) {
            if (things[i].runs && things[i].at_us < first)
                first = things[i].at_us;
        }
        /* A tick late at most; two when it was started inside its own tick. */
        assert_true(first == UINT64_MAX ? wheel_next_us(&w) == UINT64_MAX
                                        : wheel_next_us(&w) <= first + 2 * TICK_US);
        list_init(&due);
        wheel_advance(&w, now, &due);
        while ((node = list_pop_front(&due)) != NULL) {
            struct thing *d = container_of(node, struct thing, timer.node);

            assert_true(d->runs);
            assert_true(d->at_us <= now);
            assert_true(d->timer.tick >= last_tick);
            last_tick = d->timer.tick;
            d->runs = false;
            fired++;
        }
        for (size_t i = 0; i < THINGS; i++) {
            assert_int_equal(things[i].runs, wheel_timer_runs(&things[i].timer));
            if (things[i].runs)
                assert_true(now < things[i].at_us + TICK_US ||
                            now < things[i].began_us + 2 * TICK_US);
        }
    }
    assert_true(fired > 1000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_timer_is_due_within_a_tick_after_its_time),
        cmocka_unit_test(a_time_that_has_passed_is_due_with_the_next_tick),
        cmocka_unit_test(the_end_of_time_never_comes),
        cmocka_unit_test(one_that_is_due_may_be_stopped_or_started_anew),
        cmocka_unit_test(it_does_as_a_list_does),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
