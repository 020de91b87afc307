#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/clock.h"
#include "penstock/fleet.h"

#define S US_PER_S

/* A driver that only remembers; the test plays the world and says what became of each unit. */
struct fake {
    struct driver driver;
    uint32_t n_started, n_stopped;
    uint32_t ports;
    char last_started[64], last_stopped[64];
    bool refuses;
};

static int fake_reserve(struct driver *d, const char *node, char *dst, size_t size, struct err *err)
{
    struct fake *const f = container_of(d, struct fake, driver);

    (void)node;
    (void)err;
    snprintf(dst, size, "127.0.0.1:%u", 9000 + ++f->ports);
    return 0;
}

static int fake_start(struct driver *d, const struct unit_spec *spec, struct err *err)
{
    struct fake *const f = container_of(d, struct fake, driver);

    if (f->refuses)
        return err_set(err, -2, "no such program: %s", spec->command[0]);
    f->n_started++;
    snprintf(f->last_started, sizeof(f->last_started), "%s", spec->id);
    return 0;
}

static int fake_stop(struct driver *d, const char *id, uint64_t grace_us)
{
    struct fake *const f = container_of(d, struct fake, driver);

    (void)grace_us;
    f->n_stopped++;
    snprintf(f->last_stopped, sizeof(f->last_stopped), "%s", id);
    return 0;
}

static const struct driver_ops fake_ops = {
    .name = "fake", .reserve_address = fake_reserve, .start = fake_start, .stop = fake_stop};

struct world {
    struct fake fake;
    struct cluster_view view;
    struct decisions *decisions;
    struct fleet fleet;
    struct generation *generation;
    uint64_t now_us;
    uint64_t sequence;
};

static struct generation *config(const char *versions, const char *traffic, const char *scaling)
{
    char text[2048];
    struct conf_problems problems;

    snprintf(text, sizeof(text),
             "{\"models\":{\"m.json\":{\"model\":\"m\",\"versions\":{%s},\"traffic\":{%s},"
             "\"scaling\":{%s}}}}",
             versions, traffic, scaling);
    conf_problems_init(&problems);
    struct generation *const g = generation_load_text(text, strlen(text), &problems);

    assert_string_equal(buf_cstr(&problems.text), "");
    conf_problems_fini(&problems);
    return g;
}

#define V(name, cmd) "\"" name "\":{\"command\":[\"" cmd "\"],\"cpu_milli\":1000}"

static void apply_how(struct world *w, struct generation *g, bool at_once)
{
    struct generation *const before = w->generation;

    w->generation = g;
    fleet_set_generation(&w->fleet, g, at_once, w->now_us);
    fleet_step(&w->fleet, w->now_us);
    generation_unref(before);
}

static void apply(struct world *w, struct generation *g)
{
    apply_how(w, g, false);
}

static int set_up(void **state)
{
    struct world *const w = calloc(1, sizeof(*w));
    const struct node_spec node = {.name = "n", .cpu_milli = 4000, .memory_mib = 65536};

    w->fake.driver.ops = &fake_ops;
    w->now_us = 1000 * S;
    w->decisions = decisions_new();
    cluster_view_init(&w->view);
    assert_true(cluster_view_set_node(&w->view, &node, NULL) >= 0);
    fleet_init(&w->fleet, &w->fake.driver, &w->view, w->decisions, 30 * S);
    *state = w;
    return 0;
}

static int tear_down(void **state)
{
    struct world *const w = *state;

    fleet_fini(&w->fleet);
    assert_int_equal(w->view.nodes[0].used_cpu_milli, 0); /* every placement was given back */
    cluster_view_fini(&w->view);
    decisions_free(w->decisions);
    generation_unref(w->generation);
    free(w);
    return 0;
}

static struct replica *at(struct world *w, size_t i)
{
    list_each (&w->fleet.replicas, node) {
        if (i-- == 0)
            return list_entry(node, struct replica, node);
    }
    return NULL;
}

