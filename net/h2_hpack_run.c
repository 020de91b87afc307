/* The shape of header blocks: representations and runs, without any table. */
#include <string.h>

#include "net/h2_hpack.h"

/* RFC 7541 5.1. Returns bytes used, 0 when it does not end in [p, end) or passes 32 bits. */
static size_t read_int(uint32_t *ret, const uint8_t *p, const uint8_t *end, unsigned bits)
{
    const uint32_t mask = (1u << bits) - 1;
    const uint8_t *q = p;
    uint64_t v;
    unsigned shift = 0;

    if (q == end)
        return 0;
    v = *q++ & mask;
    if (v == mask) {
        do {
            if (q == end || shift > 28)
                return 0;
            v += (uint64_t)(*q & 0x7f) << shift;
            shift += 7;
        } while ((*q++ & 0x80) != 0);
    }
    if (v > UINT32_MAX)
        return 0;
    *ret = (uint32_t)v;
    return (size_t)(q - p);
}

static size_t skip_string(const uint8_t *p, const uint8_t *end)
{
    uint32_t len;
    const size_t n = read_int(&len, p, end, 7);

    return n == 0 || len > (size_t)(end - p) - n ? 0 : n + len;
}

size_t hpack_repr_read(struct hpack_repr *r, const uint8_t *p, const uint8_t *end)
{
    size_t used, n;

    if (p == end)
        return 0;
    if ((*p & 0x80) != 0) {
        r->kind = HPACK_INDEXED;
        return read_int(&r->index, p, end, 7);
    }
    if ((*p & 0xe0) == 0x20) {
        r->kind = HPACK_SIZE;
        return read_int(&r->index, p, end, 5);
    }
    r->kind = (*p & 0x40) != 0 ? HPACK_INSERT : HPACK_LITERAL;
    used = read_int(&r->index, p, end, r->kind == HPACK_INSERT ? 6 : 4);
    if (used == 0)
        return 0;
    r->strings_at = (uint32_t)used;
    if (r->index == 0) {
        n = skip_string(p + used, end);
        if (n == 0)
            return 0;
        used += n;
    }
    n = skip_string(p + used, end);
    return n == 0 ? 0 : used + n;
}

/* RFC 7541 5.2 without Huffman coding. Returns the bytes used, 0 else. */
static size_t read_plain(const char **ret, uint32_t *ret_len, const uint8_t *p, const uint8_t *end)
{
    size_t n;

    if (p == end || (*p & 0x80) != 0)
        return 0;
    n = read_int(ret_len, p, end, 7);
    if (n == 0 || *ret_len > (size_t)(end - p) - n)
        return 0;
    *ret = (const char *)p + n;
    return n + *ret_len;
}

size_t hpack_plain_literal(struct h2_field *f, const uint8_t *p, const uint8_t *end)
{
    size_t name, value;

    if (p == end || (*p & 0xef) != 0) /* 0x00 or 0x10: RFC 7541 6.2.2, 6.2.3 with a new name */
        return 0;
    name = read_plain(&f->name, &f->name_len, p + 1, end);
    if (name == 0)
        return 0;
    value = read_plain(&f->value, &f->value_len, p + 1 + name, end);
    if (value == 0)
        return 0;
    f->flags = H2_FIELD_NO_INDEX;
    return 1 + name + value;
}

/* A representation of one byte, RFC 7541 6.1 (127 takes a second byte; 0 is an error). */
static bool is_indexed(uint8_t b)
{
    return b > 0x80 && b < 0xff;
}

/* Length of a literal that enters no table and whose name is in no dynamic one either, else 0. */
static size_t literal_len(const uint8_t *p, const uint8_t *end, enum hpack_run_of of)
{
    struct hpack_repr r;
    const size_t n = hpack_repr_read(&r, p, end);

    if (n == 0 || r.kind != HPACK_LITERAL || r.index > HPACK_STATIC_ENTRIES)
        return 0;
    return of == HPACK_RUN_ANY || r.index == 4 || r.index == 5 ? n : 0; /* 4, 5: :path */
}

size_t hpack_run(const uint8_t *p, size_t len, enum hpack_run_of of, uint32_t *ret_max)
{
    size_t i = 0;
    uint8_t max = 0x80;

    while (i < len) {
        size_t n = 1;

        if (is_indexed(p[i])) {
            if (p[i] > max)
                max = p[i];
        } else if ((n = literal_len(p + i, p + len, of)) == 0) {
            break;
        }
        i += n;
    }
    *ret_max = max - 0x80u;
    return i;
}

static bool is_dynamic(uint8_t b)
{
    return b > 0x80 + HPACK_STATIC_ENTRIES;
}

bool hpack_run_equals(const uint8_t *a, const uint8_t *b, size_t len, uint64_t moved)
{
    size_t i = 0;

    if (moved == 0)
        return hpack_same(a, b, len);
    while (i < len) {
        if (is_indexed(a[i])) {
            if (is_dynamic(a[i]) ? a[i] + moved != b[i] : a[i] != b[i])
                return false;
            i++;
        } else {
            const size_t n = literal_len(a + i, a + len, HPACK_RUN_ANY);

            if (memcmp(a + i, b + i, n) != 0)
                return false;
            i += n;
        }
    }
    return true;
}

bool hpack_run_move(uint8_t *p, size_t len, uint64_t moved)
{
    for (size_t i = 0; i < len;) {
        if (!is_indexed(p[i])) {
            i += literal_len(p + i, p + len, HPACK_RUN_ANY);
            continue;
        }
        if (is_dynamic(p[i])) {
            if (p[i] + moved >= 0xff)
                return false;
            p[i] = (uint8_t)(p[i] + moved);
        }
        i++;
    }
    return true;
}
