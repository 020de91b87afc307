#include "gateway/worker.h"

#include <malloc.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/xalloc.h"
#include "gateway/certs.h"
#include "gateway/lane.h"
#include "gateway/listener.h"
#include "gateway/local.h"
#include "gateway/report.h"
#include "gateway/session.h"
#include "gateway/stream.h"
#include "gateway/upstream.h"

#define MIB               ((size_t)1024 * 1024)
#define REDIAL_MAX_US     US_PER_S /* a replica that comes back is missed no longer than that */
#define MALLOC_TRIM_BYTES MIB      /* freed since the last time: less is not worth the look */
#define SPARED_FDS        512      /* or half of them */
#define CLIENT_PING_US    (60 * US_PER_S) /* a client with open calls that vanished is found so */

/* --- addresses --- */

struct address_book *address_book_new(void)
{
    struct address_book *b = xcalloc(1, sizeof(*b));

    map_init(&b->by_text);
    map_init(&b->tls);
    return b;
}

static void address_free_one(void *arg, const char *key, size_t key_len, void *value)
{
    (void)arg;
    (void)key;
    (void)key_len;
    free(value);
}

struct address_book *address_book_free(struct address_book *b)
{
    if (b != NULL) {
        map_each(&b->by_text, address_free_one, NULL);
        map_fini(&b->by_text);
        map_fini(&b->tls);
        free(b);
    }
    return NULL;
}

/* --- what the balancer asks of us --- */

static void hook_endpoint_added(void *arg, struct endpoint *ep)
{
    struct worker *w = arg;
    const struct net_addr *addr = map_get(&w->addresses->by_text, ep->address, strlen(ep->address));
    struct pool_conf conf = w->upstream;

    if (addr == NULL) {
        log_error("endpoint_address", "worker=%u replica=%s msg=\"not resolved\"", w->index,
                  ep->address);
        return;
    }
    conf.conn.tls = map_get(&w->addresses->tls, ep->address, strlen(ep->address));
    ep->pool = upstream_new(w, ep, addr, &conf);
}

/* It was dialled in vain while it started: not the rest of that back-off, now. */
static void hook_endpoint_ready(void *arg, struct endpoint *ep)
{
    (void)arg;
    if (ep->pool != NULL)
        upstream_renew(ep->pool);
}

static void hook_endpoint_removed(void *arg, struct endpoint *ep)
{
    (void)arg;
    if (ep->pool != NULL)
        upstream_bury(ep->pool);
    ep->pool = NULL;
}

static void hook_cluster_added(void *arg, struct cluster *c)
{
    c->queue = lane_new(arg, c);
}

static void hook_cluster_left(void *arg, struct cluster *c)
{
    (void)arg;
    lane_has_room(c->queue); /* which finds that calls must go elsewhere */
}

static void hook_cluster_removed(void *arg, struct cluster *c)
{
    (void)arg;
    lane_cluster_removed(c->queue);
    c->queue = NULL;
}

static void hook_cluster_has_room(void *arg, struct cluster *c)
{
    (void)arg;
    lane_has_room(c->queue);
}

static void hook_member_moved(void *arg, const struct member *m, enum outcome why, uint64_t for_us)
{
    struct worker *w = arg;

    if (for_us == 0)
        log_info("replica_back", "worker=%u model=%s version=%s replica=%s", w->index,
                 m->cluster->model, m->cluster->version, m->replica);
    else
        log_warn("replica_out", "worker=%u model=%s version=%s replica=%s msg=\"%s, for %llu ms\"",
                 w->index, m->cluster->model, m->cluster->version, m->replica, outcome_name(why),
                 (unsigned long long)(for_us / US_PER_MS));
}

static const struct balancer_hooks worker_hooks = {
    .endpoint_added = hook_endpoint_added,
    .endpoint_ready = hook_endpoint_ready,
    .endpoint_removed = hook_endpoint_removed,
    .cluster_added = hook_cluster_added,
    .cluster_left = hook_cluster_left,
    .cluster_removed = hook_cluster_removed,
    .cluster_has_room = hook_cluster_has_room,
    .member_moved = hook_member_moved,
};

/* --- snapshots --- */

