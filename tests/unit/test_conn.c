#include "net/conn.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/check.h"

/* One loop, one listener, an echo server: each payload goes back as it came, trailers at the end.
 */
struct fixture {
    struct loop loop;
    ev_io listener;
    int listen_fd;
    struct net_addr addr;
    struct conn *server, *client;
    unsigned n_server_closed, n_client_closed, n_ready;
    char client_why[128], server_why[128];
    size_t sent, got, want;
    bool got_headers, got_trailers;
    uint64_t sum_sent, sum_got;
    unsigned n_close;
    uint32_t close_code;
    bool stop_when_closed;
};

static const struct h2_field request[] = {
    H2_FIELD_INIT(":method", "POST"),
    H2_FIELD_INIT(":scheme", "http"),
    H2_FIELD_INIT(":path", "/test.Echo/Echo"),
    H2_FIELD_INIT(":authority", "localhost"),
    H2_FIELD_INIT("content-type", "application/grpc"),
    H2_FIELD_INIT("te", "trailers"),
};
static const struct h2_field response[] = {
    H2_FIELD_INIT(":status", "200"),
    H2_FIELD_INIT("content-type", "application/grpc"),
};
static const struct h2_field trailers[] = {H2_FIELD_INIT("grpc-status", "0")};

static void srv_headers(void *user, struct h2_stream *s, enum h2_block kind,
                        const struct h2_field *fields, size_t n, bool end)
{
    (void)user;
    assert_int_equal(kind, H2_REQUEST);
    assert_int_equal(n, ARRAY_LEN(request));
    for (size_t i = 0; i < n; i++) {
        assert_int_equal(fields[i].value_len, request[i].value_len);
        assert_memory_equal(fields[i].value, request[i].value, fields[i].value_len);
    }
    assert_false(end);
    h2_send_headers(s, H2_RESPONSE, response, ARRAY_LEN(response), false);
}

static void srv_data(void *user, struct h2_stream *s, struct slab *slab, const uint8_t *p,
                     size_t len, bool end)
{
    (void)user;
    h2_send_data(s, slab, p, len, false);
    h2_consume(s, len);
    if (end)
        h2_send_headers(s, H2_TRAILERS, trailers, ARRAY_LEN(trailers), true);
}

static void srv_closed(void *user, const char *why)
{
    struct fixture *f = user;

    f->n_server_closed++;
    f->server = NULL;
    snprintf(f->server_why, sizeof(f->server_why), "%s", why);
    if (f->n_client_closed > 0 || f->stop_when_closed)
        loop_stop(&f->loop);
}

static const struct conn_ops srv_ops = {
    .h2 = {.on_headers = srv_headers, .on_data = srv_data},
    .on_closed = srv_closed,
};

static void on_accept(struct ev_loop *ev, ev_io *w, int revents)
{
    struct fixture *f = container_of(w, struct fixture, listener);
    struct conn_conf conf;
    struct net_addr peer, asked;
    int fd = net_accept(w->fd, &peer);

    (void)ev;
    (void)revents;
    assert_true(fd >= 0);
    net_addr_of_peer(fd, &asked);
    assert_string_equal(peer.text, asked.text);
    assert_int_equal(peer.sa_len, asked.sa_len);
    assert_memory_equal(&peer.sa, &asked.sa, asked.sa_len);
    conn_conf_default(&conf);
    f->server = conn_accept(&f->loop, fd, &peer, &conf, &srv_ops, f);
}

static void cli_send_more(struct fixture *f, struct h2_stream *s)
{
    uint8_t piece[50000];

    while (f->sent < f->want && h2_stream_queued(s) < 200000) {
        size_t len = f->want - f->sent < sizeof(piece) ? f->want - f->sent : sizeof(piece);

        for (size_t i = 0; i < len; i++) {
            piece[i] = (uint8_t)((f->sent + i) * 7 + ((f->sent + i) >> 8));
            f->sum_sent = f->sum_sent * 31 + piece[i];
        }
        f->sent += len;
        h2_send_data(s, NULL, piece, len, f->sent == f->want);
    }
}

static void cli_headers(void *user, struct h2_stream *s, enum h2_block kind,
                        const struct h2_field *fields, size_t n, bool end)
{
    struct fixture *f = user;

    (void)s;
    (void)fields;
    (void)n;
    if (kind == H2_RESPONSE)
        f->got_headers = true;
    if (kind == H2_TRAILERS) {
        f->got_trailers = true;
        assert_true(end);
    }
}

static void cli_data(void *user, struct h2_stream *s, struct slab *slab, const uint8_t *p,
                     size_t len, bool end)
{
    struct fixture *f = user;

    (void)slab;
    (void)end;
    for (size_t i = 0; i < len; i++)
        f->sum_got = f->sum_got * 31 + p[i];
    f->got += len;
    h2_consume(s, len);
}

