/* Life of a connection and of its streams, and the calls of net/h2.h. */
#include "net/h2_native.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/xalloc.h"

/* ---- ends ---- */

void native_end(struct native *n, struct nstream *s, uint32_t code, bool by_peer,
                enum nstream_end how)
{
    if (s->base.id != 0 && (s->flags & STREAM_GONE) == 0) {
        nstream_table_del(&n->table, s);
        nstream_bury(&n->graves, s->base.id, how);
    }
    list_remove(&s->node);
    list_remove(&s->all);
    nstream_drop_output(s);
    n->base.n_streams--;
    s->flags |= STREAM_GONE; /* the event can queue nothing */
    if (n->base.events.on_close != NULL)
        n->base.events.on_close(n->base.user, &s->base, code, by_peer);
    nstream_free(n->shared, s);
}

void native_detach(struct native *n, struct nstream *s, uint32_t code, bool by_peer)
{
    if (s->base.id != 0) {
        nstream_table_del(&n->table, s);
        nstream_bury(&n->graves, s->base.id, STREAM_END_BY_US);
    }
    nstream_drop_output(s);
    s->flags |= (uint16_t)(STREAM_GONE | (by_peer ? STREAM_BY_PEER : 0));
    s->close_code = code;
    list_remove(&s->node);
    list_push_back(&n->gone, &s->node);
    native_dirty(n);
}

static void send_goaway(struct native *n, uint32_t last_id, uint32_t code, const char *debug)
{
    const size_t len = debug != NULL ? strlen(debug) : 0;
    uint8_t *to = native_control(n, FRAME_GOAWAY, 0, 0, 8 + len);

    if (last_id < n->our_last_id)
        n->our_last_id = last_id;
    last_id = n->our_last_id; /* RFC 9113 6.8: it never grows */
    frame_write_u32(frame_write_u32(to, last_id), code);
    if (len > 0)
        memcpy(to + 8, debug, len);
}

int native_fail(struct native *n, enum h2_code code, const char *why)
{
    if (!n->stopped) {
        n->failed = n->stopped = n->shut = true;
        if (n->base.fault == H2_FAULT_NONE)
            n->base.fault = H2_FAULT_PROTOCOL;
        h2_set_why(&n->base, "%s: %s", h2_code_name(code), why);
        send_goaway(n, n->last_peer_id, code, why);
    }
    return -EPROTO;
}

int native_calm(struct native *n, enum h2_fault fault, const char *why)
{
    if (n->base.fault == H2_FAULT_NONE)
        n->base.fault = fault;
    return native_fail(n, H2_ENHANCE_YOUR_CALM, why);
}

/* ---- life ---- */

static struct h2 *native_create(enum h2_role role, const struct h2_limits *limits)
{
    struct native *n = xcalloc(1, sizeof(*n));

    (void)limits;
    n->in = role == H2_SERVER ? IN_MAGIC : IN_HEAD;
    nstream_table_init(&n->table);
    list_init(&n->all);
    list_init(&n->ready);
    list_init(&n->stalled);
    list_init(&n->gone);
    n->next_id = 1;
    n->our_last_id = n->goaway_last_id = FRAME_MAX_ID;
    n->conn_send = n->peer_window = 65535;
    n->peer_frame = FRAME_PAYLOAD_BYTES;
    n->peer_max_streams = 100; /* until its SETTINGS come */
    return &n->base;
}

static uint8_t *put_setting(uint8_t *to, enum frame_setting id, uint32_t value)
{
    to[0] = 0;
    to[1] = (uint8_t)id;
    return frame_write_u32(to + 2, value);
}

