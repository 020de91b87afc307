#include "net/grpc_server.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/check.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/xalloc.h"
#include "net/grpc_message.h"

#define SCONN_MAGIC    0x73636f6eu
#define SRV_CALL_MAGIC 0x7363616cu

#define ACCEPT_BATCH    64     /* per turn, then the calls' turn */
#define ACCEPT_PAUSE_US 100000 /* out of descriptors: the listener would spin */

struct sconn {
    uint32_t magic;
    struct grpc_server *server; /* NULL: the server is gone, the connection is closing */
    struct list node;
    struct conn *conn;
};

/* An accepted socket that waits out accept_delay_us. */
struct late_accept {
    struct list node;
    struct timer timer;
    struct grpc_server *server;
    int fd;
};

struct grpc_server {
    struct loop *loop;
    struct grpc_server_conf conf;
    struct srv_method *methods;
    size_t n_methods;
    struct map by_path; /* -> struct srv_method */
    const struct srv_method *fallback;
    struct net_addr addr;
    int fd;
    ev_io accept;
    struct timer accept_again;
    struct list conns;
    struct list late;
    uint32_t n_conns, n_calls;
    struct dirty dirty; /* tells drained */
    bool draining;
    void (*drained)(void *arg);
    void *drained_arg;
};

enum {
    CF_HEADERS_SENT = 1 << 0,
    CF_FINISHED = 1 << 1,    /* trailers are queued */
    CF_HALF_CLOSED = 1 << 2, /* END_STREAM came */
    CF_TOLD_HALF = 1 << 3,   /* ... and on_half_close was called */
    CF_PAUSED = 1 << 4,
    CF_FULL = 1 << 5,      /* on_writable is owed */
    CF_CANCELLED = 1 << 6, /* finished by us, not by the method */
};

struct srv_call {
    uint32_t magic;
    unsigned flags;
    struct sconn *sconn;
    struct grpc_server *server;
    struct h2_stream *stream;
    const struct srv_method *method;
    void *user;
    struct h2_field *metadata;
    size_t n_metadata;
    struct grpc_inbox inbox;
    struct dirty dirty; /* resumed */
    struct timer deadline;
    uint64_t deadline_us;
};

void grpc_server_conf_default(struct grpc_server_conf *c)
{
    *c = (struct grpc_server_conf){.max_message_bytes = 64u * 1024 * 1024};
    conn_conf_default(&c->conn);
}

static struct sconn *sconn_of(void *user)
{
    return obj_cast(SCONN, struct sconn, user);
}

static struct srv_call *call_of(struct h2_stream *s)
{
    void *user = h2_stream_user(s);

    return user != NULL ? obj_cast(SRV_CALL, struct srv_call, user) : NULL;
}

/* ---- answers ---- */

static const struct h2_field response_fields[] = {
    H2_FIELD_INIT(":status", "200"),
    H2_FIELD_INIT("content-type", "application/grpc"),
};

#define MAX_MESSAGE_TEXT 1024 /* of grpc-message, encoded */
#define MAX_EXTRA_FIELDS 62   /* that a method may add to headers or trailers */

/* status: of enum grpc_status, or a number that a scripted bad replica invents. extra: the method's
 * own fields. */
static void send_status(struct h2_stream *s, bool trailers_only, int status, const char *message,
                        const struct h2_field *extra, size_t n_extra)
{
    struct h2_field f[ARRAY_LEN(response_fields) + 2 + MAX_EXTRA_FIELDS];
    char text[MAX_MESSAGE_TEXT];
    char code[4];
    size_t n = 0;

    check(n_extra <= MAX_EXTRA_FIELDS && status >= 0 && status <= 999);
    snprintf(code, sizeof(code), "%d", status);
    if (trailers_only)
        for (; n < ARRAY_LEN(response_fields); n++)
            f[n] = response_fields[n];
    f[n] = H2_FIELD("grpc-status", "");
    f[n].value = code;
    f[n++].value_len = (uint32_t)strlen(code);
    if (message != NULL && message[0] != '\0') {
        f[n] = H2_FIELD("grpc-message", "");
        f[n].value_len =
            (uint32_t)grpc_message_encode(text, sizeof(text), message, strlen(message));
        f[n++].value = text;
    }
    for (size_t i = 0; i < n_extra; i++)
        f[n++] = extra[i];
    h2_send_headers(s, trailers_only ? H2_RESPONSE : H2_TRAILERS, f, n, true);
}

/* Ends a request that never became a call. */
static void refuse(struct h2_stream *s, bool end, int status, const char *message)
{
    send_status(s, true, status, message, NULL, 0);
    if (!end)
        h2_reset(s, H2_NO_ERROR);
}

