/* The response side of a relayed call: what a replica sends, on its way to the client. */
#include "gateway/stream.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"

/* Response headers wait this long for data or a status. While they do, the call may still be tried
 * elsewhere (a status in trailers without data); a server that says hello early and works on is
 * believed after that time. Headers that are no gRPC wait as well: what comes behind them may be a
 * worse fault, which our reset would cover. */
#define HOLD_HEADERS_US (10 * US_PER_MS)

#define INFORMATIONAL_MAX 10 /* 1xx blocks of one answer */

/* At its deadline a grpc-go server resets with CANCEL and says nothing else, and its clock may be a
 * little ahead of ours: that is the deadline, not somebody's cancel. */
#define CLOCKS_DIFFER_US (20 * US_PER_MS)

/* --- credit --- */

void reply_credit(struct stream *s, size_t bytes)
{
    if (s->attempt.up != NULL)
        h2_consume(s->attempt.up, bytes);
}

/* --- response headers --- */

void reply_drop_held(struct stream *s)
{
    list_remove(&s->held_node);
    s->held = NULL;
    s->n_held = 0;
    s->not_grpc = 0;
}

void reply_commit(struct stream *s)
{
    if (s->state != STREAM_SENT)
        return;
    stream_set_state(s, STREAM_REPLYING);
    s->whole = false;
    body_drop(&s->body);
    if (s->held != NULL && s->call.down != NULL)
        h2_send_headers(s->call.down, H2_RESPONSE, s->held, s->n_held, false);
    reply_drop_held(s);
}

static void reply_arm_held_timer(struct worker *w)
{
    const struct stream *s = list_first(&w->held, struct stream, held_node);

    if (s != NULL)
        timer_start(&w->loop, &w->held_timer, s->held_until_us);
}

/* A length is no promise of ours: when the replica fails in the middle, we end its answer with
 * trailers. */
static bool reply_field_stays(const struct h2_field *f)
{
    return !field_is_hop_by_hop(f) && !FIELD_IS(f, "content-length");
}

/* Fields as the client shall get them: without the hop-by-hop ones. Returns how many; dst is the
 * worker's scratch with room for two more. */
static size_t reply_fields(struct stream *s, const struct h2_field *fields, size_t n,
                           struct h2_field **ret_dst)
{
    struct h2_field *dst = worker_scratch(s->worker, n + 2);
    size_t kept = 0;

    for (size_t i = 0; i < n; i++) {
        if (reply_field_stays(&fields[i]))
            dst[kept++] = fields[i];
    }
    *ret_dst = dst;
    return kept;
}

static int http_status_of(const struct h2_field *fields, size_t n)
{
    int status = 0;

    for (size_t i = 0; i < n; i++) {
        if (!FIELD_IS(&fields[i], ":status"))
            continue;
        for (size_t d = 0; d < fields[i].value_len && d < 3; d++) {
            if (fields[i].value[d] < '0' || fields[i].value[d] > '9')
                return 0;
            status = status * 10 + (fields[i].value[d] - '0');
        }
    }
    return status;
}

static bool has_grpc_content_type(const struct h2_field *fields, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (FIELD_IS(&fields[i], "content-type"))
            return grpc_content_type_is_ok(fields[i].value, fields[i].value_len);
    }
    return false;
}

/* What an HTTP status without a grpc-status says about the replica. */
static enum outcome outcome_of_http(int status)
{
    return status == 429 || (status >= 502 && status <= 504) ? OUTCOME_UNAVAILABLE
                                                             : OUTCOME_SERVER_ERROR;
}

/* The replica answers with something that is no gRPC response. */
static void reply_not_grpc(struct stream *s, int http_status)
{
    char why[100];

    if (http_status == 200)
        snprintf(why, sizeof(why), "answered without content-type application/grpc");
    else
        snprintf(why, sizeof(why), "answered HTTP status %d without a grpc-status", http_status);
    reply_drop_held(s);
    attempt_failed(s, outcome_of_http(http_status), grpc_status_of_http(http_status), why);
}

