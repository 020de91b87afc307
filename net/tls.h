/* net/tls.h - TLS for conn: contexts from files, and one connection's record layer.
 *
 * Owns:      the only door to OpenSSL: net/tls.c (connections), net/tls_ctx.c (contexts),
 *            net/tls_names.c (names in certificates), net/tls_tickets.c (keys of sessions),
 *            net/tls_ocsp.c (stapling).
 * Called by: whoever configures listeners and upstreams (tls_ctx_*); net/conn.c (the rest).
 * Lifetime:  tls_ctx_new .. last tls_ctx_unref; tls_new .. tls_free.
 * Thread:    a tls_ctx may be used by all workers, also while one thread reloads it; a struct tls
 *            by its loop's.
 * Source:    RFC 8446, RFC 7301, RFC 6066 3, RFC 9113 9.2 (TLS >= 1.2, ALPN "h2").
 *
 * Invariants:
 *  - Forward secrecy and AEAD only; ALPN must be "h2"; no renegotiation, no 0-RTT, no compression.
 *  - What a peer may make us do is bounded: TLS_HANDSHAKE_BYTES until the handshake is done,
 *    TLS_CHAIN_DEPTH certificates above its own, TLS_LATE_MESSAGES a minute afterwards.
 *  - A session is resumed only by the context that made it, under the same rules for clients, the
 *    same client authorities, and while the client's certificate would still be let in.
 *  - Who a peer is comes from its certificate's URI and DNS names alone, byte by byte; never from
 *    its common name. A name with a NUL in it is no name: the certificate is refused.
 */
#ifndef NET_TLS_H
#define NET_TLS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"
#include "net/slab.h"

#define TLS_HANDSHAKE_BYTES                                                                        \
    (64u * 1024) /* from the peer; a chain of RSA-4096 with stapling: 12                           \
                  */
#define TLS_CHAIN_DEPTH   4
#define TLS_LATE_MESSAGES 100 /* key updates and the like, a minute; RFC 8446 5.5: 1 in 2^24 */

struct map;
struct tls_ctx;
struct tls;

struct tls_pair {
    const char *cert_file; /* PEM chain, own certificate first */
    const char *key_file;  /* PEM, not encrypted */
    const char *ocsp_file; /* DER: what is stapled for it; NULL: nothing */
};

struct tls_conf {
    bool server;
    /* Required for a server: what clients get that ask for no name, or for one that no pair has.
     * Client: its own certificate, or NULL. */
    const char *cert_file, *key_file, *ocsp_file;
    const struct tls_pair *pairs; /* server: further ones, chosen by the name that a client asks
                                     for (SNI): that of a DNS SAN, or the "*." above it */
    size_t n_pairs;
    const char *ca_file;  /* server: clients must show a certificate of these (mTLS). client: trust
                             these; NULL: the system's */
    bool client_optional; /* server with ca_file: clients that show none are let in, too */
    bool only_tls13;
    bool no_verify;        /* client: take any certificate */
    const char *peer_name; /* client: the name or address that certificates must show; NULL: what
                              tls_new is given */
    /* Server with ca_file: SAN -> whatever tls_identity shall say; stays as long as the context.
     * must_be_known: clients without such a SAN are refused. */
    const struct map *identities;
    bool must_be_known;
    const char *name; /* server: of the listener; sessions of another one are not resumed */
};

/* NULL with err that names file and reason. Strings are copied. */
struct tls_ctx *tls_ctx_new(const struct tls_conf *conf, struct err *err);
struct tls_ctx *tls_ctx_ref(struct tls_ctx *ctx);
struct tls_ctx *tls_ctx_unref(struct tls_ctx *ctx); /* NULL is fine; returns NULL */
bool tls_ctx_is_server(const struct tls_ctx *ctx);

/* Read the files again: connections that begin from now on use them. -EINVAL or -errno with err:
 * one can't be used (expired ones neither), and all that was read before stays in use. */
int tls_ctx_reload(struct tls_ctx *ctx, struct err *err);
/* Another number: one of the files was written, replaced or removed. */
uint64_t tls_ctx_stamp(const struct tls_ctx *ctx);

/* Can these files be used? For a config check. 0, or -EINVAL with err that names file and reason.
 */
int tls_check_chain(const char *file, struct err *err); /* certificates, ours or authorities' */
int tls_check_pair(const struct tls_pair *pair, struct err *err);

struct tls_cert_info {
    const char *file;                  /* lives as long as the context */
    int64_t not_after_s, not_before_s; /* since 1970 */
};
/* Our own certificates in use; returns how many there are, of which at most max are filled in. */
size_t tls_ctx_certs(struct tls_ctx *ctx, struct tls_cert_info *ret, size_t max);

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

/* For messages: the peer's first URI or DNS SAN; "" if it has none or showed no certificate. */
const char *tls_peer_name(struct tls *t);
/* What conf.identities says of the peer's SANs, URIs before DNS names; NULL: none is in it. */
const void *tls_identity(const struct tls *t);
bool tls_was_resumed(const struct tls *t);

#endif
