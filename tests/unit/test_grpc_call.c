/* The gRPC client against the gRPC server, over loopback, in one loop. */
#include "net/grpc_client.h"
#include "net/grpc_server.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/check.h"
#include "base/xalloc.h"
#include "net/grpc_message.h"
#include "proto/grpc.h"

struct fixture {
    struct loop loop;
    struct grpc_server *server;
    struct grpc_channel *channel;
    /* server side */
    unsigned n_started, n_done, n_cancelled;
    struct srv_call *last_call;
    size_t srv_bytes;
    /* client side */
    unsigned n_messages, n_ended, want_ended;
    size_t bytes;
    int status;
    char message[256];
    char trailer[64];
    char header[64];
    char first[64];
    struct grpc_call *call;
    size_t left; /* of a stream that the client sends */
};

/* ---- server methods ---- */

static void echo_start(void *arg, struct srv_call *c)
{
    struct fixture *f = arg;

    f->n_started++;
    f->last_call = c;
    srv_call_set_user(c, f);
}

static void echo_message(struct srv_call *c, const uint8_t *p, size_t len, bool compressed)
{
    struct fixture *f = srv_call_user(c);

    assert_false(compressed);
    f->srv_bytes += len;
    srv_call_send(c, p, len);
}

static void echo_half_close(struct srv_call *c)
{
    const struct h2_field t = H2_FIELD("x-trailer", "seen");

    srv_call_finish(c, GRPC_OK, NULL, &t, 1);
}

static void count_done(struct srv_call *c, bool cancelled)
{
    struct fixture *f = srv_call_user(c);

    f->n_done++;
    f->n_cancelled += cancelled;
    f->last_call = NULL;
}

static const struct srv_ops echo_ops = {
    .on_start = echo_start,
    .on_message = echo_message,
    .on_half_close = echo_half_close,
    .on_done = count_done,
};

static void fail_start(void *arg, struct srv_call *c)
{
    echo_start(arg, c);
    srv_call_finish(c, GRPC_FAILED_PRECONDITION, "no: 100 % \"d\xc3\xa9j\xc3\xa0 vu\"\n", NULL, 0);
}

static const struct srv_ops fail_ops = {.on_start = fail_start, .on_done = count_done};

static void silent_message(struct srv_call *c, const uint8_t *p, size_t len, bool compressed)
{
    (void)c;
    (void)p;
    (void)len;
    (void)compressed;
}

static const struct srv_ops silent_ops = {
    .on_start = echo_start, .on_message = silent_message, .on_done = count_done};

static void headers_start(void *arg, struct srv_call *c)
{
    struct h2_field h = H2_FIELD("x-seen", "");
    const char *value = srv_call_metadata(c, "x-ask");

    echo_start(arg, c);
    h.value = value != NULL ? value : "none";
    h.value_len = (uint32_t)strlen(h.value);
    srv_call_send_headers(c, &h, 1);
}

static const struct srv_ops headers_ops = {.on_start = headers_start,
                                           .on_message = echo_message,
                                           .on_half_close = echo_half_close,
                                           .on_done = count_done};

/* Sends as long as the client takes it. */
static void flood_more(struct srv_call *c)
{
    struct fixture *f = srv_call_user(c);
    static const uint8_t piece[10000];

    while (f->srv_bytes < 4000000 && srv_call_queued(c) < SRV_SEND_HIGH) {
        srv_call_send(c, piece, sizeof(piece));
        f->srv_bytes += sizeof(piece);
    }
    if (f->srv_bytes >= 4000000)
        srv_call_finish(c, GRPC_OK, NULL, NULL, 0);
    else /* one more, so that on_writable is owed */
        srv_call_send(c, piece, 0);
}

static void flood_start(void *arg, struct srv_call *c)
{
    echo_start(arg, c);
    flood_more(c);
}

static const struct srv_ops flood_ops = {
    .on_start = flood_start, .on_writable = flood_more, .on_done = count_done};

/* ---- client ---- */

static void cli_headers(void *user, struct grpc_call *c, const struct h2_field *fields, size_t n)
{
    struct fixture *f = user;

    (void)c;
    for (size_t i = 0; i < n; i++)
        if (fields[i].name_len == 6 && memcmp(fields[i].name, "x-seen", 6) == 0)
            snprintf(f->header, sizeof(f->header), "%.*s", (int)fields[i].value_len,
                     fields[i].value);
}

static void cli_message(void *user, struct grpc_call *c, const uint8_t *p, size_t len,
                        bool compressed)
{
    struct fixture *f = user;

    (void)c;
    assert_false(compressed);
    if (f->n_messages++ == 0)
        snprintf(f->first, sizeof(f->first), "%.*s", (int)(len < 60 ? len : 60), (const char *)p);
    f->bytes += len;
}

