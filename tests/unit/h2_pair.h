/* tests/unit/h2_pair.h - two HTTP/2 engines back to back in memory, and what each stream saw.
 *
 * Bytes move by pair_pump in pieces of a chosen size; a tap reads the frames of both directions by
 * the rules of RFC 9113 section 4.1 alone, so it is an oracle beside the engines.
 */
#ifndef TESTS_UNIT_H2_PAIR_H
#define TESTS_UNIT_H2_PAIR_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/check.h"
#include "net/h2.h"

enum { FR_DATA, FR_HEADERS, FR_PRIORITY, FR_RST, FR_SETTINGS, FR_PUSH, FR_PING, FR_GOAWAY, FR_WU };

struct frame {
    uint8_t type, flags;
    uint32_t id, len;
    uint8_t payload[16]; /* its begin */
};

#define MAX_FRAMES 20000

struct tap {
    struct frame frames[MAX_FRAMES];
    size_t n;
    uint8_t head[9 + 16];
    size_t have; /* of the frame that passes: head and payload bytes */
    size_t skip; /* preface bytes still to pass */
};

static inline uint32_t be32(const uint8_t *p)
{
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

static inline void tap_bytes(struct tap *t, const uint8_t *p, size_t len)
{
    while (len > 0) {
        size_t take = 1;

        if (t->skip > 0) {
            t->skip--;
        } else if (t->have < sizeof(t->head)) {
            t->head[t->have++] = *p;
        } else { /* the payload past its begin */
            take = 9 + (be32(t->head) >> 8) - t->have;
            take = take < len ? take : len;
            t->have += take;
        }
        p += take;
        len -= take;
        if (t->have >= 9 && t->have == 9 + (be32(t->head) >> 8)) {
            const uint32_t frame_len = be32(t->head) >> 8;
            struct frame *f = &t->frames[t->n++];

            assert_true(t->n < MAX_FRAMES);
            *f = (struct frame){.type = t->head[3],
                                .flags = t->head[4],
                                .id = be32(t->head + 5) & 0x7fffffff,
                                .len = frame_len};
            memcpy(f->payload, t->head + 9, frame_len < 16 ? frame_len : 16);
            t->have = 0;
        }
    }
}

static inline size_t tap_count(const struct tap *t, uint8_t type, uint32_t id)
{
    size_t n = 0;

    for (size_t i = 0; i < t->n; i++)
        n += t->frames[i].type == type && t->frames[i].id == id;
    return n;
}

static inline const struct frame *tap_last(const struct tap *t, uint8_t type)
{
    for (size_t i = t->n; i > 0; i--)
        if (t->frames[i - 1].type == type)
            return &t->frames[i - 1];
    return NULL;
}

/* What one end of one stream saw. */
struct seen {
    struct h2_stream *s; /* NULL after on_close */
    struct side *side;
    unsigned n_request, n_response, n_info, n_trailers, n_end, n_close;
    size_t bytes, unconsumed, sent;
    uint64_t sum;
    uint32_t id, code; /* id: known once it has left */
    bool by_peer;
    bool hold;         /* do not consume */
    unsigned no_index; /* x-... fields that came with H2_FIELD_NO_INDEX */
};

#define MAX_SEEN 1200

struct side {
    struct h2 *h;
    struct pair *pair;
    struct outq out;
    struct seen seen[MAX_SEEN];
    size_t n_seen;
    unsigned n_goaway, n_settings, n_pong;
    uint32_t goaway_last, goaway_code;
    uint64_t pong;
    bool dirty;
    bool in_event;
    /* what a test does from inside events; NULL: nothing */
    void (*hook)(struct seen *x, char event);
};

struct pair {
    struct slab_pool pool;
    struct side client, server;
    struct tap to_server, to_client;
    size_t piece; /* bytes per h2_recv; 0: all there is */
    size_t high_water;
};

static const struct h2_field req_fields[] = {
    H2_FIELD_INIT(":method", "POST"), H2_FIELD_INIT(":scheme", "http"),
    H2_FIELD_INIT(":path", "/a.B/C"), H2_FIELD_INIT(":authority", "x"),
    H2_FIELD_INIT("te", "trailers"),
};
static const struct h2_field resp_fields[] = {H2_FIELD_INIT(":status", "200"),
                                              H2_FIELD_INIT("content-type", "application/grpc")};
static const struct h2_field trailer_fields[] = {H2_FIELD_INIT("grpc-status", "0")};

static inline struct seen *seen_new(struct side *sd, struct h2_stream *s)
{
    struct seen *x = &sd->seen[sd->n_seen++];

    assert_true(sd->n_seen <= MAX_SEEN);
    x->s = s;
    x->id = h2_stream_id(s);
    x->side = sd;
    h2_stream_set_user(s, x);
    return x;
}

static inline void seen_hook(struct seen *x, char event)
{
    x->side->in_event = true;
    if (x->side->hook != NULL)
        x->side->hook(x, event);
    x->side->in_event = false;
}

static inline void pr_headers(void *user, struct h2_stream *s, enum h2_block kind,
                              const struct h2_field *fields, size_t n, bool end)
{
    struct side *sd = user;
    struct seen *x = kind == H2_REQUEST ? seen_new(sd, s) : h2_stream_user(s);

    assert_non_null(x);
    assert_int_equal(x->n_close, 0);
    x->n_request += kind == H2_REQUEST;
    x->n_response += kind == H2_RESPONSE;
    x->n_info += kind == H2_INFORMATIONAL;
    x->n_trailers += kind == H2_TRAILERS;
    x->n_end += end;
    for (size_t i = 0; i < n; i++)
        x->no_index += (fields[i].flags & H2_FIELD_NO_INDEX) != 0 && fields[i].name[0] == 'x';
    seen_hook(x, 'h');
}

static inline void pr_data(void *user, struct h2_stream *s, struct slab *slab, const uint8_t *p,
                           size_t len, bool end)
{
    struct seen *x = h2_stream_user(s);

    (void)user;
    assert_non_null(x);
    assert_int_equal(x->n_close, 0);
    assert_int_equal(x->n_end, 0);
    assert_true(len > 0 || end);
    if (len > 0)
        assert_true(p >= slab->data && p + len <= slab->data + slab->cap);
    for (size_t i = 0; i < len; i++)
        x->sum = x->sum * 31 + p[i];
    x->bytes += len;
    x->n_end += end;
    if (x->hold)
        x->unconsumed += len;
    else
        h2_consume(s, len);
    seen_hook(x, 'd');
}

static inline void pr_sent(void *user, struct h2_stream *s, size_t bytes)
{
    struct seen *x = h2_stream_user(s);

    (void)user;
    assert_int_equal(x->n_close, 0);
    x->sent += bytes;
    seen_hook(x, 's');
}

static inline void pr_close(void *user, struct h2_stream *s, uint32_t code, bool by_peer)
{
    struct seen *x = h2_stream_user(s);

    (void)user;
    assert_non_null(x);
    assert_false(x->side->in_event); /* never from inside another event */
    x->n_close++;
    assert_int_equal(x->n_close, 1);
    x->id = h2_stream_id(s);
    x->code = code;
    x->by_peer = by_peer;
    x->s = NULL;
    seen_hook(x, 'c');
}

static inline void pr_goaway(void *user, uint32_t last, uint32_t code, const uint8_t *debug,
                             size_t debug_len)
{
    struct side *sd = user;

    (void)debug;
    (void)debug_len;
    sd->n_goaway++;
    sd->goaway_last = last;
    sd->goaway_code = code;
}

static inline void pr_settings(void *user)
{
    ((struct side *)user)->n_settings++;
}

static inline void pr_pong(void *user, uint64_t opaque)
{
    struct side *sd = user;

    sd->n_pong++;
    sd->pong = opaque;
}

static inline void pr_dirty(void *user)
{
    ((struct side *)user)->dirty = true;
}

static const struct h2_events pair_events = {
    .on_headers = pr_headers,
    .on_data = pr_data,
    .on_sent = pr_sent,
    .on_close = pr_close,
    .on_goaway = pr_goaway,
    .on_settings = pr_settings,
    .on_ping_ack = pr_pong,
    .on_dirty = pr_dirty,
};

static inline void side_init(struct side *sd, struct pair *p, const struct h2_engine *engine,
                             enum h2_role role, const struct h2_limits *limits)
{
    sd->pair = p;
    outq_init(&sd->out, &p->pool);
    sd->h = h2_new(engine, role, limits, &pair_events, sd, &p->pool);
}

/* engines by name; limits NULL: the defaults. */
static inline struct pair *pair_new(const char *client, const char *server,
                                    const struct h2_limits *client_limits,
                                    const struct h2_limits *server_limits)
{
    struct pair *p = calloc(1, sizeof(*p));
    struct h2_limits dflt;

    assert_non_null(p);
    h2_limits_default(&dflt);
    slab_pool_init(&p->pool);
    p->high_water = 256 * 1024;
    p->to_server.skip = 24;
    side_init(&p->client, p, h2_engine_find(client), H2_CLIENT,
              client_limits != NULL ? client_limits : &dflt);
    side_init(&p->server, p, h2_engine_find(server), H2_SERVER,
              server_limits != NULL ? server_limits : &dflt);
    return p;
}

static inline void side_check_over(const struct side *sd)
{
    for (size_t i = 0; i < sd->n_seen; i++)
        assert_int_equal(sd->seen[i].n_close, 1);
}

static inline void pair_free(struct pair *p)
{
    p->client.h = h2_free(p->client.h);
    p->server.h = h2_free(p->server.h);
    side_check_over(&p->client);
    side_check_over(&p->server);
    outq_fini(&p->client.out);
    outq_fini(&p->server.out);
    slab_pool_fini(&p->pool); /* checks that every slab is back */
    free(p);
}

/* Feeds [bytes, bytes + len) in pieces. Returns false when the engine refused them. */
static inline bool side_feed(struct side *sd, const uint8_t *bytes, size_t len, size_t piece)
{
    for (size_t at = 0; at < len;) {
        size_t take = piece == 0 || piece > len - at ? len - at : piece;
        struct slab *slab;
        int r;

        if (take > SLAB_LARGE_BYTES)
            take = SLAB_LARGE_BYTES;
        slab = slab_get(&sd->pair->pool, take);
        memcpy(slab->data, bytes + at, take);
        r = h2_recv(sd->h, slab, slab->data, take, NULL);
        slab_unref(slab);
        if (r != 0)
            return false;
        at += take;
    }
    return true;
}

/* Moves what from has to to. Returns the bytes moved. */
static inline size_t side_move(struct side *from, struct side *to, struct tap *tap)
{
    const size_t piece = from->pair->piece;
    size_t moved = 0;

    from->dirty = false;
    h2_flush(from->h, &from->out, from->pair->high_water);
    while (from->out.bytes > 0) {
        struct iovec iov[16];
        const int n = outq_iov(&from->out, iov, 16);
        size_t sum = 0;

        for (int i = 0; i < n; i++) {
            tap_bytes(tap, iov[i].iov_base, iov[i].iov_len);
            if (to != NULL)
                side_feed(to, iov[i].iov_base, iov[i].iov_len, piece);
            sum += iov[i].iov_len;
        }
        outq_sent(&from->out, sum);
        moved += sum;
    }
    return moved;
}

/* Until both are quiet. */
static inline void pair_pump(struct pair *p)
{
    size_t moved;

    do {
        moved = side_move(&p->client, &p->server, &p->to_server);
        moved += side_move(&p->server, &p->client, &p->to_client);
    } while (moved > 0 || p->client.dirty || p->server.dirty);
}

static inline struct seen *pair_open(struct pair *p, bool end)
{
    struct h2_stream *s = h2_open(p->client.h, req_fields, ARRAY_LEN(req_fields), end, NULL);

    assert_non_null(s);
    return seen_new(&p->client, s);
}

static inline uint8_t pattern(size_t i)
{
    return (uint8_t)(i * 7 + (i >> 8) + (i >> 16));
}

/* len bytes of the pattern from offset at; returns the sum continued from sum. */
static inline uint64_t send_pattern(struct h2_stream *s, size_t at, size_t len, bool end,
                                    uint64_t sum)
{
    uint8_t *b = malloc(len > 0 ? len : 1);

    for (size_t i = 0; i < len; i++) {
        b[i] = pattern(at + i);
        sum = sum * 31 + b[i];
    }
    h2_send_data(s, NULL, b, len, end);
    free(b);
    return sum;
}

static inline void respond(struct h2_stream *s)
{
    h2_send_headers(s, H2_RESPONSE, resp_fields, ARRAY_LEN(resp_fields), false);
}

static inline void finish(struct h2_stream *s)
{
    h2_send_headers(s, H2_TRAILERS, trailer_fields, ARRAY_LEN(trailer_fields), true);
}

#endif
