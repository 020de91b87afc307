/* Encoding: memo first, then nghttp2's deflater for fields worth a table entry, plain literals for
 * the others. */
#include <nghttp2/nghttp2.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/hash.h"
#include "base/xalloc.h"
#include "net/h2_hpack.h"

#define TABLE_BYTES 4096u /* what we use of the peer's table: RFC 7541's default */
#define RUN_MAX     1024u /* longer ones are not remembered */
#define NV_MAX      32u   /* fields given to the deflater in one call */

/* A connection's first blocks go without a dynamic table, so one with a call or two needs no
 * deflater (2.4 KiB). Counted when they are held and when they leave. */
#define PLAIN_BLOCKS 8u

/* Blocks of literals that fit are kept for the next calls. */
#define SPARE_BYTES 256u
#define SPARES      1024u

struct hpack_block {
    uint32_t refs;
    uint32_t n;
    const struct h2_field *fields; /* own, or those of set */
    struct hpack_block *memo;      /* an entry whose fields go before these, or NULL */
    uint8_t *literals;             /* instead of fields, encoded: behind memo; or NULL */
    uint32_t literals_len;
    struct hpack_seen *home; /* it goes back there; NULL: to the allocator */
    /* of an entry of the memo: */
    struct h2_set *set;  /* NULL: this is none */
    uint32_t max_index;  /* in bytes */
    uint64_t n_inserted; /* the count at which bytes hold */
    uint32_t len;        /* of bytes; 0: not right any more */
    uint32_t cap;
    uint8_t *bytes;
    struct h2_field own[]; /* then their strings */
};

void hpack_out_init(struct hpack_out *out, struct hpack_seen *seen, struct slab_pool *pool)
{
    memset(out, 0, sizeof(*out));
    out->seen = seen;
    out->pool = pool;
    out->top = HPACK_STATIC_ENTRIES;
}

void hpack_out_fini(struct hpack_out *out)
{
    for (size_t i = 0; i < HPACK_MEMO; i++)
        hpack_block_unref(out->memo[i]);
    if (out->deflater != NULL)
        nghttp2_hd_deflate_del(out->deflater);
}

static void need_deflater(struct hpack_out *out)
{
    if (out->deflater == NULL)
        check(nghttp2_hd_deflate_new(&out->deflater, TABLE_BYTES) == 0);
}

static void count_dynamic(struct hpack_out *out)
{
    out->n_dynamic =
        (uint32_t)nghttp2_hd_deflate_get_num_table_entries(out->deflater) - HPACK_STATIC_ENTRIES;
    out->top = out->size_changed ? 0 : HPACK_STATIC_ENTRIES + out->n_dynamic;
}

void hpack_out_set_table(struct hpack_out *out, uint32_t max_bytes)
{
    if (out->deflater == NULL && max_bytes >= TABLE_BYTES)
        return; /* what it will take anyway */
    need_deflater(out);
    check(nghttp2_hd_deflate_change_table_size(out->deflater, max_bytes) == 0);
    out->size_changed = true;
    count_dynamic(out);
}

/* ---- blocks ---- */

/* A value that differs from call to call, as far as the fields themselves tell. */
static bool is_volatile(const struct h2_field *f)
{
    return (f->flags & H2_FIELD_NO_INDEX) != 0 && (f->name_len == 0 || f->name[0] != ':');
}

static struct hpack_block *find_memo(struct hpack_out *out, const struct h2_field *fields,
                                     uint32_t n, uint32_t sign)
{
    for (size_t i = 0; i < HPACK_MEMO && out->memo[i] != NULL; i++) {
        struct hpack_block *m = out->memo[i];

        if (set_entry_of(m->set)->sign == sign && h2_set_equals(m->set, fields, n))
            return m;
    }
    return NULL;
}

static struct hpack_block *block_new(const struct h2_field *fields, size_t n)
{
    size_t bytes = sizeof(struct hpack_block) + n * sizeof(*fields);
    struct hpack_block *b;
    char *to;