static void refuse_http(struct h2_stream *s, bool end, const char *http_status)
{
    struct h2_field f = H2_FIELD(":status", "415");

    f.value = http_status;
    h2_send_headers(s, H2_RESPONSE, &f, 1, true);
    if (!end)
        h2_reset(s, H2_NO_ERROR);
}

static void call_finish(struct srv_call *c, int status, const char *message,
                        const struct h2_field *trailers, size_t n)
{
    if ((c->flags & CF_FINISHED) != 0)
        return;
    c->flags |= CF_FINISHED;
    timer_stop(c->server->loop, &c->deadline);
    send_status(c->stream, (c->flags & CF_HEADERS_SENT) == 0, status, message, trailers, n);
    if ((c->flags & CF_HALF_CLOSED) == 0)
        h2_reset(c->stream, H2_NO_ERROR);
}

/* The server ends the call: the method sees on_done(cancelled). */
static void call_abort(struct srv_call *c, int status, const char *message)
{
    if ((c->flags & CF_FINISHED) != 0)
        return;
    c->flags |= CF_CANCELLED;
    if (h2_stream_queued(c->stream) > 0) { /* trailers would wait behind it */
        c->flags |= CF_FINISHED;
        timer_stop(c->server->loop, &c->deadline);
        h2_reset(c->stream, H2_CANCEL);
    } else {
        call_finish(c, status, message, NULL, 0);
    }
}

static void call_on_deadline(struct timer *t)
{
    call_abort(container_of(t, struct srv_call, deadline), GRPC_DEADLINE_EXCEEDED,
               "deadline exceeded");
}

/* ---- requests ---- */

/* Messages out of [p, p + len) until the call is paused or over. Returns the bytes used. */
static size_t call_feed(struct srv_call *c, const uint8_t *p, size_t len)
{
    const size_t before = len;
    const uint8_t *message;
    size_t message_len;
    bool compressed;

    while ((c->flags & (CF_PAUSED | CF_FINISHED)) == 0) {
        switch (grpc_inbox_next(&c->inbox, &p, &len, &message, &message_len, &compressed)) {
        case INBOX_MORE:
            return before;
        case INBOX_MESSAGE:
            if (c->method->ops->on_message != NULL)
                c->method->ops->on_message(c, message, message_len, compressed);
            break;
        case INBOX_TOO_LONG:
            call_abort(c, GRPC_RESOURCE_EXHAUSTED, "message over the server's limit");
            break;
        case INBOX_BAD_FLAG:
            call_abort(c, GRPC_INTERNAL, "bad compressed flag in the message prefix");
            break;
        }
    }
    return (c->flags & CF_FINISHED) != 0 ? before : before - len;
}

static void call_check_half_close(struct srv_call *c)
{
    if ((c->flags & (CF_HALF_CLOSED | CF_TOLD_HALF | CF_PAUSED | CF_FINISHED)) != CF_HALF_CLOSED ||
        c->inbox.held.len > 0)
        return;
    c->flags |= CF_TOLD_HALF;
    if (!grpc_reader_is_between(&c->inbox.reader))
        call_abort(c, GRPC_INTERNAL, "the stream ended inside a message");
    else if (c->method->ops->on_half_close != NULL)
        c->method->ops->on_half_close(c);
}

/* Resumed: what was held first, in the flush phase. */
static void call_on_resumed(struct dirty *d)
{
    struct srv_call *c = container_of(d, struct srv_call, dirty);
    size_t used;

    if ((c->flags & CF_PAUSED) != 0)
        return;
    used = call_feed(c, c->inbox.held.data, c->inbox.held.len);
    buf_consume(&c->inbox.held, used);
    h2_consume(c->stream, used);
    call_check_half_close(c);
}

static void call_on_data(struct srv_call *c, const uint8_t *p, size_t len, bool end)
{
    size_t used = 0;

    if (end)
        c->flags |= CF_HALF_CLOSED;
    if (c->inbox.held.len == 0)
        used = call_feed(c, p, len);
    if (used < len && !buf_append(&c->inbox.held, p + used, len - used))
        call_abort(c, GRPC_INTERNAL, "the client sent more than its window");
    h2_consume(c->stream, used);
    call_check_half_close(c);
}

static const struct srv_method *find_method(const struct grpc_server *s,
                                            const struct h2_field *path)
{
    const struct srv_method *m = map_get(&s->by_path, path->value, path->value_len);

    return m != NULL ? m : s->fallback;
}

