/* gateway/body.h - request bytes kept for later: until a route and a replica are known, and for a
 * second attempt.
 *
 * Owns:      its segments: slab references, and copies of short ones: in itself, the call's arena
 * or slabs of its own. Called by: gateway/stream and attempt. Lifetime:  body_init .. body_fini.
 * Thread:    its worker's.
 *
 * What is kept is bounded by its callers: before the route is known by the stream's flow-control
 * window (nothing is consumed until it was forwarded), after that by limits.replay_kib.
 */
#ifndef GATEWAY_BODY_H
#define GATEWAY_BODY_H

#include "base/arena.h"
#include "net/h2.h"

struct body_seg {
    struct slab *slab; /* NULL: the bytes lie in room or in the arena */
    uint8_t *p;
    uint32_t len;
    uint32_t room; /* bytes free behind a copied segment: the next short piece joins it */
};

#define BODY_ROOM_BYTES 512u /* a typical small request */

struct body {
    struct slab_pool *slabs;
    struct body_seg *segs;
    uint32_t n, cap;
    size_t bytes;
    struct body_seg first[4];      /* segs until more are needed: most calls are short */
    uint8_t room[BODY_ROOM_BYTES]; /* of the first copied segment */
};

void body_init(struct body *b, struct slab_pool *slabs);
void body_fini(struct body *b); /* works on a zeroed body */
void body_drop(struct body *b); /* empties it */

/* Short pieces are copied (the first ones into room and arena, later ones into slabs of our own, so
 * that no read slab is pinned by a few bytes), long ones referenced. p lies in slab; slab NULL:
 * copied. */
void body_append(struct body *b, struct arena *arena, struct slab *slab, const uint8_t *p,
                 size_t len);
/* The first len bytes, which body_append put in one copied segment when it was given them alone as
 * the first piece. For mending a length prefix. */
uint8_t *body_head(struct body *b, size_t len);
/* Queue all of it on s; end goes with the last piece (alone when there is none). */
void body_send(const struct body *b, struct h2_stream *s, bool end);

#endif
