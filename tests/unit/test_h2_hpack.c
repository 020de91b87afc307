/* Header blocks through the memos: nghttp2's plain coder on the other side is the oracle. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <nghttp2/nghttp2.h>

#include "base/check.h"
#include "base/rng.h"
#include "net/h2_hpack.h"

#define BLOCKS     4000
#define MAX_FIELDS 16

struct set {
    struct h2_field fields[MAX_FIELDS];
    size_t n;
    char timeout[16], id[40];
};

static void add(struct set *s, const char *name, const char *value, uint32_t flags)
{
    s->fields[s->n++] = (struct h2_field){.name = name,
                                          .value = value,
                                          .name_len = (uint32_t)strlen(name),
                                          .value_len = (uint32_t)strlen(value),
                                          .flags = flags};
}

/* What gRPC clients send: one of a few methods; a timeout that differs in each call, as grpc-go
 * inserts it; now and then an id outside the tables. */
static void make_set(struct set *s, struct rng *rng)
{
    static const char *const paths[] = {"/a.B/One", "/a.B/Two", "/inference.X/ModelInfer"};

    static char blobs[6][901];

    for (size_t i = 0; i < ARRAY_LEN(blobs); i++)
        memset(blobs[i], 'a' + (int)i, sizeof(blobs[i]) - 1);
    s->n = 0;
    snprintf(s->timeout, sizeof(s->timeout), "%uu", (unsigned)rng_below(rng, 100000));
    snprintf(s->id, sizeof(s->id), "%016llx", (unsigned long long)rng_next(rng));
    add(s, ":method", "POST", 0);
    add(s, ":scheme", "http", 0);
    add(s, ":path", paths[rng_below(rng, ARRAY_LEN(paths))],
        rng_below(rng, 2) == 0 ? H2_FIELD_NO_INDEX : 0);
    add(s, ":authority", "127.0.0.1:8001", 0);
    add(s, "content-type", "application/grpc", 0);
    if (rng_below(rng, 3) == 0)
        add(s, "grpc-timeout", s->timeout, 0);
    add(s, "user-agent", rng_below(rng, 2) == 0 ? "grpc-go/1.64" : "other", 0);
    if (rng_below(rng, 4) == 0)
        add(s, "x-request-id", s->id, H2_FIELD_NO_INDEX);
    add(s, "te", "trailers", 0);
    if (rng_below(rng, 10) == 0) /* five of these fill a table: entries that memos name go */
        add(s, "x-blob", blobs[rng_below(rng, ARRAY_LEN(blobs))], 0);
}

static void assert_fields(const struct set *s, const struct h2_field *f, size_t n)
{
    assert_int_equal(n, s->n);
    for (size_t i = 0; i < n; i++) {
        assert_int_equal(f[i].name_len, s->fields[i].name_len);
        assert_int_equal(f[i].value_len, s->fields[i].value_len);
        assert_memory_equal(f[i].name, s->fields[i].name, f[i].name_len);
        assert_memory_equal(f[i].value, s->fields[i].value, f[i].value_len);
    }
}

static void oracle_decodes(nghttp2_hd_inflater *inf, const struct set *s, const uint8_t *p,
                           size_t len)
{
    size_t n = 0;
    int flags = 0;

    do {
        nghttp2_nv nv;
        const ssize_t used = nghttp2_hd_inflate_hd2(inf, &nv, &flags, p, len, 1);

        assert_true(used >= 0);
        p += used;
        len -= (size_t)used;
        if ((flags & NGHTTP2_HD_INFLATE_EMIT) != 0) {
            assert_true(n < s->n);
            assert_int_equal(nv.namelen, s->fields[n].name_len);
            assert_int_equal(nv.valuelen, s->fields[n].value_len);
            assert_memory_equal(nv.name, s->fields[n].name, nv.namelen);
            assert_memory_equal(nv.value, s->fields[n].value, nv.valuelen);
            /* RFC 7541 7.1.3: what may not enter a table keeps its mark */
            if ((s->fields[n].flags & H2_FIELD_NO_INDEX) != 0)
                assert_true((nv.flags & NGHTTP2_NV_FLAG_NO_INDEX) != 0);
            n++;
        }
    } while ((flags & NGHTTP2_HD_INFLATE_FINAL) == 0);
    nghttp2_hd_inflate_end_headers(inf);
    assert_int_equal(n, s->n);
}

