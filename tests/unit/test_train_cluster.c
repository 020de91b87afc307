#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "loadtest/train_cluster.h"

static struct train_cluster read_ok(struct train_env env)
{
    struct train_cluster c;
    struct err err = {0};

    if (train_cluster_read(&env, &c, &err) != 0)
        fail_msg("%s", err.text);
    return c;
}

static void expect_refusal(struct train_env env, const char *word)
{
    struct train_cluster c;
    struct err err = {0};

    assert_int_not_equal(train_cluster_read(&env, &c, &err), 0);
    if (strstr(err.text, word) == NULL)
        fail_msg("\"%s\" does not say \"%s\"", err.text, word);
}

static void expect(struct train_cluster c, enum train_role role, uint32_t worker, uint32_t n,
                   const char *ps)
{
    assert_int_equal(c.role, role);
    assert_int_equal(c.worker, worker);
    assert_int_equal(c.n_workers, n);
    assert_string_equal(c.ps, ps);
}

#define TF(members, type, index)                                                                   \
    ((struct train_env){.tf_config = "{\"cluster\":{" members "},\"task\":{\"type\":\"" type       \
                                     "\",\"index\":" index "}}"})
#define PS      "\"ps\":[\"p:1\"]"
#define WORKERS "\"worker\":[\"w:1\",\"w:2\"]"
#define CHIEF   "\"chief\":[\"c:1\"]"

static void tensorflow_roles(void **state)
{
    (void)state;
    expect(read_ok(TF(PS "," WORKERS, "ps", "0")), TRAIN_PS, 0, 2, "p:1");
    expect(read_ok(TF(PS "," WORKERS, "worker", "1")), TRAIN_WORKER, 1, 2, "p:1");
    expect(read_ok(TF(PS "," WORKERS "," CHIEF, "chief", "0")), TRAIN_WORKER, 0, 3, "p:1");
    expect(read_ok(TF(PS "," WORKERS "," CHIEF, "worker", "1")), TRAIN_WORKER, 2, 3, "p:1");
}

static void without_a_ps_the_first_worker_keeps_the_parameters(void **state)
{
    (void)state;
    expect(read_ok(TF(WORKERS, "worker", "0")), TRAIN_HOST, 0, 2, "w:1");
    expect(read_ok(TF(WORKERS, "worker", "1")), TRAIN_WORKER, 1, 2, "w:1");
    expect(read_ok(TF(WORKERS "," CHIEF, "chief", "0")), TRAIN_HOST, 0, 3, "c:1");
    expect(read_ok(TF(WORKERS "," CHIEF, "worker", "0")), TRAIN_WORKER, 1, 3, "c:1");
    expect(read_ok(TF("\"worker\":[\"w:1\"]", "worker", "0")), TRAIN_ALONE, 0, 0, "");
}

static void torch_ranks(void **state)
{
    (void)state;
    expect(read_ok((struct train_env){NULL, "h", "29500", "0", "3"}), TRAIN_HOST, 0, 3, "h:29500");
    expect(read_ok((struct train_env){NULL, "h", "29500", "2", "3"}), TRAIN_WORKER, 2, 3,
           "h:29500");
    expect(read_ok((struct train_env){NULL, "::1", "80", "1", "2"}), TRAIN_WORKER, 1, 2,
           "[::1]:80");
    expect(read_ok((struct train_env){NULL, NULL, NULL, "0", "1"}), TRAIN_ALONE, 0, 0, "");
    expect(read_ok((struct train_env){0}), TRAIN_ALONE, 0, 0, "");
}

static void tf_config_goes_before_the_variables_of_pytorch(void **state)
{
    struct train_env env = TF(PS "," WORKERS, "worker", "0");

    (void)state;
    env.master_addr = "h";
    env.master_port = "1";
    env.rank = "0";
    env.world_size = "3";
    expect(read_ok(env), TRAIN_WORKER, 0, 2, "p:1");
}

static void what_breaks_a_rule_is_named(void **state)
{
    (void)state;
    expect_refusal((struct train_env){.tf_config = "[]"}, "task needs");
    expect_refusal((struct train_env){.tf_config = "{\"task\":1,\"task\":2}"}, "no JSON");
    expect_refusal(TF("\"ps\":[\"a:1\",\"b:1\"]," WORKERS, "ps", "0"), "at most one");
    expect_refusal(TF(PS, "ps", "0"), "0 workers");
    expect_refusal(TF(PS "," WORKERS, "worker", "2"), "worker 2");
    expect_refusal(TF(PS "," WORKERS, "worker", "-1"), "index");
    expect_refusal(TF(PS "," WORKERS, "evaluator", "0"), "evaluator 0");
    expect_refusal(TF("\"ps\":[7]," WORKERS, "ps", "0"), "no address");
    expect_refusal((struct train_env){NULL, "h", "1", "3", "3"}, "RANK=3");
    expect_refusal((struct train_env){NULL, "h", "1", NULL, "3"}, "RANK=");
    expect_refusal((struct train_env){NULL, "h", "0", "1", "3"}, "MASTER_PORT=0");
    expect_refusal((struct train_env){NULL, NULL, "1", "1", "3"}, "MASTER_ADDR=");
    expect_refusal((struct train_env){NULL, "h", "1", "1", "0"}, "WORLD_SIZE=0");
    expect_refusal((struct train_env){NULL, "h", "1", "1", "4x"}, "WORLD_SIZE=4x");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tensorflow_roles),
        cmocka_unit_test(without_a_ps_the_first_worker_keeps_the_parameters),
        cmocka_unit_test(torch_ranks),
        cmocka_unit_test(tf_config_goes_before_the_variables_of_pytorch),
        cmocka_unit_test(what_breaks_a_rule_is_named),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
