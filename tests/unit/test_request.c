#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "gateway/request.h"

static struct h2_field field(const char *name, const char *value)
{
    return (struct h2_field){.name = name,
                             .value = value,
                             .name_len = (uint32_t)strlen(name),
                             .value_len = (uint32_t)strlen(value)};
}

static int setup(void **state)
{
    static struct arena arena;

    arena_init(&arena, 65536);
    *state = &arena;
    return 0;
}

static int teardown(void **state)
{
    arena_fini(*state);
    return 0;
}

/* As grpc core sends them (order measured: path, authority, method, scheme). */
static size_t grpc_core_fields(struct h2_field *f)
{
    size_t n = 0;

    f[n++] = field(":path", "/test.Echo/Unary");
    f[n++] = field(":authority", "localhost");
    f[n++] = field(":method", "POST");
    f[n++] = field(":scheme", "http");
    f[n++] = field("content-type", "application/grpc");
    f[n++] = field("te", "trailers");
    f[n++] = field("grpc-accept-encoding", "identity, deflate, gzip");
    return n;
}

static enum request_fault fault_with(void **state, const char *name, const char *value)
{
    struct h2_field f[16];
    struct request_head head;
    size_t n = grpc_core_fields(f);

    for (size_t i = 0; i < n; i++) {
        if (strcmp(f[i].name, name) == 0) {
            f[i] = field(name, value);
            return request_read(&head, *state, f, n);
        }
    }
    f[n++] = field(name, value);
    return request_read(&head, *state, f, n);
}

static void wrong_requests_are_told_apart(void **state)
{
    assert_int_equal(fault_with(state, "a", "b"), REQUEST_OK);
    assert_int_equal(fault_with(state, ":method", "GET"), REQUEST_NOT_POST);
    assert_int_equal(fault_with(state, "content-type", "application/json"), REQUEST_NOT_GRPC);
    assert_int_equal(fault_with(state, "content-type", "application/grpc+proto"), REQUEST_OK);
    assert_int_equal(fault_with(state, ":path", "/nothing"), REQUEST_BAD_PATH);
    assert_int_equal(fault_with(state, "grpc-timeout", "100000000m"), REQUEST_BAD_TIMEOUT);
    assert_int_equal(fault_with(state, "grpc-timeout", "1M"), REQUEST_OK);
}

static const struct request_edits as_it_is = {.https = false};

static bool has(const struct h2_field *f, size_t n, const char *name, const char *value)
{
    for (size_t i = 0; i < n; i++) {
        if (field_is(&f[i], name, strlen(name)) && f[i].value_len == strlen(value) &&
            memcmp(f[i].value, value, f[i].value_len) == 0)
            return true;
    }
    return false;
}

static void an_attempt_keeps_order_and_duplicates_and_ends_hop_fields(void **state)
{
    struct h2_field f[16], out[16 + REQUEST_EXTRA_FIELDS];
    struct request_head head;
    size_t n = grpc_core_fields(f);

    f[n++] = field("x-a", "1");
    f[n++] = field("keep-alive", "timeout=5");
    f[n++] = field("x-a", "2");
    f[n++] = field("x-bin", "AAE");
    f[n - 1].flags = H2_FIELD_NO_INDEX;
    f[n++] = field("grpc-trace-bin", "AAAA");
    assert_int_equal(request_read(&head, *state, f, n), REQUEST_OK);

    const size_t m = request_fields(&head, out, &as_it_is);

    assert_int_equal(m, n - 1); /* keep-alive is gone; te is ours, at the end */
    assert_true(has(out, m, "te", "trailers"));
    assert_false(has(out, m, "keep-alive", "timeout=5"));
    assert_true(has(out, m, "grpc-trace-bin", "AAAA"));
    assert_memory_equal(out[0].name, ":path", 5);
    assert_memory_equal(out[6].value, "1", 1);
    assert_memory_equal(out[7].value, "2", 1);
    assert_int_equal(out[8].flags, H2_FIELD_NO_INDEX);
}

static void our_timeout_and_attempt_count_replace_the_client_s_and_no_length_is_promised(
    void **state)
{
    const struct request_edits edits = {
        .https = true, .timeout = "299998u", .previous_attempts = "2"};
    struct h2_field f[16], out[16 + REQUEST_EXTRA_FIELDS];
    struct request_head head;
    size_t n = grpc_core_fields(f), m;

    f[n++] = field("grpc-timeout", "300m");
    f[n++] = field("grpc-previous-rpc-attempts", "1");
    f[n++] = field("content-length", "12");
    assert_int_equal(request_read(&head, *state, f, n), REQUEST_OK);
    assert_int_equal(head.timeout_us, 300000);
    m = request_fields(&head, out, &edits);
    assert_true(has(out, m, "grpc-timeout", "299998u"));
    assert_true(has(out, m, ":scheme", "https"));
    assert_false(has(out, m, ":scheme", "http"));
    assert_false(has(out, m, "grpc-timeout", "300m"));
    assert_true(has(out, m, "grpc-previous-rpc-attempts", "2"));
    assert_false(has(out, m, "grpc-previous-rpc-attempts", "1"));
    assert_false(has(out, m, "content-length", "12"));
    m = request_fields(&head, out, &as_it_is);
    assert_true(has(out, m, "grpc-timeout", "300m"));
    assert_false(has(out, m, "content-length", "12"));
}

