/* tests/fuzz/wire.h - what the gateway writes on one connection, read with other eyes than ours.
 *
 * Frames are walked here, header blocks are decoded by nghttp2's inflater, and every rule of RFC
 * 9113 and of gRPC that the sender itself must keep is checked; a broken one stops the process.
 * What the peer (the fuzzer) sent is read, too, as far as those rules depend on it.
 *
 * Owns:      a copy of what is not a whole frame yet; one row per stream.
 * Called by: fuzz_session.c, fuzz_upstream.c, fuzz_events.c.
 * Lifetime:  wire_init .. wire_fini.
 * Source:    RFC 9113 5.1, 5.2, 6; PROTOCOL-HTTP2.md of gRPC: each answer ends with a grpc-status.
 */
#ifndef TESTS_FUZZ_WIRE_H
#define TESTS_FUZZ_WIRE_H

#include <nghttp2/nghttp2.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

#define WIRE_STREAMS  512 /* more are not followed */
#define WIRE_SETTINGS 512

struct wire_stream {
    uint32_t id;
    bool opened;  /* by a HEADERS of the peer (server side) or of ours (client side) */
    bool headers; /* final ones left */
    bool ended, reset;
    bool given_up; /* by the peer: its RST_STREAM */
    bool grpc;
    int status;      /* HTTP; 0: none */
    int grpc_status; /* -1: none */
    uint64_t data_bytes;
    uint64_t data_hash;
    uint64_t credit; /* WINDOW_UPDATEs of the peer for it */
};

struct wire {
    bool is_server;     /* what is read is written by a server */
    struct buf in, out; /* not yet whole frames */
    bool in_started, out_started;
    nghttp2_hd_inflater *inflater;
    struct buf block;
    uint32_t block_stream; /* 0: none open */
    uint8_t block_flags;
    struct wire_stream streams[WIRE_STREAMS];
    size_t n_streams;
    /* the peer's side */
    uint32_t initial_window; /* the largest that it announced */
    uint32_t max_frame;
    uint64_t conn_credit;
    uint64_t conn_bytes;
    uint32_t table_sizes[WIRE_SETTINGS]; /* one per SETTINGS; UINT32_MAX: it names none */
    uint32_t n_settings, n_acked, n_pings, n_pongs;
    uint64_t n_frames_in;
    bool went_away;
    uint32_t goaway_code, goaway_last;
    uint32_t last_opened; /* by us */
};

/* is_server: w reads what a server writes; what it was sent starts with the preface. */
void wire_init(struct wire *w, bool is_server);
void wire_fini(struct wire *w);
void wire_in(struct wire *w, const uint8_t *p, size_t len);  /* the peer is about to send */
void wire_out(struct wire *w, const uint8_t *p, size_t len); /* the gateway has written */
const struct wire_stream *wire_find(const struct wire *w, uint32_t id); /* NULL: unknown */

#endif