static size_t n_replicas(struct world *w)
{
    size_t n = 0;

    while (at(w, n) != NULL)
        n++;
    return n;
}

static void probe(struct world *w, size_t i, enum endpoint_state s)
{
    const struct probe_target t = {.address = at(w, i)->address, .model = "m", .version = "1"};

    fleet_probed(&w->fleet, &t, s, "test", w->now_us);
    fleet_step(&w->fleet, w->now_us);
}

static void ended(struct world *w, const char *id, const char *text)
{
    const struct driver_event ev = {.kind = DRIVER_EXITED, .id = id, .status = 1, .text = text};

    assert_true(fleet_on_event(&w->fleet, &ev, w->now_us));
    fleet_step(&w->fleet, w->now_us);
}

static void all_ready(struct world *w)
{
    for (size_t i = 0; i < n_replicas(w); i++) {
        if (at(w, i)->state == REPLICA_STARTING)
            probe(w, i, ENDPOINT_READY);
    }
}

/* seconds of reports with this many calls in flight for version `version`, decided each second. */
static void load(struct world *w, const char *version, double inflight, unsigned seconds)
{
    for (unsigned i = 0; i < seconds * 4; i++) {
        const struct fleet_load l = {.model = "m",
                                     .version = version,
                                     .inflight_seconds = inflight / 4,
                                     .started = (uint64_t)(inflight * 2.5)};

        w->now_us += S / 4;
        assert_true(fleet_observe(&w->fleet, "g", 0, ++w->sequence, S / 4, &l, 1, w->now_us));
        if (i % 4 == 3)
            fleet_decide(&w->fleet, w->now_us);
        fleet_step(&w->fleet, w->now_us);
    }
}

static uint32_t calls_seen; /* what the workers report */

static uint32_t calls(void *arg, const char *address, uint64_t epoch)
{
    (void)arg;
    (void)address;
    (void)epoch;
    return calls_seen;
}

static void a_version_with_traffic_gets_its_minimum_and_no_more(void **state)
{
    struct world *const w = *state;

    apply(w, config(V("1", "a") "," V("2", "b"), "\"1\":10000", "\"min\":2"));
    assert_int_equal(n_replicas(w), 2);
    assert_string_equal(at(w, 0)->id, "m/1#1");
    assert_string_equal(at(w, 1)->id, "m/1#2");
    assert_int_equal(w->view.nodes[0].used_cpu_milli, 2000);
    w->now_us += 60 * S - 1;
    fleet_decide(&w->fleet, w->now_us);
    fleet_step(&w->fleet, w->now_us);
    assert_int_equal(w->fake.n_started, 2);
}

static void load_brings_replicas_and_its_end_drains_them(void **state)
{
    struct world *const w = *state;

    apply(w, config(V("1", "a"), "\"1\":10000",
                    "\"min\":1,\"max\":3,\"target_inflight\":4,\"stable_window_s\":6,"
                    "\"burst_window_s\":2,\"scale_down_delay_s\":5"));
    all_ready(w);
    load(w, "1", 11, 10);
    assert_int_equal(n_replicas(w), 3);
    all_ready(w);
    fleet_published(&w->fleet, 5);

    load(w, "1", 0.5, 30);
    assert_int_equal(run_count(at(w, 0)->run, REPLICA_DRAINING), 2);
    assert_int_equal(at(w, 0)->state, REPLICA_READY); /* the oldest stays */
    assert_int_equal(w->fake.n_stopped, 0);

    calls_seen = UINT32_MAX; /* the workers have not heard of it */
    fleet_published(&w->fleet, 6);
    fleet_stop_drained(&w->fleet, calls, NULL, w->now_us);
    calls_seen = 1; /* they have, and a call runs */
    fleet_stop_drained(&w->fleet, calls, NULL, w->now_us);
    assert_int_equal(w->fake.n_stopped, 0);
    calls_seen = 0;
    fleet_stop_drained(&w->fleet, calls, NULL, w->now_us);
    assert_int_equal(w->fake.n_stopped, 2);
    ended(w, "m/1#3", "exit status 0");
    ended(w, "m/1#2", "exit status 0");
    assert_int_equal(n_replicas(w), 1);
    assert_int_equal(w->fake.n_started, 3);
}

