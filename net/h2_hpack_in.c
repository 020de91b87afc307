/* Decoding: memo first, then field by field; nghttp2's inflater reads the strings. */
#include <nghttp2/nghttp2.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/xalloc.h"
#include "net/h2_hpack.h"

#define RUN_MAX     512u /* longer runs are not remembered */
#define BOMB_FACTOR 16u  /* x max_header_bytes decoded: nobody honest sends that */
#define BOMB_FIELDS 1000u
#define GIANT_BYTES 65536u /* the longest string that nghttp2 reads */

struct hpack_memo {
    uint64_t n_inserted; /* the count at which run holds */
    struct h2_set *set;
    uint32_t run_len;
    uint8_t run[];
};

void hpack_in_init(struct hpack_in *in)
{
    memset(in, 0, sizeof(*in));
    hpack_table_init(&in->table);
}

static void memo_free(struct hpack_memo *m)
{
    if (m == NULL)
        return;
    h2_set_unref(m->set);
    free(m);
}

void hpack_in_fini(struct hpack_in *in)
{
    for (size_t i = 0; i < HPACK_MEMO; i++)
        memo_free(in->memo[i]);
    hpack_table_fini(&in->table);
}

/* ---- memo ---- */

static struct hpack_memo *find_memo(struct hpack_in *in, const uint8_t *run, size_t len,
                                    uint32_t max_index)
{
    if (len == 0 || max_index > HPACK_STATIC_ENTRIES + in->table.n)
        return NULL;
    for (size_t i = 0; i < HPACK_MEMO && in->memo[i] != NULL; i++) {
        struct hpack_memo *m = in->memo[i];

        if (m->run_len != len ||
            !hpack_run_equals(m->run, run, len, in->n_inserted - m->n_inserted))
            continue;
        if (m->n_inserted != in->n_inserted) {
            memcpy(m->run, run, len);
            m->n_inserted = in->n_inserted;
        }
        return m;
    }
    return NULL;
}

struct h2_set *hpack_in_routine(const struct hpack_in *in, const uint8_t *p, size_t len)
{
    for (size_t i = 0; i < HPACK_MEMO && in->memo[i] != NULL; i++) {
        const struct hpack_memo *m = in->memo[i];

        if (m->run_len == len && m->n_inserted == in->n_inserted && hpack_same(m->run, p, len))
            return m->set;
    }
    return NULL;
}

/* run: what the n fields came as. */
static void keep_memo(struct hpack_in *in, struct slab_pool *pool, const uint8_t *run, size_t len,
                      const struct h2_field *fields, size_t n)
{
    struct h2_set *set = h2_set_meet(pool, fields, n);
    struct hpack_memo *m;

    if (set == NULL)
        return;
    m = xrealloc(NULL, 1, sizeof(*m) + len);
    m->n_inserted = in->n_inserted;
    m->set = set;
    m->run_len = (uint32_t)len;
    memcpy(m->run, run, len);
    memo_free(in->memo[in->next]);
    in->memo[in->next] = m;
    in->next = (in->next + 1) % HPACK_MEMO;
}

/* ---- strings ---- */

static void strings_free(void *inflater)
{
    nghttp2_hd_inflate_del(inflater);
}

/* The worker's: it sees only literals that enter no table, so it knows nothing of a connection. */
static nghttp2_hd_inflater *strings_of(struct slab_pool *pool)
{
    nghttp2_hd_inflater *inflater = pool->hpack_strings;

    if (inflater == NULL) {
        check(nghttp2_hd_inflate_new(&inflater) == 0);
        pool->hpack_strings = inflater;
        pool->hpack_strings_free = strings_free;
    }
    return inflater;
}

/* [p, p+len): two strings of RFC 7541 5.2, or, when named, one; then nv's name means nothing. nv
 * is valid until the next call. */
static bool read_strings(struct slab_pool *pool, bool named, const uint8_t *p, size_t len,
                         nghttp2_nv *nv)
{
    static const uint8_t literal[] = {0x00, 0x01, 'x'}; /* RFC 7541 6.2.2; a name of one byte */
    const size_t first = named ? sizeof(literal) : 1;
    nghttp2_hd_inflater *inflater = strings_of(pool);
    int flags = 0;

    nghttp2_hd_inflate_end_headers(inflater); /* of the one before */
    if (nghttp2_hd_inflate_hd2(inflater, nv, &flags, literal, first, 0) == (ssize_t)first &&
        nghttp2_hd_inflate_hd2(inflater, nv, &flags, p, len, 1) == (ssize_t)len &&
        (flags & NGHTTP2_HD_INFLATE_EMIT) != 0)
        return true;
    strings_free(inflater); /* it takes nothing more */
    pool->hpack_strings = NULL;
    return false;
}

