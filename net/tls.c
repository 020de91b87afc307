/* net/tls.c - one TLS connection over bytes: fed from the worker's one ciphertext buffer, its
 * records appended to the connection's output. */
#include "net/tls.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <openssl/err.h>
#include <openssl/x509v3.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/xalloc.h"
#include "net/tls_parts.h"

#define MINUTE_US (60 * US_PER_S)

struct tls {
    SSL *ssl;
    struct tls_ctx *ctx;
    struct tls_files *files;
    struct outq *out;
    const uint8_t *in;
    size_t in_len;
    bool done;                /* handshake */
    bool flooded;             /* more late messages than are allowed */
    uint32_t n_late;          /* since late_since_us */
    uint32_t handshake_bytes; /* taken until done */
    uint64_t late_since_us;
    char *peer_name; /* NULL: not asked yet */
    const void *identity;
    const char *refusal; /* by our own rules, in the handshake; a literal */
};

/* ---- our own BIO: no copy on the way in, the one copy that a BIO needs on the way out ---- */

static int bio_read(BIO *b, char *buf, int len)
{
    struct tls *t = BIO_get_data(b);
    const size_t take = t->in_len < (size_t)len ? t->in_len : (size_t)len;

    BIO_clear_retry_flags(b);
    if (!t->done && t->handshake_bytes > TLS_HANDSHAKE_BYTES)
        return -1; /* a fault: handshake_fault names it */
    if (take == 0) {
        BIO_set_retry_read(b);
        return -1;
    }
    memcpy(buf, t->in, take);
    t->in += take;
    t->in_len -= take;
    if (!t->done)
        t->handshake_bytes += (uint32_t)take;
    return (int)take;
}

static int bio_write(BIO *b, const char *buf, int len)
{
    struct tls *t = BIO_get_data(b);

    BIO_clear_retry_flags(b);
    outq_copy(t->out, buf, (size_t)len);
    return len;
}

static long bio_ctrl(BIO *b, int cmd, long num, void *ptr)
{
    (void)b;
    (void)num;
    (void)ptr;
    return cmd == BIO_CTRL_FLUSH ? 1 : 0;
}

BIO_METHOD *tls_bio_method_new(void)
{
    /* Without an index of its own, of which a process has 127: nobody searches chains for it. */
    BIO_METHOD *m = BIO_meth_new(BIO_TYPE_SOURCE_SINK, "penstock");

    check(m != NULL);
    BIO_meth_set_read(m, bio_read);
    BIO_meth_set_write(m, bio_write);
    BIO_meth_set_ctrl(m, bio_ctrl);
    return m;
}

/* ---- messages after the handshake ---- */

/* Each that the peer may send costs us keys or an answer: key updates (RFC 8446 4.6.3), tickets
 * from a server, wishes to renegotiate (TLS 1.2), which we answer with a warning. */
static void count_late(struct tls *t)
{
    const uint64_t now_us = clock_mono_us();

    if (now_us - t->late_since_us >= MINUTE_US) {
        t->late_since_us = now_us;
        t->n_late = 0;
    }
    t->flooded |= ++t->n_late > TLS_LATE_MESSAGES;
}

static void on_info(const SSL *ssl, int where, int ret)
{
    struct tls *const t = SSL_get_app_data(ssl);

    if (!t->done)
        return;
    if (where & SSL_CB_LOOP) { /* once after a message was read, before what we would write */
        const OSSL_HANDSHAKE_STATE state = SSL_get_state(ssl);

        if (state == TLS_ST_SR_KEY_UPDATE || state == TLS_ST_CR_KEY_UPDATE ||
            state == TLS_ST_CR_SESSION_TICKET)
            count_late(t);
    } else if ((where & SSL_CB_WRITE_ALERT) == SSL_CB_WRITE_ALERT &&
               (ret & 0xff) == SSL_AD_NO_RENEGOTIATION) {
        count_late(t);
    }
}

static int flood_fault(struct err *err)
{
    return err_set(err, -EPROTO,
                   "TLS: more than %d key updates, tickets or renegotiations in a minute",
                   TLS_LATE_MESSAGES);
}

/* ---- connections ---- */

static void expect_host(SSL *ssl, const char *host)
{
    X509_VERIFY_PARAM *param = SSL_get0_param(ssl);

    if (X509_VERIFY_PARAM_set1_ip_asc(param, host) == 1)
        return; /* an address: no SNI, RFC 6066 section 3 */
    ERR_clear_error();
    SSL_set_hostflags(ssl,
                      X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS | X509_CHECK_FLAG_NEVER_CHECK_SUBJECT);
    check(SSL_set1_host(ssl, host) == 1);
    check(SSL_set_tlsext_host_name(ssl, host) == 1);
}

struct tls *tls_new(struct tls_ctx *ctx, const char *host, struct outq *out)
{
    struct tls *t = xcalloc(1, sizeof(*t));
    BIO *bio = BIO_new(ctx->bio);

