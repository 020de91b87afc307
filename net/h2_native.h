/* net/h2_native.h - one connection of our own HTTP/2 engine, shared by its files: h2_native.c
 * (life and calls), h2_native_recv.c (bytes in), h2_native_block.c and h2_native_control.c
 * (frames), h2_native_window.c (flow control), h2_native_send.c (bytes out).
 *
 * Owns:      its streams (net/h2_stream.h), both HPACK sides, control frames that wait.
 * Called by: net/h2.c through h2_engine_native; nobody else includes this.
 * Lifetime:  create .. destroy of the ops table.
 * Source:    RFC 9113, RFC 7541. What we do where they leave a choice:
 *            the comments of the refusals, and tests/unit/test_h2_diff.c.
 *
 * Invariants:
 *  - A call only notes what is to leave, on the stream; flush makes frames of it. So HPACK's order
 *    is the order on the wire, a stream that is reset before the flush costs the peer nothing, and
 *    what one turn gave for a stream shares frames.
 *  - A stream is in `table` from the moment its id is known until it has ended or is gone; in `all`
 *    until its on_close; on at most one of ready, stalled (connection window) and gone.
 *  - An event may end every stream (h2_lost): after each, look at `lost` before any stream.
 *  - on_close of a stream that the peer broke comes at the end of recv: whoever serves it has not
 *    flushed in this turn, so it costs nothing further on.
 *  - No stream is freed but in native_end; on_close is called there and nowhere else.
 */
#ifndef NET_H2_NATIVE_H
#define NET_H2_NATIVE_H

#include "net/h2_frame.h"
#include "net/h2_stream.h"

#define LAST_OPEN_ID     (1u << 30) /* retire the connection long before ids end */
#define CONTROL_FACTOR   4u         /* control frames pass the high water by so much */
#define MAX_SETTINGS_OUT 4u         /* of ours: a peer that acknowledges none gets no more */

enum native_in { /* what the next bytes are */
                 IN_MAGIC = 0,
                 IN_HEAD,
                 IN_PAD_LEN, /* the first byte of padded DATA */
                 IN_DATA,    /* payload that goes on as it comes */
                 IN_PART,    /* payload that is gathered, for it did not come as a whole */
                 IN_SKIP,    /* padding, DATA that nobody wants */
};

enum native_block { /* what becomes of a header block */
                    BLOCK_NONE = 0,
                    BLOCK_REQUEST,
                    BLOCK_OF_STREAM, /* response, 1xx or trailers of a stream that lives */
                    BLOCK_IGNORED,
                    BLOCK_REFUSED,   /* over max_concurrent_streams */
                    BLOCK_AFTER_RST, /* for a stream that the peer has reset */
};

struct native {
    struct h2 base;
    bool failed; /* a connection error: a GOAWAY is queued, then close */
    bool lost;
    bool settings_seen;
    bool goaway_sent;
    bool stopped; /* failed or lost */
    bool shut;    /* that, or a GOAWAY went or came: no new streams */
    bool first_frame_seen;
    struct nstream_shared *shared;
    struct nstream_table table;
    struct list all, ready, stalled, gone;
    struct nstream_graves graves;

    /* input */
    enum native_in in;
    uint8_t head[FRAME_MAGIC_BYTES]; /* of magic or frame head: what has come */
    uint32_t n_head;
    struct frame frame;
    uint32_t left;     /* payload of frame still to come */
    uint32_t pad;      /* trailing part of left that is padding */
    struct slab *part; /* gathered bytes of a frame or a header block */
    uint32_t n_part;
    uint32_t n_block; /* of part: the header block, frames before this one */
    bool whole;       /* during recv: see h2_note_unfinished */
    enum native_block block;
    uint32_t block_id;
    uint32_t n_continuations, n_empty_continuations;
    bool block_end;    /* END_STREAM was on HEADERS */
    bool block_passes; /* it was too long to be kept: its first fields are decoded and dropped */
    uint32_t last_peer_id;
    uint32_t goaway_last_id; /* the peer's GOAWAY */
    uint32_t n_empty_data;   /* in a row */
    struct hpack_in hpack_in;
    uint32_t conn_owed;         /* connection credit not given back yet */
    uint32_t conn_owed_most;    /* then it goes back */
    uint32_t window;            /* of a stream, in our newest SETTINGS */
    uint32_t window_most;       /* it grows so far */
    uint32_t recv_window;       /* as the peer may still see it */
    uint32_t n_settings_out;    /* ours that the peer has not acknowledged */
    uint64_t settings_since_us; /* the oldest of those left; 0: there is none, or it has not left */
    /* a stream whose DATA is counted until a PING of ours is answered; 0: none */
    uint32_t probe_id, probe_used, probe_rest, probe_skip;
    uint64_t probe_credit; /* given back on it since */
    bool told_dirty;       /* on_dirty came, and no flush since */
    struct slab *slab;     /* during recv */

