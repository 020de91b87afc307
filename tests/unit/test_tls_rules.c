/* The rules of net/tls.h against OpenSSL's own client, byte by byte in memory: names, sessions,
 * client certificates, floods, crowds. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/hash.h"
#include "net/conn.h"
#include "net/tls_tickets.h"
#include "tests/unit/tls_meeting.h"

/* ---- ALPN ---- */

static void client_without_alpn_gets_the_alert_of_rfc_7301(void **state)
{
    const struct tls_conf conf = server_conf(NULL);
    struct tls_ctx *ctx = new_ctx(&conf);
    struct meeting m;

    (void)state;
    for (int version = TLS1_2_VERSION; version <= TLS1_3_VERSION; version++) {
        meeting_init(&m, ctx, &(struct client_as){.no_alpn = true, .max_version = version});
        assert_false(meet(&m));
        assert_int_equal(client_alert(&m), 120); /* RFC 7301 3.2 */
        meeting_fini(&m);
    }
    ctx = tls_ctx_unref(ctx);
}

static void tls_1_2_is_refused_where_1_3_is_the_least(void **state)
{
    struct tls_conf conf = server_conf(NULL);
    struct tls_ctx *ctx;
    struct meeting m;

    (void)state;
    conf.only_tls13 = true;
    ctx = new_ctx(&conf);
    assert_true(meets(ctx, &(struct client_as){0}, NULL));
    meeting_init(&m, ctx, &(struct client_as){.max_version = TLS1_2_VERSION});
    assert_false(meet(&m));
    assert_int_equal(client_alert(&m), 70); /* protocol_version, RFC 8446 6.2 */
    meeting_fini(&m);
    ctx = tls_ctx_unref(ctx);
}

/* ---- server names ---- */

static void the_certificate_is_that_of_the_name_asked_for(void **state)
{
    static const struct {
        const char *sni;
        const struct identity *shown;
    } rows[] = {
        {NULL, &server_id},
        {"default.test", &server_id},
        {"unknown.test", &server_id},
        {"a.models.test", &exact_id}, /* before the wildcard that stands first */
        {"A.Models.TEST", &exact_id},
        {"b.models.test", &wild_id},
        {"c.b.models.test", &server_id}, /* a wildcard is one label */
        {"models.test", &server_id},
        {"*.models.test", &wild_id},
        {"x", &server_id},
    };
    const struct tls_pair pairs[] = {{wild_id.cert_file, wild_id.key_file, NULL},
                                     {exact_id.cert_file, exact_id.key_file, NULL}};
    struct tls_conf conf = server_conf(NULL);
    struct tls_ctx *ctx;

    (void)state;
    conf.pairs = pairs;
    conf.n_pairs = ARRAY_LEN(pairs);
    ctx = new_ctx(&conf);
    for (size_t i = 0; i < 2 * ARRAY_LEN(rows); i++) {
        const int version = i < ARRAY_LEN(rows) ? TLS1_2_VERSION : TLS1_3_VERSION;
        const char *const sni = rows[i % ARRAY_LEN(rows)].sni;
        struct meeting m;

        meeting_init(&m, ctx, &(struct client_as){.sni = sni, .max_version = version});
        assert_true(meet(&m));
        if (X509_cmp(SSL_get0_peer_certificate(m.client), rows[i % ARRAY_LEN(rows)].shown->cert) !=
            0)
            fail_msg("row %zu: the wrong certificate", i);
        meeting_fini(&m);
    }
    ctx = tls_ctx_unref(ctx);
}

/* ---- sessions ---- */

/* A session from one meeting, taken to a second one; was it resumed there? */
static bool resumes(struct tls_ctx *from, struct tls_ctx *at, const struct client_as *as)
{
    struct client_as again = *as;
    struct meeting first, second;
    bool resumed;

    meeting_init(&first, from, as);
    assert_true(meet(&first));
    assert_non_null(first.ticket);
    again.session = first.ticket;
    meeting_init(&second, at, &again);
    const bool met = meet(&second);

    resumed = SSL_session_reused(second.client);
    assert_int_equal(resumed, met && tls_was_resumed(second.server));
    meeting_fini(&second);
    meeting_fini(&first);
    return resumed;
}

