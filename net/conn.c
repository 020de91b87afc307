#include "net/conn.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/check.h"
#include "base/xalloc.h"
#include "net/greeting.h"
#include "net/keepalive.h"
#include "net/linger.h"
#include "net/tls.h"

#define CONN_MAGIC 0x636f6e6eu

#define HIGH_WATER                                                                                 \
    (256u * 1024) /* of output: stays in the cache, bounds what a slow peer holds                  \
                   */
#define READ_STOP                                                                                  \
    (3 *                                                                                           \
     HIGH_WATER) /* payload ends at the high water: beyond it are answers to a flood of frames */
#define MAX_IOV           64
#define FLUSH_ROUNDS      4 /* x HIGH_WATER per turn, then the others' turn */
#define HANDSHAKES_A_TURN 2
#define DRAIN_PING        0x70656e73746f636bu /* "penstock" */
#define KEEP_PING         0x6b656570616c6976u /* "keepaliv" */
#define DRAIN_WAIT_US     1000000

enum conn_state { CONN_CONNECTING = 0, CONN_SETUP, CONN_READY, CONN_CLOSING };

struct conn {
    uint32_t magic;
    enum conn_state state;
    enum h2_role role;
    struct loop *loop;
    int fd;
    ev_io readable;
    ev_io writable; /* active only after the socket took less than we had */
    bool blocked;   /* it has not said writable since */
    bool broken;    /* writing is no use any more */
    bool wrote;     /* anything at all */
    bool peer_ended;
    bool first_read_done;
    bool dialled;
    struct greeting greeting; /* of a dialled server */
    bool draining;
    bool idle;    /* the reason for it */
    bool drained; /* the last GOAWAY is on its way: nothing new will be taken */
    struct h2 *h2;
    struct outq out;
    struct tls *tls;    /* NULL: cleartext */
    bool tls_done;      /* its handshake */
    struct outq cipher; /* with TLS: what goes to the socket */
    struct dirty dirty;
    struct dead dead;
    struct timer timer; /* the earliest of the times below; 0: not wanted */
    uint64_t setup_by_us, drain_by_us, block_by_us, sweep_at_us;
    struct keepalive alive;
    uint64_t written_us; /* the socket last took bytes, or all that there were */
    uint64_t n_stalled;
    enum conn_end how;
    struct conn_conf conf;
    struct conn_ops ops;
    void *user;
    sa_family_t family;
    char *peer; /* address text */
    char *why;  /* NULL: it lives */
};

#define HTTP1_TEXT "This port speaks HTTP/2 (gRPC) only.\n"
static const char http1_answer[] = "HTTP/1.1 505 HTTP Version Not Supported\r\n"
                                   "content-type: text/plain\r\nconnection: close\r\n"
                                   "content-length: 37\r\n\r\n" HTTP1_TEXT;
_Static_assert(sizeof(HTTP1_TEXT) - 1 == 37, "content-length above");

void conn_conf_default(struct conn_conf *c)
{
    *c = (struct conn_conf){
        .connect_timeout_us = 3000000,
        .ping_timeout_us = 10000000,
        .block_timeout_us = 10000000,
        .stall_timeout_us = 60000000,
        .settings_ack_us = 60000000,
    };
    h2_limits_default(&c->limits);
}

/* ---- end ---- */

static void conn_fail(struct conn *c, enum conn_end how, const char *fmt, ...) PRINTF_LIKE(3, 4);

/* The first reason stands. Nothing is called back here: the reaping of this turn does it. */
static void conn_fail(struct conn *c, enum conn_end how, const char *fmt, ...)
{
    char why[192];
    va_list ap;

    if (c->state == CONN_CLOSING)
        return;
    va_start(ap, fmt);
    vsnprintf(why, sizeof(why), fmt, ap);
    va_end(ap);
    c->why = xstrdup(why);
    c->how = how;
    c->state = CONN_CLOSING;
    ev_io_stop(c->loop->ev, &c->readable);
    ev_io_stop(c->loop->ev, &c->writable);
    timer_stop(c->loop, &c->timer);
    list_remove(&c->dirty.node);
    loop_bury(c->loop, &c->dead);
}

