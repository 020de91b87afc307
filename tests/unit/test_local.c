/* The gateway's own answers. Requests are written and answers read by hand (tag, length, bytes), so
 * that the oracle is not the generated code that the answers come from. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/buf.h"
#include "conf/generation.h"
#include "gateway/local.h"

static const char config[] =
    "{\"models\":{"
    "\"digits.json\":{\"model\":\"digits\",\"versions\":{\"1\":{\"command\":[\"m\"]},"
    "\"2\":{\"command\":[\"m\"]}},\"labels\":{\"canary\":\"2\"},"
    "\"traffic\":{\"1\":10000}},"
    "\"echo.json\":{\"model\":\"echo\",\"protocol\":\"grpc\",\"services\":[\"test.Echo\"],"
    "\"versions\":{\"1\":{\"endpoints\":[\"127.0.0.1:8004\"]}}}}}";

struct seen {
    struct buf last;
    uint32_t n_messages;
    int status; /* -1: not finished */
    char text[128];
};

struct fixture {
    struct local *l;
    struct generation *g;
    uint64_t epoch;
    struct seen seen;
    enum endpoint_state digits_1, digits_2;
};

static void on_send(void *user, const uint8_t *message, size_t len)
{
    struct seen *const s = user;

    assert_int_equal(s->status, -1);
    buf_reset(&s->last);
    buf_append(&s->last, message, len);
    s->n_messages++;
}

static void on_finish(void *user, uint32_t status, const char *message)
{
    struct seen *const s = user;

    assert_int_equal(s->status, -1);
    s->status = (int)status;
    snprintf(s->text, sizeof(s->text), "%s", message);
}

static const struct local_sink sink = {.send = on_send, .finish = on_finish};

static struct generation *load(const char *text)
{
    struct conf_problems problems;

    conf_problems_init(&problems);
    struct generation *const g = generation_load_text(text, strlen(text), &problems);
    assert_string_equal(buf_cstr(&problems.text), "");
    conf_problems_fini(&problems);
    return g;
}

static enum endpoint_state echo_is_down(void *arg, const char *model, const char *version,
                                        const char *address)
{
    (void)arg;
    (void)model;
    (void)version;
    (void)address;
    return ENDPOINT_UNHEALTHY;
}

static void publish(struct fixture *f)
{
    const struct endpoint_input inputs[] = {
        {"digits", "1", "127.0.0.1:1", "digits/1#1", f->digits_1, 1000},
        {"digits", "2", "127.0.0.1:2", "digits/2#1", f->digits_2, 1000},
    };
    struct snapshot *const s = snapshot_build(f->g, ++f->epoch, inputs, 2, echo_is_down, NULL);

    local_apply(f->l, s);
    snapshot_unref(s);
}

static int set_up(void **state)
{
    static struct fixture f;

    memset(&f, 0, sizeof(f));
    buf_init(&f.seen.last, SIZE_MAX);
    f.l = local_new();
    f.g = load(config);
    f.digits_1 = ENDPOINT_READY;
    f.digits_2 = ENDPOINT_STARTING;
    publish(&f);
    *state = &f;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *const f = *state;

    f->l = local_free(f->l);
    generation_unref(f->g);
    buf_fini(&f->seen.last);
    return 0;
}

static struct local_call *open_call(struct fixture *f, const char *path)
{
    const struct local_method *const m = local_find(f->l, path, strlen(path));

    assert_non_null(m);
    f->seen.status = -1;
    f->seen.n_messages = 0;
    buf_reset(&f->seen.last);
    return local_open(f->l, m, &sink, &f->seen);
}

/* One string field, as a message. */
static size_t field(uint8_t *dst, uint8_t number, const char *text)
{
    const size_t len = strlen(text);

    assert_true(len < 128);
    dst[0] = (uint8_t)(number << 3 | 2);
    dst[1] = (uint8_t)len;
    memcpy(dst + 2, text, len);
    return len + 2;
}

static void unary(struct fixture *f, const char *path, const uint8_t *message, size_t len)
{
    struct local_call *c = open_call(f, path);

    local_on_message(c, message, len);
    local_on_end(c);
    assert_int_not_equal(f->seen.status, -1);
    local_close(c);
}

static void assert_answer(const struct fixture *f, const char *bytes, size_t len)
{
    assert_int_equal(f->seen.status, 0);
    assert_int_equal(f->seen.n_messages, 1);
    assert_int_equal(f->seen.last.len, len);
    if (len > 0)
        assert_memory_equal(f->seen.last.data, bytes, len);
}

