#include "base/hash.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/xalloc.h"

#define FIRST_CAP 16

/* Open addressing with linear probing; deletion shifts back, so there are no tombstones.
 * At most 3/4 of the slots are used. */
struct map_slot {
    char *key; /* NULL: free */
    size_t key_len;
    uint64_t hash;
    void *value;
};

uint64_t hash_bytes(const void *p, size_t len, uint64_t seed)
{
    const uint8_t *s = p;
    uint64_t h = UINT64_C(0xcbf29ce484222325) ^ seed;

    for (size_t i = 0; i < len; i++)
        h = (h ^ s[i]) * UINT64_C(0x100000001b3);
    h ^= h >> 33; /* murmur3's finaliser: FNV alone mixes the high bits badly */
    h *= UINT64_C(0xff51afd7ed558ccd);
    h ^= h >> 33;
    h *= UINT64_C(0xc4ceb9fe1a85ec53);
    return h ^ (h >> 33);
}

void map_init(struct map *m)
{
    memset(m, 0, sizeof(*m));
}

void map_fini(struct map *m)
{
    for (size_t i = 0; i < m->cap; i++)
        free(m->slots[i].key);
    free(m->slots);
    memset(m, 0, sizeof(*m));
}

/* The slot that holds key, or the free one where it would go; cap > 0. */
static struct map_slot *find(const struct map *m, const char *key, size_t key_len, uint64_t hash)
{
    for (size_t i = hash & (m->cap - 1);; i = (i + 1) & (m->cap - 1)) {
        struct map_slot *s = &m->slots[i];

        if (s->key == NULL)
            return s;
        if (s->hash == hash && s->key_len == key_len && memcmp(s->key, key, key_len) == 0)
            return s;
    }
}

void *map_get(const struct map *m, const char *key, size_t key_len)
{
    if (m->n == 0)
        return NULL;
    return find(m, key, key_len, hash_bytes(key, key_len, 0))->value;
}

static void grow(struct map *m)
{
    struct map bigger = {.cap = m->cap > 0 ? m->cap * 2 : FIRST_CAP, .n = m->n};

    bigger.slots = xcalloc(bigger.cap, sizeof(*bigger.slots));
    for (size_t i = 0; i < m->cap; i++) {
        const struct map_slot *s = &m->slots[i];

        if (s->key != NULL)
            *find(&bigger, s->key, s->key_len, s->hash) = *s;
    }
    free(m->slots);
    *m = bigger;
}

/* value may not be NULL: NULL means "not there" in map_get. */
void *map_set(struct map *m, const char *key, size_t key_len, void *value)
{
    const uint64_t hash = hash_bytes(key, key_len, 0);
    struct map_slot *s;
    void *old;

    check(value != NULL);
    if ((m->n + 1) * 4 > m->cap * 3)
        grow(m);
    s = find(m, key, key_len, hash);
    old = s->value;
    if (s->key == NULL) {
        s->key = xstrndup(key, key_len);
        s->key_len = key_len;
        s->hash = hash;
        m->n++;
    }
    s->value = value;
    return old;
}

void *map_del(struct map *m, const char *key, size_t key_len)
{
    const size_t mask = m->cap - 1;
    struct map_slot *s;
    size_t hole;
    void *old;

    if (m->n == 0)
        return NULL;
    s = find(m, key, key_len, hash_bytes(key, key_len, 0));
    if (s->key == NULL)
        return NULL;
    old = s->value;
    free(s->key);
    memset(s, 0, sizeof(*s));
    m->n--;
    hole = (size_t)(s - m->slots);
    /* An entry behind the hole moves into it unless its home lies between the hole and itself. */
    for (size_t i = (hole + 1) & mask; m->slots[i].key != NULL; i = (i + 1) & mask) {
        const size_t home = m->slots[i].hash & mask;

        if (((i - home) & mask) >= ((i - hole) & mask)) {
            m->slots[hole] = m->slots[i];
            memset(&m->slots[i], 0, sizeof(m->slots[i]));
            hole = i;
        }
    }
    return old;
}

void map_each(const struct map *m, map_each_fn fn, void *arg)
{
    for (size_t i = 0; i < m->cap; i++)
        if (m->slots[i].key != NULL)
            fn(arg, m->slots[i].key, m->slots[i].key_len, m->slots[i].value);
}
