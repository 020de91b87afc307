#include "loadtest/model_server.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/rng.h"
#include "base/xalloc.h"
#include "loadtest/event_log.h"
#include "loadtest/unzip.h"

/* Answers of one stream that may wait for a slot or for the client to read; then we stop reading.
 */
#define MAX_WORKS      16u
#define MAX_ECHO_COUNT 1000000u
#define MAX_METHODS    32u

struct method_ref { /* what the gRPC server hands back for a path */
    struct model_server *server;
    const struct model_method *method;
};

struct model_server {
    struct loop *loop;
    struct model *model;
    struct model_server_conf conf;
    struct grpc_server *grpc;
    struct event_log events;
    struct rng rng;
    struct method_ref refs[MAX_METHODS];
    struct list calls;   /* struct call */
    struct list waiting; /* struct work, for a slot, oldest first */
    uint32_t n_running;  /* works in service */
    uint64_t n_calls;    /* ever; numbers them */
    bool is_loading;     /* start_delay_us has not passed */
    bool is_draining;
    struct timer ready_at, drain_limit, vanish_at;
};

#define CALL_MAGIC UINT32_C(0x6d63616c) /* "mcal" */

struct call {
    uint32_t magic;
    struct model_server *server;
    struct srv_call *srv;
    const struct model_method *method;
    uint64_t number;
    struct list node;  /* server->calls */
    struct list works; /* struct work; only the first is waiting or running */
    uint32_t n_works;
    uint64_t n_messages;
    char request_id[64];  /* of the first message; "": none */
    uint64_t repeat_left; /* METHOD_REPEAT: how often the answer is still to be sent */
    struct buf request;   /* METHOD_GATHER: all messages; METHOD_WATCH: the request */
    bool half_closed;
    bool started; /* initial metadata was sent */
    bool finished;
    bool is_paused;
};

enum work_state { WORK_QUEUED = 0, WORK_WAITING, WORK_RUNNING, WORK_SENDING };

struct work {
    struct list node;    /* call->works */
    struct list waiting; /* server->waiting */
    struct timer done_at;
    struct call *call;
    enum work_state state;
    struct model_answer answer;
};

static void call_pump(struct call *call);

/* --- the end of works and calls --- */

static void call_finish(struct call *call, int status, const char *message)
{
    if (call->finished)
        return;
    call->finished = true;
    srv_call_finish(call->srv, status, message, NULL, 0);
    event_begin(&call->server->events, "call_finish");
    event_u64(&call->server->events, "call", call->number);
    event_u64(&call->server->events, "status", (uint64_t)status);
    event_end(&call->server->events);
}

static void work_free(struct work *w)
{
    struct model_server *s = w->call->server;

    if (w->state == WORK_RUNNING) {
        timer_stop(s->loop, &w->done_at);
        s->n_running--;
    }
    list_remove(&w->waiting);
    list_remove(&w->node);
    w->call->n_works--;
    model_answer_fini(&w->answer);
    free(w);
}

static void call_start_response(struct call *call)
{
    const char *replica = call->server->conf.replica;

    if (call->started)
        return;
    call->started = true;
    if (replica == NULL) {
        srv_call_send_headers(call->srv, NULL, 0);
        return;
    }
    struct h2_field field = H2_FIELD("penstock-replica", "");
    field.value = replica;
    field.value_len = (uint32_t)strlen(replica);
    srv_call_send_headers(call->srv, &field, 1);
}

static void call_send(struct call *call, const struct buf *body)
{
    call_start_response(call);
    srv_call_send(call->srv, body->data, body->len);
}

/* --- service: slots and time --- */

static void work_complete(struct work *w);

static void work_on_done(struct timer *t)
{
    struct work *w = container_of(t, struct work, done_at);
    struct model_server *s = w->call->server;

    s->n_running--;
    w->state = WORK_SENDING;
    work_complete(w);
}

static void work_serve(struct work *w)
{
    struct model_server *s = w->call->server;
    const struct model_server_conf *conf = &s->conf;
    const double ms = conf->service_is_exponential ? rng_exponential(&s->rng, conf->service_ms)
                                                   : conf->service_ms;

    w->state = WORK_RUNNING;
    s->n_running++;
    timer_start(s->loop, &w->done_at, s->loop->now_us + (uint64_t)(ms * 1000.0));
}

static bool server_has_slot(const struct model_server *s)
{
    return s->conf.slots == 0 || s->n_running < s->conf.slots;
}

static void server_fill_slots(struct model_server *s)
{
    while (server_has_slot(s) && !list_is_empty(&s->waiting))
        work_serve(list_entry(list_pop_front(&s->waiting), struct work, waiting));
}

