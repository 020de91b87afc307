#include "net/pool.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/rng.h"
#include "base/xalloc.h"

#define POOL_MAGIC  0x706f6f6cu
#define PCONN_MAGIC 0x70636f6eu

/* A connection that lived shorter counts as a failed dial: a peer that greets and hangs up must not
 * be dialled in a tight loop. */
#define SHORT_LIFE_US 1000000

#define GROW_WHOLE 1024u /* conf.grow_ratio in whole numbers: it is looked at with each call */

/* A gRPC server says so with GOAWAY(ENHANCE_YOUR_CALM); then clients double their time (gRPC A8).
 */
#define TOO_MANY_PINGS    "too_many_pings"
#define PING_AFTER_MAX_US (3600 * UINT64_C(1000000))

enum pconn_state { PCONN_DIALLING = 0, PCONN_READY, PCONN_RETIRING };

struct pconn {
    uint32_t magic;
    enum pconn_state state;
    struct pool *pool; /* NULL: the pool is gone, the connection is closing */
    struct list node;
    struct conn *conn;
    uint32_t capacity; /* streams at once: the peer's limit and ours */
    uint64_t ready_us;
};

struct pool {
    uint32_t magic;
    enum pool_state state;
    struct loop *loop;
    struct net_addr addr;
    struct pool_conf conf;
    struct pool_ops ops;
    void *user;
    uint32_t grow_ratio; /* of GROW_WHOLE */
    struct list conns;
    uint32_t n_conns[PCONN_RETIRING + 1];
    struct list waiters;
    struct dirty dirty; /* serves waiters, tells drained */
    struct timer redial;
    struct timer starved; /* runs while every ready connection allows 0 streams */
    bool redial_waits;    /* back-off runs */
    bool draining;
    void (*on_drained)(void *user);
    unsigned n_failures; /* in a row */
    struct rng rng;
    char why[128];
};

static const char *const state_names[] = {
    [POOL_IDLE] = "idle",
    [POOL_DIALLING] = "dialling",
    [POOL_UP] = "up",
    [POOL_DOWN] = "down",
};

const char *pool_state_name(enum pool_state s)
{
    return state_names[s];
}

void pool_conf_default(struct pool_conf *c)
{
    *c = (struct pool_conf){
        .min_conns = 1,
        .max_conns = 8,
        .grow_ratio = 0.8,
        .backoff_min_us = 100000, /* a replica that restarts is missed for no longer */
        .backoff_max_us = 5000000,
        .no_streams_us = 5000000,
        .seed = 1,
    };
    conn_conf_default(&c->conn);
    c->conn.settings_ack_us = 0; /* a server that never acknowledges still answers */
}

static struct pconn *pconn_of(void *user)
{
    return obj_cast(PCONN, struct pconn, user);
}

/* ---- state ---- */

static void pool_set_state(struct pool *p, enum pool_state to, const char *why)
{
    snprintf(p->why, sizeof(p->why), "%s", to == POOL_UP ? "" : why);
    if (p->state == to)
        return;
    p->state = to;
    if (p->ops.on_state != NULL)
        p->ops.on_state(p->user, to, p->why);
}

static void pconn_set_state(struct pconn *pc, enum pconn_state to)
{
    pc->pool->n_conns[pc->state]--;
    pc->pool->n_conns[to]++;
    pc->state = to;
}

static void pconn_check_retired(struct pconn *pc)
{
    if (pc->state == PCONN_RETIRING && h2_n_streams(conn_h2(pc->conn)) == 0)
        conn_close(pc->conn, "retired");
}

static uint32_t pool_n_live(const struct pool *p)
{
    return p->n_conns[PCONN_DIALLING] + p->n_conns[PCONN_READY];
}

static void pool_mark(struct pool *p)
{
    loop_mark_dirty(p->loop, &p->dirty);
}

/* ---- streams ---- */

static uint32_t pconn_capacity(const struct pconn *pc)
{
    const uint32_t peers = h2_peer_max_streams(conn_h2(pc->conn));
    const uint32_t ours = pc->pool->conf.max_streams;

    return ours != 0 && ours < peers ? ours : peers;
}

/* The ready connection with the fewest streams that takes one more; NULL: none does. ret_grow:
 * those that are ready are filled to the ratio, or one of them is used up: pool_grow has work. */
