#include "net/tls.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

#include "base/check.h"
#include "base/xalloc.h"

/* RFC 9113 9.2.2: forward secrecy and AEAD only. TLS 1.3 has nothing else. */
#define TLS12_CIPHERS                                                                              \
    "ECDHE-ECDSA-AES128-GCM-SHA256:ECDHE-RSA-AES128-GCM-SHA256:ECDHE-ECDSA-AES256-GCM-SHA384:"     \
    "ECDHE-RSA-AES256-GCM-SHA384:ECDHE-ECDSA-CHACHA20-POLY1305:ECDHE-RSA-CHACHA20-POLY1305"

struct tls_ctx {
    SSL_CTX *ssl;
    bool server;
    BIO_METHOD *bio; /* reads what was fed, writes to the connection's output */
    atomic_uint refs;
};

struct tls {
    SSL *ssl;
    struct tls_ctx *ctx;
    struct outq *out;
    const uint8_t *in;
    size_t in_len;
    bool done; /* handshake */
    char peer_name[256];
};

/* ---- errors ---- */

/* What OpenSSL says last, with what; clears its queue, which is per thread. */
static int ssl_fault(struct err *err, int code, const char *what)
{
    const unsigned long first = ERR_peek_error(), e = ERR_peek_last_error();
    const char *reason = e != 0 ? ERR_reason_error_string(e) : NULL;

    if (ERR_SYSTEM_ERROR(first)) /* what follows it is "system lib", which says nothing */
        reason = strerror(ERR_GET_REASON(first));
    err_set(err, code, "%s: %s", what, reason != NULL ? reason : "failed");
    ERR_clear_error();
    return code;
}

static int handshake_fault(struct tls *t, struct err *err)
{
    const long verify = SSL_get_verify_result(t->ssl);

    if (verify != X509_V_OK) {
        ERR_clear_error();
        return err_set(err, -EPROTO, "TLS: the peer's certificate: %s",
                       X509_verify_cert_error_string(verify));
    }
    return ssl_fault(err, -EPROTO, "TLS handshake");
}

/* ---- our own BIO: no copy on the way in, the one copy that a BIO needs on the way out ---- */

static int bio_read(BIO *b, char *buf, int len)
{
    struct tls *t = BIO_get_data(b);
    const size_t take = t->in_len < (size_t)len ? t->in_len : (size_t)len;

    BIO_clear_retry_flags(b);
    if (take == 0) {
        BIO_set_retry_read(b);
        return -1;
    }
    memcpy(buf, t->in, take);
    t->in += take;
    t->in_len -= take;
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

static BIO_METHOD *bio_method_new(void)
{
    BIO_METHOD *m = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "penstock");

    check(m != NULL);
    BIO_meth_set_read(m, bio_read);
    BIO_meth_set_write(m, bio_write);
    BIO_meth_set_ctrl(m, bio_ctrl);
    return m;
}

/* ---- contexts ---- */

/* ALPN is a must: a peer that offers others gets the no_application_protocol alert. */
static int on_alpn(SSL *ssl, const unsigned char **out, unsigned char *out_len,
                   const unsigned char *in, unsigned in_len, void *arg)
{
    (void)ssl;
    (void)arg;
    for (unsigned i = 0; i < in_len; i += in[i] + 1u) {
        if (in[i] == 2 && i + 2 < in_len && memcmp(in + i + 1, "h2", 2) == 0) {
            *out = in + i + 1;
            *out_len = 2;
            return SSL_TLSEXT_ERR_OK;
        }
    }
    return SSL_TLSEXT_ERR_ALERT_FATAL;
}