static void a_drain_ends_at_its_limit_whatever_still_runs(void **state)
{
    struct world *const w = *state;

    apply(w, config(V("1", "a"), "\"1\":10000", "\"warm_s\":0"));
    all_ready(w);
    apply(w, config(V("2", "b"), "\"2\":10000", "\"warm_s\":0"));
    assert_int_equal(at(w, 0)->state, REPLICA_DRAINING);
    fleet_published(&w->fleet, 2);
    calls_seen = 3;
    w->now_us += 30 * S - 1;
    fleet_stop_drained(&w->fleet, calls, NULL, w->now_us);
    assert_int_equal(w->fake.n_stopped, 0);
    w->now_us += 1;
    fleet_stop_drained(&w->fleet, calls, NULL, w->now_us);
    assert_string_equal(w->fake.last_stopped, "m/1#1");
}

static void what_crashes_is_started_again_later_and_later(void **state)
{
    struct world *const w = *state;
    uint64_t waits[4];

    apply(w, config(V("1", "a"), "\"1\":10000", "\"min\":1"));
    for (int i = 0; i < 4; i++) {
        char id[16];
        const uint64_t began = w->now_us;

        snprintf(id, sizeof(id), "m/1#%d", i + 1);
        ended(w, id, "exit status 3");
        assert_int_equal(n_replicas(w), 0);
        while (n_replicas(w) == 0) {
            w->now_us += S / 100;
            fleet_step(&w->fleet, w->now_us);
        }
        waits[i] = w->now_us - began;
    }
    assert_int_equal(waits[0], S / 4);
    assert_int_equal(waits[1], S / 2);
    assert_int_equal(waits[3], 2 * S);
    probe(w, 0, ENDPOINT_READY); /* it lives for a while: the next crash begins from the start */
    w->now_us += 20 * S;
    fleet_step(&w->fleet, w->now_us);
    ended(w, "m/1#5", "killed by signal 9");
    w->now_us += S / 4;
    fleet_step(&w->fleet, w->now_us);
    assert_int_equal(n_replicas(w), 1);
    assert_int_equal(at(w, 0)->run->restarts, 5);
}

static void a_start_that_takes_too_long_is_stopped_and_tried_again(void **state)
{
    struct world *const w = *state;

    apply(w, config("\"1\":{\"command\":[\"a\"],\"start_timeout_ms\":5000}", "\"1\":10000",
                    "\"min\":1"));
    w->now_us += 5 * S;
    fleet_step(&w->fleet, w->now_us);
    assert_int_equal(w->fake.n_stopped, 0);
    w->now_us += 1;
    fleet_step(&w->fleet, w->now_us);
    assert_string_equal(w->fake.last_stopped, "m/1#1");
    ended(w, "m/1#1", "killed by signal 15");
    w->now_us += S;
    fleet_step(&w->fleet, w->now_us);
    assert_string_equal(w->fake.last_started, "m/1#2");
}

static void what_lost_its_traffic_stays_warm_and_a_rollback_starts_nothing(void **state)
{
    struct world *const w = *state;
    const char *const both = V("1", "a") "," V("2", "b");

    apply(w, config(both, "\"1\":10000", "\"min\":2,\"warm_s\":100"));
    all_ready(w);
    apply(w, config(both, "\"2\":10000", "\"min\":2,\"warm_s\":100"));
    all_ready(w);
    load(w, "2", 1, 90);
    assert_int_equal(run_count(fleet_run(&w->fleet, "m", "1"), REPLICA_READY), 2);
    assert_int_equal(w->fake.n_started, 4);
    apply(w, config(both, "\"1\":10000", "\"min\":2,\"warm_s\":100"));
    assert_int_equal(w->fake.n_started, 4);
    load(w, "1", 1, 300);
    assert_int_equal(run_count(fleet_run(&w->fleet, "m", "2"), REPLICA_READY), 0);
    assert_int_equal(run_count(fleet_run(&w->fleet, "m", "1"), REPLICA_READY), 2);
}

