#include "net/grpc_client.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/xalloc.h"
#include "net/grpc_message.h"

#define CALL_MAGIC 0x6763616cu

#define DEFAULT_MAX_MESSAGE (64u * 1024 * 1024)
#define MAX_METADATA        56
#define OWN_FIELDS          8
#define MAX_STATUS_TEXT     1024 /* of a decoded grpc-message */

enum {
    CF_WAITING = 1 << 0, /* for a connection; messages gather in early */
    CF_OPEN = 1 << 1,
    CF_HALF_CLOSED = 1 << 2, /* our last message was given */
    CF_PAUSED = 1 << 3,
    CF_FULL = 1 << 4,   /* on_writable is owed */
    CF_ENDING = 1 << 5, /* end_* is set: on_end comes in the flush phase */
    CF_OVER = 1 << 6,   /* on_end was called, or the user left */
};

struct grpc_call {
    uint32_t magic;
    unsigned flags;
    struct grpc_channel *channel;
    struct list node;
    struct h2_stream *stream;
    struct grpc_call_ops ops;
    void *user;
    char *path;
    struct h2_field *metadata;
    size_t n_metadata;
    uint64_t deadline_us;
    struct timer deadline;
    struct pool_waiter waiter;
    struct buf early; /* framed messages given before the stream was open */
    struct grpc_inbox inbox;
    struct dirty dirty; /* resumed, or ending */
    struct dead dead;
    int http_status;
    /* the end, when it must wait (for the flush phase, or behind held messages) */
    int end_status;
    char *end_message;
    struct h2_field *end_trailers;
    size_t n_end_trailers;
};

struct grpc_channel {
    struct loop *loop;
    struct pool *pool;
    struct list calls;
    char *authority;
    char *user_agent;
    const char *scheme;
    uint32_t stream_window;
};

void grpc_channel_conf_default(struct grpc_channel_conf *c)
{
    *c = (struct grpc_channel_conf){.authority = NULL};
    pool_conf_default(&c->pool);
}

static struct grpc_call *call_of(struct h2_stream *s)
{
    void *user = h2_stream_user(s);

    return user != NULL ? obj_cast(CALL, struct grpc_call, user) : NULL;
}

/* ---- end ---- */

static void call_reap(struct dead *d)
{
    struct grpc_call *c = container_of(d, struct grpc_call, dead);

    buf_fini(&c->early);
    grpc_inbox_fini(&c->inbox);
    free(c->path);
    free(c->metadata);
    free(c->end_message);
    free(c->end_trailers);
    c->magic = 0;
    free(c);
}

/* No event comes any more; the memory goes in this turn's reaping. */
static void call_detach(struct grpc_call *c)
{
    c->flags |= CF_OVER;
    timer_stop(c->channel->loop, &c->deadline);
    pool_wait_cancel(c->channel->pool, &c->waiter);
    list_remove(&c->dirty.node);
    list_remove(&c->node);
    if (c->stream != NULL) {
        h2_stream_set_user(c->stream, NULL);
        h2_reset(c->stream, H2_CANCEL); /* does nothing to one that is over on both sides */
        c->stream = NULL;
    }
    loop_bury(c->channel->loop, &c->dead);
}

static void call_end(struct grpc_call *c, int status, const char *message,
                     const struct h2_field *trailers, size_t n)
{
    const struct grpc_call_ops ops = c->ops;

    call_detach(c);
    if (ops.on_end != NULL)
        ops.on_end(c->user, c, status, message, trailers, n);
}

/* The same, but from the flush phase, behind messages that are held. */
static void call_end_later(struct grpc_call *c, int status, const char *message,
                           const struct h2_field *trailers, size_t n)
{
    if ((c->flags & (CF_ENDING | CF_OVER)) != 0)
        return;
    c->flags |= CF_ENDING;
    c->end_status = status;
    c->end_message = xstrdup(message);
    c->end_trailers = fields_dup(trailers, n);
    c->n_end_trailers = n;
    loop_mark_dirty(c->channel->loop, &c->dirty);
}

/* We end it: what is held does not matter any more. */
static void call_fail(struct grpc_call *c, int status, const char *message)
{
    buf_reset(&c->inbox.held);
    c->flags &= ~(unsigned)CF_PAUSED;
    call_end_later(c, status, message, NULL, 0);
}

/* ---- what comes ---- */