static size_t oracle_encodes(nghttp2_hd_deflater *def, const struct set *s, uint8_t *buf,
                             size_t cap)
{
    nghttp2_nv nva[MAX_FIELDS];
    ssize_t len;

    for (size_t i = 0; i < s->n; i++)
        nva[i] = (nghttp2_nv){.name = (uint8_t *)(uintptr_t)s->fields[i].name,
                              .value = (uint8_t *)(uintptr_t)s->fields[i].value,
                              .namelen = s->fields[i].name_len,
                              .valuelen = s->fields[i].value_len,
                              .flags = (uint8_t)s->fields[i].flags};
    len = nghttp2_hd_deflate_hd(def, buf, cap, nva, s->n);
    assert_true(len > 0);
    return (size_t)len;
}

/* Decodes p with ours. Returns whether the memo knew the whole block. */
static bool ours_decodes(struct hpack_in *in, struct slab_pool *pool, const struct set *s,
                         const uint8_t *p, size_t len)
{
    struct h2_limits limits;
    struct hpack_list list;
    bool whole;

    h2_limits_default(&limits);
    assert_int_equal(hpack_in_block(in, pool, &limits, MESSAGE_REQUEST, p, len, &list), HPACK_OK);
    assert_fields(s, list.fields, list.n);
    assert_true(message_is_ok(&list.message, false));
    whole = list.scratch == NULL;
    hpack_in_done(&list);
    return whole;
}

static void coming_blocks_are_what_the_plain_coder_says(void **state)
{
    struct slab_pool pool;
    struct hpack_in in;
    nghttp2_hd_deflater *def;
    struct rng rng;
    struct set s;
    unsigned n_whole = 0;

    (void)state;
    slab_pool_init(&pool);
    hpack_in_init(&in);
    assert_int_equal(nghttp2_hd_deflate_new(&def, 4096), 0);
    rng_init(&rng, 1);
    for (int i = 0; i < BLOCKS; i++) {
        uint8_t buf[8192];
        size_t len;

        if (rng_below(&rng, 100) == 0) /* evicts without an insertion */
            nghttp2_hd_deflate_change_table_size(def, rng_below(&rng, 4097));
        make_set(&s, &rng);
        len = oracle_encodes(def, &s, buf, sizeof(buf));
        n_whole += ours_decodes(&in, &pool, &s, buf, len);
    }
    assert_true(n_whole > BLOCKS / 10); /* the memo is at work, also between insertions */
    nghttp2_hd_deflate_del(def);
    hpack_in_fini(&in);
    slab_pool_fini(&pool);
}

static void leaving_blocks_decode_to_the_fields(void **state)
{
    struct hpack_seen seen = {0};
    struct slab_pool pool;
    struct hpack_in in;
    struct hpack_out out;
    nghttp2_hd_inflater *inf;
    struct hpack_block *held[8] = {0};
    struct set sets[8];
    struct rng rng;
    unsigned n_from_memo = 0;

    (void)state;
    slab_pool_init(&pool);
    hpack_in_init(&in);
    hpack_out_init(&out, &seen, &pool);
    assert_int_equal(nghttp2_hd_inflate_new(&inf), 0);
    rng_init(&rng, 2);
    for (int i = 0; i < BLOCKS; i++) {
        const size_t k = rng_below(&rng, ARRAY_LEN(held));
        uint8_t small[4096], *heap;
        const uint8_t *p;
        size_t len;

        if (rng_below(&rng, 100) == 0)
            hpack_out_set_table(&out, (uint32_t)rng_below(&rng, 5000));
        if (held[k] == NULL) { /* blocks wait, and leave in another order */
            make_set(&sets[k], &rng);
            held[k] = hpack_out_hold(&out, sets[k].fields, sets[k].n);
            continue;
        }
        p = hpack_out_encode(&out, held[k], small, rng_below(&rng, 2) == 0 ? sizeof(small) : 10,
                             &len, &heap);
        n_from_memo += p != small && heap == NULL;
        oracle_decodes(inf, &sets[k], p, len);
        ours_decodes(&in, &pool, &sets[k], p, len);
        free(heap);
        hpack_block_unref(held[k]);
        held[k] = NULL;
    }
    assert_true(n_from_memo > BLOCKS / 40);
    for (size_t k = 0; k < ARRAY_LEN(held); k++)
        hpack_block_unref(held[k]);
    nghttp2_hd_inflate_del(inf);
    hpack_out_fini(&out);
    hpack_seen_fini(&seen);
    hpack_in_fini(&in);
    slab_pool_fini(&pool);
}

