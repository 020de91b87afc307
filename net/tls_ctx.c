/* net/tls_ctx.c - TLS contexts: from files, and from them again when they change. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include <openssl/core_names.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/x509v3.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/xalloc.h"
#include "net/tls_parts.h"

/* RFC 9113 9.2.2: forward secrecy and AEAD only. AES-128 first: a fifth less of a core's time. */
#define TLS12_CIPHERS                                                                              \
    "ECDHE-ECDSA-AES128-GCM-SHA256:ECDHE-RSA-AES128-GCM-SHA256:ECDHE-ECDSA-AES256-GCM-SHA384:"     \
    "ECDHE-RSA-AES256-GCM-SHA384:ECDHE-ECDSA-CHACHA20-POLY1305:ECDHE-RSA-CHACHA20-POLY1305"
#define TLS13_CIPHERS "TLS_AES_128_GCM_SHA256:TLS_AES_256_GCM_SHA384:TLS_CHACHA20_POLY1305_SHA256"
/* Others are slower by far, and which one a client may choose: a handshake costs what we allow. */
#define GROUPS "X25519:P-256:P-384"

#define FILE_BYTES_MAX  (4l * 1024 * 1024) /* an authority file with all of the web's: 0.2 MiB */
#define CHAIN_MAX       16                 /* certificates of ours in one file */
#define AUTHORITIES_MAX 10000

/* ---- errors ---- */

int tls_ssl_fault(struct err *err, int code, const char *what)
{
    const unsigned long first = ERR_peek_error(), e = ERR_peek_last_error();
    const char *reason = e != 0 ? ERR_reason_error_string(e) : NULL;

    if (ERR_SYSTEM_ERROR(first)) /* what follows it is "system lib", which says nothing */
        reason = strerror(ERR_GET_REASON(first));
    err_set(err, code, "%s: %s", what, reason != NULL ? reason : "failed");
    ERR_clear_error();
    return code;
}

static int pem_fault(struct err *err, const char *file, const char *kind)
{
    const unsigned long e = ERR_peek_last_error();
    const bool by_pem = ERR_GET_LIB(e) == ERR_LIB_PEM;

    if (by_pem && ERR_GET_REASON(e) == PEM_R_BAD_PASSWORD_READ) {
        ERR_clear_error();
        return err_set(err, -EINVAL, "%s: the %s is encrypted; give one without a passphrase", file,
                       kind);
    }
    if ((by_pem && ERR_GET_REASON(e) == PEM_R_NO_START_LINE) ||
        ERR_GET_LIB(e) == ERR_LIB_OSSL_DECODER) {
        ERR_clear_error();
        return err_set(err, -EINVAL, "%s: there is no whole %s in PEM form in it", file, kind);
    }
    return tls_ssl_fault(err, -EINVAL, file);
}

/* ---- PEM ---- */

/* Nobody is asked on a terminal. */
static int no_passphrase(char *buf, int size, int writing, void *arg)
{
    (void)buf;
    (void)size;
    (void)writing;
    (void)arg;
    return -1;
}

static BIO *open_file(const char *file, struct err *err)
{
    struct stat st;

    if (stat(file, &st) != 0) {
        err_set(err, -EINVAL, "%s: %s", file, strerror(errno));
        return NULL;
    }
    if (!S_ISREG(st.st_mode) || st.st_size > FILE_BYTES_MAX) {
        err_set(err, -EINVAL, "%s: %s", file,
                S_ISREG(st.st_mode) ? "is over the limit of 4 MiB" : "is not a file");
        return NULL;
    }

    BIO *const b = BIO_new_file(file, "r");

    if (b == NULL)
        tls_ssl_fault(err, -EINVAL, file);
    return b;
}

static bool pem_ended(void)
{
    const unsigned long e = ERR_peek_last_error();
    const bool ended = ERR_GET_LIB(e) == ERR_LIB_PEM && ERR_GET_REASON(e) == PEM_R_NO_START_LINE;

    if (ended)
        ERR_clear_error();
    return ended;
}

