/* Bytes in: the preface, frames cut out of any pieces, DATA, and who reads the other types. */
#include <errno.h>
#include <string.h>

#include "base/check.h"
#include "net/h2_native.h"

#define MAX_WHOLE_BYTES (128u * 1024) /* of a frame or header block that is gathered */
#define MAX_EMPTY_DATA  1000u         /* in a row, without END_STREAM; CVE-2019-9518 */

/* ---- what rules cost when broken ---- */

int native_pay_frame(struct native *n, enum budget_cost cost)
{
    struct h2 *h = &n->base;

    return h2_is_spent(h, budget_take_frame(&h->budget, &h->limits, cost, h2_now(h)))
               ? native_calm(n, H2_FAULT_FRAMES, "too many frames that carry nothing")
               : 0;
}

/* A stream ended early by the peer's doing. */
int native_pay_reset(struct native *n)
{
    struct h2 *h = &n->base;

    if (h->role == H2_CLIENT) { /* a server that resets is the business of outlier detection */
        h2_is_spent(h, budget_take_server_reset(&h->budget, h2_now(h)));
        return 0;
    }
    return h2_is_spent(h, budget_take_reset(&h->budget, &h->limits, h2_now(h)))
               ? native_calm(n, H2_FAULT_RESETS, "too many streams reset")
               : 0;
}

int native_pay_answer(struct native *n)
{
    return ++n->base.n_answers > n->base.limits.answers_to_end
               ? native_calm(n, H2_FAULT_ANSWERS, "too many answers wait for the peer")
               : 0;
}

/* The peer broke a rule on stream id (s, or NULL when we know none). */
int native_stream_broken(struct native *n, struct nstream *s, uint32_t id, enum h2_code code)
{
    native_rst(n, id, code);
    if (s != NULL)
        native_detach(n, s, code, false);
    else
        nstream_bury(&n->graves, id, STREAM_END_BY_US);
    h2_tell_made_reset(&n->base);
    return native_pay_reset(n) != 0 ? -EPROTO : native_pay_answer(n);
}

/* Has the id of a stream frame been in use? RFC 9113 5.1.1. */
bool native_is_idle(const struct native *n, uint32_t id)
{
    if (n->base.role == H2_CLIENT)
        return (id & 1) == 0 || id >= n->next_id; /* even: would be pushed, and none is */
    return (id & 1) == 0 || id > n->last_peer_id;
}

/* ---- what an END_STREAM from the peer does ---- */

/* The event that told of it has returned. s may be over on both sides now. */
void native_after_end_recv(struct native *n, struct nstream *s)
{
    if (n->lost || (s->flags & STREAM_GONE) != 0 || s->state != STREAM_CLOSED)
        return;
    budget_pay_stream(&n->base.budget);
    native_end(n, s, H2_NO_ERROR, false, STREAM_END_CLEAN);
}

/* A frame other than DATA, with its whole payload. */
static int on_frame(struct native *n, const struct frame *f, const uint8_t *p)
{
    switch (f->type) {
    case FRAME_HEADERS:
        return native_on_headers(n, f, p, f->len);
    case FRAME_CONTINUATION:
        return native_on_continuation(n, f, p, f->len);
    case FRAME_PRIORITY:
        return native_on_priority(n, f, p);
    case FRAME_RST_STREAM:
        return native_on_rst(n, f, p);
    case FRAME_SETTINGS:
        return native_on_settings(n, f, p, f->len);
    case FRAME_PING:
        return native_on_ping(n, f, p);
    case FRAME_GOAWAY:
        return native_on_goaway(n, p, f->len);
    case FRAME_WINDOW_UPDATE:
        return native_on_window_update(n, f, p);
    default:
        return native_fail(n, H2_PROTOCOL_ERROR, "PUSH_PROMISE, which nobody may send here");
    }
}

/* ---- DATA ---- */

/* What DATA on an id that is in no table means: RFC 9113 5.1. */
static int data_on_closed(struct native *n, uint32_t id)
{
    if (native_is_idle(n, id))
        return native_fail(n, H2_PROTOCOL_ERROR, "DATA on an idle stream");
    switch (nstream_grave(&n->graves, id)) {
    case STREAM_END_CLEAN:
        return native_fail(n, H2_STREAM_CLOSED, "DATA on a closed stream");
    case STREAM_END_BY_PEER:
        return native_stream_broken(n, NULL, id, H2_STREAM_CLOSED);
    default: /* it crossed our reset; from a client, short ones come in no great number so */
        return n->frame.len < (n->base.role == H2_SERVER ? PAY_DATA_BYTES : 1)
                   ? native_pay_frame(n, COST_LIGHT)
                   : 0;
    }
}