static struct pconn *pool_least_loaded(const struct pool *p, bool *ret_grow)
{
    struct pconn *best = NULL;
    uint64_t used = 0, room = 0;
    uint32_t fewest = UINT32_MAX;
    bool used_up = false;

    list_each (&p->conns, it) {
        struct pconn *pc = list_entry(it, struct pconn, node);
        const struct h2 *h = conn_h2(pc->conn);
        const uint32_t n = h2_n_streams(h);

        if (pc->state != PCONN_READY)
            continue;
        used += n;
        room += pc->capacity;
        if (n >= fewest || n >= pc->capacity || !conn_is_ready(pc->conn))
            continue;
        if (!h2_can_open(h)) {
            used_up = true;
            continue;
        }
        best = pc;
        fewest = n;
    }
    *ret_grow = used_up || (used + 1) * GROW_WHOLE >= p->grow_ratio * room;
    return best;
}

static void pool_dial(struct pool *p);

/* One whose stream ids have run out: its last stream's end closes it. */
static bool pconn_is_used_up(const struct pconn *pc)
{
    struct h2 *h = conn_h2(pc->conn);

    return pc->state == PCONN_READY && conn_is_ready(pc->conn) && !h2_can_open(h) &&
           h2_n_streams(h) < h2_peer_max_streams(h);
}

/* Dial when the ready ones are filled to the ratio: the next one is there before the limit is. */
static void pool_grow(struct pool *p)
{
    uint64_t used = 0, room = 0;

    list_each (&p->conns, it) {
        struct pconn *pc = list_entry(it, struct pconn, node);

        if (pconn_is_used_up(pc)) {
            pconn_set_state(pc, PCONN_RETIRING);
            pconn_check_retired(pc);
        } else if (pc->state == PCONN_READY) {
            used += h2_n_streams(conn_h2(pc->conn));
            room += pc->capacity;
        }
    }
    if (p->n_conns[PCONN_DIALLING] > 0 || pool_n_live(p) >= p->conf.max_conns || p->redial_waits)
        return;
    if (used * GROW_WHOLE >= p->grow_ratio * room)
        pool_dial(p);
}

struct h2_stream *pool_open(struct pool *p, struct h2_set *set, const struct h2_field *fields,
                            size_t n, bool end, void *stream_user)
{
    struct h2_stream *s = NULL;
    struct pconn *pc;
    bool grow;

    if (p->draining)
        return NULL;
    pc = pool_least_loaded(p, &grow);
    if (pc != NULL && set != NULL)
        s = h2_open_set(conn_h2(pc->conn), set, fields, n, end, stream_user);
    else if (pc != NULL)
        s = h2_open(conn_h2(pc->conn), fields, n, end, stream_user);
    if (grow)
        pool_grow(p);
    return s;
}

bool pool_can_open(const struct pool *p)
{
    bool grow;

    return !p->draining && pool_least_loaded(p, &grow) != NULL;
}

bool pool_has_tls(const struct pool *p)
{
    return p->conf.conn.tls != NULL;
}

void pool_wait(struct pool *p, struct pool_waiter *w)
{
    check(!list_is_linked(&w->node));
    list_push_back(&p->waiters, &w->node);
    if (!p->draining)
        pool_grow(p);
    pool_mark(p);
}

void pool_wait_cancel(struct pool *p, struct pool_waiter *w)
{
    (void)p;
    list_remove(&w->node);
}

/* The flush phase. Each waiter is looked at once: one that waits again waits for the next turn. */
static void pool_serve(struct dirty *d)
{
    struct pool *p = container_of(d, struct pool, dirty);
    struct list batch;
    struct list *node;
    bool hopeless;

    if (p->draining && list_is_empty(&p->conns) && p->on_drained != NULL) {
        void (*on_drained)(void *user) = p->on_drained;

        p->on_drained = NULL;
        on_drained(p->user); /* may free p */
        return;
    }
    hopeless = p->draining || (p->state == POOL_DOWN && p->n_conns[PCONN_DIALLING] == 0);
    list_init(&batch);
    while ((node = list_pop_front(&p->waiters)) != NULL)
        list_push_back(&batch, node);
    while ((node = list_pop_front(&batch)) != NULL) {
        struct pool_waiter *w = list_entry(node, struct pool_waiter, node);

        if (pool_can_open(p))
            w->wake(w, true, "");
        else if (hopeless && !w->patient)
            w->wake(w, false, p->draining ? "draining" : p->why);
        else
            list_push_back(&p->waiters, &w->node);
    }
}