    /* output */
    struct hpack_out hpack_out;
    uint32_t next_id;     /* client */
    uint32_t our_last_id; /* in the GOAWAY that we sent */
    int64_t conn_send;
    int32_t peer_window; /* SETTINGS_INITIAL_WINDOW_SIZE */
    uint32_t peer_frame; /* what we put into one DATA or HEADERS frame */
    uint32_t peer_max_streams;
    uint8_t *control; /* frames that wait for the flush */
    uint32_t n_control, cap_control;
    bool congested;    /* the last flush left something behind at the high water */
    struct slab *copy; /* payload given without a slab is gathered here */
    uint32_t copy_used;
};

static inline struct native *native_of(const struct h2 *h)
{
    return (struct native *)(uintptr_t)h;
}

static inline struct nstream *nstream_of(const struct h2_stream *s)
{
    return (struct nstream *)(uintptr_t)s;
}

/* There is output. Tells the user once a flush. */
static inline void native_dirty(struct native *n)
{
    if (n->told_dirty)
        return;
    n->told_dirty = true;
    h2_dirty(&n->base);
}

/* ---- h2_native.c ---- */

/* The last event, and the end of s. how: what may still come for its id. */
void native_end(struct native *n, struct nstream *s, uint32_t code, bool by_peer,
                enum nstream_end how);
/* Take s out of everything; its on_close comes with the next flush. */
void native_detach(struct native *n, struct nstream *s, uint32_t code, bool by_peer);
/* A connection error: queue GOAWAY, note why. Always -EPROTO, for `return native_fail(...)`. */
int native_fail(struct native *n, enum h2_code code, const char *why);
/* The same for a peer that is over a limit: ENHANCE_YOUR_CALM. */
int native_calm(struct native *n, enum h2_fault fault, const char *why);

/* ---- h2_native_recv.c ---- */

int native_recv(struct h2 *h, struct slab *slab, const uint8_t *p, size_t len, struct err *err);
/* Each returns 0, or -EPROTO when the peer's budget is spent. */
int native_pay_frame(struct native *n, enum budget_cost cost);
int native_pay_reset(struct native *n);  /* a stream ended early by the peer's doing */
int native_pay_answer(struct native *n); /* it is to be answered by a control frame */
/* The peer broke a rule on stream id (s, or NULL when we know none): RST_STREAM. */
int native_stream_broken(struct native *n, struct nstream *s, uint32_t id, enum h2_code code);
/* Has the id of a stream frame never been in use? RFC 9113 5.1.1. */
bool native_is_idle(const struct native *n, uint32_t id);
/* The event that told of the peer's END_STREAM has returned: s may be over on both sides now. */
void native_after_end_recv(struct native *n, struct nstream *s);

/* ---- h2_native_block.c, h2_native_control.c: frames with their whole payload ---- */

/* Each returns 0, or -EPROTO after a connection error. */
/* HEADERS that is a whole block, remembered, and breaks no rule. False: nothing was changed. */
bool native_take_plain_headers(struct native *n, const struct frame *f, const uint8_t *p);
int native_on_headers(struct native *n, const struct frame *f, const uint8_t *p, size_t len);
/* A server's block that is too long to be kept costs its call alone: drop the fields that are here.
 */
int native_shorten_block(struct native *n);
int native_on_continuation(struct native *n, const struct frame *f, const uint8_t *p, size_t len);
int native_on_priority(struct native *n, const struct frame *f, const uint8_t *p);
int native_on_rst(struct native *n, const struct frame *f, const uint8_t *p);
int native_on_settings(struct native *n, const struct frame *f, const uint8_t *p, size_t len);
int native_on_ping(struct native *n, const struct frame *f, const uint8_t *p);
int native_on_goaway(struct native *n, const uint8_t *p, size_t len);
int native_on_window_update(struct native *n, const struct frame *f, const uint8_t *p);
/* Put len bytes at offset at of part, which shall have room for want in the end. */
void native_keep_part(struct native *n, size_t at, const uint8_t *p, size_t len, size_t want);
void native_drop_part(struct native *n);

/* ---- h2_native_window.c ---- */

int native_change_windows(struct native *n, int32_t to);  /* the peer's SETTINGS */
void native_set_window(struct native *n, uint32_t bytes); /* ours, of every stream */
void native_bound_windows(struct native *n);              /* with so many streams as there are */
int native_on_settings_ack(struct native *n);
bool native_is_probe(const struct native *n, uint64_t opaque);
void native_on_probe_ack(struct native *n);
/* Give back credit of bytes of s that were consumed. */
void native_credit(struct native *n, struct nstream *s, uint32_t bytes);

/* ---- h2_native_send.c ---- */

/* Room for a control frame with its payload, which the caller fills; it leaves with the flush. */
uint8_t *native_control(struct native *n, enum frame_type type, unsigned flags, uint32_t id,
                        size_t len);
void native_rst(struct native *n, uint32_t id, uint32_t code);
void native_window_update(struct native *n, uint32_t id, uint32_t bytes);
/* Something of s may leave (again): put it in the queue of the flush, if it can. */
void native_ready(struct native *n, struct nstream *s);
/* Queue a copy of the payload. */
void native_copy(struct native *n, struct nstream *s, const uint8_t *p, size_t len);
/* The on_close of streams that native_detach took out. Never inside an event. */
void native_deliver_gone(struct native *n);
void native_flush(struct h2 *h, struct outq *out, size_t high_water);
bool native_has_output(const struct native *n);

#endif
