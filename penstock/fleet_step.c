/* penstock/fleet_step.c - make it so: start what is missing, drain what is too much or outdated. */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "penstock/fleet_parts.h"

#define UNHEALTHY_MOST_US (30 * US_PER_S) /* then it is replaced */

/* ---- start ---- */

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
    return (int)outcome;
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
        run_start_failed(f, run, now_us, "replica_start_failed", err.text);
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
        run_start_failed(f, run, now_us, "replica_start_failed", err.text);
        return r;
    }
    list_push_back(&f->replicas, &replica->node);
    list_push_back(&run->replicas, &replica->of_run);
    f->endpoints_changed = true;
    describe(f, replica, text, sizeof(text));
    decisions_add(f->decisions, "replica_start", run->model, run->version, "%s", text);
    return PLAN_OK;
}

/* ---- drain ---- */

static void drain(struct fleet *f, struct replica *r, uint64_t now_us, const char *why)
{
    decisions_add(f->decisions, "replica_drain", r->run->model, r->run->version, "%s: %s", r->id,
                  why);
    if (r->ready_us == 0) { /* never had a call */
        fleet_stop_replica(f, r, now_us);
        return;
    }
    replica_set_state(r, REPLICA_DRAINING, now_us);
    r->drain_epoch = 0;
    r->drain_limit_us = now_us + f->drain_us;
    f->endpoints_changed = true;
}

/* Whom to lose first: who is not ready, then the youngest. */
static struct replica *least_needed(const struct run *run, bool outdated)
{
    struct replica *best = NULL;

    list_each (&run->replicas, node) {
        struct replica *const r = list_entry(node, struct replica, of_run);

        if (!replica_is_live(r) || (r->spec != run->spec) != outdated)
            continue;
        if (best == NULL || (best->state == REPLICA_READY) >= (r->state == REPLICA_READY))
            best = r;
    }
    return best;
}

static uint32_t run_live(const struct run *run)
{
    uint32_t n = 0;

    list_each (&run->replicas, node)
        n += replica_is_live(list_entry(node, struct replica, of_run));
    return n;
}

/* Room for somebody who needs it now: the youngest replica of a version that shall have no traffic
 * goes, be it kept warm or serving until its successor is ready. */
static bool give_up(struct fleet *f, const struct run *wanting, uint64_t now_us)
{
    list_each (&f->runs, node) {
        struct run *const run = list_entry(node, struct run, node);
        struct replica *const r =
            run == wanting || run->weight > 0 ? NULL : least_needed(run, false);
        char why[400];

        if (r == NULL)
            continue;
        run->capped = true;
        run->cap = run_live(run) - 1;
        if (run->warm_replicas > run->cap)
            run->warm_replicas = run->cap;
        if (run->last.desired > run->cap)
            run->last.desired = run->cap;
        snprintf(why, sizeof(why), "its traffic was taken away, and %.128s/%.128s has no room",
                 wanting->model, wanting->version);
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

static struct tally tally_of(const struct run *run)
{
    struct tally t = {0};

    list_each (&run->replicas, node) {
        const struct replica *const r = list_entry(node, struct replica, of_run);

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
            struct replica *const old = least_needed(run, true);

            if (old != NULL)
                drain(f, old, now_us, "outdated, and its successor has no room beside it");
            else
                give_up(f, run, now_us);
        }
        return;
    }
}

static void shrink(struct fleet *f, struct run *run, const struct tally *t, uint64_t now_us)
{
    char why[300];

    for (uint32_t n = t->live; n > run->last.desired; n--) {
        struct replica *const r = least_needed(run, false);

        snprintf(why, sizeof(why), "%u of %u replicas are enough", run->last.desired, n);
        if (r != NULL)
            drain(f, r, now_us, why);
    }
    if (t->outdated > 0 && t->ready >= run->last.desired) {
        for (struct replica *r = least_needed(run, true); r != NULL; r = least_needed(run, true))
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
        run_start_failed(f, r->run, now_us, "replica_start_timeout", why);
        fleet_stop_replica(f, r, now_us);
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
    if (f->n_held > 0)
        fleet_weigh(f, false, now_us);
    list_each (&f->replicas, node)
        step_replica(f, list_entry(node, struct replica, node), now_us);
    list_each (&f->runs, node) {
        struct run *const run = list_entry(node, struct run, node);
        const struct tally t = tally_of(run);

        if (t.live < run->last.desired)
            grow(f, run, &t, now_us);
        else
            shrink(f, run, &t, now_us);
        if (run->conf == NULL && t.live + t.outdated + t.leaving == 0 &&
            now_us >= run->warm_until_us)
            run_free(f, run);
    }
}
