#include "net/slab.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/xalloc.h"

/* What a worker keeps for its next bursts; the rest goes back to the allocator. */
#define KEEP_SMALL 256u /* 4 MiB */
#define KEEP_LARGE 32u  /* 8 MiB */

/* ---- slabs ---- */

void slab_pool_init(struct slab_pool *pool)
{
    memset(pool, 0, sizeof(*pool));
    list_init(&pool->free_lists[0]);
    list_init(&pool->free_lists[1]);
}

void slab_pool_fini(struct slab_pool *pool)
{
    check(pool->pinned_bytes == 0);
    if (pool->h2_sets != NULL)
        pool->h2_sets_free(pool->h2_sets);
    pool->h2_sets = NULL;
    if (pool->hpack_strings != NULL)
        pool->hpack_strings_free(pool->hpack_strings);
    pool->hpack_strings = NULL;
    for (size_t i = 0; i < ARRAY_LEN(pool->free_lists); i++) {
        if (pool->free_lists[i].next == NULL)
            continue; /* zeroed: never initialised */
        list_each (&pool->free_lists[i], it) {
            free(list_entry(it, struct slab, node));
        }
        list_init(&pool->free_lists[i]);
        pool->n_free[i] = 0;
    }
}

size_t slab_pool_trim(struct slab_pool *pool)
{
    size_t bytes = 0;

    for (size_t i = 0; i < ARRAY_LEN(pool->free_lists); i++) {
        for (size_t n = (pool->n_idle[i] + 1) / 2; n > 0; n--) {
            struct slab *s = list_entry(list_pop_front(&pool->free_lists[i]), struct slab, node);

            bytes += s->cap;
            pool->n_free[i]--;
            free(s);
        }
        pool->n_idle[i] = pool->n_free[i];
    }
    return bytes;
}

/* bytes: wanted room, > 0. Past SLAB_LARGE_BYTES a slab of that very size is made, and not kept. */
struct slab *slab_get(struct slab_pool *pool, size_t bytes)
{
    const size_t class = bytes <= SLAB_SMALL_BYTES ? 0 : 1;
    size_t cap = class == 0 ? SLAB_SMALL_BYTES : SLAB_LARGE_BYTES;
    struct slab *s;

    check(bytes > 0 && bytes <= UINT32_MAX);
    if (bytes > SLAB_LARGE_BYTES)
        cap = bytes;
    if (cap <= SLAB_LARGE_BYTES && pool->n_free[class] > 0) {
        s = list_entry(list_pop_front(&pool->free_lists[class]), struct slab, node);
        if (--pool->n_free[class] < pool->n_idle[class])
            pool->n_idle[class] = pool->n_free[class];
    } else {
        s = xrealloc(NULL, 1, sizeof(*s) + cap);
        s->pool = pool;
        s->node = (struct list){NULL, NULL};
        s->cap = (uint32_t)cap;
    }
    s->refs = 1;
    pool->pinned_bytes += cap;
    return s;
}

struct slab *slab_ref(struct slab *s)
{
    check(s->refs > 0);
    s->refs++;
    return s;
}

void slab_unref(struct slab *s)
{
    struct slab_pool *pool;
    size_t class;

    if (s == NULL)
        return;
    check(s->refs > 0);
    if (--s->refs > 0)
        return;
    pool = s->pool;
    pool->pinned_bytes -= s->cap;
    class = s->cap == SLAB_SMALL_BYTES ? 0 : 1;
    if (s->cap > SLAB_LARGE_BYTES ||
        pool->n_free[class] >= (class == 0 ? KEEP_SMALL : KEEP_LARGE)) {
        free(s);
        return;
    }
    list_push_front(&pool->free_lists[class], &s->node); /* the one that is still in the cache */
    pool->n_free[class]++;
}

/* ---- output queue ---- */

#define OUTQ_KEEPS 4u /* segments; a small answer is one or two */

void outq_init(struct outq *q, struct slab_pool *pool)
{
    memset(q, 0, sizeof(*q));
    q->pool = pool;
}

