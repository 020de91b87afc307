#include "proto/grpc.h"

#include <string.h>
#include <strings.h>

#include "base/check.h"

static const char *const status_names[GRPC_N_STATUS] = {
    [GRPC_OK] = "OK",
    [GRPC_CANCELLED] = "CANCELLED",
    [GRPC_UNKNOWN] = "UNKNOWN",
    [GRPC_INVALID_ARGUMENT] = "INVALID_ARGUMENT",
    [GRPC_DEADLINE_EXCEEDED] = "DEADLINE_EXCEEDED",
    [GRPC_NOT_FOUND] = "NOT_FOUND",
    [GRPC_ALREADY_EXISTS] = "ALREADY_EXISTS",
    [GRPC_PERMISSION_DENIED] = "PERMISSION_DENIED",
    [GRPC_RESOURCE_EXHAUSTED] = "RESOURCE_EXHAUSTED",
    [GRPC_FAILED_PRECONDITION] = "FAILED_PRECONDITION",
    [GRPC_ABORTED] = "ABORTED",
    [GRPC_OUT_OF_RANGE] = "OUT_OF_RANGE",
    [GRPC_UNIMPLEMENTED] = "UNIMPLEMENTED",
    [GRPC_INTERNAL] = "INTERNAL",
    [GRPC_UNAVAILABLE] = "UNAVAILABLE",
    [GRPC_DATA_LOSS] = "DATA_LOSS",
    [GRPC_UNAUTHENTICATED] = "UNAUTHENTICATED",
};

const char *grpc_status_name(enum grpc_status status)
{
    if ((unsigned)status >= GRPC_N_STATUS)
        return status_names[GRPC_UNKNOWN];
    return status_names[status];
}