static void conn_encrypt(struct conn *c);
static void conn_write(struct conn *c);

static void conn_reap(struct dead *d)
{
    struct conn *c = container_of(d, struct conn, dead);

    if (!c->broken && !c->blocked) { /* a GOAWAY, the last trailers or an alert may still go */
        h2_flush(c->h2, &c->out, HIGH_WATER);
        if (c->tls_done) {
            conn_encrypt(c);
            tls_shutdown(c->tls);
        }
        conn_write(c);
    }
    h2_note_why(c->h2, c->why);
    h2_lost(c->h2);
    if (c->ops.on_closed != NULL)
        c->ops.on_closed(c->user, c->why);
    c->h2 = h2_free(c->h2);
    c->tls = tls_free(c->tls);
    outq_fini(&c->out);
    outq_fini(&c->cipher);
    list_remove(&c->dirty.node);
    if (c->fd >= 0 && c->wrote && !c->peer_ended)
        linger_take(c->loop, c->fd);
    else if (c->fd >= 0)
        close(c->fd);
    c->magic = 0;
    free(c->peer);
    free(c->why);
    free(c);
}

/* The engine has ended the connection: by whose fault? */
static enum conn_end conn_fault(const struct conn *c)
{
    static const enum conn_end ends[] = {
        [H2_FAULT_NONE] = CONN_END_US,         [H2_FAULT_PROTOCOL] = CONN_END_PROTOCOL,
        [H2_FAULT_FRAMES] = CONN_END_FRAMES,   [H2_FAULT_RESETS] = CONN_END_RESETS,
        [H2_FAULT_PINGS] = CONN_END_PINGS,     [H2_FAULT_HEADERS] = CONN_END_HEADERS,
        [H2_FAULT_ANSWERS] = CONN_END_ANSWERS,
    };

    return c->idle && h2_fault(c->h2) == H2_FAULT_NONE ? CONN_END_IDLE : ends[h2_fault(c->h2)];
}

/* ---- times ---- */

static uint64_t earlier(uint64_t a, uint64_t b)
{
    return a == 0 || (b != 0 && b < a) ? b : a;
}

static void conn_arm(struct conn *c)
{
    uint64_t at = earlier(c->setup_by_us, c->drain_by_us);

    at = earlier(earlier(at, c->alive.look_us), c->alive.answer_by_us);
    at = earlier(earlier(at, c->block_by_us), c->sweep_at_us);
    if (at == 0 || c->state == CONN_CLOSING)
        timer_stop(c->loop, &c->timer);
    else
        timer_start(c->loop, &c->timer, at);
}

/* How often conn_check_still looks; 0: never. */
static uint64_t conn_sweep_us(const struct conn *c)
{
    return earlier(earlier(c->conf.stall_timeout_us, c->conf.settings_ack_us) / 2,
                   c->conf.idle_timeout_us);
}

static void conn_final_goaway(struct conn *c)
{
    c->drain_by_us = 0;
    c->drained = true;
    h2_goaway(c->h2, H2_NO_ERROR, NULL);
}

/* A frame that is taken as a whole, or a header block, has begun and not ended: it shall in time.
 * The timer is only ever set here, not moved: it looks again when it fires. */
static void conn_note_unfinished(struct conn *c)
{
    const uint64_t since_us = h2_unfinished_us(c->h2);

    if (since_us == 0 || c->block_by_us != 0 || c->conf.block_timeout_us == 0)
        return;
    c->block_by_us = since_us + c->conf.block_timeout_us;
    conn_arm(c);
}

/* Returns false when c ended. */
static bool conn_check_block(struct conn *c, uint64_t now_us)
{
    if (c->block_by_us == 0 || now_us < c->block_by_us)
        return true;
    c->block_by_us = h2_unfinished_us(c->h2);
    if (c->block_by_us != 0)
        c->block_by_us += c->conf.block_timeout_us;
    if (c->block_by_us == 0 || c->block_by_us > now_us)
        return true;
    h2_goaway(c->h2, H2_ENHANCE_YOUR_CALM, "a frame or header block did not end in time");
    conn_fail(c, CONN_END_BLOCK, "a frame or header block did not end in %llu ms",
              (unsigned long long)(c->conf.block_timeout_us / 1000));
    return false;
}

