#include "gateway/stream.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/xalloc.h"
#include "gateway/upstream.h"

#define ARENA_BYTES     (256u * 1024) /* header fields both ways and short request bytes */
#define SPARE_STREAMS   256           /* kept for the next calls of a worker, however few run */
#define SPARE_TRIM      8             /* the share of those above it that goes each time */
#define MIB             ((size_t)1024 * 1024)
#define UNDECIDED_LOOKS 1024
#define READ_ON_US      US_PER_S /* for what an HTTP client still has to say when it is refused */

#define TO(s) (1u << STREAM_##s)
const struct stream_state_row stream_states[STREAM_N_STATES] = {
    [STREAM_HEADERS] = {"headers", TO(QUEUED) | TO(SENT) | TO(ENDED), GAUGE_NONE},
    [STREAM_QUEUED] = {"queued", TO(QUEUED) | TO(SENT) | TO(ENDED), GAUGE_QUEUED},
    [STREAM_SENT] = {"sent", TO(SENT) | TO(QUEUED) | TO(REPLYING) | TO(ENDED),
                     GAUGE_AT_REPLICA}, /* SENT: next try */
    [STREAM_REPLYING] = {"replying", TO(ENDED), GAUGE_AT_REPLICA},
    [STREAM_ENDED] = {"ended", TO(DONE), GAUGE_NONE},
    [STREAM_DONE] = {"done", 0, GAUGE_NONE},
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

/* Take this call's part out of (by -1) or into (1) the lane's gauges. */
static void stream_join_lane(struct stream *s, struct lane *l, uint32_t by)
{
    const enum stream_gauge g = stream_states[s->state].gauge;

    if (g == GAUGE_NONE)
        return;
    lane_account_busy(l);
    if (g == GAUGE_AT_REPLICA)
        l->in_flight += by;
    else
        l->n_queued += by;
}

static void stream_leave_queue(struct stream *s, enum stream_state to)
{
    s->worker->counters[COUNT_streams_queued]--;
    list_remove(&s->queue_node);
    if (to != STREAM_QUEUED)
        coarse_timer_stop(&s->worker->loop, &s->again);
}

static void stream_join_queue(struct stream *s)
{
    s->worker->counters[COUNT_streams_queued]++;
    if (!s->backing_off)
        list_push_back(&s->lane->queue, &s->queue_node);
}

void stream_log_state(const struct stream *s, enum stream_state to)
{
    log_debug("stream_state", "worker=%u from=%s to=%s", s->worker->index,
              stream_states[s->state].name, stream_states[to].name);
}

void stream_move_gauge(struct stream *s, enum stream_state to)
{
    struct lane *l = s->lane;

    if (l != NULL)
        stream_join_lane(s, l, (uint32_t)-1);
    if (s->state == STREAM_QUEUED)
        stream_leave_queue(s, to);
    if (to == STREAM_QUEUED)
        stream_join_queue(s);
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
    const struct tenant_conf *tenant;
    struct worker *w = s->worker;
    struct tenant_counts *counts;

    if (s->state >= STREAM_ENDED)
        return;
    tenant = s->call.session->tenant;
    counts = worker_tenant_counts(w, tenant);
    worker_count(w, ends[why].count);
    log_debug("stream_end", "worker=%u model=%s version=%s tenant=%s grpc=%u took_us=%llu msg=%s",
              w->index, stream_model(s), s->lane == NULL ? "" : s->lane->version,
              tenant == NULL ? "" : tenant->name, (unsigned)status,
              (unsigned long long)(stream_now(s) - s->began_us), ends[why].name);
    if (counts != NULL)
        counts->failed += status_is_failure((uint32_t)status);
    stream_set_state(s, STREAM_ENDED);
    if (s->lane != NULL) {
        lane_count_bulk(s->lane, s->request_bytes > UPSTREAM_BULK_BYTES,
                        s->replied_bytes > UPSTREAM_BULK_BYTES);
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
    if (s->reads_on)
        coarse_timer_start(&w->loop, &s->deadline, stream_now(s) + READ_ON_US);
    else
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
    call_send_status(&s->call, s->head != NULL ? s->head->content_type : NULL,
                     s->state == STREAM_REPLYING, status, text);
    stream_end(s, why, status);
}

/* --- memory --- */

/* What a call holds is bounded by two windows, but not what all of them hold: windows are given
 * before anybody knows whether both sides read. So the worker's budget is kept by ending calls, and
 * first those at a replica whose bytes have been lying here longest, since one side does not take
 * them, and those that for longest have not said where they want to go. Calls that wait for a
 * replica are spared: there, the newcomer is refused. */

static void stream_evict(struct stream *s)
{
    const size_t bytes = stream_held_bytes(s);
    uint32_t suppressed;

    list_remove(&s->heavy_node);
    worker_unbook_call(s->worker, &s->booked_bytes); /* it will be gone in this turn, or soon */
    if (log_limit_pass(&s->worker->memory_log, stream_now(s), &suppressed))
        log_warn("over_memory",
                 "worker=%u model=%s version=%s bytes=%zu suppressed=%u msg=\"memory_mib is used "
                 "up: the calls whose bytes wait longest are ended\"",
                 s->worker->index, stream_model(s), s->lane == NULL ? "" : s->lane->version, bytes,
                 suppressed);
    if (s->state == STREAM_SENT) {
        stream_fail(
            s, END_OVER_MEMORY, GRPC_RESOURCE_EXHAUSTED,
            "the calls of this worker hold more than memory_mib = %zu MiB, and %zu bytes of "
            "this one have waited longest",
            (size_t)s->worker->memory_mib, bytes);
        return;
    }
    attempt_detach(s, OUTCOME_CANCELLED, H2_CANCEL);
    if (s->call.down != NULL)
        h2_reset(s->call.down, H2_ENHANCE_YOUR_CALM); /* gRPC reads it as RESOURCE_EXHAUSTED */
    stream_end(s, END_OVER_MEMORY, GRPC_RESOURCE_EXHAUSTED);
}

void stream_relieve(struct worker *w, size_t budget_bytes)
{
    struct stream *s;

    while (worker_is_over_memory(w, budget_bytes) &&
           (s = list_first(&w->heavy, struct stream, heavy_node)) != NULL)
        stream_evict(s);
}

static bool stream_is_undecided(const struct stream *s)
{
    return s->state == STREAM_HEADERS && !s->routed;
}

void stream_end_undecided(struct worker *w)
{
    struct list *next;
    unsigned looks = UNDECIDED_LOOKS;

    if (w->request_us == 0)
        return;
    for (struct list *it = w->heavy.next; it != &w->heavy && looks > 0; it = next, looks--) {
        struct stream *s = list_entry(it, struct stream, heavy_node);

        next = it->next; /* stream_fail may take s off the list, and no other */
        if (stream_is_undecided(s) && stream_now(s) >= s->began_us + w->request_us)
            stream_fail(s, END_DEADLINE, GRPC_DEADLINE_EXCEEDED,
                        "the call named no model within limits.request_s = %llu s",
                        (unsigned long long)(w->request_us / US_PER_S));
    }
}

void stream_weigh_heavy(struct stream *s)
{
    const bool idle = stream_is_undecided(s);

    if (!idle && (stream_held_bytes(s) <= STREAM_HEAVY_BYTES || s->state < STREAM_SENT))
        list_remove(&s->heavy_node);
    else if (!list_is_linked(&s->heavy_node))
        list_push_back(&s->worker->heavy, &s->heavy_node);
}

bool stream_make_room(struct stream *s)
{
    const struct worker *w = s->worker;
    const size_t budget = s->attempt.up == NULL ? w->memory_bytes : 2 * w->memory_bytes;

    stream_relieve(s->worker, w->memory_bytes);
    if (s->state >= STREAM_ENDED)
        return false;
    if (!worker_is_over_memory(w, budget))
        return true;
    stream_fail(s, END_OVER_MEMORY, GRPC_RESOURCE_EXHAUSTED,
                "the calls of this worker hold more than memory_mib = %zu MiB",
                (size_t)w->memory_mib);
    return false;
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

static uint32_t worker_spares_wanted(const struct worker *w)
{
    return w->streams_peak > SPARE_STREAMS ? w->streams_peak : SPARE_STREAMS;
}

void stream_trim_spares(struct worker *w)
{
    const uint32_t wanted = worker_spares_wanted(w);
    uint32_t n = w->n_spare_streams > wanted ? w->n_spare_streams - wanted : 0;

    for (n = (n + SPARE_TRIM - 1) / SPARE_TRIM; n > 0; n--) {
        stream_free(list_entry(list_pop_front(&w->spare_streams), struct stream, spare_node));
        w->n_spare_streams--;
    }
    w->streams_peak = (uint32_t)w->counters[COUNT_streams_open];
}

static void stream_reap(struct dead *d)
{
    struct stream *s = container_of(d, struct stream, dead);
    struct worker *w = s->worker;

    worker_unbook_call(w, &s->booked_bytes);
    body_fini(&s->body);
    s->peek = peek_free(s->peek);
    h2_set_unref(s->set);
    /* A turn may end most of the calls in flight and the next begin as many: those come back. */
    if (w->n_spare_streams >= worker_spares_wanted(w)) {
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
    list_remove(&s->heavy_node);
    if (s->state < STREAM_ENDED) {
        attempt_detach(s, OUTCOME_CANCELLED, H2_CANCEL);
        stream_end(s, c->session->closing ? END_DRAINING : END_BY_CLIENT, GRPC_CANCELLED);
    }
    coarse_timer_stop(&s->worker->loop, &s->deadline);
    stream_set_state(s, STREAM_DONE);
    s->worker->counters[COUNT_streams_open]--;
    loop_bury(&s->worker->loop, &s->dead);
}

static void stream_on_deadline(struct coarse_timer *t)
{
    struct stream *s = container_of(t, struct stream, deadline);

    if (s->state == STREAM_ENDED) { /* answered, but the client does not end it or take it */
        if (s->call.down != NULL && s->reads_on) {
            s->reads_on = false;
            coarse_timer_start(&s->worker->loop, &s->deadline, stream_now(s) + READ_ON_US);
            call_stop_upload(&s->call);
        } else if (s->call.down != NULL) {
            h2_reset(s->call.down, H2_CANCEL);
        }
        return;
    }

    stream_deadline_passed(s);
}

void stream_deadline_passed(struct stream *s)
{
    const char *where = s->state == STREAM_HEADERS  ? "reading the request"
                        : s->state == STREAM_QUEUED ? "waiting for a replica"
                                                    : "at replica";
    char at[160] = "";

    if (s->attempt.member != NULL)
        snprintf(at, sizeof(at), " %s", s->attempt.member->replica);
    attempt_detach(s, OUTCOME_SERVER_ERROR, H2_CANCEL);
    stream_fail(s, END_DEADLINE, GRPC_DEADLINE_EXCEEDED,
                "the deadline of %llu ms passed while %s%s",
                (unsigned long long)((s->deadline_us - s->began_us) / US_PER_MS), where, at);
}

void stream_start_deadline(struct stream *s, uint64_t timeout_us)
{
    s->deadline_us = s->began_us + timeout_us;
    if (s->deadline_us < s->began_us) /* 10^8 hours and the like: as good as none */
        s->deadline_us = UINT64_MAX;
    coarse_timer_start(&s->worker->loop, &s->deadline, s->deadline_us);
}

/* --- the beginning --- */

static void stream_on_sent(struct call *c, size_t bytes)
{
    struct stream *s = container_of(c, struct stream, call);

    s->reply_bytes -= bytes < s->reply_bytes ? bytes : s->reply_bytes; /* more: an HTTP refusal's */
    reply_credit(s, bytes);
    stream_lighten(s);
}

static const struct call_ops stream_call_ops = {
    .on_data = inbound_on_data,
    .on_trailers = inbound_on_trailers,
    .on_sent = stream_on_sent,
    .on_close = stream_on_close,
};

static struct stream *stream_make(struct worker *w)
{
    struct stream *s = xcalloc(1, sizeof(*s));

    arena_init(&s->arena, ARENA_BYTES);
    s->magic = STREAM_MAGIC;
    s->worker = w;
    s->dead.reap = stream_reap;
    s->deadline.fire = stream_on_deadline;
    s->again.fire = attempt_on_again;
    s->attempt.waiter.wake = attempt_on_wake;
    return s;
}

static struct stream *stream_new(struct worker *w)
{
    struct list *spare = list_pop_front(&w->spare_streams);
    struct stream *s;

    if (spare == NULL) {
        s = stream_make(w);
    } else {
        s = list_entry(spare, struct stream, spare_node);
        w->n_spare_streams--;
        memset((char *)s + offsetof(struct stream, state), 0,
               offsetof(struct stream, own_head) - offsetof(struct stream, state));
    }
    s->last_failure[0] = '\0';
    s->began_us = w->loop.now_us;
    s->whole = true;
    body_init(&s->body, &w->loop.slabs);
    grpc_reader_init(&s->request_reader, UINT32_MAX);
    return s;
}

/* The request's fields are a set that came before, and few others behind it. false: they must be
 * read together. */
static bool stream_take_set(struct stream *s, struct h2_set *set, struct request_note *note,
                            const struct h2_field *fields, size_t n)
{
    struct request_loose loose = {.n = 0};

    if (note->fault != REQUEST_OK)
        return false;
    if (n > set->n) {
        struct h2_field *kept = worker_scratch(s->worker, n - set->n);

        if (!request_read_loose(&note->head, kept, fields + set->n, n - set->n, &loose))
            return false;
        s->extra = fields_copy(&s->arena, kept, loose.n);
        s->n_extra = loose.n;
        if (s->extra == NULL)
            return false;
    }
    s->set = h2_set_ref(set);
    s->note = note;
    s->head = &note->head;
    s->path = note->path;
    s->content_bytes = note->head.content_bytes + loose.content_bytes;
    if (loose.has_timeout)
        stream_start_deadline(s, loose.timeout_us);
    return true;
}

/* false: the call has ended. */
static bool stream_read_request(struct stream *s, const struct route_path *path,
                                const struct h2_field *fields, size_t n)
{
    const enum request_fault fault = request_read(&s->own_head, &s->arena, fields, n);

    s->extra = NULL;
    s->n_extra = 0;
    s->head = &s->own_head;
    if (fault != REQUEST_OK || s->head->fields == NULL) {
        const enum grpc_status status = call_refuse(&s->call, fault, s->head);

        s->reads_on = fault == REQUEST_NOT_POST || fault == REQUEST_NOT_GRPC;
        stream_end(s, s->head->fields == NULL ? END_OVER_MEMORY : END_BAD_REQUEST, status);
        return false;
    }
    s->path = *path;
    s->content_bytes = s->head->content_bytes;
    if (s->path.service != NULL)
        s->path.service = s->head->path->value + 1;
    return true;
}

static void stream_go_by_service(struct stream *s)
{
    const struct route_want any = {.choice = WALKER_ANY};
    bool goes;

    if (s->note != NULL && s->note->routed) {
        goes = inbound_go(s, &s->note->route);
    } else {
        goes = inbound_route(s, &any);
        if (goes && s->note != NULL) {
            s->note->route = s->route;
            s->note->routed = true;
        }
    }
    if (goes)
        attempt_begin(s);
}

void stream_start(struct session *session, struct h2_stream *down, struct request_note *note,
                  const struct route_path *path, const struct h2_field *fields, size_t n, bool end)
{
    struct worker *w = session->worker;
    struct stream *s = stream_new(w);

    worker_count(w, COUNT_streams_started);
    if (++w->counters[COUNT_streams_open] > w->streams_peak)
        w->streams_peak = (uint32_t)w->counters[COUNT_streams_open];
    call_attach(&s->call, &stream_call_ops, session, down);
    s->client_ended = end;

    const bool goes = (note != NULL && stream_take_set(s, h2_block_set(down), note, fields, n)) ||
                      stream_read_request(s, path, fields, n);

    worker_book_call(w, &s->booked_bytes, s->arena.used_bytes);
    if (!goes)
        return;
    if (s->head->timeout != NULL)
        stream_start_deadline(s, s->head->timeout_us);
    switch (s->path.kind) {
    case ROUTE_REFUSED:
        stream_fail(s, END_REFUSED_METHOD, s->path.status, "%.*s %s",
                    (int)(s->head->path->value_len < 200 ? s->head->path->value_len : 200),
                    s->head->path->value, s->path.why);
        return;
    case ROUTE_BY_SERVICE:
        stream_go_by_service(s);
        return;
    case ROUTE_BY_MESSAGE:
        walker_init(&s->walker, s->path.walker, 0);
        if (end)
            inbound_half_close(s);
        else
            stream_weigh(s);
        return;
    }
}