void reply_on_held_timer(struct timer *t)
{
    struct worker *w = container_of(t, struct worker, held_timer);
    struct stream *s;

    while ((s = list_first(&w->held, struct stream, held_node)) != NULL &&
           s->held_until_us <= w->loop.now_us) {
        if (s->not_grpc != 0)
            reply_not_grpc(s, s->not_grpc);
        else
            reply_commit(s);
    }
    reply_arm_held_timer(w);
}

static void reply_hold(struct stream *s)
{
    s->held_until_us = stream_now(s) + HOLD_HEADERS_US;
    list_push_back(&s->worker->held, &s->held_node);
    if (!heap_node_is_linked(&s->worker->held_timer.node))
        reply_arm_held_timer(s->worker);
}

static void reply_headers(struct stream *s, const struct h2_field *fields, size_t n)
{
    const int http_status = http_status_of(fields, n);
    struct h2_field *kept;
    size_t n_kept;

    if (s->state != STREAM_SENT || s->held != NULL || s->not_grpc != 0) {
        attempt_failed(s, OUTCOME_SERVER_ERROR, GRPC_INTERNAL, "sent its response headers twice");
        return;
    }
    if (http_status != 200 || !has_grpc_content_type(fields, n)) {
        s->not_grpc = http_status;
        reply_hold(s);
        return;
    }
    n_kept = reply_fields(s, fields, n, &kept);
    if (!s->whole) { /* no other try could follow */
        reply_commit(s);
        if (s->call.down != NULL)
            h2_send_headers(s->call.down, H2_RESPONSE, kept, n_kept, false);
        return;
    }
    s->held = fields_copy(&s->arena, kept, n_kept);
    if (s->held == NULL) {
        stream_fail(s, END_OVER_MEMORY, GRPC_RESOURCE_EXHAUSTED,
                    "the response's header fields are over the memory limit of a call");
        return;
    }
    s->n_held = n_kept;
    reply_hold(s);
}

/* --- the status --- */

struct status_seen {
    bool is_there;
    bool is_plain; /* one field, with a code that gRPC has: passed on as it came */
    enum grpc_status status;
    const struct h2_field *message; /* NULL: none */
    bool pushed_back;
};

static bool status_is_plain(const struct h2_field *f)
{
    return grpc_status_parse(f->value, f->value_len) != GRPC_UNKNOWN ||
           (f->value_len == 1 && f->value[0] == '2');
}

static struct status_seen status_in(const struct h2_field *fields, size_t n)
{
    struct status_seen seen = {.status = GRPC_UNKNOWN};

    for (size_t i = 0; i < n; i++) {
        const struct h2_field *f = &fields[i];

        if (FIELD_IS(f, "grpc-status")) {
            seen.is_plain = !seen.is_there && status_is_plain(f);
            seen.is_there = true;
            seen.status = grpc_status_parse(f->value, f->value_len); /* of several: the last */
        } else if (FIELD_IS(f, "grpc-message")) {
            seen.message = f;
        } else if (FIELD_IS(f, "grpc-retry-pushback-ms")) {
            seen.pushed_back = true;
        }
    }
    return seen;
}

static enum outcome reply_outcome(const struct stream *s, const struct status_seen *seen)
{
    const bool goaway = s->attempt.up != NULL && h2_saw_goaway(h2_stream_h2(s->attempt.up));
    const char *text = seen->message == NULL ? "" : seen->message->value;
    const size_t len = seen->message == NULL ? 0 : seen->message->value_len;
    const enum outcome how = outcome_of_status((uint32_t)seen->status, text, len, goaway);

    /* A plain service's NOT_FOUND is its own affair: no catalogue says what it has. */
    if (s->path.kind == ROUTE_BY_SERVICE &&
        (how == OUTCOME_UNKNOWN_MODEL || how == OUTCOME_NOT_READY))
        return seen->status == GRPC_UNAVAILABLE ? OUTCOME_UNAVAILABLE : OUTCOME_OK;
    return how;
}

/* The client can count on one status that gRPC knows: what the replica gave is mended where it is
 * none, is there twice, or says that half a message is a success. Returns the number of fields; dst
 * has room for two more. text: room for the code. */