/* The payload of the DATA frame is known to be so long, padding apart: n->in becomes IN_DATA, or
 * IN_SKIP when the stream ended by it. */
static int judge_payload(struct native *n, struct nstream *s, uint32_t payload)
{
    const bool end = (n->frame.flags & FRAME_END_STREAM) != 0;

    n->in = IN_SKIP;
    if (payload == 0 && !end) {
        if (++n->n_empty_data > MAX_EMPTY_DATA)
            return native_calm(n, H2_FAULT_FRAMES, "empty DATA frames");
        if (native_pay_frame(n, COST_LIGHT) != 0)
            return -EPROTO;
    } else {
        n->n_empty_data = 0;
    }
    if (s->content_left >= 0) {
        if (payload > s->content_left || (end && payload != s->content_left))
            return native_stream_broken(n, s, s->base.id, H2_PROTOCOL_ERROR);
        s->content_left -= payload;
    }
    n->in = IN_DATA;
    return 0;
}

/* Its head has come: whose it is, and whether the windows have room. RFC 9113 6.9.1. */
static int begin_data(struct native *n)
{
    const struct frame *f = &n->frame;
    const struct h2_limits *l = &n->base.limits;
    struct nstream *s = nstream_table_find(&n->table, f->id);

    n->in = IN_SKIP;
    n->pad = 0;
    if (n->conn_owed + f->len > (l->conn_window > 65535 ? l->conn_window : 65535))
        return native_fail(n, H2_FLOW_CONTROL_ERROR, "DATA over the connection window");
    n->conn_owed += f->len;
    if (n->conn_owed >= n->conn_owed_most && n->conn_owed > 0) {
        native_window_update(n, 0, n->conn_owed);
        n->conn_owed = 0;
    }
    if ((f->flags & FRAME_PADDED) != 0 && f->len == 0)
        return native_fail(n, H2_FRAME_SIZE_ERROR, "DATA too short for its padding");
    if ((f->flags & FRAME_PADDED) != 0)
        n->in = IN_PAD_LEN; /* also of DATA that is dropped: RFC 9113 6.1 */
    if (s == NULL)
        return data_on_closed(n, f->id);
    if (nstream_recv_ended(s))
        return native_fail(n, H2_STREAM_CLOSED, "DATA after END_STREAM");
    if (n->base.role == H2_CLIENT && (s->flags & STREAM_RESPONDED) == 0) {
        if ((s->flags & STREAM_GOT_BLOCK) == 0)
            return native_fail(n, H2_PROTOCOL_ERROR, "DATA before HEADERS");
        return native_stream_broken(n, s, f->id, H2_PROTOCOL_ERROR);
    }
    if ((uint64_t)s->recv_used + f->len > n->recv_window)
        return native_stream_broken(n, s, f->id, H2_FLOW_CONTROL_ERROR);
    s->recv_used += f->len;
    return n->in == IN_PAD_LEN ? 0 : judge_payload(n, s, f->len);
}

static int take_pad_len(struct native *n, uint8_t pad)
{
    struct nstream *s = nstream_table_find(&n->table, n->frame.id);

    n->left--;
    if (pad > n->left)
        return native_fail(n, H2_PROTOCOL_ERROR, "DATA: padding over the payload");
    n->pad = pad;
    if (s == NULL) { /* closed before, or reset since its head came */
        n->in = IN_SKIP;
        return 0;
    }
    if (judge_payload(n, s, n->left - pad) != 0)
        return -EPROTO;
    if (n->in == IN_DATA)
        native_credit(n, s, 1u + pad); /* padding is nobody's to consume */
    return 0;
}

/* len bytes of payload; end: the frame, and the stream with it, ends here. */
static void deliver_data(struct native *n, const uint8_t *p, size_t len, bool end)
{
    struct nstream *s = nstream_table_find(&n->table, n->frame.id);

    if (s == NULL)
        return; /* reset since the frame began */
    if (end)
        nstream_end_recv(s);
    if (n->base.events.on_data != NULL)
        n->base.events.on_data(n->base.user, &s->base, n->slab, p, len, end);
    else
        h2_consume(&s->base, len);
    if (end)
        native_after_end_recv(n, s);
}

/* Payload and padding as far as they are here. Returns the bytes used. END_STREAM goes with the
 * last byte of payload when the padding is here as well, else it follows alone. */