static void call_start(struct sconn *sc, struct h2_stream *s, const struct srv_method *m,
                       const struct h2_field *fields, size_t n, uint64_t timeout_us, bool end)
{
    struct grpc_server *server = sc->server;
    struct srv_call *c = xcalloc(1, sizeof(*c));

    c->magic = SRV_CALL_MAGIC;
    c->sconn = sc;
    c->server = server;
    c->stream = s;
    c->method = m;
    c->flags = end ? CF_HALF_CLOSED : 0;
    c->metadata = fields_dup(fields, n);
    c->n_metadata = n;
    c->dirty.flush = call_on_resumed;
    c->deadline.fire = call_on_deadline;
    grpc_inbox_init(&c->inbox, server->conf.max_message_bytes,
                    h2_limits_window(&server->conf.conn.limits));
    server->n_calls++;
    h2_stream_set_user(s, c);
    if (timeout_us != 0) {
        c->deadline_us = server->loop->now_us + timeout_us;
        if (!server->conf.no_deadline)
            timer_start(server->loop, &c->deadline, c->deadline_us);
    }
    m->ops->on_start(m->arg, c);
    call_check_half_close(c);
}

static void on_request(struct sconn *sc, struct h2_stream *s, const struct h2_field *fields,
                       size_t n, bool end)
{
    const struct h2_field *path = fields_find(fields, n, ":path");
    const struct h2_field *method = fields_find(fields, n, ":method");
    const struct h2_field *type = fields_find(fields, n, "content-type");
    const struct h2_field *timeout = fields_find(fields, n, "grpc-timeout");
    const struct srv_method *m;
    uint64_t timeout_us = 0;

    if (method->value_len != 4 || memcmp(method->value, "POST", 4) != 0) {
        refuse_http(s, end, "405");
    } else if (type == NULL || !grpc_content_type_is_ok(type->value, type->value_len)) {
        refuse_http(s, end, "415");
    } else if (timeout != NULL &&
               !grpc_timeout_parse(timeout->value, timeout->value_len, &timeout_us)) {
        refuse(s, end, GRPC_INTERNAL, "malformed grpc-timeout");
    } else if ((m = find_method(sc->server, path)) == NULL) {
        refuse(s, end, GRPC_UNIMPLEMENTED, "unknown method");
    } else {
        if (timeout != NULL && timeout_us == 0)
            timeout_us = 1;
        call_start(sc, s, m, fields, n, timeout_us, end);
    }
}

/* ---- connection events ---- */

static void sc_headers(void *user, struct h2_stream *s, enum h2_block kind,
                       const struct h2_field *fields, size_t n, bool end)
{
    struct sconn *sc = sconn_of(user);
    struct srv_call *c;

    if (sc->server == NULL)
        return;
    if (kind == H2_REQUEST) {
        on_request(sc, s, fields, n, end);
    } else if ((c = call_of(s)) != NULL && end) {
        c->flags |= CF_HALF_CLOSED;
        call_check_half_close(c);
    }
}

static void sc_data(void *user, struct h2_stream *s, struct slab *slab, const uint8_t *p,
                    size_t len, bool end)
{
    struct srv_call *c = call_of(s);

    (void)user;
    (void)slab;
    if (c != NULL)
        call_on_data(c, p, len, end);
}

static void sc_sent(void *user, struct h2_stream *s, size_t bytes)
{
    struct srv_call *c = call_of(s);

    (void)user;
    (void)bytes;
    if (c == NULL || (c->flags & CF_FULL) == 0 || h2_stream_queued(s) > SRV_SEND_HIGH / 2)
        return;
    c->flags &= ~(unsigned)CF_FULL;
    if ((c->flags & CF_FINISHED) == 0 && c->method->ops->on_writable != NULL)
        c->method->ops->on_writable(c);
}

static void sc_close(void *user, struct h2_stream *s, uint32_t code, bool by_peer)
{
    struct srv_call *c = call_of(s);
    bool cancelled;

    (void)user;
    (void)by_peer;
    if (c == NULL)
        return;
    cancelled =
        (c->flags & CF_FINISHED) == 0 || (c->flags & CF_CANCELLED) != 0 || code != H2_NO_ERROR;
    c->flags |= CF_FINISHED;
    timer_stop(c->server->loop, &c->deadline);
    if (c->method->ops->on_done != NULL)
        c->method->ops->on_done(c, cancelled);
    list_remove(&c->dirty.node);
    c->server->n_calls--;
    grpc_inbox_fini(&c->inbox);
    free(c->metadata);
    c->magic = 0;
    free(c);
}

