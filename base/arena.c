#include "base/arena.h"

#include <stdalign.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/xalloc.h"

#define CHUNK_BYTES 4096 /* a stream's usual need fits into one */
#define ALIGN       alignof(max_align_t)

struct arena_chunk {
    struct arena_chunk *next;
    size_t size, used; /* of data */
    alignas(max_align_t) uint8_t data[];
};

/* ceiling_bytes counts what is handed out, rounded up to the alignment; chunks may hold up to one
 * chunk more than that. */
void arena_init(struct arena *a, size_t ceiling_bytes)
{
    memset(a, 0, sizeof(*a));
    a->ceiling_bytes = ceiling_bytes;
}

static void free_chunks(struct arena_chunk *c)
{
    while (c != NULL) {
        struct arena_chunk *next = c->next;

        free(c);
        c = next;
    }
}

void arena_fini(struct arena *a)
{
    free_chunks(a->chunks);
    a->chunks = NULL;
    a->used_bytes = 0;
}

void arena_reset(struct arena *a)
{
    a->used_bytes = 0;
    if (a->chunks == NULL)
        return;
    free_chunks(a->chunks->next);
    a->chunks->next = NULL;
    a->chunks->used = 0;
    if (a->chunks->size > CHUNK_BYTES) { /* one big request must not stay for good */
        free(a->chunks);
        a->chunks = NULL;
    }
}

/* ret_need: what it takes, with the alignment. */
static void *arena_take(struct arena *a, size_t bytes, size_t *ret_need)
{
    const size_t left = a->ceiling_bytes - a->used_bytes;
    struct arena_chunk *c = a->chunks;
    size_t need;
    void *p;

    if (bytes > left || bytes > SIZE_MAX - ALIGN)
        return NULL;
    need = (bytes + ALIGN - 1) & ~(ALIGN - 1);
    if (need == 0)
        need = ALIGN; /* distinct addresses, as malloc gives */
    if (need > left)
        return NULL;
    if (c == NULL || need > c->size - c->used) {
        const size_t size = need > CHUNK_BYTES ? need : CHUNK_BYTES;

        c = xrealloc(NULL, 1, sizeof(*c) + size);
        c->size = size;
        c->used = 0;
        c->next = a->chunks;
        a->chunks = c;
    }
    p = c->data + c->used;
    c->used += need;
    a->used_bytes += need;
    *ret_need = need;
    return p;
}

void *arena_alloc(struct arena *a, size_t bytes)
{
    size_t need;
    void *p = arena_take(a, bytes, &need);

    return p == NULL ? NULL : memset(p, 0, need);
}

void *arena_alloc_raw(struct arena *a, size_t bytes)
{
    size_t need;

    return arena_take(a, bytes, &need);
}

void *arena_dup(struct arena *a, const void *p, size_t bytes)
{
    void *copy = arena_alloc(a, bytes);

    if (copy != NULL && bytes > 0)
        memcpy(copy, p, bytes);
    return copy;
}

char *arena_strndup(struct arena *a, const char *s, size_t len)
{
    char *copy;

    if (len == SIZE_MAX)
        return NULL;
    copy = arena_alloc(a, len + 1);
    if (copy != NULL && len > 0)
        memcpy(copy, s, len);
    return copy;
}
