/* base/arena.h - memory that ends all at once, with a ceiling.
 *
 * Owns:      its chunks.
 * Called by: whoever has many small things with one end (a stream, a config load).
 * Lifetime:  arena_init .. arena_fini; pointers are valid until arena_reset or arena_fini.
 * Thread:    one.
 */
#ifndef BASE_ARENA_H
#define BASE_ARENA_H

#include <stddef.h>

struct arena {
    struct arena_chunk *chunks;
    size_t used_bytes;    /* handed out since init or reset */
    size_t ceiling_bytes; /* arena_alloc returns NULL past this */
};

void arena_init(struct arena *a, size_t ceiling_bytes);
void arena_fini(struct arena *a);  /* works on a zeroed arena */
void arena_reset(struct arena *a); /* keeps one chunk for the next use */

/* Zeroed memory aligned for any type, or NULL past the ceiling. */
void *arena_alloc(struct arena *a, size_t bytes);
void *arena_alloc_raw(struct arena *a, size_t bytes); /* not zeroed: the caller fills it */
void *arena_dup(struct arena *a, const void *p, size_t bytes);
char *arena_strndup(struct arena *a, const char *s, size_t len); /* adds the NUL */

#endif
