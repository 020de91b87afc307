/* Bytes out: control frames, and the flush that turns what waits on streams into frames. */
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/xalloc.h"
#include "net/h2_native.h"

#define CONTROL_KEEP 256u /* bytes of the control buffer that an idle connection keeps */

/* ---- control frames ---- */

uint8_t *native_control(struct native *n, enum frame_type type, unsigned flags, uint32_t id,
                        size_t len)
{
    const size_t need = n->n_control + FRAME_HEAD_BYTES + len;
    uint8_t *to;

    if (need > n->cap_control) {
        n->cap_control = (uint32_t)(need < 128 ? 128 : 2 * need);
        n->control = xrealloc(n->control, 1, n->cap_control);
    }
    to = frame_write(n->control + n->n_control, len, type, flags, id);
    n->n_control = (uint32_t)need;
    native_dirty(n);
    return to;
}

void native_rst(struct native *n, uint32_t id, uint32_t code)
{
    frame_write_u32(native_control(n, FRAME_RST_STREAM, 0, id, 4), code);
}

void native_window_update(struct native *n, uint32_t id, uint32_t bytes)
{
    frame_write_u32(native_control(n, FRAME_WINDOW_UPDATE, 0, id, 4), bytes);
}

static void put_control(struct native *n, struct outq *out, size_t high_water)
{
    if (n->n_control == 0 || out->bytes >= CONTROL_FACTOR * high_water)
        return;
    outq_copy(out, n->control, n->n_control);
    n->n_control = 0;
    n->base.n_answers_out = n->base.n_answers;
    if (n->cap_control > CONTROL_KEEP || n->base.n_streams == 0) {
        free(n->control);
        n->control = NULL;
        n->cap_control = 0;
    }
}

/* ---- which streams have something that may leave ---- */

static bool wants_bytes(const struct nstream *s)
{
    return s->queued > 0;
}

/* END_STREAM, trailers and headers need no window. */
static bool wants_frame(const struct nstream *s)
{
    return s->n_blocks > 0 ||
           (s->queued == 0 && (s->flags & STREAM_END_QUEUED) != 0 && !nstream_send_ended(s));
}

void native_ready(struct native *n, struct nstream *s)
{
    if (list_is_linked(&s->node))
        return;
    if (!wants_frame(s)) {
        if (!wants_bytes(s) || s->send_window <= 0)
            return;
        if (n->conn_send <= 0) {
            list_push_back(&n->stalled, &s->node);
            return;
        }
    }
    list_push_back(&n->ready, &s->node);
    native_dirty(n);
}

bool native_has_output(const struct native *n)
{
    return !list_is_empty(&n->gone) ||
           (!n->lost && (n->n_control > 0 || (!n->failed && !list_is_empty(&n->ready))));
}

/* ---- payload that waits ---- */

/* Makes n->copy have room: for len bytes when that is little, else for one at least. */
static void copy_room(struct native *n, size_t len)
{
    const size_t want = len < OUTQ_COPY_BELOW ? len : 1;

    if (n->copy != NULL && n->copy->cap - n->copy_used >= want)
        return;
    slab_unref(n->copy);
    n->copy = slab_get(n->base.pool, len > SLAB_SMALL_BYTES ? SLAB_LARGE_BYTES : SLAB_SMALL_BYTES);
    n->copy_used = 0;
}

void native_copy(struct native *n, struct nstream *s, const uint8_t *p, size_t len)
{
    while (len > 0) {
        size_t take;

        copy_room(n, len);
        take = n->copy->cap - n->copy_used;
        take = len < take ? len : take;
        memcpy(n->copy->data + n->copy_used, p, take);
        nstream_push(s, slab_ref(n->copy), n->copy->data + n->copy_used, take);
        n->copy_used += (uint32_t)take;
        p += take;
        len -= take;
    }
}

/* What was to leave in this flush stays: short pieces give up their slabs. */
static void copy_short_pieces(struct native *n)
{
    list_each (&n->ready, it) {
        struct nstream *s = list_entry(it, struct nstream, node);

        for (uint32_t i = 0; i < s->n_segs; i++) {
            struct nstream_seg *seg = nstream_piece(s, i);

            if (seg->len >= OUTQ_COPY_BELOW || seg->owner == n->copy)
                continue;
            copy_room(n, seg->len);
            memcpy(n->copy->data + n->copy_used, seg->p, seg->len);
            slab_unref(seg->owner);
            seg->owner = slab_ref(n->copy);
            seg->p = n->copy->data + n->copy_used;
            n->copy_used += (uint32_t)seg->len;
        }
    }
}

/* ---- frames of a stream ---- */