static size_t take_data(struct native *n, const uint8_t *p, size_t len)
{
    const size_t payload = n->left - n->pad;
    const size_t take = len < payload ? len : payload;
    const size_t used = len < n->left ? len : n->left;
    const bool end = used == n->left && (n->frame.flags & FRAME_END_STREAM) != 0;

    n->left -= (uint32_t)used;
    if (n->pad > n->left)
        n->pad = n->left;
    if (take > 0 || end)
        deliver_data(n, p, take, end);
    if (n->left == 0)
        n->in = IN_HEAD;
    return used;
}

/* ---- frames ---- */

/* The rules between frames: RFC 9113 3.4, 4.3, 6.10. */
static int judge_order(struct native *n, const struct frame *f)
{
    if (!n->first_frame_seen && (f->type != FRAME_SETTINGS || (f->flags & FRAME_ACK) != 0))
        return native_fail(n, H2_PROTOCOL_ERROR, "the first frame is no SETTINGS");
    n->first_frame_seen = true;
    if (n->block != BLOCK_NONE && (f->type != FRAME_CONTINUATION || f->id != n->block_id))
        return native_fail(n, H2_PROTOCOL_ERROR, "another frame inside a header block");
    if (n->block == BLOCK_NONE && f->type == FRAME_CONTINUATION)
        return native_fail(n, H2_PROTOCOL_ERROR, "CONTINUATION without HEADERS");
    return 0;
}

/* A head has come: n->frame. Says in n->in what its payload is. */
static int begin_frame(struct native *n)
{
    const struct frame *f = &n->frame;
    enum h2_code code;
    const char *wrong;

    if (judge_order(n, f) != 0)
        return -EPROTO;
    wrong = frame_check(f, n->base.limits.max_frame_bytes, &code);
    if (wrong != NULL)
        return native_fail(n, code, wrong);
    n->left = f->len;
    if (f->type == FRAME_DATA) {
        n->whole = true; /* as far as it is taken as a whole: its head */
        return begin_data(n);
    }
    if (f->type > FRAME_CONTINUATION) { /* RFC 9113 4.1: ignored */
        n->in = IN_SKIP;
        return native_pay_frame(n, COST_LIGHT);
    }
    if (n->n_block + f->len > MAX_WHOLE_BYTES && native_shorten_block(n) != 0)
        return -EPROTO;
    if (n->n_block + f->len > MAX_WHOLE_BYTES)
        return native_calm(n, H2_FAULT_HEADERS, "frame or header block has no end");
    n->in = IN_PART;
    return 0;
}

/* Bytes of a frame that is taken as a whole: from p when all is there, else gathered. */
static size_t take_part(struct native *n, const uint8_t *p, size_t len, int *ret_err)
{
    const uint32_t size = n->frame.len;
    const size_t take = len < n->left ? len : n->left;

    if (n->n_part == 0 && take == size) {
        n->in = IN_HEAD;
        *ret_err = on_frame(n, &n->frame, p);
        n->whole |= n->block == BLOCK_NONE;
        return take;
    }
    native_keep_part(n, n->n_block + n->n_part, p, take, n->n_block + size);
    n->n_part += (uint32_t)take;
    n->left -= (uint32_t)take;
    if (n->left == 0) {
        n->in = IN_HEAD;
        n->n_part = 0;
        *ret_err = on_frame(n, &n->frame, n->part->data + n->n_block);
        n->whole |= n->block == BLOCK_NONE;
        if (n->block == BLOCK_NONE)
            native_drop_part(n);
    }
    return take;
}

/* Returns the bytes used. */
static size_t take_head(struct native *n, const uint8_t *p, size_t len, int *ret_err)
{
    size_t take = FRAME_HEAD_BYTES;

    if (n->n_head == 0 && len >= FRAME_HEAD_BYTES) {
        frame_read(&n->frame, p);
    } else {
        take = FRAME_HEAD_BYTES - n->n_head;
        take = len < take ? len : take;
        memcpy(n->head + n->n_head, p, take);
        n->n_head += (uint32_t)take;
        if (n->n_head < FRAME_HEAD_BYTES)
            return take;
        n->n_head = 0;
        frame_read(&n->frame, n->head);
    }
    *ret_err = begin_frame(n);
    return take;
}

static size_t take_magic(struct native *n, const uint8_t *p, size_t len, int *ret_err)
{
    const size_t left = FRAME_MAGIC_BYTES - n->n_head;
    const size_t take = len < left ? len : left;

    if (memcmp(p, &FRAME_MAGIC[n->n_head], take) != 0) {
        *ret_err = native_fail(n, H2_PROTOCOL_ERROR, "no HTTP/2 connection preface");
        return take;
    }
    n->n_head += (uint32_t)take;
    if (n->n_head == FRAME_MAGIC_BYTES) {
        n->n_head = 0;
        n->in = IN_HEAD;
    }
    return take;
}

