/* The prober against scripted servers on loopback, both on one loop. Answers are bytes by hand. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "balancer/prober.h"
#include "base/clock.h"
#include "net/grpc_server.h"

#define GIVE_UP_US (20 * US_PER_S)

/* What the server says to each question; status < 0: nothing at all. */
struct says {
    int status;
    const char *bytes;
    size_t len;
    uint32_t n_asked;
};

struct fixture {
    struct loop loop;
    struct grpc_server *server;
    struct prober *prober;
    struct prober_conf conf;
    struct says model_ready, model_status, health, health_other;
    bool has_model_ready, has_model_status, has_health;
    char address[128];
    uint32_t n_changes;
    enum endpoint_state last;
    char why[256];
    bool drop_targets; /* the change function stops watching */
    struct timer alarm;
};

static void say(struct srv_call *c, struct says *s)
{
    s->n_asked++;
    if (s->status < 0)
        return;
    if (s->status == 0)
        srv_call_send(c, s->bytes, s->len);
    srv_call_finish(c, s->status, s->status == 0 ? NULL : "scripted", NULL, 0);
}

static void on_start(void *arg, struct srv_call *c)
{
    (void)arg;
    (void)c;
}

static void on_model_ready(struct srv_call *c, const uint8_t *p, size_t len, bool compressed)
{
    struct fixture *const f = srv_call_arg(c);

    (void)compressed;
    assert_int_equal(len, 11);
    assert_memory_equal(p,
                        "\x0a\x06"
                        "digits"
                        "\x12\x01"
                        "2",
                        11);
    say(c, &f->model_ready);
}

static void on_model_status(struct srv_call *c, const uint8_t *p, size_t len, bool compressed)
{
    struct fixture *const f = srv_call_arg(c);

    (void)compressed;
    assert_int_equal(len, 14); /* model_spec { name "digits" version { value 2 } } */
    assert_memory_equal(p,
                        "\x0a\x0c\x0a\x06"
                        "digits"
                        "\x12\x02\x08\x02",
                        14);
    say(c, &f->model_status);
}

static void on_health(struct srv_call *c, const uint8_t *p, size_t len, bool compressed)
{
    struct fixture *const f = srv_call_arg(c);

    (void)p;
    (void)compressed;
    say(c, len == 0 ? &f->health : &f->health_other);
}

static const struct srv_ops model_ready_ops = {.on_start = on_start, .on_message = on_model_ready},
                            model_status_ops = {.on_start = on_start,
                                                .on_message = on_model_status},
                            health_ops = {.on_start = on_start, .on_message = on_health};

static void start_server(struct fixture *f, const char *address)
{
    struct srv_method methods[3];
    struct grpc_server_conf conf;
    struct net_addr addr;
    struct err err;
    size_t n = 0;

    if (f->has_model_ready)
        methods[n++] =
            (struct srv_method){"/inference.GRPCInferenceService/ModelReady", &model_ready_ops, f};
    if (f->has_model_status)
        methods[n++] = (struct srv_method){"/tensorflow.serving.ModelService/GetModelStatus",
                                           &model_status_ops, f};
    if (f->has_health)
        methods[n++] = (struct srv_method){"/grpc.health.v1.Health/Check", &health_ops, f};
    grpc_server_conf_default(&conf);
    assert_int_equal(net_addr_parse(&addr, address, &err), 0);
    f->server = grpc_server_new(&f->loop, &addr, &conf, methods, n, &err);
    assert_non_null(f->server);
    snprintf(f->address, sizeof(f->address), "%s", grpc_server_addr(f->server)->text);
}

static void on_change(void *arg, const struct probe_target *t, enum endpoint_state state,
                      const char *why)
{
    struct fixture *const f = arg;

    assert_string_equal(t->address, f->address);
    f->n_changes++;
    f->last = state;
    snprintf(f->why, sizeof(f->why), "%s", why);
    if (f->drop_targets)
        prober_set(f->prober, NULL, 0);
}

/* Wakes the loop now and then: a connection's end shows after a turn's callbacks. */
static void on_alarm(struct timer *t)
{
    struct fixture *const f = container_of(t, struct fixture, alarm);

    timer_start(&f->loop, &f->alarm, f->loop.now_us + 10 * US_PER_MS);
}

static int set_up(void **state)
{
    static struct fixture f;

    memset(&f, 0, sizeof(f));
    f.model_ready = f.health = (struct says){.bytes = "\x08\x01", .len = 2};
    f.model_status = (struct says){.bytes = "\x0a\x04\x08\x02\x10\x1e", .len = 6};
    f.health_other = (struct says){.status = 5};
    loop_init(&f.loop, &f);
    prober_conf_default(&f.conf);
    f.conf.interval_us = 20 * US_PER_MS;
    f.conf.fast_interval_us = 5 * US_PER_MS;
    f.conf.timeout_us = 300 * US_PER_MS;
    f.prober = prober_new(&f.loop, &f.conf, on_change, &f);
    f.alarm.fire = on_alarm;
    *state = &f;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *const f = *state;

    timer_stop(&f->loop, &f->alarm);
    f->prober = prober_free(f->prober);
    if (f->server != NULL)
        grpc_server_free(f->server);
    loop_fini(&f->loop);
    return 0;
}

