#include "net/h2_stream.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/xalloc.h"

#define FIRST_SLOTS 16u

/* ---- shared by a worker's connections ---- */

struct nstream_shared *nstream_shared_get(struct slab_pool *pool)
{
    if (pool->h2_shared == NULL)
        pool->h2_shared = xcalloc(1, sizeof(struct nstream_shared));
    pool->h2_shared->refs++;
    return pool->h2_shared;
}

void nstream_shared_put(struct slab_pool *pool)
{
    struct nstream_shared *sh = pool->h2_shared;

    if (--sh->refs > 0)
        return;
    while (sh->free != NULL) {
        struct nstream *s = sh->free;

        sh->free = s->chain;
        free(s);
    }
    hpack_seen_fini(&sh->seen);
    free(sh);
    pool->h2_shared = NULL;
}

size_t nstream_shared_trim(struct slab_pool *pool)
{
    struct nstream_shared *sh = pool->h2_shared;
    unsigned n;

    if (sh == NULL)
        return 0;
    n = (sh->n_idle + 1) / 2;
    for (unsigned i = 0; i < n; i++) {
        struct nstream *s = sh->free;

        sh->free = s->chain;
        free(s);
    }
    sh->n_free -= n;
    sh->n_idle = sh->n_free;
    return n * sizeof(struct nstream);
}

/* ---- a stream's life ---- */

struct nstream *nstream_new(struct nstream_shared *sh, struct h2 *h2, void *user)
{
    struct nstream *s = sh->free;

    if (s != NULL) {
        sh->free = s->chain;
        if (--sh->n_free < sh->n_idle)
            sh->n_idle = sh->n_free;
    } else {
        s = xrealloc(NULL, 1, sizeof(*s));
    }
    /* what is not named here is written before it is read */
    s->base = (struct h2_stream){.h2 = h2, .user = user};
    s->all = s->node = (struct list){NULL, NULL};
    s->state = STREAM_OPEN;
    s->flags = 0;
    s->n_blocks = s->n_info = 0;
    s->send_window = 0;
    s->recv_used = s->recv_owed = 0;
    s->content_left = -1;
    s->seg_head = s->n_segs = 0;
    s->cap_segs = STREAM_SEGS;
    s->queued = 0;
    s->trailers = NULL;
    s->segs = s->first;
    return s;
}

void nstream_drop_queued(struct nstream *s)
{
    for (uint32_t i = 0; i < s->n_segs; i++)
        slab_unref(s->segs[(s->seg_head + i) & (s->cap_segs - 1)].owner);
    s->n_segs = 0;
    s->queued = 0;
    for (unsigned i = 0; i < s->n_blocks; i++)
        hpack_block_unref(s->blocks[i]);
    s->n_blocks = 0;
    hpack_block_unref(s->trailers);
    s->trailers = NULL;
}

void nstream_free(struct nstream_shared *sh, struct nstream *s)
{
    if (s->segs != s->first)
        free(s->segs);
    s->chain = sh->free;
    sh->free = s;
    sh->n_free++;
}

/* ---- payload that waits ---- */

static struct nstream_seg *seg_at(const struct nstream *s, uint32_t i)
{
    return &s->segs[(s->seg_head + i) & (s->cap_segs - 1)];
}

static void grow_segs(struct nstream *s)
{
    const uint32_t cap = s->cap_segs * 2;
    struct nstream_seg *segs = xcalloc(cap, sizeof(*segs));

    for (uint32_t i = 0; i < s->n_segs; i++)
        segs[i] = *seg_at(s, i);
    if (s->segs != s->first)
        free(s->segs);
    s->segs = segs;
    s->seg_head = 0;
    s->cap_segs = cap;
}

void nstream_push(struct nstream *s, struct slab *owner, const uint8_t *p, size_t len)
{
    struct nstream_seg *last = s->n_segs > 0 ? seg_at(s, s->n_segs - 1) : NULL;

    s->queued += len;
    if (last != NULL && last->owner == owner && last->p + last->len == p) {
        last->len += len;
        slab_unref(owner);
        return;
    }
    if (s->n_segs == s->cap_segs)
        grow_segs(s);
    s->n_segs++;
    *seg_at(s, s->n_segs - 1) = (struct nstream_seg){owner, p, len};
}

struct nstream_seg *nstream_piece(struct nstream *s, uint32_t i)
{
    return seg_at(s, i);
}

uint8_t *nstream_take_all(struct nstream *s, uint8_t *to)
{
    for (; s->n_segs > 0; s->n_segs--) {
        struct nstream_seg *seg = seg_at(s, 0);

        to = (uint8_t *)memcpy(to, seg->p, seg->len) + seg->len;
        slab_unref(seg->owner);
        s->seg_head = (s->seg_head + 1) & (s->cap_segs - 1);
    }
    s->queued = 0;
    return to;
}

void nstream_move(struct nstream *s, struct outq *out, size_t len)
{
    check(len <= s->queued);
    s->queued -= len;
    while (len > 0) {
        struct nstream_seg *seg = seg_at(s, 0);
        const size_t take = len < seg->len ? len : seg->len;

        outq_ref(out, seg->owner, seg->p, take);
        len -= take;
        seg->p += take;
        seg->len -= take;
        if (seg->len == 0) {
            slab_unref(seg->owner);
            s->seg_head = (s->seg_head + 1) & (s->cap_segs - 1);
            s->n_segs--;
        }
    }
}

/* ---- table ---- */

void nstream_table_init(struct nstream_table *t)
{
    *t = (struct nstream_table){.slots = &t->first};
}

void nstream_table_fini(struct nstream_table *t)
{
    if (t->slots != &t->first)
        free(t->slots);
}

static void put(struct nstream_table *t, struct nstream *s)
{
    struct nstream **slot = &t->slots[(s->base.id >> 1) & t->mask];

    s->chain = *slot;
    *slot = s;
}

static void table_grow(struct nstream_table *t)
{
    const uint32_t cap = t->mask == 0 ? FIRST_SLOTS : (t->mask + 1) * 2;
    struct nstream_table big = {.mask = cap - 1, .n = t->n};

    big.slots = xcalloc(cap, sizeof(*big.slots));
    for (uint32_t i = 0; i <= t->mask; i++) {
        while (t->slots[i] != NULL) {
            struct nstream *moved = t->slots[i];

            t->slots[i] = moved->chain;
            put(&big, moved);
        }
    }
    nstream_table_fini(t);
    *t = big;
}

/* Ids come in order, so a table as large as the number of streams has next to no chains. */
void nstream_table_add(struct nstream_table *t, struct nstream *s)
{
    if (t->n > t->mask)
        table_grow(t);
    put(t, s);
    t->n++;
}

void nstream_table_del(struct nstream_table *t, struct nstream *s)
{
    struct nstream **at = &t->slots[(s->base.id >> 1) & t->mask];

    while (*at != s)
        at = &(*at)->chain;
    *at = s->chain;
    t->n--;
}

/* ---- ended streams ---- */

void nstream_bury(struct nstream_graves *g, uint32_t id, enum nstream_end how)
{
    g->ids[g->next] = id;
    g->how[g->next] = (uint8_t)how;
    g->next = (g->next + 1) % STREAM_GRAVES;
}

enum nstream_end nstream_grave(const struct nstream_graves *g, uint32_t id)
{
    for (uint32_t i = 1; i <= STREAM_GRAVES; i++) { /* the newest says it */
        const uint32_t at = (g->next - i) % STREAM_GRAVES;

        if (g->ids[at] == id)
            return g->how[at];
    }
    return STREAM_END_UNKNOWN;
}
