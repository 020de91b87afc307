#include "penstock/controller.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/xalloc.h"
#include "conf/edit.h"
#include "gateway/certs.h"
#include "gateway/stats.h"
#include "penstock/controller_state.h"
#include "proto/penstock.pb-c.h"

#define TICK_US   (100 * US_PER_MS) /* how soon a drained replica is stopped, a retry is made */
#define DECIDE_US US_PER_S

/* ---- endpoints and snapshots ---- */

/* Names as the prober knows them: plain services have no model, "*" is the server's default. */
static const char *probe_model(enum model_protocol protocol, const char *model)
{
    return protocol == PROTOCOL_GRPC ? "" : model;
}

static const char *probe_version(const char *version)
{
    return strcmp(version, VERSION_ANY) == 0 ? "" : version;
}

static enum endpoint_state static_state(void *arg, const char *model, const char *version,
                                        const char *address)
{
    const struct controller *const c = arg;
    const struct model_conf *const m = generation_model(c->generation, model);
    const enum endpoint_state s =
        prober_state(c->prober, address, m == NULL ? model : probe_model(m->protocol, model),
                     probe_version(version));

    /* Not proven yet: somebody runs it, so it gets calls while nobody better is there. */
    return s == ENDPOINT_STARTING ? ENDPOINT_UNHEALTHY : s;
}

static struct snapshot *build_snapshot(struct controller *c)
{
    struct endpoint_input *inputs = NULL;
    const size_t n = fleet_inputs(&c->fleet, &inputs);
    struct snapshot *const s =
        snapshot_build(c->generation, ++c->epoch, inputs, n, static_state, c);

    free(inputs);
    list_each (&c->fleet.runs, node) {
        const struct run *const run = list_entry(node, struct run, node);

        if (run->conf != NULL && run->shown != run->weight)
            snapshot_set_weight(s, run->model, run->version, run->shown);
    }
    return s;
}

static size_t count_static(const struct generation *g)
{
    size_t n = 0;

    for (size_t i = 0; i < g->n_models; i++) {
        n += g->models[i].n_endpoints * g->models[i].n_versions;
        for (size_t v = 0; v < g->models[i].n_versions; v++)
            n += g->models[i].versions[v].n_endpoints;
    }
    return n;
}

static size_t add_static(struct probe_target *to, const struct model_conf *m,
                         const struct version_conf *v, const char **addresses, size_t n,
                         struct tls_ctx *tls)
{
    for (size_t i = 0; i < n; i++)
        to[i] = (struct probe_target){
            .address = addresses[i],
            .model = probe_model(m->protocol, m->name),
            .version = probe_version(v->name),
            .protocol = m->protocol,
            .dialect = m->dialect,
            .tls = tls,
        };
    return n;
}

/* The prober watches our replicas and the endpoints that the config names. */
static void watch(struct controller *c)
{
    const struct generation *const g = c->generation;
    struct probe_target *targets = NULL;
    size_t n = fleet_targets(&c->fleet, &targets);

    targets = xrealloc(targets, n + count_static(g) + 1, sizeof(*targets));
    for (size_t i = 0; i < g->n_models; i++) {
        const struct model_conf *const m = &g->models[i];
        struct tls_ctx *tls;

        if (!certs_of_model(c->certs, m, &tls))
            continue; /* said already; never ready */
        for (size_t v = 0; v < m->n_versions; v++) {
            const struct version_conf *const version = &m->versions[v];

            n += add_static(targets + n, m, version, m->endpoints, m->n_endpoints, tls);
            n += add_static(targets + n, m, version, version->endpoints, version->n_endpoints, tls);
        }
    }
    prober_set(c->prober, targets, n);
    free(targets);
}

static void publish(struct controller *c)
{
    if (c->gateway == NULL)
        return;
    watch(c);
    struct snapshot *const s = build_snapshot(c);

    gateway_publish(c->gateway, s);
    fleet_published(&c->fleet, s->epoch);
    snapshot_unref(s);
}

static void on_publish(struct timer *t)
{
    publish(container_of(t, struct controller, publish));
}

void controller_publish_soon(struct controller *c)
{
    timer_start(c->loop, &c->publish, c->loop->now_us);
}