static void check_knows_the_server_services_models_and_versions(void **state)
{
    static const struct {
        const char *name;
        int serving; /* 1 SERVING, 2 NOT_SERVING, -1 NOT_FOUND */
    } cases[] = {
        {"", 1},
        {"inference.GRPCInferenceService", 1},
        {"grpc.health.v1.Health", 1},
        {"test.Echo", 2},
        {"test.Other", -1},
        {"tensorflow.serving.PredictionService", -1}, /* no such model in the catalogue */
        {"model:digits", 1},
        {"model:digits/1", 1},
        {"model:digits/2", 2},
        {"model:digits/canary", 2},
        {"model:digits/3", -1},
        {"model:nope", -1},
        {"model:nope/1", -1},
        {"model:", -1},
        {"model:/", -1},
        {"model:echo", 2},
        {"digits", -1},
    };
    struct fixture *const f = *state;

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        uint8_t q[130];

        unary(f, "/grpc.health.v1.Health/Check", q, field(q, 1, cases[i].name));
        if (cases[i].serving < 0) {
            assert_int_equal(f->seen.status, 5);
            assert_int_equal(f->seen.n_messages, 0);
        } else {
            assert_answer(f, cases[i].serving == 1 ? "\x08\x01" : "\x08\x02", 2);
        }
    }
    unary(f, "/grpc.health.v1.Health/Check", NULL, 0); /* the empty message is "" */
    assert_answer(f, "\x08\x01", 2);
}

static void watch_tells_changes_and_only_changes(void **state)
{
    struct fixture *const f = *state;
    struct local_call *const c = open_call(f, "/grpc.health.v1.Health/Watch");
    uint8_t q[130];

    local_on_message(c, q, field(q, 1, "model:digits/canary"));
    local_on_end(c);
    assert_int_equal(f->seen.n_messages, 1);
    assert_memory_equal(f->seen.last.data, "\x08\x02", 2);
    publish(f);
    assert_int_equal(f->seen.n_messages, 1);
    f->digits_2 = ENDPOINT_READY;
    publish(f);
    assert_int_equal(f->seen.n_messages, 2);
    assert_memory_equal(f->seen.last.data, "\x08\x01", 2);
    generation_unref(f->g);
    f->g = load("{\"models\":{}}"); /* the model is gone: SERVICE_UNKNOWN, and the call stays */
    struct snapshot *const s = snapshot_build(f->g, 99, NULL, 0, NULL, NULL);
    local_apply(f->l, s);
    snapshot_unref(s);
    assert_int_equal(f->seen.n_messages, 3);
    assert_memory_equal(f->seen.last.data, "\x08\x03", 2);
    assert_int_equal(f->seen.status, -1);
    local_close(c);
}

static void watch_of_an_unknown_name_stays_open(void **state)
{
    struct fixture *const f = *state;
    struct local_call *const c = open_call(f, "/grpc.health.v1.Health/Watch");
    uint8_t q[130];

    local_on_message(c, q, field(q, 1, "nobody"));
    assert_memory_equal(f->seen.last.data, "\x08\x03", 2);
    assert_int_equal(f->seen.status, -1);
    local_close(c);
}

/* Is this run of bytes in the last answer? */
static bool holds(const struct fixture *f, const void *bytes, size_t len)
{
    return memmem(f->seen.last.data, f->seen.last.len, bytes, len) != NULL;
}

static void list_has_every_name(void **state)
{
    struct fixture *const f = *state;
    static const char digits[] = "\x0a\x0cmodel:digits\x12\x02\x08\x01";
    static const char echo[] = "\x0a\x09test.Echo\x12\x02\x08\x02";

    unary(f, "/grpc.health.v1.Health/List", NULL, 0);
    assert_int_equal(f->seen.status, 0);
    assert_true(holds(f, digits, sizeof(digits) - 1));
    assert_true(holds(f, echo, sizeof(echo) - 1));
}

static void kserve_server_calls_are_answered(void **state)
{
    struct fixture *const f = *state;
    uint8_t q[64];
    size_t len;

    unary(f, "/inference.GRPCInferenceService/ServerLive", NULL, 0);
    assert_answer(f, "\x08\x01", 2);
    unary(f, "/inference.GRPCInferenceService/ServerReady", NULL, 0);
    assert_answer(f, "\x08\x01", 2);
    len = field(q, 1, "digits");
    unary(f, "/inference.GRPCInferenceService/ModelReady", q, len);
    assert_answer(f, "\x08\x01", 2);
    unary(f, "/inference.GRPCInferenceService/ModelReady", q, len + field(q + len, 2, "2"));
    assert_answer(f, "", 0); /* false is the default: an empty message */
    unary(f, "/inference.GRPCInferenceService/ModelReady", q, field(q, 1, "nope"));
    assert_answer(f, "", 0);
    unary(f, "/inference.GRPCInferenceService/ServerMetadata", NULL, 0);
    assert_true(holds(f, "\x0a\x08penstock", 10));
    f->digits_1 = ENDPOINT_UNHEALTHY;
    publish(f);
    unary(f, "/inference.GRPCInferenceService/ServerReady", NULL, 0);
    assert_answer(f, "", 0);
}