static void work_admit(struct work *w)
{
    struct model_server *s = w->call->server;

    if (!w->call->method->is_data || s->conf.service_ms <= 0.0) {
        w->state = WORK_SENDING;
        work_complete(w);
    } else if (server_has_slot(s)) {
        work_serve(w);
    } else {
        w->state = WORK_WAITING;
        list_push_back(&s->waiting, &w->waiting);
    }
}

/* --- scripted misbehaviour --- */

/* At the moment when a work's answer would leave. True: the call is over. */
static bool fault_on_answer(struct work *w)
{
    struct call *call = w->call;
    struct model_server *s = call->server;
    struct fault_set *f = &s->conf.faults;

    if (!call->method->is_data)
        return false;
    if (fault_is_on(f, FAULT_UNKNOWN_MODEL)) {
        call_finish(call, GRPC_NOT_FOUND, "unknown model (scripted)");
    } else if (fault_take(f, FAULT_UNAVAILABLE)) {
        call_finish(call, GRPC_UNAVAILABLE, "unavailable (scripted)");
    } else if (fault_take(f, FAULT_UNAVAILABLE_IN_TRAILERS)) {
        call_start_response(call);
        call_finish(call, GRPC_UNAVAILABLE, "unavailable in trailers (scripted)");
    } else if (fault_take(f, FAULT_UNAVAILABLE_AFTER_DATA)) {
        call_send(call, &w->answer.body);
        call_finish(call, GRPC_UNAVAILABLE, "unavailable after data (scripted)");
    } else {
        return false;
    }
    return true;
}

/* At the moment when a request is whole. True: the call is over. */
static bool fault_on_request(struct call *call)
{
    struct fault_set *f = &call->server->conf.faults;

    if (!call->method->is_data)
        return false;
    if (fault_take(f, FAULT_CLOSE_AFTER_REQUEST)) {
        call->finished = true;
        conn_close(srv_call_conn(call->srv), "scripted: close after request");
        return true;
    }
    if (fault_take(f, FAULT_RESET_AFTER_REQUEST)) {
        call->finished = true;
        h2_reset(srv_call_stream(call->srv), H2_INTERNAL_ERROR);
        return true;
    }
    return false;
}

static int compare_ids(const void *a, const void *b)
{
    const uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

    return x < y ? -1 : x > y;
}

/* At N open data calls of this call's connection: GOAWAY whose last id lies in their middle. */
static void fault_goaway_half(struct call *call)
{
    struct model_server *s = call->server;
    const uint64_t n = s->conf.faults.left[FAULT_GOAWAY_HALF];
    uint32_t ids[256];
    size_t n_ids = 0;

    if (n == 0 || n > ARRAY_LEN(ids))
        return;
    list_each (&s->calls, it) {
        struct call *other = list_entry(it, struct call, node);

        if (other->method->is_data && srv_call_conn(other->srv) == srv_call_conn(call->srv) &&
            n_ids < ARRAY_LEN(ids))
            ids[n_ids++] = h2_stream_id(srv_call_stream(other->srv));
    }
    if (n_ids < n)
        return;
    qsort(ids, n_ids, sizeof(ids[0]), compare_ids);
    s->conf.faults.left[FAULT_GOAWAY_HALF] = 0;
    h2_goaway_last(conn_h2(srv_call_conn(call->srv)), ids[n_ids / 2 - 1], H2_NO_ERROR, NULL);
    event_begin(&s->events, "goaway_half");
    event_u64(&s->events, "last_id", ids[n_ids / 2 - 1]);
    event_u64(&s->events, "open", n_ids);
    event_end(&s->events);
}

static void server_on_vanish(struct timer *t)
{
    struct model_server *s = container_of(t, struct model_server, vanish_at);

    log_info("fault_over", "fault=unknown-model msg=\"closes all\"");
    loop_stop(s->loop); /* model_server_free closes everything */
}

/* --- answers --- */

/* An error inside a stream, as Triton does it, unless the client asked for a real one. */
static bool error_is_in_band(const struct work *w)
{
    const char *wish = srv_call_metadata(w->call->srv, "triton_grpc_error");

    return w->call->method->kind == METHOD_EACH && w->answer.body.len > 0 &&
           (wish == NULL || strcmp(wish, "true") != 0);
}

