#include "gateway/body.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/xalloc.h"

#define ARENA_PIECE_BYTES 512u  /* first copies: room for a typical small request */
#define ARENA_TOTAL_BYTES 2048u /* past this, copies go into slabs */

void body_init(struct body *b, struct slab_pool *slabs)
{
    b->slabs = slabs;
    b->segs = b->first;
    b->n = 0;
    b->cap = ARRAY_LEN(b->first);
    b->bytes = 0;
}

void body_drop(struct body *b)
{
    for (uint32_t i = 0; i < b->n; i++)
        slab_unref(b->segs[i].slab);
    b->n = 0;
    b->bytes = 0;
}

void body_fini(struct body *b)
{
    body_drop(b);
    if (b->segs != b->first)
        free(b->segs);
    b->segs = b->first;
    b->cap = ARRAY_LEN(b->first);
}

static struct body_seg *body_new_seg(struct body *b)
{
    if (b->n == b->cap) {
        const uint32_t cap = b->cap * 2;

        if (b->segs == b->first) {
            b->segs = xcalloc(cap, sizeof(*b->segs));
            memcpy(b->segs, b->first, sizeof(b->first));
        } else {
            b->segs = xrealloc(b->segs, cap, sizeof(*b->segs));
        }
        b->cap = cap;
    }
    b->segs[b->n] = (struct body_seg){0};
    return &b->segs[b->n++];
}

/* A copied segment with room for at least one byte. */
static struct body_seg *body_new_copy_seg(struct body *b, struct arena *arena)
{
    struct body_seg *seg = body_new_seg(b);

    if (b->n == 1) {
        seg->p = b->room;
        seg->room = BODY_ROOM_BYTES;
        return seg;
    }
    if (b->bytes < ARENA_TOTAL_BYTES) {
        seg->p = arena_alloc_raw(arena, ARENA_PIECE_BYTES);
        if (seg->p != NULL) {
            seg->room = ARENA_PIECE_BYTES;
            return seg;
        }
    }
    seg->slab = slab_get(b->slabs, SLAB_SMALL_BYTES);
    seg->p = seg->slab->data;
    seg->room = seg->slab->cap;
    return seg;
}

void body_append(struct body *b, struct arena *arena, struct slab *slab, const uint8_t *p,
                 size_t len)
{
    if (slab != NULL && len >= OUTQ_COPY_BELOW) {
        struct body_seg *seg = body_new_seg(b);

        seg->slab = slab_ref(slab);
        seg->p = (uint8_t *)(uintptr_t)p; /* only read: body_head is for copied segments */
        seg->len = (uint32_t)len;
        b->bytes += len;
        return;
    }
    while (len > 0) {
        struct body_seg *seg = b->n > 0 ? &b->segs[b->n - 1] : NULL;

        if (seg == NULL || seg->room == 0)
            seg = body_new_copy_seg(b, arena);

        const uint32_t take = len < seg->room ? (uint32_t)len : seg->room;

        memcpy(seg->p + seg->len, p, take);
        seg->len += take;
        seg->room -= take;
        b->bytes += take;
        p += take;
        len -= take;
    }
}

uint8_t *body_head(struct body *b, size_t len)
{
    check(b->n > 0 && b->segs[0].len >= len);
    return b->segs[0].p;
}

void body_send(const struct body *b, struct h2_stream *s, bool end)
{
    for (uint32_t i = 0; i < b->n; i++)
        h2_send_data(s, b->segs[i].slab, b->segs[i].p, b->segs[i].len, end && i + 1 == b->n);
    if (b->n == 0 && end)
        h2_send_data(s, NULL, NULL, 0, true);
}
