/* net/sendq.h - payload of one stream that waits for the peer's windows.
 *
 * Owns:      references to the slabs in which the payload lies.
 * Called by: net/h2_session.c.
 * Lifetime:  a zeroed sendq is an empty one; sendq_fini.
 * Thread:    one.
 *
 * Large payload is held where it lies; short or unowned payload is copied behind that of the other
 * streams into the connection's struct copy_slab, so that it pins little.
 */
#ifndef NET_SENDQ_H
#define NET_SENDQ_H

#include "net/slab.h"

struct copy_slab {
    struct slab *slab; /* NULL: none */
    uint32_t used;
};

struct sendq {
    struct send_seg *segs; /* ring */
    uint32_t head, n, cap;
    size_t bytes;
};

void sendq_fini(struct sendq *q); /* and empty again */
/* owner: holder of p, or NULL. */
void sendq_push(struct sendq *q, struct slab_pool *pool, struct copy_slab *copy, struct slab *owner,
                const uint8_t *p, size_t len);
void sendq_move(struct sendq *q, struct outq *out, size_t len); /* len <= bytes */

void copy_slab_drop(struct copy_slab *c);         /* what streams hold of it lives on */
void copy_slab_drop_if_idle(struct copy_slab *c); /* when no stream holds any of it */

#endif