static enum hpack_result decode(struct hpack_in *in, struct slab_pool *pool, const uint8_t *p,
                                size_t len)
{
    struct h2_limits limits;
    struct hpack_list list;
    enum hpack_result r;

    h2_limits_default(&limits);
    r = hpack_in_block(in, pool, &limits, MESSAGE_TRAILERS, p, len, &list);
    hpack_in_done(&list);
    return r;
}

#define DECODE(in, pool, bytes) decode(in, pool, (const uint8_t *)(bytes), sizeof(bytes) - 1)

/* RFC 7541 2.3.3: an index past the table is an error, also of an entry that a memo remembers. */
static void evicted_entries_are_not_remembered(void **state)
{
    struct slab_pool pool;
    struct hpack_in in;

    (void)state;
    slab_pool_init(&pool);
    for (int how = 0; how < 2; how++) {
        hpack_in_init(&in);
        assert_int_equal(DECODE(&in, &pool, "\x40\x01x\x01y"), HPACK_OK);
        assert_int_equal(DECODE(&in, &pool, "\xbe"), HPACK_OK); /* into the memo */
        assert_int_equal(DECODE(&in, &pool, "\xbe"), HPACK_OK);
        if (how == 0) { /* a table of 0 bytes for a moment */
            assert_int_equal(DECODE(&in, &pool, "\x20\x3f\xe1\x1f\x82"), HPACK_OK);
            assert_int_equal(DECODE(&in, &pool, "\xbe"), HPACK_BROKEN);
        } else { /* five entries of 900 bytes push it out, to where its index would be 67 */
            uint8_t big[906] = "\x40\x01x\x7f\x85\x06"; /* 127 + 5 + 6 * 128 */

            memset(big + 6, 'v', 900);
            for (int i = 0; i < 5; i++)
                assert_int_equal(decode(&in, &pool, big, sizeof(big)), HPACK_OK);
            assert_int_equal(DECODE(&in, &pool, "\xc3"), HPACK_BROKEN);
        }
        hpack_in_fini(&in);
    }
    slab_pool_fini(&pool);
}

/* RFC 7541 4.2: a size update stands before the first field, also where the first fields are
 * remembered and the inflater has not seen them. */
static void a_size_update_behind_a_remembered_run_is_refused(void **state)
{
    struct slab_pool pool;
    struct hpack_in in;

    (void)state;
    slab_pool_init(&pool);
    hpack_in_init(&in);
    for (int i = 0; i < 3; i++) /* into the memo, and from it */
        assert_int_equal(DECODE(&in, &pool, "\x82\x86\x84"), HPACK_OK);
    assert_int_equal(DECODE(&in, &pool, "\x20\x3f\xe1\x1f\x82\x86\x84"), HPACK_OK);
    assert_int_equal(DECODE(&in, &pool, "\x82\x86\x84\x20\x82"), HPACK_BROKEN);
    hpack_in_fini(&in);
    slab_pool_fini(&pool);
}

/* ---- any bytes: fields, table and refusals are those of nghttp2's decoder ---- */

static size_t put_any_int(uint8_t *to, struct rng *rng, unsigned bits, uint8_t first, uint32_t v)
{
    const uint32_t mask = (1u << bits) - 1;
    size_t n = 1;

    if (v < mask) {
        to[0] = (uint8_t)(first | v);
        return 1;
    }
    to[0] = (uint8_t)(first | mask);
    for (v -= mask; v >= 0x80; v >>= 7)
        to[n++] = (uint8_t)(v | 0x80);
    to[n++] = (uint8_t)v;
    if (rng_below(rng, 50) == 0) { /* longer than it need be: RFC 7541 5.1 allows it */
        to[n - 1] = (uint8_t)(to[n - 1] | 0x80);
        to[n++] = 0;
    }
    return n;
}