/* Send the answer once more and once more while the client reads; on_writable goes on. */
static void work_send_repeats(struct work *w)
{
    struct call *call = w->call;

    while (call->repeat_left > 0 && srv_call_queued(call->srv) < SRV_SEND_HIGH) {
        call_send(call, &w->answer.body);
        call->repeat_left--;
    }
    if (call->repeat_left > 0)
        return;
    call_finish(call, GRPC_OK, NULL);
    work_free(w);
}

/* The work has had its service: its answer leaves, the slot goes to the next. */
static void work_complete(struct work *w)
{
    struct call *call = w->call;
    struct model_server *s = call->server;

    if (fault_on_answer(w)) {
        /* the rest of the call is dropped in on_done */
    } else if (w->answer.status != GRPC_OK && !error_is_in_band(w)) {
        call_finish(call, w->answer.status, w->answer.message);
    } else if (call->method->kind == METHOD_REPEAT) {
        work_send_repeats(w);
        server_fill_slots(s);
        return;
    } else {
        call_send(call, &w->answer.body);
        if (call->method->kind == METHOD_UNARY || call->method->kind == METHOD_GATHER)
            call_finish(call, GRPC_OK, NULL);
    }
    work_free(w);
    call_pump(call);
    server_fill_slots(s);
}

/* Starts the first work if it may, ends the call if nothing is left to do. Not deep: a work without
 * service time completes inside work_admit and leaves the list empty; one with service time
 * completes from its timer. */
static void call_pump(struct call *call)
{
    struct work *w = list_first(&call->works, struct work, node);

    if (call->finished)
        return;
    if (w != NULL) {
        if (w->state == WORK_QUEUED && (call->method->kind == METHOD_EACH ||
                                        call->method->kind == METHOD_WATCH || call->half_closed))
            work_admit(w);
        return;
    }
    if (call->half_closed && call->method->kind == METHOD_EACH) {
        call_start_response(call);
        call_finish(call, GRPC_OK, NULL);
        return;
    }
    if (call->is_paused && srv_call_queued(call->srv) < SRV_SEND_HIGH) {
        call->is_paused = false;
        srv_call_resume(call->srv);
    }
}

static void call_add_work(struct call *call, const uint8_t *request, size_t len)
{
    struct model_server *s = call->server;
    struct work *w = xcalloc(1, sizeof(*w));

    w->call = call;
    w->done_at.fire = work_on_done;
    model_answer_init(&w->answer);
    if (s->is_loading && call->method->is_data)
        model_answer_error(&w->answer, GRPC_UNAVAILABLE, "model \"%s\" is loading", s->model->name);
    else
        model_answer(s->model, call->method, request, len, &w->answer);
    if (call->n_messages == 1)
        memcpy(call->request_id, w->answer.request_id, sizeof(call->request_id));
    list_push_back(&call->works, &w->node);
    call->n_works++;
    call_pump(call);
    if (!call->finished && !call->is_paused &&
        (call->n_works >= MAX_WORKS || srv_call_queued(call->srv) >= SRV_SEND_HIGH)) {
        call->is_paused = true;
        srv_call_pause(call->srv);
    }
}

/* --- events of the gRPC server --- */

static void on_start(void *arg, struct srv_call *srv)
{
    const struct method_ref *ref = arg;
    struct model_server *s = ref->server;
    struct call *call = xcalloc(1, sizeof(*call));
    const char *count = srv_call_metadata(srv, "echo-count");

    call->magic = CALL_MAGIC;
    call->server = s;
    call->srv = srv;
    call->method = ref->method;
    call->number = ++s->n_calls;
    list_init(&call->works);
    list_push_back(&s->calls, &call->node);
    buf_init(&call->request, s->conf.max_message_bytes);
    call->repeat_left = count != NULL ? strtoull(count, NULL, 10) : 1;
    if (call->repeat_left > MAX_ECHO_COUNT)
        call->repeat_left = MAX_ECHO_COUNT;
    srv_call_set_user(srv, call);
    event_begin(&s->events, "call_start");
    event_u64(&s->events, "call", call->number);
    event_str(&s->events, "path", srv_call_path(srv));
    event_str(&s->events, "peer", srv_call_peer(srv));
    event_u64(&s->events, "stream", h2_stream_id(srv_call_stream(srv)));
    event_str(&s->events, "grpc_timeout", srv_call_metadata(srv, "grpc-timeout"));
    event_str(&s->events, "request_id", srv_call_metadata(srv, "x-request-id"));
    event_str(&s->events, "attempts", srv_call_metadata(srv, "grpc-previous-rpc-attempts"));
    event_end(&s->events);
    if (!call->method->is_data)
        return;
    if (fault_take(&s->conf.faults, FAULT_REFUSE)) {
        call->finished = true;
        h2_reset(srv_call_stream(srv), H2_REFUSED_STREAM);
        return;
    }
    fault_goaway_half(call);
}