/* All certificates of a file, at least one and at most max. */
static STACK_OF(X509) * read_certs(const char *file, int max, struct err *err)
{
    STACK_OF(X509) *const all = sk_X509_new_null();
    BIO *const b = open_file(file, err);
    X509 *cert = NULL;

    if (b == NULL)
        goto failed;
    while ((cert = PEM_read_bio_X509(b, NULL, no_passphrase, NULL)) != NULL) {
        sk_X509_push(all, cert);
        if (sk_X509_num(all) > max) {
            err_set(err, -EINVAL, "%s: more than %d certificates", file, max);
            goto failed;
        }
    }
    if (sk_X509_num(all) == 0 ||
        !pem_ended()) { /* an unreadable second one is a half-written file */
        pem_fault(err, file, "certificate");
        goto failed;
    }
    BIO_free(b);
    return all;

failed:
    BIO_free(b);
    sk_X509_pop_free(all, X509_free);
    return NULL;
}

static EVP_PKEY *read_key(const char *file, struct err *err)
{
    BIO *const b = open_file(file, err);
    EVP_PKEY *key = NULL;

    if (b == NULL)
        return NULL;
    key = PEM_read_bio_PrivateKey(b, NULL, no_passphrase, NULL);
    if (key == NULL)
        pem_fault(err, file, "private key");
    BIO_free(b);
    return key;
}

static int read_pair(struct tls_cert *c, const struct tls_pair *pair, struct err *err)
{
    c->file = pair->cert_file;
    c->chain = read_certs(pair->cert_file, CHAIN_MAX, err);
    if (c->chain == NULL)
        return -EINVAL;
    c->leaf = sk_X509_shift(c->chain);
    c->key = read_key(pair->key_file, err);
    if (c->key == NULL)
        return -EINVAL;
    if (X509_check_private_key(c->leaf, c->key) != 1) {
        ERR_clear_error();
        return err_set(err, -EINVAL, "%s: the key does not belong to %s", pair->key_file,
                       pair->cert_file);
    }
    return pair->ocsp_file != NULL ? tls_staple_read(&c->staple, pair->ocsp_file, c->leaf, err) : 0;
}

int tls_check_chain(const char *file, struct err *err)
{
    ERR_clear_error();
    STACK_OF(X509) *const all = read_certs(file, AUTHORITIES_MAX, err);

    if (all == NULL)
        return -EINVAL;
    sk_X509_pop_free(all, X509_free);
    return 0;
}

static void cert_fini(struct tls_cert *c)
{
    X509_free(c->leaf);
    EVP_PKEY_free(c->key);
    sk_X509_pop_free(c->chain, X509_free);
    tls_staple_fini(&c->staple);
}

int tls_check_pair(const struct tls_pair *pair, struct err *err)
{
    struct tls_cert c = {0};

    ERR_clear_error();
    const int r = read_pair(&c, pair, err);

    cert_fini(&c);
    return r;
}

static int64_t seconds_of(const ASN1_TIME *t)
{
    struct tm tm = {0};

    return ASN1_TIME_to_tm(t, &tm) == 1 ? (int64_t)timegm(&tm) : 0;
}

/* ---- callbacks ---- */

static struct tls_ctx *ctx_of(SSL *ssl)
{
    return SSL_CTX_get_app_data(SSL_get_SSL_CTX(ssl));
}

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

/* A client that sends no ALPN at all: on_alpn is not called for it. It comes before the
 * certificate is chosen, so this is the place to end it with RFC 7301's alert. */
static int on_hello(SSL *ssl, int *alert, void *arg)
{
    const unsigned char *ext;
    size_t len;

    (void)arg;
    if (SSL_client_hello_get0_ext(ssl, TLSEXT_TYPE_application_layer_protocol_negotiation, &ext,
                                  &len) == 1)
        return SSL_CLIENT_HELLO_SUCCESS;
    tls_note_refusal(ssl, "the client offers no ALPN; it must offer \"h2\"");
    *alert = SSL_AD_NO_APPLICATION_PROTOCOL;
    return SSL_CLIENT_HELLO_ERROR;
}

/* The pair for the name that the client asks for. All pairs share one SSL_CTX, so the rules for
 * clients and the sessions are those of the listener, whatever the name. */
static int on_cert(SSL *ssl, void *arg)
{
    const struct tls_files *const f = arg;
    const char *const name = SSL_get_servername(ssl, TLSEXT_NAMETYPE_host_name);
    const struct tls_cert *const c = name != NULL ? tls_names_lookup(&f->by_name, name) : NULL;

    if (c == NULL || c == &f->certs[0])
        return 1;
    return SSL_use_cert_and_key(ssl, c->leaf, c->key, c->chain, 1);
}

