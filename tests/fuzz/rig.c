#include "rig.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "conf/snapshot.h"
#include "gateway/listener.h"
#include "gateway/report.h"
#include "gateway/upstream.h"

#define START_US  (100 * US_PER_S) /* any time but 0 */
#define TURNS_MAX 2000             /* of one settling: an endless one is a find */
#define STEPS_MAX 20000
#define END_LEAPS 4               /* of */
#define LEAP_US   (30 * US_PER_S) /* in all longer than any deadline, ping or drain of the worker */
#define QUIET_RUNS                                                                                 \
    2 /* a callback of the first may have started a watcher, which the second arms                 \
       */

/* ---- the time, and what worker.c wants of gateway.c ---- */

static uint64_t now_us = START_US;

uint64_t clock_mono_us(void)
{
    return now_us;
}

uint64_t clock_wall_us(void)
{
    return now_us + UINT64_C(1700000000) * US_PER_S;
}

uint64_t rig_now_us(void)
{
    return now_us;
}

void gateway_post_report(struct gateway *g, struct report *r)
{
    (void)g;
    report_free(r);
}

const char *gateway_name(const struct gateway *g)
{
    (void)g;
    return "rig";
}

/* ---- turns ---- */

static bool is_due(const struct loop *l)
{
    return l->tick_at_us != 0 && l->tick_at_us <= now_us;
}

/* libev tells how much it is about to call; its check or its prepare watcher is always of it. Its
 * own clock runs on while ours stands, and a tick by that one is none. */
static bool was_busy;

static void on_pending(struct ev_loop *ev)
{
    struct loop *l = ev_userdata(ev);
    unsigned n = ev_pending_count(ev);

    if (ev_is_pending(&l->tick) && !is_due(l)) {
        ev_clear_pending(ev, &l->tick);
        n--;
    }
    was_busy |= n > 1;
    ev_invoke_pending(ev);
}

/* Returns whether there was anything to do, or is. */
static bool turn(struct loop *l)
{
    loop_refresh(l);
    was_busy = false;
    if (is_due(l)) {
        ev_timer_stop(l->ev, &l->tick);
        ev_feed_event(l->ev, &l->tick, EV_TIMER);
    }
    ev_run(l->ev, EVRUN_NOWAIT);
    return was_busy || !list_is_empty(&l->dirty) || !list_is_empty(&l->dead) || is_due(l);
}

void rig_settle(struct rig *r)
{
    int quiet = 0;

    for (int i = 0; quiet < QUIET_RUNS; i++) {
        const bool here = turn(&r->w.loop), there = turn(&r->peers);

        check(i < TURNS_MAX);
        quiet = here || there ? 0 : quiet + 1;
    }
}

static uint64_t earlier(uint64_t a, uint64_t b)
{
    return b != 0 && b < a ? b : a;
}

void rig_pass(struct rig *r, uint64_t us)
{
    const uint64_t until_us = now_us + us;

    for (int i = 0; now_us < until_us; i++) {
        const uint64_t next_us =
            earlier(earlier(until_us, r->w.loop.tick_at_us), r->peers.tick_at_us);

        check(i < STEPS_MAX);
        now_us = next_us > now_us ? next_us : now_us + 1;
        rig_settle(r);
    }
}

/* ---- peers ---- */

static void address_init(struct net_addr *a, const char *what, unsigned i)
{
    char text[100];

    snprintf(text, sizeof(text), "unix:/tmp/penstock-rig.%ld.%s%u", (long)getpid(), what, i);
    check(net_addr_parse(a, text, NULL) == 0);
}

bool rig_connect(struct rig *r, struct rig_peer *p)
{
    p->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    check(p->fd >= 0);
    if (connect(p->fd, (const struct sockaddr *)&r->gateway.sa, r->gateway.sa_len) != 0) {
        check(r->draining); /* it has stopped listening */
        close(p->fd);
        p->fd = -1;
        return false;
    }
    wire_init(&p->wire, true);
    rig_settle(r);
    return true;
}

