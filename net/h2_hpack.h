/* net/h2_hpack.h - header blocks of one connection: HPACK behind a memo each way. The encoder is
 * nghttp2's; of its decoder we use what reads strings, one for all connections of a worker, and
 * keep the table of each ourselves: theirs takes 2.5 KiB for ten fields.
 *
 * A gRPC peer sends the same few blocks again and again. A run of representations that change no
 * table means the same fields each time, so its bytes are looked up (compared, never guessed) and
 * HPACK does no work. Literals after the run, such as a request id, go through HPACK one by one.
 *
 * Owns:      the decoder's table, deflater, the memos (each entry holds its set, net/h2_set.h).
 *            hpack_block: counted, fields that wait to leave.
 * Called by: net/h2_native_recv.c (hpack_in), net/h2_native_send.c (hpack_out).
 * Lifetime:  hpack_*_init .. hpack_*_fini.
 * Thread:    one.
 * Source:    RFC 7541; the memo: docs/performance.md, "HTTP/2 engine".
 *
 * Invariants:
 *  - Entries of a dynamic table are numbered from the first insertion of the connection. A memo
 *    entry keeps numbers, in effect: its bytes hold for the insertion count they were taken at,
 *    each later insertion moves its dynamic indices by one, and it holds while the oldest entry it
 *    names is in the table.
 *  - Fields that came as literals outside the table leave so; a field that we have not seen before
 *    leaves so too. So high-entropy values push nothing out of the peer's table or of a memo.
 */
#ifndef NET_H2_HPACK_H
#define NET_H2_HPACK_H

#include <string.h>

#include "net/h2_set.h"
#include "net/slab.h"

#define HPACK_MEMO                                                                                 \
    16 /* entries; a client calls a handful of methods, a server gives two blocks                  \
        */

struct hpack_block; /* fields that wait to be sent */

/* What the encoders of one worker share. */
struct hpack_seen {
    /* Which (name, value) pairs were sent: one that comes again is worth a table entry. */
    uint32_t hashes[1024];
    struct hpack_block *spare; /* by memo; for literals behind a set */
    unsigned n_spare;
};
void hpack_seen_fini(struct hpack_seen *seen); /* works on a zeroed one */

/* ---- decoding ---- */

#define HPACK_TABLE_BYTES 4096u /* RFC 7541's default; we ask for no other */

/* The dynamic table. */
struct hpack_table {
    uint8_t *bytes; /* NULL: it never held anything */
    uint32_t begin, end, cap;
    uint32_t n;         /* entries */
    uint32_t size, max; /* as RFC 7541 4.1 counts */
};
void hpack_table_init(struct hpack_table *t);
void hpack_table_fini(struct hpack_table *t); /* and empty again */
/* A new entry; those that it pushes out go. name and value may not lie in t. */
void hpack_table_add(struct hpack_table *t, const char *name, size_t name_len, const char *value,
                     size_t value_len);
/* age: 0 is the newest. *ret is valid until the table changes. False: there is none. */
bool hpack_table_get(const struct hpack_table *t, uint32_t age, struct h2_field *ret);
void hpack_table_limit(struct hpack_table *t, uint32_t max); /* max <= HPACK_TABLE_BYTES */

struct hpack_in {
    struct hpack_table table;
    struct hpack_memo *memo[HPACK_MEMO];
    unsigned next;       /* the one to replace */
    uint64_t n_inserted; /* since the connection began */
    bool no_bombs;       /* however far over the limits a block is: HPACK_OVER. Set by the owner */
};

enum hpack_result {
    HPACK_OK = 0,
    HPACK_OVER,   /* over the limits; the table is right, the fields are not kept */
    HPACK_BOMB,   /* so far over them that decoding on is no use */
    HPACK_BROKEN, /* RFC 7541 broken: COMPRESSION_ERROR */
};

struct hpack_list {
    const struct h2_field *fields; /* valid until hpack_in_done */
    size_t n;
    struct h2_set *set;     /* of the first fields; NULL: none. Lives as long as fields */
    struct message message; /* checked as the part that hpack_in_block was told */
    struct slab *scratch;
};

void hpack_in_init(struct hpack_in *in);
void hpack_in_fini(struct hpack_in *in);
/* The set that the whole block is, when it is remembered and no entry was inserted since: what a
 * peer sends in the long run. NULL: hpack_in_block knows. */
struct h2_set *hpack_in_routine(const struct hpack_in *in, const uint8_t *p, size_t len);
/* p: a whole block. limits: max_header_bytes and max_header_fields count. */
enum hpack_result hpack_in_block(struct hpack_in *in, struct slab_pool *pool,
                                 const struct h2_limits *limits, enum message_part part,
                                 const uint8_t *p, size_t len, struct hpack_list *ret_list);
void hpack_in_done(struct hpack_list *list);
/* Of a block that is too long to be kept, the next bytes: as far as they are whole fields these go
 * by unseen, and the table follows. begun: it is not the first call for this block. Returns
 * HPACK_OVER or what is wrong, *ret_used the bytes that are done with. */
