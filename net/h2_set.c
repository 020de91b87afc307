#include "net/h2_set.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/hash.h"
#include "base/xalloc.h"
#include "net/h2_hpack.h"

#define N_SLOTS    256u
#define N_NEWEST   256u  /* sets that the table itself keeps alive */
#define MET_BYTES  4096u /* of a list that a peer sent: longer ones are no gRPC routine */
#define SEEN_MARKS 1024u

struct h2_sets {
    struct set_entry *slots[N_SLOTS];
    struct list newest; /* oldest first */
    uint32_t n_newest;
    uint32_t seen[SEEN_MARKS]; /* of lists that came */
};

/* ---- table ---- */

static void table_free(void *table)
{
    struct h2_sets *t = table;

    while (!list_is_empty(&t->newest)) {
        struct set_entry *s = list_entry(list_pop_front(&t->newest), struct set_entry, node);

        h2_set_unref(&s->base);
    }
    for (size_t i = 0; i < N_SLOTS; i++)
        for (struct set_entry *s = t->slots[i]; s != NULL; s = s->chain)
            s->table = NULL; /* somebody still holds it */
    free(t);
}

static struct h2_sets *table_of(struct slab_pool *pool)
{
    if (pool->h2_sets == NULL) {
        pool->h2_sets = xcalloc(1, sizeof(*pool->h2_sets));
        pool->h2_sets_free = table_free;
        list_init(&pool->h2_sets->newest);
    }
    return pool->h2_sets;
}

void h2_sets_drop(struct slab_pool *pool)
{
    if (pool->h2_sets != NULL)
        table_free(pool->h2_sets);
    pool->h2_sets = NULL;
}

static void table_remove(struct set_entry *s)
{
    struct set_entry **at = &s->table->slots[s->hash % N_SLOTS];

    while (*at != s)
        at = &(*at)->chain;
    *at = s->chain;
    s->table = NULL;
}

/* ---- sets ---- */

bool h2_set_equals(const struct h2_set *set, const struct h2_field *fields, size_t n)
{
    if (set->n != n)
        return false;
    for (size_t i = 0; i < n; i++) {
        const struct h2_field *a = &set->fields[i], *b = &fields[i];

        if (a->value_len != b->value_len || a->name_len != b->name_len || a->flags != b->flags ||
            !hpack_same(a->value, b->value, a->value_len) ||
            !hpack_same(a->name, b->name, a->name_len))
            return false;
    }
    return true;
}

static uint64_t hash_fields(const struct h2_field *fields, size_t n)
{
    uint64_t h = n;

    for (size_t i = 0; i < n; i++) {
        h = hash_bytes(fields[i].name, fields[i].name_len, h + fields[i].flags);
        h = hash_bytes(fields[i].value, fields[i].value_len, h);
    }
    return h;
}

static struct set_entry *set_new(const struct h2_field *fields, size_t n)
{
    size_t bytes = sizeof(struct set_entry) + n * sizeof(*fields), list_bytes = 0;
    struct h2_field *own;
    struct set_entry *s;
    char *to;

    for (size_t i = 0; i < n; i++) {
        bytes += (size_t)fields[i].name_len + fields[i].value_len;
        list_bytes += (size_t)fields[i].name_len + fields[i].value_len + 32;
    }
    s = xcalloc(1, bytes);
    own = (struct h2_field *)(void *)(s + 1);
    to = (char *)&own[n];
    for (size_t i = 0; i < n; i++) {
        own[i] = fields[i];
        own[i].name = memcpy(to, fields[i].name, fields[i].name_len);
        to += fields[i].name_len;
        own[i].value = memcpy(to, fields[i].value, fields[i].value_len);
        to += fields[i].value_len;
        s->sign = h2_set_sign(s->sign, &fields[i]);
    }
    s->base = (struct h2_set){.fields = own, .n = (uint32_t)n, .refs = 1};
    s->list_bytes = (uint32_t)list_bytes;
    message_begin(&s->message, MESSAGE_REQUEST);
    for (size_t i = 0; i < n; i++)
        message_field(&s->message, &own[i]);
    return s;
}

static struct set_entry *find(const struct h2_sets *t, uint64_t hash, const struct h2_field *fields,
                              size_t n)
{
    struct set_entry *s = t->slots[hash % N_SLOTS];

    while (s != NULL && (s->hash != hash || !h2_set_equals(&s->base, fields, n)))
        s = s->chain;
    return s;
}

/* It is the newest now: whoever has been here longest without a look may go. */
static void make_newest(struct h2_sets *t, struct set_entry *s)
{
    if (list_is_linked(&s->node)) {
        list_remove(&s->node);
    } else {
        h2_set_ref(&s->base);
        t->n_newest++;
    }
    list_push_back(&t->newest, &s->node);
    if (t->n_newest > N_NEWEST) {
        struct set_entry *oldest = list_entry(list_pop_front(&t->newest), struct set_entry, node);

        t->n_newest--;
        h2_set_unref(&oldest->base);
    }
}

static struct h2_set *take(struct h2_sets *t, uint64_t hash, const struct h2_field *fields,
                           size_t n)
{
    struct set_entry *s = find(t, hash, fields, n);

    if (s == NULL) {
        s = set_new(fields, n);
        s->table = t;
        s->hash = hash;
        s->chain = t->slots[hash % N_SLOTS];
        t->slots[hash % N_SLOTS] = s;
        make_newest(t, s);
        return &s->base;
    }
    make_newest(t, s);
    return h2_set_ref(&s->base);
}

struct h2_set *h2_set_get(struct slab_pool *pool, const struct h2_field *fields, size_t n)
{
    return take(table_of(pool), hash_fields(fields, n), fields, n);
}

struct h2_set *h2_set_meet(struct slab_pool *pool, const struct h2_field *fields, size_t n)
{
    struct h2_sets *t = table_of(pool);
    const uint64_t hash = hash_fields(fields, n);
    uint32_t *mark = &t->seen[(hash >> 8) % SEEN_MARKS];
    const uint32_t is = (uint32_t)(hash >> 32) | 1;
    size_t list_bytes = 0;

    for (size_t i = 0; i < n; i++)
        list_bytes += (size_t)fields[i].name_len + fields[i].value_len + 32;
    if (list_bytes > MET_BYTES)
        return NULL;
    if (*mark != is && find(t, hash, fields, n) == NULL) {
        *mark = is;
        return NULL;
    }
    return take(t, hash, fields, n);
}

void h2_set_free(struct h2_set *set)
{
    struct set_entry *s = set_entry_of(set);

    check(set->refs == 0);
    if (s->table != NULL)
        table_remove(s);
    if (set->note_free != NULL)
        set->note_free(set->note);
    free(s);
}

const struct message *h2_set_message(struct h2_set *set, enum message_part part)
{
    struct set_entry *s = set_entry_of(set);

    if (s->message.part != part) {
        message_begin(&s->message, part);
        for (size_t i = 0; i < set->n; i++)
            message_field(&s->message, &set->fields[i]);
    }
    return &s->message;
}

uint8_t h2_set_judge(struct h2_set *set, enum message_part part)
{
    struct set_entry *s = set_entry_of(set);
    struct message m = *h2_set_message(set, part);
    uint8_t r = SET_JUDGED;

    if (m.content_length < 0 && !message_is_informational(&m) &&
        message_body_bytes(&m, false) < 0) {
        r |= message_is_ok(&m, true) ? SET_ENDS : 0;
        m = *h2_set_message(set, part);
        r |= message_is_ok(&m, false) ? SET_GOES_ON : 0;
    }
    return s->routine[part] = r;
}