    for (size_t i = 0; i < n; i++)
        bytes += (size_t)fields[i].name_len + fields[i].value_len;
    b = xrealloc(NULL, 1, bytes);
    memset(b, 0, sizeof(*b));
    b->refs = 1;
    b->n = (uint32_t)n;
    b->fields = b->own;
    to = (char *)&b->own[n];
    for (size_t i = 0; i < n; i++) {
        b->own[i] = fields[i];
        b->own[i].name = memcpy(to, fields[i].name, fields[i].name_len);
        to += fields[i].name_len;
        b->own[i].value = memcpy(to, fields[i].value, fields[i].value_len);
        to += fields[i].value_len;
    }
    return b;
}

void hpack_block_unref(struct hpack_block *b)
{
    struct hpack_seen *home;

    if (b == NULL || --b->refs > 0)
        return;
    home = b->home;
    hpack_block_unref(b->memo);
    if (home != NULL && home->n_spare < SPARES) {
        b->memo = home->spare;
        home->spare = b;
        home->n_spare++;
        return;
    }
    h2_set_unref(b->set);
    free(b->bytes);
    free(b);
}

void hpack_seen_fini(struct hpack_seen *seen)
{
    struct hpack_block *b;

    while ((b = seen->spare) != NULL) {
        seen->spare = b->memo;
        free(b);
    }
}

/* Takes over the caller's reference to set. */
static struct hpack_block *block_of_set(struct h2_set *set)
{
    struct hpack_block *b = block_new(NULL, 0);

    b->set = set;
    b->fields = set->fields;
    b->n = set->n;
    return b;
}

/* A new entry of the memo. Takes over the caller's reference to set. */
static struct hpack_block *memo_new(struct hpack_out *out, struct h2_set *set)
{
    struct hpack_block *m = block_of_set(set);

    hpack_block_unref(out->memo[out->next]);
    out->memo[out->next] = m;
    out->next = (out->next + 1) % HPACK_MEMO;
    return m;
}

/* m: goes before them; NULL: nothing does. */
static struct hpack_block *hold_behind(struct hpack_block *m, const struct h2_field *fields,
                                       size_t n)
{
    struct hpack_block *b;

    if (m != NULL)
        m->refs++;
    if (m != NULL && n == 0)
        return m;
    b = block_new(fields, n);
    b->memo = m;
    return b;
}

struct hpack_block *hpack_out_hold(struct hpack_out *out, const struct h2_field *fields, size_t n)
{
    struct hpack_block *m;
    uint32_t n_run = 0, sign = 0;

    while (n_run < n && !is_volatile(&fields[n_run]))
        sign = h2_set_sign(sign, &fields[n_run++]);
    m = find_memo(out, fields, n_run, sign);
    return m != NULL ? hold_behind(m, fields + n_run, n - n_run) : hold_behind(NULL, fields, n);
}

static uint8_t *put_literal(uint8_t *to, const struct h2_field *f, unsigned first);

enum { LITERAL = 0x00, LITERAL_NEVER = 0x10 }; /* RFC 7541 6.2.2, 6.2.3 */

#define LITERAL_EXTRA 16u /* bytes of a literal beside its two strings, at most */

static size_t literal_bound(const struct h2_field *f)
{
    return (size_t)f->name_len + f->value_len + LITERAL_EXTRA;
}

/* An empty block with room for so many bytes of literals. */
static struct hpack_block *literals_new(struct hpack_seen *home, size_t bytes)
{
    struct hpack_block *b = home->spare;
    const bool fits = sizeof(*b) + bytes <= SPARE_BYTES;

    if (fits && b != NULL) {
        home->spare = b->memo;
        home->n_spare--;
    } else {
        b = xrealloc(NULL, 1, fits ? SPARE_BYTES : sizeof(*b) + bytes);
        memset(b, 0, sizeof(*b));
        b->home = fits ? home : NULL;
    }
    b->refs = 1;
    b->literals = (uint8_t *)(b + 1);
    return b;
}