enum hpack_result hpack_in_pass(struct hpack_in *in, struct slab_pool *pool,
                                const struct h2_limits *limits, bool begun, const uint8_t *p,
                                size_t len, size_t *ret_used);

/* ---- encoding ---- */

struct hpack_out {
    struct nghttp2_hd_deflater *deflater; /* NULL: the first blocks go without */
    uint32_t n_plain;                     /* of those */
    struct hpack_seen *seen;              /* the worker's */
    struct slab_pool *pool;
    struct hpack_block *memo[HPACK_MEMO];
    unsigned next;
    uint64_t n_inserted;
    uint32_t n_dynamic;
    uint32_t top;      /* the highest index that holds; 0 while a size update is to be sent */
    bool size_changed; /* the next block must begin with a size update */
};

void hpack_out_init(struct hpack_out *out, struct hpack_seen *seen, struct slab_pool *pool);
void hpack_out_fini(struct hpack_out *out);
void hpack_out_set_table(struct hpack_out *out, uint32_t max_bytes); /* the peer's setting */
/* Keep fields until they leave; the caller owes hpack_block_unref. */
struct hpack_block *hpack_out_hold(struct hpack_out *out, const struct h2_field *fields, size_t n);
/* The same for the fields of set and those of extra, which become literals. */
struct hpack_block *hpack_out_hold_set(struct hpack_out *out, struct h2_set *set,
                                       const struct h2_field *extra, size_t n_extra);
void hpack_block_unref(struct hpack_block *b); /* NULL is fine */
/* What b is encoded to when that takes no encoding and changes no table: two pieces. */
struct hpack_ready {
    const uint8_t *run, *literals;
    uint32_t run_len, literals_len;
};
/* False: hpack_out_encode must do it. Valid until the next hpack_out_encode. */
bool hpack_out_ready(struct hpack_out *out, struct hpack_block *b, struct hpack_ready *ret);
/* Encode now: bytes leave in the order of these calls. Returns the bytes, which are valid until the
 * next call: in the memo, in small (of cap bytes), or in *ret_heap, which the caller frees. */
const uint8_t *hpack_out_encode(struct hpack_out *out, struct hpack_block *b, uint8_t *small,
                                size_t cap, size_t *ret_len, uint8_t **ret_heap);

/* ---- one representation, RFC 7541 section 6 ---- */

enum hpack_kind { HPACK_INDEXED = 0, HPACK_INSERT, HPACK_LITERAL, HPACK_SIZE };

struct hpack_repr {
    enum hpack_kind kind;
    uint32_t index;      /* of the field or of its name; 0: the name is spelled out */
    uint32_t strings_at; /* of a literal: where they begin */
};

/* Returns its length, 0 when [p, end) holds no whole one. Looks at no table. */
size_t hpack_repr_read(struct hpack_repr *r, const uint8_t *p, const uint8_t *end);

/* A literal outside the tables with name and value spelled out in clear: *f points into it. Returns
 * its length, 0 when [p, end) begins with anything else. */
size_t hpack_plain_literal(struct h2_field *f, const uint8_t *p, const uint8_t *end);

#define HPACK_STATIC_ENTRIES 61u

/* A size update evicts without an insertion: a jump of the count that no index can bridge voids
 * what a decoder's memo says of dynamic entries. */
#define HPACK_FORGET (UINT64_C(1) << 32)

/* memcmp(a, b, len) == 0 for short strings: no call, eight bytes at a time. */
static inline bool hpack_same(const void *a, const void *b, size_t len)
{
    const uint8_t *p = a, *q = b;
    uint64_t x, y;
    uint32_t v, w;

    if (len >= 8) {
        for (; len > 8; len -= 8, p += 8, q += 8) {
            memcpy(&x, p, 8);
            memcpy(&y, q, 8);
            if (x != y)
                return false;
        }
        memcpy(&x, p + len - 8, 8); /* the last eight, some of them again */
        memcpy(&y, q + len - 8, 8);
        return x == y;
    }
    if (len >= 4) {
        memcpy(&v, p, 4);
        memcpy(&w, q, 4);
        if (v != w)
            return false;
        memcpy(&v, p + len - 4, 4);
        memcpy(&w, q + len - 4, 4);
        return v == w;
    }
    for (size_t i = 0; i < len; i++)
        if (p[i] != q[i])
            return false;
    return true;
}

/* Which literals outside the tables a run may hold besides indexed fields of one byte. */
enum hpack_run_of {
    HPACK_RUN_STABLE = 0, /* :path, as nghttp2 sends it: the same from call to call */
    HPACK_RUN_ANY,
};

/* The leading run of p that changes no table. ret_max: the highest index in it. Returns its
 * length. */
size_t hpack_run(const uint8_t *p, size_t len, enum hpack_run_of of, uint32_t *ret_max);
/* Do runs of len bytes name the same fields, when a was taken `moved` insertions before b? */
bool hpack_run_equals(const uint8_t *a, const uint8_t *b, size_t len, uint64_t moved);
/* Make a run right for `moved` more insertions. False: an index would take a second byte. */
bool hpack_run_move(uint8_t *p, size_t len, uint64_t moved);

#endif
