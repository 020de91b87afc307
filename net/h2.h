/* net/h2.h - one HTTP/2 connection, either role: bytes in -> events, calls -> bytes out.
 *
 * The only interface to HTTP/2. An engine is an ops table behind it: `session` stands on
 * nghttp2_session (net/h2_session.c) and is the reference; `native` has its own framing
 * (net/h2_native.h) and takes of nghttp2 the HPACK coder alone.
 *
 * Owns:      its streams; a struct h2_stream is valid from h2_open / the first on_headers until its
 *            on_close returned.
 * Called by: net/conn.c (h2_recv, h2_flush); the relay, the gRPC client and server (the rest).
 * Lifetime:  h2_new .. h2_free. h2_free calls on_close(H2_CANCEL) for each stream still open.
 * Thread:    one.
 * Source:    RFC 9113, RFC 7541.
 *
 * Invariants:
 *  - Calls that make output (h2_send_*, h2_reset, ...) may be made inside an event: they only
 * queue. Output leaves in h2_flush, which is never called from inside an event.
 *  - on_close comes exactly once per stream, and is the last event of that stream.
 *  - Connection-level credit is returned on receipt; stream-level credit only by h2_consume. So a
 *    stream that nobody forwards holds at most limits.stream_window bytes, or what
 * h2_set_stream_window or the connection's round trips have made of it.
 *  - Bytes given to h2_send_data wait in the stream until the peer's windows and the connection's
 *    room allow; on_sent says when they have moved to the output.
 */
#ifndef NET_H2_H
#define NET_H2_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "net/slab.h"

struct h2;
struct h2_stream;

enum h2_role { H2_SERVER = 0, H2_CLIENT };
enum h2_block { H2_REQUEST = 0, H2_RESPONSE, H2_INFORMATIONAL, H2_TRAILERS };

/* RFC 9113 section 7 */
enum h2_code {
    H2_NO_ERROR = 0x0,
    H2_PROTOCOL_ERROR = 0x1,
    H2_INTERNAL_ERROR = 0x2,
    H2_FLOW_CONTROL_ERROR = 0x3,
    H2_SETTINGS_TIMEOUT = 0x4,
    H2_STREAM_CLOSED = 0x5,
    H2_FRAME_SIZE_ERROR = 0x6,
    H2_REFUSED_STREAM = 0x7,
    H2_CANCEL = 0x8,
    H2_COMPRESSION_ERROR = 0x9,
    H2_CONNECT_ERROR = 0xa,
    H2_ENHANCE_YOUR_CALM = 0xb,
    H2_INADEQUATE_SECURITY = 0xc,
    H2_HTTP_1_1_REQUIRED = 0xd,
};
const char *h2_code_name(uint32_t code); /* "CANCEL"; "?" for an unknown one */

/* The value came as (or shall leave as) a literal that enters no HPACK table: high-entropy ones.
 * (The session engine sees only the never-indexed form of RFC 7541 6.2.3.) */
#define H2_FIELD_NO_INDEX 1u

/* Not NUL-terminated. In events: valid until the event returns. In calls: copied. */
struct h2_field {
    const char *name;
    const char *value;
    uint32_t name_len;
    uint32_t value_len;
    uint32_t flags;
};
/* Of two string literals. H2_FIELD_INIT is for static tables. */
#define H2_FIELD_INIT(n, v)                                                                        \
    {                                                                                              \
        .name = (n), .value = (v), .name_len = (uint32_t)(sizeof(n) - 1),                          \
        .value_len = (uint32_t)(sizeof(v) - 1)                                                     \
    }
#define H2_FIELD(n, v) ((struct h2_field)H2_FIELD_INIT(n, v))

/* Fields that come, or leave, again and again: interned by content per slab pool (worker) and
 * immutable, so the same fields are the same pointer on every connection, and what follows from
 * them is worked out once and hung on as the note. Counted; valid while a reference is held. */
struct h2_set {
    const struct h2_field *fields; /* as a block has them; pseudo fields first */
    uint32_t n;
    uint32_t refs;
    void *note;                    /* of the worker that uses the sets; NULL at first */
    void (*note_free)(void *note); /* called when the last reference goes, if not NULL */
};
/* The set of these fields, made when there is none. The caller owes h2_set_unref. */
struct h2_set *h2_set_get(struct slab_pool *pool, const struct h2_field *fields, size_t n);
void h2_set_free(struct h2_set *set); /* for h2_set_unref */
/* Let go of the sets that only the pool keeps: before what their notes point to ends. */
void h2_sets_drop(struct slab_pool *pool);

/* Streams and slabs that a busier time has left to the pool: half of those that were never needed
 * since the last call go. Returns the bytes. */
size_t h2_trim(struct slab_pool *pool);

static inline struct h2_set *h2_set_ref(struct h2_set *set)
{
    set->refs++;
    return set;
}