/* The caller owes hpack_block_unref. */
static struct hpack_block *hold_whole(struct hpack_out *out, struct h2_set *set)
{
    struct hpack_block *m;

    for (size_t i = 0; i < HPACK_MEMO && out->memo[i] != NULL; i++) {
        if (out->memo[i]->set == set) {
            out->memo[i]->refs++;
            return out->memo[i];
        }
    }
    if (out->deflater == NULL && out->n_plain++ < PLAIN_BLOCKS)
        return block_of_set(h2_set_ref(set));
    need_deflater(out);
    m = memo_new(out, h2_set_ref(set));
    m->refs++;
    return m;
}

static struct hpack_block *hold_literals(struct hpack_out *out, struct h2_set *set,
                                         const struct h2_field *extra, size_t n_extra)
{
    struct hpack_block *m = hold_whole(out, set), *b;
    size_t bytes = 0;
    uint8_t *to;

    for (size_t i = 0; i < n_extra; i++)
        bytes += literal_bound(&extra[i]);
    b = literals_new(out->seen, bytes);
    b->memo = m;
    to = b->literals;
    for (size_t i = 0; i < n_extra; i++)
        to = put_literal(to, &extra[i], LITERAL_NEVER);
    b->literals_len = (uint32_t)(to - b->literals);
    return b;
}

struct hpack_block *hpack_out_hold_set(struct hpack_out *out, struct h2_set *set,
                                       const struct h2_field *extra, size_t n_extra)
{
    return n_extra > 0 ? hold_literals(out, set, extra, n_extra) : hold_whole(out, set);
}

/* What m's set was just encoded to, if it changed no table. */
static void keep_bytes(struct hpack_out *out, struct hpack_block *m, const uint8_t *bytes,
                       size_t len)
{
    uint32_t max_index;

    if (out->deflater == NULL || len > RUN_MAX ||
        hpack_run(bytes, len, HPACK_RUN_ANY, &max_index) != len)
        return;
    if (len > m->cap) {
        m->bytes = xrealloc(m->bytes, 1, len);
        m->cap = (uint32_t)len;
    }
    memcpy(m->bytes, bytes, len);
    m->len = (uint32_t)len;
    m->n_inserted = out->n_inserted;
    m->max_index = max_index;
}

/* Do m's bytes hold now? Moves their indices when entries were inserted since. */
static bool memo_is_right(const struct hpack_out *out, struct hpack_block *m)
{
    const uint64_t moved = out->n_inserted - m->n_inserted;

    if (m->len == 0)
        return false;
    if (m->max_index <= HPACK_STATIC_ENTRIES) {
        m->n_inserted = out->n_inserted;
        return true;
    }
    if (m->max_index + moved > HPACK_STATIC_ENTRIES + out->n_dynamic ||
        (moved > 0 && !hpack_run_move(m->bytes, m->len, moved))) {
        m->len = 0;
        return false;
    }
    m->max_index += (uint32_t)moved;
    m->n_inserted = out->n_inserted;
    return true;
}

/* ---- encoding ---- */

struct writer {
    uint8_t *p; /* where the block grows */
    size_t len, cap;
    uint8_t **heap;
};

static uint8_t *room(struct writer *w, size_t bytes)
{
    if (w->len + bytes > w->cap) {
        uint8_t *heap = xrealloc(NULL, 2, w->len + bytes);

        memcpy(heap, w->p, w->len);
        free(*w->heap);
        *w->heap = w->p = heap;
        w->cap = 2 * (w->len + bytes);
    }
    return w->p + w->len;
}

static uint8_t *put_int(uint8_t *to, uint32_t v, unsigned bits, uint8_t first)
{
    const uint32_t mask = (1u << bits) - 1;

    if (v < mask) {
        *to++ = (uint8_t)(first | v);
        return to;
    }
    *to++ = (uint8_t)(first | mask);
    for (v -= mask; v >= 0x80; v >>= 7)
        *to++ = (uint8_t)(v | 0x80);
    *to++ = (uint8_t)v;
    return to;
}