static void cli_end(void *user, struct grpc_call *c, int status, const char *message,
                    const struct h2_field *trailers, size_t n)
{
    struct fixture *f = user;

    (void)c;
    f->status = status;
    snprintf(f->message, sizeof(f->message), "%s", message);
    for (size_t i = 0; i < n; i++)
        if (trailers[i].name_len == 9 && memcmp(trailers[i].name, "x-trailer", 9) == 0)
            snprintf(f->trailer, sizeof(f->trailer), "%.*s", (int)trailers[i].value_len,
                     trailers[i].value);
    if (++f->n_ended == f->want_ended)
        loop_stop(&f->loop);
}

static void cli_writable(void *user, struct grpc_call *c)
{
    struct fixture *f = user;
    static const uint8_t piece[70000];

    while (f->left > 0 && grpc_call_queued(c) <= GRPC_SEND_HIGH) {
        const size_t len = f->left < sizeof(piece) ? f->left : sizeof(piece);

        f->left -= len;
        grpc_call_send(c, piece, len, f->left == 0);
    }
}

static const struct grpc_call_ops cli_ops = {.on_headers = cli_headers,
                                             .on_message = cli_message,
                                             .on_writable = cli_writable,
                                             .on_end = cli_end};

static void fixture_init(struct fixture *f, const struct grpc_server_conf *server_conf)
{
    const struct srv_method methods[] = {
        {"/t.T/Echo", &echo_ops, f},       {"/t.T/Fail", &fail_ops, f},
        {"/t.T/Silent", &silent_ops, f},   {"/t.T/Flood", &flood_ops, f},
        {"/t.T/Headers", &headers_ops, f},
    };
    struct grpc_server_conf sc;
    struct grpc_channel_conf cc;
    struct net_addr any;

    memset(f, 0, sizeof(*f));
    f->want_ended = 1;
    loop_init(&f->loop, NULL);
    assert_int_equal(net_addr_parse(&any, "127.0.0.1:0", NULL), 0);
    grpc_server_conf_default(&sc);
    f->server = grpc_server_new(&f->loop, &any, server_conf != NULL ? server_conf : &sc, methods,
                                ARRAY_LEN(methods), NULL);
    assert_non_null(f->server);
    grpc_channel_conf_default(&cc);
    f->channel = grpc_channel_new(&f->loop, grpc_server_addr(f->server), &cc);
}

static void fixture_fini(struct fixture *f)
{
    f->channel = grpc_channel_free(f->channel);
    f->server = grpc_server_free(f->server);
    loop_fini(&f->loop);
    assert_int_equal(f->n_done, f->n_started);
}

static void unary(struct fixture *f, const char *path, const void *message, size_t len)
{
    const struct grpc_call_conf conf = {.path = path};

    f->call = grpc_call_unary(f->channel, &conf, message, len, &cli_ops, f);
    loop_run(&f->loop);
}

static void unary_call_returns_message_status_and_trailers(void **state)
{
    struct fixture f;

    (void)state;
    fixture_init(&f, NULL);
    unary(&f, "/t.T/Echo", "hello", 5);
    assert_int_equal(f.status, GRPC_OK);
    assert_string_equal(f.first, "hello");
    assert_string_equal(f.trailer, "seen");
    assert_int_equal(f.n_messages, 1);
    fixture_fini(&f);
    assert_int_equal(f.n_cancelled, 0);
}

static void empty_message_is_a_message(void **state)
{
    struct fixture f;

    (void)state;
    fixture_init(&f, NULL);
    unary(&f, "/t.T/Echo", "", 0);
    assert_int_equal(f.status, GRPC_OK);
    assert_int_equal(f.n_messages, 1);
    assert_int_equal(f.bytes, 0);
    fixture_fini(&f);
}

static void message_of_many_windows_passes(void **state)
{
    const size_t len = 9 * 1024 * 1024 + 3;
    uint8_t *big = xcalloc(1, len);
    struct fixture f;

    (void)state;
    fixture_init(&f, NULL);
    unary(&f, "/t.T/Echo", big, len);
    assert_int_equal(f.status, GRPC_OK);
    assert_int_equal(f.bytes, len);
    fixture_fini(&f);
    free(big);
}

static void message_over_the_limit_is_resource_exhausted(void **state)
{
    static const uint8_t big[5000];
    struct grpc_server_conf sc;
    struct fixture f;

    (void)state;
    grpc_server_conf_default(&sc);
    sc.max_message_bytes = 4999;
    fixture_init(&f, &sc);
    unary(&f, "/t.T/Echo", big, sizeof(big));
    assert_int_equal(f.status, GRPC_RESOURCE_EXHAUSTED);
    fixture_fini(&f);
    assert_int_equal(f.n_cancelled, 1);
}