/* Messages out of [p, p + len) until the call is paused or ends. Returns the bytes used. */
static size_t call_feed(struct grpc_call *c, const uint8_t *p, size_t len)
{
    const size_t before = len;
    const uint8_t *message;
    size_t message_len;
    bool compressed;

    while ((c->flags & (CF_PAUSED | CF_OVER)) == 0) {
        switch (grpc_inbox_next(&c->inbox, &p, &len, &message, &message_len, &compressed)) {
        case INBOX_MORE:
            return before;
        case INBOX_MESSAGE:
            if (c->ops.on_message != NULL)
                c->ops.on_message(c->user, c, message, message_len, compressed);
            break;
        case INBOX_TOO_LONG:
            call_fail(c, GRPC_RESOURCE_EXHAUSTED, "a message of the answer is over the limit");
            return before;
        case INBOX_BAD_FLAG:
            call_fail(c, GRPC_INTERNAL, "bad compressed flag in the message prefix");
            return before;
        }
    }
    return (c->flags & CF_OVER) != 0 ? before : before - len;
}

static void call_on_dirty(struct dirty *d)
{
    struct grpc_call *c = container_of(d, struct grpc_call, dirty);
    size_t used;

    if ((c->flags & CF_PAUSED) != 0)
        return;
    used = call_feed(c, c->inbox.held.data, c->inbox.held.len);
    buf_consume(&c->inbox.held, used);
    if (c->stream != NULL)
        h2_consume(c->stream, used);
    if ((c->flags & (CF_ENDING | CF_PAUSED | CF_OVER)) == CF_ENDING)
        call_end(c, c->end_status, c->end_message, c->end_trailers, c->n_end_trailers);
}

/* fields: trailers, or headers of a Trailers-Only answer; h2_code: why the stream ended without. */
static void call_end_by_trailers(struct grpc_call *c, const struct h2_field *fields, size_t n)
{
    const struct h2_field *st = fields_find(fields, n, "grpc-status");
    const struct h2_field *msg = fields_find(fields, n, "grpc-message");
    char text[MAX_STATUS_TEXT];
    int status;

    text[0] = '\0';
    if (st != NULL) {
        status = (int)grpc_status_parse(st->value, st->value_len);
        if (msg != NULL)
            grpc_message_decode(text, sizeof(text), msg->value, msg->value_len);
    } else {
        status = (int)grpc_status_of_http(c->http_status);
        snprintf(text, sizeof(text), "no grpc-status in the answer; HTTP status %d",
                 c->http_status);
    }
    if (status == GRPC_OK && !grpc_reader_is_between(&c->inbox.reader) && c->inbox.held.len == 0) {
        status = GRPC_INTERNAL;
        snprintf(text, sizeof(text), "the answer ended inside a message");
    }
    if (c->inbox.held.len > 0 || (c->flags & CF_PAUSED) != 0)
        call_end_later(c, status, text, fields, n);
    else
        call_end(c, status, text, fields, n);
}

static void cl_headers(void *user, struct h2_stream *s, enum h2_block kind,
                       const struct h2_field *fields, size_t n, bool end)
{
    struct grpc_call *c = call_of(s);

    (void)user;
    if (c == NULL || kind == H2_INFORMATIONAL || (c->flags & CF_ENDING) != 0)
        return;
    if (kind == H2_RESPONSE)
        c->http_status = fields_http_status(fields, n);
    if (end)
        call_end_by_trailers(c, fields, n);
    else if (kind == H2_RESPONSE && c->ops.on_headers != NULL)
        c->ops.on_headers(c->user, c, fields, n);
}

static void cl_data(void *user, struct h2_stream *s, struct slab *slab, const uint8_t *p,
                    size_t len, bool end)
{
    struct grpc_call *c = call_of(s);
    size_t used = 0;

    (void)user;
    (void)slab;
    if (c == NULL || (c->flags & CF_ENDING) != 0)
        return;
    if (c->inbox.held.len == 0)
        used = call_feed(c, p, len);
    if ((c->flags & CF_OVER) != 0)
        return;
    if (used < len && !buf_append(&c->inbox.held, p + used, len - used))
        call_fail(c, GRPC_INTERNAL, "the server sent more than its window");
    h2_consume(s, used);
    if (end) /* END_STREAM on DATA: an answer without trailers */
        call_end_later(c, (int)grpc_status_of_http(c->http_status), "no grpc-status in the answer",
                       NULL, 0);
}

static void cl_sent(void *user, struct h2_stream *s, size_t bytes)
{
    struct grpc_call *c = call_of(s);

    (void)user;
    (void)bytes;
    if (c == NULL || (c->flags & CF_FULL) == 0 || h2_stream_queued(s) > GRPC_SEND_HIGH / 2)
        return;
    c->flags &= ~(unsigned)CF_FULL;
    if (c->ops.on_writable != NULL && (c->flags & CF_ENDING) == 0)
        c->ops.on_writable(c->user, c);
}

