/* The other frames that come as a whole: PRIORITY, RST_STREAM, SETTINGS, PING, GOAWAY,
 * WINDOW_UPDATE. */
#include <string.h>

#include "base/check.h"
#include "net/h2_native.h"

#define MAX_SETTINGS 32u /* entries of a frame */

int native_on_priority(struct native *n, const struct frame *f, const uint8_t *p)
{
    if ((frame_read_u32(p) & FRAME_MAX_ID) == f->id)
        return native_fail(n, H2_PROTOCOL_ERROR, "stream depends on itself");
    return native_pay_frame(n, COST_LIGHT);
}

int native_on_rst(struct native *n, const struct frame *f, const uint8_t *p)
{
    struct nstream *s = nstream_table_find(&n->table, f->id);
    bool served;

    if (s == NULL && native_is_idle(n, f->id))
        return native_fail(n, H2_PROTOCOL_ERROR, "RST_STREAM on an idle stream");
    if (s == NULL && nstream_grave(&n->graves, f->id) == STREAM_END_BY_US) {
        nstream_bury(&n->graves, f->id, STREAM_END_BY_PEER); /* from here on nothing can have */
        return 0;                                            /* it crossed our reset */
    }
    if (s == NULL)
        return native_pay_reset(n);
    /* a call that was served is no attack */
    served = n->base.role == H2_SERVER ? nstream_send_ended(s) : nstream_recv_ended(s);
    native_end(n, s, frame_read_u32(p), true, STREAM_END_BY_PEER);
    return n->lost || served ? 0 : native_pay_reset(n);
}

static int take_setting(struct native *n, uint16_t id, uint32_t value)
{
    enum h2_code code;
    const char *wrong = frame_check_setting(n->base.role, id, value, &code);

    if (wrong != NULL)
        return native_fail(n, code, wrong);
    switch (id) {
    case SETTING_HEADER_TABLE_SIZE:
        hpack_out_set_table(&n->hpack_out, value);
        return 0;
    case SETTING_MAX_CONCURRENT_STREAMS:
        n->peer_max_streams = value;
        return 0;
    case SETTING_INITIAL_WINDOW_SIZE:
        return native_change_windows(n, (int32_t)value);
    default: /* what we send fits the least MAX_FRAME_SIZE; the others bind nobody here */
        return 0;
    }
}

int native_on_settings(struct native *n, const struct frame *f, const uint8_t *p, size_t len)
{
    int err;

    if ((f->flags & FRAME_ACK) != 0)
        return native_on_settings_ack(n);
    if (len / 6 > MAX_SETTINGS)
        return native_calm(n, H2_FAULT_FRAMES, "too many settings in a frame");
    if (!n->settings_seen)
        n->peer_max_streams = UINT32_MAX; /* unless it names a limit */
    for (size_t i = 0; i < len; i += 6) {
        err = take_setting(n, (uint16_t)(p[i] << 8 | p[i + 1]), frame_read_u32(p + i + 2));
        if (err != 0)
            return err;
    }
    err = native_pay_frame(n, n->settings_seen ? COST_SETTINGS : COST_LIGHT);
    if (err == 0)
        err = native_pay_answer(n);
    if (err != 0)
        return err;
    n->settings_seen = true;
    native_control(n, FRAME_SETTINGS, FRAME_ACK, 0, 0);
    if (n->base.events.on_settings != NULL)
        n->base.events.on_settings(n->base.user);
    return 0;
}

int native_on_ping(struct native *n, const struct frame *f, const uint8_t *p)
{
    int err;

    if ((f->flags & FRAME_ACK) != 0) {
        const uint64_t opaque = (uint64_t)frame_read_u32(p) << 32 | frame_read_u32(p + 4);

        if (native_is_probe(n, opaque)) {
            native_on_probe_ack(n);
            return 0;
        }
        if (n->base.events.on_ping_ack != NULL)
            n->base.events.on_ping_ack(n->base.user, opaque);
        return n->lost ? 0 : native_pay_frame(n, COST_LIGHT);
    }
    if (h2_is_spent(&n->base, budget_take_ping(&n->base.budget, &n->base.limits, n->base.n_streams,
                                               h2_now(&n->base))))
        return native_calm(n, H2_FAULT_PINGS, "too_many_pings");
    err = native_pay_frame(n, COST_ANSWERED);
    if (err == 0)
        err = native_pay_answer(n);
    if (err == 0)
        memcpy(native_control(n, FRAME_PING, FRAME_ACK, 0, 8), p, 8);
    return err;
}

int native_on_goaway(struct native *n, const uint8_t *p, size_t len)
{
    const uint32_t last = frame_read_u32(p) & FRAME_MAX_ID, code = frame_read_u32(p + 4);

    if (last > n->goaway_last_id)
        return native_fail(n, H2_PROTOCOL_ERROR, "GOAWAY lifts its last stream id");
    n->goaway_last_id = last;
    n->base.saw_goaway = n->shut = true;
    if (n->base.events.on_goaway != NULL)
        n->base.events.on_goaway(n->base.user, last, code, p + 8, len - 8);
    if (n->lost)
        return 0;
    if (n->base.role == H2_CLIENT) {
        /* native_detach moves s from one list to another, not out of `all` */
        list_each (&n->all, it) {
            struct nstream *s = list_entry(it, struct nstream, all);

            if ((s->flags & STREAM_GONE) == 0 && (s->base.id == 0 || s->base.id > last))
                native_detach(n, s, H2_REFUSED_STREAM, true);
        }
    }
    native_dirty(n); /* it may be done */
    return native_pay_frame(n, COST_LIGHT);
}

/* RFC 9113 6.9 lets a zero end the stream only; then it would be a way to make us reset. */
int native_on_window_update(struct native *n, const struct frame *f, const uint8_t *p)
{
    const uint32_t by = frame_read_u32(p) & FRAME_MAX_ID;
    struct nstream *s = NULL;

    if (f->id != 0) {
        s = nstream_table_find(&n->table, f->id);
        if (s == NULL && native_is_idle(n, f->id))
            return native_fail(n, H2_PROTOCOL_ERROR, "WINDOW_UPDATE on an idle stream");
    }
    if (by == 0) /* also on a stream that has just ended: the peer did not know */
        return native_fail(n, H2_PROTOCOL_ERROR, "WINDOW_UPDATE of zero");
    if (f->id != 0 && s == NULL)
        return native_pay_frame(n, COST_LIGHT); /* it crossed the end of the stream */
    if (s == NULL) {
        if (n->conn_send + by > FRAME_MAX_WINDOW)
            return native_fail(n, H2_FLOW_CONTROL_ERROR, "connection window over 2^31-1");
        n->conn_send += by;
        while (n->conn_send > 0 && !list_is_empty(&n->stalled))
            native_ready(n, list_entry(list_pop_front(&n->stalled), struct nstream, node));
        return native_pay_frame(n, COST_LIGHT);
    }
    if (s->send_window + (int64_t)by > FRAME_MAX_WINDOW)
        return native_stream_broken(n, s, f->id, H2_FLOW_CONTROL_ERROR);
    s->send_window = (int32_t)(s->send_window + (int64_t)by);
    native_ready(n, s);
    return native_pay_frame(n, COST_LIGHT);
}