/* RFC 7541 6.2.2 and 6.2.3, no Huffman coding: on a local network it costs more than it saves.
 * Returns the end; at most literal_bound bytes are written. */
static uint8_t *put_literal(uint8_t *to, const struct h2_field *f, unsigned first)
{
    *to++ = (uint8_t)first;
    to = put_int(to, f->name_len, 7, 0);
    to = (uint8_t *)memcpy(to, f->name, f->name_len) + f->name_len;
    to = put_int(to, f->value_len, 7, 0);
    return (uint8_t *)memcpy(to, f->value, f->value_len) + f->value_len;
}

static void write_literal(struct writer *w, const struct h2_field *f)
{
    const unsigned first = (f->flags & H2_FIELD_NO_INDEX) != 0 ? LITERAL_NEVER : LITERAL;
    uint8_t *to = room(w, literal_bound(f));

    w->len = (size_t)(put_literal(to, f, first) - w->p);
}

/* n: <= NV_MAX fields, 0 for a size update alone. */
static void deflate(struct hpack_out *out, struct writer *w, const struct h2_field *fields,
                    size_t n)
{
    nghttp2_nv nva[NV_MAX];
    struct hpack_repr r;
    uint8_t *p;
    ssize_t len;

    for (size_t i = 0; i < n; i++)
        nva[i] = (nghttp2_nv){
            .name = (uint8_t *)(uintptr_t)fields[i].name,
            .value = (uint8_t *)(uintptr_t)fields[i].value,
            .namelen = fields[i].name_len,
            .valuelen = fields[i].value_len,
            .flags = (fields[i].flags & H2_FIELD_NO_INDEX) != 0 ? NGHTTP2_NV_FLAG_NO_INDEX
                                                                : NGHTTP2_NV_FLAG_NONE,
        };
    p = room(w, nghttp2_hd_deflate_bound(out->deflater, nva, n));
    len = nghttp2_hd_deflate_hd(out->deflater, p, w->cap - w->len, nva, n);
    check(len >= 0);
    w->len += (size_t)len;
    for (const uint8_t *at = p, *end = p + len; at < end;) {
        const size_t used = hpack_repr_read(&r, at, end);

        check(used > 0);
        at += used;
        if (r.kind == HPACK_INSERT)
            out->n_inserted++;
    }
    count_dynamic(out);
}

/* Was this very field sent before by this worker (as far as the table remembers)? Notes it. */
static bool was_seen(struct hpack_seen *seen, const struct h2_field *f)
{
    const uint64_t h =
        hash_bytes(f->value, f->value_len, hash_bytes(f->name, f->name_len, f->value_len));
    uint32_t *slot = &seen->hashes[h % ARRAY_LEN(seen->hashes)];
    const uint32_t mark = (uint32_t)(h >> 32) | 1;

    if (*slot == mark)
        return true;
    *slot = mark;
    return false;
}

/* Without a dynamic table: RFC 7541 appendix A for what each gRPC block begins with. */
static void write_plain(struct writer *w, const struct h2_field *f)
{
    static const struct {
        struct h2_field field;
        uint8_t index;
    } known[] = {{H2_FIELD_INIT(":method", "POST"), 3},
                 {H2_FIELD_INIT(":scheme", "http"), 6},
                 {H2_FIELD_INIT(":scheme", "https"), 7},
                 {H2_FIELD_INIT(":status", "200"), 8}};

    for (size_t i = 0; i < ARRAY_LEN(known) && (f->flags & H2_FIELD_NO_INDEX) == 0; i++) {
        if (f->name_len == 7 && f->value_len == known[i].field.value_len &&
            hpack_same(f->name, known[i].field.name, 7) &&
            hpack_same(f->value, known[i].field.value, f->value_len)) {
            *room(w, 1) = (uint8_t)(0x80 | known[i].index);
            w->len++;
            return;
        }
    }
    write_literal(w, f);
}