/* A model's TLS settings may have changed under an endpoint that stays. */
static void worker_set_tls(void *arg, const struct endpoint *ep)
{
    const struct worker *const w = arg;

    if (ep->pool != NULL)
        upstream_set_tls(ep->pool, map_get(&w->addresses->tls, ep->address, strlen(ep->address)));
}

/* Owns snap's reference and book from here. */
static void worker_apply(struct worker *w, struct snapshot *snap, struct address_book *book)
{
    struct snapshot *old = w->snap;

    w->epoch++;
    w->snap = snap;
    address_book_free(w->addresses);
    w->addresses = book;
    w->routes_kserve = w->routes_tensorflow = false;
    for (size_t i = 0; i < snap->n_models; i++) {
        w->routes_kserve |= snap->models[i].conf->protocol == PROTOCOL_KSERVE;
        w->routes_tensorflow |= snap->models[i].conf->protocol == PROTOCOL_TENSORFLOW;
    }
    balancer_each_endpoint(w->balancer, worker_set_tls, w);
    balancer_apply(w->balancer, snap, w->loop.now_us);
    local_apply(w->local, snap);
    paths_reset(&w->paths);
    shapes_reset(&w->shapes);
    worker_count(w, COUNT_snapshots_applied);
    snapshot_unref(old);
}

/* Post what was counted since the last report. */
static void worker_report(struct worker *w)
{
    gateway_post_report(w->gateway, report_new(w));
}

struct snapshot_msg {
    struct mbox_msg msg;
    struct snapshot *snap;
    struct address_book *book;
};

static void snapshot_msg_deliver(struct mbox_msg *msg, void *arg)
{
    struct snapshot_msg *m = container_of(msg, struct snapshot_msg, msg);

    struct worker *w = arg;

    worker_apply(w, m->snap, m->book);
    worker_report(w); /* at once: drains, rollbacks wait for its epoch */
    free(m);
}

static void snapshot_msg_discard(struct mbox_msg *msg)
{
    struct snapshot_msg *m = container_of(msg, struct snapshot_msg, msg);

    snapshot_unref(m->snap);
    address_book_free(m->book);
    free(m);
}

void worker_post_snapshot(struct worker *w, struct snapshot *snap, struct address_book *book)
{
    struct snapshot_msg *m = xcalloc(1, sizeof(*m));

    m->msg.deliver = snapshot_msg_deliver;
    m->msg.discard = snapshot_msg_discard;
    m->snap = snapshot_ref(snap);
    m->book = book;
    mbox_post(&w->loop.mbox, &m->msg);
}

/* --- drain and stop --- */

struct task_msg {
    struct mbox_msg msg;
    void (*task)(struct worker *w);
};

static void task_discard(struct mbox_msg *msg)
{
    free(container_of(msg, struct task_msg, msg));
}

static void task_deliver(struct mbox_msg *msg, void *arg)
{
    container_of(msg, struct task_msg, msg)->task(arg);
    task_discard(msg);
}

void worker_post_task(struct worker *w, void (*task)(struct worker *w))
{
    struct task_msg *m = xcalloc(1, sizeof(*m));

    m->msg.deliver = task_deliver;
    m->msg.discard = task_discard;
    m->task = task;
    mbox_post(&w->loop.mbox, &m->msg);
}

static void worker_resume_listeners(struct worker *w)
{
    for (size_t i = 0; i < w->n_listeners; i++)
        listener_resume(&w->listeners[i]);
}

void worker_accept_again(struct worker *w)
{
    worker_post_task(&w->peers[0], worker_resume_listeners);
}

static void worker_close_listeners(struct worker *w)
{
    for (size_t i = 0; i < w->n_listeners; i++)
        listener_stop(&w->listeners[i]);
}

static void worker_each_session(struct worker *w, void (*fn)(struct session *s))
{
    list_each (&w->sessions, it)
        fn(list_entry(it, struct session, node));
}

static void session_close_stopping(struct session *s)
{
    session_close(s, "the gateway stops");
}

void worker_session_ended(struct worker *w)
{
    if (!list_is_empty(&w->sessions))
        return;
    if (w->on_drained != NULL) {
        worker_report(w); /* nothing counted is lost */
        w->on_drained(w);
        w->on_drained = NULL;
    }
    if (w->stopping)
        loop_stop(&w->loop);
}

