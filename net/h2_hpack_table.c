/* The dynamic table of a decoder: RFC 7541 sections 2.3.2 and 4, in as few bytes as it holds. */
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/xalloc.h"
#include "net/h2_hpack.h"

#define ENTRY_OVERHEAD 32u   /* RFC 7541 4.1 */
#define SMALL_BYTES    1024u /* a table so small grows by little: most hold a dozen fields */
#define SMALL_STEP     128u

/* An entry lies as head, name, value, tail; the oldest at `begin`. The tail is how far back its
 * head is. Head and tail are less than ENTRY_OVERHEAD, so no table takes more than
 * HPACK_TABLE_BYTES. */
struct head {
    uint16_t name_len, value_len;
};

typedef uint16_t tail;

_Static_assert(HPACK_TABLE_BYTES <= UINT16_MAX, "lengths of an entry");
_Static_assert(sizeof(struct head) + sizeof(tail) <= ENTRY_OVERHEAD, "the bound of the bytes");

void hpack_table_init(struct hpack_table *t)
{
    *t = (struct hpack_table){.max = HPACK_TABLE_BYTES};
}

void hpack_table_fini(struct hpack_table *t)
{
    free(t->bytes);
    hpack_table_init(t);
}

static uint32_t lying_bytes(const struct head *h)
{
    return (uint32_t)(sizeof(*h) + h->name_len + h->value_len + sizeof(tail));
}

static void evict_to(struct hpack_table *t, uint32_t size)
{
    struct head h;

    while (t->size > size) {
        memcpy(&h, t->bytes + t->begin, sizeof(h));
        t->begin += lying_bytes(&h);
        t->size -= h.name_len + h.value_len + ENTRY_OVERHEAD;
        t->n--;
    }
    if (t->n == 0)
        t->begin = t->end = 0;
}

void hpack_table_limit(struct hpack_table *t, uint32_t max)
{
    check(max <= HPACK_TABLE_BYTES);
    t->max = max;
    evict_to(t, max);
}

/* Room for len bytes at the end. What was freed in front is used when it is as much as what has to
 * be moved there. */
static void make_room(struct hpack_table *t, uint32_t len)
{
    const uint32_t used = t->end - t->begin, want = used + len;
    uint8_t *bytes = t->bytes;

    if (t->end + len <= t->cap)
        return;
    if (t->begin < used || want > t->cap) {
        t->cap = want < SMALL_BYTES ? (want + SMALL_STEP - 1) / SMALL_STEP * SMALL_STEP
                                    : want + want / 2;
        bytes = xrealloc(NULL, 1, t->cap);
    }
    if (used > 0)
        memmove(bytes, t->bytes + t->begin, used);
    if (bytes != t->bytes)
        free(t->bytes);
    t->bytes = bytes;
    t->begin = 0;
    t->end = used;
}

void hpack_table_add(struct hpack_table *t, const char *name, size_t name_len, const char *value,
                     size_t value_len)
{
    const size_t size = name_len + value_len + ENTRY_OVERHEAD;
    struct head h;
    tail len;
    uint8_t *to;

    if (size > t->max) { /* RFC 7541 4.4: no error, an empty table */
        evict_to(t, 0);
        return;
    }
    evict_to(t, t->max - (uint32_t)size);
    h = (struct head){(uint16_t)name_len, (uint16_t)value_len};
    len = (tail)lying_bytes(&h);
    make_room(t, len);
    to = t->bytes + t->end;
    memcpy(to, &h, sizeof(h));
    to += sizeof(h);
    if (name_len > 0)
        memcpy(to, name, name_len);
    if (value_len > 0)
        memcpy(to + name_len, value, value_len);
    memcpy(to + name_len + value_len, &len, sizeof(len));
    t->end += len;
    t->size += (uint32_t)size;
    t->n++;
}

bool hpack_table_get(const struct hpack_table *t, uint32_t age, struct h2_field *ret)
{
    uint32_t at = t->end;
    struct head h;
    tail len;

    if (age >= t->n)
        return false;
    for (uint32_t i = 0; i <= age; i++) {
        memcpy(&len, t->bytes + at - sizeof(len), sizeof(len));
        at -= len;
    }
    memcpy(&h, t->bytes + at, sizeof(h));
    *ret = (struct h2_field){.name = (const char *)t->bytes + at + sizeof(h),
                             .name_len = h.name_len,
                             .value_len = h.value_len};
    ret->value = ret->name + h.name_len;
    return true;
}