/* Fields that are worth a table entry, but for the volatile ones among them. */
static void encode_known(struct hpack_out *out, struct writer *w, const struct h2_field *fields,
                         uint32_t n)
{
    uint32_t i = 0, n_run;

    for (; out->deflater == NULL && i < n; i++)
        write_plain(w, &fields[i]);
    while (i < n) {
        for (n_run = 0; i + n_run < n && n_run < NV_MAX && !is_volatile(&fields[i + n_run]);)
            n_run++;
        if (n_run > 0)
            deflate(out, w, &fields[i], n_run);
        else
            write_literal(w, &fields[i]);
        i += n_run > 0 ? n_run : 1;
    }
}

/* An entry of the memo: its bytes, or made anew. */
static void encode_memo(struct hpack_out *out, struct writer *w, struct hpack_block *m)
{
    const size_t before = w->len;

    if (memo_is_right(out, m)) {
        memcpy(room(w, m->len), m->bytes, m->len);
        w->len += m->len;
        return;
    }
    encode_known(out, w, m->fields, m->n);
    keep_bytes(out, m, w->p + before, w->len - before);
}

/* The first fields of a block that is in no memo, each sent before. */
static void encode_run(struct hpack_out *out, struct writer *w, const struct h2_field *fields,
                       uint32_t n, uint32_t sign)
{
    struct hpack_block *m = find_memo(out, fields, n, sign);
    struct h2_set *set;

    if (m == NULL && out->deflater != NULL && (set = h2_set_meet(out->pool, fields, n)) != NULL)
        m = memo_new(out, set);
    if (m != NULL)
        encode_memo(out, w, m);
    else
        encode_known(out, w, fields, n);
}

static void encode_fields(struct hpack_out *out, struct writer *w, const struct hpack_block *b)
{
    uint32_t i = 0, sign = 0;

    if (b->memo == NULL) {
        for (; i < b->n && !is_volatile(&b->fields[i]) && was_seen(out->seen, &b->fields[i]); i++)
            sign = h2_set_sign(sign, &b->fields[i]);
        if (i > 0)
            encode_run(out, w, b->fields, i, sign);
        if (i < b->n)
            write_literal(w, &b->fields[i++]); /* it ended the run: new or volatile */
    }
    for (; i < b->n; i++) {
        if (!is_volatile(&b->fields[i]) && was_seen(out->seen, &b->fields[i]))
            encode_known(out, w, &b->fields[i], 1);
        else
            write_literal(w, &b->fields[i]);
    }
}

bool hpack_out_ready(struct hpack_out *out, struct hpack_block *b, struct hpack_ready *ret)
{
    struct hpack_block *m = b->set != NULL ? b : b->memo;

    if (m == NULL || (m != b && b->literals == NULL))
        return false;
    if ((m->n_inserted != out->n_inserted || m->len == 0 || m->max_index > out->top) &&
        (out->size_changed || !memo_is_right(out, m)))
        return false;
    ret->run = m->bytes;
    ret->run_len = m->len;
    ret->literals = b->literals;
    ret->literals_len = b->literals_len;
    return true;
}

const uint8_t *hpack_out_encode(struct hpack_out *out, struct hpack_block *b, uint8_t *small,
                                size_t cap, size_t *ret_len, uint8_t **ret_heap)
{
    struct writer w = {.p = small, .cap = cap, .heap = ret_heap};

    *ret_heap = NULL;
    if (!out->size_changed && memo_is_right(out, b)) {
        *ret_len = b->len;
        return b->bytes;
    }
    if (out->deflater == NULL && out->n_plain++ >= PLAIN_BLOCKS)
        need_deflater(out);
    if (out->size_changed) {
        out->size_changed = false;
        deflate(out, &w, NULL, 0);
    }
    if (b->set != NULL) {
        encode_memo(out, &w, b);
    } else if (b->literals != NULL) {
        encode_memo(out, &w, b->memo);
        memcpy(room(&w, b->literals_len), b->literals, b->literals_len);
        w.len += b->literals_len;
    } else {
        if (b->memo != NULL)
            encode_memo(out, &w, b->memo);
        encode_fields(out, &w, b);
    }
    *ret_len = w.len;
    return w.p;
}
