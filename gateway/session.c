#include "gateway/session.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/xalloc.h"
#include "gateway/addresses.h"
#include "gateway/answer.h"
#include "gateway/door.h"
#include "gateway/local.h"
#include "gateway/note.h"
#include "gateway/request.h"
#include "gateway/stream.h"
#include "gateway/worker.h"

#define EVICT_LOOKS   64   /* sessions that are looked at for one to give up, in turn */
#define MESSAGE_BYTES 1024 /* of a grpc-message that we make, encoded */

void call_attach(struct call *c, const struct call_ops *ops, struct session *session,
                 struct h2_stream *down)
{
    *c = (struct call){.magic = CALL_MAGIC, .ops = ops, .session = session, .down = down};
    h2_stream_set_user(down, c);
}

struct h2_field call_content_type(const struct h2_field *type)
{
    return type != NULL ? *type : H2_FIELD("content-type", "application/grpc");
}

void call_send_status(struct call *c, const struct h2_field *type, bool headers_sent,
                      enum grpc_status status, const char *text)
{
    char plain[MESSAGE_BYTES], message[MESSAGE_BYTES], code[4];
    struct h2_field fields[4];
    size_t n = 0;

    if (c->down == NULL)
        return;
    if (!headers_sent) {
        fields[n++] = H2_FIELD(":status", "200");
        fields[n++] = call_content_type(type);
    }
    fields[n] = H2_FIELD("grpc-status", "");
    fields[n].value = code;
    fields[n++].value_len = (uint32_t)snprintf(code, sizeof(code), "%u", (unsigned)status);
    if (text != NULL) {
        const int len = snprintf(plain, sizeof(plain), "penstock: %s", text);
        const size_t kept = (size_t)len < sizeof(plain) ? (size_t)len : sizeof(plain) - 1;

        fields[n] = H2_FIELD("grpc-message", "");
        fields[n].flags = H2_FIELD_NO_INDEX;
        fields[n].value = message;
        fields[n++].value_len =
            (uint32_t)grpc_message_encode(message, sizeof(message), plain, kept);
    }
    h2_send_headers(c->down, headers_sent ? H2_TRAILERS : H2_RESPONSE, fields, n, true);
}

/* An HTTP error for what isn't a gRPC call, with a line of text for whoever reads it; a HEAD has
 * none (RFC 9110 section 9.3.2). */
static void call_send_http(struct call *c, const struct request_head *head,
                           const struct h2_field *fields, size_t n, const char *text)
{
    if (c->down == NULL)
        return;
    h2_send_headers(c->down, H2_RESPONSE, fields, n, head->is_head);
    if (!head->is_head)
        h2_send_data(c->down, NULL, (const uint8_t *)text, strlen(text), true);
}

enum grpc_status call_refuse(struct call *c, enum request_fault fault,
                             const struct request_head *head)
{
    static const struct h2_field not_post[] = {H2_FIELD_INIT(":status", "405"),
                                               H2_FIELD_INIT("allow", "POST"),
                                               H2_FIELD_INIT("content-type", "text/plain")};
    static const struct h2_field not_grpc[] = {H2_FIELD_INIT(":status", "415"),
                                               H2_FIELD_INIT("accept", "application/grpc"),
                                               H2_FIELD_INIT("content-type", "text/plain")};
    char text[160];

    switch (fault) {
    case REQUEST_NOT_POST:
        call_send_http(c, head, not_post, ARRAY_LEN(not_post),
                       "penstock: only gRPC is served here, and gRPC is POST\n");
        return GRPC_INTERNAL;
    case REQUEST_NOT_GRPC:
        call_send_http(c, head, not_grpc, ARRAY_LEN(not_grpc),
                       "penstock: only gRPC is served here: content-type application/grpc\n");
        return GRPC_INTERNAL;
    case REQUEST_BAD_PATH:
        call_send_status(c, head->content_type, false, GRPC_UNIMPLEMENTED,
                         ":path is not /package.Service/Method");
        return GRPC_UNIMPLEMENTED;
    case REQUEST_BAD_TIMEOUT:
        snprintf(text, sizeof(text),
                 "grpc-timeout \"%.*s\" is not 1 to 8 digits and one of H M S m u n",
                 (int)(head->timeout->value_len < 40 ? head->timeout->value_len : 40),
                 head->timeout->value);
        call_send_status(c, head->content_type, false, GRPC_INVALID_ARGUMENT, text);
        return GRPC_INVALID_ARGUMENT;
    case REQUEST_OK: /* request_read found no room */
        break;
    }
    call_send_status(c, NULL, false, GRPC_RESOURCE_EXHAUSTED,
                     "the request's header fields are over the memory limit of a call");
    return GRPC_RESOURCE_EXHAUSTED;
}

