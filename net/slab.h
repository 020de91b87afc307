/* net/slab.h - reference-counted read buffers, and the queue of what leaves.
 *
 * Owns:      slab_pool: free slabs of one worker. A slab lives while anyone holds a reference.
 * Called by: conn (reads into slabs), h2 engines and the relay (hold payload by reference).
 * Lifetime:  slab_get .. last slab_unref; a slab may not outlive its pool.
 * Thread:    one pool per worker; counts are not atomic.
 */
#ifndef NET_SLAB_H
#define NET_SLAB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include "base/list.h"

struct slab {
    struct slab_pool *pool;
    struct list node; /* on the pool's free list */
    uint32_t refs;
    uint32_t cap;
    uint8_t data[];
};

struct slab_pool {
    struct list free_lists[2]; /* small, large */
    size_t n_free[2];
    size_t n_idle[2];                 /* the least that lay free since the last slab_pool_trim */
    size_t pinned_bytes;              /* in slabs that are out; the worker's memory account */
    struct nstream_shared *h2_shared; /* net/h2_stream.h's, while it has connections */
    struct h2_sets *h2_sets;          /* net/h2_set.h's, from first use to the pool's end */
    void (*h2_sets_free)(void *);
    void *hpack_strings; /* net/h2_hpack_in.c's, as those */
    void (*hpack_strings_free)(void *);
};

#define SLAB_SMALL_BYTES (16u * 1024)
#define SLAB_LARGE_BYTES (256u * 1024)

void slab_pool_init(struct slab_pool *pool);
void slab_pool_fini(struct slab_pool *pool); /* every slab must be back */
/* Give back half of what was never needed since the last call. Returns the bytes. */
size_t slab_pool_trim(struct slab_pool *pool);
struct slab *slab_get(struct slab_pool *pool, size_t bytes); /* rounded up to a class */
struct slab *slab_ref(struct slab *s);
void slab_unref(struct slab *s); /* NULL is fine */

struct out_seg {
    struct slab *owner;
    const uint8_t *p;
    size_t len;
};

/* Output of one connection: an ordered queue of segments, small ones copied into a tail slab,
 * larger ones held by reference. */
struct outq {
    struct slab_pool *pool;
    struct out_seg *segs; /* ring */
    uint32_t head, n, cap;
    size_t bytes;
    struct slab *tail; /* where copies go */
    uint32_t tail_used;
    struct out_seg *last; /* the newest segment, when it ends where the tail goes on; or NULL */
};

#define OUTQ_COPY_BELOW 2048u /* a smaller payload must not pin a large slab */

void outq_init(struct outq *q, struct slab_pool *pool);
void outq_fini(struct outq *q);
void outq_copy(struct outq *q, const void *p, size_t len);
/* Room for len <= SLAB_SMALL_BYTES bytes in one piece, which the caller fills right away. */
uint8_t *outq_put_more(struct outq *q, size_t len);
static inline uint8_t *outq_put(struct outq *q, size_t len)
{
    uint8_t *to;

    if (q->last == NULL || q->tail->cap - q->tail_used < len)
        return outq_put_more(q, len);
    to = q->tail->data + q->tail_used;
    q->tail_used += (uint32_t)len;
    q->last->len += len;
    q->bytes += len;
    return to;
}
/* p lies in owner's data; takes a reference (or copies when short). */
void outq_ref(struct outq *q, struct slab *owner, const uint8_t *p, size_t len);
int outq_iov(const struct outq *q, struct iovec *iov, int max);
void outq_sent(struct outq *q, size_t bytes);

#endif
