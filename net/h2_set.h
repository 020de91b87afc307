/* net/h2_set.h - the header sets of one worker, interned: the engines' side of struct h2_set.
 *
 * Owns:      the table (one per slab pool, made on first use) and a reference to each of its newest
 *            sets, so that a client that connects for one call finds what the one before left.
 * Called by: net/h2_hpack_in.c and h2_hpack_out.c; everybody else uses net/h2.h.
 * Lifetime:  the table: first use .. slab_pool_fini. A set: until its last reference is gone.
 * Thread:    the pool's.
 *
 * Invariants:
 *  - Two sets that are alive and in the table never have equal fields.
 *  - What comes from a peer becomes a set only when its like was seen before: values that never
 *    come twice make none.
 */
#ifndef NET_H2_SET_H
#define NET_H2_SET_H

#include "base/list.h"
#include "net/h2_message.h"

struct set_entry {
    struct h2_set base;
    struct h2_sets *table; /* NULL: the table is gone */
    struct set_entry *chain;
    struct list node; /* of the table's newest, or none */
    uint64_t hash;
    uint32_t list_bytes;    /* as RFC 9113 6.5.2 counts */
    uint32_t sign;          /* h2_set_sign of its fields */
    struct message message; /* after these fields */
    uint8_t routine[3];     /* by enum message_part: SET_... */
};

/* A block of exactly these fields, as part, is well-formed, names no content-length and is no 1xx:
 * nothing more is to be judged. */
enum {
    SET_JUDGED = 1 << 0,  /* the others are known */
    SET_ENDS = 1 << 1,    /* with END_STREAM */
    SET_GOES_ON = 1 << 2, /* without */
};

static inline struct set_entry *set_entry_of(const struct h2_set *s)
{
    return (struct set_entry *)(uintptr_t)s;
}

/* The set of these fields, which a peer sent; NULL: seen for the first time, or too long to be
 * kept. The caller owes h2_set_unref. */
struct h2_set *h2_set_meet(struct slab_pool *pool, const struct h2_field *fields, size_t n);
/* The check of the set's fields as the beginning of part: the kept answer, or made anew and kept.
 */
const struct message *h2_set_message(struct h2_set *set, enum message_part part);
uint8_t h2_set_judge(struct h2_set *set, enum message_part part);
static inline bool h2_set_is_routine(struct h2_set *set, enum message_part part, bool end)
{
    uint8_t r = set_entry_of(set)->routine[part];

    if (r == 0)
        r = h2_set_judge(set, part);
    return (r & (end ? SET_ENDS : SET_GOES_ON)) != 0;
}
/* Of fields: cheap, says only "maybe". Begin with 0. */
static inline uint32_t h2_set_sign(uint32_t sign, const struct h2_field *f)
{
    return sign * 31 + f->name_len + (f->value_len << 8);
}
bool h2_set_equals(const struct h2_set *set, const struct h2_field *fields, size_t n);

#endif