/* ---- the long run ---- */

/* The payload of a DATA frame without padding, here as a whole, where no rule can be broken.
 * Returns false, and has changed nothing, when begin_data must judge. */
static bool take_plain_data(struct native *n, const struct frame *f, const uint8_t *p)
{
    struct nstream *s = nstream_table_find(&n->table, f->id);
    const uint32_t owed = n->conn_owed + f->len;
    const bool end = (f->flags & FRAME_END_STREAM) != 0;

    if (s == NULL || n->base.events.on_data == NULL || f->len == 0 || s->content_left >= 0 ||
        nstream_recv_ended(s) || owed >= n->conn_owed_most ||
        (uint64_t)s->recv_used + f->len > n->recv_window ||
        (n->base.role == H2_CLIENT && (s->flags & STREAM_RESPONDED) == 0))
        return false;
    n->conn_owed = owed;
    n->n_empty_data = 0;
    s->recv_used += f->len;
    if (end)
        nstream_end_recv(s);
    n->base.events.on_data(n->base.user, &s->base, n->slab, p, f->len, end);
    if (end)
        native_after_end_recv(n, s);
    return true;
}

/* Frames of the kinds that calls are made of, without padding or priority, here as a whole. Returns
 * where the careful way must go on: the first other frame, or p itself. */
static const uint8_t *take_plain(struct native *n, const uint8_t *p, const uint8_t *end)
{
    struct frame f;

    if (n->in != IN_HEAD || n->n_head != 0 || n->block != BLOCK_NONE || !n->first_frame_seen)
        return p;
    while ((size_t)(end - p) >= FRAME_HEAD_BYTES && !n->stopped) {
        const uint8_t *const payload = p + FRAME_HEAD_BYTES;

        frame_read(&f, p);
        if (f.len > (size_t)(end - payload) || f.len > FRAME_PAYLOAD_BYTES ||
            (f.flags & FRAME_PADDED) != 0 || f.type > FRAME_HEADERS ||
            !(f.type == FRAME_DATA ? take_plain_data(n, &f, payload)
                                   : native_take_plain_headers(n, &f, payload)))
            break;
        p = payload + f.len;
    }
    return p;
}

static bool is_unfinished(const struct native *n)
{
    return n->n_head > 0 || n->in == IN_PART || n->block != BLOCK_NONE;
}

/* One step: some bytes of [p, p+len), or none when a frame ends without payload. */
static size_t take_bytes(struct native *n, const uint8_t *p, size_t len, int *ret_err)
{
    size_t take;

    switch (n->in) {
    case IN_MAGIC:
        return take_magic(n, p, len, ret_err);
    case IN_HEAD:
        return take_head(n, p, len, ret_err);
    case IN_PAD_LEN:
        *ret_err = take_pad_len(n, *p);
        return 1;
    case IN_DATA:
        return take_data(n, p, len);
    case IN_PART:
        return take_part(n, p, len, ret_err);
    default: /* IN_SKIP */
        take = len < n->left ? len : n->left;
        n->left -= (uint32_t)take;
        if (n->left == 0)
            n->in = IN_HEAD;
        return take;
    }
}

/* A frame whose head came last needs no byte more: it must not wait for one. */
static bool needs_no_bytes(const struct native *n)
{
    return n->left == 0 && (n->in == IN_DATA || n->in == IN_PART || n->in == IN_SKIP);
}

int native_recv(struct h2 *h, struct slab *slab, const uint8_t *p, size_t len, struct err *err)
{
    struct native *n = native_of(h);
    const uint8_t *const end = p + len;
    int r = 0;

    n->slab = slab;
    n->whole = false;
    for (;;) {
        const uint8_t *const from = p;

        p = take_plain(n, p, end);
        n->whole |= p != from;
        if (r != 0 || n->stopped || (p == end && !needs_no_bytes(n)))
            break;
        p += take_bytes(n, p, (size_t)(end - p), &r);
    }
    n->slab = NULL;
    if (!list_is_empty(&n->gone))
        native_deliver_gone(n);
    h2_note_unfinished(h, n->whole, is_unfinished(n));
    if (n->failed && !n->lost)
        return err_set(err, -EPROTO, "%s", h2_why_done(h));
    return 0;
}
