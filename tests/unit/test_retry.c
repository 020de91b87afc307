#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "gateway/retry.h"

/* A call that may be tried again for every reason that there is. */
static struct retry_view open_view(void)
{
    return (struct retry_view){.whole = true, .idempotent = true, .counted = 1, .counted_max = 3};
}

static enum retry decide(const struct retry_view *v, enum outcome how)
{
    struct retry_budget b;

    retry_budget_init(&b);
    return retry_decide(v, how, &b);
}

static void what_no_replica_began_is_free(void **state)
{
    struct retry_view v = open_view();

    (void)state;
    v.idempotent = false;
    v.counted = 3; /* limits.attempts has nothing to say */
    assert_int_equal(decide(&v, OUTCOME_CONNECT_FAILED), RETRY_FREE);
    assert_int_equal(decide(&v, OUTCOME_REFUSED), RETRY_FREE);
    assert_int_equal(decide(&v, OUTCOME_STOPPING), RETRY_FREE);
    assert_int_equal(decide(&v, OUTCOME_NOT_READY), RETRY_FREE);
    assert_int_equal(decide(&v, OUTCOME_UNKNOWN_MODEL), RETRY_FREE);
    v.free = RETRY_FREE_MAX;
    assert_int_equal(decide(&v, OUTCOME_CONNECT_FAILED), RETRY_NO_ATTEMPTS);
}

/* One that refuses on and on is asked on and on, but by no more calls than the budget allows. */
static void after_the_first_ones_each_takes_from_the_budget(void **state)
{
    struct retry_view v = open_view();
    struct retry_budget b;
    int tries = 0;

    (void)state;
    v.idempotent = false;
    retry_budget_init(&b);
    for (v.free = 0; retry_decide(&v, OUTCOME_REFUSED, &b) == RETRY_FREE; v.free++)
        tries++;
    assert_int_equal(tries, RETRY_FREE_MAX + 100);
    assert_int_equal(retry_decide(&v, OUTCOME_REFUSED, &b), RETRY_NO_BUDGET);
    v.free = 0;
    assert_int_equal(retry_decide(&v, OUTCOME_REFUSED, &b), RETRY_FREE);
}

static void what_may_have_run_is_sent_again_only_when_idempotent(void **state)
{
    struct retry_view v = open_view();

    (void)state;
    assert_int_equal(decide(&v, OUTCOME_LOST), RETRY_COUNTED);
    assert_int_equal(decide(&v, OUTCOME_RESET), RETRY_COUNTED);
    assert_int_equal(decide(&v, OUTCOME_UNAVAILABLE), RETRY_COUNTED);
    v.counted = v.counted_max;
    assert_int_equal(decide(&v, OUTCOME_UNAVAILABLE), RETRY_NO_ATTEMPTS);
    v = open_view();
    v.idempotent = false;
    assert_int_equal(decide(&v, OUTCOME_LOST), RETRY_NO);
    assert_int_equal(decide(&v, OUTCOME_RESET), RETRY_NO);
    assert_int_equal(decide(&v, OUTCOME_UNAVAILABLE), RETRY_NO);
}

static void a_full_queue_is_not_tried_elsewhere(void **state)
{
    struct retry_view v = open_view();

    (void)state;
    assert_int_equal(decide(&v, OUTCOME_FULL), RETRY_NO);
    v.idempotent = false;
    assert_int_equal(decide(&v, OUTCOME_FULL), RETRY_NO);
}

static void a_client_s_own_mistake_is_never_repeated(void **state)
{
    const struct retry_view v = open_view();

    (void)state;
    assert_int_equal(decide(&v, OUTCOME_OK), RETRY_NO);
    assert_int_equal(decide(&v, OUTCOME_SERVER_ERROR), RETRY_NO);
    assert_int_equal(decide(&v, OUTCOME_CANCELLED), RETRY_NO);
}