/* Huffman coded: 'a' is 00011, 'e' 00101, 'i' 00110, 'o' 00111 (RFC 7541 appendix B); eight of them
 * are five bytes. */
static size_t put_any_string(uint8_t *to, struct rng *rng, uint32_t most)
{
    static const uint8_t letters[] = {0x03, 0x05, 0x06, 0x07};
    const bool coded = rng_below(rng, 2) == 0;
    uint32_t len = (uint32_t)rng_below(rng, most);
    uint64_t bits = 0;
    size_t n;

    len = coded ? len / 5 * 5 : len;
    n = put_any_int(to, rng, 7, coded ? 0x80 : 0, len);
    for (uint32_t i = 0; i < len; i++) {
        if (coded && i % 5 == 0) {
            bits = 0;
            for (unsigned k = 0; k < 8; k++)
                bits = bits << 5 | letters[rng_below(rng, ARRAY_LEN(letters))];
        }
        to[n++] = (uint8_t)(coded ? bits >> (32 - 8 * (i % 5)) : 'a' + rng_below(rng, 3));
    }
    return n;
}

static size_t put_any_literal(uint8_t *to, struct rng *rng, unsigned bits, uint8_t first)
{
    const bool named = rng_below(rng, 2) == 0;
    const uint32_t most = rng_below(rng, 8) == 0 ? 1500 : 40;
    size_t n = put_any_int(to, rng, bits, first, named ? 1 + (uint32_t)rng_below(rng, 75) : 0);

    if (!named)
        n += put_any_string(to + n, rng, 20);
    return n + put_any_string(to + n, rng, most);
}

/* Up to six representations, 12 KiB at most. */
static size_t put_any_block(uint8_t *to, struct rng *rng)
{
    size_t n = 0;

    for (uint64_t k = rng_below(rng, 7); k > 0; k--) {
        switch (rng_below(rng, 8)) {
        case 0:
            n += put_any_literal(to + n, rng, 4, rng_below(rng, 2) == 0 ? 0x00 : 0x10);
            break;
        case 1:
        case 2:
        case 3:
            n += put_any_literal(to + n, rng, 6, 0x40);
            break;
        default:
            n += put_any_int(to + n, rng, 7, 0x80,
                             rng_below(rng, 100) == 0 ? 0 : 1 + (uint32_t)rng_below(rng, 70));
        }
    }
    return n;
}

static size_t put_any_sizes(uint8_t *to, struct rng *rng)
{
    size_t n = 0;

    while (rng_below(rng, 20) == 0)
        n += put_any_int(to + n, rng, 5, 0x20, (uint32_t)rng_below(rng, 4100));
    return n;
}

#define ANY_FIELDS 8

struct any_fields {
    struct h2_field fields[ANY_FIELDS];
    size_t n;
    char strings[32768];
};

/* What nghttp2 makes of the block. Returns false when it refuses it. */
static bool plain_decodes(nghttp2_hd_inflater *inf, const uint8_t *p, size_t len,
                          struct any_fields *ret)
{
    char *to = ret->strings;
    int flags = 0;

    ret->n = 0;
    do {
        nghttp2_nv nv;
        const ssize_t used = nghttp2_hd_inflate_hd2(inf, &nv, &flags, p, len, 1);

        if (used < 0)
            return false;
        p += used;
        len -= (size_t)used;
        if ((flags & NGHTTP2_HD_INFLATE_EMIT) != 0) {
            struct h2_field *f = &ret->fields[ret->n++];

            assert_true(ret->n <= ANY_FIELDS);
            assert_true((size_t)(to - ret->strings) + nv.namelen + nv.valuelen <=
                        sizeof(ret->strings));
            *f = (struct h2_field){.name = memcpy(to, nv.name, nv.namelen),
                                   .value = memcpy(to + nv.namelen, nv.value, nv.valuelen),
                                   .name_len = (uint32_t)nv.namelen,
                                   .value_len = (uint32_t)nv.valuelen};
            to += nv.namelen + nv.valuelen;
        }
    } while ((flags & NGHTTP2_HD_INFLATE_FINAL) == 0);
    nghttp2_hd_inflate_end_headers(inf);
    return true;
}