bool grpc_status_find(const char *name, enum grpc_status *ret_status)
{
    for (unsigned i = 0; i < GRPC_N_STATUS; i++) {
        if (strcmp(status_names[i], name) == 0) {
            *ret_status = (enum grpc_status)i;
            return true;
        }
    }
    return false;
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

enum grpc_status grpc_status_parse(const char *value, size_t len)
{
    unsigned code;

    if (len < 1 || len > 2 || !is_digit(value[0]) || (len == 2 && !is_digit(value[1])))
        return GRPC_UNKNOWN;
    if (len == 2 && value[0] == '0')
        return GRPC_UNKNOWN;
    code = (unsigned)(value[0] - '0');
    if (len == 2)
        code = code * 10 + (unsigned)(value[1] - '0');
    return code < GRPC_N_STATUS ? (enum grpc_status)code : GRPC_UNKNOWN;
}

/* http-grpc-status-mapping.md; 431 is what gRPC's own clients add to it. */
enum grpc_status grpc_status_of_http(int http_status)
{
    switch (http_status) {
    case 400:
    case 431:
        return GRPC_INTERNAL;
    case 401:
        return GRPC_UNAUTHENTICATED;
    case 403:
        return GRPC_PERMISSION_DENIED;
    case 404:
        return GRPC_UNIMPLEMENTED;
    case 429:
    case 502:
    case 503:
    case 504:
        return GRPC_UNAVAILABLE;
    default:
        return GRPC_UNKNOWN;
    }
}

/* PROTOCOL-HTTP2.md, "HTTP2 Transport Mapping", by the numbers of RFC 9113 section 7. STREAM_CLOSED
 * has no mapping there, and HTTP_1_1_REQUIRED none either: UNKNOWN. */
enum grpc_status grpc_status_of_h2(uint32_t h2_code)
{
    switch (h2_code) {
    case 0x0: /* NO_ERROR */
    case 0x1: /* PROTOCOL_ERROR */
    case 0x2: /* INTERNAL_ERROR */
    case 0x3: /* FLOW_CONTROL_ERROR */
    case 0x4: /* SETTINGS_TIMEOUT */
    case 0x6: /* FRAME_SIZE_ERROR */
    case 0x9: /* COMPRESSION_ERROR */
    case 0xa: /* CONNECT_ERROR */
        return GRPC_INTERNAL;
    case 0x7: /* REFUSED_STREAM */
        return GRPC_UNAVAILABLE;
    case 0x8: /* CANCEL */
        return GRPC_CANCELLED;
    case 0xb: /* ENHANCE_YOUR_CALM */
        return GRPC_RESOURCE_EXHAUSTED;
    case 0xc: /* INADEQUATE_SECURITY */
        return GRPC_PERMISSION_DENIED;
    default:
        return GRPC_UNKNOWN;
    }
}

void grpc_reader_init(struct grpc_reader *r, uint32_t max_message_bytes)
{
    memset(r, 0, sizeof(*r));
    r->max_message_bytes = max_message_bytes;
}

/* A refused prefix stays in place (prefix_seen 5, nothing left to read of it), so that every later
 * call refuses again. */
static enum grpc_read judge_prefix(const struct grpc_reader *r)
{
    if (r->prefix[0] > 1)
        return GRPC_READ_BAD_FLAG;
    return r->message_bytes > r->max_message_bytes ? GRPC_READ_TOO_LONG : GRPC_READ_BEGIN;
}

enum grpc_read grpc_reader_next(struct grpc_reader *r, const uint8_t **p, size_t *len,
                                const uint8_t **ret_piece, size_t *ret_len)
{
    enum grpc_read verdict;
    size_t n;

    if (r->prefix_seen == GRPC_PREFIX_BYTES) {
        verdict = judge_prefix(r);
        if (verdict != GRPC_READ_BEGIN)
            return verdict;
        if (r->left_bytes == 0) {
            r->prefix_seen = 0;
            return GRPC_READ_END;
        }
        if (*len == 0)
            return GRPC_READ_MORE;
        n = *len < r->left_bytes ? *len : r->left_bytes;
        *ret_piece = *p;
        *ret_len = n;
        *p += n;
        *len -= n;
        r->left_bytes -= (uint32_t)n;
        return GRPC_READ_BYTES;
    }
    while (*len > 0 && r->prefix_seen < GRPC_PREFIX_BYTES) {
        r->prefix[r->prefix_seen++] = **p;
        (*p)++;
        (*len)--;
    }
    if (r->prefix_seen < GRPC_PREFIX_BYTES)
        return GRPC_READ_MORE;
    r->compressed = r->prefix[0] == 1;
    r->message_bytes = (uint32_t)r->prefix[1] << 24 | (uint32_t)r->prefix[2] << 16 |
                       (uint32_t)r->prefix[3] << 8 | r->prefix[4];
    r->left_bytes = r->message_bytes;
    return judge_prefix(r);
}

bool grpc_reader_is_between(const struct grpc_reader *r)
{
    return r->prefix_seen == 0;
}

void grpc_prefix_write(uint8_t dst[GRPC_PREFIX_BYTES], bool compressed, uint32_t message_bytes)
{
    dst[0] = compressed;
    dst[1] = (uint8_t)(message_bytes >> 24);
    dst[2] = (uint8_t)(message_bytes >> 16);
    dst[3] = (uint8_t)(message_bytes >> 8);
    dst[4] = (uint8_t)message_bytes;
}

/* Finest first. 99,999,999 hours are 3.6e17 us: no overflow. */
static const struct {
    char unit;
    uint64_t us;
} timeout_units[] = {
    {'u', 1}, {'m', 1000}, {'S', 1000000}, {'M', 60000000}, {'H', 3600000000},
};
#define TIMEOUT_MAX_DIGITS 8
#define TIMEOUT_MAX_VALUE  99999999

bool grpc_timeout_parse(const char *value, size_t len, uint64_t *ret_us)
{
    uint64_t n = 0;

    if (len < 2 || len > TIMEOUT_MAX_DIGITS + 1)
        return false;
    for (size_t i = 0; i < len - 1; i++) {
        if (!is_digit(value[i]))
            return false;
        n = n * 10 + (uint64_t)(value[i] - '0');
    }
    if (value[len - 1] == 'n') {
        *ret_us = n / 1000;
        return true;
    }
    for (size_t i = 0; i < ARRAY_LEN(timeout_units); i++) {
        if (value[len - 1] == timeout_units[i].unit) {
            *ret_us = n * timeout_units[i].us;
            return true;
        }
    }
    return false;
}

static size_t timeout_write(char dst[GRPC_TIMEOUT_SIZE], uint32_t n, char unit)
{
    char digits[TIMEOUT_MAX_DIGITS]; /* the last first */
    size_t n_digits = 0, len = 0;

    do {
        digits[n_digits++] = (char)('0' + n % 10);
        n /= 10;
    } while (n > 0);
    while (n_digits > 0)
        dst[len++] = digits[--n_digits];
    dst[len++] = unit;
    dst[len] = '\0';
    return len;
}

/* Without printf: each call with a deadline has one written. */
size_t grpc_timeout_format(char dst[GRPC_TIMEOUT_SIZE], uint64_t us)
{
    size_t i = 0;
    uint64_t n;

    if (us == 0)
        return timeout_write(dst, 1, 'n');
    if (us <= TIMEOUT_MAX_VALUE)
        return timeout_write(dst, (uint32_t)us, 'u');
    while (i < ARRAY_LEN(timeout_units) - 1 && us / timeout_units[i].us > TIMEOUT_MAX_VALUE)
        i++;
    n = us / timeout_units[i].us;
    return timeout_write(dst, n > TIMEOUT_MAX_VALUE ? TIMEOUT_MAX_VALUE : (uint32_t)n,
                         timeout_units[i].unit);
}

size_t grpc_message_encode(char *dst, size_t size, const char *text, size_t len)
{
    static const char hex[] = "0123456789ABCDEF";
    size_t n = 0;

    check(size > 0);
    for (size_t i = 0; i < len; i++) {
        const uint8_t c = (uint8_t)text[i];

        if (c >= 0x20 && c <= 0x7e && c != '%' && (c != ' ' || (i > 0 && i + 1 < len))) {
            if (n + 1 >= size)
                break;
            dst[n++] = (char)c;
            continue;
        }
        if (n + 3 >= size)
            break;
        dst[n++] = '%';
        dst[n++] = hex[c >> 4];
        dst[n++] = hex[c & 15];
    }
    while (n > 0 && dst[n - 1] == ' ') /* where it was cut */
        n--;
    dst[n] = '\0';
    return n;
}

static int hex_value(char c)
{
    if (is_digit(c))
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

size_t grpc_message_decode(char *dst, size_t size, const char *value, size_t len)
{
    size_t n = 0;

    check(size > 0);
    for (size_t i = 0; i < len && n + 1 < size; i++) {
        if (value[i] == '%' && len - i > 2) {
            const int high = hex_value(value[i + 1]), low = hex_value(value[i + 2]);

            if (high >= 0 && low >= 0) {
                dst[n++] = (char)(high << 4 | low);
                i += 2;
                continue;
            }
        }
        dst[n++] = value[i];
    }
    dst[n] = '\0';
    return n;
}

bool grpc_content_type_is_ok(const char *value, size_t len)
{
    static const char want[] = "application/grpc";
    const size_t want_len = sizeof(want) - 1;

    if (len < want_len)
        return false;
    if (memcmp(value, want, want_len) != 0 && strncasecmp(value, want, want_len) != 0)
        return false;
    return len == want_len || value[want_len] == '+' || value[want_len] == ';';
}

/* The bytes of names: nothing that another program would take for a query, a fragment, an escape or
 * a parameter (CVE-2023-45539). */
static bool is_path_byte(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || is_digit(c) || c == '_' ||
           c == '.' || c == '-';
}

/* Segments that are neither empty nor all dots. path begins with a slash. */
static bool path_is_plain(const char *path, size_t len)
{
    bool named = true; /* the segment so far has more than dots */

    for (size_t i = 0; i < len; i++) {
        if (path[i] == '/') {
            if (!named)
                return false;
            named = false;
        } else if (!is_path_byte(path[i])) {
            return false;
        } else {
            named |= path[i] != '.';
        }
    }
    return named;
}

bool grpc_path_split(const char *path, size_t len, const char **ret_service,
                     size_t *ret_service_len, const char **ret_method, size_t *ret_method_len)
{
    const char *slash;

    if (len < 1 || len > GRPC_PATH_MAX || path[0] != '/' || !path_is_plain(path, len))
        return false;
    slash = memrchr(path + 1, '/', len - 1);
    if (slash == NULL || slash == path + 1 || slash == path + len - 1)
        return false;
    *ret_service = path + 1;
    *ret_service_len = (size_t)(slash - path) - 1;
    *ret_method = slash + 1;
    *ret_method_len = len - (size_t)(slash - path) - 1;
    return true;
}

bool grpc_metadata_name_is_ok(const char *name, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        const char c = name[i];

        if (!is_digit(c) && !(c >= 'a' && c <= 'z') && c != '_' && c != '-' && c != '.')
            return false;
    }
    return len > 0;
}

bool grpc_metadata_is_binary(const char *name, size_t len)
{
    return len >= 4 && memcmp(name + len - 4, "-bin", 4) == 0;
}

bool grpc_metadata_is_reserved(const char *name, size_t len)
{
    return len >= 5 && memcmp(name, "grpc-", 5) == 0;
}

bool grpc_metadata_value_is_ok(const char *value, size_t len)
{
    for (size_t i = 0; i < len; i++)
        if (value[i] < 0x20 || value[i] > 0x7e)
            return false;
    return true;
}

size_t grpc_bin_encode(char *dst, const uint8_t *bytes, size_t len)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    uint32_t bits = 0;
    unsigned n_bits = 0;
    size_t n = 0;

    for (size_t i = 0; i < len; i++) {
        bits = bits << 8 | bytes[i];
        n_bits += 8;
        while (n_bits >= 6) {
            n_bits -= 6;
            dst[n++] = digits[bits >> n_bits & 63];
        }
    }
    if (n_bits > 0)
        dst[n++] = digits[bits << (6 - n_bits) & 63];
    dst[n] = '\0';
    return n;
}

static int base64_value(char c)
{
    if (c >= 'A' && c <= 'Z')
        return c - 'A';
    if (c >= 'a' && c <= 'z')
        return c - 'a' + 26;
    if (is_digit(c))
        return c - '0' + 52;
    return c == '+' ? 62 : c == '/' ? 63 : -1;
}

bool grpc_bin_decode(uint8_t *dst, const char *text, size_t len, size_t *ret_len)
{
    uint32_t bits = 0;
    unsigned n_bits = 0;
    size_t n = 0;

    if (len > 0 && len % 4 == 0 && text[len - 1] == '=') /* padding completes a group of four */
        len -= text[len - 2] == '=' ? 2 : 1;
    if (len % 4 == 1)
        return false;
    for (size_t i = 0; i < len; i++) {
        const int v = base64_value(text[i]);

        if (v < 0)
            return false;
        bits = bits << 6 | (uint32_t)v;
        n_bits += 6;
        if (n_bits >= 8) {
            n_bits -= 8;
            dst[n++] = (uint8_t)(bits >> n_bits);
        }
    }
    if ((bits & ((1u << n_bits) - 1)) != 0)
        return false;
    *ret_len = n;
    return true;
}