/* What does not move, and who says nothing. Returns false when c ended. */
static bool conn_check_still(struct conn *c, uint64_t now_us)
{
    const uint64_t stall_us = c->conf.stall_timeout_us, idle_us = c->conf.idle_timeout_us;
    const uint64_t ack_us = c->conf.settings_ack_us, asked_us = h2_settings_wait_us(c->h2);

    if (c->sweep_at_us == 0 || now_us < c->sweep_at_us)
        return true;
    c->sweep_at_us = now_us + conn_sweep_us(c);
    if (stall_us != 0 && c->blocked && now_us >= c->written_us + stall_us) {
        c->broken = true;
        conn_fail(c, CONN_END_STALLED, "took none of %zu bytes for %llu ms", conn_out_bytes(c),
                  (unsigned long long)(stall_us / 1000));
        return false;
    }
    if (ack_us != 0 && asked_us != 0 && now_us >= asked_us + ack_us) {
        h2_goaway(c->h2, H2_SETTINGS_TIMEOUT, "SETTINGS were not acknowledged in time");
        conn_fail(c, CONN_END_SETTINGS, "did not acknowledge SETTINGS for %llu ms",
                  (unsigned long long)(ack_us / 1000));
        return false;
    }
    if (stall_us != 0 && h2_n_streams(c->h2) > 0)
        c->n_stalled += h2_sweep_stalled(c->h2);
    if (idle_us != 0 && h2_n_streams(c->h2) == 0 && now_us >= c->alive.heard_us + idle_us &&
        !c->draining) {
        conn_drain(c);
        c->idle = true;
    }
    return true;
}

static void conn_on_timer(struct timer *t)
{
    struct conn *c = container_of(t, struct conn, timer);
    const uint64_t now_us = c->loop->now_us;

    if (c->setup_by_us != 0 && now_us >= c->setup_by_us) {
        conn_fail(c, CONN_END_SETUP, "%s",
                  c->state == CONN_CONNECTING      ? "connect timed out"
                  : c->tls != NULL && !c->tls_done ? "the TLS handshake was not done in time"
                                                   : "no HTTP/2 SETTINGS from the peer in time");
        return;
    }
    if (keepalive_is_dead(&c->alive, now_us)) {
        c->broken = true;
        conn_fail(c, CONN_END_SILENT, "no answer to PING in %llu ms",
                  (unsigned long long)(c->conf.ping_timeout_us / 1000));
        return;
    }
    if (c->drain_by_us != 0 && now_us >= c->drain_by_us)
        conn_final_goaway(c);
    if (!conn_check_block(c, now_us) || !conn_check_still(c, now_us))
        return;
    if (keepalive_asks(&c->alive, h2_n_streams(c->h2), now_us))
        h2_ping(c->h2, KEEP_PING);
    conn_arm(c);
}

/* ---- the engine's events, passed on with the user's pointer ---- */

static struct conn *conn_of(void *user)
{
    return obj_cast(CONN, struct conn, user);
}

static void ev_headers(void *user, struct h2_stream *s, enum h2_block kind,
                       const struct h2_field *fields, size_t n, bool end)
{
    struct conn *c = conn_of(user);

    keepalive_got_news(&c->alive);
    c->ops.h2.on_headers(c->user, s, kind, fields, n, end);
}

static void ev_data(void *user, struct h2_stream *s, struct slab *slab, const uint8_t *p,
                    size_t len, bool end)
{
    struct conn *c = conn_of(user);

    keepalive_got_news(&c->alive);
    c->ops.h2.on_data(c->user, s, slab, p, len, end);
}

static void ev_sent(void *user, struct h2_stream *s, size_t bytes)
{
    struct conn *c = conn_of(user);

    c->ops.h2.on_sent(c->user, s, bytes);
}

