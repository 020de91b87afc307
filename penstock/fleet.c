#include "penstock/fleet.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/xalloc.h"
#include "penstock/fleet_parts.h"

#define STOP_GRACE_US  (10 * US_PER_S)   /* SIGTERM to SIGKILL; nothing runs there any more */
#define RETRY_FIRST_US (250 * US_PER_MS) /* doubles with each start that does not live */
#define RETRY_MAX_US   (30 * US_PER_S)

void fleet_init(struct fleet *f, struct driver *driver, struct cluster_view *view,
                struct decisions *decisions, uint64_t drain_us)
{
    memset(f, 0, sizeof(*f));
    list_init(&f->runs);
    list_init(&f->replicas);
    map_init(&f->by_name);
    f->driver = driver;
    f->view = view;
    f->decisions = decisions;
    f->drain_us = drain_us;
    sources_init(&f->sources);
}

/* "model/version": names have no slash. */
static size_t run_key(char key[300], const char *model, const char *version)
{
    const int n = snprintf(key, 300, "%s/%s", model, version);

    return n < 300 ? (size_t)n : 299;
}

struct run *fleet_run(const struct fleet *f, const char *model, const char *version)
{
    char key[300];
    const size_t len = run_key(key, model, version);

    return map_get(&f->by_name, key, len);
}

void run_free(struct fleet *f, struct run *run)
{
    char key[300];

    map_del(&f->by_name, key, run_key(key, run->model, run->version));
    list_remove(&run->node);
    free(run->model);
    free(run->version);
    free(run);
}

static void forget(struct fleet *f, struct replica *r)
{
    cluster_view_release(f->view, &r->placement);
    f->released = true;
    f->endpoints_changed = true;
    replica_free(r);
}

void fleet_fini(struct fleet *f)
{
    list_each (&f->replicas, node)
        forget(f, list_entry(node, struct replica, node));
    list_each (&f->runs, node)
        run_free(f, list_entry(node, struct run, node));
    map_fini(&f->by_name);
    sources_fini(&f->sources);
}

uint32_t run_count(const struct run *run, enum replica_state s)
{
    uint32_t n = 0;

    list_each (&run->replicas, node)
        n += list_entry(node, struct replica, of_run)->state == s;
    return n;
}

/* ---- config ---- */

static uint64_t hash_text(const char *text, uint64_t seed)
{
    return hash_bytes(text, strlen(text) + 1, seed);
}

/* What a replica was started from: another command or share makes another process. */
static uint64_t spec_of(const struct version_conf *v)
{
    const uint32_t numbers[] = {v->cpu_milli, v->memory_mib, v->gpu.milli, v->gpu.memory_mib};
    uint64_t h = hash_bytes(numbers, sizeof(numbers), 0);

    for (size_t i = 0; i < v->n_command; i++)
        h = hash_text(v->command[i], h);
    h = hash_text(v->image, h);
    for (size_t i = 0; i < v->gpu.n_models; i++)
        h = hash_text(v->gpu.models[i], h);
    return h;
}

static struct run *run_new(struct fleet *f, const char *model, const char *version,
                           uint32_t replicas, uint64_t now_us)
{
    struct run *const run = xcalloc(1, sizeof(*run));
    char key[300];

    list_init(&run->replicas);
    run->model = xstrdup(model);
    run->version = xstrdup(version);
    scaler_init(&run->scaler, replicas, now_us);
    run->last.desired = replicas;
    list_push_back(&f->runs, &run->node);
    map_set(&f->by_name, key, run_key(key, model, version), run);
    return run;
}

void run_keep_warm(struct fleet *f, struct run *run, uint32_t warm_s, uint64_t now_us)
{
    run->warm_replicas = run_count(run, REPLICA_READY);
    run->warm_until_us = now_us + warm_s * US_PER_S;
    if (run->warm_replicas > 0 && warm_s > 0)
        decisions_add(f->decisions, "keep_warm", run->model, run->version,
                      "%u ready replica%s for %u s: it lost traffic, a rollback would want "
                      "all of them",
                      run->warm_replicas, run->warm_replicas == 1 ? " stays" : "s stay", warm_s);
}