/* Once s has given both ends: what follows END_STREAM. Returns false when s is over. */
static bool after_end_sent(struct native *n, struct nstream *s, struct outq *out)
{
    nstream_end_sent(s);
    if (s->state == STREAM_CLOSED) {
        budget_pay_stream(&n->base.budget);
        native_end(n, s, H2_NO_ERROR, false, STREAM_END_CLEAN);
        return false;
    }
    if ((s->flags & STREAM_STOP_AFTER) != 0) {
        uint8_t *to = outq_put(out, FRAME_HEAD_BYTES + 4);

        frame_write_u32(frame_write(to, 4, FRAME_RST_STREAM, 0, s->base.id), H2_NO_ERROR);
        native_end(n, s, H2_NO_ERROR, false, STREAM_END_BY_US);
        return false;
    }
    return true;
}

static void put_block(struct native *n, struct nstream *s, struct hpack_block *b, bool end,
                      struct outq *out)
{
    uint8_t small[4096], *heap;
    size_t len, take;
    const uint8_t *p = hpack_out_encode(&n->hpack_out, b, small, sizeof(small), &len, &heap);
    enum frame_type type = FRAME_HEADERS;
    unsigned flags = end ? FRAME_END_STREAM : 0;

    do { /* RFC 9113 4.3: the frames of a block stand together */
        take = len < n->peer_frame ? len : n->peer_frame;
        if (take == len)
            flags |= FRAME_END_HEADERS;
        if (take < SLAB_SMALL_BYTES - FRAME_HEAD_BYTES) {
            memcpy(
                frame_write(outq_put(out, FRAME_HEAD_BYTES + take), take, type, flags, s->base.id),
                p, take);
        } else {
            frame_write(outq_put(out, FRAME_HEAD_BYTES), take, type, flags, s->base.id);
            outq_copy(out, p, take);
        }
        p += take;
        len -= take;
        type = FRAME_CONTINUATION;
        flags = 0;
    } while (len > 0);
    free(heap);
    hpack_block_unref(b);
}

/* The blocks before the payload. Returns false when s is over. */
static bool put_blocks(struct native *n, struct nstream *s, struct outq *out)
{
    while (s->n_blocks > 0) {
        struct hpack_block *b = s->blocks[0];
        const bool end = s->n_blocks == 1 && (s->flags & STREAM_END_QUEUED) != 0 &&
                         s->queued == 0 && s->trailers == NULL;

        s->blocks[0] = s->blocks[1];
        s->n_blocks--;
        put_block(n, s, b, end, out);
        if (end)
            return after_end_sent(n, s, out);
    }
    return true;
}

/* One DATA frame, as the windows allow. Returns false when s must not be touched any more. */
static bool put_data(struct native *n, struct nstream *s, struct outq *out)
{
    const int64_t window = s->send_window < n->conn_send ? s->send_window : n->conn_send;
    size_t take = s->queued < FRAME_PAYLOAD_BYTES ? s->queued : FRAME_PAYLOAD_BYTES;
    bool all, end;

    if (s->queued > 0 && window <= 0)
        return true;
    if ((int64_t)take > window)
        take = window > 0 ? (size_t)window : 0; /* queued is 0 then: an empty frame needs none */
    all = take == s->queued;
    end = all && (s->flags & STREAM_END_QUEUED) != 0 && s->trailers == NULL;
    if (take == 0 && !end)
        return true;
    frame_write(outq_put(out, FRAME_HEAD_BYTES), take, FRAME_DATA, end ? FRAME_END_STREAM : 0,
                s->base.id);
    nstream_move(s, out, take);
    s->send_window -= (int32_t)take;
    n->conn_send -= (int64_t)take;
    s->flags &= (uint16_t)~STREAM_STILL_TWICE;
    if (all || take >= PAY_DATA_BYTES) /* a peer may give windows back for each frame */
        budget_pay_data(&n->base.budget);
    if (take > 0 && n->base.events.on_sent != NULL) {
        n->base.events.on_sent(n->base.user, &s->base, take);
        if (n->lost || (s->flags & STREAM_GONE) != 0)
            return false;
    }
    return !end || after_end_sent(n, s, out);
}

/* ---- all that a stream has, in one piece ---- */

struct whole {
    struct hpack_ready block, trailers;
    bool has_block, has_data, has_trailers, end;
};

static size_t ready_bytes(const struct hpack_ready *r)
{
    return FRAME_HEAD_BYTES + r->run_len + r->literals_len;
}

/* Can all of s leave at once, with blocks that are encoded already and a short payload? */
static bool is_whole(struct native *n, struct nstream *s, struct whole *w)
{
    if (nstream_send_ended(s) || s->n_blocks > 1 || s->queued >= OUTQ_COPY_BELOW ||
        (s->queued > 0 &&
         ((int64_t)s->queued > s->send_window || (int64_t)s->queued > n->conn_send)))
        return false;
    w->has_block = s->n_blocks == 1;
    w->has_trailers = s->trailers != NULL;
    if ((w->has_block && !hpack_out_ready(&n->hpack_out, s->blocks[0], &w->block)) ||
        (w->has_trailers && !hpack_out_ready(&n->hpack_out, s->trailers, &w->trailers)))
        return false;
    w->end = (s->flags & STREAM_END_QUEUED) != 0;
    w->has_data = s->queued > 0 || (w->end && !w->has_block && !w->has_trailers);
    return (w->has_block || w->has_data || w->has_trailers) &&
           (!w->has_block || ready_bytes(&w->block) <= FRAME_PAYLOAD_BYTES / 4) &&
           (!w->has_trailers || ready_bytes(&w->trailers) <= FRAME_PAYLOAD_BYTES / 4);
}