static void trailers_only_error_keeps_code_and_text(void **state)
{
    struct fixture f;

    (void)state;
    fixture_init(&f, NULL);
    unary(&f, "/t.T/Fail", "x", 1);
    assert_int_equal(f.status, GRPC_FAILED_PRECONDITION);
    assert_string_equal(f.message, "no: 100 % \"d\xc3\xa9j\xc3\xa0 vu\"\n");
    fixture_fini(&f);
}

static void unknown_method_is_unimplemented(void **state)
{
    struct fixture f;

    (void)state;
    fixture_init(&f, NULL);
    unary(&f, "/t.T/Nothing", "x", 1);
    assert_int_equal(f.status, GRPC_UNIMPLEMENTED);
    fixture_fini(&f);
}

static void metadata_passes_both_ways(void **state)
{
    const struct h2_field md = H2_FIELD("x-ask", "question 7");
    const struct grpc_call_conf conf = {.path = "/t.T/Headers", .metadata = &md, .n_metadata = 1};
    struct fixture f;

    (void)state;
    fixture_init(&f, NULL);
    grpc_call_unary(f.channel, &conf, "", 0, &cli_ops, &f);
    loop_run(&f.loop);
    assert_int_equal(f.status, GRPC_OK);
    assert_string_equal(f.header, "question 7");
    fixture_fini(&f);
}

static void deadline_ends_the_call_on_both_sides(void **state)
{
    struct grpc_call_conf conf = {.path = "/t.T/Silent"};
    struct fixture f;

    (void)state;
    fixture_init(&f, NULL);
    conf.deadline_us = loop_refresh(&f.loop) + 30000;
    grpc_call_unary(f.channel, &conf, "x", 1, &cli_ops, &f);
    loop_run(&f.loop);
    assert_int_equal(f.status, GRPC_DEADLINE_EXCEEDED);
    while (f.n_done == 0)
        loop_turn(&f.loop);
    assert_int_equal(f.n_cancelled, 1);
    fixture_fini(&f);
}

static void cancel_reaches_the_server(void **state)
{
    const struct grpc_call_conf conf = {.path = "/t.T/Silent"};
    struct fixture f;

    (void)state;
    fixture_init(&f, NULL);
    f.call = grpc_call_unary(f.channel, &conf, "x", 1, &cli_ops, &f);
    while (f.n_started == 0)
        loop_turn(&f.loop);
    grpc_call_cancel(f.call);
    assert_int_equal(f.n_ended, 0); /* not from inside */
    loop_run(&f.loop);
    assert_int_equal(f.status, GRPC_CANCELLED);
    while (f.n_done == 0)
        loop_turn(&f.loop);
    assert_int_equal(f.n_cancelled, 1);
    fixture_fini(&f);
}

static void abandoned_call_is_silent_and_cancels(void **state)
{
    const struct grpc_call_conf conf = {.path = "/t.T/Silent"};
    struct fixture f;

    (void)state;
    fixture_init(&f, NULL);
    f.call = grpc_call_unary(f.channel, &conf, "x", 1, &cli_ops, &f);
    while (f.n_started == 0)
        loop_turn(&f.loop);
    grpc_call_abandon(f.call);
    while (f.n_done == 0)
        loop_turn(&f.loop);
    assert_int_equal(f.n_ended, 0);
    assert_int_equal(f.n_cancelled, 1);
    fixture_fini(&f);
}

static void streaming_both_ways_ends_complete(void **state)
{
    const struct grpc_call_conf conf = {.path = "/t.T/Echo"};
    struct fixture f;

    (void)state;
    fixture_init(&f, NULL);
    f.left = 6000000;
    f.call = grpc_call_start(f.channel, &conf, &cli_ops, &f);
    cli_writable(&f, f.call);
    loop_run(&f.loop);
    assert_int_equal(f.status, GRPC_OK);
    assert_int_equal(f.bytes, 6000000);
    assert_int_equal(f.n_messages, (6000000 + 69999) / 70000);
    fixture_fini(&f);
}

static void paused_client_holds_the_server_back(void **state)
{
    const struct grpc_call_conf conf = {.path = "/t.T/Flood"};
    struct fixture f;
    size_t before;

    (void)state;
    fixture_init(&f, NULL);
    f.call = grpc_call_unary(f.channel, &conf, "", 0, &cli_ops, &f);
    grpc_call_pause(f.call);
    for (before = 1; before != f.srv_bytes || before == 0;) { /* until the server stands still */
        before = f.srv_bytes;
        for (int i = 0; i < 20; i++) {
            loop_refresh(&f.loop);
            ev_run(f.loop.ev, EVRUN_NOWAIT);
        }
    }
    assert_int_equal(f.n_messages, 0);
    assert_true(f.srv_bytes <= 1024 * 1024 + 2 * SRV_SEND_HIGH);
    grpc_call_resume(f.call);
    loop_run(&f.loop);
    assert_int_equal(f.status, GRPC_OK);
    assert_int_equal(f.bytes, 4000000);
    fixture_fini(&f);
}

