/* The scaler under a virtual clock: steps, ramps, drops, silence, bursts, limits, zero and back. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "autoscaler/decide.h"
#include "base/clock.h"
#include "base/rng.h"

static const struct scaler_conf base_conf = {.min = 1,
                                             .max = 20,
                                             .target_inflight = 4,
                                             .stable_window_s = 60,
                                             .burst_window_s = 6,
                                             .scale_down_delay_s = 0};

struct world {
    struct scaler scaler;
    struct scaler_conf conf;
    uint64_t now_us;
    uint32_t ready; /* follows desired after cold_s */
    uint32_t queued;
    uint32_t n_stale;
    struct decision last;
    uint32_t most, least; /* of desired, since marks_reset */
};

static void world_init(struct world *w, const struct scaler_conf *conf, uint32_t current)
{
    memset(w, 0, sizeof(*w));
    w->conf = *conf;
    w->now_us = 5000 * US_PER_S;
    w->ready = current;
    scaler_init(&w->scaler, current, w->now_us);
}

static void marks_reset(struct world *w)
{
    w->most = 0;
    w->least = UINT32_MAX;
}

/* One second: four reports, one decision; replicas follow at once. reports: false = silence. */
static void tick(struct world *w, double inflight, double qps, bool reports)
{
    struct scaler_input in;

    for (int i = 0; i < 4; i++) {
        w->now_us += 250 * US_PER_MS;
        if (reports)
            assert_true(
                scaler_observe(&w->scaler, w->now_us, 250 * US_PER_MS, inflight / 4, qps / 4, 1));
    }
    in = (struct scaler_input){.now_us = w->now_us,
                               .ready = w->ready,
                               .n_sources = 1,
                               .n_stale = w->n_stale,
                               .queued = w->queued};
    w->last = scaler_decide(&w->scaler, &w->conf, &in);
    w->ready = w->last.desired;
    if (w->last.desired > w->most)
        w->most = w->last.desired;
    if (w->last.desired < w->least)
        w->least = w->last.desired;
}

static void run(struct world *w, int seconds, double inflight, double qps)
{
    for (int i = 0; i < seconds; i++)
        tick(w, inflight, qps, true);
}

static void a_steady_load_gets_its_load_over_the_target_rounded_up(void **state)
{
    struct world w;

    (void)state;
    for (uint32_t inflight = 1; inflight <= 80; inflight++) {
        world_init(&w, &base_conf, 1);
        run(&w, 200, inflight, 0);
        assert_int_equal(w.last.desired, (inflight + 3) / 4);
    }
}

static void a_step_of_five_is_answered_within_the_burst_window(void **state)
{
    struct world w;
    int seconds = 0;

    (void)state;
    world_init(&w, &base_conf, 1);
    run(&w, 120, 8, 0);
    assert_int_equal(w.last.desired, 2);
    while (w.last.desired < 10 && seconds < 100) {
        tick(&w, 40, 0, true);
        seconds++;
    }
    assert_true(seconds <= 7);
    assert_int_equal(w.last.reason, SCALE_BURST);
    run(&w, 300, 40, 0);
    assert_int_equal(w.last.desired, 10);
    assert_int_equal(w.last.reason, SCALE_INFLIGHT);
}

static void a_ramp_is_followed_and_never_stepped_back(void **state)
{
    struct world w;
    uint32_t before;

    (void)state;
    world_init(&w, &base_conf, 1);
    run(&w, 120, 4, 0);
    for (int s = 0; s < 600; s++) {
        before = w.last.desired;
        tick(&w, 4 + s * 0.1, 0, true);
        assert_true(w.last.desired >= before);
        assert_true(w.last.desired * 4 + 8 >=
                    (uint32_t)(4 + s * 0.1)); /* at most a window behind */
    }
}

static void a_drop_waits_for_the_window_then_for_the_delay(void **state)
{
    struct scaler_conf conf = base_conf;
    struct world w;

    (void)state;
    world_init(&w, &conf, 1);
    run(&w, 200, 40, 0);
    assert_int_equal(w.last.desired, 10);
    run(&w, 30, 4, 0);
    assert_true(w.last.desired >= 5); /* the window is half old load */
    run(&w, 35, 4, 0);
    assert_int_equal(w.last.desired, 1);

    conf.scale_down_delay_s = 300;
    world_init(&w, &conf, 1);
    run(&w, 200, 40, 0);
    marks_reset(&w);
    run(&w, 299, 4, 0);
    assert_int_equal(w.least, 10);
    assert_int_equal(w.last.reason, SCALE_DELAY);
    run(&w, 80, 4, 0);
    assert_int_equal(w.last.desired, 1);
}

static void a_dip_shorter_than_the_delay_changes_nothing(void **state)
{
    struct scaler_conf conf = base_conf;
    struct world w;

    (void)state;
    conf.scale_down_delay_s = 120;
    world_init(&w, &conf, 1);
    run(&w, 200, 40, 0);
    marks_reset(&w);
    run(&w, 100, 0, 0);
    run(&w, 200, 40, 0);
    assert_int_equal(w.least, 10);
    assert_int_equal(w.most, 10);
}

