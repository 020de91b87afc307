#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "loadtest/load_stats.h"

static void merged_statistics_are_those_of_one_writer(void **state)
{
    struct load_stats a, b, both;

    (void)state;
    load_stats_init(&a);
    load_stats_init(&b);
    load_stats_init(&both);
    for (uint64_t i = 1; i <= 100; i++) {
        struct load_stats *s = i % 3 == 0 ? &b : &a;
        struct load_name *v =
            load_names_find(&s->versions, i % 2 == 0 ? "2" : "10", i % 2 == 0 ? 1 : 2);

        histogram_add(&s->latency_us, i, 1);
        s->n_started++;
        s->by_status[i % 17]++;
        v->n_calls++;
        v->n_images += 10;
        v->n_correct += i % 10;
        v->first_us = v->first_us == 0 ? i : v->first_us;
        v->last_us = i;
        load_stats_add_error(s, 14, i % 2 == 0 ? "even" : "odd");
    }
    load_stats_merge(&both, &a);
    load_stats_merge(&both, &b);
    assert_int_equal(both.n_started, 100);
    assert_int_equal(both.latency_us.count, 100);
    assert_int_equal(both.latency_us.max, 100);
    assert_int_equal(both.by_status[1], 6);
    assert_int_equal(both.versions.n, 2);
    const struct load_name *v = load_names_find(&both.versions, "2", 1);
    assert_int_equal(v->n_calls, 50);
    assert_int_equal(v->n_images, 500);
    assert_int_equal(v->n_correct, 200);
    assert_int_equal(v->first_us, 2);
    assert_int_equal(v->last_us, 100);
    assert_int_equal(both.n_errors, 2);
    assert_int_equal(both.errors[0].n, 50);
    assert_int_equal(both.errors[1].n, 50);
    load_stats_fini(&a);
    load_stats_fini(&b);
    load_stats_fini(&both);
}

static void names_past_the_limit_count_as_others(void **state)
{
    struct load_names names = {0};
    char name[200];

    (void)state;
    for (uint32_t i = 0; i < LOAD_MAX_NAMES + 50; i++) {
        const int len = snprintf(name, sizeof(name), "replica-%u", i);

        load_names_find(&names, name, (size_t)len)->n_calls++;
    }
    assert_int_equal(names.n, LOAD_MAX_NAMES + 1);
    assert_string_equal(names.rows[LOAD_MAX_NAMES].name, "(others)");
    assert_int_equal(names.rows[LOAD_MAX_NAMES].n_calls, 50);
    memset(name, 'x', sizeof(name)); /* longer than a row can hold */
    assert_ptr_equal(load_names_find(&names, name, sizeof(name)), &names.rows[LOAD_MAX_NAMES]);
    free(names.rows);
}

static void a_name_too_long_counts_as_others_also_while_there_is_room(void **state)
{
    struct load_names names = {0};
    char name[200];

    (void)state;
    memset(name, 'x', sizeof(name));
    load_names_find(&names, name, sizeof(name))->n_calls++;
    load_names_find(&names, "a", 1)->n_calls++;
    load_names_find(&names, name, sizeof(name))->n_calls++;
    assert_int_equal(names.n, 2);
    assert_string_equal(names.rows[0].name, "(others)");
    assert_int_equal(names.rows[0].n_calls, 2);
    free(names.rows);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(merged_statistics_are_those_of_one_writer),
        cmocka_unit_test(names_past_the_limit_count_as_others),
        cmocka_unit_test(a_name_too_long_counts_as_others_also_while_there_is_room),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