static void take_version(struct fleet *f, const struct model_conf *m, size_t i, uint64_t now_us)
{
    const struct version_conf *const v = &m->versions[i];
    struct run *run = fleet_run(f, m->name, v->name);

    if (run == NULL && v->n_command == 0)
        return; /* somebody else runs it */
    if (run == NULL)
        run = run_new(f, m->name, v->name, m->traffic[i] > 0 ? m->scaling.min : 0, now_us);
    run->named = true;
    run->model_conf = v->n_command == 0 ? NULL : m;
    run->conf = v->n_command == 0 ? NULL : v;
    run->weight = m->traffic[i];
    run->capped = run->capped && run->weight == 0;
    run->protocol = m->protocol;
    run->dialect = m->dialect;
    if (run->conf == NULL)
        return;
    if (run->spec != spec_of(v)) {
        run->spec = spec_of(v);
        run->failures = 0; /* a new command deserves a new try, now */
        run->retry_us = 0;
    }
}

void fleet_set_generation(struct fleet *f, const struct generation *g, bool at_once,
                          uint64_t now_us)
{
    f->generation = g;
    list_each (&f->runs, node) {
        struct run *const run = list_entry(node, struct run, node);

        run->warm_s = run->model_conf == NULL ? 0 : run->model_conf->scaling.warm_s;
        run->model_conf = NULL;
        run->conf = NULL;
        run->named = false;
    }
    for (size_t m = 0; m < g->n_models; m++) {
        for (size_t v = 0; v < g->models[m].n_versions; v++)
            take_version(f, &g->models[m], v, now_us);
    }
    list_each (&f->runs, node) {
        struct run *const run = list_entry(node, struct run, node);

        if (run->named)
            continue;
        if (run->warm_s > 0) /* it left with this generation */
            run_keep_warm(f, run, run->warm_s, now_us);
        run->weight = run->shown = 0;
    }
    fleet_weigh(f, at_once, now_us);
    fleet_decide(f, now_us);
    f->endpoints_changed = true;
}

/* ---- what happens to replicas ---- */

void run_start_failed(struct fleet *f, struct run *run, uint64_t now_us, const char *what,
                      const char *why)
{
    uint64_t wait_us = RETRY_FIRST_US;

    for (uint32_t i = 0; i < run->failures && wait_us < RETRY_MAX_US; i++)
        wait_us *= 2;
    if (wait_us > RETRY_MAX_US)
        wait_us = RETRY_MAX_US;
    run->failures++;
    run->retry_us = now_us + wait_us;
    decisions_add(f->decisions, what, run->model, run->version,
                  "%s; failure %u in a row, next start in %.2f s", why, run->failures,
                  (double)wait_us / 1e6);
}

void fleet_stop_replica(struct fleet *f, struct replica *r, uint64_t now_us)
{
    replica_set_state(r, REPLICA_STOPPING, now_us);
    f->endpoints_changed = true;
    driver_stop(f->driver, r->id, STOP_GRACE_US); /* -ENOENT: its end is on the way already */
}

static struct replica *find(const struct fleet *f, const char *id)
{
    list_each (&f->replicas, node) {
        struct replica *const r = list_entry(node, struct replica, node);

        if (strcmp(r->id, id) == 0)
            return r;
    }
    return NULL;
}

static void ended(struct fleet *f, struct replica *r, const char *text, uint64_t now_us)
{
    struct run *const run = r->run;
    char why[400];

    if (!replica_is_live(r) || f->ending) {
        decisions_add(f->decisions, "replica_stopped", run->model, run->version, "%s: %s", r->id,
                      text);
    } else {
        snprintf(why, sizeof(why), "%s ended by itself while %s: %s", r->id,
                 replica_state_name(r->state), text);
        run->restarts++;
        if (r->ready_us != 0 && now_us - r->ready_us >= LIVED_US)
            run->failures = 0;
        run_start_failed(f, run, now_us, "replica_crash", why);
    }
    forget(f, r);
}

bool fleet_on_event(struct fleet *f, const struct driver_event *ev, uint64_t now_us)
{
    struct replica *const r = find(f, ev->id);

    if (r == NULL)
        return false;
    if (ev->kind == DRIVER_STARTED)
        r->pid = ev->pid;
    else
        ended(f, r, ev->text, now_us);
    return true;
}