static int on_verify(X509_STORE_CTX *store, void *arg)
{
    const struct tls_ctx *const ctx = arg;
    const char *refusal;

    if (X509_verify_cert(store) <= 0)
        return 0;
    refusal = ctx->conf.server ? tls_names_refusal(ctx, X509_STORE_CTX_get0_cert(store)) : NULL;
    if (refusal == NULL)
        return 1;
    tls_note_refusal(X509_STORE_CTX_get_ex_data(store, SSL_get_ex_data_X509_STORE_CTX_idx()),
                     refusal);
    X509_STORE_CTX_set_error(store, X509_V_ERR_APPLICATION_VERIFICATION);
    return 0;
}

/* ---- tickets ---- */

static int mac_init(EVP_MAC_CTX *mac, const struct tls_ticket_key *k)
{
    char digest[] = "SHA256";
    uint8_t key[sizeof(k->mac)];
    const OSSL_PARAM params[] = {
        OSSL_PARAM_construct_octet_string(OSSL_MAC_PARAM_KEY, memcpy(key, k->mac, sizeof(key)),
                                          sizeof(key)),
        OSSL_PARAM_construct_utf8_string(OSSL_MAC_PARAM_DIGEST, digest, 0),
        OSSL_PARAM_construct_end(),
    };

    return EVP_MAC_CTX_set_params(mac, params);
}

static int on_ticket_key(SSL *ssl, unsigned char *name, unsigned char *iv, EVP_CIPHER_CTX *cipher,
                         EVP_MAC_CTX *mac, int sealing)
{
    struct tls_tickets *const tickets = &ctx_of(ssl)->tickets;
    const uint64_t now_us = clock_mono_us();
    struct tls_ticket_key k;
    int found = TLS_TICKET_CURRENT, ok;

    if (sealing) {
        if (!tls_tickets_seal(tickets, now_us, &k) || RAND_bytes(iv, 16) != 1)
            return -1;
        memcpy(name, k.name, sizeof(k.name));
        ok = EVP_EncryptInit_ex(cipher, EVP_aes_256_cbc(), NULL, k.cipher, iv);
    } else {
        found = tls_tickets_open(tickets, now_us, name, &k);
        if (found == TLS_TICKET_UNKNOWN)
            return 0;
        ok = EVP_DecryptInit_ex(cipher, EVP_aes_256_cbc(), NULL, k.cipher, iv);
    }
    ok = ok == 1 && mac_init(mac, &k) == 1;
    OPENSSL_cleanse(&k, sizeof(k));
    if (!ok)
        return -1;
    return found == TLS_TICKET_OLD ? 2 : 1;
}

/* Would its client be let in now? Else the ticket counts for nothing and the handshake is a whole
 * one, which finds the same and says it with the right alert (CVE-2025-23419 is this check
 * missing). That the authorities are the same is in the session id context. */
static bool session_may_resume(const struct tls_ctx *ctx, const SSL_SESSION *session)
{
    X509 *const cert = SSL_SESSION_get0_peer((SSL_SESSION *)session);

    if (ctx->conf.ca_file == NULL)
        return true;
    if (cert == NULL)
        return ctx->conf.client_optional && !ctx->conf.must_be_known;
    return X509_cmp_current_time(X509_get0_notAfter(cert)) > 0 &&
           X509_cmp_current_time(X509_get0_notBefore(cert)) < 0 &&
           tls_names_refusal(ctx, cert) == NULL;
}

static SSL_TICKET_RETURN on_ticket_opened(SSL *ssl, SSL_SESSION *session, const unsigned char *name,
                                          size_t name_len, SSL_TICKET_STATUS status, void *arg)
{
    (void)ssl;
    (void)name;
    (void)name_len;
    if (status != SSL_TICKET_SUCCESS && status != SSL_TICKET_SUCCESS_RENEW)
        return SSL_TICKET_RETURN_IGNORE_RENEW;
    if (!session_may_resume(arg, session))
        return SSL_TICKET_RETURN_IGNORE_RENEW;
    return status == SSL_TICKET_SUCCESS ? SSL_TICKET_RETURN_USE : SSL_TICKET_RETURN_USE_RENEW;
}

/* ---- one SSL_CTX ---- */