static void sessions_resume_where_they_were_made(void **state)
{
    const struct tls_conf conf = server_conf(ca.cert_file);
    struct tls_ctx *ctx = new_ctx(&conf);

    (void)state;
    for (int version = TLS1_2_VERSION; version <= TLS1_3_VERSION; version++)
        assert_true(
            resumes(ctx, ctx, &(struct client_as){.id = &client_id, .max_version = version}));
    assert_int_equal(tls_ctx_reload(ctx, NULL), 0); /* a renewed certificate ends no session */
    assert_true(resumes(ctx, ctx, &(struct client_as){.id = &client_id}));
    ctx = tls_ctx_unref(ctx);
}

/* CVE-2025-23419: a session from a listener that asks for no certificate opened one that does. */
static void sessions_do_not_cross_listeners(void **state)
{
    struct tls_conf conf = server_conf(NULL);
    struct tls_ctx *open = new_ctx(&conf), *closed, *other;

    (void)state;
    conf = server_conf(ca.cert_file);
    closed = new_ctx(&conf);
    conf.name = "127.0.0.1:2";
    other = new_ctx(&conf);
    for (int version = TLS1_2_VERSION; version <= TLS1_3_VERSION; version++) {
        const struct client_as nobody = {.max_version = version};
        const struct client_as somebody = {.id = &client_id, .max_version = version};

        assert_false(resumes(open, closed, &nobody));
        assert_false(resumes(open, closed, &somebody));
        assert_false(resumes(closed, other, &somebody));
    }
    open = tls_ctx_unref(open);
    closed = tls_ctx_unref(closed);
    other = tls_ctx_unref(other);
}

static void sessions_end_with_the_authority_that_let_them_in(void **state)
{
    char file[160];
    struct tls_conf conf;
    struct tls_ctx *ctx;
    struct meeting first, second;
    struct client_as as = {.id = &client_id};

    (void)state;
    snprintf(file, sizeof(file), "%s/authority", dir);
    copy_file(ca.cert_file, file);
    conf = server_conf(file);
    ctx = new_ctx(&conf);
    meeting_init(&first, ctx, &as);
    assert_true(meet(&first));
    copy_file(other_ca.cert_file, file);
    assert_int_equal(tls_ctx_reload(ctx, NULL), 0);
    as.session = first.ticket;
    meeting_init(&second, ctx, &as);
    assert_false(meet(&second)); /* not resumed, and the whole handshake refuses it */
    assert_non_null(strstr(second.err.text, "the peer's certificate: unable to get"));
    meeting_fini(&second);
    meeting_fini(&first);
    ctx = tls_ctx_unref(ctx);
    unlink(file);
}

static void ticket_keys_turn_over_after_twelve_hours(void **state)
{
    const uint64_t hour_us = 3600ull * 1000000, t0 = 5 * hour_us;
    struct tls_tickets t;
    struct tls_ticket_key first, second, found;

    (void)state;
    tls_tickets_init(&t);
    assert_true(tls_tickets_seal(&t, t0, &first));
    assert_true(tls_tickets_seal(&t, t0 + 12 * hour_us - 1, &found));
    assert_memory_equal(&found, &first, sizeof(first));
    assert_int_equal(tls_tickets_open(&t, t0 + 12 * hour_us - 1, first.name, &found),
                     TLS_TICKET_CURRENT);
    assert_true(tls_tickets_seal(&t, t0 + 12 * hour_us, &second));
    assert_memory_not_equal(second.cipher, first.cipher, sizeof(first.cipher));
    assert_int_equal(tls_tickets_open(&t, t0 + 12 * hour_us, first.name, &found), TLS_TICKET_OLD);
    assert_memory_equal(found.cipher, first.cipher, sizeof(first.cipher));
    assert_int_equal(tls_tickets_open(&t, t0 + 24 * hour_us, first.name, &found),
                     TLS_TICKET_UNKNOWN);
    assert_int_equal(tls_tickets_open(&t, t0 + 24 * hour_us - 1, second.name, &found),
                     TLS_TICKET_CURRENT);
    /* Nobody came for two days: the old one does not come back as the one before. */
    assert_true(tls_tickets_seal(&t, t0 + 72 * hour_us, &found));
    assert_int_equal(tls_tickets_open(&t, t0 + 72 * hour_us, second.name, &found),
                     TLS_TICKET_UNKNOWN);
    tls_tickets_fini(&t);
}

