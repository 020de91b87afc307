/* loadtest/wire.h - one HTTP/2 connection at its cheapest: a buffer in, a buffer out.
 *
 * For the saturating generator and the light replica, which have to cost less than any proxy
 * between them: frames are read and written where they lie, and what a read brought is answered by
 * one write; in TLS, by one write of as few records as hold it. Nothing here is for peers that mean
 * harm.
 *
 * Owns:      the socket, its two buffers.
 * Called by: saturate.c, light_replica.c.
 * Lifetime:  wire_open .. wire_close (works on a closed one).
 * Thread:    one.
 * Source:    RFC 9113 sections 4 and 6.
 */
#ifndef LOADTEST_WIRE_H
#define LOADTEST_WIRE_H

#include "net/h2_frame.h"
#include "net/tls.h"

#define WIRE_IN_BYTES  (256u * 1024)
#define WIRE_OUT_BYTES (256u * 1024) /* no more DATA is queued past this */
#define WIRE_WINDOW    0x7fffffffu   /* what we grant: everything */

struct wire {
    int fd;    /* -1: closed */
    int epoll; /* where it is registered, with the wire as its data */
    uint8_t *in, *out;
    size_t in_from, in_len;
    size_t out_from, out_len, out_cap;
    bool write_waits;     /* the socket is full: EPOLLOUT is asked for */
    uint32_t owed_window; /* taken from the peer's connection window, not given back yet */
    uint64_t n_reads, n_writes;
    struct tls *tls; /* NULL: cleartext */
    struct outq sealed;
    uint8_t *cipher; /* what the socket brought, of WIRE_IN_BYTES */
    bool tls_done;   /* its handshake */
};

/* fd: connected, non-blocking; owned from here, also when this fails. 0 or -errno. */
int wire_open(struct wire *w, int fd, int epoll, struct err *err);
/* Before anything else is sent: TLS, as a client. host: see tls_new. */
int wire_start_tls(struct wire *w, struct tls_ctx *ctx, const char *host, struct slab_pool *slabs,
                   struct err *err);
void wire_close(struct wire *w);

/* One read. The bytes that came; 0: none now; -ECONNRESET: the peer has closed; other -errno. */
long wire_read(struct wire *w);
/* The next whole frame of what was read, its payload without padding. 1, 0: none, -EPROTO. */
int wire_next(struct wire *w, struct frame *f, const uint8_t **payload, size_t *len);
/* Room for len bytes of output, which the caller fills. */
uint8_t *wire_put(struct wire *w, size_t len);
size_t wire_queued(const struct wire *w);
/* One write of what is queued; the rest waits for the socket. 0 or -errno. */
int wire_flush(struct wire *w);

/* Our SETTINGS (all windows open) and what follows them; the client's preface goes before. */
void wire_put_greeting(struct wire *w, bool is_client);
/* SETTINGS, PING: answered. DATA: the connection's window is given back now and then. */
void wire_put_settings_ack(struct wire *w);
void wire_put_pong(struct wire *w, const uint8_t *payload);
void wire_put_window(struct wire *w, size_t data_bytes);

/* --- header fields, encoded once --- */

#define WIRE_BLOCK_BYTES 8192u

/* Two forms of one list: `first` puts the fields into the peer's table, `rest` names them there. */
struct wire_block {
    uint8_t first[WIRE_BLOCK_BYTES], rest[WIRE_BLOCK_BYTES];
    size_t first_len, rest_len;
    bool was_sent;
};

/* Encodes the n blocks of one connection: all that it will send, each for
 * the first time in this order and before any for the second.
 * may_index: false: the peer's table is smaller than the usual 4096 bytes. -E2BIG: longer than
 * WIRE_BLOCK_BYTES. */
int wire_block_make(struct wire_block *const *blocks, const struct h2_field *const *fields,
                    const size_t *n_fields, size_t n, bool may_index);
/* The bytes to send now. */
const uint8_t *wire_block_next(struct wire_block *b, size_t *ret_len);
/* A field outside every table: its bytes at p. Returns the byte after it. */
uint8_t *wire_put_literal(uint8_t *p, const struct h2_field *f);

#endif