static void watch(struct fixture *f, enum model_protocol protocol, enum model_dialect dialect)
{
    const struct probe_target t = {
        .address = f->address,
        .model = protocol == PROTOCOL_GRPC ? "" : "digits",
        .version = protocol == PROTOCOL_GRPC ? "" : "2",
        .protocol = protocol,
        .dialect = dialect,
    };

    loop_refresh(&f->loop);
    prober_set(f->prober, &t, 1);
}

static enum endpoint_state state_of(const struct fixture *f)
{
    return prober_state(f->prober, f->address, "digits", "2");
}

#define UNTIL(f, cond)                                                                             \
    do {                                                                                           \
        const uint64_t give_up_us = loop_refresh(&(f)->loop) + GIVE_UP_US;                         \
        timer_start(&(f)->loop, &(f)->alarm, (f)->loop.now_us);                                    \
        while (!(cond)) {                                                                          \
            loop_turn(&(f)->loop);                                                                 \
            if ((f)->loop.now_us > give_up_us)                                                     \
                fail_msg("never: %s", #cond);                                                      \
        }                                                                                          \
    } while (0)

static void a_kserve_model_is_asked_by_name_and_version(void **state)
{
    struct fixture *const f = *state;

    f->has_model_ready = f->has_health = true;
    f->health.bytes = "\x08\x02"; /* another model loads: must not matter */
    start_server(f, "127.0.0.1:0");
    watch(f, PROTOCOL_KSERVE, DIALECT_AUTO);
    assert_int_equal(state_of(f), ENDPOINT_STARTING);
    UNTIL(f, state_of(f) == ENDPOINT_READY);
    assert_int_equal(f->n_changes, 1);
    assert_int_equal(f->health.n_asked, 0);
    assert_int_equal(grpc_server_n_connections(f->server), 1);
}

static void a_not_ready_is_believed_at_once_and_the_connection_let_go(void **state)
{
    struct fixture *const f = *state;

    f->has_model_ready = true;
    start_server(f, "127.0.0.1:0");
    watch(f, PROTOCOL_KSERVE, DIALECT_AUTO);
    UNTIL(f, state_of(f) == ENDPOINT_READY);
    f->model_ready = (struct says){.bytes = "", .len = 0}; /* false is the empty message */
    UNTIL(f, state_of(f) == ENDPOINT_UNHEALTHY);
    assert_int_equal(f->model_ready.n_asked, 1);
    assert_non_null(strstr(f->why, "ModelReady: not ready"));
    UNTIL(f, grpc_server_n_connections(f->server) == 0);
    f->model_ready.bytes = "\x08\x01";
    f->model_ready.len = 2;
    UNTIL(f, state_of(f) == ENDPOINT_READY);
    assert_int_equal(f->n_changes, 3);
}

static void a_server_that_does_not_speak_it_is_asked_the_next_question(void **state)
{
    struct fixture *const f = *state;

    f->has_health = true; /* ModelReady: UNIMPLEMENTED */
    start_server(f, "127.0.0.1:0");
    watch(f, PROTOCOL_KSERVE, DIALECT_AUTO);
    UNTIL(f, state_of(f) == ENDPOINT_READY);
    assert_int_equal(f->health.n_asked, 1);
    UNTIL(f, f->health.n_asked == 4); /* and stays with it */
}

static void a_server_that_speaks_nothing_is_ready_when_it_accepts(void **state)
{
    struct fixture *const f = *state;

    start_server(f, "127.0.0.1:0");
    watch(f, PROTOCOL_TENSORFLOW, DIALECT_AUTO);
    UNTIL(f, state_of(f) == ENDPOINT_READY);
    assert_string_equal(f->why, "connected");
}

static void plain_servers_are_asked_for_their_health(void **state)
{
    struct fixture *const f = *state;

    f->has_health = true;
    start_server(f, "127.0.0.1:0");
    watch(f, PROTOCOL_GRPC, DIALECT_AUTO);
    UNTIL(f, f->n_changes == 1);
    assert_int_equal(f->last, ENDPOINT_READY);
    f->health.bytes = "\x08\x02";
    UNTIL(f, f->n_changes == 2);
    assert_int_equal(f->last, ENDPOINT_UNHEALTHY);
    assert_true(f->health_other.n_asked > 0); /* it does tell names apart, so it meant it */
}

static void health_that_is_the_same_for_any_name_takes_nobody_out(void **state)
{
    struct fixture *const f = *state;

    f->has_health = true;
    f->health_other = f->health;
    start_server(f, "127.0.0.1:0");
    watch(f, PROTOCOL_GRPC, DIALECT_AUTO);
    UNTIL(f, f->n_changes == 1);
    f->health.bytes = f->health_other.bytes = "\x08\x02"; /* a Triton loads a model */
    UNTIL(f, f->health_other.n_asked > 0);
    const uint64_t until_us = loop_refresh(&f->loop) + 200 * US_PER_MS;
    while (f->loop.now_us < until_us)
        loop_turn(&f->loop);
    assert_int_equal(f->n_changes, 1);
}

static void tensorflow_models_are_asked_for_their_status(void **state)
{
    struct fixture *const f = *state;

    f->has_model_status = true;
    start_server(f, "127.0.0.1:0");
    f->model_status.bytes = "\x0a\x04\x08\x02\x10\x14"; /* LOADING */
    watch(f, PROTOCOL_TENSORFLOW, DIALECT_AUTO);
    UNTIL(f, f->model_status.n_asked >= 3);
    assert_int_equal(state_of(f), ENDPOINT_STARTING);
    f->model_status.bytes = "\x0a\x04\x08\x02\x10\x1e"; /* AVAILABLE */
    UNTIL(f, state_of(f) == ENDPOINT_READY);
    f->model_status.status = 5;
    UNTIL(f, state_of(f) == ENDPOINT_UNHEALTHY);
}

static void silence_counts_only_in_a_row(void **state)
{
    struct fixture *const f = *state;

    f->has_model_ready = true;
    start_server(f, "127.0.0.1:0");
    watch(f, PROTOCOL_KSERVE, DIALECT_AUTO);
    UNTIL(f, state_of(f) == ENDPOINT_READY);
    f->model_ready = (struct says){.status = -1};
    UNTIL(f, state_of(f) == ENDPOINT_UNHEALTHY);
    assert_int_equal(f->model_ready.n_asked, 3);
    assert_non_null(strstr(f->why, "DEADLINE_EXCEEDED"));
}

static void a_server_that_dies_and_comes_back_is_seen(void **state)
{
    struct fixture *const f = *state;
    char address[128];

    f->has_model_ready = true;
    start_server(f, "127.0.0.1:0");
    snprintf(address, sizeof(address), "%s", f->address);
    watch(f, PROTOCOL_KSERVE, DIALECT_AUTO);
    UNTIL(f, state_of(f) == ENDPOINT_READY);
    f->server = grpc_server_free(f->server);
    UNTIL(f, state_of(f) == ENDPOINT_UNHEALTHY);
    start_server(f, address);
    UNTIL(f, state_of(f) == ENDPOINT_READY);
}

static void a_port_where_nobody_listens_stays_starting(void **state)
{
    struct fixture *const f = *state;
    const uint64_t until_us = loop_refresh(&f->loop) + 100 * US_PER_MS;

    snprintf(f->address, sizeof(f->address), "127.0.0.1:1");
    watch(f, PROTOCOL_GRPC, DIALECT_PLAIN);
    while (f->loop.now_us < until_us)
        loop_turn(&f->loop);
    assert_int_equal(f->n_changes, 0);
}

static void targets_that_stay_keep_their_verdict_and_share_a_connection(void **state)
{
    struct fixture *const f = *state;

    f->has_model_ready = true;
    start_server(f, "127.0.0.1:0");
    const struct probe_target two[] = {
        {f->address, "digits", "2", PROTOCOL_KSERVE, DIALECT_AUTO, NULL},
        {f->address, "", "", PROTOCOL_GRPC, DIALECT_PLAIN, NULL},
    };
    loop_refresh(&f->loop);
    prober_set(f->prober, two, 2);
    UNTIL(f, f->n_changes == 2);
    assert_int_equal(grpc_server_n_connections(f->server), 1);
    prober_set(f->prober, two, 1);
    assert_int_equal(state_of(f), ENDPOINT_READY);
    assert_int_equal(prober_state(f->prober, f->address, "", ""), ENDPOINT_STARTING);
    prober_set(f->prober, NULL, 0);
    assert_int_equal(state_of(f), ENDPOINT_STARTING);
    UNTIL(f, grpc_server_n_connections(f->server) == 0);
    assert_int_equal(f->n_changes, 2);
}

static void the_change_function_may_stop_the_watch(void **state)
{
    struct fixture *const f = *state;

    f->has_model_ready = true;
    f->drop_targets = true;
    start_server(f, "127.0.0.1:0");
    watch(f, PROTOCOL_KSERVE, DIALECT_AUTO);
    UNTIL(f, f->n_changes == 1);
    UNTIL(f, grpc_server_n_connections(f->server) == 0);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        CASE(a_kserve_model_is_asked_by_name_and_version),
        CASE(a_not_ready_is_believed_at_once_and_the_connection_let_go),
        CASE(a_server_that_does_not_speak_it_is_asked_the_next_question),
        CASE(a_server_that_speaks_nothing_is_ready_when_it_accepts),
        CASE(plain_servers_are_asked_for_their_health),
        CASE(health_that_is_the_same_for_any_name_takes_nobody_out),
        CASE(tensorflow_models_are_asked_for_their_status),
        CASE(silence_counts_only_in_a_row),
        CASE(a_server_that_dies_and_comes_back_is_seen),
        CASE(a_port_where_nobody_listens_stays_starting),
        CASE(targets_that_stay_keep_their_verdict_and_share_a_connection),
        CASE(the_change_function_may_stop_the_watch),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
