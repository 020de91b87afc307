#include "gateway/stream.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/xalloc.h"

#define ARENA_BYTES   (256u * 1024) /* header fields both ways and short request bytes */
#define SPARE_STREAMS 256           /* kept for the next calls of this worker */
#define MIB           (1024u * 1024)

#define TO(s) (1u << STREAM_##s)
static const struct {
    const char *name;
    unsigned next;
} states[STREAM_N_STATES] = {
    [STREAM_HEADERS] = {"headers", TO(QUEUED) | TO(SENT) | TO(ENDED)},
    [STREAM_QUEUED] = {"queued", TO(QUEUED) | TO(SENT) | TO(ENDED)},
    [STREAM_SENT] = {"sent", TO(SENT) | TO(QUEUED) | TO(REPLYING) | TO(ENDED)}, /* SENT: next try */
    [STREAM_REPLYING] = {"replying", TO(ENDED)},
    [STREAM_ENDED] = {"ended", TO(DONE)},
    [STREAM_DONE] = {"done", 0},
};

static const struct {
    const char *name;
    enum counter count;
} ends[N_STREAM_ENDS] = {
    [END_RELAYED] = {"relayed", COUNT_ended_relayed},
    [END_BY_CLIENT] = {"by_client", COUNT_ended_by_client},
    [END_DEADLINE] = {"deadline", COUNT_ended_deadline},
    [END_BAD_REQUEST] = {"bad_request", COUNT_ended_bad_request},
    [END_NO_ROUTE] = {"no_route", COUNT_ended_no_route},
    [END_RENAMED] = {"renamed", COUNT_ended_renamed},
    [END_REFUSED_METHOD] = {"refused_method", COUNT_ended_refused_method},
    [END_COMPRESSED] = {"compressed", COUNT_ended_compressed},
    [END_OVER_MESSAGE] = {"over_message", COUNT_ended_over_message},
    [END_OVER_MEMORY] = {"over_memory", COUNT_ended_over_memory},
    [END_QUEUE_FULL] = {"queue_full", COUNT_ended_queue_full},
    [END_NO_REPLICA] = {"no_replica", COUNT_ended_no_replica},
    [END_UPSTREAM_LOST] = {"upstream_lost", COUNT_ended_upstream_lost},
    [END_DRAINING] = {"draining", COUNT_ended_draining},
};

static bool state_is_at_replica(enum stream_state st)
{
    return st == STREAM_SENT || st == STREAM_REPLYING;
}

/* Take this call's part out of (by -1) or into (1) the lane's gauges and queue. */
static void stream_join_lane(struct stream *s, struct lane *l, uint32_t by)
{
    lane_account_busy(l);
    l->in_flight += state_is_at_replica(s->state) ? by : 0;
    l->n_queued += s->state == STREAM_QUEUED ? by : 0;
}

void stream_set_state(struct stream *s, enum stream_state to)
{
    struct lane *l = s->lane;

    check(states[s->state].next & (1u << to));
    log_debug("stream_state", "worker=%u from=%s to=%s", s->worker->index, states[s->state].name,
              states[to].name);
    if (l != NULL)
        stream_join_lane(s, l, (uint32_t)-1);
    s->worker->counters[COUNT_streams_queued] -= s->state == STREAM_QUEUED;
    s->worker->counters[COUNT_streams_queued] += to == STREAM_QUEUED;
    list_remove(&s->queue_node);
    if (to == STREAM_QUEUED && !s->backing_off)
        list_push_back(&l->queue, &s->queue_node);
    if (to != STREAM_QUEUED)
        timer_stop(&s->worker->loop, &s->again);
    s->state = to;
    if (l != NULL)
        stream_join_lane(s, l, 1);
}

void stream_set_lane(struct stream *s, struct lane *l)
{
    if (s->lane != NULL) {
        stream_join_lane(s, s->lane, (uint32_t)-1);
        list_remove(&s->queue_node);
        lane_release(s->lane);
    }
    s->lane = l;
    lane_hold(l);
    stream_join_lane(s, l, 1);
    if (s->state == STREAM_QUEUED && !s->backing_off)
        list_push_back(&l->queue, &s->queue_node);
}

uint64_t stream_now(const struct stream *s)
{
    return s->worker->loop.now_us;
}

const char *stream_model(const struct stream *s)
{
    return s->lane == NULL ? "" : s->lane->model;
}

/* --- the end --- */

