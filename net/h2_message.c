#include "net/h2_message.h"

#include <string.h>
#include <strings.h>

enum {
    SEEN_METHOD = 1 << 0,
    SEEN_SCHEME = 1 << 1,
    SEEN_PATH = 1 << 2,
    SEEN_AUTHORITY = 1 << 3,
    SEEN_STATUS = 1 << 4,
    SEEN_HOST = 1 << 5,
    SEEN_REGULAR = 1 << 6, /* pseudo fields may come no more */
    IS_CONNECT = 1 << 7,
    IS_HEAD = 1 << 8,
    IS_OPTIONS = 1 << 9,
    PATH_SLASH = 1 << 10,
    PATH_STAR = 1 << 11,
    IS_HTTP = 1 << 12, /* scheme http or https: the path rules hold */
};

#define MAX_CONTENT_LENGTH (INT64_MAX / 10 - 1)

static bool is(const char *p, uint32_t len, const char *word)
{
    return len == strlen(word) && memcmp(p, word, len) == 0;
}

/* RFC 9110 5.6.2 token, without upper case (RFC 9113 8.2.1). */
static bool is_name_byte(uint8_t c)
{
    static const uint32_t ok[8] = {0, 0x03ff6cfa, 0xc0000000, 0x57ffffff, 0, 0, 0, 0};

    return (ok[c >> 5] >> (c & 31) & 1) != 0;
}

static bool name_is_ok(const char *p, uint32_t len)
{
    for (uint32_t i = 0; i < len; i++)
        if (!is_name_byte((uint8_t)p[i]))
            return false;
    return len > 0;
}

/* Which of eight bytes are controls or DEL, or may be: a byte behind one that is. */
static uint64_t controls(uint64_t v)
{
    const uint64_t ones = 0x0101010101010101u, del = v ^ ones * 0x7f;

    return (((v - ones * 0x20) & ~v) | ((del - ones) & ~del)) & ones * 0x80;
}

/* RFC 9113 8.2.1: no CR, LF, NUL; we take none of the other controls but TAB either. No space at
 * the ends. */
static bool value_is_ok(const char *p, uint32_t len)
{
    uint32_t i = 0;
    uint64_t v;

    for (; i + 8 <= len; i += 8) {
        memcpy(&v, p + i, 8);
        if (controls(v) != 0)
            break;
    }
    for (; i < len; i++) {
        const uint8_t c = (uint8_t)p[i];

        if ((c < 0x20 && c != '\t') || c == 0x7f)
            return false;
    }
    return len == 0 || (p[0] != ' ' && p[0] != '\t' && p[len - 1] != ' ' && p[len - 1] != '\t');
}

static bool is_token(const char *p, uint32_t len)
{
    for (uint32_t i = 0; i < len; i++)
        if (!is_name_byte((uint8_t)p[i]) && !(p[i] >= 'A' && p[i] <= 'Z'))
            return false;
    return len > 0;
}

static bool is_path(const char *p, uint32_t len)
{
    for (uint32_t i = 0; i < len; i++)
        if ((uint8_t)p[i] <= ' ' || p[i] == 0x7f)
            return false;
    return len > 0;
}

/* RFC 3986 3.2 by what it leaves out. */
static bool is_authority(const char *p, uint32_t len)
{
    for (uint32_t i = 0; i < len; i++)
        if ((uint8_t)p[i] <= ' ' || (uint8_t)p[i] >= 0x7f || strchr("\"/<>?\\^`{|}#", p[i]) != NULL)
            return false;
    return true;
}

static bool is_scheme(const char *p, uint32_t len)
{
    for (uint32_t i = 0; i < len; i++) {
        const char c = p[i];
        const bool alpha = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');

        if (!alpha && (i == 0 || !((c >= '0' && c <= '9') || c == '+' || c == '-' || c == '.')))
            return false;
    }
    return len > 0;
}