static void any_block_is_what_the_plain_decoder_says(void **state)
{
    struct slab_pool pool;
    struct h2_limits limits;
    struct any_fields want;
    unsigned n_good = 0, n_broken = 0;
    struct rng rng;

    (void)state;
    slab_pool_init(&pool);
    h2_limits_default(&limits);
    rng_init(&rng, 3);
    for (int round = 0; round < 300; round++) {
        nghttp2_hd_inflater *inf;
        struct hpack_in in;
        bool good = true;

        hpack_in_init(&in);
        assert_int_equal(nghttp2_hd_inflate_new(&inf), 0);
        for (int i = 0; i < 100 && good; i++) {
            uint8_t block[16384];
            struct hpack_list list;
            enum hpack_result r;
            size_t len = put_any_sizes(block, &rng);

            len += put_any_block(block + len, &rng);
            if (rng_below(&rng, 100) == 0 && len > 0)
                len -= 1 + rng_below(&rng, len); /* cut off */
            if (rng_below(&rng, 100) == 0 && len > 0)
                block[rng_below(&rng, len)] = (uint8_t)rng_below(&rng, 256);
            good = plain_decodes(inf, block, len, &want);
            r = hpack_in_block(&in, &pool, &limits, MESSAGE_TRAILERS, block, len, &list);
            assert_int_equal(r, good ? HPACK_OK : HPACK_BROKEN);
            if (good) {
                assert_int_equal(list.n, want.n);
                assert_int_equal(in.table.n, nghttp2_hd_inflate_get_num_table_entries(inf) - 61);
                assert_int_equal(in.table.size, nghttp2_hd_inflate_get_dynamic_table_size(inf));
            }
            for (size_t k = 0; good && k < want.n; k++) {
                const struct h2_field *f = &list.fields[k], *g = &want.fields[k];

                assert_int_equal(f->name_len, g->name_len);
                assert_int_equal(f->value_len, g->value_len);
                assert_memory_equal(f->name, g->name, g->name_len);
                assert_memory_equal(f->value, g->value, g->value_len);
            }
            hpack_in_done(&list);
            n_good += good;
            n_broken += !good;
        }
        nghttp2_hd_inflate_del(inf);
        hpack_in_fini(&in);
    }
    assert_true(n_good > 1000 && n_broken > 100);
    slab_pool_fini(&pool);
}

/* RFC 7541 appendix C.5: 256 bytes of table, and what they hold after each of three responses. */
static void the_table_holds_what_the_rfc_says(void **state)
{
    static const struct {
        const char *block;
        size_t len;
        uint32_t n, size;
        const char *newest, *oldest; /* values */
    } steps[] = {
        {"\x3f\xe1\x01" /* a table of 256 bytes */
         "\x48\x03\x33\x30\x32\x58\x07\x70\x72\x69\x76\x61\x74\x65\x61\x1d"
         "Mon, 21 Oct 2013 20:13:21 GMT"
         "\x6e\x17https://www.example.com",
         73, 4, 222, "https://www.example.com", "302"},
        {"\x48\x03\x33\x30\x37\xc1\xc0\xbf", 8, 4, 222, "307", "private"},
    };
    struct slab_pool pool;
    struct hpack_in in;
    struct h2_field f;

    (void)state;
    slab_pool_init(&pool);
    hpack_in_init(&in);
    for (size_t i = 0; i < ARRAY_LEN(steps); i++) {
        assert_int_equal(decode(&in, &pool, (const uint8_t *)steps[i].block, steps[i].len),
                         HPACK_OK);
        assert_int_equal(in.table.n, steps[i].n);
        assert_int_equal(in.table.size, steps[i].size);
        assert_true(hpack_table_get(&in.table, 0, &f));
        assert_int_equal(f.value_len, strlen(steps[i].newest));
        assert_memory_equal(f.value, steps[i].newest, f.value_len);
        assert_true(hpack_table_get(&in.table, steps[i].n - 1, &f));
        assert_int_equal(f.value_len, strlen(steps[i].oldest));
        assert_memory_equal(f.value, steps[i].oldest, f.value_len);
        assert_false(hpack_table_get(&in.table, steps[i].n, &f));
    }
    assert_true(in.table.cap <= 384); /* no more than it takes */
    hpack_in_fini(&in);
    slab_pool_fini(&pool);
}