/* ---- client certificates ---- */

static void client_certificates_are_held_to_every_rule(void **state)
{
    static char team[] = "team a";
    const struct tls_conf required = server_conf(ca.cert_file);
    struct tls_conf conf = required;
    struct identity expired, stranger, nul, unlisted, uri;
    struct map names;

    (void)state;
    map_init(&names);
    map_set(&names, "spiffe://test/team-a", strlen("spiffe://test/team-a"), team);
    map_set(&names, "team-a.test", strlen("team-a.test"), team);
    identity_make_as(&expired, &(struct identity_spec){.name = "expired",
                                                       .san = "DNS:team-a.test",
                                                       .issuer = &ca,
                                                       .lasts_s = -3600});
    identity_make(&stranger, "stranger", "DNS:team-a.test", &other_ca);
    identity_make_as(&nul, &(struct identity_spec){.name = "nul",
                                                   .raw_dns = "team-a.test\0.evil.test",
                                                   .raw_dns_len = 22,
                                                   .issuer = &ca});
    identity_make(&unlisted, "team-a.test", "DNS:team-b.test", &ca); /* the name as CN only */
    identity_make(&uri, "uri", "URI:spiffe://test/team-a", &ca);
    for (int known = 0; known <= 1; known++) {
        conf.identities = &names;
        conf.must_be_known = known;
        struct tls_ctx *ctx = new_ctx(&conf);

        for (int version = TLS1_2_VERSION; version <= TLS1_3_VERSION; version++) {
#define AS(who) (&(struct client_as){.id = (who), .max_version = version})
            assert_false(meets(ctx, AS(NULL), "peer did not return a certificate"));
            assert_false(meets(ctx, AS(&expired), "certificate has expired"));
            assert_false(meets(ctx, AS(&stranger), "unable to get local issuer"));
            assert_false(meets(ctx, AS(&nul), "has a NUL in it"));
            assert_true(meets(ctx, AS(&client_id), NULL));
            assert_true(meets(ctx, AS(&uri), NULL));
            assert_int_equal(meets(ctx, AS(&unlisted), "none of its subject alternative names"),
                             !known);
#undef AS
        }
        ctx = tls_ctx_unref(ctx);
    }
    conf = required;
    conf.client_optional = true;
    struct tls_ctx *ctx = new_ctx(&conf);

    assert_true(meets(ctx, &(struct client_as){.id = NULL}, NULL));
    assert_false(meets(ctx, &(struct client_as){.id = &stranger}, "unable to get local issuer"));
    ctx = tls_ctx_unref(ctx);
    identity_drop(&expired);
    identity_drop(&stranger);
    identity_drop(&nul);
    identity_drop(&unlisted);
    identity_drop(&uri);
    map_fini(&names);
    identity_write(&client_id); /* of the same file name as unlisted */
}

static void identity_is_the_first_listed_uri_then_dns_name(void **state)
{
    static char by_uri[] = "by uri", by_dns[] = "by dns";
    struct tls_conf conf = server_conf(ca.cert_file);
    struct map names;

    (void)state;
    map_init(&names);
    map_set(&names, "team-a.test", strlen("team-a.test"), by_dns);
    conf.identities = &names;
    for (int round = 0; round < 2; round++) {
        struct tls_ctx *ctx = new_ctx(&conf);
        struct client_as as = {.id = &client_id};
        struct meeting m, again;

        meeting_init(&m, ctx, &as);
        assert_true(meet(&m));
        assert_ptr_equal(tls_identity(m.server), round == 0 ? by_dns : by_uri);
        assert_string_equal(tls_peer_name(m.server), "spiffe://test/team-a");
        as.session = m.ticket;
        meeting_init(&again, ctx, &as);
        assert_true(meet(&again));
        assert_true(tls_was_resumed(again.server));
        assert_ptr_equal(tls_identity(again.server), round == 0 ? by_dns : by_uri);
        meeting_fini(&again);
        meeting_fini(&m);
        ctx = tls_ctx_unref(ctx);
        map_set(&names, "spiffe://test/team-a", strlen("spiffe://test/team-a"), by_uri);
    }
    map_fini(&names);
}