static void once(struct message *m, unsigned bit, const char *twice)
{
    if ((m->seen & bit) != 0)
        m->wrong = twice;
    m->seen |= (uint16_t)bit;
}

static void request_pseudo(struct message *m, const struct h2_field *f)
{
    const char *v = f->value;

    if (is(f->name, f->name_len, ":method")) {
        once(m, SEEN_METHOD, "two :method");
        if (!is_token(v, f->value_len))
            m->wrong = ":method is no token";
        if (is(v, f->value_len, "CONNECT"))
            m->seen |= IS_CONNECT;
        else if (is(v, f->value_len, "HEAD"))
            m->seen |= IS_HEAD;
        else if (is(v, f->value_len, "OPTIONS"))
            m->seen |= IS_OPTIONS;
    } else if (is(f->name, f->name_len, ":path")) {
        once(m, SEEN_PATH, "two :path");
        if (!is_path(v, f->value_len))
            m->wrong = ":path is empty or has a space or control character";
        else if (v[0] == '/')
            m->seen |= PATH_SLASH;
        else if (is(v, f->value_len, "*"))
            m->seen |= PATH_STAR;
    } else if (is(f->name, f->name_len, ":scheme")) {
        once(m, SEEN_SCHEME, "two :scheme");
        if (!is_scheme(v, f->value_len))
            m->wrong = ":scheme is no scheme";
        if (is(v, f->value_len, "http") || is(v, f->value_len, "https"))
            m->seen |= IS_HTTP;
    } else if (is(f->name, f->name_len, ":authority")) {
        once(m, SEEN_AUTHORITY, "two :authority");
        if (f->value_len == 0 || !is_authority(v, f->value_len))
            m->wrong = ":authority is no authority";
        else if (memchr(v, '@', f->value_len) != NULL)
            m->wrong = ":authority with userinfo"; /* RFC 9113 8.3.1 */
    } else {
        m->wrong = "unknown pseudo field";
    }
}

static void response_pseudo(struct message *m, const struct h2_field *f)
{
    const char *v = f->value;

    if (!is(f->name, f->name_len, ":status")) {
        m->wrong = "unknown pseudo field";
        return;
    }
    once(m, SEEN_STATUS, "two :status");
    if (f->value_len != 3 || v[0] < '1' || v[0] > '9' || v[1] < '0' || v[1] > '9' || v[2] < '0' ||
        v[2] > '9') {
        m->wrong = ":status is no number of three digits";
        return;
    }
    m->status = (uint16_t)((v[0] - '0') * 100 + (v[1] - '0') * 10 + (v[2] - '0'));
    if (m->status == 101)
        m->wrong = ":status 101 has no meaning in HTTP/2";
}

static void content_length(struct message *m, const struct h2_field *f)
{
    int64_t n = 0;

    if (m->content_length >= 0)
        m->wrong = "two content-length";
    for (uint32_t i = 0; i < f->value_len; i++) {
        const char c = f->value[i];

        if (c < '0' || c > '9' || n > MAX_CONTENT_LENGTH) {
            m->wrong = "content-length is no number";
            return;
        }
        n = n * 10 + (c - '0');
    }
    if (f->value_len == 0)
        m->wrong = "content-length is no number";
    m->content_length = n;
}

/* Fields with a meaning for this connection only: RFC 9113 8.2.2. */
static void regular(struct message *m, const struct h2_field *f)
{
    static const char *const banned[] = {"connection", "keep-alive", "proxy-connection",
                                         "transfer-encoding", "upgrade"};

    switch (f->name_len) {
    case 2:
        if (is(f->name, 2, "te") &&
            (f->value_len != 8 || strncasecmp(f->value, "trailers", 8) != 0))
            m->wrong = "te is not trailers";
        break;
    case 4:
        if (is(f->name, 4, "host") && m->part == MESSAGE_TRAILERS) {
            m->wrong = "host in trailers"; /* RFC 9110 6.5.1 */
        } else if (is(f->name, 4, "host") && m->part == MESSAGE_REQUEST) {
            once(m, SEEN_HOST, "two host");
            if (f->value_len == 0 || !is_authority(f->value, f->value_len))
                m->wrong = "host is no authority";
        }
        break;
    case 14:
        if (is(f->name, 14, "content-length"))
            content_length(m, f);
        break;
    case 7:
    case 10:
    case 16:
    case 17:
        for (size_t i = 0; i < sizeof(banned) / sizeof(banned[0]); i++)
            if (is(f->name, f->name_len, banned[i]))
                m->wrong = "connection-specific field";
        break;
    default:
        break;
    }
}