static struct out_seg *outq_at(const struct outq *q, uint32_t i)
{
    return &q->segs[(q->head + i) & (q->cap - 1)];
}

static void outq_drop_tail(struct outq *q)
{
    slab_unref(q->tail);
    q->tail = NULL;
    q->tail_used = 0;
    q->last = NULL;
}

void outq_fini(struct outq *q)
{
    for (uint32_t i = 0; i < q->n; i++)
        slab_unref(outq_at(q, i)->owner);
    outq_drop_tail(q);
    free(q->segs);
    q->segs = NULL;
    q->head = q->n = q->cap = 0;
    q->bytes = 0;
}

static void outq_push(struct outq *q, struct slab *owner, const uint8_t *p, size_t len)
{
    if (q->n == q->cap) {
        const uint32_t cap = q->cap == 0 ? OUTQ_KEEPS : q->cap * 2;
        struct out_seg *segs = xcalloc(cap, sizeof(*segs));

        for (uint32_t i = 0; i < q->n; i++)
            segs[i] = *outq_at(q, i);
        free(q->segs);
        q->segs = segs;
        q->head = 0;
        q->cap = cap;
    }
    q->n++;
    *outq_at(q, q->n - 1) = (struct out_seg){slab_ref(owner), p, len};
    q->bytes += len;
    q->last = NULL;
}

uint8_t *outq_put_more(struct outq *q, size_t len)
{
    uint8_t *to;

    check(len <= SLAB_SMALL_BYTES);
    if (q->tail != NULL && q->tail->cap - q->tail_used < len)
        outq_drop_tail(q);
    if (q->tail == NULL)
        q->tail = slab_get(q->pool, SLAB_SMALL_BYTES);
    to = q->tail->data + q->tail_used;
    q->tail_used += (uint32_t)len;
    outq_push(q, q->tail, to, len);
    q->last = outq_at(q, q->n - 1);
    return to;
}

void outq_copy(struct outq *q, const void *p, size_t len)
{
    const uint8_t *from = p;

    while (len > 0) {
        const size_t left = q->tail != NULL ? q->tail->cap - q->tail_used : 0;
        const size_t room = left > 0 ? left : SLAB_SMALL_BYTES;
        const size_t take = len < room ? len : room;

        memcpy(outq_put(q, take), from, take);
        from += take;
        len -= take;
    }
}

void outq_ref(struct outq *q, struct slab *owner, const uint8_t *p, size_t len)
{
    if (len < OUTQ_COPY_BELOW)
        outq_copy(q, p, len);
    else
        outq_push(q, owner, p, len);
}

/* Fills iov with the front of the queue; returns how many of max were used. */
int outq_iov(const struct outq *q, struct iovec *iov, int max)
{
    int n = 0;

    for (uint32_t i = 0; i < q->n && n < max; i++, n++) {
        const struct out_seg *s = outq_at(q, i);

        iov[n].iov_base = (void *)(uintptr_t)s->p;
        iov[n].iov_len = s->len;
    }
    return n;
}

/* bytes: taken by the socket; at most what outq_iov showed. An empty queue holds no slab, and a
 * ring of the least size: two of them are part of each idle connection. */
void outq_sent(struct outq *q, size_t bytes)
{
    check(bytes <= q->bytes);
    q->bytes -= bytes;
    while (bytes > 0) {
        struct out_seg *s = outq_at(q, 0);

        if (bytes < s->len) {
            s->p += bytes;
            s->len -= bytes;
            break;
        }
        bytes -= s->len;
        if (s == q->last)
            q->last = NULL;
        slab_unref(s->owner);
        q->head = (q->head + 1) & (q->cap - 1);
        q->n--;
    }
    if (q->n > 0)
        return;
    outq_drop_tail(q);
    if (q->cap > OUTQ_KEEPS) {
        free(q->segs);
        q->segs = NULL;
        q->head = q->cap = 0;
    }
}