static uint8_t *write_block(uint8_t *to, const struct hpack_ready *r, bool end, uint32_t id)
{
    to = frame_write(to, r->run_len + r->literals_len, FRAME_HEADERS,
                     FRAME_END_HEADERS | (end ? FRAME_END_STREAM : 0), id);
    to = (uint8_t *)memcpy(to, r->run, r->run_len) + r->run_len;
    if (r->literals_len > 0)
        to = (uint8_t *)memcpy(to, r->literals, r->literals_len) + r->literals_len;
    return to;
}

static uint8_t *write_data(uint8_t *to, struct nstream *s, bool end)
{
    to = frame_write(to, s->queued, FRAME_DATA, end ? FRAME_END_STREAM : 0, s->base.id);
    return nstream_take_all(s, to);
}

/* s has left as w says: what that means. */
static void after_whole(struct native *n, struct nstream *s, const struct whole *w, size_t bytes,
                        struct outq *out)
{
    if (w->has_data) {
        s->flags &= (uint16_t)~STREAM_STILL_TWICE;
        budget_pay_data(&n->base.budget);
    }
    if (bytes > 0 && n->base.events.on_sent != NULL) {
        n->base.events.on_sent(n->base.user, &s->base, bytes);
        if (n->lost || (s->flags & STREAM_GONE) != 0)
            return;
    }
    if (!w->end || after_end_sent(n, s, out))
        native_ready(n, s); /* an event may have given more */
}

/* HEADERS, DATA and trailers as one piece of output. Returns false, and has done nothing, when s
 * must leave frame by frame. */
static bool put_whole(struct native *n, struct nstream *s, struct outq *out)
{
    const size_t bytes = s->queued;
    struct whole w;
    uint8_t *to;

    if (!is_whole(n, s, &w))
        return false;
    to = outq_put(out, (w.has_block ? ready_bytes(&w.block) : 0) +
                           (w.has_data ? FRAME_HEAD_BYTES + bytes : 0) +
                           (w.has_trailers ? ready_bytes(&w.trailers) : 0));
    if (w.has_block) {
        to = write_block(to, &w.block, w.end && !w.has_data && !w.has_trailers, s->base.id);
        s->n_blocks = 0;
        hpack_block_unref(s->blocks[0]);
    }
    if (w.has_data) {
        to = write_data(to, s, w.end && !w.has_trailers);
        s->send_window -= (int32_t)bytes;
        n->conn_send -= (int64_t)bytes;
    }
    if (w.has_trailers) {
        write_block(to, &w.trailers, true, s->base.id);
        hpack_block_unref(s->trailers);
        s->trailers = NULL;
    }
    after_whole(n, s, &w, bytes, out);
    return true;
}

/* s is off the list. One frame of payload at most: then the next stream's turn. */
static void put_stream(struct native *n, struct nstream *s, struct outq *out)
{
    if (s->base.id == 0) {
        s->base.id = n->next_id;
        n->next_id += 2;
        nstream_table_add(&n->table, s);
    }
    if (put_whole(n, s, out) || !put_blocks(n, s, out))
        return;
    if (!nstream_send_ended(s) && !put_data(n, s, out))
        return;
    if (s->queued == 0 && s->trailers != NULL && !nstream_send_ended(s)) {
        struct hpack_block *b = s->trailers;

        s->trailers = NULL;
        put_block(n, s, b, true, out);
        if (!after_end_sent(n, s, out))
            return;
    }
    native_ready(n, s);
}

void native_deliver_gone(struct native *n)
{
    while (!list_is_empty(&n->gone)) {
        struct nstream *s = list_entry(n->gone.next, struct nstream, node);

        native_end(n, s, s->close_code, (s->flags & STREAM_BY_PEER) != 0, STREAM_END_BY_US);
    }
}

void native_flush(struct h2 *h, struct outq *out, size_t high_water)
{
    struct native *n = native_of(h);

    n->told_dirty = false;
    if (n->n_settings_out > 0 && n->settings_since_us == 0)
        n->settings_since_us = h2_now(h);
    native_deliver_gone(n);
    if (n->lost)
        return;
    native_bound_windows(n);
    put_control(n, out, high_water);
    while (!n->stopped && !list_is_empty(&n->ready) && out->bytes < high_water)
        put_stream(n, list_entry(list_pop_front(&n->ready), struct nstream, node), out);
    if (!n->lost)
        put_control(n, out, high_water); /* of what the events above asked for */
    if (list_is_empty(&n->ready)) {
        n->congested = false;
    } else if (!n->congested) {
        n->congested = true;
        copy_short_pieces(n);
    }
    if (n->copy != NULL && n->copy->refs == 1) { /* an idle connection holds no buffer */
        slab_unref(n->copy);
        n->copy = NULL;
    }
}
