#include "base/json_out.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/check.h"

void json_out_init(struct json_out *j, struct buf *buf)
{
    *j = (struct json_out){.buf = buf};
}

/* Length of the UTF-8 sequence at p (n bytes are there), or 0 for what is none (RFC 3629). */
static size_t utf8_len(const uint8_t *p, size_t n)
{
    uint8_t low = 0x80, high = 0xbf;
    size_t len;

    if (p[0] < 0x80)
        return 1;
    if (p[0] >= 0xc2 && p[0] <= 0xdf) {
        len = 2;
    } else if (p[0] >= 0xe0 && p[0] <= 0xef) {
        len = 3;
        low = p[0] == 0xe0 ? 0xa0 : low;   /* no overlong form */
        high = p[0] == 0xed ? 0x9f : high; /* no surrogate */
    } else if (p[0] >= 0xf0 && p[0] <= 0xf4) {
        len = 4;
        low = p[0] == 0xf0 ? 0x90 : low;
        high = p[0] == 0xf4 ? 0x8f : high;
    } else {
        return 0;
    }
    if (n < len || p[1] < low || p[1] > high)
        return 0;
    for (size_t i = 2; i < len; i++) {
        if ((p[i] & 0xc0) != 0x80)
            return 0;
    }
    return len;
}

/* NUL, too, is replaced: many readers of JSON take none in a string. */
static void put_string(struct json_out *j, const void *text, size_t left)
{
    const uint8_t *p = text;

    buf_append_byte(j->buf, '"');
    while (left > 0) {
        const size_t len = utf8_len(p, left);

        if (len == 0 || *p == '\0')
            buf_append_str(j->buf, "\\ufffd");
        else if (*p == '"' || *p == '\\')
            buf_printf(j->buf, "\\%c", *p);
        else if (*p < 0x20 || *p == 0x7f)
            buf_printf(j->buf, "\\u%04x", *p);
        else
            buf_append(j->buf, p, len);
        p += len > 0 ? len : 1;
        left -= len > 0 ? len : 1;
    }
    buf_append_byte(j->buf, '"');
}

/* The comma and the name that go before a value. */
static void begin(struct json_out *j, const char *name)
{
    if (j->has_items[j->depth])
        buf_append_byte(j->buf, ',');
    j->has_items[j->depth] = true;
    if (name != NULL) {
        put_string(j, name, strlen(name));
        buf_append_byte(j->buf, ':');
    }
}

static void open_level(struct json_out *j, const char *name, uint8_t bracket)
{
    begin(j, name);
    check(j->depth + 1 < JSON_OUT_DEPTH);
    j->has_items[++j->depth] = false;
    buf_append_byte(j->buf, bracket);
}

static void close_level(struct json_out *j, uint8_t bracket)
{
    check(j->depth > 0);
    j->depth--;
    buf_append_byte(j->buf, bracket);
}

void json_out_object(struct json_out *j, const char *name)
{
    open_level(j, name, '{');
}

void json_out_array(struct json_out *j, const char *name)
{
    open_level(j, name, '[');
}

void json_out_end_object(struct json_out *j)
{
    close_level(j, '}');
}

void json_out_end_array(struct json_out *j)
{
    close_level(j, ']');
}

void json_out_str(struct json_out *j, const char *name, const char *value)
{
    begin(j, name);
    if (value == NULL)
        buf_append_str(j->buf, "null");
    else
        put_string(j, value, strlen(value));
}

void json_out_bytes(struct json_out *j, const char *name, const void *value, size_t len)
{
    begin(j, name);
    put_string(j, value, len);
}

void json_out_uint(struct json_out *j, const char *name, uint64_t value)
{
    begin(j, name);
    buf_printf(j->buf, "%" PRIu64, value);
}

void json_out_int(struct json_out *j, const char *name, int64_t value)
{
    begin(j, name);
    buf_printf(j->buf, "%" PRId64, value);
}

void json_out_double(struct json_out *j, const char *name, double value)
{
    begin(j, name);
    if (isfinite(value))
        buf_printf(j->buf, "%.15g", value);
    else
        buf_append_str(j->buf, "null");
}

void json_out_bool(struct json_out *j, const char *name, bool value)
{
    begin(j, name);
    buf_append_str(j->buf, value ? "true" : "false");
}

void json_out_raw(struct json_out *j, const char *name, const char *text)
{
    begin(j, name);
    buf_append_str(j->buf, text);
}
