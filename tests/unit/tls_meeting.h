/* tests/unit/tls_meeting.h - OpenSSL's own client and our server, with wires of memory between
 * them.
 *
 * Owns:      the identities that the tests use, made once a program (make_all, drop_all).
 * Lifetime:  meeting_init .. meeting_fini.
 */
#ifndef TESTS_UNIT_TLS_MEETING_H
#define TESTS_UNIT_TLS_MEETING_H

#include <stdlib.h>
#include <string.h>

#include <openssl/err.h>
#include <openssl/ssl.h>

#include "base/check.h"
#include "net/tls.h"
#include "tests/unit/identity.h"

static struct identity ca, other_ca, server_id, client_id, exact_id, wild_id;

static inline int make_all(void **state)
{
    (void)state;
    if (mkdtemp(dir) == NULL)
        return -1;
    identity_make(&ca, "ca", NULL, NULL);
    identity_make(&other_ca, "other-ca", NULL, NULL);
    identity_make(&server_id, "server", "DNS:default.test", &ca);
    identity_make(&exact_id, "exact", "DNS:a.models.test", &ca);
    identity_make(&wild_id, "wild", "DNS:*.models.test", &ca);
    identity_make(&client_id, "team-a.test", "URI:spiffe://test/team-a,DNS:team-a.test", &ca);
    return 0;
}

static inline int drop_all(void **state)
{
    struct identity *const all[] = {&ca, &other_ca, &server_id, &client_id, &exact_id, &wild_id};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(all); i++)
        identity_drop(all[i]);
    return rmdir(dir);
}

/* ---- a client of OpenSSL's and our server, with wires of memory between them ---- */

struct meeting {
    struct slab_pool pool;
    struct outq out;
    struct tls *server;
    SSL_CTX *client_ctx;
    SSL *client;
    BIO *to_client, *to_server;
    struct err err;
    int shook; /* what tls_handshake said last */
    ssize_t read;
    SSL_SESSION *ticket; /* the last one that came */
};

struct client_as {
    const struct identity *id; /* NULL: shows no certificate */
    const struct identity *const *chain;
    size_t n_chain;
    const char *sni;
    SSL_SESSION *session;
    bool no_alpn;
    int max_version;
};

static inline int keep_ticket(SSL *ssl, SSL_SESSION *session)
{
    struct meeting *const m = SSL_get_app_data(ssl);

    SSL_SESSION_free(m->ticket);
    m->ticket = session;
    return 1;
}

static inline void meeting_init(struct meeting *m, struct tls_ctx *ctx, const struct client_as *as)
{
    static const unsigned char h2[] = {2, 'h', '2'};

    memset(m, 0, sizeof(*m));
    slab_pool_init(&m->pool);
    outq_init(&m->out, &m->pool);
    m->server = tls_new(ctx, NULL, &m->out);
    m->client_ctx = SSL_CTX_new(TLS_client_method());
    SSL_CTX_set_session_cache_mode(m->client_ctx, SSL_SESS_CACHE_CLIENT);
    SSL_CTX_sess_set_new_cb(m->client_ctx, keep_ticket);
    SSL_CTX_set_max_proto_version(m->client_ctx, as->max_version);
    m->client = SSL_new(m->client_ctx);
    SSL_set_app_data(m->client, m);
    if (!as->no_alpn)
        SSL_set_alpn_protos(m->client, h2, sizeof(h2));
    if (as->sni != NULL)
        SSL_set_tlsext_host_name(m->client, as->sni);
    if (as->id != NULL) {
        SSL_use_certificate(m->client, as->id->cert);
        SSL_use_PrivateKey(m->client, as->id->key);
    }
    for (size_t i = 0; i < as->n_chain; i++)
        SSL_add1_chain_cert(m->client, as->chain[i]->cert);
    if (as->session != NULL)
        SSL_set_session(m->client, as->session);
    m->to_client = BIO_new(BIO_s_mem());
    m->to_server = BIO_new(BIO_s_mem());
    SSL_set_bio(m->client, m->to_client, m->to_server);
    SSL_set_connect_state(m->client);
}

static inline void meeting_fini(struct meeting *m)
{
    SSL_SESSION_free(m->ticket);
    SSL_free(m->client);
    SSL_CTX_free(m->client_ctx);
    m->server = tls_free(m->server);
    outq_fini(&m->out);
    slab_pool_fini(&m->pool);
    ERR_clear_error();
}

static inline void carry_to_server(struct meeting *m)
{
    uint8_t wire[65536], plain[16384];
    int n;

    while ((n = BIO_read(m->to_server, wire, sizeof(wire))) > 0) {
        tls_feed(m->server, wire, (size_t)n);
        m->shook = tls_handshake(m->server, &m->err);
        if (m->shook < 0)
            return;
        while (m->shook == 1 && (m->read = tls_read(m->server, plain, sizeof(plain), &m->err)) > 0)
            ;
    }
}

static inline void carry_to_client(struct meeting *m)
{
    struct iovec iov[16];
    int n;

    while ((n = outq_iov(&m->out, iov, 16)) > 0) {
        for (int i = 0; i < n; i++) {
            BIO_write(m->to_client, iov[i].iov_base, (int)iov[i].iov_len);
            outq_sent(&m->out, iov[i].iov_len);
        }
    }
}

/* Until both have said all; the client reads once more, for the tickets. True: both are done. */
static inline bool meet(struct meeting *m)
{
    uint8_t byte;
    int done = 0;

    for (int i = 0; i < 12 && m->shook >= 0; i++) {
        done = done == 1 ? 1 : SSL_do_handshake(m->client);
        carry_to_server(m);
        carry_to_client(m);
        if (done == 1)
            SSL_read(m->client, &byte, 1);
    }
    return done == 1 && m->shook == 1;
}

static inline int client_alert(struct meeting *m)
{
    uint8_t byte;

    ERR_clear_error();
    if (SSL_do_handshake(m->client) == 1)
        SSL_read(m->client, &byte, 1);
    const unsigned long e = ERR_peek_last_error();
    return ERR_GET_REASON(e) - SSL_AD_REASON_OFFSET;
}

static inline struct tls_conf server_conf(const char *client_ca)
{
    return (struct tls_conf){.server = true,
                             .cert_file = server_id.cert_file,
                             .key_file = server_id.key_file,
                             .ca_file = client_ca,
                             .name = "127.0.0.1:1"};
}

static inline struct tls_ctx *new_ctx(const struct tls_conf *conf)
{
    struct err err;
    struct tls_ctx *const ctx = tls_ctx_new(conf, &err);

    if (ctx == NULL)
        fail_msg("%s", err.text);
    return ctx;
}

/* Returns whether they met; the reason of our side in m->err. */
static inline bool meets(struct tls_ctx *ctx, const struct client_as *as, const char *why)
{
    struct meeting m;

    meeting_init(&m, ctx, as);
    const bool met = meet(&m);

    if (!met && why != NULL && strstr(m.err.text, why) == NULL)
        fail_msg("\"%s\" does not say \"%s\"", m.err.text, why);
    meeting_fini(&m);
    return met;
}

static inline void copy_file(const char *from, const char *to)
{
    char bytes[8192];
    FILE *f = fopen(from, "r");
    const size_t n = fread(bytes, 1, sizeof(bytes), f);

    fclose(f);
    f = fopen(to, "w");
    fwrite(bytes, 1, n, f);
    fclose(f);
}

#endif