static void silence_keeps_what_there_is_for_ever(void **state)
{
    struct world w;

    (void)state;
    world_init(&w, &base_conf, 1);
    run(&w, 200, 40, 0);
    marks_reset(&w);
    for (int s = 0; s < 3600; s++)
        tick(&w, 0, 0, false);
    assert_int_equal(w.least, 10);
    assert_int_equal(w.most, 10);
    assert_int_equal(w.last.reason, SCALE_NO_DATA);
    run(&w, 20, 4, 0); /* it speaks again: not fewer before a whole window is known */
    assert_int_equal(w.last.desired, 10);
    assert_int_equal(w.last.reason, SCALE_PARTIAL);
    run(&w, 60, 4, 0);
    assert_int_equal(w.last.desired, 1);
}

static void partial_data_may_raise_but_not_lower(void **state)
{
    struct world w;

    (void)state;
    world_init(&w, &base_conf, 1);
    run(&w, 200, 20, 0);
    assert_int_equal(w.last.desired, 5);
    w.n_stale = 1;
    run(&w, 200, 4, 0);
    assert_int_equal(w.last.desired, 5);
    assert_int_equal(w.last.reason, SCALE_PARTIAL);
    run(&w, 100, 40, 0);
    assert_int_equal(w.last.desired, 10);
}

static void after_a_restart_the_current_number_stays_until_a_window_is_known(void **state)
{
    struct world w;

    (void)state;
    world_init(&w, &base_conf, 7);
    marks_reset(&w);
    run(&w, 59, 4, 0);
    assert_int_equal(w.least, 7);
    run(&w, 5, 4, 0);
    assert_int_equal(w.last.desired, 1);
}

static void a_short_burst_holds_its_replicas_for_a_stable_window(void **state)
{
    struct world w;

    (void)state;
    world_init(&w, &base_conf, 1);
    run(&w, 120, 8, 0);
    run(&w, 8, 60, 0);
    assert_int_equal(w.last.desired, 15);
    marks_reset(&w);
    run(&w, 50, 8, 0);
    assert_int_equal(w.least, 15);
    run(&w, 80, 8, 0);
    assert_int_equal(w.last.desired, 2);
}

static void noise_under_the_burst_ratio_is_no_burst(void **state)
{
    struct world w;
    struct rng rng;

    (void)state;
    rng_init(&rng, 3);
    world_init(&w, &base_conf, 1);
    run(&w, 120, 14, 0);
    for (int s = 0; s < 600; s++) {
        tick(&w, 14 + (rng_unit(&rng) - 0.5) * 6, 0, true);
        assert_int_equal(w.last.desired, 4);
        assert_int_not_equal(w.last.reason, SCALE_BURST);
    }
}

static void calls_per_second_count_when_they_ask_for_more(void **state)
{
    struct scaler_conf conf = base_conf;
    struct world w;

    (void)state;
    conf.target_qps = 100;
    world_init(&w, &conf, 1);
    run(&w, 200, 2, 650);
    assert_int_equal(w.last.desired, 7);
    assert_int_equal(w.last.reason, SCALE_QPS);
    run(&w, 200, 32, 650);
    assert_int_equal(w.last.desired, 8);
    assert_int_equal(w.last.reason, SCALE_INFLIGHT);
}

static void min_and_max_hold_whatever_the_load(void **state)
{
    struct scaler_conf conf = base_conf;
    struct world w;

    (void)state;
    conf.min = 3;
    conf.max = 6;
    world_init(&w, &conf, 3);
    run(&w, 200, 0, 0);
    assert_int_equal(w.last.desired, 3);
    assert_int_equal(w.last.reason, SCALE_MIN);
    run(&w, 200, 1e12, 1e12);
    assert_int_equal(w.last.desired, 6);
    assert_int_equal(w.last.reason, SCALE_MAX);
    conf.max = 4; /* the config lowered it */
    w.conf = conf;
    run(&w, 1, 1e12, 0);
    assert_int_equal(w.last.desired, 4);
}

static void starting_replicas_count_as_capacity(void **state)
{
    struct scaler_input in = {.ready = 1, .starting = 9, .n_sources = 1};
    struct world w;

    (void)state;
    world_init(&w, &base_conf, 1);
    run(&w, 120, 4, 0);
    for (int i = 0; i < 40; i++) {
        w.now_us += 250 * US_PER_MS;
        scaler_observe(&w.scaler, w.now_us, 250 * US_PER_MS, 10, 0, 1);
    }
    in.now_us = w.now_us;
    w.last = scaler_decide(&w.scaler, &w.conf, &in);
    /* 40 in flight is what 10 replicas take: that many exist or start, so it is no burst. */
    assert_int_not_equal(w.last.reason, SCALE_BURST);
}