void call_stop_upload(struct call *c)
{
    if (c->down != NULL)
        h2_reset(c->down, H2_NO_ERROR);
}

static struct call *call_of(struct h2_stream *down)
{
    void *user = h2_stream_user(down);

    return user == NULL ? NULL : obj_cast(CALL, struct call, user);
}

/* The row of the fields' :path; NULL: they have none. */
static const struct path_row *session_find_path(struct worker *w, const struct h2_field *fields,
                                                size_t n)
{
    const struct paths_rules rules = worker_paths_rules(w);

    for (size_t i = 0; i < n; i++) {
        if (FIELD_IS(&fields[i], ":path"))
            return paths_find(&w->paths, &rules, fields[i].value, fields[i].value_len);
    }
    return NULL;
}

static void session_new_call(struct session *s, struct h2_stream *down,
                             const struct h2_field *fields, size_t n, bool end)
{
    struct worker *w = s->worker;
    struct request_note *note = request_note_of(w, h2_block_set(down));
    const struct local_method *local = NULL;
    const struct route_path *path = NULL;
    struct tenant_counts *counts = worker_tenant_counts(w, s->tenant);

    if (counts != NULL)
        counts->started++;
    if (worker_is_over_memory(w, w->memory_refuse_bytes)) {
        stream_relieve(w, w->memory_refuse_bytes);
        if (worker_is_over_memory(w, w->memory_refuse_bytes)) {
            worker_count(w, COUNT_streams_started);
            worker_count(w, COUNT_ended_over_memory);
            h2_reset(down, H2_REFUSED_STREAM); /* safe to repeat: nothing was begun */
            return;
        }
    }
    if (note != NULL && note->head.path != NULL) {
        local = note->local;
        path = &note->path;
    } else {
        const struct path_row *row = session_find_path(w, fields, n);

        note = NULL;
        local = row == NULL ? NULL : row->local;
        path = row == NULL ? NULL : &row->route;
    }
    if (local != NULL)
        answer_start(s, down, local, fields, n, end);
    else
        stream_start(s, down, note, path, fields, n, end);
}

static void session_on_headers(void *user, struct h2_stream *down, enum h2_block kind,
                               const struct h2_field *fields, size_t n, bool end)
{
    struct call *c;

    if (kind == H2_REQUEST) {
        session_new_call(user, down, fields, n, end);
        return;
    }
    c = call_of(down);
    if (c != NULL && kind == H2_TRAILERS)
        c->ops->on_trailers(c, fields, n);
}

static void session_on_data(void *user, struct h2_stream *down, struct slab *slab, const uint8_t *p,
                            size_t len, bool end)
{
    struct call *c = call_of(down);

    (void)user;
    if (c != NULL)
        c->ops->on_data(c, slab, p, len, end);
    else
        h2_consume(down, len); /* of a call that was refused at once */
}

static void session_on_sent(void *user, struct h2_stream *down, size_t bytes)
{
    struct call *c = call_of(down);

    (void)user;
    if (c != NULL)
        c->ops->on_sent(c, bytes);
}

/* A call that the client cancelled, whether it was answered or not, or that it made us reset: over
 * all its connections. */
