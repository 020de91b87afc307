/* The window of load reports: means over whole and partly covered spans, several sources. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdio.h>

#include "autoscaler/window.h"
#include "base/clock.h"
#include "base/rng.h"

#define START_S     1000
#define INTERVAL_US (250 * US_PER_MS)

static void assert_near(double got, double want, double tolerance)
{
    if (fabs(got - want) > tolerance)
        fail_msg("%g is not within %g of %g", got, tolerance, want);
}

static void an_empty_window_has_no_span(void **state)
{
    struct window w;
    struct window_mean m;

    (void)state;
    window_init(&w);
    m = window_over(&w, START_S * US_PER_S, 60);
    assert_true(m.span_s <= 0);
}

/* seconds of reports from one source each 250 ms; returns the time of the last. */
static uint64_t feed(struct window *w, uint64_t from_us, double seconds, double inflight,
                     double qps, uint32_t n_sources)
{
    uint64_t now_us = from_us;

    for (int i = 0; i < (int)(seconds * 4); i++) {
        now_us += INTERVAL_US;
        assert_true(window_add(w, now_us, INTERVAL_US, inflight / 4, qps / 4, n_sources));
    }
    return now_us;
}

static void a_constant_load_is_its_own_mean_at_every_span_and_phase(void **state)
{
    (void)state;
    for (uint64_t phase_us = 0; phase_us < US_PER_S; phase_us += 137000) {
        struct window w;
        uint64_t now_us;

        window_init(&w);
        now_us = feed(&w, START_S * US_PER_S + phase_us, 100, 7.5, 42, 1);
        for (uint32_t span_s = 1; span_s <= 98; span_s++) {
            const struct window_mean m = window_over(&w, now_us, span_s);

            assert_near(m.inflight, 7.5, 1e-6);
            assert_near(m.qps, 42, 1e-6);
            assert_true(m.missing < 1e-6);
        }
    }
}

static void sources_add_up(void **state)
{
    struct window w;
    struct window_mean m;

    (void)state;
    window_init(&w);
    feed(&w, START_S * US_PER_S, 30, 2, 10, 2);
    feed(&w, START_S * US_PER_S + 1000, 30, 4, 30, 2);
    m = window_over(&w, (START_S + 30) * US_PER_S, 10);
    assert_near(m.inflight, 6, 0.01);
    assert_near(m.qps, 40, 0.1);
}

static void a_silent_source_counts_as_the_mean_of_the_others_and_shows_as_missing(void **state)
{
    struct window w;
    struct window_mean m;

    (void)state;
    window_init(&w);
    feed(&w, START_S * US_PER_S, 30, 3, 10, 2); /* the second never speaks */
    m = window_over(&w, (START_S + 30) * US_PER_S, 20);
    assert_near(m.inflight, 6, 1e-6);
    assert_near(m.missing, 0.5, 0.01);
}

static void a_new_source_does_not_make_the_past_look_like_more(void **state)
{
    struct window w;
    struct window_mean m;
    uint64_t now_us;

    (void)state;
    window_init(&w);
    now_us = feed(&w, START_S * US_PER_S, 59, 8, 10, 1);
    feed(&w, now_us, 1, 8, 10, 2);
    feed(&w, now_us, 1, 0, 0, 2);
    m = window_over(&w, now_us + US_PER_S, 60);
    assert_near(m.inflight, 8, 0.01);
    assert_true(m.missing < 0.01);
}

static void a_gap_is_missing_not_zero(void **state)
{
    struct window w;
    struct window_mean m;
    uint64_t now_us;

    (void)state;
    window_init(&w);
    now_us = feed(&w, START_S * US_PER_S, 20, 5, 5, 1);
    now_us = feed(&w, now_us + 20 * US_PER_S, 20, 5, 5, 1);
    m = window_over(&w, now_us, 60);
    assert_near(m.inflight, 5, 1e-6);
    assert_near(m.missing, 1.0 / 3, 0.02);
}

static void old_buckets_are_gone_after_a_turn_of_the_ring(void **state)
{
    struct window w;
    struct window_mean m;
    uint64_t now_us;

    (void)state;
    window_init(&w);
    feed(&w, START_S * US_PER_S, 10, 100, 100, 1);
    m = window_over(&w, (START_S + 10 + WINDOW_MAX_S) * US_PER_S, WINDOW_MAX_S);
    assert_true(m.span_s <= 0);
    now_us = feed(&w, (START_S + WINDOW_MAX_S + 1) * US_PER_S, 10, 1, 1, 1);
    m = window_over(&w, now_us, WINDOW_MAX_S);
    assert_near(m.inflight, 1, 1e-6);
}

