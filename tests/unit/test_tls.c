/* gRPC calls over TLS on loopback, with certificates made here; who is let in and who is not. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>
#include <openssl/err.h>
#include <openssl/ssl.h>

#include "base/check.h"
#include "base/xalloc.h"
#include "net/grpc_client.h"
#include "net/grpc_server.h"
#include "net/tls.h"
#include "proto/grpc.h"
#include "tests/unit/identity.h"

/* ---- certificates ---- */

static struct identity ca, other_ca, server_id, client_id;

static int make_all(void **state)
{
    (void)state;
    if (mkdtemp(dir) == NULL)
        return -1;
    identity_make(&ca, "ca", NULL, NULL);
    identity_make(&other_ca, "other-ca", NULL, NULL);
    identity_make(&server_id, "server", "DNS:replica.test,IP:127.0.0.1", &ca);
    identity_make(&client_id, "client", "URI:spiffe://test/team-a,DNS:team-a.test", &ca);
    return 0;
}

static int drop_all(void **state)
{
    (void)state;
    identity_drop(&ca);
    identity_drop(&other_ca);
    identity_drop(&server_id);
    identity_drop(&client_id);
    return rmdir(dir);
}

/* ---- calls ---- */

struct fixture {
    struct loop loop;
    struct tls_ctx *server_tls, *client_tls;
    struct grpc_server *server;
    struct grpc_channel *channel;
    char peer_name[128];
    size_t bytes;
    bool same;
    int status;
    char message[512];
    const uint8_t *want;
};

static void echo_start(void *arg, struct srv_call *c)
{
    struct fixture *f = arg;

    snprintf(f->peer_name, sizeof(f->peer_name), "%s", conn_peer_name(srv_call_conn(c)));
}

static void echo_message(struct srv_call *c, const uint8_t *p, size_t len, bool compressed)
{
    (void)compressed;
    srv_call_send(c, p, len);
}

static void echo_half_close(struct srv_call *c)
{
    srv_call_finish(c, GRPC_OK, NULL, NULL, 0);
}

static const struct srv_ops echo_ops = {
    .on_start = echo_start, .on_message = echo_message, .on_half_close = echo_half_close};

static void cli_message(void *user, struct grpc_call *c, const uint8_t *p, size_t len,
                        bool compressed)
{
    struct fixture *f = user;

    (void)c;
    (void)compressed;
    f->bytes += len;
    f->same = memcmp(p, f->want, len) == 0;
}

static void cli_end(void *user, struct grpc_call *c, int status, const char *message,
                    const struct h2_field *trailers, size_t n)
{
    struct fixture *f = user;

    (void)c;
    (void)trailers;
    (void)n;
    f->status = status;
    snprintf(f->message, sizeof(f->message), "%s", message);
    loop_stop(&f->loop);
}

static const struct grpc_call_ops cli_ops = {.on_message = cli_message, .on_end = cli_end};

/* server, client: NULL: cleartext. host: what the client wants to see; NULL: the address. */
static void fixture_init(struct fixture *f, const struct tls_conf *server,
                         const struct tls_conf *client, const char *host)
{
    const struct srv_method methods[] = {{"/t.T/Echo", &echo_ops, f}};
    struct grpc_server_conf sc;
    struct grpc_channel_conf cc;
    struct net_addr any;
    struct err err;

    memset(f, 0, sizeof(*f));
    loop_init(&f->loop, NULL);
    grpc_server_conf_default(&sc);
    grpc_channel_conf_default(&cc);
    if (server != NULL) {
        sc.conn.tls = f->server_tls = tls_ctx_new(server, &err);
        assert_non_null(f->server_tls);
    }
    if (client != NULL) {
        cc.pool.conn.tls = f->client_tls = tls_ctx_new(client, &err);
        assert_non_null(f->client_tls);
        cc.pool.conn.tls_host = host;
    }
    assert_int_equal(net_addr_parse(&any, "127.0.0.1:0", NULL), 0);
    f->server = grpc_server_new(&f->loop, &any, &sc, methods, 1, NULL);
    f->channel = grpc_channel_new(&f->loop, grpc_server_addr(f->server), &cc);
}