void stream_end(struct stream *s, enum stream_end why, enum grpc_status status)
{
    struct worker *w = s->worker;

    if (s->state >= STREAM_ENDED)
        return;
    worker_count(w, ends[why].count);
    log_debug("stream_end", "worker=%u model=%s version=%s grpc=%u took_us=%llu msg=%s", w->index,
              stream_model(s), s->lane == NULL ? "" : s->lane->version, (unsigned)status,
              (unsigned long long)(stream_now(s) - s->began_us), ends[why].name);
    stream_set_state(s, STREAM_ENDED);
    if (s->lane != NULL) {
        lane_count_end(s->lane, status, stream_now(s) - s->began_us);
        lane_release(s->lane);
        s->lane = NULL;
    }
    reply_drop_held(s);
    body_drop(&s->body);
    if (s->client_ended || s->call.down == NULL)
        return;
    if (why == END_RELAYED)
        worker_count(w, COUNT_early_answers);
    call_stop_upload(&s->call);
}

void stream_fail(struct stream *s, enum stream_end why, enum grpc_status status, const char *fmt,
                 ...)
{
    char text[600];
    va_list args;

    if (s->state >= STREAM_ENDED)
        return;
    va_start(args, fmt);
    vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    attempt_detach(s, OUTCOME_CANCELLED, H2_CANCEL);
    call_send_status(&s->call, s->state == STREAM_REPLYING, status, text);
    stream_end(s, why, status);
}

static void stream_free(struct stream *s)
{
    arena_fini(&s->arena);
    free(s);
}

void stream_spare_free(struct stream *s)
{
    stream_free(s);
}

static void stream_reap(struct dead *d)
{
    struct stream *s = container_of(d, struct stream, dead);
    struct worker *w = s->worker;

    body_fini(&s->body);
    s->peek = peek_free(s->peek);
    if (w->n_spare_streams >= SPARE_STREAMS) {
        stream_free(s);
        return;
    }
    arena_reset(&s->arena);
    list_push_front(&w->spare_streams, &s->spare_node);
    w->n_spare_streams++;
}

static void stream_on_close(struct call *c, uint32_t code)
{
    struct stream *s = container_of(c, struct stream, call);

    (void)code;
    c->down = NULL;
    if (s->state < STREAM_ENDED) {
        attempt_detach(s, OUTCOME_CANCELLED, H2_CANCEL);
        stream_end(s, c->session->closing ? END_DRAINING : END_BY_CLIENT, GRPC_CANCELLED);
    }
    timer_stop(&s->worker->loop, &s->deadline);
    stream_set_state(s, STREAM_DONE);
    s->worker->counters[COUNT_streams_open]--;
    loop_bury(&s->worker->loop, &s->dead);
}

static void stream_on_deadline(struct timer *t)
{
    struct stream *s = container_of(t, struct stream, deadline);

    if (s->state == STREAM_ENDED) { /* answered, but the client does not take it */
        if (s->call.down != NULL)
            h2_reset(s->call.down, H2_CANCEL);
        return;
    }

    const char *where = s->state == STREAM_HEADERS  ? "reading the request"
                        : s->state == STREAM_QUEUED ? "waiting for a replica"
                                                    : "at a replica";
    char at[160] = "";

    if (s->attempt.member != NULL)
        snprintf(at, sizeof(at), " %s", s->attempt.member->replica);
    attempt_detach(s, OUTCOME_SERVER_ERROR, H2_CANCEL);
    stream_fail(s, END_DEADLINE, GRPC_DEADLINE_EXCEEDED,
                "the deadline of %llu ms passed while %s%s",
                (unsigned long long)((s->deadline_us - s->began_us) / US_PER_MS), where, at);
}

/* --- the route --- */

bool stream_check_cap(struct stream *s, const char *what, const struct grpc_reader *r)
{
    const uint64_t cap = (uint64_t)s->limits.message_mib * MIB;

    if (cap == 0 || r->message_bytes <= cap)
        return true;
    stream_fail(s, END_OVER_MESSAGE, GRPC_RESOURCE_EXHAUSTED,
                "%s message of %u bytes is over limits.message_mib = %u MiB of model \"%s\"", what,
                r->message_bytes, s->limits.message_mib, stream_model(s));
    return false;
}

static void stream_set_caps(struct stream *s)
{
    const uint64_t cap = (uint64_t)s->limits.message_mib * MIB;
    const uint32_t max = cap == 0 || cap > UINT32_MAX ? UINT32_MAX : (uint32_t)cap;

    s->request_reader.max_message_bytes = max;
    grpc_reader_init(&s->response_reader, max);
}