static void session_count_reset(void *user)
{
    struct session *s = user;
    struct worker *w = s->worker;

    if (s->address == NULL || s->closing ||
        addresses_take_reset(&w->addresses_of_clients, s->address, w->loop.now_us))
        return;
    s->closing = true;
    conn_expel(s->conn, CONN_END_RESETS, "too many streams reset by this address");
}

static void session_on_close(void *user, struct h2_stream *down, uint32_t code, bool by_peer)
{
    struct call *c = call_of(down);

    if (code == H2_CANCEL && by_peer)
        session_count_reset(user);
    if (c != NULL)
        c->ops->on_close(c, code);
}

static void session_on_secured(void *user)
{
    struct session *s = user;
    struct worker *w = s->worker;

    handshakes_end(&w->handshakes, s);
    worker_count(w, COUNT_tls_handshakes);
    if (conn_was_resumed(s->conn))
        worker_count(w, COUNT_tls_resumed);
    s->tenant = conn_identity(s->conn);
    log_debug("session_secured", "worker=%u peer=%s tenant=%s msg=\"%s\"", w->index,
              conn_peer(s->conn), s->tenant != NULL ? s->tenant->name : "",
              conn_peer_name(s->conn));
}

/* Did it end before its TLS handshake? */
static bool session_count_failed_handshake(struct session *s, const char *why)
{
    struct worker *w = s->worker;
    uint32_t suppressed;
    char quoted[300];

    if (!list_is_linked(&s->handshake))
        return false;
    handshakes_end(&w->handshakes, s);
    worker_count(w, COUNT_tls_handshakes_failed);
    if (log_limit_pass(&w->handshake_log, w->loop.now_us, &suppressed))
        log_warn("tls_handshake_failed", "worker=%u peer=%s suppressed=%u msg=%s", w->index,
                 conn_peer(s->conn), suppressed, log_quote(quoted, sizeof(quoted), why));
    return true;
}

/* By how the connection ended; usual: nobody need be told. */
static const struct {
    const char *reason;
    int count; /* enum counter; -1: none */
    bool usual;
} session_ends[N_CONN_ENDS] = {
    [CONN_END_PEER] = {"by_peer", -1, true},
    [CONN_END_US] = {"by_us", -1, true},
    [CONN_END_SETUP] = {"setup", COUNT_sessions_ended_setup, false},
    [CONN_END_BLOCK] = {"unfinished", COUNT_sessions_ended_unfinished, false},
    [CONN_END_IDLE] = {"idle", COUNT_sessions_ended_idle, true},
    [CONN_END_STALLED] = {"stalled", COUNT_sessions_ended_stalled, false},
    [CONN_END_SILENT] = {"silent", COUNT_sessions_ended_silent, false},
    [CONN_END_STRANGER] = {"stranger", COUNT_sessions_ended_stranger, false},
    [CONN_END_TLS] = {"tls", COUNT_sessions_ended_tls, false},
    [CONN_END_PROTOCOL] = {"protocol", COUNT_sessions_ended_protocol, false},
    [CONN_END_FRAMES] = {"frames", COUNT_sessions_ended_frames, false},
    [CONN_END_RESETS] = {"resets", COUNT_sessions_ended_resets, false},
    [CONN_END_PINGS] = {"pings", COUNT_sessions_ended_pings, false},
    [CONN_END_HEADERS] = {"headers", COUNT_sessions_ended_headers, false},
    [CONN_END_ANSWERS] = {"answers", COUNT_sessions_ended_answers, false},
    [CONN_END_SETTINGS] = {"settings", COUNT_sessions_ended_settings, false},
};

static void session_log_end(struct session *s, enum conn_end how, const char *why)
{
    struct worker *w = s->worker;
    char quoted[300];
    uint32_t suppressed;

    if (session_ends[how].usual)
        log_debug("session_ended", "worker=%u peer=%s reason=%s msg=%s", w->index,
                  conn_peer(s->conn), session_ends[how].reason,
                  log_quote(quoted, sizeof(quoted), why));
    else if (log_limit_pass(&w->session_log, w->loop.now_us, &suppressed))
        log_warn("session_ended", "worker=%u peer=%s reason=%s suppressed=%u msg=%s", w->index,
                 conn_peer(s->conn), session_ends[how].reason, suppressed,
                 log_quote(quoted, sizeof(quoted), why));
}