/* ---- the slow way ---- */

struct walk {
    struct hpack_in *in;
    struct slab_pool *pool;
    const struct h2_limits *limits;
    struct h2_field *fields; /* grow up in the scratch slab */
    size_t n;
    uint8_t *strings; /* grow down from its end; a field's 32 bytes of RFC 9113 6.5.2 pay for */
                      /* its struct h2_field, so max_header_bytes of room are enough */
    size_t list_bytes;
    size_t n_seen;
    bool over;
    struct message message;
};

_Static_assert(sizeof(struct h2_field) <= 32, "the scratch of a block");

/* The place of a field with strings of so many bytes; NULL: over the limits. */
static struct h2_field *count_field(struct walk *w, size_t bytes)
{
    w->n_seen++;
    w->list_bytes += bytes + 32;
    if (w->list_bytes > w->limits->max_header_bytes || w->n >= w->limits->max_header_fields)
        w->over = true; /* go on, or the table is lost; but keep nothing more */
    return w->over ? NULL : &w->fields[w->n++];
}

static const char *keep_string(struct walk *w, const char *p, size_t len)
{
    w->strings -= len;
    return memcpy(w->strings, p, len);
}

static void take_field(struct walk *w, const struct h2_field *field)
{
    struct h2_field *f = count_field(w, (size_t)field->name_len + field->value_len);

    if (f == NULL)
        return;
    *f = *field;
    f->value = keep_string(w, field->value, field->value_len);
    f->name = keep_string(w, field->name, field->name_len);
    message_field(&w->message, f);
}

static bool is_bomb(const struct walk *w)
{
    return !w->in->no_bombs && (w->n_seen > BOMB_FIELDS ||
                                w->list_bytes > (size_t)BOMB_FACTOR * w->limits->max_header_bytes);
}

/* A literal that touches no table and is not compressed stays where it lies: a request id, say.
 * Returns its length, 0: it is no such thing. */
static size_t take_plain(struct walk *w, const uint8_t *p, const uint8_t *end)
{
    struct h2_field plain, *f;
    const size_t used = hpack_plain_literal(&plain, p, end);

    if (used == 0)
        return 0;
    f = count_field(w, (size_t)plain.name_len + plain.value_len);
    if (f != NULL) {
        *f = plain;
        message_field(&w->message, f);
    }
    return used;
}

/* RFC 7541 2.3.3: the static table, then the dynamic one. */
static bool find_entry(struct walk *w, uint32_t index, struct h2_field *ret)
{
    const nghttp2_nv *nv;

    if (index > HPACK_STATIC_ENTRIES)
        return hpack_table_get(&w->in->table, index - HPACK_STATIC_ENTRIES - 1, ret);
    if (index == 0)
        return false;
    nv = nghttp2_hd_inflate_get_table_entry(strings_of(w->pool), index);
    *ret = (struct h2_field){.name = (const char *)nv->name,
                             .value = (const char *)nv->value,
                             .name_len = (uint32_t)nv->namelen,
                             .value_len = (uint32_t)nv->valuelen};
    return true;
}

/* One with so long strings, counted as they lie, is over every limit of ours, and over every table,
 * as Huffman makes 30 bits of 8 at worst: inserted it leaves the table empty, RFC 7541 4.4. */
static enum hpack_result take_giant(struct walk *w, const struct hpack_repr *r, const uint8_t *p,
                                    size_t len)
{
    struct h2_field entry;

    if (r->index > 0 && !find_entry(w, r->index, &entry))
        return HPACK_BROKEN;
    if (r->kind == HPACK_INSERT) {
        w->in->n_inserted++;
        hpack_table_add(&w->in->table, "", 0, (const char *)p, len);
    }
    count_field(w, len);
    return HPACK_OK;
}

/* A literal whose strings are [p, end). */
static enum hpack_result take_literal(struct walk *w, const struct hpack_repr *r, const uint8_t *p,
                                      const uint8_t *end)
{
    char name[HPACK_TABLE_BYTES]; /* of a table: the insertion may push its entry out */
    const bool named = r->index > 0;
    struct h2_field f = {.flags = r->kind == HPACK_LITERAL ? H2_FIELD_NO_INDEX : 0}, entry;
    nghttp2_nv nv;

    if ((size_t)(end - p) > GIANT_BYTES)
        return take_giant(w, r, p, (size_t)(end - p));
    if ((named && !find_entry(w, r->index, &entry)) ||
        !read_strings(w->pool, named, p, (size_t)(end - p), &nv))
        return HPACK_BROKEN;
    f.name = named ? memcpy(name, entry.name, entry.name_len) : (const char *)nv.name;
    f.name_len = named ? entry.name_len : (uint32_t)nv.namelen;
    f.value = (const char *)nv.value;
    f.value_len = (uint32_t)nv.valuelen;
    if (r->kind == HPACK_INSERT) {
        w->in->n_inserted++;
        hpack_table_add(&w->in->table, f.name, f.name_len, f.value, f.value_len);
    }
    take_field(w, &f);
    return HPACK_OK;
}