static int load_cert(SSL_CTX *ssl, const struct tls_conf *conf, struct err *err)
{
    if (conf->cert_file == NULL && conf->key_file == NULL && !conf->server)
        return 0;
    if (conf->cert_file == NULL || conf->key_file == NULL)
        return err_set(err, -EINVAL, "TLS: certificate and key go together");
    if (SSL_CTX_use_certificate_chain_file(ssl, conf->cert_file) != 1)
        return ssl_fault(err, -EINVAL, conf->cert_file);
    if (SSL_CTX_use_PrivateKey_file(ssl, conf->key_file, SSL_FILETYPE_PEM) != 1)
        return ssl_fault(err, -EINVAL, conf->key_file);
    if (SSL_CTX_check_private_key(ssl) != 1)
        return err_set(err, -EINVAL, "%s: the key does not belong to %s", conf->key_file,
                       conf->cert_file);
    return 0;
}

static int load_trust(SSL_CTX *ssl, const struct tls_conf *conf, struct err *err)
{
    if (conf->ca_file != NULL) {
        if (SSL_CTX_load_verify_file(ssl, conf->ca_file) != 1)
            return ssl_fault(err, -EINVAL, conf->ca_file);
        if (conf->server)
            SSL_CTX_set_client_CA_list(ssl, SSL_load_client_CA_file(conf->ca_file));
    } else if (!conf->server && !conf->no_verify) {
        SSL_CTX_set_default_verify_paths(ssl); /* SSL_CERT_FILE and SSL_CERT_DIR count */
    }
    if (conf->server && conf->ca_file != NULL)
        SSL_CTX_set_verify(ssl, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, NULL);
    else if (!conf->server && !conf->no_verify)
        SSL_CTX_set_verify(ssl, SSL_VERIFY_PEER, NULL);
    return 0;
}

static void set_protocol(SSL_CTX *ssl, bool server)
{
    static const unsigned char h2[] = {2, 'h', '2'};
    static const unsigned char session_context[] = "penstock";

    check(SSL_CTX_set_min_proto_version(ssl, TLS1_2_VERSION) == 1);
    check(SSL_CTX_set_cipher_list(ssl, TLS12_CIPHERS) == 1);
    SSL_CTX_set_options(ssl, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION |
                                 SSL_OP_CIPHER_SERVER_PREFERENCE);
    /* an idle connection holds no 16 KiB buffers; costs nothing that can be measured */
    SSL_CTX_set_mode(ssl, SSL_MODE_RELEASE_BUFFERS | SSL_MODE_AUTO_RETRY);
    if (server) {
        SSL_CTX_set_alpn_select_cb(ssl, on_alpn, NULL);
        SSL_CTX_set_session_id_context(ssl, session_context, sizeof(session_context) - 1);
    } else {
        check(SSL_CTX_set_alpn_protos(ssl, h2, sizeof(h2)) == 0);
    }
}

struct tls_ctx *tls_ctx_new(const struct tls_conf *conf, struct err *err)
{
    struct tls_ctx *ctx = xcalloc(1, sizeof(*ctx));

    ERR_clear_error();
    ctx->server = conf->server;
    atomic_init(&ctx->refs, 1);
    ctx->bio = bio_method_new();
    ctx->ssl = SSL_CTX_new(conf->server ? TLS_server_method() : TLS_client_method());
    check(ctx->ssl != NULL);
    set_protocol(ctx->ssl, conf->server);
    if (load_cert(ctx->ssl, conf, err) != 0 || load_trust(ctx->ssl, conf, err) != 0)
        return tls_ctx_unref(ctx);
    return ctx;
}

struct tls_ctx *tls_ctx_ref(struct tls_ctx *ctx)
{
    atomic_fetch_add(&ctx->refs, 1);
    return ctx;
}

struct tls_ctx *tls_ctx_unref(struct tls_ctx *ctx)
{
    if (ctx == NULL || atomic_fetch_sub(&ctx->refs, 1) > 1)
        return NULL;
    SSL_CTX_free(ctx->ssl);
    BIO_meth_free(ctx->bio);
    free(ctx);
    return NULL;
}

bool tls_ctx_is_server(const struct tls_ctx *ctx)
{
    return ctx->server;
}

/* ---- connections ---- */

