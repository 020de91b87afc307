/* The frame meter: what is charged, what pays, where its limits stand. The figures are arithmetic
 * on the limits, not the code's. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "net/h2_budget.h"

#define SECOND 1000000u

static struct h2_limits limits_of_test(void)
{
    struct h2_limits l;

    h2_limits_default(&l);
    l.score = 100;
    l.score_per_s = 10;
    l.resets = 1000;
    l.resets_per_s = 250;
    l.ping_strikes = 2;
    l.ping_interval_ms = 5000;
    return l;
}

static void strained_over_three_quarters_spent_over_all(void **state)
{
    const struct h2_limits l = limits_of_test();
    struct budget b = {0};

    (void)state;
    for (int i = 1; i <= 101; i++)
        assert_int_equal(budget_take_frame(&b, &l, COST_LIGHT, 1), i <= 75    ? BUDGET_OK
                                                                   : i <= 100 ? BUDGET_STRAINED
                                                                              : BUDGET_SPENT);
}

static void time_pays_and_not_more_than_was_spent(void **state)
{
    const struct h2_limits l = limits_of_test();
    struct budget b = {0};

    (void)state;
    for (int i = 0; i < 100; i++)
        assert_int_not_equal(budget_take_frame(&b, &l, COST_LIGHT, SECOND), BUDGET_SPENT);
    assert_int_equal(budget_take_frame(&b, &l, COST_SETTINGS, SECOND), BUDGET_SPENT);
    for (int i = 0; i < 100; i++) /* an hour later the whole limit is there, and no more */
        assert_int_not_equal(budget_take_frame(&b, &l, COST_LIGHT, 3600ull * SECOND), BUDGET_SPENT);
    assert_int_equal(budget_take_frame(&b, &l, COST_LIGHT, 3600ull * SECOND), BUDGET_SPENT);
}

static void two_hundred_cancels_a_second_for_an_hour(void **state)
{
    const struct h2_limits l = limits_of_test();
    struct budget b = {0};

    (void)state;
    for (uint64_t i = 0; i < 200u * 3600u; i++)
        assert_int_equal(budget_take_reset(&b, &l, SECOND + i * SECOND / 200), BUDGET_OK);
}

static void a_reader_that_returns_windows_for_each_frame_pays_by_them(void **state)
{
    const struct h2_limits l = limits_of_test();
    struct budget b = {0};

    (void)state;
    for (int i = 0; i < 100000; i++) { /* one DATA from us, two WINDOW_UPDATE back */
        budget_pay_data(&b);
        assert_int_equal(budget_take_frame(&b, &l, COST_LIGHT, 1), BUDGET_OK);
        assert_int_equal(budget_take_frame(&b, &l, COST_LIGHT, 1), BUDGET_OK);
    }
}

static void pings_count_only_without_a_call_and_only_when_close(void **state)
{
    const struct h2_limits l = limits_of_test();
    struct budget b = {0};
    uint64_t now = SECOND;

    (void)state;
    for (int i = 0; i < 1000; i++, now += 5 * SECOND) /* a keep-alive, for ever */
        assert_int_equal(budget_take_ping(&b, &l, 0, now), BUDGET_OK);
    for (int i = 0; i < 1000; i++) /* beside calls */
        assert_int_equal(budget_take_ping(&b, &l, 1, now), BUDGET_OK);
    for (int i = 0; i < 2; i++)
        assert_int_equal(budget_take_ping(&b, &l, 0, now + 1), BUDGET_OK);
    budget_pay_stream(&b); /* a call takes the strikes back */
    for (int i = 0; i < 2; i++)
        assert_int_equal(budget_take_ping(&b, &l, 0, now + 1), BUDGET_OK);
    assert_int_equal(budget_take_ping(&b, &l, 0, now + 1), BUDGET_SPENT);
}

/* case U1: more than half of 20 streams in a second. */
static void a_server_that_resets_most_calls_is_left(void **state)
{
    struct budget b = {0};

    (void)state;
    for (int i = 0; i < 19; i++)
        assert_int_equal(budget_take_server_reset(&b, 5 * SECOND), BUDGET_OK);
    assert_int_equal(budget_take_server_reset(&b, 5 * SECOND), BUDGET_STRAINED);
    assert_int_equal(budget_take_server_reset(&b, 6 * SECOND), BUDGET_OK); /* a new second */
    for (int i = 0; i < 100; i++) {
        budget_pay_stream(&b);
        assert_int_equal(budget_take_server_reset(&b, 6 * SECOND), BUDGET_OK);
        budget_pay_stream(&b);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(strained_over_three_quarters_spent_over_all),
        cmocka_unit_test(time_pays_and_not_more_than_was_spent),
        cmocka_unit_test(two_hundred_cancels_a_second_for_an_hour),
        cmocka_unit_test(a_reader_that_returns_windows_for_each_frame_pays_by_them),
        cmocka_unit_test(pings_count_only_without_a_call_and_only_when_close),
        cmocka_unit_test(a_server_that_resets_most_calls_is_left),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
