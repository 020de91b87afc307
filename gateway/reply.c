/* The response side of a relayed call: what a replica sends, on its way to the client. */
#include "gateway/stream.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "gateway/note.h"

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

static bool reply_is_held(const struct stream *s)
{
    return s->held != NULL || s->held_set != NULL;
}

void reply_drop_held(struct stream *s)
{
    list_remove(&s->held_node);
    h2_set_unref(s->held_set);
    s->held_set = NULL;
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
    if (s->held_set != NULL && s->call.down != NULL)
        h2_send_set(s->call.down, H2_RESPONSE, s->held_set, NULL, 0, false);
    else if (s->held != NULL && s->call.down != NULL)
        h2_send_headers(s->call.down, H2_RESPONSE, s->held, s->n_held, false);
    reply_drop_held(s);
}

static void reply_arm_held_timer(struct worker *w)
{
    const struct stream *s = list_first(&w->held, struct stream, held_node);

    if (s != NULL)
        timer_start(&w->loop, &w->held_timer, s->held_until_us);
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

/* A header block of the replica. */
struct block {
    struct h2_set *set; /* when it is all of the block; else NULL */
    const struct h2_field *fields;
    size_t n;
    const struct reply_note *note;
};

static void reply_send(struct stream *s, enum h2_block kind, const struct block *b, bool end)
{
    struct h2_field *kept;

    if (s->call.down == NULL)
        return;
    if (b->set != NULL && b->note->passes) {
        h2_send_set(s->call.down, kind, b->set, NULL, 0, end);
    } else {
        const size_t n = reply_fields(s, b->fields, b->n, &kept);

        h2_send_headers(s->call.down, kind, kept, n, end);
    }
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

static void reply_headers(struct stream *s, const struct block *b)
{
    struct h2_field *kept;
    size_t n_kept;

    if (s->state != STREAM_SENT || reply_is_held(s) || s->not_grpc != 0) {
        attempt_failed(s, OUTCOME_SERVER_ERROR, GRPC_INTERNAL, "sent its response headers twice");
        return;
    }
    if (!b->note->is_grpc) {
        s->not_grpc = b->note->http_status;
        reply_hold(s);
        return;
    }
    if (!s->whole) { /* no other try could follow */
        reply_commit(s);
        reply_send(s, H2_RESPONSE, b, false);
        return;
    }
    if (b->set != NULL && b->note->passes) {
        s->held_set = h2_set_ref(b->set);
        reply_hold(s);
        return;
    }
    n_kept = reply_fields(s, b->fields, b->n, &kept);
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

/* status: of the note, or what was made of it. */
static enum outcome reply_outcome(const struct stream *s, const struct reply_note *note,
                                  enum grpc_status status)
{
    const bool goaway = s->attempt.up != NULL && h2_saw_goaway(h2_stream_h2(s->attempt.up));
    const enum outcome how = status != note->status
                                 ? outcome_of_status((uint32_t)status, "", 0, goaway)
                             : goaway ? note->outcome_at_goaway
                                      : note->outcome;

    /* A plain service's NOT_FOUND is its own affair: no catalogue says what it has. */
    if (s->path.kind == ROUTE_BY_SERVICE &&
        (how == OUTCOME_UNKNOWN_MODEL || how == OUTCOME_NOT_READY))
        return status == GRPC_UNAVAILABLE ? OUTCOME_UNAVAILABLE : OUTCOME_OK;
    return how;
}

/* The client can count on one status that gRPC knows: what the replica gave is mended where it is
 * none, is there twice, or says that half a message is a success. Returns the number of fields; dst
 * has room for two more. text: room for the code. */
static size_t reply_mend_status(struct h2_field *dst, size_t n, enum grpc_status status,
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
    dst[kept++].value_len = (uint32_t)snprintf(text, 4, "%u", (unsigned)status);
    if (why != NULL) {
        dst[kept] = H2_FIELD("grpc-message", "");
        dst[kept].value = why;
        dst[kept++].value_len = (uint32_t)strlen(why);
    }
    return kept;
}

/* Send the block that ends the answer, with the status mended where it must be. why: a message of
 * ours; NULL: none. */
static void reply_send_status(struct stream *s, enum h2_block kind, const struct block *b,
                              enum grpc_status status, const char *why)
{
    struct h2_field *kept;
    char code[4];
    size_t n;

    if (b->note->status_is_plain && why == NULL) {
        reply_send(s, kind, b, true);
        return;
    }
    n = reply_fields(s, b->fields, b->n, &kept);
    n = reply_mend_status(kept, n, status, why, code);
    if (s->call.down != NULL)
        h2_send_headers(s->call.down, kind, kept, n, true);
}

/* The call's status, as the replica gave it or as it follows from HTTP; kind: what the block was.
 * Ends the call, unless another try begins. */
static void reply_status(struct stream *s, enum h2_block kind, const struct block *b)
{
    const struct reply_note *note = b->note;
    const int http_status = kind == H2_RESPONSE ? note->http_status : 200;
    enum grpc_status status = note->status;
    const char *why = NULL;

    if (!note->has_status && http_status != 200) {
        reply_not_grpc(s, http_status);
        return;
    }
    if (!note->has_status) {
        why = "penstock: the replica's answer has no grpc-status";
    } else if (status == GRPC_OK && !grpc_reader_is_between(&s->response_reader)) {
        status = GRPC_INTERNAL;
        why = "penstock: the replica's answer ends inside a message";
    }

    const enum outcome how = reply_outcome(s, note, status);

    if (how == OUTCOME_UNKNOWN_MODEL)
        worker_count(s->worker, COUNT_quarantines);
    if (how == OUTCOME_REFUSED && s->state == STREAM_SENT) { /* nobody here has cancelled it */
        attempt_failed(s, how, GRPC_UNAVAILABLE, "went away and cancelled the call");
        return;
    }
    if (s->state == STREAM_SENT && attempt_retry_answered(s, how, note->pushed_back))
        return;

    const bool headers_go_first = reply_is_held(s) || s->state == STREAM_REPLYING;

    if (reply_is_held(s))
        reply_commit(s);
    reply_send_status(s, headers_go_first ? H2_TRAILERS : H2_RESPONSE, b, status, why);
    /* All sent: the stream closes by itself. Else stop what is left of the upload. */
    attempt_detach(s, how,
                   s->client_ended && s->attempt.up != NULL && h2_stream_queued(s->attempt.up) == 0
                       ? H2_NO_ERROR
                       : H2_CANCEL);
    stream_end(s, END_RELAYED, status);
}

/* --- events of the replica's stream --- */

static struct stream *stream_of(struct h2_stream *up)
{
    void *user = h2_stream_user(up);

    return user == NULL ? NULL : obj_cast(STREAM, struct stream, user);
}

static void upstream_block(struct stream *s, struct h2_set *set, enum h2_block kind,
                           const struct h2_field *fields, size_t n, bool end)
{
    struct reply_note loose;
    const struct block b = {.set = set != NULL && set->n == n ? set : NULL,
                            .fields = fields,
                            .n = n,
                            .note = reply_note_of(set, fields, n, &loose)};

    if (end)
        reply_status(s, kind, &b);
    else
        reply_headers(s, &b);
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
    else
        upstream_block(s, h2_block_set(up), kind, fields, n, end);
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
    if (s->state == STREAM_SENT && !reply_is_held(s)) {
        attempt_failed(s, OUTCOME_SERVER_ERROR, GRPC_INTERNAL, "sent data before response headers");
        return;
    }
    s->worker->counters[COUNT_response_bytes] += len;
    s->replied_bytes += len;
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
        upstream_block(s, NULL, H2_TRAILERS, NULL, 0, true);
    stream_weigh(s);
}

static void upstream_on_sent(void *user, struct h2_stream *up, size_t bytes)
{
    struct stream *s = stream_of(up);

    (void)user;
    if (s == NULL)
        return;
    attempt_on_sent(s, bytes);
    stream_lighten(s);
}

static void upstream_on_close(void *user, struct h2_stream *up, uint32_t code, bool by_peer)
{
    struct stream *s = stream_of(up);
    char why[160];

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
        snprintf(why, sizeof(why), "broke its connection under the call: %s",
                 h2_why_done(h2_stream_h2(up)));
        attempt_failed(s, OUTCOME_LOST, GRPC_UNAVAILABLE, why);
        return;
    }
    switch (code) {
    case H2_REFUSED_STREAM: /* behind response headers it is not to be believed */
        attempt_failed(s, !reply_is_held(s) ? OUTCOME_REFUSED : OUTCOME_RESET, GRPC_UNAVAILABLE,
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