/* An order from the control thread that carries no more than itself. */
struct order_msg {
    struct mbox_msg msg;
    void (*on_drained)(struct worker *w);
};

static void order_discard(struct mbox_msg *msg)
{
    free(container_of(msg, struct order_msg, msg));
}

static void worker_post_order(struct worker *w, void (*deliver)(struct mbox_msg *msg, void *arg),
                              void (*on_drained)(struct worker *w))
{
    struct order_msg *m = xcalloc(1, sizeof(*m));

    m->msg.deliver = deliver;
    m->msg.discard = order_discard;
    m->on_drained = on_drained;
    mbox_post(&w->loop.mbox, &m->msg);
}

static void drain_deliver(struct mbox_msg *msg, void *arg)
{
    struct order_msg *m = container_of(msg, struct order_msg, msg);
    struct worker *w = arg;

    w->draining = true;
    w->on_drained = m->on_drained;
    worker_close_listeners(w);
    worker_each_session(w, session_drain);
    worker_session_ended(w);
    order_discard(msg);
}

static void close_deliver(struct mbox_msg *msg, void *arg)
{
    worker_each_session(arg, session_close_stopping);
    order_discard(msg);
}

static void stop_deliver(struct mbox_msg *msg, void *arg)
{
    struct worker *w = arg;

    w->stopping = true;
    worker_close_listeners(w);
    worker_each_session(w, session_close_stopping);
    worker_session_ended(w);
    order_discard(msg);
}

void worker_post_drain(struct worker *w, void (*on_drained)(struct worker *w))
{
    worker_post_order(w, drain_deliver, on_drained);
}

void worker_post_close_sessions(struct worker *w)
{
    worker_post_order(w, close_deliver, NULL);
}

void worker_post_stop(struct worker *w)
{
    worker_post_order(w, stop_deliver, NULL);
}

/* --- life --- */

#define SHRUNK_WINDOW_BYTES (64 * 1024) /* a BDP of 10 Mbit/s over 50 ms: slow, and it goes on */

/* What a busier time has left goes back bit by bit; when no more does, the allocator is told once
 * to hand its pages to the kernel. */
static void worker_trim(struct worker *w)
{
    const size_t bytes = h2_trim(&w->loop.slabs);

    if (bytes == 0 && w->trimmed_bytes >= MALLOC_TRIM_BYTES) {
        malloc_trim(0);
        w->trimmed_bytes = 0;
    }
    w->trimmed_bytes += bytes;
}

/* Small windows for what clients upload while memory is short; as they were once a quarter is free
 * again. The session engine keeps its windows. */
static void worker_mind_windows(struct worker *w)
{
    const uint32_t usual = w->stream_window;
    const uint32_t window = usual < SHRUNK_WINDOW_BYTES ? usual : SHRUNK_WINDOW_BYTES;

    if (worker_is_over_memory(w, w->memory_shrink_bytes)) {
        if (!w->is_shrunk)
            worker_count(w, COUNT_windows_shrunk);
        w->is_shrunk = true;
    } else if (!w->is_shrunk) {
        return;
    } else if (!worker_is_over_memory(w, w->memory_shrink_bytes / 4 * 3)) {
        w->is_shrunk = false;
    }
    list_each (&w->sessions, it)
        h2_set_stream_window(conn_h2(list_entry(it, struct session, node)->conn),
                             w->is_shrunk ? window : usual);
}

static void worker_on_report_timer(struct timer *t)
{
    struct worker *w = container_of(t, struct worker, report_timer);

    worker_report(w);
    stream_trim_spares(w);
    worker_trim(w);
    worker_mind_windows(w);
    stream_end_undecided(w);
    addresses_sweep(&w->addresses_of_clients, w->loop.now_us);
    timer_start(&w->loop, t, w->loop.now_us + REPORT_US);
}

struct h2_field *worker_scratch(struct worker *w, size_t n)
{
    if (n > w->scratch_cap) {
        w->scratch = xrealloc(w->scratch, n, sizeof(*w->scratch));
        w->scratch_cap = n;
    }
    return w->scratch;
}