static void idle_goes_to_zero_only_when_configured_and_a_call_wakes_it(void **state)
{
    struct scaler_conf conf = base_conf;
    struct world w;

    (void)state;
    conf.min = 0;
    world_init(&w, &conf, 1);
    run(&w, 2000, 0, 0);
    assert_int_equal(w.last.desired, 1); /* idle_s 0: never */

    conf.idle_s = 300;
    world_init(&w, &conf, 1);
    run(&w, 100, 1, 1);
    run(&w, 295, 0, 0);
    assert_int_equal(w.last.desired, 1);
    run(&w, 10, 0, 0);
    assert_int_equal(w.last.desired, 0);
    assert_int_equal(w.last.reason, SCALE_IDLE);
    run(&w, 1000, 0, 0);
    assert_int_equal(w.last.desired, 0);
    w.queued = 1;
    tick(&w, 0, 0, true);
    assert_int_equal(w.last.desired, 1);
    assert_int_equal(w.last.reason, SCALE_WAKE);
    w.queued = 0;
    run(&w, 60, 0, 0);
    assert_int_equal(w.last.desired, 1); /* woken: a whole idle time again */
}

static void idle_with_silent_gateways_does_not_go_to_zero(void **state)
{
    struct scaler_conf conf = base_conf;
    struct world w;

    (void)state;
    conf.min = 0;
    conf.idle_s = 60;
    world_init(&w, &conf, 2);
    run(&w, 100, 8, 1);
    w.n_stale = 1;
    run(&w, 600, 0, 0);
    assert_int_equal(w.last.desired, 2);
    w.n_stale = 0;
    run(&w, 2, 0, 0);
    assert_int_equal(w.last.desired, 0);
}

static void a_change_of_the_delay_keeps_what_was_needed(void **state)
{
    struct world w;

    (void)state;
    world_init(&w, &base_conf, 1);
    w.conf.scale_down_delay_s = 100;
    run(&w, 200, 40, 0);
    w.conf.scale_down_delay_s = 500;
    marks_reset(&w);
    run(&w, 400, 4, 0);
    assert_int_equal(w.least, 10);
}

static void the_text_has_the_figures_and_the_rule(void **state)
{
    struct world w;

    (void)state;
    world_init(&w, &base_conf, 1);
    run(&w, 200, 40, 123);
    assert_non_null(strstr(w.last.text, "40 in flight"));
    assert_non_null(strstr(w.last.text, "123 calls/s"));
    assert_non_null(strstr(w.last.text, "10 (inflight)"));
}

static void random_loads_and_silences_stay_in_limits(void **state)
{
    struct rng rng;

    (void)state;
    rng_init(&rng, 11);
    for (int round = 0; round < 60; round++) {
        struct scaler_conf conf = base_conf;
        struct world w;

        conf.min = (uint32_t)rng_below(&rng, 3);
        conf.max = conf.min + 1 + (uint32_t)rng_below(&rng, 10);
        conf.idle_s = (uint32_t)(rng_below(&rng, 2) * 30);
        conf.scale_down_delay_s = (uint32_t)rng_below(&rng, 100);
        conf.target_qps = (uint32_t)rng_below(&rng, 50);
        world_init(&w, &conf, conf.min);
        for (int s = 0; s < 400; s++) {
            const uint32_t before = w.last.desired;
            const bool reports = rng_below(&rng, 10) > 0;

            w.n_stale = rng_below(&rng, 4) == 0;
            tick(&w, (double)rng_below(&rng, 100), (double)rng_below(&rng, 500), reports);
            assert_true(w.last.desired >= conf.min && w.last.desired <= conf.max);
            if (s > 0 && w.n_stale)
                assert_true(w.last.desired >= before);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_steady_load_gets_its_load_over_the_target_rounded_up),
        cmocka_unit_test(a_step_of_five_is_answered_within_the_burst_window),
        cmocka_unit_test(a_ramp_is_followed_and_never_stepped_back),
        cmocka_unit_test(a_drop_waits_for_the_window_then_for_the_delay),
        cmocka_unit_test(a_dip_shorter_than_the_delay_changes_nothing),
        cmocka_unit_test(silence_keeps_what_there_is_for_ever),
        cmocka_unit_test(partial_data_may_raise_but_not_lower),
        cmocka_unit_test(after_a_restart_the_current_number_stays_until_a_window_is_known),
        cmocka_unit_test(a_short_burst_holds_its_replicas_for_a_stable_window),
        cmocka_unit_test(noise_under_the_burst_ratio_is_no_burst),
        cmocka_unit_test(calls_per_second_count_when_they_ask_for_more),
        cmocka_unit_test(min_and_max_hold_whatever_the_load),
        cmocka_unit_test(starting_replicas_count_as_capacity),
        cmocka_unit_test(idle_goes_to_zero_only_when_configured_and_a_call_wakes_it),
        cmocka_unit_test(idle_with_silent_gateways_does_not_go_to_zero),
        cmocka_unit_test(a_change_of_the_delay_keeps_what_was_needed),
        cmocka_unit_test(the_text_has_the_figures_and_the_rule),
        cmocka_unit_test(random_loads_and_silences_stay_in_limits),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