/* An entry moves back by one with each insertion, until it is pushed out and comes anew. */
static void block_outlives_its_entry(void **state)
{
    struct hpack_seen seen = {0};
    struct slab_pool pool;
    struct hpack_out out;
    nghttp2_hd_inflater *inf;

    (void)state;
    slab_pool_init(&pool);
    hpack_out_init(&out, &seen, &pool);
    assert_int_equal(nghttp2_hd_inflate_new(&inf), 0);
    for (int i = 0; i < 400; i++) {
        uint8_t small[512], *heap;
        struct hpack_block *b;
        const uint8_t *p;
        struct set s;
        size_t len;

        s.n = 0;
        snprintf(s.id, sizeof(s.id), "%030d", i / 4); /* 68 bytes an entry: 60 fill the table */
        if (i % 2 == 0)
            add(&s, "user-agent", "x", 0);
        else
            add(&s, "x-id", s.id, 0);
        b = hpack_out_hold(&out, s.fields, s.n);
        p = hpack_out_encode(&out, b, small, sizeof(small), &len, &heap);
        oracle_decodes(inf, &s, p, len);
        hpack_block_unref(b);
    }
    nghttp2_hd_inflate_del(inf);
    hpack_out_fini(&out);
    hpack_seen_fini(&seen);
    slab_pool_fini(&pool);
}

/* Sets with literals behind them, in any order of holding and encoding, through a table that
 * changes its size: the plain decoder reads the same fields. */
static void leaving_header_sets_decode_to_their_fields(void **state)
{
    struct hpack_seen seen = {0};
    struct slab_pool pool;
    struct hpack_out out;
    nghttp2_hd_inflater *inf;
    struct h2_set *sets[HPACK_MEMO + 4];
    struct set plain[ARRAY_LEN(sets)];
    struct rng rng;
    unsigned n_from_memo = 0;

    (void)state;
    slab_pool_init(&pool);
    hpack_out_init(&out, &seen, &pool);
    assert_int_equal(nghttp2_hd_inflate_new(&inf), 0);
    rng_init(&rng, 4);
    for (size_t k = 0; k < ARRAY_LEN(sets); k++) {
        make_set(&plain[k], &rng);
        sets[k] = h2_set_get(&pool, plain[k].fields, plain[k].n);
        assert_ptr_equal(h2_set_get(&pool, plain[k].fields, plain[k].n), sets[k]);
        h2_set_unref(sets[k]);
    }
    for (int i = 0; i < BLOCKS; i++) {
        const size_t k = rng_below(&rng, rng_below(&rng, 50) == 0 ? ARRAY_LEN(sets) : 6);
        struct set all = plain[k];
        struct hpack_block *b;
        uint8_t small[4096], *heap;
        const uint8_t *p;
        size_t len;

        if (rng_below(&rng, 200) == 0)
            hpack_out_set_table(&out, (uint32_t)rng_below(&rng, 5000));
        snprintf(all.id, sizeof(all.id), "%016llx", (unsigned long long)rng_next(&rng));
        for (uint64_t n = rng_below(&rng, 3); n > 0; n--)
            add(&all, "x-request-id", all.id, 0);
        b = hpack_out_hold_set(&out, sets[k], all.fields + plain[k].n, all.n - plain[k].n);
        p = hpack_out_encode(&out, b, small, sizeof(small), &len, &heap);
        n_from_memo += p != small && heap == NULL;
        for (size_t f = plain[k].n; f < all.n; f++)
            all.fields[f].flags |= H2_FIELD_NO_INDEX;
        oracle_decodes(inf, &all, p, len);
        free(heap);
        hpack_block_unref(b);
    }
    assert_true(n_from_memo > BLOCKS / 5);
    for (size_t k = 0; k < ARRAY_LEN(sets); k++)
        h2_set_unref(sets[k]);
    nghttp2_hd_inflate_del(inf);
    hpack_out_fini(&out);
    hpack_seen_fini(&seen);
    slab_pool_fini(&pool);
}