/* What the config lets clients do, as net/ takes it. */
static void worker_limit_clients(struct conn_conf *c, const struct process_conf *process)
{
    const struct client_limits *l = &process->limits;

    c->limits.max_concurrent_streams = process->max_streams;
    c->limits.max_header_bytes = l->header_kib * 1024;
    c->limits.max_header_fields = l->header_fields;
    c->limits.max_header_frames = l->header_frames;
    c->limits.max_ids_used = l->calls_per_connection;
    c->limits.score = l->score;
    c->limits.score_per_s = l->score_per_s;
    c->limits.resets = l->resets;
    c->limits.resets_per_s = l->resets_per_s;
    c->limits.ping_strikes = l->pings;
    c->limits.ping_interval_ms = l->ping_interval_ms;
    c->limits.answers_to_stop = l->answers_stop;
    c->limits.answers_to_end = l->answers_max;
    c->block_timeout_us = l->block_s * US_PER_S;
    c->stall_timeout_us = l->stall_s * US_PER_S;
    c->settings_ack_us = l->settings_ack_s * US_PER_S;
    c->idle_timeout_us = l->idle_s * US_PER_S;
}

/* max_connections, and never the last descriptors: replicas, probes and files need some. */
static uint32_t worker_share_of_sessions(const struct worker_conf *conf)
{
    uint64_t all = conf->process->max_connections;
    struct rlimit now;

    if (getrlimit(RLIMIT_NOFILE, &now) == 0) {
        const uint64_t spared = now.rlim_cur / 2 < SPARED_FDS ? now.rlim_cur / 2 : SPARED_FDS;

        if (now.rlim_cur - spared < all)
            all = now.rlim_cur - spared;
    }
    all /= conf->n_workers;
    return all > 0 ? (uint32_t)all : 1;
}

static int worker_init_listeners(struct worker *w, const struct worker_conf *conf, struct err *err)
{
    const struct process_conf *process = conf->process;

    w->listeners = xcalloc(process->n_listeners, sizeof(*w->listeners));
    for (size_t i = 0; i < process->n_listeners; i++) {
        struct conn_conf c;
        int r;

        conn_conf_default(&c);
        c.engine = conf->engine;
        c.tls = certs_listener(conf->certs, i);
        c.connect_timeout_us = process->handshake_s * US_PER_S;
        worker_limit_clients(&c, process);
        w->stream_window = c.limits.stream_window;
        c.ping_after_us = CLIENT_PING_US;
        r = listener_init(&w->listeners[i], w, &conf->addresses[i],
                          w == w->peers ? NULL : &w->peers->listeners[i], &c, err);
        if (r < 0)
            return r;
        w->n_listeners++;
    }
    return 0;
}

static size_t memory_part(const struct process_conf *process, uint32_t percent)
{
    return process->memory_mib * MIB / 100 * percent;
}

int worker_init(struct worker *w, const struct worker_conf *conf, struct err *err)
{
    const uint64_t seed = clock_mono_us() * 31 + conf->index;

    memset(w, 0, sizeof(*w));
    w->gateway = conf->gateway;
    w->index = conf->index;
    w->peers = conf->workers;
    w->n_peers = conf->n_workers;
    loop_init(&w->loop, w);
    rng_init(&w->rng, seed);
    list_init(&w->lanes);
    list_init(&w->sessions);
    list_init(&w->spare_streams);
    list_init(&w->held);
    list_init(&w->heavy);
    w->tenants = conf->process->tenants;
    w->n_tenants = conf->process->n_tenants;
    w->tenant_counts = xcalloc(w->n_tenants + 1, sizeof(*w->tenant_counts));
    handshakes_init(&w->handshakes, w, conf->process->max_handshakes);
    w->held_timer.fire = reply_on_held_timer;
    w->report_timer.fire = worker_on_report_timer;
    w->reported_us = w->loop.now_us;
    w->max_sessions = worker_share_of_sessions(conf);
    addresses_init(&w->addresses_of_clients, &conf->process->limits, conf->n_workers);
    w->request_us = conf->process->limits.request_s * US_PER_S;
    w->memory_mib = conf->process->memory_mib;
    w->memory_shrink_bytes =
        memory_part(conf->process, conf->process->limits.memory_shrink_percent);
    w->memory_refuse_bytes =
        memory_part(conf->process, conf->process->limits.memory_refuse_percent);
    w->memory_bytes = memory_part(conf->process, conf->process->limits.memory_close_percent);
    pool_conf_default(&w->upstream);
    w->upstream.conn.engine = conf->engine;
    w->upstream.conn.connect_timeout_us = conf->process->upstream_connect_ms * US_PER_MS;
    w->upstream.conn.settings_timeout_us = conf->process->upstream_settings_ms * US_PER_MS;
    w->upstream.conn.ping_after_us = conf->process->upstream_ping_after_ms * US_PER_MS;
    w->upstream.conn.ping_timeout_us = conf->process->upstream_ping_timeout_ms * US_PER_MS;
    w->upstream.no_streams_us = conf->process->upstream_no_streams_ms * US_PER_MS;
    w->upstream.seed = seed;
    w->upstream.backoff_max_us = REDIAL_MAX_US;
    w->balancer = balancer_new(conf->n_workers, seed, &worker_hooks, w);
    w->local = local_new();
    shapes_init(&w->shapes);
    worker_apply(w, snapshot_ref(conf->snap), conf->book);
    return worker_init_listeners(w, conf, err);
}

