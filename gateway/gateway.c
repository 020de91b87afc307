#include "gateway/gateway.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/xalloc.h"
#include "gateway/book.h"
#include "gateway/certs.h"
#include "gateway/report.h"
#include "gateway/worker.h"

/* What messages to the control loop hold: they may arrive when the gateway is gone. */
struct gateway_link {
    atomic_uint refs;
    struct gateway *gateway; /* read and written on the control thread only; NULL: stopped */
};

struct gateway {
    struct gateway_link *link;
    struct gateway_conf conf;
    char *name;
    struct worker *workers;
    uint32_t n_workers;
    struct net_addr *addresses; /* [process->n_listeners] */
    struct snapshot *snap;
    struct map resolved; /* address text -> struct net_addr *, for as long as the process runs */
    struct book *book;   /* what the reports add up to */

    uint32_t n_draining;
    struct timer drain_limit;
    void (*drained)(void *arg);
    void *drained_arg;
};

const struct gateway_stats *gateway_stats(const struct gateway *g)
{
    return book_stats(g->book);
}

static struct gateway_link *gateway_link_ref(struct gateway_link *l)
{
    atomic_fetch_add_explicit(&l->refs, 1, memory_order_relaxed);
    return l;
}

static void gateway_link_unref(struct gateway_link *l)
{
    if (atomic_fetch_sub_explicit(&l->refs, 1, memory_order_acq_rel) == 1)
        free(l);
}

static void report_discard(struct mbox_msg *msg)
{
    struct report *r = container_of(msg, struct report, msg);

    gateway_link_unref(r->link);
    report_free(r);
}

static void report_deliver(struct mbox_msg *msg, void *arg)
{
    struct report *r = container_of(msg, struct report, msg);

    (void)arg;
    struct gateway *g = r->link->gateway;

    if (g != NULL) {
        book_add(g->book, r);
        if (g->conf.on_report != NULL)
            g->conf.on_report(g->conf.report_arg, r->packed, r->packed_len);
    }
    report_discard(msg);
}

void gateway_post_report(struct gateway *g, struct report *r)
{
    r->msg.deliver = report_deliver;
    r->msg.discard = report_discard;
    r->link = gateway_link_ref(g->link);
    mbox_post(&g->conf.control->mbox, &r->msg);
}

/* --- snapshots --- */

const struct snapshot *gateway_snapshot(const struct gateway *g)
{
    return g->snap;
}

static const struct net_addr *gateway_resolve(struct gateway *g, const char *text)
{
    struct net_addr *addr = map_get(&g->resolved, text, strlen(text));
    struct err err = {0};

    if (addr != NULL)
        return addr;
    addr = xcalloc(1, sizeof(*addr));
    if (net_addr_parse(addr, text, &err) < 0) {
        char quoted[300];

        log_warn("endpoint_address", "replica=%s msg=%s", text,
                 log_quote(quoted, sizeof(quoted), err.text));
        free(addr);
        return NULL;
    }
    map_set(&g->resolved, text, strlen(text), addr);
    return addr;
}

static struct address_book *gateway_make_book(struct gateway *g, const struct snapshot *snap)
{
    struct address_book *book = address_book_new();

    for (size_t m = 0; m < snap->n_models; m++) {
        struct tls_ctx *tls;

        if (!certs_of_model(g->conf.certs, snap->models[m].conf, &tls))
            continue;
        for (size_t v = 0; v < snap->models[m].n_versions; v++) {
            const struct snap_version *version = &snap->models[m].versions[v];

            for (size_t e = 0; e < version->n_endpoints; e++) {
                const char *text = version->endpoints[e]->address;
                const struct net_addr *addr = gateway_resolve(g, text);

                if (addr == NULL || map_get(&book->by_text, text, strlen(text)) != NULL)
                    continue;

                struct net_addr *copy = xcalloc(1, sizeof(*copy));

                *copy = *addr;
                map_set(&book->by_text, text, strlen(text), copy);
                if (tls != NULL)
                    map_set(&book->tls, text, strlen(text), tls);
            }
        }
    }
    return book;
}

void gateway_publish(struct gateway *g, struct snapshot *next)
{
    snapshot_ref(next);
    snapshot_unref(g->snap);
    g->snap = next;
    for (uint32_t i = 0; i < g->n_workers; i++)
        worker_post_snapshot(&g->workers[i], next, gateway_make_book(g, next));
}

/* --- drain --- */

struct drained_msg {
    struct mbox_msg msg;
    struct gateway_link *link;
};

static void drained_discard(struct mbox_msg *msg)
{
    struct drained_msg *m = container_of(msg, struct drained_msg, msg);

    gateway_link_unref(m->link);
    free(m);
}

static void drained_deliver(struct mbox_msg *msg, void *arg)
{
    struct gateway *g = container_of(msg, struct drained_msg, msg)->link->gateway;

    (void)arg;
    drained_discard(msg);
    if (g == NULL)
        return;
    check(g->n_draining > 0);
    if (--g->n_draining > 0)
        return;
    timer_stop(g->conf.control, &g->drain_limit);
    g->drained(g->drained_arg);
}

static void gateway_on_worker_drained(struct worker *w) /* on the worker's thread */
{
    struct drained_msg *m = xcalloc(1, sizeof(*m));

    m->msg.deliver = drained_deliver;
    m->msg.discard = drained_discard;
    m->link = gateway_link_ref(w->gateway->link);
    mbox_post(&w->gateway->conf.control->mbox, &m->msg);
}