/* The message itself, unpacked if need be: false when the call was ended with an error. */
static bool unpack_message(struct call *call, const uint8_t **p, size_t *len, struct buf *room)
{
    const char *encoding = srv_call_metadata(call->srv, "grpc-encoding");
    char text[128];

    buf_init(room, call->server->conf.max_message_bytes);
    switch (unzip_message(encoding, *p, *len, room)) {
    case UNZIP_OK:
        *p = room->data;
        *len = room->len;
        return true;
    case UNZIP_E_ENCODING:
        snprintf(text, sizeof(text), "grpc-encoding \"%.32s\" is neither gzip nor deflate",
                 encoding != NULL ? encoding : "");
        call_finish(call, encoding != NULL ? GRPC_UNIMPLEMENTED : GRPC_INTERNAL, text);
        break;
    case UNZIP_E_TOO_LONG:
        snprintf(text, sizeof(text), "the unpacked message is over the limit of %u bytes",
                 call->server->conf.max_message_bytes);
        call_finish(call, GRPC_RESOURCE_EXHAUSTED, text);
        break;
    default:
        call_finish(call, GRPC_INTERNAL, "the message does not unpack");
        break;
    }
    return false;
}

static void call_take_message(struct call *call, const uint8_t *p, size_t len)
{
    switch (call->method->kind) {
    case METHOD_GATHER:
        if (!buf_append(&call->request, p, len))
            call_finish(call, GRPC_RESOURCE_EXHAUSTED, "the messages together are too long");
        break;
    case METHOD_WATCH:
        buf_append(&call->request, p, len); /* to answer again when readiness changes */
        call_add_work(call, p, len);
        break;
    case METHOD_UNARY:
    case METHOD_REPEAT:
    case METHOD_EACH:
        call_add_work(call, p, len);
        break;
    }
}

static void on_message(struct srv_call *srv, const uint8_t *p, size_t len, bool compressed)
{
    struct call *call = obj_cast(CALL, struct call, srv_call_user(srv));
    struct buf room = {0};

    if (call->finished)
        return;
    call->n_messages++;
    if (call->n_messages > 1 && call->method->kind != METHOD_EACH &&
        call->method->kind != METHOD_GATHER) {
        call_finish(call, GRPC_INTERNAL, "a second request message on a call that takes one");
        return;
    }
    if (!compressed || unpack_message(call, &p, &len, &room))
        call_take_message(call, p, len);
    buf_fini(&room);
}

static void on_half_close(struct srv_call *srv)
{
    struct call *call = obj_cast(CALL, struct call, srv_call_user(srv));

    if (call->finished)
        return;
    call->half_closed = true;
    event_begin(&call->server->events, "call_request");
    event_u64(&call->server->events, "call", call->number);
    event_u64(&call->server->events, "messages", call->n_messages);
    event_str(&call->server->events, "id", call->request_id[0] != '\0' ? call->request_id : NULL);
    event_end(&call->server->events);
    if (fault_on_request(call))
        return;
    if (call->method->kind == METHOD_GATHER) {
        call_add_work(call, call->request.data, call->request.len);
        return;
    }
    if (call->n_messages == 0 && call->method->kind != METHOD_EACH) {
        call_finish(call, GRPC_INTERNAL, "no request message");
        return;
    }
    call_pump(call);
}

static void on_writable(struct srv_call *srv)
{
    struct call *call = obj_cast(CALL, struct call, srv_call_user(srv));
    struct work *w = list_first(&call->works, struct work, node);

    if (call->finished)
        return;
    if (w != NULL && w->state == WORK_SENDING)
        work_send_repeats(w);
    else
        call_pump(call);
}

static void on_done(struct srv_call *srv, bool cancelled)
{
    struct call *call = obj_cast(CALL, struct call, srv_call_user(srv));
    struct model_server *s = call->server;

    event_begin(&s->events, "call_done");
    event_u64(&s->events, "call", call->number);
    event_bool(&s->events, "cancelled", cancelled);
    event_end(&s->events);
    while (!list_is_empty(&call->works))
        work_free(list_first(&call->works, struct work, node));
    list_remove(&call->node);
    buf_fini(&call->request);
    call->magic = 0;
    free(call);
    server_fill_slots(s);
}

static const struct srv_ops call_ops = {
    .on_start = on_start,
    .on_message = on_message,
    .on_half_close = on_half_close,
    .on_writable = on_writable,
    .on_done = on_done,
};