static size_t reply_mend_status(struct h2_field *dst, size_t n, const struct status_seen *seen,
                                const char *why, char text[4])
{
    size_t kept = 0;

    for (size_t i = 0; i < n; i++) {
        if (!FIELD_IS(&dst[i], "grpc-status") &&
            (why == NULL || !FIELD_IS(&dst[i], "grpc-message")))
            dst[kept++] = dst[i];
    }
    dst[kept] = H2_FIELD("grpc-status", "");
    dst[kept].value = text;
    dst[kept++].value_len = (uint32_t)snprintf(text, 4, "%u", (unsigned)seen->status);
    if (why != NULL) {
        dst[kept] = H2_FIELD("grpc-message", "");
        dst[kept].value = why;
        dst[kept++].value_len = (uint32_t)strlen(why);
    }
    return kept;
}

/* The call's status, as the replica gave it or as it follows from HTTP; kind: what the block was.
 * Ends the call, unless another try begins. */
static void reply_status(struct stream *s, enum h2_block kind, const struct h2_field *fields,
                         size_t n)
{
    struct status_seen seen = status_in(fields, n);
    const bool trailers_only = kind == H2_RESPONSE;
    const int http_status = trailers_only ? http_status_of(fields, n) : 200;
    const char *why = NULL;
    struct h2_field *kept;
    char code[4];

    if (!seen.is_there && http_status != 200) {
        reply_not_grpc(s, http_status);
        return;
    }
    if (!seen.is_there) {
        why = "penstock: the replica's answer has no grpc-status";
    } else if (seen.status == GRPC_OK && !grpc_reader_is_between(&s->response_reader)) {
        seen.status = GRPC_INTERNAL;
        seen.is_plain = false;
        why = "penstock: the replica's answer ends inside a message";
    }

    const enum outcome how = reply_outcome(s, &seen);

    if (how == OUTCOME_UNKNOWN_MODEL)
        worker_count(s->worker, COUNT_quarantines);
    if (how == OUTCOME_REFUSED && s->state == STREAM_SENT) { /* nobody here has cancelled it */
        attempt_failed(s, how, GRPC_UNAVAILABLE, "went away and cancelled the call");
        return;
    }
    if (s->state == STREAM_SENT && attempt_retry_answered(s, how, seen.pushed_back))
        return;

    const bool headers_go_first = s->held != NULL || s->state == STREAM_REPLYING;

    if (s->held != NULL)
        reply_commit(s);

    size_t n_kept = reply_fields(s, fields, n, &kept);

    if (!seen.is_plain)
        n_kept = reply_mend_status(kept, n_kept, &seen, why, code);
    if (s->call.down != NULL)
        h2_send_headers(s->call.down, headers_go_first ? H2_TRAILERS : H2_RESPONSE, kept, n_kept,
                        true);
    /* All sent: the stream closes by itself. Else stop what is left of the upload. */
    attempt_detach(s, how,
                   s->client_ended && s->attempt.up != NULL && h2_stream_queued(s->attempt.up) == 0
                       ? H2_NO_ERROR
                       : H2_CANCEL);
    stream_end(s, END_RELAYED, seen.status);
}

/* --- events of the replica's stream --- */

static struct stream *stream_of(struct h2_stream *up)
{
    void *user = h2_stream_user(up);

    return user == NULL ? NULL : obj_cast(STREAM, struct stream, user);
}

static void upstream_on_headers(void *user, struct h2_stream *up, enum h2_block kind,
                                const struct h2_field *fields, size_t n, bool end)
{
    struct stream *s = stream_of(up);

    (void)user;
    if (s == NULL)
        return;
    if (kind == H2_INFORMATIONAL) {
        if (++s->attempt.n_informational > INFORMATIONAL_MAX)
            attempt_failed(s, OUTCOME_SERVER_ERROR, GRPC_INTERNAL,
                           "sent more than 10 informational header blocks");
        return;
    }
    if (end && s->not_grpc != 0)
        reply_not_grpc(s, s->not_grpc);
    else if (end)
        reply_status(s, kind, fields, n);
    else
        reply_headers(s, fields, n);
}