static inline void h2_set_unref(struct h2_set *set) /* NULL is fine */
{
    if (set != NULL && --set->refs == 0)
        h2_set_free(set);
}

/* What we announce to, and allow, the peer. h2_limits_default fills it. */
struct h2_limits {
    uint32_t max_concurrent_streams; /* server: announced and enforced */
    uint32_t stream_window;          /* bytes; SETTINGS_INITIAL_WINDOW_SIZE at first */
    uint32_t stream_window_most;     /* of all of a connection's, as far as they grow (native) */
    uint32_t conn_window;            /* bytes */
    uint32_t max_frame_bytes;        /* 16384 .. 2^24-1 */
    uint32_t max_header_bytes;       /* of a block: name + value + 32 each, RFC 9113 6.5.2 */
    uint32_t max_header_fields;
    uint32_t max_header_frames; /* of a block over 4 KiB; a smaller one that is cut in single bytes
                                   may have 32 times as many */
    uint32_t max_ids_used;      /* of the peer's: then the connection is drained */
    /* the peer's frame meter, net/h2_budget.h */
    uint32_t score, score_per_s;   /* frames that carry nothing; what a second pays back */
    uint32_t resets, resets_per_s; /* streams that it lets end early; the same */
    uint32_t ping_strikes, ping_interval_ms;  /* PINGs without a call, closer than this */
    uint32_t answers_to_stop, answers_to_end; /* that wait for the peer to read them */
};
void h2_limits_default(struct h2_limits *l);
uint32_t h2_limits_window(const struct h2_limits *l); /* the largest that a stream's may become */

struct h2_events {
    /* A header block is complete. end: END_STREAM was on it. H2_INFORMATIONAL blocks (1xx) come
     * before H2_RESPONSE. */
    void (*on_headers)(void *user, struct h2_stream *s, enum h2_block kind,
                       const struct h2_field *fields, size_t n, bool end);
    /* Payload without padding; [p, p+len) lies in slab (take slab_ref to keep it). len may be 0
     * with end. The receiver owes h2_consume(s, len) when it has passed the bytes on or dropped
     * them. */
    void (*on_data)(void *user, struct h2_stream *s, struct slab *slab, const uint8_t *p,
                    size_t len, bool end);
    /* bytes of h2_send_data have moved into the connection's output. */
    void (*on_sent)(void *user, struct h2_stream *s, size_t bytes);
    /* The stream is over: H2_NO_ERROR when both halves ended (or RST NO_ERROR), else the code of
     * the RST_STREAM seen or sent, H2_REFUSED_STREAM also for one above a GOAWAY's last id or never
     * sent (safe to repeat elsewhere), H2_CONNECT_ERROR when the connection died. by_peer: the peer
     * reset it (or the connection died); false: we did. */
    void (*on_close)(void *user, struct h2_stream *s, uint32_t code, bool by_peer);
    void (*on_goaway)(void *user, uint32_t last_stream_id, uint32_t code, const uint8_t *debug,
                      size_t debug_len);
    void (*on_settings)(void *user); /* the peer's limits changed; see h2_peer_max_streams */
    void (*on_ping_ack)(void *user, uint64_t opaque);
    /* A stream is reset for the peer's fault; on_headers need not have told of it (server). */
    void (*on_made_reset)(void *user);
    void (*on_dirty)(void *user); /* there is output: flush me at the end of this turn */
};

struct h2_engine; /* ops table */
extern const struct h2_engine h2_engine_session, h2_engine_native;
const struct h2_engine *h2_engine_find(const char *name); /* NULL: unknown */

struct h2 *h2_new(const struct h2_engine *engine, enum h2_role role, const struct h2_limits *limits,
                  const struct h2_events *events, void *user, struct slab_pool *pool);
struct h2 *h2_free(struct h2 *h); /* returns NULL */

/* Why the peer was at fault when the connection ended (h2_why_done says it in words). */
enum h2_fault {
    H2_FAULT_NONE = 0,
    H2_FAULT_PROTOCOL, /* it broke a rule of RFC 9113 or RFC 7541 */
    H2_FAULT_FRAMES,   /* its score */
    H2_FAULT_RESETS,
    H2_FAULT_PINGS,
    H2_FAULT_HEADERS, /* a header block without an end, or far over the limit */
    H2_FAULT_ANSWERS, /* it reads none */
};

/* Where the time is kept, for budgets that refill (native engine). NULL: it stands still. */
void h2_set_clock(struct h2 *h, const uint64_t *now_us);

/* Feed bytes that lie in slab. 0, or -EPROTO with err filled: flush (a GOAWAY may be queued), then
 * close. The session engine finds some errors only when it writes its GOAWAY: then 0 comes here,
 * and h2_is_done is true after the next flush. */