bool rig_accept(struct rig *r, size_t replica, struct rig_peer *p)
{
    p->fd = accept4(r->listening[replica], NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (p->fd < 0)
        return false;
    wire_init(&p->wire, false);
    return true;
}

bool rig_write(struct rig *r, struct rig_peer *p, const uint8_t *bytes, size_t len)
{
    if (p->fd < 0)
        return false;
    wire_in(&p->wire, bytes, len);
    while (len > 0) {
        const ssize_t n = send(p->fd, bytes, len, MSG_NOSIGNAL);

        if (n < 0 && errno == EAGAIN)
            return true;
        if (n < 0)
            return false;
        bytes += n;
        len -= (size_t)n;
        rig_settle(r);
    }
    return true;
}

bool rig_read(struct rig_peer *p)
{
    uint8_t bytes[16384];
    ssize_t n;

    if (p->fd < 0)
        return false;
    while ((n = read(p->fd, bytes, sizeof(bytes))) > 0)
        wire_out(&p->wire, bytes, (size_t)n);
    return n < 0 && errno == EAGAIN;
}

void rig_close(struct rig *r, struct rig_peer *p)
{
    if (p->fd < 0)
        return;
    close(p->fd);
    p->fd = -1;
    wire_fini(&p->wire);
    rig_settle(r);
}

/* ---- the worker ---- */

/* Made once: a generation is immutable, and loading is most of the time of a short input. */
static struct generation *rig_generation(const struct rig *r)
{
    static struct generation *g;
    static const char text[] =
        "{\"models\":{"
        "\"digits.json\":{\"model\":\"digits\",\"versions\":{"
        "\"1\":{\"endpoints\":[\"%s\"]},\"2\":{\"endpoints\":[\"%s\"],\"slots\":2}},"
        "\"labels\":{\"canary\":\"2\"},\"traffic\":{\"1\":5000,\"2\":5000},"
        "\"limits\":{\"message_mib\":1,\"queue_length\":4,\"deadline_ms\":2000,"
        "\"idempotent\":true,\"attempts\":3,\"replay_kib\":1}},"
        "\"tf.json\":{\"model\":\"tf\",\"protocol\":\"tensorflow\",\"versions\":{"
        "\"3\":{\"endpoints\":[\"%s\"]}},\"traffic\":{\"3\":10000},"
        "\"limits\":{\"deadline_ms\":2000}},"
        "\"any.json\":{\"model\":\"any\",\"protocol\":\"grpc\",\"services\":[\"*\"],\"versions\":{"
        "\"1\":{\"endpoints\":[\"%s\",\"%s\"],\"slots\":8}},"
        "\"limits\":{\"message_mib\":1,\"queue_length\":8,\"deadline_ms\":2000}}}}";
    const char *const a = r->replicas[0].text, *const b = r->replicas[1].text;
    struct conf_problems problems;
    char full[2048];

    if (g != NULL)
        return g;
    conf_problems_init(&problems);
    snprintf(full, sizeof(full), text, a, b, b, a, b);
    g = generation_load_text(full, strlen(full), &problems);
    if (g == NULL)
        fprintf(stderr, "%s\n", buf_cstr(&problems.text));
    check(g != NULL);
    conf_problems_fini(&problems);
    return g;
}

static struct address_book *rig_book(const struct rig *r)
{
    struct address_book *book = address_book_new();

    for (size_t i = 0; i < RIG_REPLICAS; i++) {
        struct net_addr *copy = calloc(1, sizeof(*copy));

        check(copy != NULL);
        *copy = r->replicas[i];
        map_set(&book->by_text, copy->text, strlen(copy->text), copy);
    }
    return book;
}

struct replica_states {
    const struct rig *rig;
    unsigned states;
};

static enum endpoint_state state_of(void *arg, const char *model, const char *version,
                                    const char *address)
{
    static const enum endpoint_state states[] = {ENDPOINT_READY, ENDPOINT_DRAINING,
                                                 ENDPOINT_UNHEALTHY, ENDPOINT_STARTING};
    const struct replica_states *s = arg;
    const bool second = strcmp(address, s->rig->replicas[1].text) == 0;

    (void)model;
    (void)version;
    return states[s->states >> (second ? 2 : 0) & 3];
}

static struct snapshot *rig_snapshot(struct rig *r, unsigned states)
{
    struct replica_states s = {.rig = r, .states = states};

    return snapshot_build(r->generation, ++r->epoch, NULL, 0, state_of, &s);
}

void rig_publish(struct rig *r, unsigned states)
{
    struct snapshot *snap = rig_snapshot(r, states);

    worker_post_snapshot(&r->w, snap, rig_book(r));
    snapshot_unref(snap);
    rig_settle(r);
}

static void drained(struct worker *w)
{
    (void)w;
}

void rig_drain(struct rig *r)
{
    if (r->draining)
        return;
    r->draining = true;
    worker_post_drain(&r->w, drained);
    rig_settle(r);
}

void rig_start(struct rig *r, const struct h2_engine *engine, bool served)
{
    struct process_conf process;
    struct listener_conf listener = {.address = "", .cert = "", .key = "", .client_ca = ""};
    struct worker_conf conf;
    struct err err;

    memset(r, 0, sizeof(*r));
    now_us = START_US;
    log_set(LOG_ERROR, -1);
    address_init(&r->gateway, "g", 0);
    for (unsigned i = 0; i < RIG_REPLICAS; i++) {
        address_init(&r->replicas[i], "r", i);
        r->served[i] = served;
        r->listening[i] = served ? -1 : net_listen(&r->replicas[i], false, &err);
        check(served || r->listening[i] >= 0);
    }
    r->generation = rig_generation(r);
    process_conf_default(&process);
    process.listeners = &listener;
    process.n_listeners = 1;
    process.max_streams = 16;
    process.max_connections = 4;
    process.memory_mib = 1;
    conf = (struct worker_conf){
        .gateway = (struct gateway *)r, /* only handed back to the functions above */
        .n_workers = 1,
        .workers = &r->w,
        .process = &process,
        .engine = engine,
        .addresses = &r->gateway,
        .snap = rig_snapshot(r, 0),
        .book = rig_book(r),
    };
    check(worker_init(&r->w, &conf, &err) == 0);
    snapshot_unref(conf.snap);
    process_conf_fini(&process);
    for (size_t i = 0; i < r->w.n_listeners; i++)
        listener_start(&r->w.listeners[i]);
    loop_init(&r->peers, NULL);
    ev_set_userdata(r->w.loop.ev, &r->w.loop);
    ev_set_userdata(r->peers.ev, &r->peers);
    ev_set_invoke_pending_cb(r->w.loop.ev, on_pending);
    ev_set_invoke_pending_cb(r->peers.ev, on_pending);
    rig_settle(r);
}

static void check_member(void *arg, struct cluster *c)
{
    const struct lane *l = c->queue;

    (void)arg;
    check(l->in_flight == 0 && l->n_queued == 0 && list_is_empty(&l->queue));
}

static void check_endpoint(void *arg, const struct endpoint *ep)
{
    (void)arg;
    check(ep->in_flight == 0);
    check(ep->pool == NULL || upstream_n_streams(ep->pool) == 0);
}

static void check_nothing_left(const struct rig *r)
{
    const uint64_t *counters = r->w.counters;
    uint64_t ended = 0;

    check(counters[COUNT_sessions_open] == 0 && counters[COUNT_streams_open] == 0);
    check(counters[COUNT_streams_queued] == 0);
    check(list_is_empty(&r->w.sessions) && list_is_empty(&r->w.held) && list_is_empty(&r->w.heavy));
    check(r->w.call_bytes == 0);
    for (size_t c = COUNT_ended_relayed; c <= COUNT_ended_draining; c++)
        ended += counters[c];
    check(counters[COUNT_streams_started] == ended + counters[COUNT_streams_local]);
    balancer_each_cluster(r->w.balancer, check_member, NULL);
    balancer_each_endpoint(r->w.balancer, check_endpoint, NULL);
}

void rig_stop(struct rig *r)
{
    for (size_t i = 0; i < RIG_REPLICAS; i++) { /* what waits to be accepted is closed with it */
        if (r->listening[i] >= 0)
            close(r->listening[i]);
        unlink(r->replicas[i].text + strlen("unix:"));
    }
    rig_settle(r);
    for (int i = 0; i < END_LEAPS;
         i++) { /* not timer by timer: 500 reports take longer than all else */
        now_us += LEAP_US;
        rig_settle(r);
    }
    check_nothing_left(r);
    worker_post_stop(&r->w);
    rig_settle(r);
    loop_fini(&r->peers);
    worker_fini(&r->w);
    unlink(r->gateway.text + strlen("unix:"));
}
