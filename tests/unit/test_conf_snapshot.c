#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "conf/generation.h"
#include "conf/snapshot.h"

static const char config[] =
    "{\"models\":{"
    "\"digits.json\":{\"model\":\"digits\",\"versions\":{\"1\":{\"command\":[\"m\"]},"
    "\"2\":{\"command\":[\"m\"],\"slots\":4}},\"labels\":{\"canary\":\"2\"},"
    "\"traffic\":{\"1\":9900,\"2\":100}},"
    "\"tri.json\":{\"model\":\"tri\",\"endpoints\":[\"127.0.0.1:8001\",\"127.0.0.1:8002\"],"
    "\"versions\":{\"1\":{},\"2\":{}},\"traffic\":{\"1\":10000}},"
    "\"any.json\":{\"model\":\"any\",\"endpoints\":[\"127.0.0.1:8003\"]},"
    "\"echo.json\":{\"model\":\"echo\",\"protocol\":\"grpc\",\"services\":[\"test.Echo\"],"
    "\"versions\":{\"1\":{\"endpoints\":[\"127.0.0.1:8004\"]}}}}}";

static struct generation *load(const char *text)
{
    struct conf_problems problems;

    conf_problems_init(&problems);
    struct generation *const g = generation_load_text(text, strlen(text), &problems);

    assert_string_equal(buf_cstr(&problems.text), "");
    conf_problems_fini(&problems);
    assert_non_null(g);
    return g;
}

static const struct snap_model *model(const struct snapshot *s, const char *name)
{
    return snapshot_model(s, PROTOCOL_KSERVE, name, strlen(name));
}

static void models_and_services_are_found_and_others_are_not(void **state)
{
    (void)state;
    struct generation *const g = load(config);
    struct snapshot *const s = snapshot_build(g, 7, NULL, 0, NULL, NULL);

    generation_unref(g); /* the snapshot holds its own reference */
    assert_int_equal(s->epoch, 7);
    assert_int_equal(s->n_models, 4);
    assert_string_equal(model(s, "digits")->conf->name, "digits");
    assert_null(model(s, "digit"));
    assert_null(model(s, "digits2"));
    assert_null(model(s, ""));
    assert_null(snapshot_model(s, PROTOCOL_TENSORFLOW, "digits", 6));
    assert_null(model(s, "echo")); /* it is a plain service, not a KServe model */
    assert_string_equal(snapshot_service(s, "test.Echo", 9)->conf->name, "echo");
    assert_null(snapshot_service(s, "test.Other", 10)); /* nobody claims "*" */
    snapshot_unref(s);
}

static void versions_are_found_by_name_and_by_label(void **state)
{
    (void)state;
    struct generation *const g = load(config);
    struct snapshot *const s = snapshot_build(g, 1, NULL, 0, NULL, NULL);
    const struct snap_model *const m = model(s, "digits");

    assert_int_equal(snap_model_version(m, "1", 1), 0);
    assert_int_equal(snap_model_version(m, "2", 1), 1);
    assert_int_equal(snap_model_version(m, "canary", 6), 1);
    assert_int_equal(snap_model_version(m, "canar", 5), -1);
    assert_int_equal(snap_model_version(m, "", 0), -1);
    assert_int_equal(m->versions[0].weight, 9900);
    assert_int_equal(m->versions[1].weight, 100);
    assert_int_equal(m->versions[1].conf->slots, 4);
    /* no versions named: the servers know them, whatever the call says */
    assert_int_equal(snap_model_version(model(s, "any"), "42", 2), 0);
    assert_false(model(s, "any")->versions[0].shared_endpoints);
    assert_true(model(s, "tri")->versions[0].shared_endpoints);
    snapshot_unref(s);
    generation_unref(g);
}

static enum endpoint_state state_of(void *arg, const char *model_name, const char *version,
                                    const char *address)
{
    (void)arg;
    if (strcmp(model_name, "tri") == 0 && strcmp(version, "2") == 0 &&
        strcmp(address, "127.0.0.1:8002") == 0)
        return ENDPOINT_UNHEALTHY;
    return ENDPOINT_READY;
}