static void a_version_that_left_the_config_is_kept_for_the_warm_time_too(void **state)
{
    struct world *const w = *state;

    apply(w, config(V("1", "a"), "\"1\":10000", "\"warm_s\":50"));
    all_ready(w);
    apply(w, config(V("2", "b"), "\"2\":10000", "\"warm_s\":50"));
    load(w, "2", 0, 45);
    assert_int_equal(at(w, 0)->state, REPLICA_READY);
    load(w, "2", 0, 10);
    assert_int_equal(at(w, 0)->state, REPLICA_DRAINING);
}

static void warm_replicas_make_way_for_who_has_no_room(void **state)
{
    struct world *const w = *state; /* 4 cores: room for 4 */
    const char *const both = V("1", "a") "," V("2", "b");

    apply(w, config(both, "\"1\":10000", "\"min\":4"));
    all_ready(w);
    apply(w, config(both, "\"2\":10000", "\"min\":1"));
    assert_int_equal(w->fake.n_started, 4);
    assert_int_equal(at(w, 3)->state, REPLICA_DRAINING); /* one, the youngest */
    assert_int_equal(at(w, 2)->state, REPLICA_READY);
    fleet_published(&w->fleet, 2);
    calls_seen = 0;
    fleet_stop_drained(&w->fleet, calls, NULL, w->now_us);
    ended(w, "m/1#4", "exit status 0");
    assert_string_equal(w->fake.last_started, "m/2#1");
    assert_int_equal(n_replicas(w), 4);
}

static uint32_t shown(struct world *w, const char *version)
{
    return fleet_run(&w->fleet, "m", version)->shown;
}

static void a_cold_version_takes_over_as_its_replicas_get_ready(void **state)
{
    struct world *const w = *state;
    const char *const both = V("1", "a") "," V("2", "b");
    const char *const scaling = "\"min\":1,\"max\":4,\"target_inflight\":4,\"warm_s\":100,"
                                "\"stable_window_s\":6,\"burst_window_s\":2";

    apply(w, config(both, "\"1\":10000", scaling));
    assert_int_equal(shown(w, "1"), 10000); /* nobody had it before: nothing to wait for */
    all_ready(w);
    load(w, "1", 7, 10); /* 7 calls, 4 a replica: two are needed */
    all_ready(w);
    assert_int_equal(n_replicas(w), 2);
    apply(w, config(both, "\"2\":10000", scaling));
    assert_int_equal(shown(w, "1"), 10000);
    assert_int_equal(shown(w, "2"), 0);
    assert_int_equal(n_replicas(w), 4); /* two for version 2, at once, as the load says */
    probe(w, 2, ENDPOINT_READY);
    assert_int_equal(shown(w, "1"), 5000);
    assert_int_equal(shown(w, "2"), 5000);
    probe(w, 3, ENDPOINT_READY);
    assert_int_equal(shown(w, "1"), 0);
    assert_int_equal(shown(w, "2"), 10000);
    load(w, "2", 7, 90); /* warm from when the traffic went */
    assert_int_equal(run_count(fleet_run(&w->fleet, "m", "1"), REPLICA_READY), 2);
}

static void a_version_that_never_starts_gets_no_call(void **state)
{
    struct world *const w = *state;
    const char *const both = V("1", "a") "," V("2", "b");

    apply(w, config(both, "\"1\":10000", "\"min\":1,\"warm_s\":1"));
    all_ready(w);
    apply(w, config(both, "\"1\":1,\"2\":9999", "\"min\":1,\"warm_s\":1"));
    for (int i = 0; i < 20; i++) {
        char id[32];

        snprintf(id, sizeof(id), "m/2#%d", i + 1);
        ended(w, id, "exit status 1");
        load(w, "1", 1, 40); /* past every back-off */
        assert_int_equal(shown(w, "1"), 10000);
    }
    assert_int_equal(run_count(fleet_run(&w->fleet, "m", "1"), REPLICA_READY), 1);
    apply(w, config(both, "\"1\":10000", "\"min\":1,\"warm_s\":1"));
    assert_int_equal(shown(w, "1"), 10000);
    assert_int_equal(shown(w, "2"), 0);
}