static void native_start(struct h2 *h)
{
    struct native *n = native_of(h);
    const struct h2_limits *l = &h->limits;
    const bool frame_size = l->max_frame_bytes != 16384;
    uint8_t *to;

    n->window = l->stream_window;
    n->window_most = l->stream_window_most;
    n->n_settings_out = 1;
    n->recv_window = l->stream_window > 65535 ? l->stream_window : 65535;
    n->conn_owed_most = l->conn_window / 2;
    n->shared = nstream_shared_get(h->pool);
    hpack_in_init(&n->hpack_in);
    n->hpack_in.no_bombs = h->role == H2_CLIENT; /* a server's large block costs that call alone */
    hpack_out_init(&n->hpack_out, &n->shared->seen, h->pool);
    if (h->role == H2_CLIENT) {
        n->control = xrealloc(NULL, 1, n->cap_control = 128);
        memcpy(n->control, FRAME_MAGIC, FRAME_MAGIC_BYTES);
        n->n_control = FRAME_MAGIC_BYTES;
    }
    to = native_control(n, FRAME_SETTINGS, 0, 0, frame_size ? 24 : 18);
    if (h->role == H2_SERVER)
        to = put_setting(to, SETTING_MAX_CONCURRENT_STREAMS, l->max_concurrent_streams);
    else
        to = put_setting(to, SETTING_ENABLE_PUSH, 0);
    to = put_setting(to, SETTING_INITIAL_WINDOW_SIZE, l->stream_window);
    to = put_setting(to, SETTING_MAX_HEADER_LIST_SIZE, l->max_header_bytes);
    if (frame_size)
        put_setting(to, SETTING_MAX_FRAME_SIZE, l->max_frame_bytes);
    if (l->conn_window > 65535)
        native_window_update(n, 0, l->conn_window - 65535);
}

static void native_destroy(struct h2 *h)
{
    struct native *n = native_of(h);

    hpack_in_fini(&n->hpack_in);
    hpack_out_fini(&n->hpack_out);
    nstream_table_fini(&n->table);
    slab_unref(n->part);
    slab_unref(n->copy);
    free(n->control);
    nstream_shared_put(h->pool);
    free(n);
}

static void native_lost(struct h2 *h, uint32_t code, bool by_peer)
{
    struct native *n = native_of(h);

    n->lost = n->stopped = n->shut = true;
    while (!list_is_empty(&n->gone)) {
        struct nstream *s = list_entry(n->gone.next, struct nstream, node);

        native_end(n, s, s->close_code, (s->flags & STREAM_BY_PEER) != 0, STREAM_END_BY_US);
    }
    while (!list_is_empty(&n->all)) {
        struct nstream *s = list_entry(n->all.next, struct nstream, all);
        const bool never_left = by_peer && h->role == H2_CLIENT && s->base.id == 0;

        native_end(n, s, never_left ? H2_REFUSED_STREAM : code, by_peer, STREAM_END_BY_US);
    }
}

static bool native_wants_flush(const struct h2 *h)
{
    return native_has_output(native_of(h));
}

static bool native_is_done(const struct h2 *h)
{
    const struct native *n = native_of(h);

    if (n->stopped)
        return true;
    return (n->goaway_sent || h->saw_goaway) && h->n_streams == 0 && !native_has_output(n);
}

/* ---- streams ---- */

static bool native_can_open(const struct h2 *h)
{
    const struct native *n = native_of(h);

    return !n->shut && h->n_streams < n->peer_max_streams && n->next_id < LAST_OPEN_ID;
}

static bool is_head_request(const struct h2_field *fields, size_t n)
{
    return n > 0 && fields[0].name_len == 7 && fields[0].value_len == 4 &&
           memcmp(fields[0].value, "HEAD", 4) == 0 && memcmp(fields[0].name, ":method", 7) == 0;
}

/* block: its header block, held; fields: the first of it. */
static struct h2_stream *open_stream(struct native *n, struct hpack_block *block,
                                     const struct h2_field *fields, size_t n_fields, bool end,
                                     void *user)
{
    struct nstream *s = nstream_new(n->shared, &n->base, user);

    s->send_window = n->peer_window;
    s->blocks[0] = block;
    s->n_blocks = 1;
    s->flags = (uint16_t)((end ? STREAM_END_QUEUED : 0) |
                          (is_head_request(fields, n_fields) ? STREAM_HEAD : 0));
    list_push_back(&n->all, &s->all);
    n->base.n_streams++;
    native_ready(n, s);
    return &s->base;
}

static struct h2_stream *native_open(struct h2 *h, const struct h2_field *fields, size_t n_fields,
                                     bool end, void *user)
{
    struct native *n = native_of(h);

    return open_stream(n, hpack_out_hold(&n->hpack_out, fields, n_fields), fields, n_fields, end,
                       user);
}