static void nothing_is_repeated_once_the_client_has_seen_something(void **state)
{
    struct retry_view v = open_view();

    (void)state;
    v.committed = true;
    for (int how = 0; how < OUTCOME_N; how++) {
        const enum retry r = decide(&v, (enum outcome)how);

        assert_true(r == RETRY_COMMITTED || r == RETRY_NO);
    }
}

static void a_request_that_was_not_kept_can_t_be_repeated(void **state)
{
    struct retry_view v = open_view();

    (void)state;
    v.whole = false;
    assert_int_equal(decide(&v, OUTCOME_REFUSED), RETRY_NO_BUFFER);
    assert_int_equal(decide(&v, OUTCOME_LOST), RETRY_NO_BUFFER);
}

static void a_server_that_pushes_back_is_obeyed(void **state)
{
    struct retry_view v = open_view();

    (void)state;
    v.pushed_back = true;
    assert_int_equal(decide(&v, OUTCOME_UNAVAILABLE), RETRY_NO);
    assert_int_equal(decide(&v, OUTCOME_STOPPING), RETRY_NO);
}

static void the_budget_ends_a_storm_and_good_calls_fill_it_again(void **state)
{
    const struct retry_view v = open_view();
    struct retry_budget b;
    int passed = 0;

    (void)state;
    retry_budget_init(&b);
    while (retry_decide(&v, OUTCOME_UNAVAILABLE, &b) == RETRY_COUNTED)
        passed++;
    assert_int_equal(passed, 100);
    assert_int_equal(retry_decide(&v, OUTCOME_UNAVAILABLE, &b), RETRY_NO_BUDGET);
    assert_int_equal(retry_decide(&v, OUTCOME_REFUSED, &b), RETRY_FREE); /* no part of the budget */
    for (int i = 0; i < 4; i++)
        retry_budget_credit(&b);
    assert_int_equal(retry_decide(&v, OUTCOME_UNAVAILABLE, &b), RETRY_NO_BUDGET);
    retry_budget_credit(&b);
    assert_int_equal(retry_decide(&v, OUTCOME_UNAVAILABLE, &b), RETRY_COUNTED);
}

/* A replica under full load dies: all its calls are lost in one moment, and all go elsewhere. */
static void a_dead_connection_s_calls_need_no_budget(void **state)
{
    struct retry_view v = open_view();
    struct retry_budget b;

    (void)state;
    retry_budget_init(&b);
    for (int i = 0; i < 5000; i++)
        assert_int_equal(retry_decide(&v, OUTCOME_LOST, &b), RETRY_COUNTED);
    for (int i = 0; i < 100; i++) /* they took nothing from it */
        assert_int_equal(retry_decide(&v, OUTCOME_RESET, &b), RETRY_COUNTED);
    assert_int_equal(retry_decide(&v, OUTCOME_RESET, &b), RETRY_NO_BUDGET);
    assert_int_equal(retry_decide(&v, OUTCOME_LOST, &b), RETRY_COUNTED);
    v.counted = v.counted_max;
    assert_int_equal(retry_decide(&v, OUTCOME_LOST, &b), RETRY_NO_ATTEMPTS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_no_replica_began_is_free),
        cmocka_unit_test(after_the_first_ones_each_takes_from_the_budget),
        cmocka_unit_test(what_may_have_run_is_sent_again_only_when_idempotent),
        cmocka_unit_test(a_full_queue_is_not_tried_elsewhere),
        cmocka_unit_test(a_client_s_own_mistake_is_never_repeated),
        cmocka_unit_test(nothing_is_repeated_once_the_client_has_seen_something),
        cmocka_unit_test(a_request_that_was_not_kept_can_t_be_repeated),
        cmocka_unit_test(a_server_that_pushes_back_is_obeyed),
        cmocka_unit_test(a_dead_connection_s_calls_need_no_budget),
        cmocka_unit_test(the_budget_ends_a_storm_and_good_calls_fill_it_again),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