static void one_server_may_be_ready_for_one_version_only(void **state)
{
    (void)state;
    struct generation *const g = load(config);
    struct snapshot *const s = snapshot_build(g, 1, NULL, 0, state_of, NULL);
    const struct snap_model *const m = model(s, "tri");

    assert_int_equal(m->versions[0].n_endpoints, 2);
    assert_int_equal(m->versions[1].n_endpoints, 2);
    assert_int_equal(m->versions[0].endpoints[1]->state, ENDPOINT_READY);
    assert_int_equal(m->versions[1].endpoints[1]->state, ENDPOINT_UNHEALTHY);
    assert_string_equal(m->versions[1].endpoints[1]->address, "127.0.0.1:8002");
    snapshot_unref(s);
    generation_unref(g);
}

static void replicas_go_to_their_version_and_strangers_nowhere(void **state)
{
    (void)state;
    const struct endpoint_input inputs[] = {
        {"digits", "2", "127.0.0.1:9001", "digits/2#1", ENDPOINT_STARTING, 250},
        {"digits", "1", "127.0.0.1:9002", "digits/1#1", ENDPOINT_READY, 0},
        {"digits", NULL, "127.0.0.1:9003", NULL, ENDPOINT_DRAINING, 500},
        {"echo", "1", "127.0.0.1:8004", "ours", ENDPOINT_READY, 1}, /* the config names it too */
        {"digits", "3", "127.0.0.1:9004", "no such version", ENDPOINT_READY, 1},
        {"gone", "1", "127.0.0.1:9005", "no such model", ENDPOINT_READY, 1},
    };
    struct generation *const g = load(config);
    struct snapshot *const s = snapshot_build(g, 1, inputs, 6, NULL, NULL);
    const struct snap_model *const m = model(s, "digits");

    assert_int_equal(m->versions[0].n_endpoints, 2);
    assert_string_equal(m->versions[0].endpoints[0]->replica, "digits/1#1");
    assert_int_equal(m->versions[0].endpoints[0]->weight, 1); /* 0 is no weight */
    assert_int_equal(m->versions[1].n_endpoints, 2);
    assert_string_equal(m->versions[1].endpoints[0]->replica, "digits/2#1");
    assert_int_equal(m->versions[1].endpoints[0]->state, ENDPOINT_STARTING);
    assert_string_equal(m->versions[1].endpoints[1]->replica, "127.0.0.1:9003");
    const struct snap_model *const echo = snapshot_service(s, "test.Echo", 9);

    assert_int_equal(echo->versions[0].n_endpoints, 1);
    assert_string_equal(echo->versions[0].endpoints[0]->replica, "ours");
    snapshot_unref(s);
    generation_unref(g);
}

static void a_relay_takes_every_service_and_changes_nothing(void **state)
{
    (void)state;
    static const char *const addresses[] = {"127.0.0.1:1", "[::1]:2"};
    struct conf_problems problems;

    conf_problems_init(&problems);
    struct generation *const g =
        generation_for_relay(addresses, 2, POLICY_ROUND_ROBIN, NULL, &problems);

    assert_string_equal(buf_cstr(&problems.text), "");
    assert_non_null(g);
    struct snapshot *const s = snapshot_build(g, 1, NULL, 0, NULL, NULL);
    const struct snap_model *const m = snapshot_service(s, "x.Y", 3);

    assert_non_null(m);
    assert_int_equal(s->generation, 0);
    assert_int_equal(m->conf->policy, POLICY_ROUND_ROBIN);
    assert_int_equal(m->conf->limits.message_mib, 0);
    assert_int_equal(m->conf->limits.replay_kib, 64);
    assert_int_equal(m->versions[0].weight, WEIGHT_WHOLE);
    assert_int_equal(m->versions[0].n_endpoints, 2);
    assert_false(m->versions[0].shared_endpoints);
    snapshot_unref(s);
    generation_unref(g);
    conf_problems_fini(&problems);
}

static void a_relay_to_a_bad_address_names_it(void **state)
{
    (void)state;
    static const char *const addresses[] = {"127.0.0.1:1", "nonsense"};
    struct conf_problems problems;

    conf_problems_init(&problems);
    assert_null(generation_for_relay(addresses, 2, POLICY_P2C, NULL, &problems));
    assert_string_equal(buf_cstr(&problems.text), "--to: \"nonsense\" is not host:port\n");
    conf_problems_fini(&problems);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(models_and_services_are_found_and_others_are_not),
        cmocka_unit_test(versions_are_found_by_name_and_by_label),
        cmocka_unit_test(one_server_may_be_ready_for_one_version_only),
        cmocka_unit_test(replicas_go_to_their_version_and_strangers_nowhere),
        cmocka_unit_test(a_relay_takes_every_service_and_changes_nothing),
        cmocka_unit_test(a_relay_to_a_bad_address_names_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