static struct h2_stream *native_open_set(struct h2 *h, struct h2_set *set,
                                         const struct h2_field *extra, size_t n_extra, bool end,
                                         void *user)
{
    struct native *n = native_of(h);

    return open_stream(n, hpack_out_hold_set(&n->hpack_out, set, extra, n_extra), set->fields,
                       set->n, end, user);
}

static bool takes_output(const struct native *n, const struct nstream *s)
{
    return !n->lost && (s->flags & (STREAM_GONE | STREAM_END_QUEUED)) == 0;
}

/* Takes over the caller's reference to block. */
static void queue_block(struct native *n, struct nstream *s, enum h2_block kind,
                        struct hpack_block *block, bool end)
{
    if (end)
        s->flags |= STREAM_END_QUEUED;
    if (kind == H2_TRAILERS) {
        check(end && s->trailers == NULL);
        s->trailers = block;
    } else {
        check(n->base.role == H2_SERVER);
        check(s->n_blocks < ARRAY_LEN(s->blocks));
        s->blocks[s->n_blocks++] = block;
    }
    native_ready(n, s);
}

/* Of two 1xx blocks that would wait the second is dropped: RFC 9110 15.2 lets us. */
static bool takes_block(const struct native *n, const struct nstream *s, enum h2_block kind)
{
    return takes_output(n, s) && (kind != H2_INFORMATIONAL || s->n_blocks == 0);
}

static void native_send_headers(struct h2_stream *hs, enum h2_block kind,
                                const struct h2_field *fields, size_t n_fields, bool end)
{
    struct native *n = native_of(hs->h2);
    struct nstream *s = nstream_of(hs);

    if (takes_block(n, s, kind))
        queue_block(n, s, kind, hpack_out_hold(&n->hpack_out, fields, n_fields), end);
}

static void native_send_set(struct h2_stream *hs, enum h2_block kind, struct h2_set *set,
                            const struct h2_field *extra, size_t n_extra, bool end)
{
    struct native *n = native_of(hs->h2);
    struct nstream *s = nstream_of(hs);

    if (takes_block(n, s, kind))
        queue_block(n, s, kind, hpack_out_hold_set(&n->hpack_out, set, extra, n_extra), end);
}

/* A short payload may point into its slab until the flush of this turn, when it is copied into the
 * output. One that will have to wait is copied here: it must not pin a large slab. */
static void native_send_data(struct h2_stream *hs, struct slab *slab, const uint8_t *p, size_t len,
                             bool end)
{
    struct native *n = native_of(hs->h2);
    struct nstream *s = nstream_of(hs);
    const bool leaves_now = !n->congested && n->conn_send >= (int64_t)len &&
                            s->send_window >= (int64_t)(s->queued + len);

    if (!takes_output(n, s))
        return;
    if (slab != NULL && (len >= OUTQ_COPY_BELOW || leaves_now))
        nstream_push(s, slab_ref(slab), p, len);
    else
        native_copy(n, s, p, len);
    if (end)
        s->flags |= STREAM_END_QUEUED;
    native_ready(n, s);
}

static size_t native_queued(const struct h2_stream *s)
{
    return nstream_of(s)->queued;
}

static void native_consume(struct h2_stream *hs, size_t bytes)
{
    struct native *n = native_of(hs->h2);
    struct nstream *s = nstream_of(hs);

    if (!n->lost && (s->flags & STREAM_GONE) == 0 && !nstream_recv_ended(s))
        native_credit(n, s, (uint32_t)bytes);
}

static void native_reset(struct h2_stream *hs, uint32_t code)
{
    struct native *n = native_of(hs->h2);
    struct nstream *s = nstream_of(hs);

    if (n->lost || (s->flags & STREAM_GONE) != 0 || s->state == STREAM_CLOSED)
        return; /* closed: we are in the event before its on_close */
    if (code == H2_NO_ERROR && (s->flags & STREAM_END_QUEUED) != 0 && !nstream_send_ended(s)) {
        s->flags |= STREAM_STOP_AFTER;
        return;
    }
    if (s->base.id != 0)
        native_rst(n, s->base.id, code);
    native_detach(n, s, code, false);
}