/* ---- connections ---- */

static void pool_fail(struct pool *p, const char *why);

static void pc_headers(void *user, struct h2_stream *s, enum h2_block kind,
                       const struct h2_field *fields, size_t n, bool end)
{
    struct pool *p = pconn_of(user)->pool;

    p->ops.h2.on_headers(p->user, s, kind, fields, n, end);
}

static void pc_data(void *user, struct h2_stream *s, struct slab *slab, const uint8_t *b,
                    size_t len, bool end)
{
    struct pool *p = pconn_of(user)->pool;

    p->ops.h2.on_data(p->user, s, slab, b, len, end);
}

static void pc_sent(void *user, struct h2_stream *s, size_t bytes)
{
    struct pool *p = pconn_of(user)->pool;

    p->ops.h2.on_sent(p->user, s, bytes);
}

static void pc_close(void *user, struct h2_stream *s, uint32_t code, bool by_peer)
{
    struct pconn *pc = pconn_of(user);

    if (pc->pool->ops.h2.on_close != NULL)
        pc->pool->ops.h2.on_close(pc->pool->user, s, code, by_peer);
    if (pc->pool == NULL)
        return; /* the event ended the pool */
    pconn_check_retired(pc);
    if (!list_is_empty(&pc->pool->waiters))
        pool_mark(pc->pool);
}

static void pool_redial_later(struct pool *p);

/* A replacement is dialled while the old one still works; later, when the one before was sent away
 * as soon as it had come, too. */
static void pconn_retire(struct pconn *pc)
{
    struct pool *p = pc->pool;
    const bool in_use = h2_n_streams(conn_h2(pc->conn)) > 0;

    pconn_set_state(pc, PCONN_RETIRING);
    if (p->loop->now_us - pc->ready_us >= SHORT_LIFE_US)
        p->n_failures = 0;
    else
        p->n_failures++;
    if (!p->draining && !p->redial_waits && pool_n_live(p) == 0) {
        if (p->n_failures > 1) {
            pool_redial_later(p);
            pool_mark(p);
            pool_set_state(p, POOL_DOWN, "each new connection is asked to go away");
        } else if (in_use || p->conf.min_conns > 0 || !list_is_empty(&p->waiters)) {
            pool_set_state(p, POOL_DIALLING, "the connection was asked to go away");
            if (pc->pool != NULL)
                pool_dial(p);
        } else {
            pool_set_state(p, POOL_IDLE, "");
        }
    }
    if (pc->pool != NULL)
        pconn_check_retired(pc);
}

void pool_set_tls(struct pool *p, struct tls_ctx *tls)
{
    if (p->conf.conn.tls == tls)
        return;
    p->conf.conn.tls = tls;
    list_each (&p->conns, it) {
        struct pconn *const pc = list_entry(it, struct pconn, node);

        if (pc->state == PCONN_READY)
            pconn_retire(pc);
        else if (pc->state == PCONN_DIALLING)
            conn_close(pc->conn, "other TLS settings");
    }
}

static void pool_ping_less(struct pool *p)
{
    uint64_t *after_us = &p->conf.conn.ping_after_us;

    *after_us = 2 * *after_us < PING_AFTER_MAX_US ? 2 * *after_us : PING_AFTER_MAX_US;
}

static void pc_goaway(void *user, uint32_t last_stream_id, uint32_t code, const uint8_t *debug,
                      size_t debug_len)
{
    struct pconn *pc = pconn_of(user);

    (void)last_stream_id;
    if (pc->pool != NULL && code == H2_ENHANCE_YOUR_CALM &&
        debug_len == sizeof(TOO_MANY_PINGS) - 1 && memcmp(debug, TOO_MANY_PINGS, debug_len) == 0)
        pool_ping_less(pc->pool);
    if (pc->pool != NULL && pc->state == PCONN_READY)
        pconn_retire(pc);
}

static bool pool_is_starved(const struct pool *p)
{
    list_each (&p->conns, it) {
        const struct pconn *pc = list_entry(it, struct pconn, node);

        if (pc->state == PCONN_READY && h2_peer_max_streams(conn_h2(pc->conn)) > 0)
            return false;
    }
    return p->n_conns[PCONN_READY] > 0;
}