void fleet_probed(struct fleet *f, const struct probe_target *t, enum endpoint_state state,
                  const char *why, uint64_t now_us)
{
    list_each (&f->replicas, node) {
        struct replica *const r = list_entry(node, struct replica, node);
        struct run *const run = r->run;

        if (strcmp(r->address, t->address) != 0 || !replica_is_live(r))
            continue;
        if (state == ENDPOINT_READY && r->state != REPLICA_READY) {
            decisions_add(f->decisions, "replica_ready", run->model, run->version,
                          "%s %s after %.2f s", r->id,
                          r->state == REPLICA_STARTING ? "is ready" : "is ready again",
                          (double)(now_us - r->state_us) / 1e6);
            replica_set_state(r, REPLICA_READY, now_us);
            f->endpoints_changed = true;
        } else if (state == ENDPOINT_UNHEALTHY && r->state == REPLICA_READY) {
            decisions_add(f->decisions, "replica_unhealthy", run->model, run->version, "%s: %s",
                          r->id, why);
            replica_set_state(r, REPLICA_UNHEALTHY, now_us);
            f->endpoints_changed = true;
        }
    }
}

size_t fleet_inputs(const struct fleet *f, struct endpoint_input **ret_inputs)
{
    static const enum endpoint_state shown[REPLICA_N_STATES] = {
        [REPLICA_STARTING] = ENDPOINT_STARTING,
        [REPLICA_READY] = ENDPOINT_READY,
        [REPLICA_UNHEALTHY] = ENDPOINT_UNHEALTHY,
        [REPLICA_DRAINING] = ENDPOINT_DRAINING,
    };
    size_t n = 0;

    list_each (&f->replicas, node)
        n++;
    struct endpoint_input *const inputs = xcalloc(n + 1, sizeof(*inputs));

    n = 0;
    list_each (&f->replicas, node) {
        const struct replica *const r = list_entry(node, struct replica, node);
        const struct plan_placement *const p = &r->placement;

        if (r->state == REPLICA_STOPPING)
            continue;
        inputs[n++] = (struct endpoint_input){
            .model = r->run->model,
            .version = r->run->version,
            .address = r->address,
            .replica = r->id,
            .state = shown[r->state],
            .weight = p->gpu_milli == 0 ? PLAN_CARD_MILLI : p->gpu_milli * p->n_cards,
        };
    }
    *ret_inputs = inputs;
    return n;
}

size_t fleet_targets(const struct fleet *f, struct probe_target **ret_targets)
{
    size_t n = 0;

    list_each (&f->replicas, node)
        n++;
    struct probe_target *const targets = xcalloc(n + 1, sizeof(*targets));

    n = 0;
    list_each (&f->replicas, node) {
        const struct replica *const r = list_entry(node, struct replica, node);

        if (!replica_is_live(r))
            continue;
        targets[n++] = (struct probe_target){
            .address = r->address,
            .model = r->run->protocol == PROTOCOL_GRPC ? "" : r->run->model,
            .version = r->run->version,
            .protocol = r->run->protocol,
            .dialect = r->run->dialect,
        };
    }
    *ret_targets = targets;
    return n;
}

void fleet_published(struct fleet *f, uint64_t epoch)
{
    f->endpoints_changed = false;
    list_each (&f->replicas, node) {
        struct replica *const r = list_entry(node, struct replica, node);

        if (r->state == REPLICA_DRAINING && r->drain_epoch == 0)
            r->drain_epoch = epoch;
    }
}

void fleet_stop_drained(struct fleet *f, fleet_calls_fn calls, void *arg, uint64_t now_us)
{
    list_each (&f->replicas, node) {
        struct replica *const r = list_entry(node, struct replica, node);

        if (r->state != REPLICA_DRAINING)
            continue;
        const uint32_t n =
            r->drain_epoch == 0 ? UINT32_MAX : calls(arg, r->address, r->drain_epoch);

        if (n != 0 && now_us < r->drain_limit_us)
            continue;
        if (n != 0)
            decisions_add(f->decisions, "replica_drain_limit", r->run->model, r->run->version,
                          "%s still has calls after %.0f s: stopped", r->id,
                          (double)f->drain_us / 1e6);
        fleet_stop_replica(f, r, now_us);
    }
}

bool fleet_stop_all(struct fleet *f, uint64_t now_us)
{
    f->ending = true;
    list_each (&f->replicas, node) {
        struct replica *const r = list_entry(node, struct replica, node);

        if (r->state != REPLICA_STOPPING)
            fleet_stop_replica(f, r, now_us);
    }
    return list_is_empty(&f->replicas);
}