/* RFC 7541 4.2: it stands at the beginning of a block. */
static enum hpack_result take_size(struct walk *w, uint32_t max)
{
    if (w->n_seen > 0 || max > HPACK_TABLE_BYTES)
        return HPACK_BROKEN;
    hpack_table_limit(&w->in->table, max);
    w->in->n_inserted += HPACK_FORGET;
    return HPACK_OK;
}

/* One representation. Moves *p on. */
static enum hpack_result take_one(struct walk *w, const uint8_t **p, const uint8_t *end)
{
    const uint8_t *const from = *p;
    size_t used = take_plain(w, from, end);
    enum hpack_result result = HPACK_OK;
    struct hpack_repr r;
    struct h2_field f;

    if (used == 0) {
        used = hpack_repr_read(&r, from, end);
        if (used == 0)
            return HPACK_BROKEN;
        if (r.kind == HPACK_SIZE)
            result = take_size(w, r.index);
        else if (r.kind != HPACK_INDEXED)
            result = take_literal(w, &r, from + r.strings_at, from + used);
        else if (find_entry(w, r.index, &f))
            take_field(w, &f);
        else
            result = HPACK_BROKEN;
    }
    *p += used;
    return result == HPACK_OK && is_bomb(w) ? HPACK_BOMB : result;
}

static void start_from_set(struct walk *w, struct h2_set *set, enum message_part part)
{
    w->message = *h2_set_message(set, part);
    w->n_seen = set->n;
    w->list_bytes = set_entry_of(set)->list_bytes;
    if (w->list_bytes > w->limits->max_header_bytes || set->n > w->limits->max_header_fields) {
        w->over = true;
        return;
    }
    memcpy(w->fields, set->fields, set->n * sizeof(*set->fields));
    w->n = set->n;
}

enum hpack_result hpack_in_block(struct hpack_in *in, struct slab_pool *pool,
                                 const struct h2_limits *limits, enum message_part part,
                                 const uint8_t *p, size_t len, struct hpack_list *ret_list)
{
    const uint8_t *const end = p + len, *at = p;
    struct walk w = {.in = in, .pool = pool, .limits = limits};
    enum hpack_result r = HPACK_OK;
    uint32_t max_index;
    const size_t run_len = hpack_run(p, len, HPACK_RUN_STABLE, &max_index);
    struct hpack_memo *m = find_memo(in, p, run_len, max_index);

    ret_list->scratch = NULL;
    ret_list->set = m != NULL ? m->set : NULL;
    if (m != NULL && run_len == len &&
        set_entry_of(m->set)->list_bytes <= limits->max_header_bytes) {
        ret_list->message = *h2_set_message(m->set, part);
        ret_list->fields = m->set->fields;
        ret_list->n = m->set->n;
        return HPACK_OK;
    }
    ret_list->scratch = slab_get(pool, limits->max_header_bytes);
    w.fields = (struct h2_field *)(void *)ret_list->scratch->data;
    w.strings = ret_list->scratch->data + limits->max_header_bytes;
    message_begin(&w.message, part);
    if (m != NULL) {
        start_from_set(&w, m->set, part);
        at += run_len;
    }
    while (r == HPACK_OK && at < end) {
        r = take_one(&w, &at, end);
        if (m == NULL && r == HPACK_OK && at == p + run_len && run_len > 0 && run_len <= RUN_MAX &&
            !w.over)
            keep_memo(in, pool, p, run_len, w.fields, w.n);
    }
    if (r == HPACK_OK && w.over)
        r = HPACK_OVER;
    ret_list->fields = w.fields;
    ret_list->n = w.n;
    ret_list->message = w.message;
    return r;
}

enum hpack_result hpack_in_pass(struct hpack_in *in, struct slab_pool *pool,
                                const struct h2_limits *limits, bool begun, const uint8_t *p,
                                size_t len, size_t *ret_used)
{
    const uint8_t *const end = p + len, *at = p;
    struct walk w = {.in = in, .pool = pool, .limits = limits, .n_seen = begun, .over = true};
    enum hpack_result r = HPACK_OK;
    struct hpack_repr repr;

    while (r == HPACK_OK && hpack_repr_read(&repr, at, end) > 0)
        r = take_one(&w, &at, end);
    *ret_used = (size_t)(at - p);
    return r == HPACK_OK ? HPACK_OVER : r;
}

void hpack_in_done(struct hpack_list *list)
{
    slab_unref(list->scratch);
    list->scratch = NULL;
}