static void pool_watch_starvation(struct pool *p)
{
    if (p->conf.no_streams_us == 0 || p->draining || !pool_is_starved(p))
        timer_stop(p->loop, &p->starved);
    else if (!heap_node_is_linked(&p->starved.node))
        timer_start(p->loop, &p->starved, p->loop->now_us + p->conf.no_streams_us);
}

/* Calls that run may end; nobody waits any longer for a server that takes none. */
static void pool_on_starved(struct timer *t)
{
    struct pool *p = container_of(t, struct pool, starved);

    if (!pool_is_starved(p))
        return;
    list_each (&p->conns, it) {
        struct pconn *pc = list_entry(it, struct pconn, node);

        if (pc->state == PCONN_READY) {
            pconn_set_state(pc, PCONN_RETIRING);
            pconn_check_retired(pc);
        }
    }
    p->n_failures++;
    pool_mark(p);
    pool_fail(p, "allows no calls: its MAX_CONCURRENT_STREAMS is 0"); /* may free p */
}

/* The first SETTINGS, not the connect, make it ready: a port that accepts may not speak HTTP/2, and
 * the peer's stream limit is known now. */
static void pc_settings(void *user)
{
    struct pconn *pc = pconn_of(user);
    struct pool *p = pc->pool;

    if (p == NULL)
        return;
    pc->capacity = pconn_capacity(pc);
    if (pc->state == PCONN_DIALLING) {
        pconn_set_state(pc, PCONN_READY);
        pc->ready_us = p->loop->now_us;
        if (p->draining) {
            pconn_retire(pc);
            return;
        }
        pool_mark(p);
        pool_watch_starvation(p);
        pool_set_state(p, POOL_UP, "");
        return;
    }
    pool_watch_starvation(p);
    if (!list_is_empty(&p->waiters))
        pool_mark(p); /* the limit may have risen */
}

static void pc_closed(void *user, const char *why)
{
    struct pconn *pc = pconn_of(user);
    struct pool *p = pc->pool;
    const enum pconn_state was = pc->state;
    const uint64_t ready_us = pc->ready_us;

    if (p != NULL) {
        p->n_conns[was]--;
        list_remove(&pc->node);
    }
    pc->magic = 0;
    free(pc);
    if (p == NULL)
        return;
    pool_mark(p);
    if (p->draining || was == PCONN_RETIRING)
        return;
    if (was == PCONN_READY && p->loop->now_us - ready_us >= SHORT_LIFE_US)
        p->n_failures = 0;
    else
        p->n_failures++;
    pool_fail(p, why);
}

static const struct conn_ops pconn_ops = {
    .h2 = {.on_headers = pc_headers,
           .on_data = pc_data,
           .on_sent = pc_sent,
           .on_close = pc_close,
           .on_goaway = pc_goaway,
           .on_settings = pc_settings},
    .on_closed = pc_closed,
};

static bool pool_wants_conn(const struct pool *p)
{
    return pool_n_live(p) < p->conf.min_conns ||
           (pool_n_live(p) == 0 && !list_is_empty(&p->waiters));
}

static void pool_dial(struct pool *p)
{
    struct pconn *pc = xcalloc(1, sizeof(*pc));
    struct conn_ops ops = pconn_ops;

    ops.h2.on_headers = p->ops.h2.on_headers != NULL ? ops.h2.on_headers : NULL;
    ops.h2.on_data = p->ops.h2.on_data != NULL ? ops.h2.on_data : NULL;
    ops.h2.on_sent = p->ops.h2.on_sent != NULL ? ops.h2.on_sent : NULL;
    pc->magic = PCONN_MAGIC;
    pc->pool = p;
    p->n_conns[PCONN_DIALLING]++;
    list_push_back(&p->conns, &pc->node);
    pc->conn = conn_dial(p->loop, &p->addr, &p->conf.conn, &ops, pc);
    if (p->state == POOL_IDLE)
        pool_set_state(p, POOL_DIALLING, "");
}

static void pool_on_redial(struct timer *t)
{
    struct pool *p = container_of(t, struct pool, redial);

    p->redial_waits = false;
    if (!p->draining && p->n_conns[PCONN_DIALLING] == 0 && pool_wants_conn(p))
        pool_dial(p);
}

static uint64_t pool_backoff_us(struct pool *p)
{
    const unsigned shift = p->n_failures - 1 < 20 ? p->n_failures - 1 : 20;
    uint64_t us = p->conf.backoff_min_us << shift;

    if (us > p->conf.backoff_max_us)
        us = p->conf.backoff_max_us;
    return (uint64_t)((double)us * (0.8 + 0.4 * rng_unit(&p->rng)));
}

