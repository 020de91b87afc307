/* The request side of a relayed call: reads the client's messages as they pass, finds the route,
 * holds later names against it, and tells the server which version was chosen. */
#include "gateway/stream.h"

#include <string.h>

#include "base/clock.h"

#define READ_ON_BYTES (32u * 1024) /* of an upload that is refused: more is told to stop */
#define MIB           (1024u * 1024)

/* --- the route --- */

bool inbound_check_cap(struct stream *s, const char *what, const struct grpc_reader *r)
{
    const uint64_t cap = (uint64_t)s->limits.message_mib * MIB;

    if (cap == 0 || r->message_bytes <= cap)
        return true;
    stream_fail(s, END_OVER_MESSAGE, GRPC_RESOURCE_EXHAUSTED,
                "%s message of %u bytes is over limits.message_mib = %u MiB of model \"%s\"", what,
                r->message_bytes, s->limits.message_mib, stream_model(s));
    return false;
}

static void inbound_set_caps(struct stream *s)
{
    const uint64_t cap = (uint64_t)s->limits.message_mib * MIB;
    const uint32_t max = cap == 0 || cap > UINT32_MAX ? UINT32_MAX : (uint32_t)cap;

    s->request_reader.max_message_bytes = max;
    grpc_reader_init(&s->response_reader, max);
}

/* A message may only grow as far as its prefix can say: else the server would take the rest of it
 * for the next message, which nobody has looked at. false: the call has ended. */
static bool inbound_can_lengthen(struct stream *s)
{
    if (s->request_reader.message_bytes <= UINT32_MAX - (uint32_t)s->override_len)
        return true;
    stream_fail(
        s, END_OVER_MESSAGE, GRPC_RESOURCE_EXHAUSTED,
        "a request message of %u bytes has no room for the version of model \"%s\" that was "
        "chosen for it: name a version by number in it",
        s->request_reader.message_bytes, stream_model(s));
    return false;
}

/* The server must be told which version was chosen: prepare what is appended to every message, and
 * mend the prefix of the one that is already kept. */
static bool inbound_set_override(struct stream *s, const struct snap_version *v)
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
    if (!inbound_can_lengthen(s))
        return false;
    grpc_prefix_write(body_head(&s->body, GRPC_PREFIX_BYTES), false,
                      s->request_reader.message_bytes + (uint32_t)s->override_len);
    return true;
}

/* The route is found: choose the version, and what the call may do. false: the call has ended. */
bool inbound_go(struct stream *s, const struct route *route)
{
    struct worker *w = s->worker;
    const struct snap_model *model = &w->snap->models[route->model];
    struct model_state *m = balancer_model(w->balancer, route->model);
    const int version = route->version >= 0 ? route->version : model_pick_version(m, stream_now(s));

    s->routed = true;
    s->limits = model->conf->limits;
    inbound_set_caps(s);
    if (version < 0) {
        stream_fail(s, END_NO_REPLICA, GRPC_UNAVAILABLE, "no version of model \"%s\" takes traffic",
                    model->conf->name);
        return false;
    }

    const struct snap_version *v = &model->versions[version];

    s->by_split = route->version < 0;
    s->may_come = v->conf->n_command > 0 || v->n_endpoints > 0;
    stream_set_lane(s, m->clusters[version]->queue);
    s->lane->counts.started++;
    if (s->deadline_us == 0 && s->limits.deadline_ms > 0)
        stream_start_deadline(s, s->limits.deadline_ms * US_PER_MS);
    if (s->path.kind != ROUTE_BY_MESSAGE)
        return true;
    if (!inbound_check_cap(s, "the request", &s->request_reader))
        return false;
    if ((route->by_label || (s->by_split && v->shared_endpoints)) &&
        strcmp(v->conf->name, VERSION_ANY) != 0)
        return inbound_set_override(s, v);
    return true;
}