static void call_to_a_dead_address_is_unavailable_and_names_it(void **state)
{
    struct grpc_channel_conf cc;
    struct net_addr dead;
    struct fixture f;

    (void)state;
    fixture_init(&f, NULL);
    dead = *grpc_server_addr(f.server);
    f.channel = grpc_channel_free(f.channel);
    f.server = grpc_server_free(f.server);
    grpc_channel_conf_default(&cc);
    f.channel = grpc_channel_new(&f.loop, &dead, &cc);
    unary(&f, "/t.T/Echo", "x", 1);
    assert_int_equal(f.status, GRPC_UNAVAILABLE);
    assert_non_null(strstr(f.message, dead.text));
    assert_non_null(strstr(f.message, "Connection refused"));
    fixture_fini(&f);
}

static void calls_run_on_while_the_server_drains(void **state)
{
    const struct grpc_call_conf conf = {.path = "/t.T/Echo"};
    struct fixture f;

    (void)state;
    fixture_init(&f, NULL);
    f.call = grpc_call_start(f.channel, &conf, &cli_ops, &f);
    grpc_call_send(f.call, "one", 3, false);
    while (f.n_messages == 0)
        loop_turn(&f.loop);
    grpc_server_drain(f.server, NULL, NULL);
    while (pool_state(grpc_channel_pool(f.channel)) == POOL_UP)
        loop_turn(&f.loop);
    grpc_call_send(f.call, "two", 3, true);
    loop_run(&f.loop);
    assert_int_equal(f.status, GRPC_OK);
    assert_int_equal(f.n_messages, 2);
    while (grpc_server_n_connections(f.server) > 0)
        loop_turn(&f.loop);
    fixture_fini(&f);
    assert_int_equal(f.n_cancelled, 0);
}

static void thousand_calls_at_once_all_end_ok(void **state)
{
    struct grpc_server_conf sc;
    struct fixture f;

    (void)state;
    grpc_server_conf_default(&sc);
    sc.conn.limits.max_concurrent_streams = 37; /* far fewer than there are calls */
    fixture_init(&f, &sc);
    f.want_ended = 1000;
    for (unsigned i = 0; i < 1000; i++) {
        const struct grpc_call_conf conf = {.path = "/t.T/Echo"};

        grpc_call_unary(f.channel, &conf, "x", 1, &cli_ops, &f);
    }
    loop_run(&f.loop);
    assert_int_equal(f.n_started, 1000);
    assert_int_equal(f.n_messages, 1000);
    assert_int_equal(f.status, GRPC_OK);
    assert_true(grpc_server_n_connections(f.server) > 1); /* it grew */
    fixture_fini(&f);
    assert_int_equal(f.n_cancelled, 0);
}

static void http_status_ends_where_its_length_says(void **state)
{
    static const struct {
        const char *bytes; /* what stands in memory; the value is the first len of them */
        uint32_t len;
        int status;
    } rows[] = {{"200", 3, 200}, {"2009", 3, 200}, {"20", 2, 0}, {"2000", 4, 0}, {"2x0", 3, 0}};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        char *bytes = xcalloc(1, rows[i].len); /* no NUL: ASan sees a byte too many */
        struct h2_field f = H2_FIELD(":status", "");

        f.value = memcpy(bytes, rows[i].bytes, rows[i].len);
        f.value_len = rows[i].len;
        assert_int_equal(fields_http_status(&f, 1), rows[i].status);
        free(bytes);
    }
    assert_int_equal(fields_http_status(NULL, 0), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(unary_call_returns_message_status_and_trailers),
        cmocka_unit_test(empty_message_is_a_message),
        cmocka_unit_test(message_of_many_windows_passes),
        cmocka_unit_test(message_over_the_limit_is_resource_exhausted),
        cmocka_unit_test(trailers_only_error_keeps_code_and_text),
        cmocka_unit_test(unknown_method_is_unimplemented),
        cmocka_unit_test(metadata_passes_both_ways),
        cmocka_unit_test(deadline_ends_the_call_on_both_sides),
        cmocka_unit_test(cancel_reaches_the_server),
        cmocka_unit_test(abandoned_call_is_silent_and_cancels),
        cmocka_unit_test(streaming_both_ways_ends_complete),
        cmocka_unit_test(paused_client_holds_the_server_back),
        cmocka_unit_test(call_to_a_dead_address_is_unavailable_and_names_it),
        cmocka_unit_test(calls_run_on_while_the_server_drains),
        cmocka_unit_test(thousand_calls_at_once_all_end_ok),
        cmocka_unit_test(http_status_ends_where_its_length_says),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