void message_begin(struct message *m, enum message_part part)
{
    *m = (struct message){.part = part, .content_length = -1};
}

void message_field(struct message *m, const struct h2_field *f)
{
    if (m->wrong != NULL)
        return;
    if (!value_is_ok(f->value, f->value_len)) {
        m->wrong = "control character or outer space in a field value";
        return;
    }
    if (f->name_len > 0 && f->name[0] == ':') {
        if (m->part == MESSAGE_TRAILERS)
            m->wrong = "pseudo field in trailers";
        else if ((m->seen & SEEN_REGULAR) != 0)
            m->wrong = "pseudo field after a regular one";
        else if (m->part == MESSAGE_REQUEST)
            request_pseudo(m, f);
        else
            response_pseudo(m, f);
        return;
    }
    m->seen |= SEEN_REGULAR;
    if (!name_is_ok(f->name, f->name_len))
        m->wrong = "field name is empty, not lower-case or no token";
    else
        regular(m, f);
}

static const char *request_lacks(const struct message *m)
{
    const unsigned all = SEEN_METHOD | SEEN_SCHEME | SEEN_PATH;

    if ((m->seen & IS_CONNECT) != 0) /* RFC 9113 8.5 */
        return (m->seen & (SEEN_SCHEME | SEEN_PATH)) != 0 || (m->seen & SEEN_AUTHORITY) == 0
                   ? "CONNECT takes :authority only"
                   : NULL;
    if ((m->seen & all) != all)
        return ":method, :scheme or :path is missing";
    if ((m->seen & (SEEN_AUTHORITY | SEEN_HOST)) == 0)
        return "neither :authority nor host";
    if ((m->seen & IS_HTTP) != 0 && (m->seen & PATH_SLASH) == 0 &&
        ((m->seen & PATH_STAR) == 0 || (m->seen & IS_OPTIONS) == 0))
        return ":path does not begin with /";
    return NULL;
}

bool message_is_ok(struct message *m, bool end)
{
    if (m->wrong != NULL)
        return false;
    if (m->part == MESSAGE_REQUEST)
        m->wrong = request_lacks(m);
    else if (m->part == MESSAGE_TRAILERS)
        m->wrong = end ? NULL : "trailers without END_STREAM";
    else if ((m->seen & SEEN_STATUS) == 0)
        m->wrong = ":status is missing";
    else if (m->status / 100 == 1 && end)
        m->wrong = "1xx with END_STREAM";
    else if (m->status / 100 == 1 && m->content_length > 0)
        m->wrong = "1xx with content-length";
    else if (m->status == 204 && m->content_length > 0)
        m->wrong = "204 with content-length"; /* RFC 9110 8.6 */
    return m->wrong == NULL;
}

bool message_is_informational(const struct message *m)
{
    return m->part == MESSAGE_RESPONSE && m->status / 100 == 1;
}

int64_t message_body_bytes(const struct message *m, bool head)
{
    if (m->part == MESSAGE_RESPONSE && (head || m->status == 304 || m->status == 204))
        return 0;
    if ((m->seen & IS_CONNECT) != 0)
        return -1;
    return m->content_length;
}

bool message_is_head(const struct message *m)
{
    return (m->seen & IS_HEAD) != 0;
}
