#include "gateway/peek.h"

#include <stdio.h>
#include <stdlib.h>
#include <zlib.h>

#include "base/check.h"
#include "base/xalloc.h"

#define INFLATE_BYTES   1024      /* a step: name and version lie in the first tens of bytes */
#define WINDOW_GZIP_TOO (15 + 32) /* zlib's word for: gzip and zlib headers, any window */

struct peek {
    z_stream z;
    struct walker walker;
    enum walker_kind kind;
    enum peek_result result;
    bool bad_data;
    bool cut_short;
};

struct peek *peek_new(enum walker_kind kind)
{
    struct peek *p = xcalloc(1, sizeof(*p));

    p->kind = kind;
    if (inflateInit2(&p->z, WINDOW_GZIP_TOO) != Z_OK) {
        free(p);
        return NULL;
    }
    return p;
}

struct peek *peek_free(struct peek *p)
{
    if (p != NULL) {
        inflateEnd(&p->z);
        free(p);
    }
    return NULL;
}

void peek_begin(struct peek *p)
{
    inflateReset(&p->z);
    walker_init(&p->walker, p->kind, 0);
    /* Its inflated length is not known before its end, and the end is not looked for. */
    walker_begin(&p->walker, UINT32_MAX);
    p->result = PEEK_MORE;
    p->bad_data = p->cut_short = false;
}

static enum peek_result peek_of_walk(enum walker_result r)
{
    switch (r) {
    case WALKER_READY:
        return PEEK_READY;
    case WALKER_BLIND:
        return PEEK_BLIND;
    case WALKER_REFUSED:
        return PEEK_REFUSED;
    case WALKER_MORE:
        break;
    }
    return PEEK_MORE;
}

enum peek_result peek_feed(struct peek *p, const uint8_t *bytes, size_t len, bool last)
{
    uint8_t plain[INFLATE_BYTES];

    if (p->result != PEEK_MORE)
        return p->result;
    p->z.next_in = (Bytef *)(uintptr_t)bytes;
    p->z.avail_in = (uInt)len;
    for (;;) {
        p->z.next_out = plain;
        p->z.avail_out = sizeof(plain);

        const int z = inflate(&p->z, Z_NO_FLUSH);
        const size_t got = sizeof(plain) - p->z.avail_out;

        if (z != Z_OK && z != Z_STREAM_END && z != Z_BUF_ERROR) {
            p->bad_data = true;
            return p->result = PEEK_REFUSED;
        }
        if (got > 0)
            p->result = peek_of_walk(walker_feed(&p->walker, plain, got));
        if (p->result != PEEK_MORE)
            return p->result;
        if (z == Z_STREAM_END) /* the whole message: what it has said is all it says */
            return p->result = PEEK_READY;
        if (p->z.avail_out > 0)
            break; /* all input used */
    }
    if (last) {
        p->cut_short = true;
        return p->result = PEEK_REFUSED;
    }
    return PEEK_MORE;
}

const struct walker *peek_walker(const struct peek *p)
{
    return &p->walker;
}

const char *peek_explain(const struct peek *p, char *dst, size_t size)
{
    if (p->bad_data)
        snprintf(dst, size, "the compressed message is neither gzip nor deflate (zlib) data");
    else if (p->cut_short)
        snprintf(dst, size, "the compressed message ends before its data does");
    else
        return walker_explain(&p->walker, dst, size);
    return dst;
}