/* Everything that decides the route is known. false: the call has ended. */
bool inbound_route(struct stream *s, const struct route_want *want)
{
    struct err err; /* filled when r says so */
    const int r = route_find(&s->route, s->worker->snap, &s->path, want, &err);

    if (r == ROUTE_OK)
        return inbound_go(s, &s->route);
    s->routed = true;
    stream_fail(s, END_NO_ROUTE, route_status(r, &s->path), "%s", err.text);
    return false;
}

static struct route_want want_of_walker(const struct walker *w)
{
    return (struct route_want){.name = w->name.bytes,
                               .name_len = w->name.len,
                               .choice = w->choice,
                               .version = w->version.bytes,
                               .version_len = w->version.len};
}

static bool inbound_has_hint(const struct stream *s)
{
    return s->head->model_hint != NULL && s->head->model_hint->value_len <= WALKER_NAME_MAX &&
           (s->head->version_hint == NULL || s->head->version_hint->value_len <= WALKER_NAME_MAX);
}

static struct route_want want_of_hint(const struct stream *s)
{
    struct route_want want = {.name = s->head->model_hint->value,
                              .name_len = s->head->model_hint->value_len};

    if (s->head->version_hint != NULL && s->head->version_hint->value_len > 0) {
        want.choice = WALKER_VERSION;
        want.version = s->head->version_hint->value;
        want.version_len = s->head->version_hint->value_len;
    }
    return want;
}

/* --- the request's messages --- */

static bool inbound_refuse_walk(struct stream *s)
{
    char why[400];

    stream_fail(s, s->routed ? END_RENAMED : END_BAD_REQUEST, GRPC_INVALID_ARGUMENT, "%s",
                walker_explain(&s->walker, why, sizeof(why)));
    return false;
}

/* The message names no model where it should: the hint, if there is one, does. */
static bool inbound_route_by_hint(struct stream *s)
{
    if (!inbound_has_hint(s)) {
        stream_fail(s, END_BAD_REQUEST, GRPC_INVALID_ARGUMENT,
                    "no model name in the first %d bytes of the message, and no penstock-model "
                    "metadata",
                    WALKER_LOOK_BYTES);
        return false;
    }

    const struct route_want want = want_of_hint(s);

    if (walker_commit_hint(&s->walker, want.name, want.name_len, want.choice, want.version,
                           want.version_len) == WALKER_REFUSED)
        return inbound_refuse_walk(s);
    return inbound_route(s, &want);
}

static bool inbound_after_walk(struct stream *s, enum walker_result r)
{
    if (r == WALKER_REFUSED)
        return inbound_refuse_walk(s);
    if (s->routed || r == WALKER_MORE)
        return true;
    if (r == WALKER_BLIND || (s->walker.name.len == 0 && inbound_has_hint(s)))
        return inbound_route_by_hint(s);

    const struct route_want want = want_of_walker(&s->walker);

    walker_commit(&s->walker);
    return inbound_route(s, &want);
}

/* In two steps where the route is taken on the way: a second name behind that place is refused
 * however the message was cut into frames. */
static bool inbound_walk(struct stream *s, const uint8_t *p, size_t len)
{
    size_t taken = 0;

    if (!s->routed && !inbound_after_walk(s, walker_feed_to_ready(&s->walker, p, len, &taken)))
        return false;
    return taken == len || inbound_after_walk(s, walker_feed(&s->walker, p + taken, len - taken));
}

static bool text_equals(const struct walker_text *a, const struct walker_text *b)
{
    return a->len == b->len && memcmp(a->bytes, b->bytes, a->len) == 0;
}