int h2_recv(struct h2 *h, struct slab *slab, const uint8_t *p, size_t len, struct err *err);
/* The transport is gone: every stream ends with on_close(H2_CONNECT_ERROR, by_peer). */
void h2_lost(struct h2 *h);
/* Append output to out until it holds about high_water bytes. Control frames always go. */
void h2_flush(struct h2 *h, struct outq *out, size_t high_water);
bool h2_wants_flush(const struct h2 *h);     /* something could go out if there were room */
bool h2_is_done(const struct h2 *h);         /* nothing more will come or go: close the transport */
const char *h2_why_done(const struct h2 *h); /* the error that ended it; "" if none */
void h2_note_why(struct h2 *h, const char *why); /* what the transport knows, where there is none */
enum h2_fault h2_fault(const struct h2 *h);
/* The peer is near one of its limits, or out of ids: time for conn_drain. Stays true. */
bool h2_is_strained(const struct h2 *h);
/* When what is not yet whole - the preface, a frame that is taken as a whole, a header block -
 * began to come; 0: nothing such. Payload of DATA is no part of it. */
uint64_t h2_unfinished_us(const struct h2 *h);
/* Answers (PING and SETTINGS acks, resets) that have not left: in the engine, or in an output queue
 * that the last flush did not find empty. */
uint32_t h2_answers_waiting(const struct h2 *h);
/* To be called each `limit / 2`: resets (ENHANCE_YOUR_CALM) the streams whose output has not moved
 * for `limit`, or half as long again. Returns how many. */
unsigned h2_sweep_stalled(struct h2 *h);

/* Client: open a stream. NULL when h2_can_open is false. user is set before any event. */
struct h2_stream *h2_open(struct h2 *h, const struct h2_field *fields, size_t n, bool end,
                          void *user);
/* The same with the fields of set, then those of extra: few, different in each call; they are
 * copied and leave as literals outside the HPACK tables. */
struct h2_stream *h2_open_set(struct h2 *h, struct h2_set *set, const struct h2_field *extra,
                              size_t n_extra, bool end, void *user);
bool h2_can_open(const struct h2 *h); /* under the peer's limit, no GOAWAY, ids left */
uint32_t h2_peer_max_streams(
    const struct h2 *h); /* 100 until its SETTINGS came; then UINT32_MAX if it names none */
bool h2_settings_seen(const struct h2 *h);
uint32_t h2_n_streams(const struct h2 *h);

/* Response headers, or trailers (kind H2_TRAILERS, end true): trailers wait behind queued data. */
void h2_send_headers(struct h2_stream *s, enum h2_block kind, const struct h2_field *fields,
                     size_t n, bool end);
void h2_send_set(struct h2_stream *s, enum h2_block kind, struct h2_set *set,
                 const struct h2_field *extra, size_t n_extra, bool end);
/* In on_headers only: the set that the first fields of the block are, fields[0 .. set->n); those
 * behind it differ from call to call. NULL: none (not seen before, or the engine keeps none).
 * Borrowed: take a reference to keep it. */
struct h2_set *h2_block_set(const struct h2_stream *s);
/* slab: holder of p (a reference is taken), or NULL: the bytes are copied. len 0 with end is fine.
 */
void h2_send_data(struct h2_stream *s, struct slab *slab, const uint8_t *p, size_t len, bool end);
size_t h2_stream_queued(const struct h2_stream *s); /* bytes not yet in the output */
void h2_consume(struct h2_stream *s, size_t bytes); /* returns stream-level credit */
/* Of every stream, those that are open too: what came before may be more (native; the session
 * engine keeps its windows). */
void h2_set_stream_window(struct h2 *h, uint32_t bytes);
/* Since when our SETTINGS wait for the peer's acknowledgement; 0: they do not. */
uint64_t h2_settings_wait_us(const struct h2 *h);
/* H2_NO_ERROR after our END_STREAM was queued: leaves after it ("stop uploading", RFC 9113 8.1).
 * Any other code drops what is queued and leaves at once. on_close follows, not from inside.
 * Nothing to do for a stream that has ended both ways. */
void h2_reset(struct h2_stream *s, uint32_t code);

uint32_t h2_stream_id(const struct h2_stream *s); /* 0 while a client's HEADERS have not left */
void *h2_stream_user(const struct h2_stream *s);
void h2_stream_set_user(struct h2_stream *s, void *user);
struct h2 *h2_stream_h2(const struct h2_stream *s);

/* Two-step shutdown of RFC 9113 6.8: notice (last id 2^31-1), then final (the real last id). */
void h2_goaway_notice(struct h2 *h);
void h2_goaway(struct h2 *h, uint32_t code, const char *debug);
/* The same with a last id that the caller chose (a scripted peer): streams above end as refused. */
void h2_goaway_last(struct h2 *h, uint32_t last_stream_id, uint32_t code, const char *debug);
bool h2_saw_goaway(const struct h2 *h); /* the peer's came */
void h2_ping(struct h2 *h, uint64_t opaque);

#endif