static void session_on_closed(void *user, const char *why)
{
    struct session *s = user;
    struct worker *w = s->worker;
    const enum conn_end how = conn_how_ended(s->conn);

    if (!session_count_failed_handshake(s, why))
        session_log_end(s, how, why);
    if (session_ends[how].count >= 0)
        worker_count(w, (enum counter)session_ends[how].count);
    w->counters[COUNT_streams_stalled] += conn_streams_stalled(s->conn);
    list_remove(&s->node);
    if (s->address != NULL)
        addresses_leave(&w->addresses_of_clients, s->address, &s->of_address);
    w->counters[COUNT_sessions_open]--;
    door_session_ended(w);
    free(s);
    worker_session_ended(w);
}

static const struct conn_ops session_ops = {
    .h2 =
        {
            .on_headers = session_on_headers,
            .on_data = session_on_data,
            .on_sent = session_on_sent,
            .on_close = session_on_close,
            .on_made_reset = session_count_reset,
        },
    .on_secured = session_on_secured,
    .on_closed = session_on_closed,
};

static bool session_is_idle(const struct session *s)
{
    return !s->closing && h2_n_streams(conn_h2(s->conn)) == 0;
}

static void session_evict(struct session *s)
{
    worker_count(s->worker, COUNT_sessions_evicted);
    session_close(s, "without a call, and others want in");
}

/* The address has as many as it may: its oldest one without a call makes room. */
static bool session_make_room_of(struct address *of)
{
    unsigned looks = EVICT_LOOKS;

    list_each (&of->sessions, it) {
        struct session *s = list_entry(it, struct session, of_address);

        if (session_is_idle(s)) {
            session_evict(s);
            return true;
        }
        if (--looks == 0)
            break;
    }
    return false;
}

bool session_make_room(struct worker *w)
{
    for (unsigned i = 0; i < EVICT_LOOKS && !list_is_empty(&w->sessions); i++) {
        struct session *s = list_first(&w->sessions, struct session, node);

        list_remove(&s->node);
        list_push_back(&w->sessions, &s->node);
        if (!session_is_idle(s))
            continue;
        session_evict(s);
        return true;
    }
    return false;
}

bool session_accept(struct worker *w, int fd, const struct net_addr *peer,
                    const struct conn_conf *conf)
{
    struct address *of = addresses_of_peer(&w->addresses_of_clients, &peer->sa);
    struct session *s;

    if (w->draining || w->stopping ||
        (w->counters[COUNT_sessions_open] >= w->max_sessions && !session_make_room(w))) {
        worker_count(w, COUNT_sessions_refused);
        close(fd);
        return false;
    }
    if (of != NULL && addresses_is_full(&w->addresses_of_clients, of) &&
        !session_make_room_of(of)) {
        worker_count(w, COUNT_sessions_refused_address);
        close(fd);
        return false;
    }
    s = xcalloc(1, sizeof(*s));
    s->worker = w;
    list_push_back(&w->sessions, &s->node);
    worker_count(w, COUNT_sessions_accepted);
    w->counters[COUNT_sessions_open]++;
    s->accepted_us = w->loop.now_us;
    s->address = of;
    if (of != NULL)
        addresses_enter(&w->addresses_of_clients, of, &s->of_address);
    if (conf->tls != NULL)
        handshakes_begin(&w->handshakes, s);
    s->conn = conn_accept(&w->loop, fd, peer, conf, &session_ops, s);
    return true;
}

void session_drain(struct session *s)
{
    conn_drain(s->conn);
}

void session_close(struct session *s, const char *why)
{
    s->closing = true;
    conn_close(s->conn, why);
}
