#include "base/buf.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/xalloc.h"

#define FIRST_CAP 256

void buf_init(struct buf *b, size_t ceiling_bytes)
{
    memset(b, 0, sizeof(*b));
    b->ceiling_bytes = ceiling_bytes;
}

void buf_fini(struct buf *b)
{
    free(b->data);
    memset(b, 0, sizeof(*b));
}

void buf_reset(struct buf *b)
{
    b->len = 0;
    b->overflow = false;
}

/* Makes cap at least want; want is within the ceiling plus one (the NUL of buf_cstr). */
static void grow(struct buf *b, size_t want)
{
    size_t cap = b->cap > 0 ? b->cap : FIRST_CAP;

    if (want <= b->cap)
        return;
    while (cap < want)
        cap = cap > SIZE_MAX / 2 ? want : cap * 2;
    b->data = xrealloc(b->data, cap, 1);
    b->cap = cap;
}

uint8_t *buf_reserve(struct buf *b, size_t len)
{
    if (b->len > b->ceiling_bytes || len > b->ceiling_bytes - b->len) {
        b->overflow = true;
        return NULL;
    }
    grow(b, b->len + len);
    if (b->data == NULL)
        grow(b, 1); /* room for nothing is not an overflow */
    return b->data + b->len;
}

bool buf_append(struct buf *b, const void *p, size_t len)
{
    uint8_t *room = buf_reserve(b, len);

    if (room == NULL)
        return false;
    if (len > 0)
        memcpy(room, p, len);
    b->len += len;
    return true;
}

bool buf_append_str(struct buf *b, const char *s)
{
    return buf_append(b, s, strlen(s));
}

bool buf_append_byte(struct buf *b, uint8_t byte)
{
    return buf_append(b, &byte, 1);
}

bool buf_printf(struct buf *b, const char *fmt, ...)
{
    va_list ap, again;
    uint8_t *room;
    int len;

    va_start(ap, fmt);
    va_copy(again, ap);
    len = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    check(len >= 0);
    room = buf_reserve(b, (size_t)len);
    if (room != NULL) {
        grow(b, b->len + (size_t)len + 1); /* vsnprintf writes a NUL, which is not kept */
        vsnprintf((char *)b->data + b->len, (size_t)len + 1, fmt, again);
        b->len += (size_t)len;
    }
    va_end(again);
    return room != NULL;
}

void buf_consume(struct buf *b, size_t len)
{
    check(len <= b->len);
    if (len == 0)
        return;
    memmove(b->data, b->data + len, b->len - len);
    b->len -= len;
}

const char *buf_cstr(struct buf *b)
{
    grow(b, b->len + 1);
    b->data[b->len] = '\0';
    return (const char *)b->data;
}