/* A compressed message has shown its name: route by it, or hold it against the route. */
static bool inbound_after_peek(struct stream *s, enum peek_result r)
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
        return inbound_route(s, &want);
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
static bool inbound_begin_compressed(struct stream *s)
{
    s->opaque_message = true;
    if (s->override_len > 0) {
        stream_fail(s, END_COMPRESSED, GRPC_UNIMPLEMENTED,
                    "a compressed message can't be given the version that was chosen for model "
                    "\"%s\": name a version by number in it, or send it uncompressed",
                    stream_model(s));
        return false;
    }
    if (inbound_has_hint(s)) {
        const struct route_want want = want_of_hint(s);

        return s->routed || inbound_route(s, &want);
    }
    if (s->head->encoding == ENCODING_OTHER) {
        stream_fail(s, END_COMPRESSED, GRPC_UNIMPLEMENTED,
                    "grpc-encoding \"%.*s\" can't be read to find the model (gzip, deflate and "
                    "identity can): name it in penstock-model metadata",
                    (int)(s->head->encoding_field->value_len < 40
                              ? s->head->encoding_field->value_len
                              : 40),
                    s->head->encoding_field->value);
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
static bool inbound_begin_message(struct stream *s)
{
    const struct grpc_reader *r = &s->request_reader;

    s->opaque_message = false;
    if (r->compressed && s->head->encoding == ENCODING_IDENTITY) {
        stream_fail(s, END_BAD_REQUEST, GRPC_INTERNAL,
                    "a message has the compressed flag, but the call has no grpc-encoding");
        return false;
    }
    if (s->path.kind != ROUTE_BY_MESSAGE)
        return true;
    if (r->compressed)
        return inbound_begin_compressed(s);
    return inbound_after_walk(s, walker_begin(&s->walker, r->message_bytes));
}

static bool inbound_read_piece(struct stream *s, const uint8_t *p, size_t len)
{
    if (s->path.kind != ROUTE_BY_MESSAGE)
        return true;
    if (!s->opaque_message)
        return inbound_walk(s, p, len);
    if (s->peek == NULL)
        return true; /* routed by a hint */
    return inbound_after_peek(s, peek_feed(s->peek, p, len, s->request_reader.left_bytes == 0));
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
static bool inbound_pass_prefix(struct stream *s, struct passage *g, const uint8_t *at)
{
    uint8_t prefix[GRPC_PREFIX_BYTES];

    if (!s->routed) {
        passage_until(s, g, at, true);
        return inbound_begin_message(s);
    }
    if (!inbound_begin_message(s))
        return false;
    if (s->override_len > 0) {
        if (!inbound_can_lengthen(s))
            return false;
        grpc_prefix_write(prefix, false,
                          s->request_reader.message_bytes + (uint32_t)s->override_len);
        attempt_forward(s, NULL, prefix, sizeof(prefix), false);
        g->from = at;
    }
    return true;
}

static void inbound_pass_message_end(struct stream *s, struct passage *g, const uint8_t *at)
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
static void inbound_pass_rest(struct stream *s, struct passage *g)
{
    const bool in_prefix =
        s->request_reader.prefix_seen > 0 && s->request_reader.prefix_seen < GRPC_PREFIX_BYTES;

    if (s->override_len > 0 && in_prefix)
        g->from = g->end; /* comes mended, when it is complete */
    passage_until(s, g, g->end, !s->routed && in_prefix);
}

/* Read, check and pass on what came. false: the call has ended. */
static bool inbound_take(struct stream *s, struct passage *g)
{
    const uint8_t *at = g->from, *piece;
    size_t left = (size_t)(g->end - g->from), piece_len;

    for (;;) {
        switch (grpc_reader_next(&s->request_reader, &at, &left, &piece, &piece_len)) {
        case GRPC_READ_MORE:
            inbound_pass_rest(s, g);
            return true;
        case GRPC_READ_BEGIN:
            if (!inbound_pass_prefix(s, g, at))
                return false;
            break;
        case GRPC_READ_BYTES:
            if (!inbound_read_piece(s, piece, piece_len))
                return false;
            break;
        case GRPC_READ_END:
            inbound_pass_message_end(s, g, at);
            break;
        case GRPC_READ_TOO_LONG:
            inbound_check_cap(s, "a request", &s->request_reader);
            return false;
        case GRPC_READ_BAD_FLAG:
            stream_fail(s, END_BAD_REQUEST, GRPC_INTERNAL,
                        "the compressed flag of a request message is neither 0 nor 1");
            return false;
        }
    }
}

/* The usual first chunk: one whole message. When one like it was walked before, its route is known
 * and it is not walked again. It waits in body: no attempt has begun. false: the call has ended. */
static bool inbound_take_whole(struct stream *s, struct passage *g)
{
    const uint8_t *message = g->from + GRPC_PREFIX_BYTES;
    const uint32_t bytes = s->request_reader.message_bytes;
    const enum walker_kind kind = s->path.walker;
    const struct shape_row *row = shapes_find(&s->worker->shapes, kind, message, bytes);

    /* The prefix is mended when the version is put in. */
    passage_until(s, g, bytes < OUTQ_COPY_BELOW ? g->end : message, true);
    if (row != NULL) {
        walker_resume(&s->walker, &row->walked);
        if (!inbound_go(s, &row->route))
            return false;
    } else {
        if (!inbound_after_walk(s, walker_begin(&s->walker, bytes)) ||
            (bytes > 0 && !inbound_walk(s, message, bytes)))
            return false;
        shapes_learn(&s->worker->shapes, kind, message, bytes, &s->route);
    }
    inbound_pass_message_end(s, g, g->end);
    passage_until(s, g, g->end, false);
    return true;
}

/* The client has sent everything. */
void inbound_half_close(struct stream *s)
{
    s->client_ended = true;
    if (!s->routed)
        stream_fail(s, END_BAD_REQUEST, GRPC_INVALID_ARGUMENT,
                    s->request_bytes == 0 ? "the call has no request message"
                                          : "the call ends inside its first request message");
}

void inbound_on_data(struct call *c, struct slab *slab, const uint8_t *p, size_t len, bool end)
{
    struct stream *s = container_of(c, struct stream, call);
    struct passage g = {.slab = slab, .from = p, .end = p + len, .last = end};

    if (s->state >= STREAM_ENDED) {
        h2_consume(c->down, len); /* of an upload that was told to stop, or is now */
        s->request_bytes += len;
        if (s->reads_on && s->request_bytes > READ_ON_BYTES)
            call_stop_upload(c);
        return;
    }
    s->worker->counters[COUNT_request_bytes] += len;
    s->request_bytes += len;
    if (!stream_check_memory(s))
        return;
    if (s->state == STREAM_HEADERS && !s->routed && s->path.kind == ROUTE_BY_MESSAGE &&
        grpc_reader_take_whole(&s->request_reader, p, len)) {
        if (!inbound_take_whole(s, &g))
            return;
    } else if (!inbound_take(s, &g)) {
        return;
    }
    if (end) {
        if (!g.ended)
            attempt_forward(s, NULL, NULL, 0, true);
        inbound_half_close(s);
    }
    if (s->routed && s->state == STREAM_HEADERS)
        attempt_begin(s);
    stream_weigh(s);
}

void inbound_on_trailers(struct call *c, const struct h2_field *fields, size_t n)
{
    struct stream *s = container_of(c, struct stream, call);
    struct h2_field *own;

    if (s->state >= STREAM_ENDED)
        return;
    own = fields_copy(&s->arena, fields, n);
    s->request_trailers = own;
    s->n_request_trailers = 0;
    for (size_t i = 0; own != NULL && i < n; i++) {
        if (!field_claims_identity(&own[i]))
            own[s->n_request_trailers++] = own[i];
    }
    if (s->request_trailers == NULL) {
        stream_fail(s, END_OVER_MEMORY, GRPC_RESOURCE_EXHAUSTED,
                    "the request's trailers are over the memory limit of a call");
        return;
    }
    inbound_half_close(s);
    if (s->attempt.up != NULL)
        h2_send_headers(s->attempt.up, H2_TRAILERS, s->request_trailers, s->n_request_trailers,
                        true);
}
