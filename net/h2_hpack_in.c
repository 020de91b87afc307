/* Decoding: memo first, then nghttp2's inflater for the rest of the block. */
#include <nghttp2/nghttp2.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/xalloc.h"
#include "net/h2_hpack.h"

#define RUN_MAX     512u /* longer runs are not remembered */
#define BOMB_FACTOR 16u  /* x max_header_bytes decoded: nobody honest sends that */
#define BOMB_FIELDS 1000u

struct hpack_memo {
    uint64_t n_inserted; /* the count at which run holds */
    struct h2_set *set;
    uint32_t run_len;
    uint8_t run[];
};

void hpack_in_init(struct hpack_in *in)
{
    memset(in, 0, sizeof(*in));
    check(nghttp2_hd_inflate_new(&in->inflater) == 0);
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
    nghttp2_hd_inflate_del(in->inflater);
}

/* ---- memo ---- */

static struct hpack_memo *find_memo(struct hpack_in *in, const uint8_t *run, size_t len,
                                    uint32_t max_index)
{
    if (len == 0 || max_index > HPACK_STATIC_ENTRIES + in->n_dynamic)
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

/* ---- the slow way ---- */

struct walk {
    struct hpack_in *in;
    const struct h2_limits *limits;
    struct h2_field *fields; /* grow up in the scratch slab */
    size_t n;
    uint8_t *strings; /* grow down from its end; a field's 32 bytes of RFC 9113 6.5.2 pay for */
                      /* its struct h2_field, so max_header_bytes of room are enough */
    size_t list_bytes;
    size_t n_seen;
    bool over;
    bool inflated; /* nghttp2 has seen some of the block */
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

static void take_field(struct walk *w, const nghttp2_nv *nv, uint32_t flags)
{
    struct h2_field *f = count_field(w, nv->namelen + nv->valuelen);

    if (f == NULL)
        return;
    w->strings -= nv->valuelen;
    memcpy(w->strings, nv->value, nv->valuelen);
    f->value = (const char *)w->strings;
    w->strings -= nv->namelen;
    memcpy(w->strings, nv->name, nv->namelen);
    f->name = (const char *)w->strings;
    f->name_len = (uint32_t)nv->namelen;
    f->value_len = (uint32_t)nv->valuelen;
    f->flags = flags;
    message_field(&w->message, f);
}

static bool is_bomb(const struct walk *w)
{
    return w->n_seen > BOMB_FIELDS ||
           w->list_bytes > (size_t)BOMB_FACTOR * w->limits->max_header_bytes;
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

/* One field, with the size updates before it. Moves *p on. */
static enum hpack_result inflate_one(struct walk *w, const uint8_t **p, const uint8_t *end)
{
    const size_t plain = take_plain(w, *p, end);
    struct hpack_repr r = {.kind = HPACK_SIZE};
    const uint8_t *q = *p;
    nghttp2_nv nv;
    ssize_t used;
    int flags = 0;

    *p += plain;
    if (plain > 0)
        return is_bomb(w) ? HPACK_BOMB : HPACK_OK;
    /* The inflater would refuse it too, but behind a remembered run it has seen no field yet. */
    if (w->n_seen > 0 && (**p & 0xe0) == 0x20)
        return HPACK_BROKEN; /* RFC 7541 4.2: a size update stands at the beginning of a block */
    while (r.kind == HPACK_SIZE) {
        const size_t n = hpack_repr_read(&r, q, end);

        if (n == 0)
            break; /* the inflater says what is wrong */
        q += n;
        if (r.kind == HPACK_INSERT)
            w->in->n_inserted++;
        else if (r.kind == HPACK_SIZE)
            w->in->n_inserted += HPACK_FORGET;
    }
    w->inflated = true;
    used = nghttp2_hd_inflate_hd2(w->in->inflater, &nv, &flags, *p, (size_t)(end - *p), 1);
    if (used < 0)
        return HPACK_BROKEN;
    *p += used;
    if ((flags & NGHTTP2_HD_INFLATE_EMIT) == 0) /* only size updates were left */
        return *p == end ? HPACK_OK : HPACK_BROKEN;
    take_field(w, &nv, r.kind == HPACK_LITERAL ? H2_FIELD_NO_INDEX : 0);
    return is_bomb(w) ? HPACK_BOMB : HPACK_OK;
}

static enum hpack_result end_block(struct walk *w)
{
    int flags = 0;
    nghttp2_nv nv;

    if (!w->inflated)
        return w->over ? HPACK_OVER : HPACK_OK;
    /* with no bytes left it says whether the block ended between two fields */
    if (nghttp2_hd_inflate_hd2(w->in->inflater, &nv, &flags, (const uint8_t *)"", 0, 1) < 0 ||
        (flags & NGHTTP2_HD_INFLATE_FINAL) == 0)
        return HPACK_BROKEN;
    nghttp2_hd_inflate_end_headers(w->in->inflater);
    w->in->n_dynamic =
        (uint32_t)nghttp2_hd_inflate_get_num_table_entries(w->in->inflater) - HPACK_STATIC_ENTRIES;
    return w->over ? HPACK_OVER : HPACK_OK;
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
    struct walk w = {.in = in, .limits = limits};
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
        r = inflate_one(&w, &at, end);
        if (m == NULL && r == HPACK_OK && at == p + run_len && run_len > 0 && run_len <= RUN_MAX &&
            !w.over)
            keep_memo(in, pool, p, run_len, w.fields, w.n);
    }
    if (r == HPACK_OK)
        r = end_block(&w);
    ret_list->fields = w.fields;
    ret_list->n = w.n;
    ret_list->message = w.message;
    return r;
}

void hpack_in_done(struct hpack_list *list)
{
    slab_unref(list->scratch);
    list->scratch = NULL;
}