static void cl_close(void *user, struct h2_stream *s, uint32_t code, bool by_peer)
{
    struct grpc_call *c = call_of(s);
    char text[128];

    (void)user;
    if (c == NULL)
        return;
    c->stream = NULL;
    if (code == H2_CONNECT_ERROR) {
        call_end_later(c, GRPC_UNAVAILABLE, "the connection broke", NULL, 0);
        return;
    }
    snprintf(text, sizeof(text), "the stream was reset by %s: %s", by_peer ? "the peer" : "us",
             h2_code_name(code));
    call_end_later(c, (int)grpc_status_of_h2(code), text, NULL, 0);
}

static const struct pool_ops channel_ops = {
    .h2 = {.on_headers = cl_headers, .on_data = cl_data, .on_sent = cl_sent, .on_close = cl_close},
};

/* ---- start ---- */

static struct h2_field field_of(const char *name, size_t name_len, const char *value)
{
    return (struct h2_field){.name = name,
                             .value = value,
                             .name_len = (uint32_t)name_len,
                             .value_len = (uint32_t)strlen(value)};
}

#define FIELD_OF(name, value) field_of((name), sizeof(name) - 1, (value))

/* Opens the stream and sends what has gathered. False: no room now. */
static bool call_try_open(struct grpc_call *c)
{
    struct grpc_channel *ch = c->channel;
    const uint64_t now_us = ch->loop->now_us;
    struct h2_field f[OWN_FIELDS + MAX_METADATA];
    char timeout[GRPC_TIMEOUT_SIZE];
    size_t n = 0;

    f[n++] = H2_FIELD(":method", "POST");
    f[n++] = FIELD_OF(":scheme", ch->scheme);
    f[n++] = FIELD_OF(":path", c->path);
    f[n++] = FIELD_OF(":authority", ch->authority);
    f[n++] = H2_FIELD("te", "trailers");
    f[n++] = H2_FIELD("content-type", "application/grpc");
    f[n++] = FIELD_OF("user-agent", ch->user_agent);
    if (c->deadline_us != 0) {
        grpc_timeout_format(timeout, c->deadline_us > now_us ? c->deadline_us - now_us : 0);
        f[n++] = FIELD_OF("grpc-timeout", timeout);
    }
    for (size_t i = 0; i < c->n_metadata; i++)
        f[n++] = c->metadata[i];
    c->stream = pool_open(ch->pool, NULL, f, n, false, c);
    if (c->stream == NULL)
        return false;
    c->flags = (c->flags & ~(unsigned)CF_WAITING) | CF_OPEN;
    if (c->early.len > 0 || (c->flags & CF_HALF_CLOSED) != 0)
        h2_send_data(c->stream, NULL, c->early.data, c->early.len,
                     (c->flags & CF_HALF_CLOSED) != 0);
    buf_fini(&c->early);
    return true;
}

static void call_wait(struct grpc_call *c)
{
    c->flags |= CF_WAITING;
    pool_wait(c->channel->pool, &c->waiter);
}

static void call_on_wake(struct pool_waiter *w, bool ok, const char *why)
{
    struct grpc_call *c = container_of(w, struct grpc_call, waiter);
    char text[192];

    if (!ok) {
        snprintf(text, sizeof(text), "%s: %s", pool_addr(c->channel->pool)->text, why);
        call_end(c, GRPC_UNAVAILABLE, text, NULL, 0);
    } else if (!call_try_open(c)) {
        call_wait(c);
    }
}

static void call_on_deadline(struct timer *t)
{
    struct grpc_call *c = container_of(t, struct grpc_call, deadline);

    call_end(c, GRPC_DEADLINE_EXCEEDED, "deadline exceeded", NULL, 0);
}

struct grpc_call *grpc_call_start(struct grpc_channel *ch, const struct grpc_call_conf *conf,
                                  const struct grpc_call_ops *ops, void *user)
{
    struct grpc_call *c = xcalloc(1, sizeof(*c));
    const uint32_t max =
        conf->max_message_bytes != 0 ? conf->max_message_bytes : DEFAULT_MAX_MESSAGE;

    check(conf->n_metadata <= MAX_METADATA);
    c->magic = CALL_MAGIC;
    c->channel = ch;
    c->ops = *ops;
    c->user = user;
    c->path = xstrdup(conf->path);
    c->metadata = fields_dup(conf->metadata, conf->n_metadata);
    c->n_metadata = conf->n_metadata;
    c->deadline_us = conf->deadline_us;
    c->deadline.fire = call_on_deadline;
    c->waiter.wake = call_on_wake;
    c->waiter.patient = conf->wait_for_ready;
    c->dirty.flush = call_on_dirty;
    c->dead.reap = call_reap;
    buf_init(&c->early, SIZE_MAX); /* our own messages */
    grpc_inbox_init(&c->inbox, max, ch->stream_window);
    list_push_back(&ch->calls, &c->node);
    if (c->deadline_us != 0)
        timer_start(ch->loop, &c->deadline, c->deadline_us);
    if (!call_try_open(c))
        call_wait(c);
    return c;
}