/* Holds the response's messages against the cap. false: the call has ended. */
static bool reply_check_messages(struct stream *s, const uint8_t *p, size_t len)
{
    const uint8_t *piece;
    size_t piece_len;

    if (grpc_reader_take_whole(&s->response_reader, p, len))
        return true;
    for (;;) {
        switch (grpc_reader_next(&s->response_reader, &p, &len, &piece, &piece_len)) {
        case GRPC_READ_MORE:
            return true;
        case GRPC_READ_BEGIN:
        case GRPC_READ_BYTES:
        case GRPC_READ_END:
            break;
        case GRPC_READ_TOO_LONG:
            inbound_check_cap(s, "a response", &s->response_reader);
            return false;
        case GRPC_READ_BAD_FLAG:
            attempt_failed(s, OUTCOME_SERVER_ERROR, GRPC_INTERNAL,
                           "sent a message whose compressed flag is neither 0 nor 1");
            return false;
        }
    }
}

static void upstream_on_data(void *user, struct h2_stream *up, struct slab *slab, const uint8_t *p,
                             size_t len, bool end)
{
    struct stream *s = stream_of(up);

    (void)user;
    if (s == NULL) {
        h2_consume(up, len);
        return;
    }
    if (s->not_grpc != 0) {
        reply_not_grpc(s, s->not_grpc);
        return;
    }
    if (s->state == STREAM_SENT && s->held == NULL) {
        attempt_failed(s, OUTCOME_SERVER_ERROR, GRPC_INTERNAL, "sent data before response headers");
        return;
    }
    s->worker->counters[COUNT_response_bytes] += len;
    if (len > 0) {
        if (!stream_check_memory(s) || !reply_check_messages(s, p, len))
            return;
        reply_commit(s);
        if (s->call.down != NULL) {
            s->reply_bytes += len;
            h2_send_data(s->call.down, slab, p, len, false);
        }
    }
    if (end)
        reply_status(s, H2_TRAILERS, NULL, 0);
    stream_weigh(s);
}

static void upstream_on_sent(void *user, struct h2_stream *up, size_t bytes)
{
    struct stream *s = stream_of(up);

    (void)user;
    if (s == NULL)
        return;
    attempt_on_sent(s, bytes);
    stream_weigh(s);
}

static void upstream_on_close(void *user, struct h2_stream *up, uint32_t code, bool by_peer)
{
    struct stream *s = stream_of(up);
    char why[100];

    (void)user;
    (void)by_peer;
    if (s == NULL)
        return;
    h2_stream_set_user(up, NULL);
    s->attempt.up = NULL; /* gone: nothing to cancel */
    if (s->not_grpc != 0) {
        reply_not_grpc(s, s->not_grpc);
        return;
    }
    if (code == H2_CANCEL && s->deadline_us != 0 &&
        stream_now(s) + CLOCKS_DIFFER_US >= s->deadline_us) {
        stream_deadline_passed(s);
        return;
    }
    if (code == H2_CONNECT_ERROR && h2_is_done(h2_stream_h2(up))) {
        attempt_failed(s, OUTCOME_LOST, GRPC_UNAVAILABLE, "broke its connection under the call");
        return;
    }
    switch (code) {
    case H2_REFUSED_STREAM: /* behind response headers it is not to be believed */
        attempt_failed(s, s->held == NULL ? OUTCOME_REFUSED : OUTCOME_RESET, GRPC_UNAVAILABLE,
                       "did not take the call (REFUSED_STREAM)");
        return;
    default:
        snprintf(why, sizeof(why), "reset the call with %s", h2_code_name(code));
        attempt_failed(s, OUTCOME_RESET, grpc_status_of_h2(code), why);
        return;
    }
}

const struct h2_events upstream_events = {
    .on_headers = upstream_on_headers,
    .on_data = upstream_on_data,
    .on_sent = upstream_on_sent,
    .on_close = upstream_on_close,
};
