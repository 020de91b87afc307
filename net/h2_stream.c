#include "net/h2_stream.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/xalloc.h"

#define KEEP_STREAMS 2048u /* free ones, per worker: 700 KiB */
#define FIRST_SLOTS  16u

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

/* ---- a stream's life ---- */

struct nstream *nstream_new(struct nstream_shared *sh, struct h2 *h2, void *user)
{
    struct nstream *s = sh->free;

    if (s != NULL) {
        sh->free = s->chain;
        sh->n_free--;
    } else {
        s = xrealloc(NULL, 1, sizeof(*s));
    }
    memset(s, 0, offsetof(struct nstream, first));
    s->base.h2 = h2;
    s->base.user = user;
    s->content_left = -1;
    s->segs = s->first;
    s->cap_segs = STREAM_SEGS;
    return s;
}

void nstream_drop_output(struct nstream *s)
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
    nstream_drop_output(s);
    if (s->segs != s->first)
        free(s->segs);
    if (sh->n_free >= KEEP_STREAMS) {
        free(s);
        return;
    }
    s->chain = sh->free;
    sh->free = s;
    sh->n_free++;
}

static const enum nstream_state after_recv[] = {
    [STREAM_OPEN] = STREAM_HALF_REMOTE,
    [STREAM_HALF_LOCAL] = STREAM_CLOSED,
    [STREAM_HALF_REMOTE] = STREAM_HALF_REMOTE,
    [STREAM_CLOSED] = STREAM_CLOSED,
};
static const enum nstream_state after_sent[] = {
    [STREAM_OPEN] = STREAM_HALF_LOCAL,
    [STREAM_HALF_LOCAL] = STREAM_HALF_LOCAL,
    [STREAM_HALF_REMOTE] = STREAM_CLOSED,
    [STREAM_CLOSED] = STREAM_CLOSED,
};

void nstream_end_recv(struct nstream *s)
{
    s->state = after_recv[s->state];
}

void nstream_end_sent(struct nstream *s)
{
    s->state = after_sent[s->state];
}

bool nstream_recv_ended(const struct nstream *s)
{
    return s->state == STREAM_HALF_REMOTE || s->state == STREAM_CLOSED;
}

bool nstream_send_ended(const struct nstream *s)
{
    return s->state == STREAM_HALF_LOCAL || s->state == STREAM_CLOSED;
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

void nstream_table_fini(struct nstream_table *t)
{
    free(t->slots);
    t->slots = NULL;
    t->n = t->cap = 0;
}

static void put(struct nstream_table *t, struct nstream *s)
{
    struct nstream **slot = &t->slots[(s->base.id >> 1) & (t->cap - 1)];

    s->chain = *slot;
    *slot = s;
}

/* Ids come in order, so a table as large as the number of streams has next to no chains. */
void nstream_table_add(struct nstream_table *t, struct nstream *s)
{
    if (t->n == t->cap) {
        struct nstream_table big = {.cap = t->cap == 0 ? FIRST_SLOTS : t->cap * 2, .n = t->n};

        big.slots = xcalloc(big.cap, sizeof(*big.slots));
        for (uint32_t i = 0; i < t->cap; i++) {
            while (t->slots[i] != NULL) {
                struct nstream *moved = t->slots[i];

                t->slots[i] = moved->chain;
                put(&big, moved);
            }
        }
        free(t->slots);
        *t = big;
    }
    put(t, s);
    t->n++;
}

void nstream_table_del(struct nstream_table *t, struct nstream *s)
{
    struct nstream **at = &t->slots[(s->base.id >> 1) & (t->cap - 1)];

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