struct grpc_call *grpc_call_unary(struct grpc_channel *ch, const struct grpc_call_conf *conf,
                                  const void *message, size_t len, const struct grpc_call_ops *ops,
                                  void *user)
{
    struct grpc_call *c = grpc_call_start(ch, conf, ops, user);

    grpc_call_send(c, message, len, true);
    return c;
}

/* ---- what goes ---- */

void grpc_call_send(struct grpc_call *c, const void *message, size_t len, bool last)
{
    grpc_call_send_slab(c, NULL, message, len, last);
}

void grpc_call_send_slab(struct grpc_call *c, struct slab *slab, const uint8_t *p, size_t len,
                         bool last)
{
    uint8_t prefix[GRPC_PREFIX_BYTES];

    check(len <= UINT32_MAX);
    if ((c->flags & (CF_HALF_CLOSED | CF_ENDING | CF_OVER)) != 0)
        return;
    if (last)
        c->flags |= CF_HALF_CLOSED;
    if (c->stream != NULL) {
        grpc_send_message(c->stream, slab, p, len, last);
    } else {
        grpc_prefix_write(prefix, false, (uint32_t)len);
        buf_append(&c->early, prefix, sizeof(prefix));
        buf_append(&c->early, p, len);
    }
    if (grpc_call_queued(c) > GRPC_SEND_HIGH)
        c->flags |= CF_FULL;
}

void grpc_call_half_close(struct grpc_call *c)
{
    if ((c->flags & (CF_HALF_CLOSED | CF_ENDING | CF_OVER)) != 0)
        return;
    c->flags |= CF_HALF_CLOSED;
    if (c->stream != NULL)
        h2_send_data(c->stream, NULL, NULL, 0, true);
}

size_t grpc_call_queued(const struct grpc_call *c)
{
    return c->stream != NULL ? h2_stream_queued(c->stream) : c->early.len;
}

void grpc_call_pause(struct grpc_call *c)
{
    c->flags |= CF_PAUSED;
}

void grpc_call_resume(struct grpc_call *c)
{
    if ((c->flags & (CF_PAUSED | CF_OVER)) != CF_PAUSED)
        return;
    c->flags &= ~(unsigned)CF_PAUSED;
    loop_mark_dirty(c->channel->loop, &c->dirty);
}

void grpc_call_cancel(struct grpc_call *c)
{
    if ((c->flags & CF_OVER) == 0)
        call_fail(c, GRPC_CANCELLED, "cancelled");
}

void grpc_call_abandon(struct grpc_call *c)
{
    if ((c->flags & CF_OVER) == 0)
        call_detach(c);
}

void *grpc_call_user(const struct grpc_call *c)
{
    return c->user;
}

/* ---- channel ---- */

struct grpc_channel *grpc_channel_new(struct loop *l, const struct net_addr *addr,
                                      const struct grpc_channel_conf *conf)
{
    struct grpc_channel *ch = xcalloc(1, sizeof(*ch));

    ch->loop = l;
    ch->authority = xstrdup(conf->authority != NULL                ? conf->authority
                            : strncmp(addr->text, "unix:", 5) == 0 ? "localhost"
                                                                   : addr->text);
    ch->user_agent = xstrdup(conf->user_agent != NULL ? conf->user_agent : "penstock/0.1.0");
    ch->scheme = conf->pool.conn.tls != NULL ? "https" : "http";
    ch->stream_window = h2_limits_window(&conf->pool.conn.limits);
    list_init(&ch->calls);
    ch->pool = pool_new(l, addr, &conf->pool, &channel_ops, ch);
    return ch;
}

struct grpc_channel *grpc_channel_free(struct grpc_channel *ch)
{
    if (ch == NULL)
        return NULL;
    while (!list_is_empty(&ch->calls))
        call_end(list_entry(ch->calls.next, struct grpc_call, node), GRPC_UNAVAILABLE,
                 "the channel is closed", NULL, 0);
    pool_free(ch->pool);
    free(ch->authority);
    free(ch->user_agent);
    free(ch);
    return NULL;
}

struct pool *grpc_channel_pool(struct grpc_channel *ch)
{
    return ch->pool;
}
