/* The tries of a relayed call: which replica, when, and what happens when one fails. */
#include "gateway/stream.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "gateway/upstream.h"

#define BACKOFF_US     (25 * US_PER_MS)  /* when every replica was tried; doubled each round, */
#define BACKOFF_MAX_US (400 * US_PER_MS) /* up to this */
/* Replicas that can't be reached: 25 + 50 + 100 ms, then the caller is told. One that answers, if
 * only that it does not take the call now, is waited for: as long as the deadline allows, or this
 * long. What keeps many calls from asking one replica for ever is the retry budget, which each try
 * takes from after the first few (retry.h). */
#define ROUNDS_MAX  4
#define PATIENCE_US (2 * US_PER_S)
#define HOLD_US     (30 * US_PER_S) /* longest wait for a replica to become ready */
#define KIB         1024u

static void attempt_start(struct stream *s, struct member *m);
static void attempt_reroute(struct stream *s);

/* --- choosing --- */

static void attempt_limit_hold(struct stream *s)
{
    if (!coarse_timer_runs(&s->again))
        coarse_timer_start(&s->worker->loop, &s->again, stream_now(s) + HOLD_US);
}

/* for_replica: there is none now, so the wait has a limit of its own. */
static void attempt_wait_for_slot(struct stream *s, bool for_replica)
{
    struct lane *l = s->lane;

    if (l->n_queued >= s->limits.queue_length) {
        stream_fail(s, END_QUEUE_FULL, GRPC_RESOURCE_EXHAUSTED,
                    "%u calls of model \"%s\" version \"%s\" wait already: "
                    "limits.queue_length = %u",
                    l->n_queued, l->model, l->version, s->limits.queue_length);
        return;
    }
    s->backing_off = false;
    stream_set_state(s, STREAM_QUEUED);
    if (for_replica)
        attempt_limit_hold(s);
}

static uint64_t attempt_backoff_us(const struct stream *s)
{
    const uint64_t us = BACKOFF_US << (s->n_rounds < 8 ? s->n_rounds : 8);

    return us < BACKOFF_MAX_US ? us : BACKOFF_MAX_US;
}

/* May the call wait for another round? */
static bool attempt_has_time(const struct stream *s)
{
    const uint64_t until_us = s->deadline_us != 0 && s->deadline_us - s->began_us < HOLD_US
                                  ? s->deadline_us
                              : s->deadline_us != 0 ? s->began_us + HOLD_US
                                                    : s->began_us + PATIENCE_US;

    if (s->n_rounds + 1 < ROUNDS_MAX)
        return true;
    return s->last_how != OUTCOME_CONNECT_FAILED &&
           stream_now(s) + attempt_backoff_us(s) < until_us;
}

static void attempt_wait_for_time(struct stream *s)
{
    s->backing_off = true;
    stream_set_state(s, STREAM_QUEUED);
    coarse_timer_start(&s->worker->loop, &s->again, stream_now(s) + attempt_backoff_us(s));
    s->n_rounds++;
}

static enum pick attempt_pick(struct stream *s, struct member **ret_member)
{
    const size_t n = s->n_tried < STREAM_TRIED_MAX ? s->n_tried : STREAM_TRIED_MAX;

    return cluster_pick(s->lane->cluster, &s->worker->rng, stream_now(s), s->tried, n, ret_member);
}

static void attempt_give_up(struct stream *s)
{
    stream_fail(s, END_NO_REPLICA, GRPC_UNAVAILABLE,
                "no replica of model \"%s\" version \"%s\" %s%s", s->lane->model, s->lane->version,
                s->last_failure[0] != '\0' ? "took the call; the last one, " : "is there",
                s->last_failure);
}

static bool lane_is_gone(const struct lane *l)
{
    return l->cluster == NULL || l->cluster->left;
}

/* Try a replica now, or wait for what is missing, or give up. keep_answer: when all were tried,
 * return false and change nothing, since the caller has an answer to pass on. */
static bool attempt_next(struct stream *s, bool keep_answer)
{
    struct member *m = NULL;

    if (lane_is_gone(s->lane)) {
        attempt_reroute(s);
        return true;
    }
    switch (attempt_pick(s, &m)) {
    case PICK_OK:
        attempt_start(s, m);
        return true;
    case PICK_ALL_FULL:
        attempt_wait_for_slot(s, false);
        return true;
    case PICK_NO_ENDPOINT:
        if (s->may_come)
            attempt_wait_for_slot(s, true);
        else
            attempt_give_up(s);
        return true;
    case PICK_ALL_TRIED:
        break;
    }
    if (keep_answer)
        return false;
    if (attempt_has_time(s))
        attempt_wait_for_time(s);
    else
        attempt_give_up(s);
    return true;
}