/* The server must be told which version was chosen: prepare what is appended to every message, and
 * mend the prefix of the one that is already kept. */
static bool stream_set_override(struct stream *s, const struct snap_version *v)
{
    const char *version = v->conf->name;

    if (s->opaque_message) {
        stream_fail(s, END_COMPRESSED, GRPC_UNIMPLEMENTED,
                    "a compressed message of model \"%s\" can't be given the version \"%s\" that "
                    "was chosen for it: name a version by number in it, or send it uncompressed",
                    stream_model(s), version);
        return false;
    }
    s->override_len = walker_override(s->path.walker, version, strlen(version), s->override);
    if (s->override_len == 0) {
        stream_fail(s, END_NO_ROUTE, GRPC_INVALID_ARGUMENT,
                    "a request of this kind can't be given the version \"%s\" of model \"%s\" that "
                    "was chosen for it: name a version by number in it",
                    version, stream_model(s));
        return false;
    }
    grpc_prefix_write(body_head(&s->body, GRPC_PREFIX_BYTES), false,
                      s->request_reader.message_bytes + (uint32_t)s->override_len);
    return true;
}

static void stream_start_deadline(struct stream *s, uint64_t timeout_us)
{
    s->deadline_us = s->began_us + timeout_us;
    if (s->deadline_us < s->began_us) /* 10^8 hours and the like: as good as none */
        s->deadline_us = UINT64_MAX;
    timer_start(&s->worker->loop, &s->deadline, s->deadline_us);
}

/* Everything that decides the route is known. false: the call has ended. */
static bool stream_route(struct stream *s, const struct route_want *want)
{
    struct worker *w = s->worker;
    struct route route;
    struct err err = {0};
    const int r = route_find(&route, w->snap, &s->path, want, &err);

    s->routed = true;
    if (r != ROUTE_OK) {
        stream_fail(s, END_NO_ROUTE, route_status(r, &s->path), "%s", err.text);
        return false;
    }

    const struct snap_model *model = &w->snap->models[route.model];
    struct model_state *m = balancer_model(w->balancer, route.model);
    const int version = route.version >= 0 ? route.version : model_pick_version(m, stream_now(s));

    s->limits = model->conf->limits;
    stream_set_caps(s);
    if (version < 0) {
        stream_fail(s, END_NO_REPLICA, GRPC_UNAVAILABLE, "no version of model \"%s\" takes traffic",
                    model->conf->name);
        return false;
    }

    const struct snap_version *v = &model->versions[version];

    s->by_split = route.version < 0;
    s->may_come = v->conf->n_command > 0 || v->n_endpoints > 0;
    stream_set_lane(s, m->clusters[version]->queue);
    s->lane->counts.started++;
    if (s->deadline_us == 0 && s->limits.deadline_ms > 0)
        stream_start_deadline(s, s->limits.deadline_ms * US_PER_MS);
    if (s->path.kind != ROUTE_BY_MESSAGE)
        return true;
    if (!stream_check_cap(s, "the request", &s->request_reader))
        return false;
    if ((route.by_label || (s->by_split && v->shared_endpoints)) &&
        strcmp(v->conf->name, VERSION_ANY) != 0)
        return stream_set_override(s, v);
    return true;
}

static struct route_want want_of_walker(const struct walker *w)
{
    return (struct route_want){.name = w->name.bytes,
                               .name_len = w->name.len,
                               .choice = w->choice,
                               .version = w->version.bytes,
                               .version_len = w->version.len};
}

static bool stream_has_hint(const struct stream *s)
{
    return s->head.model_hint != NULL && s->head.model_hint->value_len <= WALKER_NAME_MAX &&
           (s->head.version_hint == NULL || s->head.version_hint->value_len <= WALKER_NAME_MAX);
}

static struct route_want want_of_hint(const struct stream *s)
{
    struct route_want want = {.name = s->head.model_hint->value,
                              .name_len = s->head.model_hint->value_len};

    if (s->head.version_hint != NULL && s->head.version_hint->value_len > 0) {
        want.choice = WALKER_VERSION;
        want.version = s->head.version_hint->value;
        want.version_len = s->head.version_hint->value_len;
    }
    return want;
}

/* --- the request's messages --- */

static bool stream_refuse_walk(struct stream *s)
{
    char why[400];

    stream_fail(s, s->routed ? END_RENAMED : END_BAD_REQUEST, GRPC_INVALID_ARGUMENT, "%s",
                walker_explain(&s->walker, why, sizeof(why)));
    return false;
}