/* --- readiness, drain --- */

static void server_tell_watchers(struct model_server *s)
{
    list_each (&s->calls, it) {
        struct call *call = list_entry(it, struct call, node);

        if (call->method->kind != METHOD_WATCH || call->finished || call->n_messages == 0)
            continue;
        call_add_work(call, call->request.data, call->request.len);
        if (s->is_draining)
            call_finish(call, GRPC_UNAVAILABLE, "the server is stopping");
    }
}

static void server_on_ready(struct timer *t)
{
    struct model_server *s = container_of(t, struct model_server, ready_at);

    if (s->is_draining)
        return;
    s->is_loading = false;
    s->model->is_ready = true;
    printf("ready\n");
    fflush(stdout);
    server_tell_watchers(s);
    if (fault_is_on(&s->conf.faults, FAULT_UNKNOWN_MODEL))
        timer_start(s->loop, &s->vanish_at,
                    s->loop->now_us + s->conf.faults.left[FAULT_UNKNOWN_MODEL] * US_PER_S);
}

static void server_on_drained(void *arg)
{
    struct model_server *s = arg;

    loop_stop(s->loop);
}

static void server_on_drain_limit(struct timer *t)
{
    struct model_server *s = container_of(t, struct model_server, drain_limit);

    log_warn("drain_limit", "calls=%u", grpc_server_n_calls(s->grpc));
    loop_stop(s->loop);
}

void model_server_drain(struct model_server *s)
{
    if (s->is_draining) {
        loop_stop(s->loop);
        return;
    }
    s->is_draining = true;
    s->model->is_ready = false;
    log_info("drain", "calls=%u", grpc_server_n_calls(s->grpc));
    server_tell_watchers(s);
    timer_start(s->loop, &s->drain_limit, s->loop->now_us + s->conf.drain_us);
    grpc_server_drain(s->grpc, server_on_drained, s);
}

/* --- start and end --- */

static size_t add_methods(struct model_server *s, struct srv_method *rows, size_t n,
                          const struct model_method *table)
{
    for (; table->path != NULL; table++, n++) {
        check(n < MAX_METHODS);
        s->refs[n] = (struct method_ref){s, table};
        rows[n] = (struct srv_method){table->path, &call_ops, &s->refs[n]};
    }
    return n;
}

struct model_server *model_server_new(struct loop *l, struct model *m,
                                      const struct model_server_conf *conf, struct err *err)
{
    struct model_server *s = xcalloc(1, sizeof(*s));
    struct grpc_server_conf grpc_conf;
    struct srv_method methods[MAX_METHODS];
    size_t n = 0;

    s->loop = l;
    s->model = m;
    s->conf = *conf;
    s->is_loading = true;
    s->ready_at.fire = server_on_ready;
    s->drain_limit.fire = server_on_drain_limit;
    s->vanish_at.fire = server_on_vanish;
    list_init(&s->calls);
    list_init(&s->waiting);
    rng_init(&s->rng, conf->seed);
    if (event_log_open(&s->events, conf->events, err) != 0) {
        free(s);
        return NULL;
    }
    n = add_methods(s, methods, n, kserve_methods);
    n = add_methods(s, methods, n, tf_methods);
    n = add_methods(s, methods, n, health_methods);
    n = add_methods(s, methods, n, echo_methods);
    grpc_server_conf_default(&grpc_conf);
    grpc_conf.max_message_bytes = conf->max_message_bytes;
    grpc_conf.no_deadline = fault_is_on(&conf->faults, FAULT_IGNORE_DEADLINE);
    grpc_conf.accept_delay_us = conf->settings_delay_us;
    if (conf->max_streams > 0)
        grpc_conf.conn.limits.max_concurrent_streams = conf->max_streams;
    s->grpc = grpc_server_new(l, &conf->listen, &grpc_conf, methods, n, err);
    if (s->grpc == NULL) {
        event_log_close(&s->events);
        free(s);
        return NULL;
    }
    printf("listening grpc %s\n", grpc_server_addr(s->grpc)->text);
    fflush(stdout);
    timer_start(l, &s->ready_at, l->now_us + conf->start_delay_us);
    return s;
}

struct model_server *model_server_free(struct model_server *s)
{
    if (s == NULL)
        return NULL;
    timer_stop(s->loop, &s->ready_at);
    timer_stop(s->loop, &s->drain_limit);
    timer_stop(s->loop, &s->vanish_at);
    s->grpc = grpc_server_free(s->grpc); /* each call gets its on_done here */
    event_log_close(&s->events);
    free(s);
    return NULL;
}