void attempt_begin(struct stream *s)
{
    /* Those that wait come first, should there be room. */
    if (!lane_is_gone(s->lane) && !list_is_empty(&s->lane->queue)) {
        lane_has_room(s->lane);
        attempt_wait_for_slot(s, false);
        return;
    }
    attempt_next(s, false);
}

bool attempt_of_queue(struct lane *l)
{
    struct stream *s = list_first(&l->queue, struct stream, queue_node);
    struct member *m = NULL;
    enum pick r;

    if (s == NULL)
        return false;
    if (lane_is_gone(l)) {
        attempt_reroute(s);
        return true;
    }
    r = attempt_pick(s, &m);
    if (r == PICK_ALL_TRIED) { /* it has waited: any will do again */
        s->n_tried = 0;
        r = attempt_pick(s, &m);
    }
    if (r == PICK_OK)
        attempt_start(s, m);
    if (r == PICK_NO_ENDPOINT) {
        list_each (&l->queue, it)
            attempt_limit_hold(list_entry(it, struct stream, queue_node));
    }
    return r == PICK_OK;
}

void attempt_on_again(struct coarse_timer *t)
{
    struct stream *s = container_of(t, struct stream, again);

    if (s->backing_off) {
        s->n_tried = 0;
        attempt_next(s, false);
        return;
    }
    stream_fail(s, END_NO_REPLICA, GRPC_UNAVAILABLE,
                "no replica of model \"%s\" version \"%s\" became ready in %llu s", s->lane->model,
                s->lane->version, (unsigned long long)(HOLD_US / US_PER_S));
}

/* The model of the lane in the snapshot of now; NULL: gone. */
static const struct snap_model *attempt_model_now(const struct stream *s)
{
    const struct snapshot *snap = s->worker->snap;

    if (s->path.kind == ROUTE_BY_SERVICE)
        return snapshot_service(snap, s->path.service, s->path.service_len);
    return snapshot_model(snap, s->path.protocol, s->lane->model, strlen(s->lane->model));
}

static void attempt_reroute(struct stream *s)
{
    struct worker *w = s->worker;
    const struct snap_model *m = attempt_model_now(s);
    struct model_state *state;
    int version = -1;

    if (m != NULL) {
        state = balancer_model(w->balancer, (size_t)(m - w->snap->models));
        version = snap_model_version(m, s->lane->version, strlen(s->lane->version));
        /* What was put into the message stays as it is: only that version will do. */
        if (version < 0 && s->by_split && s->override_len == 0)
            version = model_pick_version(state, stream_now(s));
    }
    if (version < 0 || state->clusters[version]->left) {
        stream_fail(s, END_NO_ROUTE, GRPC_NOT_FOUND,
                    "model \"%s\" version \"%s\" was removed while the call waited", s->lane->model,
                    s->lane->version);
        return;
    }

    struct lane *l = state->clusters[version]->queue;

    stream_set_lane(s, l);
    l->counts.started++;
    attempt_next(s, false);
}

/* --- sending --- */

static void attempt_note_tried(struct stream *s, const struct member *m)
{
    s->tried[s->n_tried % STREAM_TRIED_MAX] = m->endpoint->id;
    s->n_tried++;
}

void attempt_on_sent(struct stream *s, size_t bytes)
{
    uint64_t passed;

    s->attempt.sent_bytes += bytes;
    passed = s->attempt.sent_bytes < s->request_bytes ? s->attempt.sent_bytes : s->request_bytes;
    if (passed <= s->credited_bytes || s->call.down == NULL)
        return;
    h2_consume(s->call.down, (size_t)(passed - s->credited_bytes));
    s->credited_bytes = passed;
}

/* The request is kept for another try while it is short enough. */
static void attempt_bound_body(struct stream *s)
{
    if (s->whole && s->body.bytes > (size_t)s->limits.replay_kib * KIB)
        s->whole = false;
    if (!s->whole)
        body_drop(&s->body);
}

/* The request's header fields: as the set that the client's is sent on as, where it came as one and
 * nothing in it changes, else one by one. NULL: no stream could be opened. */
static struct h2_stream *attempt_send_fields(struct stream *s, const struct request_edits *edits,
                                             bool end)
{
    struct worker *w = s->worker;
    struct h2_field *fields = worker_scratch(w, s->head->n + s->n_extra + REQUEST_EXTRA_FIELDS);
    struct h2_set *set = NULL;
    size_t n;

    if (s->note != NULL && edits->previous_attempts == NULL) {
        set = request_note_forward(s->note, &w->loop.slabs, edits->https);
        n = request_extra(fields, edits);
    } else {
        n = request_fields(s->head, fields, edits);
    }
    for (size_t i = 0; i < s->n_extra; i++)
        fields[n++] = s->extra[i];
    return pool_open(s->attempt.pool, set, fields, n, end, s);
}