static void fixture_fini(struct fixture *f)
{
    f->channel = grpc_channel_free(f->channel);
    f->server = grpc_server_free(f->server);
    loop_fini(&f->loop);
    f->server_tls = tls_ctx_unref(f->server_tls);
    f->client_tls = tls_ctx_unref(f->client_tls);
}

static void call(struct fixture *f, size_t len)
{
    const struct grpc_call_conf conf = {.path = "/t.T/Echo"};
    uint8_t *message = xcalloc(1, len + 1);

    for (size_t i = 0; i < len; i++)
        message[i] = (uint8_t)(i * 13 + (i >> 9));
    f->want = message;
    f->bytes = 0;
    grpc_call_unary(f->channel, &conf, message, len, &cli_ops, f);
    loop_run(&f->loop);
    free(message);
}

static struct tls_conf server_conf(bool mutual)
{
    return (struct tls_conf){.server = true,
                             .cert_file = server_id.cert_file,
                             .key_file = server_id.key_file,
                             .ca_file = mutual ? ca.cert_file : NULL};
}

static void calls_of_every_size_pass_unchanged(void **state)
{
    static const size_t sizes[] = {0, 1, 133, 16379, 16384, 100000, 5000000};
    const struct tls_conf server = server_conf(false), client = {.ca_file = ca.cert_file};
    struct fixture f;

    (void)state;
    fixture_init(&f, &server, &client, NULL);
    for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
        call(&f, sizes[i]);
        assert_string_equal(f.message, "");
        assert_int_equal(f.status, GRPC_OK);
        assert_int_equal(f.bytes, sizes[i]);
        assert_true(f.same || sizes[i] == 0);
    }
    assert_string_equal(f.peer_name, "");
    assert_int_equal(grpc_server_n_connections(f.server), 1);
    fixture_fini(&f);
}

static void expect_unavailable(const struct tls_conf *server, const struct tls_conf *client,
                               const char *host, const char *text)
{
    struct fixture f;

    fixture_init(&f, server, client, host);
    call(&f, 10);
    assert_int_equal(f.status, GRPC_UNAVAILABLE);
    if (strstr(f.message, text) == NULL)
        fail_msg("\"%s\" does not say \"%s\"", f.message, text);
    fixture_fini(&f);
}

static void server_of_an_unknown_authority_is_refused(void **state)
{
    const struct tls_conf server = server_conf(false), client = {.ca_file = other_ca.cert_file};

    (void)state;
    expect_unavailable(&server, &client, NULL, "certificate");
}

static void server_with_another_name_is_refused(void **state)
{
    const struct tls_conf server = server_conf(false), client = {.ca_file = ca.cert_file};
    struct fixture f;

    (void)state;
    expect_unavailable(&server, &client, "somebody.else", "hostname mismatch");
    fixture_init(&f, &server, &client, "replica.test");
    call(&f, 10);
    assert_int_equal(f.status, GRPC_OK);
    fixture_fini(&f);
}

static void client_may_choose_not_to_verify(void **state)
{
    const struct tls_conf server = server_conf(false), client = {.no_verify = true};
    struct fixture f;

    (void)state;
    fixture_init(&f, &server, &client, "somebody.else");
    call(&f, 10);
    assert_int_equal(f.status, GRPC_OK);
    fixture_fini(&f);
}

static void client_without_certificate_is_refused_by_mutual_tls(void **state)
{
    const struct tls_conf server = server_conf(true), client = {.ca_file = ca.cert_file};

    (void)state;
    expect_unavailable(&server, &client, NULL, "certificate required");
}

static void clients_verified_name_is_seen_by_the_server(void **state)
{
    const struct tls_conf server = server_conf(true), client = {.ca_file = ca.cert_file,
                                                                .cert_file = client_id.cert_file,
                                                                .key_file = client_id.key_file};
    struct fixture f;

    (void)state;
    fixture_init(&f, &server, &client, NULL);
    call(&f, 10);
    assert_int_equal(f.status, GRPC_OK);
    assert_string_equal(f.peer_name, "spiffe://test/team-a");
    fixture_fini(&f);
}

