/* net/h2_stream.h - one stream of the native engine: state, windows, what waits to leave; and the
 * table that finds it by id.
 *
 * Owns:      a stream: its waiting payload and header blocks. Streams are recycled in struct
 *            stream_shared, one per slab pool (= worker), counted by its connections.
 * Called by: net/h2_native*.c only.
 * Source:    RFC 9113 5.1 (states), 5.2 and 6.9 (flow control).
 */
#ifndef NET_H2_STREAM_H
#define NET_H2_STREAM_H

#include "base/list.h"
#include "net/h2_engine.h"
#include "net/h2_hpack.h"

/* RFC 9113 5.1, seen from us: which ends have given END_STREAM. Idle: in no table. Reserved does
 * not exist: no push. */
enum nstream_state { STREAM_OPEN = 0, STREAM_HALF_LOCAL, STREAM_HALF_REMOTE, STREAM_CLOSED };
_Static_assert(STREAM_CLOSED == (STREAM_HALF_LOCAL | STREAM_HALF_REMOTE), "two bits");

enum {
    STREAM_RESPONDED = 1 << 0,  /* client: a final response block came */
    STREAM_GOT_BLOCK = 1 << 1,  /* client: any block came, also 1xx */
    STREAM_END_QUEUED = 1 << 2, /* the user has given everything */
    STREAM_STOP_AFTER = 1 << 3, /* RST_STREAM(NO_ERROR) once our END_STREAM has left */
    STREAM_GONE = 1 << 4,       /* its on_close waits for the next flush */
    STREAM_BY_PEER = 1 << 5,    /* on_close's by_peer */
    STREAM_HEAD = 1 << 6,       /* client: the request was HEAD */
    /* output waited at the last sweep, and at the one before; moving clears both */
    STREAM_STILL = 1 << 7,
    STREAM_STILL_TWICE = 1 << 7 | 1 << 8,
};

struct nstream_seg {
    struct slab *owner;
    const uint8_t *p;
    size_t len;
};

#define STREAM_SEGS 4u /* held without an allocation: prefix and message, twice */

struct nstream {
    struct h2_stream base;
    struct nstream *chain; /* in the table */
    struct list all;       /* of the connection */
    struct list node;      /* ready, stalled or gone, or none */
    enum nstream_state state;
    uint16_t flags;
    uint8_t n_blocks;
    uint8_t n_info;       /* 1xx blocks that came */
    int32_t send_window;  /* may be negative: RFC 9113 6.9.2 */
    uint32_t recv_used;   /* bytes that came and whose credit has not gone back */
    uint32_t recv_owed;   /* of those: consumed by the user */
    int64_t content_left; /* of content-length; -1: none named */
    uint32_t close_code;  /* while gone */
    uint32_t seg_head, n_segs, cap_segs;
    size_t queued;
    struct hpack_block *blocks[2]; /* 1xx and response, or request; before the payload */
    struct hpack_block *trailers;  /* after it */
    struct nstream_seg *segs;      /* ring: first, or of the heap */
    struct nstream_seg first[STREAM_SEGS];
};

/* ---- what the connections of one worker share ---- */

struct nstream_shared {
    unsigned refs;
    struct nstream *free;    /* by chain */
    unsigned n_free, n_idle; /* n_idle: the least of n_free since the last trim */
    struct hpack_seen seen;
};
size_t nstream_shared_trim(struct slab_pool *pool); /* as slab_pool_trim */

struct nstream_shared *nstream_shared_get(struct slab_pool *pool); /* makes it on first use */
void nstream_shared_put(struct slab_pool *pool);

struct nstream *nstream_new(struct nstream_shared *sh, struct h2 *h2, void *user);
void nstream_free(struct nstream_shared *sh, struct nstream *s); /* nothing of it waits */
void nstream_drop_queued(struct nstream *s);

/* What waits will not leave. */
static inline void nstream_drop_output(struct nstream *s)
{
    if (s->n_segs > 0 || s->n_blocks > 0 || s->trailers != NULL)
        nstream_drop_queued(s);
}

/* Both sides' END_STREAM, RFC 9113 5.1. */
static inline void nstream_end_recv(struct nstream *s)
{
    s->state |= STREAM_HALF_REMOTE;
}

static inline void nstream_end_sent(struct nstream *s)
{
    s->state |= STREAM_HALF_LOCAL;
}

static inline bool nstream_recv_ended(const struct nstream *s)
{
    return (s->state & STREAM_HALF_REMOTE) != 0;
}

static inline bool nstream_send_ended(const struct nstream *s)
{
    return (s->state & STREAM_HALF_LOCAL) != 0;
}

/* ---- payload that waits ---- */

/* Takes over the caller's reference to owner. */
void nstream_push(struct nstream *s, struct slab *owner, const uint8_t *p, size_t len);
struct nstream_seg *nstream_piece(struct nstream *s, uint32_t i); /* i < n_segs */
/* Copy all that is queued to `to`. Returns the byte after it. */
uint8_t *nstream_take_all(struct nstream *s, uint8_t *to);
/* Move len bytes, at most queued, to out. */
void nstream_move(struct nstream *s, struct outq *out, size_t len);

/* ---- the table of a connection ---- */

struct nstream_table {
    struct nstream **slots; /* mask + 1 of them, a power of two */
    uint32_t n, mask;
    struct nstream *first; /* the one slot of a table that is small */
};

void nstream_table_init(struct nstream_table *t);
void nstream_table_fini(struct nstream_table *t); /* works on a zeroed one */
void nstream_table_add(struct nstream_table *t, struct nstream *s);
void nstream_table_del(struct nstream_table *t, struct nstream *s);

static inline struct nstream *nstream_table_find(const struct nstream_table *t, uint32_t id)
{
    struct nstream *s = t->slots[(id >> 1) & t->mask];

    while (s != NULL && s->base.id != id)
        s = s->chain;
    return s;
}

/* ---- how the last streams ended: what may still come for them ---- */

enum nstream_end { STREAM_END_UNKNOWN = 0, STREAM_END_CLEAN, STREAM_END_BY_PEER, STREAM_END_BY_US };

#define STREAM_GRAVES 32u

struct nstream_graves {
    uint32_t ids[STREAM_GRAVES];
    uint8_t how[STREAM_GRAVES];
    uint32_t next;
};

void nstream_bury(struct nstream_graves *g, uint32_t id, enum nstream_end how);
enum nstream_end nstream_grave(const struct nstream_graves *g, uint32_t id);

#endif