void controller_take_generation(struct controller *c, bool at_once)
{
    struct err err = {0};

    driver_local_set_nodes(c->driver, c->generation->nodes, c->generation->n_nodes);
    if (driver_inventory(c->driver, &c->view, &err) < 0)
        log_warn("inventory_failed", "msg=\"%s\"", err.text);
    fleet_set_generation(&c->fleet, c->generation, at_once, c->loop->now_us);
    controller_jobs_set_generation(c->jobs, c->generation);
    c->fleet.released = true; /* nodes and queues may be others */
    publish(c);               /* now, not soon: a rollback is waited for */
}

/* ---- what happens ---- */

bool controller_workers_have(const struct controller *c, uint64_t epoch)
{
    const struct gateway_stats *const s = gateway_stats(c->gateway);

    for (uint32_t w = 0; w < s->n_workers; w++) {
        if (s->worker_epochs[w] < epoch)
            return false;
    }
    return true;
}

static uint32_t calls_at(void *arg, const char *address, uint64_t epoch)
{
    const struct controller *const c = arg;

    return controller_workers_have(c, epoch) ? controller_calls_at(c, address) : UINT32_MAX;
}

uint32_t controller_calls_at(const struct controller *c, const char *address)
{
    const struct gateway_stats *const s = c->gateway == NULL ? NULL : gateway_stats(c->gateway);

    for (size_t i = 0; s != NULL && i < s->n_endpoints; i++) {
        if (strcmp(s->endpoints[i]->address, address) == 0)
            return stats_sum(s->endpoints[i]->in_flight, s->n_workers);
    }
    return 0;
}

static void step(struct controller *c)
{
    const uint64_t now_us = c->loop->now_us;

    if (c->gateway == NULL)
        return;
    fleet_stop_drained(&c->fleet, calls_at, c, now_us);
    fleet_step(&c->fleet, now_us);
    if (c->fleet.released) { /* what the replicas left: jobs come after serving */
        c->fleet.released = false;
        controller_jobs_step(c->jobs);
    }
    if (c->fleet.endpoints_changed)
        controller_publish_soon(c);
    api_step(c);
    if (c->stopped == NULL)
        return;

    const bool jobs_ended = controller_jobs_stop_all(c->jobs);

    if (fleet_stop_all(&c->fleet, now_us) && jobs_ended) {
        void (*const stopped)(void *) = c->stopped;

        c->stopped = NULL;
        stopped(c->stopped_arg);
    }
}

static void on_tick(struct timer *t)
{
    struct controller *const c = container_of(t, struct controller, tick);

    if (c->loop->now_us >= c->decide_us) {
        fleet_decide(&c->fleet, c->loop->now_us);
        c->decide_us = c->loop->now_us + DECIDE_US;
        c->fleet.released = true; /* waiting jobs say anew what they wait for */
    }
    step(c);
    timer_start(c->loop, &c->tick, c->loop->now_us + TICK_US);
}

static void on_driver_event(void *arg, const struct driver_event *ev)
{
    struct controller *const c = arg;

    if (controller_jobs_on_event(c->jobs, ev))
        c->fleet.released = true;
    else if (!fleet_on_event(&c->fleet, ev, c->loop->now_us))
        return;
    step(c);
}

static void on_probe(void *arg, const struct probe_target *t, enum endpoint_state state,
                     const char *why)
{
    struct controller *const c = arg;

    fleet_probed(&c->fleet, t, state, why, c->loop->now_us);
    step(c);
    controller_publish_soon(c); /* a static endpoint is nobody's replica, and in snapshots too */
}

static bool wakes(const struct controller *c, const struct fleet_load *load)
{
    const struct run *const run =
        load->queued == 0 ? NULL : fleet_run(&c->fleet, load->model, load->version);

    return run != NULL && run->last.desired == 0;
}

void controller_on_report(void *arg, const uint8_t *packed, size_t len)
{
    struct controller *const c = arg;
    Penstock__V1__LoadReport *const r = penstock__v1__load_report__unpack(NULL, len, packed);
    bool wake = false;

    if (r == NULL) {
        log_warn("report_refused", "bytes=%zu msg=\"not a penstock.v1.LoadReport\"", len);
        return;
    }
    struct fleet_load *const loads = xcalloc(r->n_versions + 1, sizeof(*loads));

    for (size_t i = 0; i < r->n_versions; i++) {
        loads[i] = (struct fleet_load){
            .model = r->versions[i]->model,
            .version = r->versions[i]->version,
            .inflight_seconds = r->versions[i]->inflight_seconds,
            .started = r->versions[i]->started,
            .queued = r->versions[i]->queued,
        };
        wake = wake || wakes(c, &loads[i]);
    }
    fleet_observe(&c->fleet, r->gateway, r->worker, r->sequence, r->interval_us, loads,
                  r->n_versions, c->loop->now_us);
    free(loads);
    penstock__v1__load_report__free_unpacked(r, NULL);
    if (wake) /* a call waits for a version that has no replica: not in a second, now */
        fleet_decide(&c->fleet, c->loop->now_us);
    step(c);
}