static void cleartext_and_tls_do_not_meet(void **state)
{
    const struct tls_conf server = server_conf(false), client = {.ca_file = ca.cert_file};

    (void)state;
    expect_unavailable(&server, NULL, NULL, "closed by the peer");
    expect_unavailable(NULL, &client, NULL, "closed by the peer");
}

/* A client of OpenSSL's own that offers HTTP/1.1 only gets the alert of RFC 7301 3.2. */
static void client_that_offers_no_h2_gets_an_alert(void **state)
{
    static const unsigned char http11[] = "\x08http/1.1";
    const struct tls_conf server = server_conf(false);
    struct tls_ctx *ctx = tls_ctx_new(&server, NULL);
    SSL_CTX *raw_ctx = SSL_CTX_new(TLS_client_method());
    SSL *raw = SSL_new(raw_ctx);
    BIO *to = BIO_new(BIO_s_mem()), *from = BIO_new(BIO_s_mem());
    struct slab_pool pool;
    struct outq out;
    struct tls *t;
    struct err err;
    struct iovec iov[4];
    char *hello;
    long len;

    (void)state;
    slab_pool_init(&pool);
    outq_init(&out, &pool);
    t = tls_new(ctx, NULL, &out);
    SSL_set_alpn_protos(raw, http11, sizeof(http11) - 1);
    SSL_set_bio(raw, from, to);
    SSL_set_connect_state(raw);
    assert_true(SSL_do_handshake(raw) < 0);
    len = BIO_get_mem_data(to, &hello);
    tls_feed(t, (const uint8_t *)hello, (size_t)len);
    assert_true(tls_handshake(t, &err) < 0);
    assert_int_equal(outq_iov(&out, iov, 4), 1);
    BIO_write(from, iov[0].iov_base, (int)iov[0].iov_len);
    assert_true(SSL_do_handshake(raw) < 0);
    assert_int_equal(ERR_GET_REASON(ERR_peek_last_error()),
                     SSL_R_TLSV1_ALERT_NO_APPLICATION_PROTOCOL);
    t = tls_free(t);
    outq_fini(&out);
    slab_pool_fini(&pool);
    SSL_free(raw);
    SSL_CTX_free(raw_ctx);
    ctx = tls_ctx_unref(ctx);
}

static void bad_files_are_named(void **state)
{
    struct tls_conf conf = {.server = true, .cert_file = "/nonexistent/x.crt", .key_file = "/y"};
    struct err err;

    (void)state;
    assert_null(tls_ctx_new(&conf, &err));
    assert_non_null(strstr(err.text, "/nonexistent/x.crt"));
    conf = server_conf(false);
    conf.key_file = client_id.key_file;
    assert_null(tls_ctx_new(&conf, &err));
    assert_non_null(strstr(err.text, client_id.key_file));
    conf.key_file = NULL;
    assert_null(tls_ctx_new(&conf, &err));
    conf = (struct tls_conf){.ca_file = server_id.key_file};
    assert_null(tls_ctx_new(&conf, &err));
    assert_non_null(strstr(err.text, server_id.key_file));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(calls_of_every_size_pass_unchanged),
        cmocka_unit_test(server_of_an_unknown_authority_is_refused),
        cmocka_unit_test(server_with_another_name_is_refused),
        cmocka_unit_test(client_may_choose_not_to_verify),
        cmocka_unit_test(client_without_certificate_is_refused_by_mutual_tls),
        cmocka_unit_test(clients_verified_name_is_seen_by_the_server),
        cmocka_unit_test(cleartext_and_tls_do_not_meet),
        cmocka_unit_test(client_that_offers_no_h2_gets_an_alert),
        cmocka_unit_test(bad_files_are_named),
    };

    return cmocka_run_group_tests(tests, make_all, drop_all);
}
