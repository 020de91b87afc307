#include "penstock/fleet.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/xalloc.h"

#define STOP_GRACE_US     (10 * US_PER_S)   /* SIGTERM to SIGKILL; nothing runs there any more */
#define RETRY_FIRST_US    (250 * US_PER_MS) /* doubles with each start that does not live */
#define RETRY_MAX_US      (30 * US_PER_S)
#define LIVED_US          (10 * US_PER_S) /* ready this long: the next end is no failed start */
#define UNHEALTHY_MOST_US (30 * US_PER_S) /* then it is replaced */

void fleet_init(struct fleet *f, struct driver *driver, struct cluster_view *view,
                struct decisions *decisions, uint64_t drain_us)
{
    memset(f, 0, sizeof(*f));
    list_init(&f->runs);
    list_init(&f->replicas);
    f->driver = driver;
    f->view = view;
    f->decisions = decisions;
    f->drain_us = drain_us;
    sources_init(&f->sources);
}

static void run_free(struct run *run)
{
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
        run_free(list_entry(node, struct run, node));
    sources_fini(&f->sources);
}

struct run *fleet_run(const struct fleet *f, const char *model, const char *version)
{
    list_each (&f->runs, node) {
        struct run *const run = list_entry(node, struct run, node);

        if (strcmp(run->model, model) == 0 && strcmp(run->version, version) == 0)
            return run;
    }
    return NULL;
}

uint32_t fleet_count(const struct fleet *f, const struct run *run, enum replica_state s)
{
    uint32_t n = 0;

    list_each (&f->replicas, node) {
        const struct replica *const r = list_entry(node, struct replica, node);

        n += r->run == run && r->state == s;
    }
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

    run->model = xstrdup(model);
    run->version = xstrdup(version);
    scaler_init(&run->scaler, replicas, now_us);
    run->last.desired = replicas;
    list_push_back(&f->runs, &run->node);
    return run;
}

/* Less traffic than before, or gone: what is ready stays for a while. */
static void run_keep_warm(struct fleet *f, struct run *run, uint32_t warm_s, uint64_t now_us)
{
    run->warm_replicas = fleet_count(f, run, REPLICA_READY);
    run->warm_until_us = now_us + warm_s * US_PER_S;
    if (run->warm_replicas > 0 && warm_s > 0)
        decisions_add(f->decisions, "keep_warm", run->model, run->version,
                      "%u ready replicas stay for %u s: its traffic was taken away, a rollback "
                      "would want them",
                      run->warm_replicas, warm_s);
}

static void take_version(struct fleet *f, const struct model_conf *m, size_t i, uint64_t now_us)
{
    const struct version_conf *const v = &m->versions[i];
    struct run *run = fleet_run(f, m->name, v->name);

    if (run == NULL && v->n_command == 0)
        return; /* somebody else runs it */
    if (run == NULL)
        run = run_new(f, m->name, v->name, m->traffic[i] > 0 ? m->scaling.min : 0, now_us);
    const uint32_t weight_before = run->weight;

    run->model_conf = v->n_command == 0 ? NULL : m;
    run->conf = v->n_command == 0 ? NULL : v;
    run->weight = m->traffic[i];
    run->protocol = m->protocol;
    run->dialect = m->dialect;
    if (run->conf == NULL)
        return;
    if (run->spec != spec_of(v)) {
        run->spec = spec_of(v);
        run->failures = 0; /* a new command deserves a new try, now */
        run->retry_us = 0;
    }
    if (run->weight < weight_before)
        run_keep_warm(f, run, m->scaling.warm_s, now_us);
}