static void gateway_on_drain_limit(struct timer *t)
{
    struct gateway *g = container_of(t, struct gateway, drain_limit);

    log_warn("drain_limit", "msg=\"calls still ran when the drain's limit passed: cut off\"");
    for (uint32_t i = 0; i < g->n_workers; i++)
        worker_post_close_sessions(&g->workers[i]);
}

void gateway_drain(struct gateway *g, uint64_t limit_us, void (*drained)(void *arg), void *arg)
{
    check(g->n_draining == 0);
    g->drained = drained;
    g->drained_arg = arg;
    g->n_draining = g->n_workers;
    timer_start(g->conf.control, &g->drain_limit, g->conf.control->now_us + limit_us);
    for (uint32_t i = 0; i < g->n_workers; i++)
        worker_post_drain(&g->workers[i], gateway_on_worker_drained);
}

/* --- start and stop --- */

const char *gateway_name(const struct gateway *g)
{
    return g->name;
}

const char *gateway_listen_address(const struct gateway *g, size_t i)
{
    return worker_listen_addr(&g->workers[0], i)->text;
}

const struct certs *gateway_certs(const struct gateway *g)
{
    return g->conf.certs;
}

uint32_t gateway_n_workers(const struct gateway *g)
{
    return g->n_workers;
}

static int gateway_init_addresses(struct gateway *g, struct err *err)
{
    const struct process_conf *p = g->conf.process;

    g->addresses = xcalloc(p->n_listeners, sizeof(*g->addresses));
    for (size_t i = 0; i < p->n_listeners; i++) {
        const int r = net_addr_parse(&g->addresses[i], p->listeners[i].address, err);

        if (r < 0)
            return r;
    }
    return 0;
}

static int gateway_init_workers(struct gateway *g, struct err *err)
{
    const struct process_conf *p = g->conf.process;
    const struct h2_engine *engine =
        p->engine == NULL || p->engine[0] == '\0' ? NULL : h2_engine_find(p->engine);

    if (engine == NULL && p->engine != NULL && p->engine[0] != '\0')
        return err_set(err, -EINVAL, "engine: \"%s\" is not a known HTTP/2 engine", p->engine);
    for (uint32_t i = 0; i < g->n_workers; i++) {
        const struct worker_conf c = {
            .gateway = g,
            .index = i,
            .n_workers = g->n_workers,
            .process = p,
            .engine = engine,
            .certs = g->conf.certs,
            .addresses = g->addresses,
            .workers = g->workers,
            .snap = g->snap,
            .book = gateway_make_book(g, g->snap),
        };
        const int r = worker_init(&g->workers[i], &c, err);

        if (r < 0)
            return r;
        for (size_t l = 0; i == 0 && l < p->n_listeners; l++) /* the port that 0 became */
            g->addresses[l] = *worker_listen_addr(&g->workers[0], l);
    }
    for (uint32_t i = 0; i < g->n_workers; i++) {
        const int r = worker_start(&g->workers[i], err);

        if (r < 0)
            return r;
    }
    return 0;
}

static uint32_t workers_wanted(const struct process_conf *p)
{
    const long cores = sysconf(_SC_NPROCESSORS_ONLN);

    if (p->workers > 0)
        return p->workers;
    return cores > 0 ? (uint32_t)cores : 1;
}

struct gateway *gateway_start(const struct gateway_conf *conf, struct snapshot *first,
                              struct err *err)
{
    struct gateway *g = xcalloc(1, sizeof(*g));
    int r;

    g->link = xcalloc(1, sizeof(*g->link));
    atomic_init(&g->link->refs, 1);
    g->link->gateway = g;
    g->conf = *conf;
    g->name = xstrdup(conf->name == NULL ? "gateway" : conf->name);
    g->n_workers = workers_wanted(conf->process);
    g->workers = xcalloc(g->n_workers, sizeof(*g->workers));
    g->snap = snapshot_ref(first);
    g->drain_limit.fire = gateway_on_drain_limit;
    map_init(&g->resolved);
    g->book = book_new(g->n_workers);

    r = gateway_init_addresses(g, err);
    if (r == 0)
        r = gateway_init_workers(g, err);
    if (r < 0)
        return gateway_stop(g);
    return g;
}

static void free_value(void *arg, const char *key, size_t key_len, void *value)
{
    (void)arg;
    (void)key;
    (void)key_len;
    free(value);
}

struct gateway *gateway_stop(struct gateway *g)
{
    for (uint32_t i = 0; i < g->n_workers; i++) {
        if (g->workers[i].runs)
            worker_post_stop(&g->workers[i]);
    }
    for (uint32_t i = 0; i < g->n_workers; i++)
        worker_join(&g->workers[i]);
    for (uint32_t i = 0; i < g->n_workers; i++)
        worker_fini(&g->workers[i]);
    timer_stop(g->conf.control, &g->drain_limit);
    book_free(g->book);
    map_each(&g->resolved, free_value, NULL);
    map_fini(&g->resolved);
    snapshot_unref(g->snap);
    g->link->gateway = NULL;
    gateway_link_unref(g->link);
    free(g->addresses);
    free(g->workers);
    free(g->name);
    free(g);
    return NULL;
}