static void a_rollback_waits_for_nobody(void **state)
{
    struct world *const w = *state;
    const char *const both = V("1", "a") "," V("2", "b");

    apply(w, config(both, "\"2\":10000", "\"min\":1"));
    all_ready(w);
    apply_how(w, config(both, "\"1\":10000", "\"min\":1"), true);
    assert_int_equal(shown(w, "1"), 10000);
    assert_int_equal(shown(w, "2"), 0);
}

static void parts_lent_by_several_versions_sum_to_the_whole(void **state)
{
    struct world *const w = *state;
    const char *const four = V("1", "a") "," V("2", "b") "," V("3", "c") "," V("4", "d");

    apply(w, config(four, "\"1\":3333,\"2\":6667", "\"min\":1"));
    all_ready(w);
    apply(w, config(four, "\"1\":1111,\"2\":1111,\"3\":3889,\"4\":3889", "\"min\":1"));
    assert_int_equal(shown(w, "1"), 3333);
    assert_int_equal(shown(w, "2"), 6667);
    probe(w, 2, ENDPOINT_READY); /* version 3 */
    assert_int_equal(shown(w, "3"), 3889);
    assert_int_equal(shown(w, "4"), 0);
    assert_int_equal(shown(w, "1") + shown(w, "2"), 10000 - 3889);
    assert_true(shown(w, "1") > 1111 && shown(w, "2") > 1111);
    probe(w, 3, ENDPOINT_READY);
    assert_int_equal(shown(w, "1"), 1111);
    assert_int_equal(shown(w, "2"), 1111);
    assert_int_equal(shown(w, "4"), 3889);
}

static void a_new_command_replaces_replicas_without_a_gap(void **state)
{
    struct world *const w = *state;

    apply(w, config(V("1", "a"), "\"1\":10000", "\"min\":2"));
    all_ready(w);
    apply(w, config(V("1", "other"), "\"1\":10000", "\"min\":2"));
    assert_int_equal(w->fake.n_started, 4);
    probe(w, 2, ENDPOINT_READY);
    assert_int_equal(at(w, 0)->state, REPLICA_READY); /* one successor of two is not enough */
    probe(w, 3, ENDPOINT_READY);
    assert_int_equal(at(w, 0)->state, REPLICA_DRAINING);
    assert_int_equal(at(w, 1)->state, REPLICA_DRAINING);
    assert_int_equal(at(w, 2)->state, REPLICA_READY);
}

static void silence_of_the_gateways_shrinks_nothing(void **state)
{
    struct world *const w = *state;

    apply(w, config(V("1", "a"), "\"1\":10000",
                    "\"min\":1,\"max\":3,\"target_inflight\":4,\"stable_window_s\":6,"
                    "\"burst_window_s\":2,\"scale_down_delay_s\":0"));
    all_ready(w);
    load(w, "1", 11, 10);
    all_ready(w);
    assert_int_equal(n_replicas(w), 3);
    for (int i = 0; i < 50; i++) {
        w->now_us += S;
        fleet_decide(&w->fleet, w->now_us);
        fleet_step(&w->fleet, w->now_us);
    }
    assert_int_equal(run_count(at(w, 0)->run, REPLICA_READY), 3);
}