/* The message names no model where it should: the hint, if there is one, does. */
static bool stream_route_by_hint(struct stream *s)
{
    if (!stream_has_hint(s)) {
        stream_fail(s, END_BAD_REQUEST, GRPC_INVALID_ARGUMENT,
                    "no model name in the first %d bytes of the message, and no penstock-model "
                    "metadata",
                    WALKER_LOOK_BYTES);
        return false;
    }

    const struct route_want want = want_of_hint(s);

    if (walker_commit_hint(&s->walker, want.name, want.name_len, want.choice, want.version,
                           want.version_len) == WALKER_REFUSED)
        return stream_refuse_walk(s);
    return stream_route(s, &want);
}

static bool stream_after_walk(struct stream *s, enum walker_result r)
{
    if (r == WALKER_REFUSED)
        return stream_refuse_walk(s);
    if (s->routed || r == WALKER_MORE)
        return true;
    if (r == WALKER_BLIND || (s->walker.name.len == 0 && stream_has_hint(s)))
        return stream_route_by_hint(s);

    const struct route_want want = want_of_walker(&s->walker);

    walker_commit(&s->walker);
    return stream_route(s, &want);
}

static bool text_equals(const struct walker_text *a, const struct walker_text *b)
{
    return a->len == b->len && memcmp(a->bytes, b->bytes, a->len) == 0;
}

/* A compressed message has shown its name: route by it, or hold it against the route. */
static bool stream_after_peek(struct stream *s, enum peek_result r)
{
    const struct walker *seen = peek_walker(s->peek);
    char why[400];

    switch (r) {
    case PEEK_MORE:
        return true;
    case PEEK_REFUSED:
        stream_fail(s, END_COMPRESSED, GRPC_INVALID_ARGUMENT, "%s",
                    peek_explain(s->peek, why, sizeof(why)));
        return false;
    case PEEK_BLIND:
        stream_fail(s, END_COMPRESSED, GRPC_INVALID_ARGUMENT,
                    "no model name in the first %d bytes of the inflated message, and no "
                    "penstock-model metadata",
                    WALKER_LOOK_BYTES);
        return false;
    case PEEK_READY:
        break;
    }
    if (!s->routed) {
        const struct route_want want = want_of_walker(seen);

        walker_commit_hint(&s->walker, want.name, want.name_len, want.choice, want.version,
                           want.version_len);
        return stream_route(s, &want);
    }
    if (text_equals(&seen->name, &s->walker.name) && seen->choice == s->walker.choice &&
        (seen->choice == WALKER_ANY || text_equals(&seen->version, &s->walker.version)))
        return true;
    stream_fail(s, END_RENAMED, GRPC_INVALID_ARGUMENT,
                "a later message of the call names another model or version than \"%.*s\"",
                (int)s->walker.name.len, s->walker.name.bytes);
    return false;
}

/* A compressed message begins. */
static bool stream_begin_compressed(struct stream *s)
{
    s->opaque_message = true;
    if (s->override_len > 0) {
        stream_fail(s, END_COMPRESSED, GRPC_UNIMPLEMENTED,
                    "a compressed message can't be given the version that was chosen for model "
                    "\"%s\": name a version by number in it, or send it uncompressed",
                    stream_model(s));
        return false;
    }
    if (stream_has_hint(s)) {
        const struct route_want want = want_of_hint(s);

        return s->routed || stream_route(s, &want);
    }
    if (s->head.encoding == ENCODING_OTHER) {
        stream_fail(
            s, END_COMPRESSED, GRPC_UNIMPLEMENTED,
            "grpc-encoding \"%.*s\" can't be read to find the model (gzip, deflate and "
            "identity can): name it in penstock-model metadata",
            (int)(s->head.encoding_field->value_len < 40 ? s->head.encoding_field->value_len : 40),
            s->head.encoding_field->value);
        return false;
    }
    if (s->peek == NULL)
        s->peek = peek_new(s->path.walker);
    if (s->peek == NULL) {
        stream_fail(s, END_OVER_MEMORY, GRPC_RESOURCE_EXHAUSTED, "no memory to inflate a message");
        return false;
    }
    peek_begin(s->peek);
    return true;
}