static void reflection_lists_services_and_hands_out_files(void **state)
{
    static const char *const paths[] = {
        "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
        "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
    };
    struct fixture *const f = *state;
    uint8_t q[130];

    for (size_t i = 0; i < 2; i++) {
        struct local_call *const c = open_call(f, paths[i]);

        local_on_message(c, q, field(q, 7, "*"));
        assert_true(holds(f, "\x0a\x09test.Echo", 11));
        assert_true(holds(f, "\x0a\x1einference.GRPCInferenceService", 32));
        assert_false(holds(f, "tensorflow.serving", 18));
        local_on_message(c, q, field(q, 4, "inference.GRPCInferenceService.ModelInfer"));
        assert_true(holds(f, "kserve_v2.proto", 15));
        local_on_message(c, q, field(q, 3, "kserve_v2.proto"));
        assert_true(holds(f, "ModelStreamInfer", 16));
        local_on_message(c, q, field(q, 4, "no.such.Symbol"));
        assert_true(holds(f, "\x3a", 1) && holds(f, "\x08\x05", 2)); /* error_response NOT_FOUND */
        assert_true(holds(f, "no.such.Symbol", 14));                 /* original_request */
        local_on_message(c, q, field(q, 6, "inference.ModelInferRequest"));
        assert_true(holds(f, "\x2a\x1d\x0a\x1binference.ModelInferRequest", 31));
        assert_int_equal(f->seen.n_messages, 5);
        assert_int_equal(f->seen.status, -1);
        local_on_end(c);
        assert_int_equal(f->seen.status, 0);
        local_close(c);
    }
}

/* tensorflow_serving.proto imports tensorflow_tensor.proto and google/protobuf/wrappers.proto. */
static void a_file_comes_with_all_that_it_imports(void **state)
{
    struct fixture *const f = *state;
    struct local_call *const c =
        open_call(f, "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo");
    uint8_t q[130];

    local_on_message(c, q, field(q, 4, "tensorflow.serving.PredictRequest"));
    assert_true(holds(f, "\x0a\x18tensorflow_serving.proto", 26));
    assert_true(holds(f, "\x0a\x17tensorflow_tensor.proto", 25));
    assert_true(holds(f, "\x0a\x1egoogle/protobuf/wrappers.proto", 32));
    local_close(c);
}

static void bad_requests_end_the_call_and_nothing_else(void **state)
{
    struct fixture *const f = *state;
    static uint8_t big[LOCAL_MESSAGE_BYTES + 1];
    struct local_call *c;

    unary(f, "/grpc.health.v1.Health/Check", (const uint8_t *)"\x0a\x7f", 2);
    assert_int_equal(f->seen.status, 13);
    unary(f, "/grpc.health.v1.Health/Check", big, sizeof(big));
    assert_int_equal(f->seen.status, 8);
    c = open_call(f, "/grpc.health.v1.Health/Check");
    local_on_end(c);
    assert_int_equal(f->seen.status, 13);
    local_close(c);
    c = open_call(f, "/grpc.health.v1.Health/Watch");
    local_on_message(c, NULL, 0);
    local_on_message(c, NULL, 0);
    assert_int_equal(f->seen.status, 13);
    local_on_message(c, NULL, 0); /* after the end: ignored */
    publish(f);
    assert_int_equal(f->seen.n_messages, 1);
    local_close(c);
}

static void other_paths_are_not_answered_here(void **state)
{
    static const char *const paths[] = {
        "/inference.GRPCInferenceService/ModelInfer",
        "/inference.GRPCInferenceService/ServerLiv",
        "/inference.GRPCInferenceService/ServerLive2",
        "/grpc.health.v1.Health",
        "/Check",
        "/",
        "",
        "/test.Echo/Check",
    };
    struct fixture *const f = *state;

    for (size_t i = 0; i < sizeof(paths) / sizeof(paths[0]); i++)
        assert_null(local_find(f->l, paths[i], strlen(paths[i])));
}

static void relay_answers_nothing_itself(void **state)
{
    struct fixture *const f = *state;
    static const char *const to[] = {"127.0.0.1:1"};
    struct conf_problems problems;

    conf_problems_init(&problems);
    generation_unref(f->g);
    f->g = generation_for_relay(to, 1, POLICY_P2C, NULL, &problems);
    struct snapshot *const s = snapshot_build(f->g, 99, NULL, 0, NULL, NULL);
    local_apply(f->l, s);
    snapshot_unref(s);
    conf_problems_fini(&problems);
    assert_null(local_find(f->l, "/grpc.health.v1.Health/Check", 28));
    assert_null(local_find(f->l, "/inference.GRPCInferenceService/ServerLive", 42));
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        CASE(check_knows_the_server_services_models_and_versions),
        CASE(watch_tells_changes_and_only_changes),
        CASE(watch_of_an_unknown_name_stays_open),
        CASE(list_has_every_name),
        CASE(kserve_server_calls_are_answered),
        CASE(reflection_lists_services_and_hands_out_files),
        CASE(a_file_comes_with_all_that_it_imports),
        CASE(bad_requests_end_the_call_and_nothing_else),
        CASE(other_paths_are_not_answered_here),
        CASE(relay_answers_nothing_itself),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
