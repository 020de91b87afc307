#include "loadtest/unzip.h"

#include <limits.h>
#include <string.h>
#include <zlib.h>

#define WINDOW_AUTO (15 + 32) /* zlib: 32 KiB window, gzip or zlib header by what is there */
#define STEP_BYTES  (64u * 1024)

static int inflate_all(z_stream *z, struct buf *ret_buf)
{
    for (;;) {
        const size_t room = ret_buf->ceiling_bytes - ret_buf->len;
        const size_t step = room < STEP_BYTES ? room : STEP_BYTES;
        uint8_t *at = step > 0 ? buf_reserve(ret_buf, step) : NULL;

        if (at == NULL)
            return UNZIP_E_TOO_LONG;
        z->next_out = at;
        z->avail_out = (uInt)step;
        const int r = inflate(z, Z_NO_FLUSH);
        ret_buf->len += step - z->avail_out;
        if (r == Z_STREAM_END)
            return z->avail_in == 0 ? UNZIP_OK : UNZIP_E_BROKEN;
        if (r != Z_OK)
            return UNZIP_E_BROKEN;
    }
}

int unzip_message(const char *encoding, const uint8_t *p, size_t len, struct buf *ret_buf)
{
    z_stream z = {0};

    if (encoding == NULL || (strcmp(encoding, "gzip") != 0 && strcmp(encoding, "deflate") != 0))
        return UNZIP_E_ENCODING;
    if (len > UINT_MAX || inflateInit2(&z, WINDOW_AUTO) != Z_OK)
        return UNZIP_E_BROKEN;
    z.next_in = (Bytef *)p;
    z.avail_in = (uInt)len;
    const int r = inflate_all(&z, ret_buf);
    inflateEnd(&z);
    return r;
}
