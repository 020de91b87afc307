/* Buckets of tasks: the documented example, and small ones worked by hand. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "placer/task_topology.h"

static void ps_apart_each_with_half_of_the_workers(void **state)
{
    const struct task_topology_role roles[] = {{"ps", 2, 1}, {"worker", 4, 1}};
    const uint32_t want[] = {0, 1, 0, 1, 0, 1}; /* {ps0, w0, w2}, {ps1, w1, w3} */
    struct task_topology t;
    uint32_t got[6];

    (void)state;
    assert_int_equal(task_topology_parse(&t, roles, 2, "ps,worker", "ps", NULL, NULL), 0);
    assert_int_equal(task_topology_buckets(&t, roles, got), 2);
    assert_memory_equal(got, want, sizeof(want));
}

static void the_order_decides_who_opens_buckets(void **state)
{
    const struct task_topology_role roles[] = {{"worker", 2, 1}, {"ps", 2, 1}};
    const uint32_t by_file[] = {0, 0, 0, 0};  /* two workers pull ps1 more than ps0 repels it */
    const uint32_t by_order[] = {0, 1, 0, 1}; /* ps open two, workers join one each */
    struct task_topology t;
    uint32_t got[4];

    (void)state;
    assert_int_equal(task_topology_parse(&t, roles, 2, "ps,worker", "ps", "", NULL), 0);
    assert_int_equal(task_topology_buckets(&t, roles, got), 1);
    assert_memory_equal(got, by_file, sizeof(got));
    assert_int_equal(task_topology_parse(&t, roles, 2, "ps,worker", "ps", "ps, worker", NULL), 0);
    assert_int_equal(task_topology_buckets(&t, roles, got), 2);
    assert_memory_equal(got, by_order, sizeof(got));
}

static void the_least_loaded_of_equals_is_joined(void **state)
{
    const struct task_topology_role roles[] = {{"ps", 2, 0}, {"big", 1, 5}, {"small", 3, 1}};
    const uint32_t want[] = {0, 1, 0, 1, 1, 1}; /* big loads bucket 0 with 5; 1, 2, 3 stay under */
    struct task_topology t;
    uint32_t got[6];

    (void)state;
    assert_int_equal(task_topology_parse(&t, roles, 3, "ps,big;ps,small", "ps", NULL, NULL), 0);
    assert_int_equal(task_topology_buckets(&t, roles, got), 2);
    assert_memory_equal(got, want, sizeof(want));
}

static void what_names_no_task_is_refused(void **state)
{
    const struct task_topology_role roles[] = {{"ps", 2, 1}, {"worker", 4, 1}};
    struct task_topology t;
    struct err err;

    (void)state;
    assert_true(task_topology_parse(&t, roles, 2, "ps,worker;ps,chief", NULL, NULL, &err) < 0);
    assert_string_equal(err.text, "\"chief\" is not a task of this job");
    assert_true(task_topology_parse(&t, roles, 2, NULL, "ps,ps", NULL, &err) < 0);
    assert_string_equal(err.text, "\"ps\" stands in a group twice");
    assert_true(task_topology_parse(&t, roles, 2, NULL, NULL, "ps,", &err) < 0);
    assert_string_equal(err.text, "\"\" is not a task of this job");
    assert_int_equal(task_topology_parse(&t, roles, 2, "ps,worker;", NULL, NULL, &err), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ps_apart_each_with_half_of_the_workers),
        cmocka_unit_test(the_order_decides_who_opens_buckets),
        cmocka_unit_test(the_least_loaded_of_equals_is_joined),
        cmocka_unit_test(what_names_no_task_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