static void set_protocol(SSL_CTX *ssl, const struct tls_conf *conf)
{
    static const unsigned char h2[] = {2, 'h', '2'};

    check(SSL_CTX_set_min_proto_version(ssl, conf->only_tls13 ? TLS1_3_VERSION : TLS1_2_VERSION) ==
          1);
    check(SSL_CTX_set_cipher_list(ssl, TLS12_CIPHERS) == 1);
    check(SSL_CTX_set_ciphersuites(ssl, TLS13_CIPHERS) == 1);
    check(SSL_CTX_set1_groups_list(ssl, GROUPS) == 1);
    SSL_CTX_set_options(ssl, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION |
                                 SSL_OP_CIPHER_SERVER_PREFERENCE);
    /* An idle connection holds no 16 KiB buffers; costs nothing that can be measured. */
    SSL_CTX_set_mode(ssl, SSL_MODE_RELEASE_BUFFERS | SSL_MODE_AUTO_RETRY |
                              SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    SSL_CTX_set_max_cert_list(ssl, TLS_HANDSHAKE_BYTES);
    SSL_CTX_set_verify_depth(ssl, TLS_CHAIN_DEPTH);
    SSL_CTX_set_session_cache_mode(ssl, SSL_SESS_CACHE_OFF); /* tickets hold it, not we */
    check(SSL_CTX_set_max_early_data(ssl, 0) == 1);
    if (!conf->server)
        check(SSL_CTX_set_alpn_protos(ssl, h2, sizeof(h2)) == 0);
}

static void set_server(SSL_CTX *ssl, struct tls_ctx *ctx, struct tls_files *f)
{
    SSL_CTX_set_client_hello_cb(ssl, on_hello, NULL);
    SSL_CTX_set_alpn_select_cb(ssl, on_alpn, NULL);
    SSL_CTX_set_cert_cb(ssl, on_cert, f);
    SSL_CTX_set_tlsext_status_cb(ssl, tls_staple_on_status);
    SSL_CTX_set_tlsext_status_arg(ssl, f);
    SSL_CTX_set_num_tickets(ssl, 1); /* a gRPC client keeps one connection */
    check(SSL_CTX_set_tlsext_ticket_key_evp_cb(ssl, on_ticket_key) == 1);
    check(SSL_CTX_set_session_ticket_cb(ssl, NULL, on_ticket_opened, ctx) == 1);
}

static int use_certs(struct tls_files *f, const struct tls_ctx *ctx, struct err *err)
{
    const struct tls_conf *const conf = &ctx->conf;
    const struct tls_pair first = {conf->cert_file, conf->key_file, conf->ocsp_file};
    int r;

    if (first.cert_file == NULL && first.key_file == NULL && !conf->server)
        return 0;
    if (first.cert_file == NULL || first.key_file == NULL)
        return err_set(err, -EINVAL, "TLS: certificate and key go together");
    f->certs = xcalloc(conf->n_pairs + 1, sizeof(*f->certs));
    for (size_t i = 0; i <= conf->n_pairs; i++) {
        f->n_certs = i + 1;
        r = read_pair(&f->certs[i], i == 0 ? &first : &ctx->pairs[i - 1], err);
        if (r < 0)
            return r;
        tls_names_index(&f->by_name, &f->certs[i]);
    }
    if (SSL_CTX_use_cert_and_key(f->ssl, f->certs[0].leaf, f->certs[0].key, f->certs[0].chain, 1) !=
        1)
        return tls_ssl_fault(err, -EINVAL, first.cert_file);
    return 0;
}

/* digest: of the authorities, for the session id context. */
static int use_authorities(SSL_CTX *ssl, const struct tls_conf *conf, EVP_MD_CTX *digest,
                           struct err *err)
{
    STACK_OF(X509) *const all = read_certs(conf->ca_file, AUTHORITIES_MAX, err);

    if (all == NULL)
        return -EINVAL;
    for (int i = 0; i < sk_X509_num(all); i++) {
        X509 *const cert = sk_X509_value(all, i);
        unsigned char hash[EVP_MAX_MD_SIZE];
        unsigned len = 0;

        X509_STORE_add_cert(SSL_CTX_get_cert_store(ssl), cert);
        if (conf->server)
            SSL_CTX_add_client_CA(ssl, cert);
        X509_digest(cert, EVP_sha256(), hash, &len);
        EVP_DigestUpdate(digest, hash, len);
    }
    sk_X509_pop_free(all, X509_free);
    ERR_clear_error();
    return 0;
}

static int use_trust(SSL_CTX *ssl, const struct tls_conf *conf, struct err *err)
{
    EVP_MD_CTX *const digest = EVP_MD_CTX_new();
    unsigned char id[EVP_MAX_MD_SIZE];
    unsigned id_len = 0;
    int r = 0;

    EVP_DigestInit_ex(digest, EVP_sha256(), NULL);
    if (conf->name != NULL)
        EVP_DigestUpdate(digest, conf->name, strlen(conf->name) + 1);
    EVP_DigestUpdate(digest, conf->client_optional ? "o" : "r", 1);
    if (conf->ca_file != NULL)
        r = use_authorities(ssl, conf, digest, err);
    else if (!conf->server && !conf->no_verify)
        SSL_CTX_set_default_verify_paths(ssl); /* SSL_CERT_FILE and SSL_CERT_DIR count */
    EVP_DigestFinal_ex(digest, id, &id_len);
    EVP_MD_CTX_free(digest);
    if (conf->server)
        check(SSL_CTX_set_session_id_context(ssl, id, id_len) == 1);
    if (conf->server && conf->ca_file != NULL)
        SSL_CTX_set_verify(
            ssl, SSL_VERIFY_PEER | (conf->client_optional ? 0 : SSL_VERIFY_FAIL_IF_NO_PEER_CERT),
            NULL);
    else if (!conf->server && !conf->no_verify)
        SSL_CTX_set_verify(ssl, SSL_VERIFY_PEER, NULL);
    return r;
}

/* ---- what was read ---- */

void tls_files_unref(struct tls_files *f)
{
    if (f == NULL || atomic_fetch_sub(&f->refs, 1) > 1)
        return;
    SSL_CTX_free(f->ssl);
    for (size_t i = 0; i < f->n_certs; i++)
        cert_fini(&f->certs[i]);
    free(f->certs);
    map_fini(&f->by_name);
    free(f);
}

static struct tls_files *files_read(struct tls_ctx *ctx, struct err *err)
{
    struct tls_files *const f = xcalloc(1, sizeof(*f));

    ERR_clear_error();
    atomic_init(&f->refs, 1);
    map_init(&f->by_name);
    f->ssl = SSL_CTX_new(ctx->conf.server ? TLS_server_method() : TLS_client_method());
    check(f->ssl != NULL);
    SSL_CTX_set_app_data(f->ssl, ctx);
    set_protocol(f->ssl, &ctx->conf);
    if (ctx->conf.server)
        set_server(f->ssl, ctx, f);
    SSL_CTX_set_cert_verify_callback(f->ssl, on_verify, ctx);
    if (use_certs(f, ctx, err) == 0 && use_trust(f->ssl, &ctx->conf, err) == 0)
        return f;
    tls_files_unref(f);
    return NULL;
}

/* ---- contexts ---- */

static char *copy(const char *s)
{
    return s != NULL ? xstrdup(s) : NULL;
}

static void conf_copy(struct tls_ctx *ctx, const struct tls_conf *conf)
{
    ctx->conf = *conf;
    ctx->conf.cert_file = copy(conf->cert_file);
    ctx->conf.key_file = copy(conf->key_file);
    ctx->conf.ocsp_file = copy(conf->ocsp_file);
    ctx->conf.ca_file = copy(conf->ca_file);
    ctx->conf.name = copy(conf->name);
    ctx->conf.peer_name = copy(conf->peer_name);
    ctx->pairs = xcalloc(conf->n_pairs + 1, sizeof(*ctx->pairs));
    for (size_t i = 0; i < conf->n_pairs; i++)
        ctx->pairs[i] =
            (struct tls_pair){copy(conf->pairs[i].cert_file), copy(conf->pairs[i].key_file),
                              copy(conf->pairs[i].ocsp_file)};
    ctx->conf.pairs = ctx->pairs;
}

static void conf_free(struct tls_ctx *ctx)
{
    free((char *)ctx->conf.cert_file);
    free((char *)ctx->conf.key_file);
    free((char *)ctx->conf.ocsp_file);
    free((char *)ctx->conf.ca_file);
    free((char *)ctx->conf.name);
    free((char *)ctx->conf.peer_name);
    for (size_t i = 0; i < ctx->conf.n_pairs; i++) {
        free((char *)ctx->pairs[i].cert_file);
        free((char *)ctx->pairs[i].key_file);
        free((char *)ctx->pairs[i].ocsp_file);
    }
    free(ctx->pairs);
}

struct tls_ctx *tls_ctx_new(const struct tls_conf *conf, struct err *err)
{
    struct tls_ctx *const ctx = xcalloc(1, sizeof(*ctx));

    atomic_init(&ctx->refs, 1);
    conf_copy(ctx, conf);
    tls_tickets_init(&ctx->tickets);
    check(pthread_mutex_init(&ctx->lock, NULL) == 0);
    ctx->bio = tls_bio_method_new();
    ctx->files = files_read(ctx, err);
    return ctx->files != NULL ? ctx : tls_ctx_unref(ctx);
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
    tls_files_unref(ctx->files);
    BIO_meth_free(ctx->bio);
    tls_tickets_fini(&ctx->tickets);
    pthread_mutex_destroy(&ctx->lock);
    conf_free(ctx);
    free(ctx);
    return NULL;
}

bool tls_ctx_is_server(const struct tls_ctx *ctx)
{
    return ctx->conf.server;
}

struct tls_files *tls_ctx_files(struct tls_ctx *ctx)
{
    struct tls_files *f;

    pthread_mutex_lock(&ctx->lock);
    f = ctx->files;
    atomic_fetch_add(&f->refs, 1);
    pthread_mutex_unlock(&ctx->lock);
    return f;
}

static int refuse_expired(const struct tls_files *f, struct err *err)
{
    for (size_t i = 0; i < f->n_certs; i++) {
        const ASN1_TIME *const end = X509_get0_notAfter(f->certs[i].leaf);
        char when[32] = "?";
        BIO *b;

        if (X509_cmp_current_time(end) > 0)
            continue;
        b = BIO_new(BIO_s_mem());
        ASN1_TIME_print(b, end);
        when[BIO_read(b, when, sizeof(when) - 1)] = '\0';
        BIO_free(b);
        return err_set(err, -EINVAL, "%s: expired on %s", f->certs[i].file, when);
    }
    return 0;
}

int tls_ctx_reload(struct tls_ctx *ctx, struct err *err)
{
    struct tls_files *const next = files_read(ctx, err);
    struct tls_files *old;

    if (next == NULL)
        return err != NULL ? err->code : -EINVAL;
    if (refuse_expired(next, err) != 0) {
        tls_files_unref(next);
        return -EINVAL;
    }
    pthread_mutex_lock(&ctx->lock);
    old = ctx->files;
    ctx->files = next;
    pthread_mutex_unlock(&ctx->lock);
    tls_files_unref(old);
    return 0;
}

static uint64_t stamp_file(const char *file, uint64_t seed)
{
    struct stat st;
    uint64_t parts[6] = {0};

    if (file == NULL)
        return seed;
    if (stat(file, &st) != 0) { /* follows links: what they point to may be swapped as a whole */
        parts[0] = (uint64_t)errno;
        return hash_bytes(parts, sizeof(parts), seed);
    }
    parts[0] = (uint64_t)st.st_mtim.tv_sec;
    parts[1] = (uint64_t)st.st_mtim.tv_nsec;
    parts[2] = (uint64_t)st.st_size;
    parts[3] = (uint64_t)st.st_ino;
    parts[4] = (uint64_t)st.st_dev;
    parts[5] = (uint64_t)st.st_ctim.tv_sec * 1000000000u + (uint64_t)st.st_ctim.tv_nsec;
    return hash_bytes(parts, sizeof(parts), seed);
}

uint64_t tls_ctx_stamp(const struct tls_ctx *ctx)
{
    uint64_t stamp = stamp_file(ctx->conf.cert_file, 1);

    stamp = stamp_file(ctx->conf.key_file, stamp);
    stamp = stamp_file(ctx->conf.ocsp_file, stamp);
    for (size_t i = 0; i < ctx->conf.n_pairs; i++) {
        stamp = stamp_file(ctx->pairs[i].cert_file, stamp);
        stamp = stamp_file(ctx->pairs[i].key_file, stamp);
        stamp = stamp_file(ctx->pairs[i].ocsp_file, stamp);
    }
    return stamp_file(ctx->conf.ca_file, stamp);
}

size_t tls_ctx_certs(struct tls_ctx *ctx, struct tls_cert_info *ret, size_t max)
{
    struct tls_files *const f = tls_ctx_files(ctx);
    const size_t n = f->n_certs;

    for (size_t i = 0; i < n && i < max; i++)
        ret[i] = (struct tls_cert_info){
            .file = f->certs[i].file,
            .not_after_s = seconds_of(X509_get0_notAfter(f->certs[i].leaf)),
            .not_before_s = seconds_of(X509_get0_notBefore(f->certs[i].leaf)),
        };
    tls_files_unref(f);
    return n;
}