/* Of a thread's heap that malloc grows by a page at a time, with a system call for each: taken
 * beforehand, given back, and kept (reserved, not touched: it costs no memory until it is used). */
#define HEAP_KEEP_BYTES  (32 << 20)
#define HEAP_FIRST_BYTES (20u << 20)   /* of a thousand calls in flight */
#define HEAP_PIECE       (120u * 1024) /* larger ones are mapped by themselves */

static void reserve_heap(void)
{
    void *pieces[HEAP_FIRST_BYTES / HEAP_PIECE];

    if (mallopt(M_TRIM_THRESHOLD, HEAP_KEEP_BYTES) == 0)
        return; /* it would be given back at once */
    for (size_t i = 0; i < ARRAY_LEN(pieces); i++)
        pieces[i] = xrealloc(NULL, 1, HEAP_PIECE); /* not zeroed: that would touch it */
    for (size_t i = 0; i < ARRAY_LEN(pieces); i++)
        free(pieces[i]);
}

static void *worker_main(void *arg)
{
    struct worker *w = arg;

    reserve_heap();
    for (size_t i = 0; i < w->n_listeners; i++)
        listener_start(&w->listeners[i]);
    timer_start(&w->loop, &w->report_timer, w->loop.now_us + REPORT_US);
    loop_run(&w->loop);
    return NULL;
}

int worker_start(struct worker *w, struct err *err)
{
    sigset_t all, before;
    int r;

    sigfillset(&all); /* signals are the main thread's */
    pthread_sigmask(SIG_SETMASK, &all, &before);
    r = pthread_create(&w->thread, NULL, worker_main, w);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (r != 0)
        return err_set(err, -r, "worker thread %u: %s", w->index, strerror(r));
    w->runs = true;
    return 0;
}

void worker_join(struct worker *w)
{
    if (w->runs)
        pthread_join(w->thread, NULL);
    w->runs = false;
}

void worker_fini(struct worker *w)
{
    struct list *node;

    if (w->gateway == NULL)
        return;
    for (size_t i = 0; i < w->n_listeners; i++)
        listener_fini(&w->listeners[i]);
    timer_stop(&w->loop, &w->report_timer);
    timer_stop(&w->loop, &w->held_timer);
    w->balancer = balancer_free(w->balancer);
    w->local = local_free(w->local);
    handshakes_fini(&w->handshakes);
    loop_fini(&w->loop); /* reaps streams and pools */
    check(w->call_bytes == 0);
    addresses_fini(&w->addresses_of_clients);
    while ((node = list_pop_front(&w->spare_streams)) != NULL)
        stream_spare_free(list_entry(node, struct stream, spare_node));
    list_each (&w->lanes, it)
        check(lane_reap(list_entry(it, struct lane, node)));
    snapshot_unref(w->snap);
    address_book_free(w->addresses);
    free(w->listeners);
    free(w->scratch);
    free(w->tenant_counts);
    shapes_fini(&w->shapes);
    w->gateway = NULL;
}

const struct net_addr *worker_listen_addr(const struct worker *w, size_t i)
{
    return &w->listeners[i].addr;
}
