#include "net/sendq.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/xalloc.h"

struct send_seg {
    struct slab *owner;
    const uint8_t *p;
    size_t len;
};

static struct send_seg *seg_at(const struct sendq *q, uint32_t i)
{
    return &q->segs[(q->head + i) & (q->cap - 1)];
}

void sendq_fini(struct sendq *q)
{
    for (uint32_t i = 0; i < q->n; i++)
        slab_unref(seg_at(q, i)->owner);
    free(q->segs);
    memset(q, 0, sizeof(*q));
}

/* Takes a reference to owner. */
static void push_ref(struct sendq *q, struct slab *owner, const uint8_t *p, size_t len)
{
    if (q->n == q->cap) {
        const uint32_t cap = q->cap == 0 ? 4 : q->cap * 2;
        struct send_seg *segs = xcalloc(cap, sizeof(*segs));

        for (uint32_t i = 0; i < q->n; i++)
            segs[i] = *seg_at(q, i);
        free(q->segs);
        q->segs = segs;
        q->head = 0;
        q->cap = cap;
    }
    q->n++;
    *seg_at(q, q->n - 1) = (struct send_seg){slab_ref(owner), p, len};
    q->bytes += len;
}

static void push_copy(struct sendq *q, struct slab_pool *pool, struct copy_slab *copy,
                      const uint8_t *p, size_t len)
{
    while (len > 0) {
        struct send_seg *last = q->n > 0 ? seg_at(q, q->n - 1) : NULL;
        uint8_t *to;
        size_t take;

        if (copy->slab != NULL && copy->used == copy->slab->cap)
            copy_slab_drop(copy);
        if (copy->slab == NULL)
            copy->slab = slab_get(pool, len > SLAB_SMALL_BYTES ? SLAB_LARGE_BYTES : 1);
        to = copy->slab->data + copy->used;
        take = copy->slab->cap - copy->used;
        take = len < take ? len : take;
        memcpy(to, p, take);
        copy->used += (uint32_t)take;
        if (last != NULL && last->owner == copy->slab && last->p + last->len == to) {
            last->len += take;
            q->bytes += take;
        } else {
            push_ref(q, copy->slab, to, take);
        }
        p += take;
        len -= take;
    }
}

void sendq_push(struct sendq *q, struct slab_pool *pool, struct copy_slab *copy, struct slab *owner,
                const uint8_t *p, size_t len)
{
    if (owner == NULL || len < OUTQ_COPY_BELOW)
        push_copy(q, pool, copy, p, len);
    else
        push_ref(q, owner, p, len);
}

void sendq_move(struct sendq *q, struct outq *out, size_t len)
{
    check(len <= q->bytes);
    q->bytes -= len;
    while (len > 0) {
        struct send_seg *s = seg_at(q, 0);
        const size_t take = len < s->len ? len : s->len;

        outq_ref(out, s->owner, s->p, take);
        len -= take;
        s->p += take;
        s->len -= take;
        if (s->len == 0) {
            slab_unref(s->owner);
            q->head = (q->head + 1) & (q->cap - 1);
            q->n--;
        }
    }
}

void copy_slab_drop(struct copy_slab *c)
{
    slab_unref(c->slab);
    c->slab = NULL;
    c->used = 0;
}

void copy_slab_drop_if_idle(struct copy_slab *c)
{
    if (c->slab != NULL && c->slab->refs == 1)
        copy_slab_drop(c);
}