static void chain_that_is_too_long_is_refused(void **state)
{
    enum { DEEP = 20 };
    const struct tls_conf conf = server_conf(ca.cert_file);
    struct tls_ctx *ctx = new_ctx(&conf);
    struct identity links[DEEP];
    const struct identity *chain[DEEP];

    (void)state;
    for (size_t i = 0; i < DEEP; i++) {
        char name[32];

        snprintf(name, sizeof(name), "link-%zu", i);
        identity_make_as(&links[i], &(struct identity_spec){.name = name,
                                                            .san = "DNS:team-a.test",
                                                            .issuer = i == 0 ? &ca : &links[i - 1],
                                                            .is_ca = i + 1 < DEEP});
        chain[i] = &links[i];
    }
    assert_true(
        meets(ctx, &(struct client_as){.id = &links[2], .chain = chain, .n_chain = 2}, NULL));
    assert_false(
        meets(ctx, &(struct client_as){.id = &links[DEEP - 1], .chain = chain, .n_chain = DEEP - 1},
              "certificate chain too long"));
    for (size_t i = 0; i < DEEP; i++)
        identity_drop(&links[i]);
    ctx = tls_ctx_unref(ctx);
}

/* ---- floods ---- */

static void handshake_over_64_kib_is_ended(void **state)
{
    const struct tls_conf conf = server_conf(ca.cert_file);
    struct tls_ctx *ctx = new_ctx(&conf);
    struct identity heavy;
    char *san = malloc(200000);
    size_t len = 0;

    (void)state;
    for (int i = 0; i < 10000; i++)
        len += (size_t)sprintf(san + len, "%sDNS:n%05d.test", i > 0 ? "," : "", i);
    identity_make(&heavy, "heavy", san, &ca);
    free(san);
    assert_false(meets(ctx, &(struct client_as){.id = &heavy}, NULL));
    identity_drop(&heavy);
    ctx = tls_ctx_unref(ctx);
}

/* Records of a plaintext handshake, each a fragment of a ClientHello that never ends: OpenSSL
 * would go on to 128 KiB. */
static void hello_that_does_not_end_is_ended(void **state)
{
    const struct tls_conf conf = server_conf(NULL);
    struct tls_ctx *ctx = new_ctx(&conf);
    struct meeting m;
    uint8_t record[5 + 8192] = {0x16, 3, 1, 8192 >> 8, 8192 & 0xff};
    size_t sent = 0;

    (void)state;
    meeting_init(&m, ctx, &(struct client_as){0});
    while (m.shook == 0 && sent < 1000000) {
        memset(record + 5, 0, 8192);
        if (sent == 0) { /* ClientHello of 120,000 bytes, version 3.3 */
            record[5] = 1;
            record[6] = 1;
            record[7] = 0xd4;
            record[8] = 0xc0;
        }
        tls_feed(m.server, record, sizeof(record));
        m.shook = tls_handshake(m.server, &m.err);
        sent += sizeof(record);
    }
    assert_int_equal(m.shook, -EPROTO);
    assert_true(sent <= TLS_HANDSHAKE_BYTES + 2 * sizeof(record));
    assert_non_null(strstr(m.err.text, "over the limit of 64 KiB"));
    meeting_fini(&m);
    ctx = tls_ctx_unref(ctx);
}

static void key_updates_are_taken_up_to_a_hundred_a_minute(void **state)
{
    static const int types[] = {SSL_KEY_UPDATE_NOT_REQUESTED, SSL_KEY_UPDATE_REQUESTED};
    const struct tls_conf conf = server_conf(NULL);
    struct tls_ctx *ctx = new_ctx(&conf);

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(types); i++) {
        struct meeting m;
        int n = 0;

        meeting_init(&m, ctx, &(struct client_as){0});
        assert_true(meet(&m));
        for (; n < 1000 && (m.read == -EAGAIN || n == 0); n++) {
            uint8_t byte;

            SSL_key_update(m.client, types[i]);
            SSL_do_handshake(m.client);
            carry_to_server(&m);
            carry_to_client(&m);
            SSL_read(m.client, &byte, 1);
        }
        assert_int_equal(n, TLS_LATE_MESSAGES + 1);
        assert_int_equal(m.read, -EPROTO);
        assert_non_null(strstr(m.err.text, "key updates"));
        meeting_fini(&m);
    }
    ctx = tls_ctx_unref(ctx);
}

