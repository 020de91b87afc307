/* base/hash.h - string hash and a string-keyed map.
 *
 * Owns:      map: its table and copies of the keys; values belong to the caller.
 * Lifetime:  map_init .. map_fini.
 * Thread:    one (any number of readers once nobody writes).
 * Source:    FNV-1a with a final mix; robust order is not promised.
 */
#ifndef BASE_HASH_H
#define BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

uint64_t hash_bytes(const void *p, size_t len, uint64_t seed);

struct map {
    struct map_slot *slots;
    size_t n;
    size_t cap; /* power of two, or 0 */
};

void map_init(struct map *m);
void map_fini(struct map *m);                                        /* works on a zeroed map */
void *map_get(const struct map *m, const char *key, size_t key_len); /* NULL: not there */
void *map_set(struct map *m, const char *key, size_t key_len, void *value); /* returns the old */
void *map_del(struct map *m, const char *key, size_t key_len);              /* returns the old */

/* Calls fn for each entry in table order; fn may not change the map. */
typedef void (*map_each_fn)(void *arg, const char *key, size_t key_len, void *value);
void map_each(const struct map *m, map_each_fn fn, void *arg);

#endif