/* ---- the connection ---- */

static void native_goaway_notice(struct h2 *h)
{
    struct native *n = native_of(h);

    if (!n->lost && h->role == H2_SERVER) /* a client just opens no more streams */
        send_goaway(n, FRAME_MAX_ID, H2_NO_ERROR, NULL);
}

static uint32_t native_last_stream_id(const struct h2 *h)
{
    return native_of(h)->last_peer_id;
}

static void native_goaway(struct h2 *h, uint32_t last_id, uint32_t code, const char *debug)
{
    struct native *n = native_of(h);

    if (n->stopped)
        return;
    n->goaway_sent = n->shut = true;
    send_goaway(n, last_id, code, debug);
    last_id = n->our_last_id;
    if (code != H2_NO_ERROR) {
        n->failed = n->stopped = true;
        h2_set_why(h, "%s: %s", h2_code_name(code), debug != NULL ? debug : "");
    }
    if (h->role == H2_CLIENT)
        return;
    list_each (&n->all, it) {
        struct nstream *s = list_entry(it, struct nstream, all);

        if (s->base.id > last_id && (s->flags & STREAM_GONE) == 0)
            native_detach(n, s, H2_REFUSED_STREAM, false);
    }
}

static void native_ping(struct h2 *h, uint64_t opaque)
{
    struct native *n = native_of(h);
    uint8_t *to;

    if (n->lost)
        return;
    to = native_control(n, FRAME_PING, 0, 0, 8);
    frame_write_u32(frame_write_u32(to, (uint32_t)(opaque >> 32)), (uint32_t)opaque);
}

static unsigned native_sweep(struct h2 *h)
{
    struct native *n = native_of(h);
    unsigned ended = 0;

    /* native_detach moves s from one list to another, not out of `all` */
    list_each (&n->all, it) {
        struct nstream *s = list_entry(it, struct nstream, all);

        if ((s->flags & STREAM_GONE) != 0 || s->base.id == 0 || s->queued == 0) {
            s->flags &= (uint16_t)~STREAM_STILL_TWICE;
        } else if ((s->flags & STREAM_STILL_TWICE) == STREAM_STILL_TWICE) {
            native_rst(n, s->base.id, H2_ENHANCE_YOUR_CALM);
            native_detach(n, s, H2_ENHANCE_YOUR_CALM, false);
            ended++;
        } else {
            s->flags |= (s->flags & STREAM_STILL) != 0 ? STREAM_STILL_TWICE : STREAM_STILL;
        }
    }
    return ended;
}

static void native_stream_window(struct h2 *h, uint32_t bytes)
{
    struct native *n = native_of(h);

    /* one that was shrunk shall not grow on its own */
    n->window_most = bytes < h->limits.stream_window ? bytes : h->limits.stream_window_most;
    native_set_window(n, bytes);
}

static uint64_t native_settings_wait_us(const struct h2 *h)
{
    return native_of(h)->settings_since_us;
}

static uint32_t native_peer_max_streams(const struct h2 *h)
{
    return native_of(h)->peer_max_streams;
}

static bool native_settings_seen(const struct h2 *h)
{
    return native_of(h)->settings_seen;
}

const struct h2_engine h2_engine_native = {
    .name = "native",
    .create = native_create,
    .start = native_start,
    .destroy = native_destroy,
    .recv = native_recv,
    .lost = native_lost,
    .flush = native_flush,
    .wants_flush = native_wants_flush,
    .is_done = native_is_done,
    .open = native_open,
    .open_set = native_open_set,
    .can_open = native_can_open,
    .peer_max_streams = native_peer_max_streams,
    .settings_seen = native_settings_seen,
    .send_headers = native_send_headers,
    .send_set = native_send_set,
    .send_data = native_send_data,
    .queued = native_queued,
    .consume = native_consume,
    .reset = native_reset,
    .goaway_notice = native_goaway_notice,
    .last_stream_id = native_last_stream_id,
    .goaway = native_goaway,
    .ping = native_ping,
    .stream_window = native_stream_window,
    .settings_wait_us = native_settings_wait_us,
    .sweep = native_sweep,
};