    check(bio != NULL);
    t->ctx = tls_ctx_ref(ctx);
    t->files = tls_ctx_files(ctx);
    t->out = out;
    t->ssl = SSL_new(t->files->ssl);
    check(t->ssl != NULL);
    SSL_set_app_data(t->ssl, t);
    SSL_set_info_callback(t->ssl, on_info);
    BIO_set_data(bio, t);
    BIO_set_init(bio, 1);
    SSL_set_bio(t->ssl, bio, bio);
    if (ctx->conf.server) {
        SSL_set_accept_state(t->ssl);
    } else {
        SSL_set_connect_state(t->ssl);
        if (ctx->conf.peer_name != NULL)
            host = ctx->conf.peer_name;
        if (host != NULL && host[0] != '\0')
            expect_host(t->ssl, host);
    }
    return t;
}

struct tls *tls_free(struct tls *t)
{
    if (t == NULL)
        return NULL;
    SSL_free(t->ssl);
    tls_files_unref(t->files);
    tls_ctx_unref(t->ctx);
    free(t->peer_name);
    free(t);
    return NULL;
}

void tls_feed(struct tls *t, const uint8_t *p, size_t len)
{
    check(t->in_len == 0);
    t->in = p;
    t->in_len = len;
}

/* ---- handshake ---- */

void tls_note_refusal(SSL *ssl, const char *why)
{
    struct tls *const t = SSL_get_app_data(ssl);

    t->refusal = why;
}

static int handshake_fault(struct tls *t, struct err *err)
{
    const long verify = SSL_get_verify_result(t->ssl);

    if (t->handshake_bytes > TLS_HANDSHAKE_BYTES) {
        ERR_clear_error();
        return err_set(err, -EPROTO, "TLS: the handshake is over the limit of %u KiB",
                       TLS_HANDSHAKE_BYTES / 1024);
    }
    if (verify == X509_V_OK && t->refusal != NULL) {
        ERR_clear_error();
        return err_set(err, -EPROTO, "TLS: %s", t->refusal);
    }
    if (verify == X509_V_OK)
        return tls_ssl_fault(err, -EPROTO, "TLS handshake");
    ERR_clear_error();
    return err_set(err, -EPROTO, "TLS: the peer's certificate: %s",
                   t->refusal != NULL ? t->refusal : X509_verify_cert_error_string(verify));
}

/* Who the client is, also when its session was resumed: the ticket has its certificate. */
static int identify(struct tls *t, struct err *err)
{
    X509 *const cert = SSL_get0_peer_certificate(t->ssl);

    if (!t->ctx->conf.server || t->ctx->conf.ca_file == NULL)
        return 0;
    if (cert != NULL)
        t->identity = tls_names_identity(t->ctx, cert);
    if (t->identity == NULL && t->ctx->conf.must_be_known)
        return err_set(err, -EPROTO, "TLS: the client has no certificate of a tenant");
    return 0;
}

int tls_handshake(struct tls *t, struct err *err)
{
    const unsigned char *alpn = NULL;
    unsigned alpn_len = 0;
    int r;

    if (t->done)
        return 1;
    ERR_clear_error();
    r = SSL_do_handshake(t->ssl);
    if (r != 1)
        return SSL_get_error(t->ssl, r) == SSL_ERROR_WANT_READ ? 0 : handshake_fault(t, err);
    SSL_get0_alpn_selected(t->ssl, &alpn, &alpn_len);
    if (alpn_len != 2 || memcmp(alpn, "h2", 2) != 0)
        return err_set(err, -EPROTO, "TLS: the peer did not agree on ALPN \"h2\"");
    if (identify(t, err) != 0)
        return -EPROTO;
    t->done = true;
    return 1;
}

/* ---- payload ---- */

ssize_t tls_read(struct tls *t, uint8_t *buf, size_t cap, struct err *err)
{
    size_t n;
    int r;

    ERR_clear_error();
    r = SSL_read_ex(t->ssl, buf, cap, &n);
    if (t->flooded)
        return flood_fault(err);
    if (r == 1)
        return (ssize_t)n;
    switch (SSL_get_error(t->ssl, r)) {
    case SSL_ERROR_WANT_READ:
        return -EAGAIN;
    case SSL_ERROR_ZERO_RETURN:
        return 0;
    default:
        return tls_ssl_fault(err, -EPROTO, "TLS read");
    }
}

int tls_write(struct tls *t, const uint8_t *p, size_t len, struct err *err)
{
    size_t n;

    check(len > 0 && len <= TLS_RECORD_BYTES);
    ERR_clear_error();
    if (SSL_write_ex(t->ssl, p, len, &n) != 1)
        return tls_ssl_fault(err, -EPROTO, "TLS write");
    check(n == len); /* our BIO takes everything */
    return 0;
}

void tls_shutdown(struct tls *t)
{
    if (!t->done)
        return;
    SSL_shutdown(t->ssl);
    ERR_clear_error();
}

/* ---- the peer ---- */

const char *tls_peer_name(struct tls *t)
{
    X509 *const cert = SSL_get0_peer_certificate(t->ssl);

    if (t->peer_name == NULL && cert != NULL)
        t->peer_name = tls_names_first(cert);
    return t->peer_name != NULL ? t->peer_name : "";
}

const void *tls_identity(const struct tls *t)
{
    return t->identity;
}

bool tls_was_resumed(const struct tls *t)
{
    return SSL_session_reused(t->ssl);
}