static void ev_close(void *user, struct h2_stream *s, uint32_t code, bool by_peer)
{
    struct conn *c = conn_of(user);

    c->ops.h2.on_close(c->user, s, code, by_peer);
}

static void ev_goaway(void *user, uint32_t last_stream_id, uint32_t code, const uint8_t *debug,
                      size_t debug_len)
{
    struct conn *c = conn_of(user);

    if (c->ops.h2.on_goaway != NULL)
        c->ops.h2.on_goaway(c->user, last_stream_id, code, debug, debug_len);
    loop_mark_dirty(c->loop, &c->dirty); /* it may be done now */
}

static void ev_settings(void *user)
{
    struct conn *c = conn_of(user);

    c->setup_by_us = 0;
    conn_arm(c);
    if (c->state == CONN_SETUP) {
        c->state = CONN_READY;
        if (c->ops.on_ready != NULL)
            c->ops.on_ready(c->user);
    }
    if (c->ops.h2.on_settings != NULL)
        c->ops.h2.on_settings(c->user);
}

static void ev_ping_ack(void *user, uint64_t opaque)
{
    struct conn *c = conn_of(user);

    if (opaque == DRAIN_PING && c->drain_by_us != 0) {
        conn_final_goaway(c);
        conn_arm(c);
    } else if (opaque == KEEP_PING && keepalive_answered(&c->alive, c->loop->now_us)) {
        conn_arm(c);
    } else if (c->ops.h2.on_ping_ack != NULL) {
        c->ops.h2.on_ping_ack(c->user, opaque);
    }
}

static void ev_made_reset(void *user)
{
    struct conn *c = conn_of(user);

    c->ops.h2.on_made_reset(c->user);
}

static void ev_dirty(void *user)
{
    struct conn *c = conn_of(user);

    if (c->state != CONN_CLOSING)
        loop_mark_dirty(c->loop, &c->dirty);
}

/* ---- writing ---- */

/* Moves plaintext into records of 16 KiB, gathered: one record per frame would cost three times as
 * much. */
static void conn_encrypt(struct conn *c)
{
    uint8_t record[TLS_RECORD_BYTES];
    struct err err;

    while (c->out.bytes > 0 && c->cipher.bytes < HIGH_WATER) {
        struct iovec iov[MAX_IOV];
        const int n = outq_iov(&c->out, iov, MAX_IOV);
        size_t len = 0;

        for (int i = 0; i < n && len < sizeof(record); i++) {
            const size_t room = sizeof(record) - len;
            const size_t take = iov[i].iov_len < room ? iov[i].iov_len : room;

            memcpy(record + len, iov[i].iov_base, take);
            len += take;
        }
        if (tls_write(c->tls, record, len, &err) != 0) {
            conn_fail(c, CONN_END_TLS, "%s", err.text);
            return;
        }
        outq_sent(&c->out, len);
    }
}

static struct outq *conn_wire(struct conn *c)
{
    return c->tls != NULL ? &c->cipher : &c->out;
}

static void conn_write(struct conn *c)
{
    struct outq *wire = conn_wire(c);
    struct iovec iov[MAX_IOV];
    struct msghdr msg = {.msg_iov = iov};
    size_t want = 0;
    ssize_t n;

    if (wire->bytes == 0)
        return;
    msg.msg_iovlen = (size_t)outq_iov(wire, iov, MAX_IOV);
    for (size_t i = 0; i < msg.msg_iovlen; i++)
        want += iov[i].iov_len;
    do
        n = sendmsg(c->fd, &msg, MSG_NOSIGNAL);
    while (n < 0 && errno == EINTR);
    if (n < 0 && errno != EAGAIN) {
        c->broken = true;
        conn_fail(c, CONN_END_PEER, "write: %s", strerror(errno));
        return;
    }
    if (n > 0) {
        c->wrote = true;
        c->written_us = c->loop->now_us;
        outq_sent(wire, (size_t)n);
    }
    if (n >= 0 && (size_t)n == want)
        return;
    if (!c->blocked)
        c->written_us = c->loop->now_us;
    c->blocked = true;
    if (c->state != CONN_CLOSING)
        ev_io_start(c->loop->ev, &c->writable);
}