static void cli_sent(void *user, struct h2_stream *s, size_t bytes)
{
    (void)bytes;
    cli_send_more(user, s);
}

static void cli_stream_close(void *user, struct h2_stream *s, uint32_t code, bool by_peer)
{
    struct fixture *f = user;

    (void)s;
    (void)by_peer;
    f->n_close++;
    f->close_code = code;
    conn_drain(f->client);
}

static void cli_ready(void *user)
{
    struct fixture *f = user;
    struct h2_stream *s;

    f->n_ready++;
    s = h2_open(conn_h2(f->client), request, ARRAY_LEN(request), false, NULL);
    assert_non_null(s);
    cli_send_more(f, s);
}

static void cli_closed(void *user, const char *why)
{
    struct fixture *f = user;

    f->n_client_closed++;
    f->client = NULL;
    snprintf(f->client_why, sizeof(f->client_why), "%s", why);
    if (f->n_server_closed > 0 || f->stop_when_closed)
        loop_stop(&f->loop);
}

static const struct conn_ops cli_ops = {
    .h2 = {.on_headers = cli_headers,
           .on_data = cli_data,
           .on_sent = cli_sent,
           .on_close = cli_stream_close},
    .on_ready = cli_ready,
    .on_closed = cli_closed,
};

static void fixture_init(struct fixture *f)
{
    struct net_addr any;

    memset(f, 0, sizeof(*f));
    loop_init(&f->loop, NULL);
    assert_int_equal(net_addr_parse(&any, "127.0.0.1:0", NULL), 0);
    f->listen_fd = net_listen(&any, false, NULL);
    assert_true(f->listen_fd >= 0);
    net_addr_of_socket(f->listen_fd, &f->addr);
    ev_io_init(&f->listener, on_accept, f->listen_fd, EV_READ);
    ev_io_start(f->loop.ev, &f->listener);
}

static void fixture_fini(struct fixture *f)
{
    ev_io_stop(f->loop.ev, &f->listener);
    if (f->listen_fd >= 0)
        close(f->listen_fd);
    loop_fini(&f->loop);
}

static void echo(size_t bytes)
{
    struct fixture f;
    struct conn_conf conf;

    fixture_init(&f);
    f.want = bytes;
    conn_conf_default(&conf);
    f.client = conn_dial(&f.loop, &f.addr, &conf, &cli_ops, &f);
    loop_run(&f.loop);
    assert_int_equal(f.n_ready, 1);
    assert_int_equal(f.n_close, 1);
    assert_int_equal(f.close_code, H2_NO_ERROR);
    assert_true(f.got_headers);
    assert_true(f.got_trailers);
    assert_int_equal(f.got, bytes);
    assert_true(f.sum_got == f.sum_sent);
    assert_int_equal(f.n_client_closed, 1);
    assert_int_equal(f.n_server_closed, 1);
    fixture_fini(&f);
}

static void small_message_comes_back_whole(void **state)
{
    (void)state;
    echo(133);
}

static void message_larger_than_every_window_comes_back_whole(void **state)
{
    (void)state;
    echo(20 * 1024 * 1024 + 17);
}

static void dial_to_a_closed_port_ends_with_one_on_closed(void **state)
{
    struct fixture f;
    struct conn_conf conf;

    (void)state;
    fixture_init(&f);
    ev_io_stop(f.loop.ev, &f.listener);
    close(f.listen_fd);
    f.listen_fd = -1;
    f.stop_when_closed = true;
    conn_conf_default(&conf);
    f.client = conn_dial(&f.loop, &f.addr, &conf, &cli_ops, &f);
    loop_run(&f.loop);
    assert_int_equal(f.n_client_closed, 1);
    assert_int_equal(f.n_ready, 0);
    assert_string_equal(f.client_why, "connect: Connection refused");
    fixture_fini(&f);
}