static void a_call_that_waits_at_one_worker_wakes_whatever_the_others_say(void **state)
{
    struct world *const w = *state;
    const struct fleet_load waits = {
        .model = "m", .version = "1", .inflight_seconds = 0.001, .started = 1, .queued = 1};

    apply(w, config(V("1", "a"), "\"1\":10000", "\"min\":0,\"idle_s\":10"));
    assert_int_equal(n_replicas(w), 0);
    w->now_us += S / 4;
    fleet_observe(&w->fleet, "g", 0, 1, S / 4, &waits, 1, w->now_us);
    fleet_observe(&w->fleet, "g", 1, 1, S / 4, NULL, 0, w->now_us);
    fleet_decide(&w->fleet, w->now_us);
    fleet_step(&w->fleet, w->now_us);
    assert_int_equal(n_replicas(w), 1);
}

static void a_report_that_comes_twice_counts_once(void **state)
{
    struct world *const w = *state;

    apply(w, config(V("1", "a"), "\"1\":10000", "\"min\":1"));
    assert_true(fleet_observe(&w->fleet, "g", 0, 7, S / 4, NULL, 0, w->now_us));
    assert_false(fleet_observe(&w->fleet, "g", 0, 7, S / 4, NULL, 0, w->now_us));
    assert_true(fleet_observe(&w->fleet, "g", 1, 7, S / 4, NULL, 0, w->now_us));
}

static void an_unhealthy_replica_is_replaced_after_a_while_and_may_recover_before(void **state)
{
    struct world *const w = *state;

    apply(w, config(V("1", "a"), "\"1\":10000", "\"min\":1"));
    probe(w, 0, ENDPOINT_READY);
    probe(w, 0, ENDPOINT_UNHEALTHY);
    w->now_us += 29 * S;
    probe(w, 0, ENDPOINT_READY);
    probe(w, 0, ENDPOINT_UNHEALTHY);
    w->now_us += 30 * S;
    fleet_step(&w->fleet, w->now_us);
    assert_int_equal(at(w, 0)->state, REPLICA_UNHEALTHY);
    w->now_us += 1;
    fleet_step(&w->fleet, w->now_us);
    assert_int_equal(at(w, 0)->state, REPLICA_DRAINING);
    assert_string_equal(w->fake.last_started, "m/1#2");
}

static void a_driver_that_refuses_leaves_no_trace_but_its_words(void **state)
{
    struct world *const w = *state;

    w->fake.refuses = true;
    apply(w, config(V("1", "a"), "\"1\":10000", "\"min\":1"));
    assert_int_equal(n_replicas(w), 0);
    assert_int_equal(w->view.nodes[0].used_cpu_milli, 0);
    assert_string_equal(decisions_at(w->decisions, 0)->what, "replica_start_failed");
    assert_non_null(strstr(decisions_at(w->decisions, 0)->text, "no such program: a"));
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(a_version_with_traffic_gets_its_minimum_and_no_more),
        TEST(load_brings_replicas_and_its_end_drains_them),
        TEST(a_drain_ends_at_its_limit_whatever_still_runs),
        TEST(what_crashes_is_started_again_later_and_later),
        TEST(a_start_that_takes_too_long_is_stopped_and_tried_again),
        TEST(what_lost_its_traffic_stays_warm_and_a_rollback_starts_nothing),
        TEST(a_version_that_left_the_config_is_kept_for_the_warm_time_too),
        TEST(warm_replicas_make_way_for_who_has_no_room),
        TEST(a_cold_version_takes_over_as_its_replicas_get_ready),
        TEST(a_version_that_never_starts_gets_no_call),
        TEST(a_rollback_waits_for_nobody),
        TEST(parts_lent_by_several_versions_sum_to_the_whole),
        TEST(a_new_command_replaces_replicas_without_a_gap),
        TEST(silence_of_the_gateways_shrinks_nothing),
        TEST(a_call_that_waits_at_one_worker_wakes_whatever_the_others_say),
        TEST(a_report_that_comes_twice_counts_once),
        TEST(an_unhealthy_replica_is_replaced_after_a_while_and_may_recover_before),
        TEST(a_driver_that_refuses_leaves_no_trace_but_its_words),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