/* Whole, and as a set with loose fields behind it: the two ways that a request is read. */
static void who_a_client_is_says_its_certificate_alone(void **state)
{
    struct h2_field f[16], out[24], loose_out[4];
    struct request_head head;
    struct request_loose loose;
    size_t n = grpc_core_fields(f);

    f[n++] = field("penstock-tenant", "spoofed");
    f[n++] = field("x-forwarded-client-cert", "spoofed");
    f[n++] = field("penstock-tenants", "another name");
    assert_int_equal(request_read(&head, *state, f, n), REQUEST_OK);
    n = request_fields(&head, out, &(struct request_edits){.tenant = NULL});
    assert_false(has(out, n, "penstock-tenant", "spoofed"));
    assert_false(has(out, n, "x-forwarded-client-cert", "spoofed"));
    assert_true(has(out, n, "penstock-tenants", "another name"));
    n = request_fields(&head, out, &(struct request_edits){.tenant = "team-a"});
    assert_true(has(out, n, "penstock-tenant", "team-a"));
    assert_true(request_read_loose(&head, loose_out, &f[7], 3, &loose));
    assert_int_equal(loose.n, 1);
    assert_true(has(loose_out, loose.n, "penstock-tenants", "another name"));
}

static void our_own_hint_wins_over_other_systems_names_for_it(void **state)
{
    struct h2_field f[16];
    struct request_head head;
    size_t n = grpc_core_fields(f);

    f[n++] = field("mm-model-id", "a");
    f[n++] = field("seldon-model", "b");
    assert_int_equal(request_read(&head, *state, f, n), REQUEST_OK);
    assert_memory_equal(head.model_hint->value, "a", 1);
    f[n++] = field("penstock-model", "c");
    assert_int_equal(request_read(&head, *state, f, n), REQUEST_OK);
    assert_memory_equal(head.model_hint->value, "c", 1);
}

/* In one block of memory, as a remembered header block has its strings, mixed with others. */
static void copies_are_like_the_originals(void **state)
{
    static const char block[] = ":path/s/mx-emptytetrailers";
    static const char apart[] = "valuex-id";
    const struct h2_field fields[] = {
        {.name = block, .name_len = 5, .value = block + 5, .value_len = 4},
        {.name = block + 9, .name_len = 7, .value = block + 16, .value_len = 0},
        {.name = block + 16, .name_len = 2, .value = block + 18, .value_len = 8},
        {.name = apart + 5,
         .name_len = 4,
         .value = apart,
         .value_len = 5,
         .flags = H2_FIELD_NO_INDEX},
        {.name = block, .name_len = 5, .value = apart, .value_len = 0},
    };
    struct arena arena;

    (void)state;
    arena_init(&arena, 10000);
    for (size_t from = 0; from < ARRAY_LEN(fields); from++) {
        for (size_t n = 0; from + n <= ARRAY_LEN(fields); n++) {
            const struct h2_field *copy = fields_copy(&arena, fields + from, n);

            assert_non_null(copy);
            for (size_t i = 0; i < n; i++) {
                const struct h2_field *want = &fields[from + i];

                assert_int_equal(copy[i].name_len, want->name_len);
                assert_int_equal(copy[i].value_len, want->value_len);
                assert_int_equal(copy[i].flags, want->flags);
                assert_true(copy[i].name != want->name);
                assert_memory_equal(copy[i].name, want->name, want->name_len);
                assert_memory_equal(copy[i].value, want->value, want->value_len);
            }
        }
    }
    arena_fini(&arena);
}

static void a_full_arena_is_an_outcome(void **state)
{
    struct h2_field f[16];
    struct request_head head;
    struct arena tiny;

    (void)state;
    arena_init(&tiny, 64);
    request_read(&head, &tiny, f, grpc_core_fields(f));
    assert_null(head.fields);
    arena_fini(&tiny);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wrong_requests_are_told_apart),
        cmocka_unit_test(who_a_client_is_says_its_certificate_alone),
        cmocka_unit_test(an_attempt_keeps_order_and_duplicates_and_ends_hop_fields),
        cmocka_unit_test(
            our_timeout_and_attempt_count_replace_the_client_s_and_no_length_is_promised),
        cmocka_unit_test(our_own_hint_wins_over_other_systems_names_for_it),
        cmocka_unit_test(copies_are_like_the_originals),
        cmocka_unit_test(a_full_arena_is_an_outcome),
    };

    return cmocka_run_group_tests(tests, setup, teardown);
}