static void sc_closed(void *user, const char *why)
{
    struct sconn *sc = sconn_of(user);
    struct grpc_server *server = sc->server;

    (void)why;
    if (server != NULL) {
        list_remove(&sc->node);
        server->n_conns--;
        if (server->draining)
            loop_mark_dirty(server->loop, &server->dirty);
    }
    sc->magic = 0;
    free(sc);
}

static const struct conn_ops sconn_ops = {
    .h2 = {.on_headers = sc_headers, .on_data = sc_data, .on_sent = sc_sent, .on_close = sc_close},
    .on_closed = sc_closed,
};

/* ---- listener ---- */

static void server_take(struct grpc_server *s, int fd)
{
    struct sconn *sc = xcalloc(1, sizeof(*sc));

    sc->magic = SCONN_MAGIC;
    sc->server = s;
    list_push_back(&s->conns, &sc->node);
    s->n_conns++;
    sc->conn = conn_accept(s->loop, fd, NULL, &s->conf.conn, &sconn_ops, sc);
}

static void late_on_timer(struct timer *t)
{
    struct late_accept *late = container_of(t, struct late_accept, timer);

    list_remove(&late->node);
    server_take(late->server, late->fd);
    free(late);
}

static void server_on_accept(struct ev_loop *ev, ev_io *w, int revents)
{
    struct grpc_server *s = container_of(w, struct grpc_server, accept);

    (void)revents;
    for (int i = 0; i < ACCEPT_BATCH; i++) {
        const int fd = accept4(s->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);

        if (fd < 0) {
            if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
                ev_io_stop(ev, w);
                timer_start(s->loop, &s->accept_again, s->loop->now_us + ACCEPT_PAUSE_US);
            }
            return; /* EAGAIN, or a connection that went before we took it */
        }
        if (s->conf.max_connections != 0 && s->n_conns >= s->conf.max_connections) {
            close(fd);
        } else if (s->conf.accept_delay_us != 0) {
            struct late_accept *late = xcalloc(1, sizeof(*late));

            late->server = s;
            late->fd = fd;
            late->timer.fire = late_on_timer;
            list_push_back(&s->late, &late->node);
            timer_start(s->loop, &late->timer, s->loop->now_us + s->conf.accept_delay_us);
        } else {
            server_take(s, fd);
        }
    }
}

static void server_on_accept_again(struct timer *t)
{
    struct grpc_server *s = container_of(t, struct grpc_server, accept_again);

    if (s->fd >= 0)
        ev_io_start(s->loop->ev, &s->accept);
}

static void server_stop_listening(struct grpc_server *s)
{
    struct list *node;

    timer_stop(s->loop, &s->accept_again);
    if (s->fd >= 0) {
        ev_io_stop(s->loop->ev, &s->accept);
        close(s->fd);
        s->fd = -1;
    }
    while ((node = list_pop_front(&s->late)) != NULL) {
        struct late_accept *late = list_entry(node, struct late_accept, node);

        timer_stop(s->loop, &late->timer);
        close(late->fd);
        free(late);
    }
}

static void server_check_drained(struct dirty *d)
{
    struct grpc_server *s = container_of(d, struct grpc_server, dirty);
    void (*drained)(void *arg) = s->drained;

    if (!s->draining || s->n_conns > 0 || drained == NULL)
        return;
    s->drained = NULL;
    drained(s->drained_arg); /* may free s */
}

struct grpc_server *grpc_server_new(struct loop *l, const struct net_addr *addr,
                                    const struct grpc_server_conf *conf,
                                    const struct srv_method *methods, size_t n_methods,
                                    struct err *err)
{
    const int fd = net_listen(addr, conf->reuse_port, err);
    struct grpc_server *s;

    if (fd < 0)
        return NULL;
    s = xcalloc(1, sizeof(*s));
    s->loop = l;
    s->conf = *conf;
    s->fd = fd;
    list_init(&s->conns);
    list_init(&s->late);
    map_init(&s->by_path);
    s->methods = xcalloc(n_methods > 0 ? n_methods : 1, sizeof(*methods));
    s->n_methods = n_methods;
    for (size_t i = 0; i < n_methods; i++) {
        s->methods[i] = methods[i];
        if (methods[i].path == NULL)
            s->fallback = &s->methods[i];
        else
            map_set(&s->by_path, methods[i].path, strlen(methods[i].path), &s->methods[i]);
    }
    s->dirty.flush = server_check_drained;
    s->accept_again.fire = server_on_accept_again;
    net_addr_of_socket(fd, &s->addr);
    ev_io_init(&s->accept, server_on_accept, fd, EV_READ);
    ev_io_start(l->ev, &s->accept);
    return s;
}