static void numbers_that_make_no_sense_are_refused(void **state)
{
    struct window w;
    const uint64_t now_us = START_S * US_PER_S;

    (void)state;
    window_init(&w);
    assert_false(window_add(&w, now_us, INTERVAL_US, NAN, 0, 1));
    assert_false(window_add(&w, now_us, INTERVAL_US, INFINITY, 0, 1));
    assert_false(window_add(&w, now_us, INTERVAL_US, -1, 0, 1));
    assert_false(window_add(&w, now_us, INTERVAL_US, 0, -1, 1));
    assert_false(window_add(&w, now_us, 0, 1, 1, 1));
    assert_false(window_add(&w, now_us, INTERVAL_US, 1, 1, 0));
    assert_true(window_over(&w, now_us, 60).span_s <= 0);
    /* A report for an hour stands for its last seconds only, at its own rate. */
    assert_true(window_add(&w, now_us, 3600 * US_PER_S, 3600 * 2.0, 3600 * 3.0, 1));
    assert_near(window_over(&w, now_us, 60).inflight, 2, 1e-6);
    assert_near(window_over(&w, now_us, 60).qps, 3, 1e-6);
    assert_true(window_over(&w, now_us, 60).span_s < 11);
}

/* Oracle: the integral of a random step load, taken directly. */
static void a_random_load_has_the_mean_of_its_integral(void **state)
{
    struct rng rng;

    (void)state;
    rng_init(&rng, 99);
    for (int round = 0; round < 200; round++) {
        const uint32_t span_s = (uint32_t)(1 + rng_below(&rng, 50));
        uint64_t now_us = START_S * US_PER_S;
        double integral = 0, calls = 0, seconds = 0;
        struct window w;
        struct window_mean m;

        window_init(&w);
        for (int i = 0; i < 4 * 120; i++) {
            const double inflight = (double)rng_below(&rng, 50);
            const double started = (double)rng_below(&rng, 20);

            now_us += INTERVAL_US;
            assert_true(window_add(&w, now_us, INTERVAL_US, inflight / 4, started, 1));
            if (i >= 4 * (120 - (int)span_s)) { /* now_us ends on a second */
                integral += inflight / 4;
                calls += started;
                seconds += 0.25;
            }
        }
        m = window_over(&w, now_us, span_s);
        assert_near(m.inflight, integral / seconds, 1e-6);
        assert_near(m.qps, calls / seconds, 1e-6);
    }
}

static void sources_are_counted_forgotten_and_repeats_refused(void **state)
{
    struct sources s;
    uint32_t stale;

    (void)state;
    sources_init(&s);
    assert_true(sources_heard(&s, "gw", 0, 1, 10 * US_PER_S));
    assert_true(sources_heard(&s, "gw", 1, 1, 10 * US_PER_S));
    assert_false(sources_heard(&s, "gw", 1, 1, 10 * US_PER_S));
    assert_true(sources_heard(&s, "gw", 0, 2, 12 * US_PER_S));
    assert_true(sources_heard(&s, "gw", 0, 1, 13 * US_PER_S)); /* it began anew */
    assert_int_equal(sources_count(&s, 13 * US_PER_S, US_PER_S, 60 * US_PER_S, &stale), 2);
    assert_int_equal(stale, 1);
    assert_int_equal(sources_count(&s, 71 * US_PER_S, US_PER_S, 60 * US_PER_S, &stale), 1);
    assert_int_equal(stale, 1);
    sources_fini(&s);
}

static void sources_are_limited_and_long_names_keep_their_worker(void **state)
{
    struct sources s;
    uint32_t stale;
    char name[200];

    (void)state;
    sources_init(&s);
    for (size_t i = 0; i < sizeof(name) - 1; i++)
        name[i] = 'g';
    name[sizeof(name) - 1] = '\0';
    assert_true(sources_heard(&s, name, 1, 1, US_PER_S));
    assert_true(sources_heard(&s, name, 2, 1, US_PER_S));
    assert_int_equal(sources_count(&s, US_PER_S, US_PER_S, US_PER_S, &stale), 2);
    for (uint32_t i = 0; i < SOURCES_MAX - 2; i++)
        assert_true(sources_heard(&s, "gw", i, 1, US_PER_S));
    assert_false(sources_heard(&s, "one more", 0, 1, US_PER_S));
    sources_fini(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_empty_window_has_no_span),
        cmocka_unit_test(a_constant_load_is_its_own_mean_at_every_span_and_phase),
        cmocka_unit_test(sources_add_up),
        cmocka_unit_test(a_silent_source_counts_as_the_mean_of_the_others_and_shows_as_missing),
        cmocka_unit_test(a_new_source_does_not_make_the_past_look_like_more),
        cmocka_unit_test(a_gap_is_missing_not_zero),
        cmocka_unit_test(old_buckets_are_gone_after_a_turn_of_the_ring),
        cmocka_unit_test(numbers_that_make_no_sense_are_refused),
        cmocka_unit_test(a_random_load_has_the_mean_of_its_integral),
        cmocka_unit_test(sources_are_counted_forgotten_and_repeats_refused),
        cmocka_unit_test(sources_are_limited_and_long_names_keep_their_worker),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
