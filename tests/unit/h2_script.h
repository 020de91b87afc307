/* tests/unit/h2_script.h - what a peer sends, as text, and what an engine makes of it.
 *
 * A script is frames with spaces between: TYPE.FLAGS.ID.PAYLOAD, flags in hex. PAYLOAD is parts
 * joined by commas: hex digits, #N (N zero bytes), or @BLOCK: a header block of plain literals,
 * @req @resp @trl @connect or @none, each with more fields as +name=value (%XX is a byte). ~N after
 * a frame sends it N times, its id raised by 2 each time with ~+N. "|" is the end of a read: the
 * engine flushes. In a server's script the client's preface and empty SETTINGS come first, in a
 * client's script empty SETTINGS; "!" as first word: they do not.
 */
#ifndef TESTS_UNIT_H2_SCRIPT_H
#define TESTS_UNIT_H2_SCRIPT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef H2_SCRIPT_IN_FUZZER /* no cmocka there: a broken promise stops the process */
#define assert_int_equal(a, b) check((a) == (b))
#define assert_true(c)         check(c)
#define assert_non_null(p)     check((p) != NULL)
#else
#include <cmocka.h>
#endif

#include "base/check.h"
#include "base/hash.h"
#include "net/h2.h"

#define SCRIPT_READS 64

struct script {
    uint8_t *bytes;
    size_t len, cap;
    size_t ends[SCRIPT_READS]; /* where reads end */
    size_t n_ends;
};

static const char *const frame_names[] = {"DATA",          "HEADERS", "PRIORITY", "RST_STREAM",
                                          "SETTINGS",      "PUSH",    "PING",     "GOAWAY",
                                          "WINDOW_UPDATE", "CONT"};

static inline void script_put(struct script *s, const void *p, size_t len)
{
    if (s->len + len > s->cap) {
        s->cap = 2 * (s->len + len) + 256;
        s->bytes = realloc(s->bytes, s->cap);
        assert_non_null(s->bytes);
    }
    memcpy(s->bytes + s->len, p, len);
    s->len += len;
}

static inline void script_field(struct script *s, const char *name, size_t name_len,
                                const char *value, size_t value_len)
{
    static const uint8_t literal = 0;

    /* RFC 7541 6.2.2 with both strings plain; lengths of up to 127 + 127 + 128 * 127 */
    for (int i = 0; i < 2; i++) {
        const size_t len = i == 0 ? name_len : value_len;
        size_t n = 1;
        uint8_t b[3];

        if (len < 127) {
            b[0] = (uint8_t)len;
        } else {
            b[0] = 0x7f;
            b[1] = (uint8_t)((len - 127) % 128 | 0x80);
            b[2] = (uint8_t)((len - 127) / 128);
            n = 3;
        }
        if (i == 0)
            script_put(s, &literal, 1);
        script_put(s, b, n);
        script_put(s, i == 0 ? name : value, len);
    }
}

static inline unsigned script_hex(const char *p)
{
    const char text[3] = {p[0], p[1], 0};

    return (unsigned)strtoul(text, NULL, 16);
}

/* name=value with %XX, appended as a field. */
static inline void script_text_field(struct script *s, const char *p, const char *end)
{
    char text[20000];
    size_t n = 0, split = 0;

    for (; p < end; p++) {
        if (*p == '%') {
            text[n++] = (char)script_hex(p + 1);
            p += 2;
        } else if (*p == '=' && split == 0) {
            split = n + 1;
        } else {
            text[n++] = *p;
        }
    }
    assert_true(split > 0);
    script_field(s, text, split - 1, text + split - 1, n - (split - 1));
}

static inline void script_block(struct script *s, const char *p, const char *end)
{
    const char *plus = memchr(p, '+', (size_t)(end - p));
    const size_t len = (size_t)((plus != NULL ? plus : end) - p);

    if (len == 3 && memcmp(p, "req", 3) == 0)
        script_put(s, "\x83\x86\x84\x01\x01x", 6); /* POST http / :authority x */
    else if (len == 4 && memcmp(p, "resp", 4) == 0)
        script_put(s, "\x88", 1);
    else if (len == 3 && memcmp(p, "trl", 3) == 0)
        script_field(s, "grpc-status", 11, "0", 1);
    else
        assert_true(len == 4 && memcmp(p, "none", 4) == 0);
    while (plus != NULL) {
        const char *next = memchr(plus + 1, '+', (size_t)(end - plus - 1));

        script_text_field(s, plus + 1, next != NULL ? next : end);
        plus = next;
    }
}