/* Everything this turn produced leaves here, in one write when the socket has room. */
static void conn_send(struct conn *c)
{
    for (int round = 0; c->state != CONN_CLOSING; round++) {
        bool nothing;

        h2_flush(c->h2, &c->out, HIGH_WATER);
        if (c->tls_done)
            conn_encrypt(c);
        nothing = conn_wire(c)->bytes == 0;
        if (c->state == CONN_CONNECTING || !c->first_read_done)
            return; /* an accepted peer speaks first: it may not speak HTTP/2 at all */
        if (!c->blocked)
            conn_write(c);
        if (c->blocked || c->state == CONN_CLOSING)
            return;
        if (conn_wire(c)->bytes == 0 && (nothing || !h2_wants_flush(c->h2)))
            break; /* an engine may want to, and yet have nothing that its peer allows */
        if (round + 1 == FLUSH_ROUNDS) {
            loop_mark_dirty(c->loop, &c->dirty);
            return;
        }
    }
    ev_io_stop(c->loop->ev, &c->writable);
    /* To the engine a header block that its peer never finishes is a stream, too; not to us. */
    if (h2_is_done(c->h2) || (c->drained && h2_n_streams(c->h2) == 0))
        conn_fail(c, conn_fault(c), "%s",
                  h2_why_done(c->h2)[0] != '\0' ? h2_why_done(c->h2) : "drained");
}

/* A peer that sends what must be answered, and takes no answers, is not heard until it does: else
 * they would pile up here as fast as it can send. */
static void conn_pace(struct conn *c)
{
    if (c->state == CONN_CONNECTING || c->state == CONN_CLOSING)
        return;
    if (conn_out_bytes(c) >= READ_STOP ||
        (c->blocked && h2_answers_waiting(c->h2) >= c->conf.limits.answers_to_stop))
        ev_io_stop(c->loop->ev, &c->readable);
    else
        ev_io_start(c->loop->ev, &c->readable);
}

static void conn_flush(struct dirty *d)
{
    struct conn *c = container_of(d, struct conn, dirty);

    conn_send(c);
    conn_pace(c);
}

/* ---- reading ---- */

/* What a peer sends first shows whether it is in the right place. Returns false when c ended. */
static bool conn_first_read(struct conn *c, const uint8_t *p, size_t len)
{
    c->first_read_done = true;
    if (c->tls != NULL) {
        if (p[0] == 0x16)
            return true;
        c->broken = true;
        conn_fail(c, CONN_END_STRANGER, "the client speaks cleartext to a TLS port");
        return false;
    }
    if (greeting_is_http1_request(p, len)) {
        c->wrote = send(c->fd, http1_answer, sizeof(http1_answer) - 1, MSG_NOSIGNAL) > 0;
        c->broken = true; /* our SETTINGS must not follow it */
        conn_fail(c, CONN_END_STRANGER, "the client speaks HTTP/1");
        return false;
    }
    if (greeting_is_tls_hello(p, len)) {
        c->broken = true;
        conn_fail(c, CONN_END_STRANGER, "the client speaks TLS to a cleartext port");
        return false;
    }
    loop_mark_dirty(c->loop, &c->dirty);
    return true;
}

/* Called with what a dialled server says before its SETTINGS. False: c ended. */
static bool conn_judge_greeting(struct conn *c, const uint8_t *p, size_t len)
{
    const char *stranger = greeting_of_server(&c->greeting, p, len);

    if (stranger == NULL)
        return true;
    c->broken = true; /* a GOAWAY would say nothing to it */
    conn_fail(c, CONN_END_STRANGER, "%s", stranger);
    return false;
}

static void conn_take(struct conn *c, struct slab *slab, const uint8_t *p, size_t len)
{
    struct err err;

    loop_read_taken(c->loop, len);
    if (c->dialled && c->setup_by_us != 0 && !conn_judge_greeting(c, p, len))
        return;
    if (h2_recv(c->h2, slab, p, len, &err) != 0) {
        conn_fail(c, conn_fault(c), "%s", err.text);
        return;
    }
    if (h2_is_strained(c->h2))
        conn_drain(c);
    conn_note_unfinished(c);
}