static void renegotiation_is_not_done(void **state)
{
    const struct tls_conf conf = server_conf(NULL);
    struct tls_ctx *ctx = new_ctx(&conf);
    struct meeting m;
    uint8_t byte;

    (void)state;
    meeting_init(&m, ctx, &(struct client_as){.max_version = TLS1_2_VERSION});
    assert_true(meet(&m));
    SSL_renegotiate(m.client);
    SSL_do_handshake(m.client);
    carry_to_server(&m);
    carry_to_client(&m);
    ERR_clear_error();
    SSL_do_handshake(m.client);
    SSL_read(m.client, &byte, 1);
    assert_int_equal(ERR_GET_REASON(ERR_peek_last_error()), SSL_R_NO_RENEGOTIATION);
    meeting_fini(&m);
    ctx = tls_ctx_unref(ctx);
}

/* ---- crowds ---- */

static void closed(void *user, const char *why)
{
    (void)why;
    ++*(int *)user;
}

static int count_answered(const int *fds, int n)
{
    int answered = 0;

    for (int i = 0; i < n; i++) {
        uint8_t byte;

        answered += recv(fds[i], &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 1;
    }
    return answered;
}

/* 16 hellos lie ready at once: the calls of others wait for two of them, not for all. */
static void a_turn_of_the_loop_takes_two_steps_of_handshakes(void **state)
{
    enum { CROWD = 16 };
    const struct tls_conf conf = server_conf(NULL);
    const struct conn_ops ops = {.on_closed = closed};
    struct conn_conf conn_conf;
    struct conn *conns[CROWD];
    struct loop loop;
    int fds[CROWD], n_closed = 0, turns = 0;

    (void)state;
    loop_init(&loop, NULL);
    conn_conf_default(&conn_conf);
    conn_conf.tls = new_ctx(&conf);
    for (int i = 0; i < CROWD; i++) {
        struct meeting m;
        uint8_t hello[2048];
        int pair[2];

        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair), 0);
        fds[i] = pair[0];
        conns[i] = conn_accept(&loop, pair[1], NULL, &conn_conf, &ops, &n_closed);
        meeting_init(&m, conn_conf.tls, &(struct client_as){0});
        SSL_do_handshake(m.client);
        const int len = BIO_read(m.to_server, hello, sizeof(hello));

        assert_int_equal(write(fds[i], hello, (size_t)len), len);
        meeting_fini(&m);
    }
    for (int before = 0; before < CROWD; turns++) {
        loop_turn(&loop);
        const int now = count_answered(fds, CROWD);

        assert_in_range(now - before, 0, 2);
        before = now;
    }
    assert_in_range(turns, CROWD / 2, CROWD);
    for (int i = 0; i < CROWD; i++)
        conn_close(conns[i], "the test is over");
    while (n_closed < CROWD)
        loop_turn(&loop);
    for (int i = 0; i < CROWD; i++)
        close(fds[i]);
    loop_fini(&loop);
    tls_ctx_unref(conn_conf.tls);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(client_without_alpn_gets_the_alert_of_rfc_7301),
        cmocka_unit_test(tls_1_2_is_refused_where_1_3_is_the_least),
        cmocka_unit_test(the_certificate_is_that_of_the_name_asked_for),
        cmocka_unit_test(sessions_resume_where_they_were_made),
        cmocka_unit_test(sessions_do_not_cross_listeners),
        cmocka_unit_test(sessions_end_with_the_authority_that_let_them_in),
        cmocka_unit_test(ticket_keys_turn_over_after_twelve_hours),
        cmocka_unit_test(client_certificates_are_held_to_every_rule),
        cmocka_unit_test(identity_is_the_first_listed_uri_then_dns_name),
        cmocka_unit_test(chain_that_is_too_long_is_refused),
        cmocka_unit_test(handshake_over_64_kib_is_ended),
        cmocka_unit_test(hello_that_does_not_end_is_ended),
        cmocka_unit_test(key_updates_are_taken_up_to_a_hundred_a_minute),
        cmocka_unit_test(renegotiation_is_not_done),
        cmocka_unit_test(a_turn_of_the_loop_takes_two_steps_of_handshakes),
    };

    return cmocka_run_group_tests(tests, make_all, drop_all);
}