/* ---- life ---- */

static int make_parts(struct controller *c, const struct process_conf *process, struct err *err)
{
    const struct driver_local_conf driver = {
        .loop = c->loop,
        .state = process->state,
        .nodes = c->generation->nodes,
        .n_nodes = c->generation->n_nodes,
        .on_event = on_driver_event,
        .arg = c,
    };
    struct prober_conf prober;

    c->driver = driver_local_new(&driver, err);
    if (c->driver == NULL)
        return err->code < 0 ? err->code : -EIO;
    const int r = driver_inventory(c->driver, &c->view, err);

    if (r < 0)
        return r;
    prober_conf_default(&prober);
    c->prober = prober_new(c->loop, &prober, on_probe, c);
    fleet_init(&c->fleet, c->driver, &c->view, c->decisions, process->drain_s * US_PER_S);
    c->jobs = controller_jobs_new(c->loop, c->driver, &c->view);
    return 0;
}

int controller_new(struct controller **ret_controller, struct loop *loop, struct certs *certs,
                   const struct process_conf *process, struct conf_problems *problems,
                   struct err *err)
{
    struct controller *c = xcalloc(1, sizeof(*c));
    int r = 0;

    c->loop = loop;
    c->certs = certs;
    c->process = process;
    c->tick.fire = on_tick;
    c->publish.fire = on_publish;
    c->decisions = decisions_new();
    cluster_view_init(&c->view);
    buf_init(&c->last_diff, SIZE_MAX);
    list_init(&c->fleet.runs);
    list_init(&c->fleet.replicas);
    list_init(&c->waiting);
    r = store_open(&c->store, process->state, err);
    if (r == 0)
        r = config_begin(c, problems, err);
    if (r == 0)
        r = make_parts(c, process, err);
    *ret_controller = r == 0 ? c : controller_free(c);
    return r;
}

struct controller *controller_free(struct controller *c)
{
    if (c == NULL)
        return NULL;
    timer_stop(c->loop, &c->tick);
    timer_stop(c->loop, &c->publish);
    api_fini(c);
    prober_free(c->prober);
    fleet_fini(&c->fleet);
    controller_jobs_free(c->jobs);
    driver_free(c->driver);
    cluster_view_fini(&c->view);
    generation_unref(c->generation);
    store_close(c->store);
    decisions_free(c->decisions);
    buf_fini(&c->last_diff);
    free(c);
    return NULL;
}

struct snapshot *controller_first_snapshot(struct controller *c)
{
    return build_snapshot(c);
}

void controller_start(struct controller *c, struct gateway *g)
{
    c->gateway = g;
    controller_take_generation(c, false);
    step(c);
    timer_start(c->loop, &c->tick, c->loop->now_us + TICK_US);
}

void controller_stop(struct controller *c, void (*stopped)(void *arg), void *arg)
{
    c->stopped = stopped;
    c->stopped_arg = arg;
    controller_jobs_stop_all(c->jobs);
    fleet_stop_all(&c->fleet, c->loop->now_us); /* the next tick sees whether all are gone */
}

const struct generation *controller_generation(const struct controller *c)
{
    return c->generation;
}

const char *controller_last_diff(const struct controller *c)
{
    return c->last_diff.len == 0 ? "" : (const char *)c->last_diff.data;
}

struct fleet *controller_fleet(struct controller *c)
{
    return &c->fleet;
}

struct cluster_view *controller_view(struct controller *c)
{
    return &c->view;
}

struct store *controller_store(struct controller *c)
{
    return c->store;
}

struct controller_jobs *controller_batch(struct controller *c)
{
    return c->jobs;
}

const struct decisions *controller_decisions(const struct controller *c)
{
    return c->decisions;
}

uint64_t controller_now_us(const struct controller *c)
{
    return c->loop->now_us;
}