/* A message's prefix is complete. false: the call has ended. */
static bool stream_begin_message(struct stream *s)
{
    const struct grpc_reader *r = &s->request_reader;

    s->opaque_message = false;
    if (r->compressed && s->head.encoding == ENCODING_IDENTITY) {
        stream_fail(s, END_BAD_REQUEST, GRPC_INTERNAL,
                    "a message has the compressed flag, but the call has no grpc-encoding");
        return false;
    }
    if (s->path.kind != ROUTE_BY_MESSAGE)
        return true;
    if (r->compressed)
        return stream_begin_compressed(s);
    return stream_after_walk(s, walker_begin(&s->walker, r->message_bytes));
}

static bool stream_read_piece(struct stream *s, const uint8_t *p, size_t len)
{
    if (s->path.kind != ROUTE_BY_MESSAGE)
        return true;
    if (!s->opaque_message)
        return stream_after_walk(s, walker_feed(&s->walker, p, len));
    if (s->peek == NULL)
        return true; /* routed by a hint */
    return stream_after_peek(s, peek_feed(s->peek, p, len, s->request_reader.left_bytes == 0));
}

/* --- bytes on their way --- */

/* One chunk from the client while it is checked and passed on, to the replica or into body. While
 * the route is not known, a prefix goes as a copy of its own, so that it can be mended. */
struct passage {
    struct slab *slab;
    const uint8_t *from; /* taken, not passed on yet */
    const uint8_t *end;
    bool last;  /* END_STREAM comes with this chunk */
    bool ended; /* and was passed on */
};

static void passage_until(struct stream *s, struct passage *g, const uint8_t *to, bool copy)
{
    const bool last = g->last && to == g->end;

    if (to > g->from)
        attempt_forward(s, copy ? NULL : g->slab, g->from, (size_t)(to - g->from), last);
    g->ended |= last && to > g->from;
    g->from = to;
}

/* The reader stands behind a prefix. false: the call has ended. */
static bool stream_pass_prefix(struct stream *s, struct passage *g, const uint8_t *at)
{
    uint8_t prefix[GRPC_PREFIX_BYTES];

    if (!s->routed) {
        passage_until(s, g, at, true);
        return stream_begin_message(s);
    }
    if (!stream_begin_message(s))
        return false;
    if (s->override_len > 0) {
        grpc_prefix_write(prefix, false,
                          s->request_reader.message_bytes + (uint32_t)s->override_len);
        attempt_forward(s, NULL, prefix, sizeof(prefix), false);
        g->from = at;
    }
    return true;
}

static void stream_pass_message_end(struct stream *s, struct passage *g, const uint8_t *at)
{
    if (s->override_len == 0)
        return;
    if (at > g->from)
        attempt_forward(s, g->slab, g->from, (size_t)(at - g->from), false);
    g->from = at;
    g->ended = g->last && at == g->end;
    attempt_forward(s, NULL, s->override, s->override_len, g->ended);
}

/* What the reader could not finish in this chunk. */
static void stream_pass_rest(struct stream *s, struct passage *g)
{
    const bool in_prefix =
        s->request_reader.prefix_seen > 0 && s->request_reader.prefix_seen < GRPC_PREFIX_BYTES;

    if (s->override_len > 0 && in_prefix)
        g->from = g->end; /* comes mended, when it is complete */
    passage_until(s, g, g->end, !s->routed && in_prefix);
}

/* Read, check and pass on what came. false: the call has ended. */
static bool stream_take(struct stream *s, struct passage *g)
{
    const uint8_t *at = g->from, *piece;
    size_t left = (size_t)(g->end - g->from), piece_len;

    for (;;) {
        switch (grpc_reader_next(&s->request_reader, &at, &left, &piece, &piece_len)) {
        case GRPC_READ_MORE:
            stream_pass_rest(s, g);
            return true;
        case GRPC_READ_BEGIN:
            if (!stream_pass_prefix(s, g, at))
                return false;
            break;
        case GRPC_READ_BYTES:
            if (!stream_read_piece(s, piece, piece_len))
                return false;
            break;
        case GRPC_READ_END:
            stream_pass_message_end(s, g, at);
            break;
        case GRPC_READ_TOO_LONG:
            stream_check_cap(s, "a request", &s->request_reader);
            return false;
        case GRPC_READ_BAD_FLAG:
            stream_fail(s, END_BAD_REQUEST, GRPC_INTERNAL,
                        "the compressed flag of a request message is neither 0 nor 1");
            return false;
        }
    }
}

/* The client has sent everything. */
static void stream_half_close(struct stream *s)
{
    s->client_ended = true;
    if (!s->routed)
        stream_fail(s, END_BAD_REQUEST, GRPC_INVALID_ARGUMENT,
                    s->request_bytes == 0 ? "the call has no request message"
                                          : "the call ends inside its first request message");
}