static void pool_redial_later(struct pool *p)
{
    p->redial_waits = true;
    timer_start(p->loop, &p->redial, p->loop->now_us + pool_backoff_us(p));
}

/* A dial failed or a ready connection broke. */
static void pool_fail(struct pool *p, const char *why)
{
    p->redial_waits = false;
    if (p->n_failures > 0)
        pool_redial_later(p);
    else if (p->n_conns[PCONN_DIALLING] == 0 && pool_wants_conn(p))
        pool_dial(p);
    if (p->n_conns[PCONN_READY] == 0)
        pool_set_state(p, POOL_DOWN, why); /* the last: its event may free p */
}

/* ---- life ---- */

struct pool *pool_new(struct loop *l, const struct net_addr *addr, const struct pool_conf *conf,
                      const struct pool_ops *ops, void *user)
{
    struct pool *p = xcalloc(1, sizeof(*p));

    check(conf->max_conns >= 1 && conf->min_conns <= conf->max_conns);
    p->magic = POOL_MAGIC;
    p->loop = l;
    p->addr = *addr;
    p->conf = *conf;
    p->user = user;
    p->grow_ratio = (uint32_t)(conf->grow_ratio * GROW_WHOLE);
    list_init(&p->conns);
    list_init(&p->waiters);
    p->dirty.flush = pool_serve;
    p->redial.fire = pool_on_redial;
    p->starved.fire = pool_on_starved;
    rng_init(&p->rng, conf->seed);
    p->ops.h2 = ops->h2;
    if (conf->min_conns > 0) {
        p->state = POOL_DIALLING; /* not told: the caller knows that it called us */
        pool_dial(p);
    }
    p->ops.on_state = ops->on_state;
    return p;
}

struct pool *pool_free(struct pool *p)
{
    struct list *node;

    if (p == NULL)
        return NULL;
    check(list_is_empty(&p->waiters));
    p->ops.on_state = NULL;
    p->draining = true;
    p->on_drained = NULL;
    while ((node = list_pop_front(&p->conns)) != NULL) {
        struct pconn *pc = list_entry(node, struct pconn, node);

        conn_close(pc->conn, "the pool is closed");
        h2_lost(conn_h2(pc->conn)); /* the on_close events, now */
        pc->pool = NULL;
    }
    check(list_is_empty(&p->waiters));
    timer_stop(p->loop, &p->redial);
    timer_stop(p->loop, &p->starved);
    list_remove(&p->dirty.node);
    p->magic = 0;
    free(p);
    return NULL;
}

void pool_warm(struct pool *p)
{
    if (p->draining || pool_n_live(p) > 0)
        return;
    timer_stop(p->loop, &p->redial);
    p->redial_waits = false;
    pool_dial(p);
}

void pool_renew(struct pool *p)
{
    if (p->draining || p->state == POOL_UP)
        return;
    p->n_failures = 0;
    timer_stop(p->loop, &p->redial);
    p->redial_waits = false;
    if (p->n_conns[PCONN_DIALLING] == 0)
        pool_dial(p);
    pool_set_state(p, POOL_DIALLING, ""); /* the last: its event may free p */
}

void pool_drain(struct pool *p, void (*on_drained)(void *user))
{
    p->draining = true;
    p->on_drained = on_drained;
    timer_stop(p->loop, &p->redial);
    timer_stop(p->loop, &p->starved);
    list_each (&p->conns, it) {
        struct pconn *pc = list_entry(it, struct pconn, node);

        if (pc->state == PCONN_DIALLING)
            conn_close(pc->conn, "draining");
        else if (pc->state == PCONN_READY)
            pconn_retire(pc);
    }
    pool_mark(p);
}

enum pool_state pool_state(const struct pool *p)
{
    return p->state;
}

const char *pool_why_down(const struct pool *p)
{
    return p->why;
}

uint32_t pool_n_streams(const struct pool *p)
{
    uint32_t n = 0;

    list_each (&p->conns, it) {
        n += h2_n_streams(conn_h2(list_entry(it, struct pconn, node)->conn));
    }
    return n;
}

uint32_t pool_n_conns(const struct pool *p)
{
    return pool_n_live(p) + p->n_conns[PCONN_RETIRING];
}

const struct net_addr *pool_addr(const struct pool *p)
{
    return &p->addr;
}