static void conn_secured(struct conn *c);

/* All that was fed is used up here: nothing decrypted may wait inside the TLS library. */
static void conn_decrypt(struct conn *c)
{
    struct err err;
    ssize_t n;

    do {
        struct slab *slab;
        size_t room, used = 0;
        uint8_t *p = loop_read_room(c->loop, &slab, &room);

        while ((n = tls_read(c->tls, p + used, room - used, &err)) > 0) {
            used += (size_t)n;
            if (used == room)
                break;
        }
        if (used > 0)
            conn_take(c, slab, p, used);
    } while (n > 0 && c->state != CONN_CLOSING);
    if (n == 0)
        conn_fail(c, CONN_END_PEER, "closed by the peer");
    else if (n != -EAGAIN && n < 0)
        conn_fail(c, CONN_END_TLS, "%s", err.text);
    if (c->cipher.bytes > 0 && c->state != CONN_CLOSING)
        loop_mark_dirty(c->loop, &c->dirty); /* key update, tickets */
}

static void conn_handshake(struct conn *c)
{
    struct err err;
    const int r = tls_handshake(c->tls, &err);

    if (r < 0) {
        conn_fail(c, CONN_END_TLS, "%s", err.text);
        return;
    }
    loop_mark_dirty(c->loop, &c->dirty);
    if (r == 1)
        conn_secured(c);
}

static void conn_take_cipher(struct conn *c, const uint8_t *p, size_t len)
{
    tls_feed(c->tls, p, len);
    if (!c->tls_done)
        conn_handshake(c);
    if (c->tls_done && c->state != CONN_CLOSING)
        conn_decrypt(c);
}

/* One read per readiness. Ciphertext has a place of its own that nobody keeps. */
static uint8_t *conn_read_room(struct conn *c, struct slab **ret_slab, size_t *ret_room)
{
    struct loop *l = c->loop;

    if (c->tls == NULL)
        return loop_read_room(l, ret_slab, ret_room);
    if (l->cipher_slab == NULL)
        l->cipher_slab = slab_get(&l->slabs, SLAB_LARGE_BYTES);
    *ret_slab = l->cipher_slab;
    *ret_room = l->cipher_slab->cap;
    return l->cipher_slab->data;
}

static void conn_read(struct conn *c)
{
    struct slab *slab;
    size_t room;
    uint8_t *p = conn_read_room(c, &slab, &room);
    ssize_t n;

    do
        n = read(c->fd, p, room);
    while (n < 0 && errno == EINTR);
    if (n < 0 && errno == EAGAIN)
        return;
    if (n <= 0) {
        c->broken = n < 0;
        c->peer_ended = true;
        conn_fail(c, CONN_END_PEER, "%s", n == 0 ? "closed by the peer" : strerror(errno));
        return;
    }
    keepalive_heard(&c->alive, c->loop->now_us);
    if (!c->first_read_done && !conn_first_read(c, p, (size_t)n))
        return;
    if (c->tls != NULL)
        conn_take_cipher(c, p, (size_t)n);
    else
        conn_take(c, slab, p, (size_t)n);
    loop_flush_early(c->loop);
}

/* A handshake costs a third of a millisecond, hundreds of calls: when many come at once, each turn
 * of the loop takes its share, so that calls of others are not held up by more than that. */
static bool conn_may_shake_hands(struct conn *c)
{
    return c->tls == NULL || c->tls_done || c->loop->handshakes_begun++ < HANDSHAKES_A_TURN;
}

static void conn_on_readable(struct ev_loop *ev, ev_io *w, int revents)
{
    struct conn *const c = container_of(w, struct conn, readable);

    (void)ev;
    (void)revents;
    if (conn_may_shake_hands(c))
        conn_read(c); /* else it is still readable in the next turn */
}

/* ---- start ---- */

