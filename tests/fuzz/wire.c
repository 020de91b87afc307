#include "wire.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/hash.h"

#define PREFACE_BYTES 24u
#define IN_MAX        ((size_t)1 << 24)
#define MAX_FRAME     16384u
#define WINDOW        65535u

enum { DATA = 0, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PUSH, PING, GOAWAY, WINDOW_UPDATE, CONT };
enum { END_STREAM = 1, ACK = 1, END_HEADERS = 4, PADDED = 8, WITH_PRIORITY = 0x20 };

struct frame {
    uint8_t type, flags;
    uint32_t id, len;
    const uint8_t *p;
};

static uint32_t u32(const uint8_t *p)
{
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

/* The next whole frame of b from *at on. */
static bool next_frame(const struct buf *b, size_t *at, struct frame *ret_f)
{
    const uint8_t *const p = (const uint8_t *)b->data + *at;
    const size_t left = b->len - *at;

    if (left < 9 || left - 9 < u32(p) >> 8)
        return false;
    *ret_f = (struct frame){
        .type = p[3], .flags = p[4], .id = u32(p + 5) & 0x7fffffff, .len = u32(p) >> 8, .p = p + 9};
    *at += 9 + (size_t)ret_f->len;
    return true;
}

static struct wire_stream *stream_of(struct wire *w, uint32_t id)
{
    for (size_t i = w->n_streams; i > 0; i--)
        if (w->streams[i - 1].id == id)
            return &w->streams[i - 1];
    if (w->n_streams == WIRE_STREAMS)
        return NULL;
    w->streams[w->n_streams] = (struct wire_stream){.id = id, .grpc_status = -1};
    return &w->streams[w->n_streams++];
}

const struct wire_stream *wire_find(const struct wire *w, uint32_t id)
{
    for (size_t i = 0; i < w->n_streams; i++)
        if (w->streams[i].id == id)
            return &w->streams[i];
    return NULL;
}

/* ---- what the peer sends: only as far as our rules need it, and in our disfavour never ---- */

static void in_settings(struct wire *w, const struct frame *f)
{
    uint32_t table = UINT32_MAX;

    if ((f->flags & ACK) != 0 || f->len % 6 != 0 || f->id != 0)
        return;
    for (uint32_t i = 0; i < f->len; i += 6) {
        const uint32_t value = u32(f->p + i + 2);

        switch (f->p[i] << 8 | f->p[i + 1]) {
        case 1:
            table = value;
            break;
        case 4:
            w->initial_window = value > w->initial_window ? value : w->initial_window;
            break;
        case 5:
            w->max_frame = value > w->max_frame ? value : w->max_frame;
            break;
        default:
            break;
        }
    }
    if (w->n_settings < WIRE_SETTINGS)
        w->table_sizes[w->n_settings] = table;
    w->n_settings++;
}

static void in_frame(struct wire *w, const struct frame *f)
{
    struct wire_stream *s;

    w->n_frames_in++;
    switch (f->type) {
    case HEADERS:
        s = stream_of(w, f->id);
        if (s != NULL && w->is_server)
            s->opened = true;
        break;
    case SETTINGS:
        in_settings(w, f);
        break;
    case RST_STREAM:
        s = stream_of(w, f->id);
        if (s != NULL)
            s->given_up = true;
        break;
    case PING:
        w->n_pings += (f->flags & ACK) == 0;
        break;
    case WINDOW_UPDATE:
        if (f->len != 4)
            break;
        if (f->id == 0)
            w->conn_credit += u32(f->p) & 0x7fffffff;
        else if ((s = stream_of(w, f->id)) != NULL)
            s->credit += u32(f->p) & 0x7fffffff;
        break;
    default:
        break;
    }
}

void wire_in(struct wire *w, const uint8_t *p, size_t len)
{
    struct frame f;
    size_t at = 0;

    buf_append(&w->in, p, len);
    if (!w->in_started) {
        if (w->is_server && w->in.len < PREFACE_BYTES)
            return;
        at = w->is_server ? PREFACE_BYTES : 0;
        w->in_started = true;
    }
    while (next_frame(&w->in, &at, &f))
        in_frame(w, &f);
    buf_consume(&w->in, at);
    if (w->in.len >= 9 && w->in.data[3] == HEADERS && w->is_server) { /* refused as it begins */
        struct wire_stream *s = stream_of(w, u32(w->in.data + 5) & 0x7fffffff);

        if (s != NULL)
            s->opened = true;
    }
}

/* ---- what the gateway wrote ---- */

static bool field_is(const nghttp2_nv *nv, const char *name)
{
    return nv->namelen == strlen(name) && memcmp(nv->name, name, nv->namelen) == 0;
}

/* One or two digits, 0 to 16: what a gateway may pass on or say (statuscodes.md of gRPC). */
static int grpc_status_of(const nghttp2_nv *nv)
{
    int n = 0;

    check(nv->valuelen >= 1 && nv->valuelen <= 2);
    for (size_t i = 0; i < nv->valuelen; i++) {
        check(nv->value[i] >= '0' && nv->value[i] <= '9');
        n = n * 10 + (nv->value[i] - '0');
    }
    check(n <= 16);
    return n;
}

static void check_field(const nghttp2_nv *nv, bool *regular)
{
    check(nv->namelen > 0);
    for (size_t i = nv->name[0] == ':' ? 1 : 0; i < nv->namelen; i++)
        check(nv->name[i] > ' ' && nv->name[i] < 0x7f && nv->name[i] != ':' &&
              (nv->name[i] < 'A' || nv->name[i] > 'Z'));
    for (size_t i = 0; i < nv->valuelen; i++)
        check(nv->value[i] != '\0' && nv->value[i] != '\r' && nv->value[i] != '\n');
    check(nv->valuelen == 0 || (nv->value[0] != ' ' && nv->value[nv->valuelen - 1] != ' '));
    check(nv->name[0] != ':' || !*regular); /* RFC 9113 8.3: before all regular fields */
    *regular |= nv->name[0] != ':';
    check(!field_is(nv, "connection") && !field_is(nv, "transfer-encoding") &&
          !field_is(nv, "keep-alive") && !field_is(nv, "proxy-connection") &&
          !field_is(nv, "upgrade"));
}

/* end: of the block that ends the answer; a grpc-status before it means nothing. */
static void take_response_field(struct wire_stream *s, const nghttp2_nv *nv, bool end,
                                bool *has_status)
{
    if (field_is(nv, ":status")) {
        check(!*has_status && nv->valuelen == 3);
        *has_status = true;
        s->status = (nv->value[0] - '0') * 100 + (nv->value[1] - '0') * 10 + (nv->value[2] - '0');
    } else {
        check(nv->name[0] != ':');
    }
    if (field_is(nv, "content-type"))
        s->grpc |= nv->valuelen >= 16 && memcmp(nv->value, "application/grpc", 16) == 0;
    if (field_is(nv, "grpc-status") && end) {
        check(s->grpc_status == -1);
        s->grpc_status = grpc_status_of(nv);
    }
}

static void out_block(struct wire *w)
{
    struct wire_stream *s = stream_of(w, w->block_stream);
    const bool end = (w->block_flags & END_STREAM) != 0;
    const uint8_t *p = (const uint8_t *)w->block.data;
    bool regular = false, has_status = false;
    size_t left = w->block.len;
    struct wire_stream unknown = {.opened = true, .grpc_status = -1};
    const bool followed = s != NULL;
    const bool trailers = followed && s->headers;

    if (!followed)
        s = &unknown;
    check(w->is_server ? s->opened : !s->opened || trailers);
    check(!s->ended && !s->reset);
    for (;;) {
        int flags = 0;
        nghttp2_nv nv;
        const ssize_t n = nghttp2_hd_inflate_hd2(w->inflater, &nv, &flags, p, left, 1);

        check(n >= 0);
        p += n;
        left -= (size_t)n;
        if ((flags & NGHTTP2_HD_INFLATE_EMIT) != 0) {
            check_field(&nv, &regular);
            if (w->is_server)
                take_response_field(s, &nv, end, &has_status);
        }
        if ((flags & NGHTTP2_HD_INFLATE_FINAL) != 0)
            break;
        check(left > 0 || (flags & NGHTTP2_HD_INFLATE_EMIT) != 0);
    }
    nghttp2_hd_inflate_end_headers(w->inflater);
    if (!w->is_server && !s->opened) {
        check(w->block_stream > w->last_opened); /* RFC 9113 5.1.1 */
        w->last_opened = w->block_stream;
    }
    s->opened = true;
    if (w->is_server && followed) {
        check(has_status != trailers);
        if (s->status >= 200)
            s->headers = true;
        check(!trailers || end);
        check(!end || s->status >= 200);
        check(!end || !s->grpc || s->grpc_status >= 0);
        check(!trailers || s->grpc);
    } else {
        s->headers = true;
    }
    s->ended = end;
    w->block_stream = 0;
    buf_reset(&w->block);
}

static void out_headers(struct wire *w, const struct frame *f)
{
    const uint8_t *p = f->p;
    size_t len = f->len;

    check((f->flags & PADDED) == 0); /* we have no reason to */
    if ((f->flags & WITH_PRIORITY) != 0) {
        check(len >= 5);
        p += 5;
        len -= 5;
    }
    w->block_stream = f->id;
    w->block_flags = f->flags;
    buf_append(&w->block, p, len);
    if ((f->flags & END_HEADERS) != 0)
        out_block(w);
}

static void out_data(struct wire *w, const struct frame *f)
{
    struct wire_stream *s = stream_of(w, f->id);

    check((f->flags & PADDED) == 0);
    w->conn_bytes += f->len;
    check(w->conn_bytes <= WINDOW + w->conn_credit);
    if (s == NULL)
        return;
    check(s->opened && s->headers && !s->ended && !s->reset);
    s->data_bytes += f->len;
    check(s->data_bytes <= w->initial_window + s->credit);
    for (uint32_t i = 0; i < f->len; i++)
        s->data_hash = s->data_hash * 31 + f->p[i] + 1;
    if ((f->flags & END_STREAM) == 0)
        return;
    s->ended = true;
    check(!w->is_server || !s->grpc); /* a gRPC answer ends with trailers */
}

/* The peer's settings hold for what we send from our acknowledgement on (RFC 9113 6.5.3). */
static void out_settings(struct wire *w, const struct frame *f)
{
    check(f->id == 0 && f->len % 6 == 0);
    if ((f->flags & ACK) == 0)
        return;
    check(f->len == 0);
    check(w->n_acked < w->n_settings);
    if (w->n_acked < WIRE_SETTINGS && w->table_sizes[w->n_acked] != UINT32_MAX)
        check(nghttp2_hd_inflate_change_table_size(w->inflater, w->table_sizes[w->n_acked]) == 0);
    w->n_acked++;
}

static void out_frame(struct wire *w, const struct frame *f)
{
    struct wire_stream *s;

    check(f->len <= w->max_frame);
    check(w->block_stream == 0 || (f->type == CONT && f->id == w->block_stream));
    switch (f->type) {
    case DATA:
        check(f->id != 0);
        out_data(w, f);
        break;
    case HEADERS:
        check(f->id % 2 == 1);
        out_headers(w, f);
        break;
    case CONT:
        check(w->block_stream != 0);
        buf_append(&w->block, f->p, f->len);
        if ((f->flags & END_HEADERS) != 0)
            out_block(w);
        break;
    case RST_STREAM:
        check(f->len == 4 && f->id != 0);
        s = stream_of(w, f->id);
        check(s == NULL || s->opened || (!w->is_server && f->id % 2 == 0)); /* a pushed one */
        if (s != NULL)
            s->reset = true;
        break;
    case SETTINGS:
        out_settings(w, f);
        break;
    case PING:
        check(f->len == 8 && f->id == 0);
        w->n_pongs += (f->flags & ACK) != 0;
        check(w->n_pongs <= w->n_pings);
        break;
    case GOAWAY:
        check(f->len >= 8 && f->id == 0);
        check(!w->went_away || (u32(f->p) & 0x7fffffff) <= w->goaway_last);
        w->went_away = true;
        w->goaway_last = u32(f->p) & 0x7fffffff;
        if (u32(f->p + 4) != 0)
            w->goaway_code = u32(f->p + 4);
        break;
    case WINDOW_UPDATE:
        check(f->len == 4 && u32(f->p) != 0 && u32(f->p) <= 0x7fffffff);
        s = f->id != 0 ? stream_of(w, f->id) : NULL;
        check(s == NULL || (s->opened && !s->reset));
        break;
    default:
        check(f->type == DATA); /* no frame of this type is ever sent */
    }
}

void wire_out(struct wire *w, const uint8_t *p, size_t len)
{
    struct frame f;
    size_t at = 0;

    buf_append(&w->out, p, len);
    if (!w->out_started) {
        if (!w->is_server && w->out.len < PREFACE_BYTES)
            return;
        if (w->is_server && w->out.len >= 5 && memcmp(w->out.data, "HTTP/", 5) == 0)
            return; /* the answer to HTTP/1: nothing may follow, and nobody reads on */
        if (!w->is_server) {
            check(memcmp(w->out.data, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", PREFACE_BYTES) == 0);
            at = PREFACE_BYTES;
        }
        w->out_started = true;
        check(w->out.len - at < 4 || w->out.data[at + 3] == SETTINGS);
    }
    while (next_frame(&w->out, &at, &f))
        out_frame(w, &f);
    buf_consume(&w->out, at);
}

void wire_init(struct wire *w, bool is_server)
{
    memset(w, 0, sizeof(*w));
    w->is_server = is_server;
    w->initial_window = WINDOW;
    w->max_frame = MAX_FRAME;
    w->goaway_last = 0x7fffffff;
    buf_init(&w->in, IN_MAX);
    buf_init(&w->out, IN_MAX);
    buf_init(&w->block, IN_MAX);
    check(nghttp2_hd_inflate_new(&w->inflater) == 0);
}

void wire_fini(struct wire *w)
{
    nghttp2_hd_inflate_del(w->inflater);
    buf_fini(&w->in);
    buf_fini(&w->out);
    buf_fini(&w->block);
}
