/* net/tls.h - TLS for conn: contexts from files, and one connection's record layer.
 *
 * Owns:      the only file that calls OpenSSL.
 * Called by: whoever configures listeners and upstreams (tls_ctx_*); net/conn.c (the rest).
 * Lifetime:  tls_ctx_new .. last tls_ctx_unref; tls_new .. tls_free.
 * Thread:    a tls_ctx may be used by all workers (OpenSSL locks it); a struct tls by its loop's.
 * Source:    RFC 8446, RFC 7301, RFC 9113 9.2 (TLS >= 1.2, ALPN "h2").
 */
#ifndef NET_TLS_H
#define NET_TLS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"
#include "net/slab.h"

struct tls_ctx;
struct tls;

struct tls_conf {
    bool server;
    const char
        *cert_file; /* PEM chain; required for a server, client: its own certificate or NULL */
    const char *key_file; /* PEM */
    const char *ca_file;  /* server: clients must show a certificate of these (mTLS). client: trust
                             these; NULL: the system's */
    bool no_verify;       /* client: take any certificate */
};

/* NULL with err that names file and reason. */
struct tls_ctx *tls_ctx_new(const struct tls_conf *conf, struct err *err);
struct tls_ctx *tls_ctx_ref(struct tls_ctx *ctx);
struct tls_ctx *tls_ctx_unref(struct tls_ctx *ctx); /* NULL is fine; returns NULL */
bool tls_ctx_is_server(const struct tls_ctx *ctx);

/* host: client: the name (SNI) or numeric address that the certificate must show; server: NULL.
 * out: where ciphertext for the socket is appended, during any of the calls below. */
struct tls *tls_new(struct tls_ctx *ctx, const char *host, struct outq *out);
struct tls *tls_free(struct tls *t); /* returns NULL */

/* Ciphertext from the socket, borrowed: call tls_handshake and tls_read until they have used it. */
void tls_feed(struct tls *t, const uint8_t *p, size_t len);
/* Go on with the handshake: 1 done, 0 needs more from the peer, -EPROTO with err. */
int tls_handshake(struct tls *t, struct err *err);
/* Plaintext into buf: > 0 bytes, 0 the peer's end (close_notify), -EAGAIN all fed bytes are used,
 * -EPROTO. */
ssize_t tls_read(struct tls *t, uint8_t *buf, size_t cap, struct err *err);
/* One record of up to TLS_RECORD_BYTES. 0 or -EPROTO. */
#define TLS_RECORD_BYTES 16384
int tls_write(struct tls *t, const uint8_t *p, size_t len, struct err *err);
void tls_shutdown(struct tls *t); /* close_notify */

/* The peer's verified name for tenancy: first URI or DNS SAN, else the CN; "" if none. */
const char *tls_peer_name(struct tls *t);

#endif