static void attempt_open(struct stream *s)
{
    struct pool *pool = s->attempt.pool;
    char timeout[GRPC_TIMEOUT_SIZE], previous[12];
    const bool last = s->client_ended && s->request_trailers == NULL;

    if (s->deadline_us != 0) {
        if (s->deadline_us <= stream_now(s)) {
            s->deadline.fire(&s->deadline);
            return;
        }
        grpc_timeout_format(timeout, s->deadline_us - stream_now(s));
    }
    if (s->n_counted > 0)
        snprintf(previous, sizeof(previous), "%u", s->n_counted);

    const struct request_edits edits = {
        .https = pool_has_tls(pool),
        .timeout = s->deadline_us != 0 ? timeout : NULL,
        .previous_attempts = s->n_counted > 0 ? previous : NULL,
        .tenant = s->call.session->tenant != NULL ? s->call.session->tenant->name : NULL,
    };

    s->attempt.up = attempt_send_fields(s, &edits, last && s->body.bytes == 0);
    if (s->attempt.up == NULL) {
        pool_wait(pool, &s->attempt.waiter);
        return;
    }
    worker_count(s->worker, COUNT_attempts_started);
    if (s->body.bytes > 0)
        body_send(&s->body, s->attempt.up, last);
    if (s->request_trailers != NULL)
        h2_send_headers(s->attempt.up, H2_TRAILERS, s->request_trailers, s->n_request_trailers,
                        true);
    attempt_bound_body(s);
    stream_weigh(s);
}

/* Does the call carry much: by its own word, or as those of its model before it? A request that is
 * there, and short, is taken by what it says. */
static bool attempt_is_bulk(const struct stream *s)
{
    const struct lane *l = s->lane;

    if (s->request_reader.message_bytes > UPSTREAM_BULK_BYTES ||
        s->content_bytes > UPSTREAM_BULK_BYTES || s->request_bytes > UPSTREAM_BULK_BYTES)
        return true;
    return l->bulk_replies > LANE_ALL / 2 || (!s->client_ended && l->bulk_requests > LANE_ALL / 2);
}

static void attempt_take_pool(struct stream *s, bool bulk)
{
    struct upstream *u = s->attempt.member->endpoint->pool;

    s->attempt.bulk = bulk;
    s->attempt.pool = bulk ? upstream_bulk(u) : u->usual;
}

void attempt_on_wake(struct pool_waiter *waiter, bool ok, const char *why)
{
    struct stream *s = container_of(waiter, struct stream, attempt.waiter);

    if (!ok && s->attempt.bulk) {
        attempt_take_pool(s, false);
        ok = true;
    }
    if (ok)
        attempt_open(s);
    else
        attempt_failed(s, OUTCOME_CONNECT_FAILED, GRPC_UNAVAILABLE, why);
}

static void attempt_start(struct stream *s, struct member *m)
{
    s->attempt.member = m;
    s->attempt.pool = NULL;
    s->attempt.up = NULL;
    s->attempt.began_us = stream_now(s);
    s->attempt.sent_bytes = 0;
    s->attempt.n_informational = 0;
    attempt_note_tried(s, m);
    stream_set_state(s, STREAM_SENT);

    if (m->endpoint->pool == NULL) {
        attempt_failed(s, OUTCOME_CONNECT_FAILED, GRPC_UNAVAILABLE, "its address has no meaning");
        return;
    }
    attempt_take_pool(s, attempt_is_bulk(s));

    struct pool *pool = s->attempt.pool;

    /* The first round passes over replicas that can't be reached; later ones dial them. */
    if (pool_state(pool) == POOL_DOWN) {
        if (s->n_rounds == 0) {
            attempt_failed(s, OUTCOME_CONNECT_FAILED, GRPC_UNAVAILABLE, pool_why_down(pool));
            return;
        }
        pool_warm(pool);
    }
    attempt_open(s);
}

void attempt_forward(struct stream *s, struct slab *slab, const uint8_t *p, size_t len, bool end)
{
    if (s->attempt.up != NULL)
        h2_send_data(s->attempt.up, slab, p, len, end);
    if (s->attempt.up == NULL || (s->whole && s->state == STREAM_SENT)) {
        body_append(&s->body, &s->arena, slab, p, len);
        if (s->attempt.up != NULL)
            attempt_bound_body(s);
    }
}

/* --- the end of one --- */