static inline void script_payload(struct script *s, const char *p, const char *end)
{
    while (p < end) {
        const char *comma = memchr(p, ',', (size_t)(end - p));
        const char *stop = comma != NULL ? comma : end;

        if (*p == '@') {
            script_block(s, p + 1, stop);
        } else if (*p == '#') {
            static const uint8_t zeros[4096];
            unsigned long n = strtoul(p + 1, NULL, 10);

            for (; n > 0; n -= n < sizeof(zeros) ? n : sizeof(zeros))
                script_put(s, zeros, n < sizeof(zeros) ? n : sizeof(zeros));
        } else {
            for (; p + 1 < stop; p += 2) {
                const uint8_t b = (uint8_t)script_hex(p);

                script_put(s, &b, 1);
            }
        }
        p = comma != NULL ? comma + 1 : end;
    }
}

static inline void script_frame(struct script *s, unsigned type, unsigned flags, uint32_t id,
                                const char *payload, const char *end)
{
    const size_t at = s->len;
    uint8_t head[9] = {0};
    size_t len;

    script_put(s, head, 9);
    script_payload(s, payload, end);
    len = s->len - at - 9;
    head[0] = (uint8_t)(len >> 16);
    head[1] = (uint8_t)(len >> 8);
    head[2] = (uint8_t)len;
    head[3] = (uint8_t)type;
    head[4] = (uint8_t)flags;
    for (int i = 0; i < 4; i++)
        head[5 + i] = (uint8_t)(id >> (24 - 8 * i));
    memcpy(s->bytes + at, head, 9);
}

static inline void script_word(struct script *s, const char *p, const char *end)
{
    const char *dot = memchr(p, '.', (size_t)(end - p)), *times;
    unsigned type = 0;
    unsigned long flags, id, n = 1, step = 0;
    char *q;

    if (p + 1 == end && *p == '|') {
        s->ends[s->n_ends++] = s->len;
        return;
    }
    assert_non_null(dot);
    while (type < ARRAY_LEN(frame_names) && (strlen(frame_names[type]) != (size_t)(dot - p) ||
                                             memcmp(frame_names[type], p, (size_t)(dot - p)) != 0))
        type++;
    if (type == ARRAY_LEN(frame_names)) /* "0b": any type by number */
        type = script_hex(p);
    flags = strtoul(dot + 1, &q, 16);
    id = strtoul(q + 1, &q, 10);
    assert_true(*q == '.');
    times = memchr(q, '~', (size_t)(end - q));
    if (times != NULL) {
        step = times[1] == '+' ? 2 : 0;
        n = strtoul(times + 1, NULL, 10);
        end = times;
    }
    for (unsigned long i = 0; i < n; i++)
        script_frame(s, type, (unsigned)flags, (uint32_t)(id + i * step), q + 1, end);
}

static inline struct script *script_new(enum h2_role role, const char *text)
{
    struct script *s = calloc(1, sizeof(*s));

    assert_non_null(s);
    if (text[0] == '!') {
        text++;
    } else {
        if (role == H2_SERVER)
            script_put(s, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 24);
        script_put(s, "\0\0\0\4\0\0\0\0\0", 9);
    }
    while (*text != '\0') {
        const size_t blank = strspn(text, " "), len = strcspn(text + blank, " ");

        if (len > 0)
            script_word(s, text + blank, text + blank + len);
        text += blank + len;
    }
    s->ends[s->n_ends++] = s->len;
    return s;
}

static inline void script_free(struct script *s)
{
    free(s->bytes);
    free(s);
}

/* ---- what the engine under test did ---- */

struct watch_stream {
    uint32_t id;
    uint64_t blocks; /* hash of kinds, fields, ends */
    uint64_t data;   /* hash of the payload, byte by byte */
    size_t bytes;
    unsigned n_blocks, n_end, n_close;
    uint32_t code;
    bool by_peer;
    bool informed; /* a 1xx came last */
    bool odd;      /* what only nghttp2 takes: host or content-length in trailers (RFC 9110 6.5.1),
                    * :status below 100 (RFC 9110 15), userinfo in :authority (RFC 9113 8.3.1) */
};

#define WATCH_STREAMS 4096
#define WATCH_TEXT    4096

struct watch {
    struct slab_pool pool;
    struct h2 *h;
    struct outq out;
    enum h2_role role;
    bool answer; /* server: trailers-only as soon as a request has ended */
    bool hold;   /* do not consume */
    bool over;   /* the rest is h2_free's */
    struct watch_stream streams[WATCH_STREAMS];
    size_t n_streams;
    unsigned n_goaway, n_settings, n_pong;
    bool refused;
    char text[WATCH_TEXT]; /* in order: what the rows of a table expect */
    /* output: frames */
    uint8_t head[9 + 16];
    size_t have, skip;
    size_t n_rst, n_window, window_bytes[2], n_acks, n_out;
};