static void expect_host(SSL *ssl, const char *host)
{
    X509_VERIFY_PARAM *param = SSL_get0_param(ssl);

    if (X509_VERIFY_PARAM_set1_ip_asc(param, host) == 1)
        return; /* an address: no SNI, RFC 6066 section 3 */
    ERR_clear_error();
    SSL_set_hostflags(ssl, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
    check(SSL_set1_host(ssl, host) == 1);
    check(SSL_set_tlsext_host_name(ssl, host) == 1);
}

struct tls *tls_new(struct tls_ctx *ctx, const char *host, struct outq *out)
{
    struct tls *t = xcalloc(1, sizeof(*t));
    BIO *bio = BIO_new(ctx->bio);

    check(bio != NULL);
    t->ctx = tls_ctx_ref(ctx);
    t->out = out;
    t->ssl = SSL_new(ctx->ssl);
    check(t->ssl != NULL);
    BIO_set_data(bio, t);
    BIO_set_init(bio, 1);
    SSL_set_bio(t->ssl, bio, bio);
    if (ctx->server) {
        SSL_set_accept_state(t->ssl);
    } else {
        SSL_set_connect_state(t->ssl);
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
    tls_ctx_unref(t->ctx);
    free(t);
    return NULL;
}

void tls_feed(struct tls *t, const uint8_t *p, size_t len)
{
    check(t->in_len == 0);
    t->in = p;
    t->in_len = len;
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
    t->done = true;
    return 1;
}

ssize_t tls_read(struct tls *t, uint8_t *buf, size_t cap, struct err *err)
{
    size_t n;
    int r;

    ERR_clear_error();
    r = SSL_read_ex(t->ssl, buf, cap, &n);
    if (r == 1)
        return (ssize_t)n;
    switch (SSL_get_error(t->ssl, r)) {
    case SSL_ERROR_WANT_READ:
        return -EAGAIN;
    case SSL_ERROR_ZERO_RETURN:
        return 0;
    default:
        return ssl_fault(err, -EPROTO, "TLS read");
    }
}

int tls_write(struct tls *t, const uint8_t *p, size_t len, struct err *err)
{
    size_t n;

    check(len > 0 && len <= TLS_RECORD_BYTES);
    ERR_clear_error();
    if (SSL_write_ex(t->ssl, p, len, &n) != 1)
        return ssl_fault(err, -EPROTO, "TLS write");
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

/* ---- the peer's name ---- */

static bool copy_name(struct tls *t, const ASN1_STRING *s)
{
    const int len = ASN1_STRING_length(s);

    if (len <= 0 || (size_t)len >= sizeof(t->peer_name) ||
        memchr(ASN1_STRING_get0_data(s), '\0', (size_t)len) != NULL)
        return false;
    memcpy(t->peer_name, ASN1_STRING_get0_data(s), (size_t)len);
    t->peer_name[len] = '\0';
    return true;
}

static bool name_of_type(struct tls *t, const GENERAL_NAMES *names, int type)
{
    for (int i = 0; names != NULL && i < sk_GENERAL_NAME_num(names); i++) {
        const GENERAL_NAME *g = sk_GENERAL_NAME_value(names, i);

        if (g->type == type && copy_name(t, g->d.ia5)) /* URI and DNS are both IA5 */
            return true;
    }
    return false;
}

const char *tls_peer_name(struct tls *t)
{
    X509 *cert = SSL_get0_peer_certificate(t->ssl);
    GENERAL_NAMES *names;
    int i;

    if (t->peer_name[0] != '\0' || cert == NULL)
        return t->peer_name;
    names = X509_get_ext_d2i(cert, NID_subject_alt_name, NULL, NULL);
    if (!name_of_type(t, names, GEN_URI) && !name_of_type(t, names, GEN_DNS)) {
        X509_NAME *subject = X509_get_subject_name(cert);

        i = X509_NAME_get_index_by_NID(subject, NID_commonName, -1);
        if (i >= 0)
            copy_name(t, X509_NAME_ENTRY_get_data(X509_NAME_get_entry(subject, i)));
    }
    GENERAL_NAMES_free(names);
    return t->peer_name;
}