void attempt_detach(struct stream *s, enum outcome how, uint32_t cancel_code)
{
    struct attempt *a = &s->attempt;
    struct member *m = a->member;

    if (m == NULL)
        return;
    if (a->up != NULL) {
        h2_stream_set_user(a->up, NULL);
        if (cancel_code != H2_NO_ERROR)
            h2_reset(a->up, cancel_code);
    } else if (a->pool != NULL) {
        pool_wait_cancel(a->pool, &a->waiter);
    }
    a->member = NULL;
    a->up = NULL;
    member_done(m, how, stream_now(s));
}

static enum retry attempt_decide(struct stream *s, enum outcome how, bool pushed_back)
{
    const struct retry_view view = {
        .committed = s->state != STREAM_SENT,
        .whole = s->whole,
        .idempotent = s->limits.idempotent,
        .pushed_back = pushed_back,
        .counted = s->n_counted + 1,
        .counted_max = s->limits.attempts,
        .free = s->n_free,
    };
    const enum retry r = retry_decide(&view, how, &s->lane->budget);

    if (r == RETRY_NO_BUDGET)
        worker_count(s->worker, COUNT_retries_no_budget);
    else if (r == RETRY_NO_BUFFER)
        worker_count(s->worker, COUNT_retries_no_buffer);
    return r;
}

static bool retry_is_yes(enum retry r)
{
    return r == RETRY_FREE || r == RETRY_COUNTED;
}

static void attempt_advance(struct stream *s, enum retry r)
{
    if (r == RETRY_FREE)
        s->n_free++;
    else
        s->n_counted++;
}

static enum counter counter_of_retry(enum outcome how)
{
    switch (how) {
    case OUTCOME_LOST:
    case OUTCOME_RESET:
        return COUNT_retries_lost;
    case OUTCOME_UNKNOWN_MODEL:
        return COUNT_retries_unknown_model;
    case OUTCOME_STOPPING:
        return COUNT_retries_drained;
    case OUTCOME_CONNECT_FAILED:
    case OUTCOME_REFUSED:
    case OUTCOME_NOT_READY:
        return COUNT_retries_never_processed;
    default:
        return COUNT_retries_status;
    }
}

static void attempt_log_failure(struct stream *s, enum outcome how, enum retry r, const char *why)
{
    uint32_t suppressed;
    char quoted[200];

    if (!log_limit_pass(&s->worker->attempt_log, stream_now(s), &suppressed))
        return;
    log_warn(
        "attempt_failed",
        "worker=%u model=%s version=%s replica=%s attempt=%u took_us=%llu outcome=%s retried=%d "
        "suppressed=%u msg=%s",
        s->worker->index, s->lane->model, s->lane->version, s->attempt.member->replica,
        s->n_counted + s->n_free + 1, (unsigned long long)(stream_now(s) - s->attempt.began_us),
        outcome_name(how), retry_is_yes(r), suppressed, log_quote(quoted, sizeof(quoted), why));
}

static void attempt_note_failure(struct stream *s, enum outcome how, const char *why)
{
    s->last_how = how;
    snprintf(s->last_failure, sizeof(s->last_failure), "%s: %s", s->attempt.member->replica, why);
}

void attempt_failed(struct stream *s, enum outcome how, enum grpc_status status, const char *why)
{
    const enum retry r = attempt_decide(s, how, false);

    attempt_log_failure(s, how, r, why);
    attempt_note_failure(s, how, why);
    attempt_detach(s, how, H2_CANCEL);
    if (retry_is_yes(r)) {
        attempt_advance(s, r);
        worker_count(s->worker, counter_of_retry(how));
        reply_drop_held(s);
        attempt_next(s, false);
        return;
    }
    stream_fail(s, how == OUTCOME_CONNECT_FAILED ? END_NO_REPLICA : END_UPSTREAM_LOST, status,
                "replica %s%s", s->last_failure,
                r == RETRY_NO_BUFFER     ? " (the request is longer than limits.replay_kib, so it "
                                           "was not tried elsewhere)"
                : r == RETRY_NO_ATTEMPTS ? " (limits.attempts used up)"
                : r == RETRY_NO_BUDGET   ? " (the retry budget is used up)"
                                         : "");
}

bool attempt_retry_answered(struct stream *s, enum outcome how, bool pushed_back)
{
    const enum retry r = attempt_decide(s, how, pushed_back);

    if (!retry_is_yes(r))
        return false;
    attempt_log_failure(s, how, r, "answered by status");
    attempt_note_failure(s, how, outcome_name(how));
    attempt_detach(s, how, H2_CANCEL);
    attempt_advance(s, r);
    if (!attempt_next(s, true))
        return false;
    worker_count(s->worker, counter_of_retry(how));
    reply_drop_held(s);
    return true;
}