/* A dialled connection may open streams now. */
static void conn_dialled(struct conn *c)
{
    c->state = CONN_READY;
    keepalive_start(&c->alive, c->conf.ping_after_us, c->conf.ping_timeout_us, c->loop->now_us);
    c->sweep_at_us = conn_sweep_us(c) != 0 ? c->loop->now_us + conn_sweep_us(c) : 0;
    conn_arm(c);
    if (c->ops.on_ready != NULL)
        c->ops.on_ready(c->user);
}

static void conn_secured(struct conn *c)
{
    c->tls_done = true;
    if (!tls_ctx_is_server(c->conf.tls))
        conn_dialled(c);
    else if (c->ops.on_secured != NULL)
        c->ops.on_secured(c->user);
}

static void conn_connected(struct conn *c)
{
    net_tune_socket(c->fd, c->family);
    c->first_read_done = true;
    if (c->conf.settings_timeout_us != 0)
        c->setup_by_us = c->loop->now_us + c->conf.settings_timeout_us;
    ev_io_start(c->loop->ev, &c->readable);
    loop_mark_dirty(c->loop, &c->dirty);
    if (c->tls != NULL) {
        c->state = CONN_SETUP;
        conn_handshake(c);
    } else {
        conn_dialled(c);
    }
}

static void conn_on_writable(struct ev_loop *ev, ev_io *w, int revents)
{
    struct conn *c = container_of(w, struct conn, writable);
    int error = 0;
    socklen_t len = sizeof(error);

    (void)revents;
    if (c->state != CONN_CONNECTING) {
        c->blocked = false;
        loop_mark_dirty(c->loop, &c->dirty);
        return;
    }
    ev_io_stop(ev, w);
    if (getsockopt(c->fd, SOL_SOCKET, SO_ERROR, &error, &len) != 0)
        error = errno;
    if (error != 0) {
        c->broken = true;
        conn_fail(c, CONN_END_PEER, "connect: %s", strerror(error));
    } else {
        conn_connected(c);
    }
}

static struct conn *conn_new(struct loop *l, int fd, enum h2_role role,
                             const struct conn_conf *conf, const struct conn_ops *ops, void *user)
{
    struct conn *c = xcalloc(1, sizeof(*c));
    const struct h2_events events = {
        .on_headers = ops->h2.on_headers != NULL ? ev_headers : NULL,
        .on_data = ops->h2.on_data != NULL ? ev_data : NULL,
        .on_sent = ops->h2.on_sent != NULL ? ev_sent : NULL,
        .on_close = ops->h2.on_close != NULL ? ev_close : NULL,
        .on_goaway = ev_goaway,
        .on_settings = ev_settings,
        .on_ping_ack = ev_ping_ack,
        .on_made_reset = ops->h2.on_made_reset != NULL ? ev_made_reset : NULL,
        .on_dirty = ev_dirty,
    };

    c->magic = CONN_MAGIC;
    c->loop = l;
    c->role = role;
    c->fd = fd;
    c->conf = *conf;
    c->ops = *ops;
    c->user = user;
    c->dirty.flush = conn_flush;
    c->dead.reap = conn_reap;
    c->timer.fire = conn_on_timer;
    outq_init(&c->out, &l->slabs);
    outq_init(&c->cipher, &l->slabs);
    ev_io_init(&c->readable, conn_on_readable, fd, EV_READ);
    ev_io_init(&c->writable, conn_on_writable, fd, EV_WRITE);
    c->setup_by_us = l->now_us + conf->connect_timeout_us;
    conn_arm(c);
    c->h2 = h2_new(conf->engine, role, &conf->limits, &events, c, &l->slabs);
    h2_set_clock(c->h2, &c->loop->now_us);
    return c;
}

static void conn_set_peer(struct conn *c, const struct net_addr *addr)
{
    c->family = addr->sa.ss_family;
    c->peer = xstrdup(addr->text);
}