static unsigned n_notes_freed;

static void note_gone(void *note)
{
    assert_ptr_equal(note, &n_notes_freed);
    n_notes_freed++;
}

/* The same fields are one set, from their second sight on; its note goes with its last holder. */
static void header_sets_are_interned_by_their_fields(void **state)
{
    struct slab_pool pool;
    struct h2_set *a, *b;
    struct rng rng;
    struct set s;

    (void)state;
    slab_pool_init(&pool);
    rng_init(&rng, 5);
    n_notes_freed = 0;
    make_set(&s, &rng);
    assert_null(h2_set_meet(&pool, s.fields, s.n));
    a = h2_set_meet(&pool, s.fields, s.n);
    assert_non_null(a);
    assert_true(h2_set_equals(a, s.fields, s.n));
    b = h2_set_get(&pool, s.fields, s.n);
    assert_ptr_equal(a, b);
    h2_set_unref(b);
    s.fields[0].flags ^= H2_FIELD_NO_INDEX; /* leaves in another way, so it is another set */
    b = h2_set_get(&pool, s.fields, s.n);
    assert_ptr_not_equal(a, b);
    a->note = b->note = &n_notes_freed;
    a->note_free = b->note_free = note_gone;
    h2_set_unref(b); /* the pool keeps it */
    assert_int_equal(n_notes_freed, 0);
    for (int i = 0; i < 1000; i++) { /* but not for ever */
        snprintf(s.timeout, sizeof(s.timeout), "%d", i);
        s.n = 0;
        add(&s, "x", s.timeout, 0);
        h2_set_unref(h2_set_get(&pool, s.fields, s.n));
    }
    assert_int_equal(n_notes_freed, 1);
    h2_sets_drop(&pool); /* a is held, and outlives the table */
    assert_int_equal(n_notes_freed, 1);
    h2_set_unref(a);
    assert_int_equal(n_notes_freed, 2);
    slab_pool_fini(&pool);
}

/* A value that never comes twice must push nothing out of the peer's table. */
static void unique_values_enter_no_table(void **state)
{
    struct hpack_seen seen = {0};
    struct slab_pool pool;
    struct hpack_out out;
    struct rng rng;
    struct set s;

    (void)state;
    slab_pool_init(&pool);
    hpack_out_init(&out, &seen, &pool);
    rng_init(&rng, 3);
    for (int i = 0; i < 1000; i++) {
        uint8_t small[4096], *heap;
        struct hpack_block *b;
        size_t len;

        s.n = 0;
        snprintf(s.id, sizeof(s.id), "%016llx", (unsigned long long)rng_next(&rng));
        add(&s, ":method", "POST", 0);
        add(&s, "x-request-id", s.id, 0);
        add(&s, "user-agent", "x", 0);
        b = hpack_out_hold(&out, s.fields, s.n);
        hpack_out_encode(&out, b, small, sizeof(small), &len, &heap);
        hpack_block_unref(b);
    }
    assert_int_equal(out.n_dynamic, 1); /* user-agent */
    hpack_out_fini(&out);
    hpack_seen_fini(&seen);
    slab_pool_fini(&pool);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(coming_blocks_are_what_the_plain_coder_says),
        cmocka_unit_test(leaving_blocks_decode_to_the_fields),
        cmocka_unit_test(any_block_is_what_the_plain_decoder_says),
        cmocka_unit_test(the_table_holds_what_the_rfc_says),
        cmocka_unit_test(evicted_entries_are_not_remembered),
        cmocka_unit_test(a_size_update_behind_a_remembered_run_is_refused),
        cmocka_unit_test(block_outlives_its_entry),
        cmocka_unit_test(leaving_header_sets_decode_to_their_fields),
        cmocka_unit_test(header_sets_are_interned_by_their_fields),
        cmocka_unit_test(unique_values_enter_no_table),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