static void stream_on_data(struct call *c, struct slab *slab, const uint8_t *p, size_t len,
                           bool end)
{
    struct stream *s = container_of(c, struct stream, call);
    struct passage g = {.slab = slab, .from = p, .end = p + len, .last = end};

    if (s->state >= STREAM_ENDED) {
        h2_consume(c->down, len); /* of an upload that was told to stop */
        return;
    }
    s->worker->counters[COUNT_request_bytes] += len;
    s->request_bytes += len;
    if (!stream_take(s, &g))
        return;
    if (end) {
        if (!g.ended)
            attempt_forward(s, NULL, NULL, 0, true);
        stream_half_close(s);
    }
    if (s->routed && s->state == STREAM_HEADERS)
        attempt_begin(s);
}

static void stream_on_trailers(struct call *c, const struct h2_field *fields, size_t n)
{
    struct stream *s = container_of(c, struct stream, call);

    if (s->state >= STREAM_ENDED)
        return;
    s->request_trailers = fields_copy(&s->arena, fields, n);
    s->n_request_trailers = n;
    if (s->request_trailers == NULL) {
        stream_fail(s, END_OVER_MEMORY, GRPC_RESOURCE_EXHAUSTED,
                    "the request's trailers are over the memory limit of a call");
        return;
    }
    stream_half_close(s);
    if (s->attempt.up != NULL)
        h2_send_headers(s->attempt.up, H2_TRAILERS, s->request_trailers, n, true);
}

static void stream_on_sent(struct call *c, size_t bytes)
{
    reply_credit(container_of(c, struct stream, call), bytes);
}

/* --- the beginning --- */

static const struct call_ops stream_call_ops = {
    .on_data = stream_on_data,
    .on_trailers = stream_on_trailers,
    .on_sent = stream_on_sent,
    .on_close = stream_on_close,
};

static struct stream *stream_new(struct worker *w)
{
    struct list *spare = list_pop_front(&w->spare_streams);
    struct arena arena;
    struct stream *s;

    if (spare == NULL) {
        s = xcalloc(1, sizeof(*s));
        arena_init(&s->arena, ARENA_BYTES);
    } else {
        s = list_entry(spare, struct stream, spare_node);
        w->n_spare_streams--;
        arena = s->arena;
        memset(s, 0, sizeof(*s));
        s->arena = arena;
    }
    s->magic = STREAM_MAGIC;
    s->worker = w;
    s->dead.reap = stream_reap;
    s->deadline.fire = stream_on_deadline;
    s->again.fire = attempt_on_again;
    s->began_us = w->loop.now_us;
    s->whole = true;
    body_init(&s->body, &w->loop.slabs);
    grpc_reader_init(&s->request_reader, UINT32_MAX);
    return s;
}

void stream_start(struct session *session, struct h2_stream *down, const struct h2_field *fields,
                  size_t n, bool end)
{
    struct worker *w = session->worker;
    struct stream *s = stream_new(w);

    worker_count(w, COUNT_streams_started);
    w->counters[COUNT_streams_open]++;
    call_attach(&s->call, &stream_call_ops, session, down);
    s->client_ended = end;

    const enum request_fault fault = request_read(&s->head, &s->arena, fields, n);

    if (fault != REQUEST_OK || s->head.fields == NULL) {
        const enum grpc_status status = call_refuse(&s->call, fault, &s->head);

        stream_end(s, s->head.fields == NULL ? END_OVER_MEMORY : END_BAD_REQUEST, status);
        return;
    }
    if (s->head.timeout != NULL)
        stream_start_deadline(s, s->head.timeout_us);
    s->path = route_of_path(s->head.path->value, s->head.path->value_len, w->routes_kserve,
                            w->routes_tensorflow);
    switch (s->path.kind) {
    case ROUTE_REFUSED:
        stream_fail(s, END_REFUSED_METHOD, s->path.status, "%.*s %s",
                    (int)(s->head.path->value_len < 200 ? s->head.path->value_len : 200),
                    s->head.path->value, s->path.why);
        return;
    case ROUTE_BY_SERVICE:
        if (stream_route(s, &(struct route_want){.choice = WALKER_ANY}))
            attempt_begin(s);
        return;
    case ROUTE_BY_MESSAGE:
        walker_init(&s->walker, s->path.walker, 0);
        if (end)
            stream_half_close(s);
        return;
    }
}