struct conn *conn_accept(struct loop *l, int fd, const struct net_addr *peer,
                         const struct conn_conf *conf, const struct conn_ops *ops, void *user)
{
    struct conn *c = conn_new(l, fd, H2_SERVER, conf, ops, user);
    struct net_addr asked;

    if (conf->tls != NULL)
        c->tls = tls_new(conf->tls, NULL, &c->cipher);
    if (peer == NULL)
        net_addr_of_peer(fd, &asked);
    conn_set_peer(c, peer != NULL ? peer : &asked);
    c->state = CONN_SETUP;
    keepalive_start(&c->alive, conf->ping_after_us, conf->ping_timeout_us, l->now_us);
    c->sweep_at_us = conn_sweep_us(c) != 0 ? l->now_us + conn_sweep_us(c) : 0;
    ev_io_start(l->ev, &c->readable);
    return c;
}

/* Never fails at once: what goes wrong comes as on_closed in this turn. */
struct conn *conn_dial(struct loop *l, const struct net_addr *addr, const struct conn_conf *conf,
                       const struct conn_ops *ops, void *user)
{
    const int fd = socket(addr->sa.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    const int fd_errno = errno;
    struct conn *c = conn_new(l, fd, H2_CLIENT, conf, ops, user);
    int r;

    c->dialled = true;
    conn_set_peer(c, addr);
    if (conf->tls != NULL) {
        char host[sizeof(addr->text)];

        net_addr_host(addr, host, sizeof(host));
        c->tls = tls_new(conf->tls, conf->tls_host != NULL ? conf->tls_host : host, &c->cipher);
    }
    if (fd < 0) {
        c->broken = true;
        conn_fail(c, CONN_END_PEER, "socket: %s", strerror(fd_errno));
        return c;
    }
    do
        r = connect(fd, (const struct sockaddr *)&addr->sa, addr->sa_len);
    while (r != 0 && errno == EINTR);
    if (r != 0 && errno != EINPROGRESS) {
        c->broken = true;
        conn_fail(c, CONN_END_PEER, "connect: %s", strerror(errno));
        return c;
    }
    ev_io_start(l->ev,
                &c->writable); /* also when connected at once: on_ready is never called here */
    return c;
}

/* ---- the rest ---- */

struct h2 *conn_h2(struct conn *c)
{
    return c->h2;
}

bool conn_is_ready(const struct conn *c)
{
    return c->state == CONN_READY;
}

const char *conn_peer(const struct conn *c)
{
    return c->peer;
}

void conn_drain(struct conn *c)
{
    if (c->draining || c->state == CONN_CLOSING)
        return;
    c->draining = true;
    if (c->state != CONN_READY) {
        conn_fail(c, CONN_END_US, "drained");
        return;
    }
    if (c->role == H2_CLIENT) { /* we open no more streams: nothing can be on its way */
        conn_final_goaway(c);
        return;
    }
    h2_goaway_notice(c->h2);
    h2_ping(c->h2, DRAIN_PING);
    c->drain_by_us = c->loop->now_us + DRAIN_WAIT_US;
    conn_arm(c);
}

void conn_close(struct conn *c, const char *why)
{
    if (c->state == CONN_READY && !c->broken)
        h2_goaway(c->h2, H2_NO_ERROR, NULL);
    conn_fail(c, CONN_END_US, "%s", why);
}

void conn_expel(struct conn *c, enum conn_end how, const char *why)
{
    if (c->state == CONN_READY && !c->broken)
        h2_goaway(c->h2, H2_ENHANCE_YOUR_CALM, why);
    conn_fail(c, how, "%s", why);
}

enum conn_end conn_how_ended(const struct conn *c)
{
    return c->how;
}

uint64_t conn_streams_stalled(const struct conn *c)
{
    return c->n_stalled;
}

size_t conn_out_bytes(const struct conn *c)
{
    return c->out.bytes + c->cipher.bytes;
}

bool conn_has_spoken(const struct conn *c)
{
    uint8_t byte;

    return c->first_read_done || recv(c->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) > 0;
}

const void *conn_identity(const struct conn *c)
{
    return c->tls_done ? tls_identity(c->tls) : NULL;
}

bool conn_was_resumed(const struct conn *c)
{
    return c->tls_done && tls_was_resumed(c->tls);
}

const char *conn_peer_name(struct conn *c)
{
    return c->tls_done ? tls_peer_name(c->tls) : "";
}