static inline void watch_say(struct watch *w, const char *fmt, ...) PRINTF_LIKE(2, 3);
static inline void watch_say(struct watch *w, const char *fmt, ...)
{
    const size_t len = strlen(w->text);
    va_list ap;

    if (w->over)
        return;
    va_start(ap, fmt);
    vsnprintf(w->text + len, sizeof(w->text) - len, fmt, ap);
    va_end(ap);
}

static inline struct watch_stream *watch_stream_new(struct watch *w, struct h2_stream *s)
{
    struct watch_stream *x = &w->streams[w->n_streams++];

    assert_true(w->n_streams <= WATCH_STREAMS);
    memset(x, 0, sizeof(*x));
    x->id = h2_stream_id(s);
    h2_stream_set_user(s, x);
    return x;
}

static const struct h2_field watch_request[] = {
    H2_FIELD_INIT(":method", "POST"),
    H2_FIELD_INIT(":scheme", "http"),
    H2_FIELD_INIT(":path", "/a.B/C"),
    H2_FIELD_INIT(":authority", "x"),
};
static const struct h2_field watch_answer[] = {H2_FIELD_INIT(":status", "200"),
                                               H2_FIELD_INIT("grpc-status", "0")};

static inline void watch_headers(void *user, struct h2_stream *s, enum h2_block kind,
                                 const struct h2_field *fields, size_t n, bool end)
{
    static const char *const names[] = {"request", "response", "info", "trailers"};
    struct watch *w = user;
    struct watch_stream *x = kind == H2_REQUEST ? watch_stream_new(w, s) : h2_stream_user(s);

    assert_int_equal(x->n_close, 0);
    assert_int_equal(x->n_end, 0);
    x->id = h2_stream_id(s);
    x->n_blocks++;
    x->informed = kind == H2_INFORMATIONAL;
    x->n_end += end;
    x->blocks = hash_bytes(&kind, sizeof(kind), x->blocks + end);
    for (size_t i = 0; i < n; i++) {
        x->blocks = hash_bytes(fields[i].name, fields[i].name_len, x->blocks);
        x->blocks = hash_bytes(fields[i].value, fields[i].value_len, x->blocks + 1);
        if (kind == H2_TRAILERS &&
            ((fields[i].name_len == 4 && fields[i].name[0] == 'h') || fields[i].name_len == 14))
            x->odd = true;
        if (fields[i].name_len == 7 && fields[i].name[1] == 's' && fields[i].value[0] == '0')
            x->odd = true;
        if (fields[i].name_len == 10 && fields[i].name[1] == 'a' &&
            memchr(fields[i].value, '@', fields[i].value_len) != NULL)
            x->odd = true;
    }
    watch_say(w, "%s %u %zu%s; ", names[kind], x->id, n, end ? " end" : "");
    if (w->answer && w->role == H2_SERVER && end)
        h2_send_headers(s, H2_RESPONSE, watch_answer, ARRAY_LEN(watch_answer), true);
}

static inline void watch_data(void *user, struct h2_stream *s, struct slab *slab, const uint8_t *p,
                              size_t len, bool end)
{
    struct watch *w = user;
    struct watch_stream *x = h2_stream_user(s);

    assert_int_equal(x->n_close, 0);
    assert_int_equal(x->n_end, 0);
    assert_true(len > 0 || end);
    if (len > 0)
        assert_true(p >= slab->data && p + len <= slab->data + slab->cap);
    for (size_t i = 0; i < len; i++)
        x->data = x->data * 31 + p[i] + 1;
    x->bytes += len;
    x->n_end += end;
    watch_say(w, "data %u %zu%s; ", x->id, len, end ? " end" : "");
    if (!w->hold)
        h2_consume(s, len);
    if (w->answer && w->role == H2_SERVER && end)
        h2_send_headers(s, H2_RESPONSE, watch_answer, ARRAY_LEN(watch_answer), true);
}

static inline void watch_close(void *user, struct h2_stream *s, uint32_t code, bool by_peer)
{
    struct watch *w = user;
    struct watch_stream *x = h2_stream_user(s);

    x->n_close++;
    assert_int_equal(x->n_close, 1);
    if (w->over)
        return;
    x->id = h2_stream_id(s);
    x->code = code;
    x->by_peer = by_peer;
    watch_say(w, "close %u %s%s; ", x->id, h2_code_name(code), by_peer ? " peer" : "");
}

static inline void watch_goaway(void *user, uint32_t last, uint32_t code, const uint8_t *debug,
                                size_t len)
{
    struct watch *w = user;

    (void)debug;
    (void)len;
    w->n_goaway++;
    watch_say(w, "goaway %u %s; ", last, h2_code_name(code));
}

static inline void watch_settings(void *user)
{
    ((struct watch *)user)->n_settings++;
}

static inline void watch_pong(void *user, uint64_t opaque)
{
    struct watch *w = user;

    w->n_pong++;
    watch_say(w, "pong %llx; ", (unsigned long long)opaque);
}