void fleet_set_generation(struct fleet *f, const struct generation *g, uint64_t now_us)
{
    list_each (&f->runs, node) {
        struct run *const run = list_entry(node, struct run, node);
        const struct model_conf *const before = run->model_conf;
        const uint32_t warm_s = before == NULL ? 0 : before->scaling.warm_s;
        bool stays = false;

        for (size_t m = 0; m < g->n_models && !stays; m++) {
            for (size_t v = 0; v < g->models[m].n_versions && !stays; v++)
                stays = strcmp(g->models[m].name, run->model) == 0 &&
                        strcmp(g->models[m].versions[v].name, run->version) == 0;
        }
        if (!stays && before != NULL)
            run_keep_warm(f, run, warm_s, now_us);
        run->model_conf = NULL;
        run->conf = NULL;
        if (!stays)
            run->weight = 0;
    }
    for (size_t m = 0; m < g->n_models; m++) {
        for (size_t v = 0; v < g->models[m].n_versions; v++)
            take_version(f, &g->models[m], v, now_us);
    }
    fleet_decide(f, now_us);
    f->endpoints_changed = true;
}

/* ---- scale ---- */

bool fleet_observe(struct fleet *f, const char *gateway, uint32_t worker, uint64_t sequence,
                   uint64_t interval_us, const struct fleet_load *loads, size_t n_loads,
                   uint64_t now_us)
{
    uint32_t n_sources = 0, n_stale = 0;

    if (!sources_heard(&f->sources, gateway, worker, sequence, now_us))
        return false;
    n_sources = sources_count(&f->sources, now_us, 2 * US_PER_S, 60 * US_PER_S, &n_stale);
    list_each (&f->runs, node) {
        struct run *const run = list_entry(node, struct run, node);
        const struct fleet_load none = {0};
        const struct fleet_load *load = &none;

        for (size_t i = 0; i < n_loads; i++) {
            if (strcmp(loads[i].model, run->model) == 0 &&
                strcmp(loads[i].version, run->version) == 0)
                load = &loads[i];
        }
        scaler_observe(&run->scaler, now_us, interval_us, load->inflight_seconds,
                       (double)load->started, n_sources);
        run->queued = load->queued;
    }
    return true;
}

static uint32_t warm_now(const struct run *run, uint64_t now_us)
{
    return now_us < run->warm_until_us ? run->warm_replicas : 0;
}

static struct scaler_conf scaler_conf_of(const struct run *run, uint64_t now_us)
{
    const struct scaling_conf *const s = &run->model_conf->scaling;
    const uint32_t warm = warm_now(run, now_us);
    struct scaler_conf c = {
        .min = run->weight > 0 ? s->min : 0,
        .max = s->max,
        .target_inflight = s->target_inflight > 0 ? s->target_inflight
                           : run->conf->slots > 0 ? run->conf->slots
                                                  : 4,
        .target_qps = s->target_qps,
        .stable_window_s = s->stable_window_s,
        .burst_window_s = s->burst_window_s,
        .scale_down_delay_s = s->scale_down_delay_s,
        .idle_s = s->idle_s,
    };

    /* Without traffic of its own a version serves who asks for it by name, and sleeps otherwise. */
    if (run->weight == 0 && c.idle_s == 0)
        c.idle_s = 60;
    if (c.min < warm)
        c.min = warm;
    if (c.max < c.min)
        c.max = c.min;
    return c;
}

static void decide_run(struct fleet *f, struct run *run, uint32_t n_sources, uint32_t n_stale,
                       uint64_t now_us)
{
    const struct scaler_conf conf = scaler_conf_of(run, now_us);
    const struct scaler_input in = {
        .now_us = now_us,
        .ready = fleet_count(f, run, REPLICA_READY),
        .starting = fleet_count(f, run, REPLICA_STARTING),
        .n_sources = n_sources,
        .n_stale = n_stale,
        .queued = run->queued,
    };
    const uint32_t before = run->last.desired;

    run->last = scaler_decide(&run->scaler, &conf, &in);
    if (run->last.desired < conf.min)
        run->last.desired = conf.min;
    if (run->last.desired != before)
        decisions_add(f->decisions, "scale", run->model, run->version, "%u -> %u replicas (%s): %s",
                      before, run->last.desired, scale_reason_name(run->last.reason),
                      run->last.text);
}

