/* Flow control: the peer's windows as its SETTINGS move them; ours, given back in halves, grown
 * while they are what holds a stream back, and shrunk when the user says so. RFC 9113 5.2 and 6.9.
 *
 * Invariants:
 *  - n->window is what our newest SETTINGS announce; n->recv_window what the peer may act on: the
 *    largest of those it has not acknowledged and the newest it has.
 *  - A stream's window towards us is recv_window - recv_used, and may be negative after a shrink.
 */
#include "base/check.h"
#include "net/h2_native.h"

#define PROBE_PING      0x70656e7374617770u /* opaque of our PINGs that measure */
#define PROBE_REST_MOST 63u /* half windows between measurements that change nothing */

/* A change moves every window, and may make it negative: RFC 9113 6.9.2. */
int native_change_windows(struct native *n, int32_t to)
{
    const int64_t by = (int64_t)to - n->peer_window;

    n->peer_window = to;
    list_each (&n->all, it) {
        struct nstream *s = list_entry(it, struct nstream, all);

        if ((s->flags & STREAM_GONE) != 0)
            continue;
        if (s->send_window + by > FRAME_MAX_WINDOW)
            return native_fail(n, H2_FLOW_CONTROL_ERROR, "SETTINGS lift a window over 2^31-1");
        s->send_window = (int32_t)(s->send_window + by);
        native_ready(n, s);
    }
    return 0;
}

/* ---- ours ---- */

void native_set_window(struct native *n, uint32_t bytes)
{
    uint8_t *to;

    if (n->stopped || bytes == n->window || n->n_settings_out >= MAX_SETTINGS_OUT)
        return;
    n->window = bytes;
    if (bytes > n->recv_window)
        n->recv_window = bytes;
    n->n_settings_out++;
    to = native_control(n, FRAME_SETTINGS, 0, 0, 6);
    to[0] = 0;
    to[1] = SETTING_INITIAL_WINDOW_SIZE;
    frame_write_u32(to + 2, bytes);
}

int native_on_settings_ack(struct native *n)
{
    if (n->n_settings_out == 0)
        return native_fail(n, H2_PROTOCOL_ERROR, "SETTINGS ACK without SETTINGS");
    n->settings_since_us = 0; /* of the next one: from the next flush on */
    if (--n->n_settings_out == 0)
        n->recv_window = n->window;
    return 0;
}

/* How much comes on s in a round trip, that of a PING? A sender that the window holds back sends a
 * window in one, and half of it or more comes from here on. */
static void probe(struct native *n, const struct nstream *s)
{
    uint8_t *to;

    if (n->probe_id != 0 || n->n_settings_out > 0 || n->window >= n->window_most)
        return;
    if (n->probe_rest > 0) {
        n->probe_rest--;
        return;
    }
    n->probe_id = s->base.id;
    n->probe_used = s->recv_used;
    n->probe_credit = 0;
    to = native_control(n, FRAME_PING, 0, 0, 8);
    frame_write_u32(frame_write_u32(to, (uint32_t)(PROBE_PING >> 32)), (uint32_t)PROBE_PING);
}

bool native_is_probe(const struct native *n, uint64_t opaque)
{
    return opaque == PROBE_PING && n->probe_id != 0;
}

void native_on_probe_ack(struct native *n)
{
    const struct nstream *s = nstream_table_find(&n->table, n->probe_id);
    const uint32_t most = n->window_most;
    uint64_t came;

    n->probe_id = 0;
    if (s == NULL)
        return;
    came = (uint64_t)s->recv_used + n->probe_credit - n->probe_used;
    if (came < n->window / 2 - n->window / 16) {
        n->probe_skip = n->probe_skip * 2 + 1;
        if (n->probe_skip > PROBE_REST_MOST)
            n->probe_skip = PROBE_REST_MOST;
        n->probe_rest = n->probe_skip;
        return;
    }
    n->probe_skip = 0;
    if ((uint64_t)n->window * 2 * n->base.n_streams <= most)
        native_set_window(n, n->window * 2);
}

/* Grown windows are for few streams: all of them together stay within the most of one. */
void native_bound_windows(struct native *n)
{
    const uint32_t least = n->base.limits.stream_window;

    if (n->window > least && (uint64_t)n->window * n->base.n_streams > n->window_most)
        native_set_window(n, least);
}

void native_credit(struct native *n, struct nstream *s, uint32_t bytes)
{
    s->recv_owed += bytes;
    check(s->recv_owed <= s->recv_used);
    if (s->recv_owed == 0 || s->recv_owed < n->window / 2)
        return;
    native_window_update(n, s->base.id, s->recv_owed);
    s->recv_used -= s->recv_owed;
    if (s->base.id == n->probe_id)
        n->probe_credit += s->recv_owed;
    s->recv_owed = 0;
    probe(n, s);
}