static void raw_client_says(struct fixture *f, const char *text, char *answer, size_t size)
{
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    ssize_t n;

    fixture_init(f);
    f->stop_when_closed = true;
    assert_int_equal(connect(fd, (struct sockaddr *)&f->addr.sa, f->addr.sa_len), 0);
    assert_int_equal(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    loop_run(&f->loop);
    n = read(fd, answer, size - 1);
    answer[n > 0 ? n : 0] = '\0';
    close(fd);
    fixture_fini(f);
}

static void http1_client_is_told_the_protocol(void **state)
{
    struct fixture f;
    char answer[512];

    (void)state;
    raw_client_says(&f, "GET / HTTP/1.1\r\nhost: x\r\n\r\n", answer, sizeof(answer));
    assert_int_equal(strncmp(answer, "HTTP/1.1 505 ", 13), 0);
    assert_non_null(strstr(answer, "HTTP/2 (gRPC) only"));
    assert_string_equal(f.server_why, "the client speaks HTTP/1");
}

static void tls_client_on_a_cleartext_port_is_named(void **state)
{
    struct fixture f;
    char answer[512];

    (void)state;
    raw_client_says(&f, "\x16\x03\x01\x02", answer, sizeof(answer));
    assert_string_equal(f.server_why, "the client speaks TLS to a cleartext port");
}

static void bad_preface_closes_the_connection(void **state)
{
    struct fixture f;
    char answer[512];

    (void)state;
    raw_client_says(&f, "PRI * HTTP/2.0\r\n\r\nXX\r\n\r\n", answer, sizeof(answer));
    assert_int_equal(f.n_server_closed, 1);
}

/* A close with unread bytes is an RST, and that makes the peer's kernel drop what it has not read.
 */
static void late_bytes_do_not_reset_what_was_said_last(void **state)
{
    static const char start[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
                                "\0\0\0\x04\0\0\0\0\0"        /* SETTINGS */
                                "\xff\xff\xff\x01\0\0\0\0\1"; /* head of a frame over the limit */
    struct fixture f;
    char answer[512], late[20000] = {0};
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    ssize_t n, len = 0;

    (void)state;
    fixture_init(&f);
    f.stop_when_closed = true;
    assert_int_equal(connect(fd, (struct sockaddr *)&f.addr.sa, f.addr.sa_len), 0);
    assert_int_equal(write(fd, start, sizeof(start) - 1), sizeof(start) - 1);
    loop_run(&f.loop);
    assert_int_equal(f.n_server_closed, 1);
    assert_int_equal(write(fd, late, sizeof(late)), sizeof(late));
    loop_turn(&f.loop);
    assert_int_equal(f.loop.n_lingering, 1);
    while ((n = read(fd, answer + len, sizeof(answer) - (size_t)len)) > 0)
        len += n;
    assert_int_equal(n, 0); /* not ECONNRESET */
    assert_true(len > 17);
    close(fd);
    while (f.loop.n_lingering > 0) /* the peer has ended: so do we */
        loop_turn(&f.loop);
    fixture_fini(&f);
}

static void peer_that_stays_after_our_end_is_left(void **state)
{
    struct fixture f;
    char answer[512];
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    uint64_t began_us;

    (void)state;
    fixture_init(&f);
    f.stop_when_closed = true;
    assert_int_equal(connect(fd, (struct sockaddr *)&f.addr.sa, f.addr.sa_len), 0);
    assert_int_equal(write(fd, "GET / HTTP/1.1\r\n", 16), 16);
    loop_run(&f.loop);
    assert_int_equal(f.loop.n_lingering, 1);
    began_us = loop_refresh(&f.loop);
    while (f.loop.n_lingering > 0)
        loop_turn(&f.loop);
    assert_true(loop_refresh(&f.loop) - began_us < 3000000);
    assert_true(read(fd, answer, sizeof(answer)) > 0);
    close(fd);
    fixture_fini(&f);
}

static void addresses_that_do_not_parse_name_the_rule(void **state)
{
    static const char *const bad[] = {
        "",      "host",        "127.0.0.1:", "::1:80", "[::1:80", "127.0.0.1:99999", "127.0.0.1:x",
        "unix:", "127.0.0.1:-1"};
    struct net_addr a;
    struct err err;

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        err.text[0] = '\0';
        assert_int_equal(net_addr_parse(&a, bad[i], &err), -EINVAL);
        assert_true(err.text[0] != '\0');
    }
    assert_int_equal(net_addr_parse(&a, "[::1]:80", NULL), 0);
    assert_int_equal(net_addr_parse(&a, "unix:/tmp/x.sock", NULL), 0);
    assert_string_equal(a.text, "unix:/tmp/x.sock");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(small_message_comes_back_whole),
        cmocka_unit_test(message_larger_than_every_window_comes_back_whole),
        cmocka_unit_test(dial_to_a_closed_port_ends_with_one_on_closed),
        cmocka_unit_test(http1_client_is_told_the_protocol),
        cmocka_unit_test(tls_client_on_a_cleartext_port_is_named),
        cmocka_unit_test(bad_preface_closes_the_connection),
        cmocka_unit_test(late_bytes_do_not_reset_what_was_said_last),
        cmocka_unit_test(peer_that_stays_after_our_end_is_left),
        cmocka_unit_test(addresses_that_do_not_parse_name_the_rule),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