void fleet_decide(struct fleet *f, uint64_t now_us)
{
    uint32_t n_stale = 0;
    const uint32_t n_sources =
        sources_count(&f->sources, now_us, 2 * US_PER_S, 60 * US_PER_S, &n_stale);

    list_each (&f->runs, node) {
        struct run *const run = list_entry(node, struct run, node);

        if (run->conf != NULL)
            decide_run(f, run, n_sources, n_stale, now_us);
        else
            run->last.desired = warm_now(run, now_us);
    }
}

/* ---- start ---- */

static void start_failed(struct fleet *f, struct run *run, uint64_t now_us, const char *what,
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

static int place(struct fleet *f, struct run *run, struct plan_placement *ret_placement)
{
    const struct version_conf *const v = run->conf;
    const struct plan_request req = {
        .cpu_milli = v->cpu_milli,
        .memory_mib = v->memory_mib,
        .gpu_milli = v->gpu.milli,
        .gpu_memory_mib = v->gpu.memory_mib,
        .models = v->gpu.models,
        .n_models = v->gpu.n_models,
    };
    struct plan_why why;
    struct plan plan;

    plan_init(&plan, f->view);
    const enum plan_outcome outcome = plan_task(&plan, &req, &why);

    if (outcome == PLAN_OK)
        *ret_placement = plan.placements[0];
    plan_fini(&plan);
    if (outcome == PLAN_OK) {
        run->no_room[0] = '\0';
        return PLAN_OK;
    }
    /* Told once for each new reason, not each tick. */
    if (strcmp(run->no_room, why.text) != 0)
        decisions_add(f->decisions, "no_room", run->model, run->version, "%s", why.text);
    snprintf(run->no_room, sizeof(run->no_room), "%s", why.text);
    return outcome;
}

static void describe(const struct fleet *f, const struct replica *r, char *dst, size_t size)
{
    const struct plan_placement *const p = &r->placement;
    const struct plan_node *const node = &f->view->nodes[p->node];
    size_t n = (size_t)snprintf(dst, size, "%s at %s on node %s", r->id, r->address, node->name);

    for (size_t i = 0; i < p->n_cards && n < size; i++)
        n += (size_t)snprintf(dst + n, size - n, "%s%s", i == 0 ? ", card " : "+",
                              node->cards[p->cards[i]].id);
    if (p->n_cards > 0 && n < size)
        snprintf(dst + n, size - n, " (%u thousandths, %u MiB)", p->gpu_milli, p->gpu_memory_mib);
}

static int driver_start_replica(struct fleet *f, const struct replica *r, struct err *err)
{
    const struct run *const run = r->run;
    const struct plan_node *const node = &f->view->nodes[r->placement.node];
    const struct env_pair names[] = {
        {"PENSTOCK_MODEL", run->model},
        {"PENSTOCK_VERSION", run->version},
        {"PENSTOCK_REPLICA", r->id},
    };
    const struct env_pair blanks[] = {{"model", run->model}, {"version", run->version}};
    const char *cards[PLAN_MAX_CARDS];

    for (size_t i = 0; i < r->placement.n_cards; i++)
        cards[i] = node->cards[r->placement.cards[i]].id;
    const struct unit_spec spec = {
        .id = r->id,
        .command = (const char *const *)run->conf->command,
        .n_command = run->conf->n_command,
        .blanks = blanks,
        .n_blanks = ARRAY_LEN(blanks),
        .env = names,
        .n_env = ARRAY_LEN(names),
        .address = r->address,
        .node = node->name,
        .cards = cards,
        .n_cards = r->placement.n_cards,
        .cpu_milli = r->placement.cpu_milli,
        .memory_mib = r->placement.memory_mib,
        .gpu_milli = r->placement.gpu_milli,
        .gpu_memory_mib = r->placement.gpu_memory_mib,
    };

    return driver_start(f->driver, &spec, err);
}

/* PLAN_OK, the placer's outcome, or -errno. */
static int start_one(struct fleet *f, struct run *run, uint64_t now_us)
{
    struct plan_placement placement;
    char id[300], address[DRIVER_ADDRESS_MAX], text[400];
    struct err err = {0};
    int r = place(f, run, &placement);

    if (r != PLAN_OK)
        return r;
    r = driver_reserve_address(f->driver, f->view->nodes[placement.node].name, address,
                               sizeof(address), &err);
    if (r < 0) {
        cluster_view_release(f->view, &placement);
        start_failed(f, run, now_us, "replica_start_failed", err.text);
        return r;
    }
    snprintf(id, sizeof(id), "%s/%s#%u", run->model, run->version, ++run->last_number);
    struct replica *replica = replica_new(run, id, address, now_us);

    replica->spec = run->spec;
    replica->placement = placement;
    r = driver_start_replica(f, replica, &err);
    if (r < 0) {
        cluster_view_release(f->view, &placement);
        replica = replica_free(replica);
        start_failed(f, run, now_us, "replica_start_failed", err.text);
        return r;
    }
    list_push_back(&f->replicas, &replica->node);
    f->endpoints_changed = true;
    describe(f, replica, text, sizeof(text));
    decisions_add(f->decisions, "replica_start", run->model, run->version, "%s", text);
    return PLAN_OK;
}

/* ---- drain and stop ---- */

static void stop(struct fleet *f, struct replica *r, uint64_t now_us)
{
    replica_set_state(r, REPLICA_STOPPING, now_us);
    f->endpoints_changed = true;
    driver_stop(f->driver, r->id, STOP_GRACE_US); /* -ENOENT: its end is on the way already */
}

static void drain(struct fleet *f, struct replica *r, uint64_t now_us, const char *why)
{
    decisions_add(f->decisions, "replica_drain", r->run->model, r->run->version, "%s: %s", r->id,
                  why);
    if (r->ready_us == 0) { /* never had a call */
        stop(f, r, now_us);
        return;
    }
    replica_set_state(r, REPLICA_DRAINING, now_us);
    r->drain_epoch = 0;
    r->drain_limit_us = now_us + f->drain_us;
    f->endpoints_changed = true;
}

/* Whom to lose first: who is not ready, then the youngest. */
static struct replica *least_needed(struct fleet *f, const struct run *run, bool outdated)
{
    struct replica *best = NULL;

    list_each (&f->replicas, node) {
        struct replica *const r = list_entry(node, struct replica, node);

        if (r->run != run || !replica_is_live(r) || (r->spec != run->spec) != outdated)
            continue;
        if (best == NULL || (best->state == REPLICA_READY) >= (r->state == REPLICA_READY))
            best = r;
    }
    return best;
}

/* Room for somebody who needs it now: the youngest replica that is only kept warm goes. */
static bool give_up_warm(struct fleet *f, const struct run *wanting, uint64_t now_us)
{
    list_each (&f->runs, node) {
        struct run *const run = list_entry(node, struct run, node);
        struct replica *const r = run == wanting || run->weight > 0 || warm_now(run, now_us) == 0
                                      ? NULL
                                      : least_needed(f, run, false);
        char why[300];

        if (r == NULL)
            continue;
        run->warm_replicas--;
        if (run->last.desired > run->warm_replicas)
            run->last.desired = run->warm_replicas;
        snprintf(why, sizeof(why), "kept warm only, and %s/%s has no room", wanting->model,
                 wanting->version);
        drain(f, r, now_us, why);
        return true;
    }
    return false;
}

/* ---- make it so ---- */

struct tally {
    uint32_t live, ready; /* of the current spec */
    uint32_t outdated, leaving;
};

static struct tally tally_of(const struct fleet *f, const struct run *run)
{
    struct tally t = {0};

    list_each (&f->replicas, node) {
        const struct replica *const r = list_entry(node, struct replica, node);

        if (r->run != run)
            continue;
        if (!replica_is_live(r))
            t.leaving++;
        else if (r->spec != run->spec)
            t.outdated++;
        else
            t.live++, t.ready += r->state == REPLICA_READY;
    }
    return t;
}

static void grow(struct fleet *f, struct run *run, const struct tally *t, uint64_t now_us)
{
    uint32_t missing = run->last.desired - t->live;

    if (run->conf == NULL || now_us < run->retry_us)
        return;
    if (run->failures > 0)
        missing = 1; /* a command that fails is tried once at a time */
    while (missing > 0) {
        const int r = start_one(f, run, now_us);

        if (r == PLAN_OK) {
            missing--;
            continue;
        }
        /* No room: an outdated one of its own makes way, or one kept warm. What leaves already
         * makes room soon. */
        if (r > 0 && run->weight > 0 && t->leaving == 0) {
            struct replica *const old = least_needed(f, run, true);

            if (old != NULL)
                drain(f, old, now_us, "outdated, and its successor has no room beside it");
            else
                give_up_warm(f, run, now_us);
        }
        return;
    }
}

static void shrink(struct fleet *f, struct run *run, const struct tally *t, uint64_t now_us)
{
    char why[300];

    for (uint32_t n = t->live; n > run->last.desired; n--) {
        struct replica *const r = least_needed(f, run, false);

        snprintf(why, sizeof(why), "%u of %u replicas are enough", run->last.desired, n);
        if (r != NULL)
            drain(f, r, now_us, why);
    }
    if (t->outdated > 0 && t->ready >= run->last.desired) {
        for (struct replica *r = least_needed(f, run, true); r != NULL;
             r = least_needed(f, run, true))
            drain(f, r, now_us, "its command or its share changed, the successors are ready");
    }
}

/* A start that takes too long, a replica that stays unhealthy. */
static void step_replica(struct fleet *f, struct replica *r, uint64_t now_us)
{
    const uint32_t timeout_ms = r->run->conf == NULL ? 60000 : r->run->conf->start_timeout_ms;
    char why[400];

    if (r->state == REPLICA_READY && now_us - r->ready_us >= LIVED_US && r->spec == r->run->spec)
        r->run->failures = 0;
    if (r->state == REPLICA_STARTING && now_us - r->started_us > timeout_ms * US_PER_MS) {
        snprintf(why, sizeof(why), "%s was not ready within start_timeout_ms %u", r->id,
                 timeout_ms);
        start_failed(f, r->run, now_us, "replica_start_timeout", why);
        stop(f, r, now_us);
    } else if (r->state == REPLICA_UNHEALTHY && now_us - r->state_us > UNHEALTHY_MOST_US) {
        snprintf(why, sizeof(why), "unhealthy for %.0f s: replaced",
                 (double)UNHEALTHY_MOST_US / 1e6);
        drain(f, r, now_us, why);
    }
}

void fleet_step(struct fleet *f, uint64_t now_us)
{
    if (f->ending)
        return;
    list_each (&f->replicas, node)
        step_replica(f, list_entry(node, struct replica, node), now_us);
    list_each (&f->runs, node) {
        struct run *const run = list_entry(node, struct run, node);
        const struct tally t = tally_of(f, run);

        if (t.live < run->last.desired)
            grow(f, run, &t, now_us);
        else
            shrink(f, run, &t, now_us);
        if (run->conf == NULL && t.live + t.outdated + t.leaving == 0 &&
            now_us >= run->warm_until_us)
            run_free(run);
    }
}

/* ---- what happens to replicas ---- */

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
        start_failed(f, run, now_us, "replica_crash", why);
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
        stop(f, r, now_us);
    }
}

bool fleet_stop_all(struct fleet *f, uint64_t now_us)
{
    f->ending = true;
    list_each (&f->replicas, node) {
        struct replica *const r = list_entry(node, struct replica, node);

        if (r->state != REPLICA_STOPPING)
            stop(f, r, now_us);
    }
    return list_is_empty(&f->replicas);
}