struct grpc_server *grpc_server_free(struct grpc_server *s)
{
    struct list *node;

    if (s == NULL)
        return NULL;
    server_stop_listening(s);
    while ((node = list_pop_front(&s->conns)) != NULL) {
        struct sconn *sc = list_entry(node, struct sconn, node);

        conn_close(sc->conn, "the server stops");
        h2_lost(conn_h2(sc->conn)); /* on_done of its calls, now */
        sc->server = NULL;
    }
    check(s->n_calls == 0);
    list_remove(&s->dirty.node);
    map_fini(&s->by_path);
    free(s->methods);
    free(s);
    return NULL;
}

const struct net_addr *grpc_server_addr(const struct grpc_server *s)
{
    return &s->addr;
}

void grpc_server_drain(struct grpc_server *s, void (*drained)(void *arg), void *arg)
{
    server_stop_listening(s);
    s->draining = true;
    s->drained = drained;
    s->drained_arg = arg;
    list_each (&s->conns, it) {
        conn_drain(list_entry(it, struct sconn, node)->conn);
    }
    loop_mark_dirty(s->loop, &s->dirty);
}

uint32_t grpc_server_n_calls(const struct grpc_server *s)
{
    return s->n_calls;
}

uint32_t grpc_server_n_connections(const struct grpc_server *s)
{
    return s->n_conns;
}

/* ---- calls ---- */

void srv_call_set_user(struct srv_call *c, void *user)
{
    c->user = user;
}

void *srv_call_user(const struct srv_call *c)
{
    return c->user;
}

void *srv_call_arg(const struct srv_call *c)
{
    return c->method->arg;
}

struct loop *srv_call_loop(const struct srv_call *c)
{
    return c->server->loop;
}

struct h2_stream *srv_call_stream(struct srv_call *c)
{
    return c->stream;
}

struct conn *srv_call_conn(struct srv_call *c)
{
    return c->sconn->conn;
}

const char *srv_call_path(const struct srv_call *c)
{
    return srv_call_metadata(c, ":path");
}

const char *srv_call_peer(const struct srv_call *c)
{
    return conn_peer(c->sconn->conn);
}

uint64_t srv_call_deadline_us(const struct srv_call *c)
{
    return c->deadline_us;
}

const char *srv_call_metadata(const struct srv_call *c, const char *name)
{
    const struct h2_field *f = fields_find(c->metadata, c->n_metadata, name);

    return f != NULL ? f->value : NULL;
}

size_t srv_call_n_metadata(const struct srv_call *c)
{
    return c->n_metadata;
}

struct h2_field srv_call_metadata_at(const struct srv_call *c, size_t i)
{
    check(i < c->n_metadata);
    return c->metadata[i];
}

void srv_call_send_headers(struct srv_call *c, const struct h2_field *fields, size_t n)
{
    struct h2_field f[ARRAY_LEN(response_fields) + MAX_EXTRA_FIELDS];

    check(n <= MAX_EXTRA_FIELDS);
    if ((c->flags & (CF_FINISHED | CF_HEADERS_SENT)) != 0)
        return;
    memcpy(f, response_fields, sizeof(response_fields));
    for (size_t i = 0; i < n; i++)
        f[ARRAY_LEN(response_fields) + i] = fields[i];
    c->flags |= CF_HEADERS_SENT;
    h2_send_headers(c->stream, H2_RESPONSE, f, ARRAY_LEN(response_fields) + n, false);
}

void srv_call_send(struct srv_call *c, const void *message, size_t len)
{
    srv_call_send_slab(c, NULL, message, len);
}

void srv_call_send_slab(struct srv_call *c, struct slab *slab, const uint8_t *p, size_t len)
{
    if ((c->flags & CF_FINISHED) != 0)
        return;
    srv_call_send_headers(c, NULL, 0);
    grpc_send_message(c->stream, slab, p, len, false);
    if (h2_stream_queued(c->stream) > SRV_SEND_HIGH)
        c->flags |= CF_FULL;
}

size_t srv_call_queued(const struct srv_call *c)
{
    return h2_stream_queued(c->stream);
}

void srv_call_finish(struct srv_call *c, int status, const char *message,
                     const struct h2_field *trailers, size_t n)
{
    call_finish(c, status, message, trailers, n);
}

void srv_call_pause(struct srv_call *c)
{
    c->flags |= CF_PAUSED;
}

void srv_call_resume(struct srv_call *c)
{
    if ((c->flags & CF_PAUSED) == 0)
        return;
    c->flags &= ~(unsigned)CF_PAUSED;
    loop_mark_dirty(c->server->loop, &c->dirty);
}