static inline uint32_t watch_u32(const uint8_t *p)
{
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

static inline void watch_out_frame(struct watch *w)
{
    const uint32_t id = watch_u32(w->head + 5);

    w->n_out++;
    if (w->head[3] == 3) {
        w->n_rst++;
        watch_say(w, "-rst %u %s; ", id, h2_code_name(watch_u32(w->head + 9)));
    } else if (w->head[3] == 7) {
        if (watch_u32(w->head + 13) != 0)
            w->refused = true;
        watch_say(w, "-goaway %s; ", h2_code_name(watch_u32(w->head + 13)));
    } else if (w->head[3] == 8) {
        w->n_window++;
        w->window_bytes[id != 0] += watch_u32(w->head + 9);
    } else if ((w->head[3] == 4 || w->head[3] == 6) && (w->head[4] & 1) != 0) {
        w->n_acks++;
    }
}

static inline void watch_out(struct watch *w, const uint8_t *p, size_t len)
{
    for (; len > 0; p++, len--) {
        size_t frame_len;

        if (w->skip > 0) {
            w->skip--;
            continue;
        }
        if (w->have < sizeof(w->head))
            w->head[w->have] = *p;
        w->have++;
        frame_len = w->have >= 9 ? watch_u32(w->head) >> 8 : 0;
        if (w->have >= 9 && w->have == 9 + frame_len) {
            watch_out_frame(w);
            w->have = 0;
        }
    }
}

static inline void watch_flush(struct watch *w)
{
    struct iovec iov[64];
    int n;

    h2_flush(w->h, &w->out, 256 * 1024);
    while ((n = outq_iov(&w->out, iov, 64)) > 0) {
        size_t sum = 0;

        for (int i = 0; i < n; i++) {
            watch_out(w, iov[i].iov_base, iov[i].iov_len);
            sum += iov[i].iov_len;
        }
        outq_sent(&w->out, sum);
    }
}

static const struct h2_events watch_events = {
    .on_headers = watch_headers,
    .on_data = watch_data,
    .on_close = watch_close,
    .on_goaway = watch_goaway,
    .on_settings = watch_settings,
    .on_ping_ack = watch_pong,
};

/* n_open: streams that a client opens first. */
static inline struct watch *watch_new(const struct h2_engine *engine, enum h2_role role,
                                      const struct h2_limits *limits, unsigned n_open)
{
    struct watch *w = calloc(1, sizeof(*w));
    struct h2_limits dflt;

    assert_non_null(w);
    h2_limits_default(&dflt);
    slab_pool_init(&w->pool);
    outq_init(&w->out, &w->pool);
    w->role = role;
    w->skip = role == H2_CLIENT ? 24 : 0;
    w->h = h2_new(engine, role, limits != NULL ? limits : &dflt, &watch_events, w, &w->pool);
    for (unsigned i = 0; i < n_open; i++) {
        struct h2_stream *s =
            h2_open(w->h, watch_request, ARRAY_LEN(watch_request), (i & 1) != 0, NULL);

        watch_stream_new(w, s);
    }
    watch_flush(w);
    for (unsigned i = 0; i < n_open; i++)
        w->streams[i].id = 2 * i + 1;
    return w;
}

/* Feeds bytes as one read. */
static inline void watch_read(struct watch *w, const uint8_t *p, size_t len)
{
    while (len > 0 && !w->refused) {
        const size_t take = len < SLAB_LARGE_BYTES ? len : SLAB_LARGE_BYTES;
        struct slab *slab = slab_get(&w->pool, take);
        struct err err = {0};

        memcpy(slab->data, p, take);
        if (h2_recv(w->h, slab, slab->data, take, &err) != 0) {
            assert_true(err.text[0] != '\0');
            w->refused = true;
        }
        slab_unref(slab);
        p += take;
        len -= take;
    }
    watch_flush(w);
    if (h2_is_done(w->h) && h2_why_done(w->h)[0] != '\0')
        w->refused = true;
}

/* piece: bytes per read; 0: as the script says. */
static inline void watch_script(struct watch *w, const struct script *s, size_t piece)
{
    size_t at = 0;

    for (size_t i = 0; i < s->n_ends && !w->refused; i++) {
        while (at < s->ends[i] && !w->refused) {
            size_t take = s->ends[i] - at;

            if (piece > 0 && piece < take)
                take = piece;
            watch_read(w, s->bytes + at, take);
            at += take;
        }
    }
}

static inline void watch_free(struct watch *w)
{
    w->over = true;
    w->h = h2_free(w->h);
    for (size_t i = 0; i < w->n_streams; i++)
        assert_int_equal(w->streams[i].n_close, 1);
    outq_fini(&w->out);
    slab_pool_fini(&w->pool); /* checks that every slab is back */
    free(w);
}

#endif
