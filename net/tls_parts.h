/* net/tls_parts.h - what the files of the TLS module share (net/tls.h is the interface).
 *
 * Owns:      struct tls_ctx: its own configuration, the keys of its sessions, and the struct
 *            tls_files read last.
 * Lifetime:  a tls_files lives as long as connections that began with it.
 * Thread:    tls_files is immutable; which one is in use changes under tls_ctx.lock.
 */
#ifndef NET_TLS_PARTS_H
#define NET_TLS_PARTS_H

#include <pthread.h>
#include <stdatomic.h>

#include <openssl/ssl.h>

#include "base/hash.h"
#include "net/tls.h"
#include "net/tls_tickets.h"

struct tls_staple {
    unsigned char *bytes; /* DER; NULL: none */
    size_t len;
    ASN1_GENERALIZEDTIME *until; /* NULL: it does not say */
};

struct tls_cert {
    const char *file; /* the context's */
    X509 *leaf;
    EVP_PKEY *key;
    STACK_OF(X509) * chain;
    struct tls_staple staple;
};

/* What the files said when they were read. */
struct tls_files {
    atomic_uint refs;
    SSL_CTX *ssl;
    struct tls_cert *certs; /* the default one first; n 0: a client that shows none */
    size_t n_certs;
    struct map by_name; /* DNS SAN in lower case, "*." included -> struct tls_cert * */
};

struct tls_ctx {
    atomic_uint refs;
    struct tls_conf conf; /* with copies of the strings */
    struct tls_pair *pairs;
    BIO_METHOD *bio; /* reads what was fed, writes to the connection's output */
    struct tls_tickets tickets;
    pthread_mutex_t lock; /* of files, the pointer */
    struct tls_files *files;
};

struct tls_files *tls_ctx_files(struct tls_ctx *ctx); /* a reference on those in use */
void tls_files_unref(struct tls_files *f);

/* --- net/tls.c --- */

BIO_METHOD *tls_bio_method_new(void);
/* Why our own rules end the handshake, for the message. why: a literal. */
void tls_note_refusal(SSL *ssl, const char *why);

/* --- net/tls_ctx.c --- */

/* What OpenSSL says last, with what; clears its queue, which is per thread. Returns code. */
int tls_ssl_fault(struct err *err, int code, const char *what);

/* --- net/tls_ocsp.c --- */

int tls_staple_read(struct tls_staple *s, const char *file, X509 *cert, struct err *err);
void tls_staple_fini(struct tls_staple *s);
int tls_staple_on_status(SSL *ssl, void *files); /* for SSL_CTX_set_tlsext_status_cb */

/* --- net/tls_names.c --- */

/* May the holder of this certificate come in, as far as its names go? NULL: yes, else why not. */
const char *tls_names_refusal(const struct tls_ctx *ctx, X509 *cert);
const void *tls_names_identity(const struct tls_ctx *ctx, X509 *cert);
char *tls_names_first(X509 *cert); /* to free; NULL: has none */
/* Adds cert under each of its DNS SANs that no other has. */
void tls_names_index(struct map *by_name, struct tls_cert *cert);
struct tls_cert *tls_names_lookup(const struct map *by_name, const char *server_name);

#endif
