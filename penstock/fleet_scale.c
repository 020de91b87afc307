/* penstock/fleet_scale.c - how many replicas each version should have: load in, the autoscaler's
 * word out. */
#include <string.h>

#include "base/clock.h"
#include "penstock/fleet_parts.h"

#define STALE_US      (2 * US_PER_S)  /* a worker that is silent this long (8 reports) is missing */
#define FORGET_US     (60 * US_PER_S) /* ... and this long: it is gone */
#define WAITING_US    US_PER_S        /* a report of waiting calls holds this long */
#define DFLT_INFLIGHT 4               /* per replica, when neither target nor slots are given */
#define NAMED_IDLE_S  60              /* of a version without traffic of its own */

bool fleet_observe(struct fleet *f, const char *gateway, uint32_t worker, uint64_t sequence,
                   uint64_t interval_us, const struct fleet_load *loads, size_t n_loads,
                   uint64_t now_us)
{
    uint32_t n_sources = 0, n_stale = 0;

    if (!sources_heard(&f->sources, gateway, worker, sequence, now_us))
        return false;
    n_sources = sources_count(&f->sources, now_us, STALE_US, FORGET_US, &n_stale);
    for (size_t i = 0; i < n_loads; i++) {
        struct run *const run = fleet_run(f, loads[i].model, loads[i].version);

        if (run != NULL)
            run->load = loads[i];
    }
    list_each (&f->runs, node) {
        struct run *const run = list_entry(node, struct run, node);

        scaler_observe(&run->scaler, now_us, interval_us, run->load.inflight_seconds,
                       (double)run->load.started, n_sources);
        if (run->load.queued > 0) { /* another worker may have none */
            run->waiting = run->load.queued;
            run->waiting_us = now_us;
        }
        run->load = (struct fleet_load){0};
    }
    return true;
}

uint32_t run_target_inflight(const struct run *run)
{
    const uint32_t target = run->model_conf->scaling.target_inflight;

    if (target > 0)
        return target;
    return run->conf->slots > 0 ? run->conf->slots : DFLT_INFLIGHT;
}

static struct scaler_conf scaler_conf_of(const struct run *run, uint64_t now_us)
{
    const struct scaling_conf *const s = &run->model_conf->scaling;
    const uint32_t warm = run_warm(run, now_us);
    const bool serves = run->weight > 0 || run->shown > 0;
    struct scaler_conf c = {
        .min = serves ? s->min : 0,
        .max = s->max,
        .target_inflight = run_target_inflight(run),
        .target_qps = s->target_qps,
        .stable_window_s = s->stable_window_s,
        .burst_window_s = s->burst_window_s,
        .scale_down_delay_s = s->scale_down_delay_s,
        .idle_s = s->idle_s,
    };

    /* Without traffic of its own a version serves who asks for it by name, and sleeps otherwise. */
    if (!serves && c.idle_s == 0)
        c.idle_s = NAMED_IDLE_S;
    if (now_us < run->needed_until_us && c.min < run->needed)
        c.min = run->needed < c.max ? run->needed : c.max;
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
        .ready = run_count(run, REPLICA_READY),
        .starting = run_count(run, REPLICA_STARTING),
        .n_sources = n_sources,
        .n_stale = n_stale,
        .queued = now_us - run->waiting_us < WAITING_US ? run->waiting : 0,
    };
    const uint32_t before = run->last.desired;

    run->last = scaler_decide(&run->scaler, &conf, &in);
    if (run->last.desired < conf.min)
        run->last.desired = conf.min;
    if (run->capped && run->last.desired > run->cap)
        run->last.desired = run->cap;
    if (run->last.desired != before)
        decisions_add(f->decisions, "scale", run->model, run->version, "%u -> %u replicas (%s): %s",
                      before, run->last.desired, scale_reason_name(run->last.reason),
                      run->last.text);
}

void fleet_decide(struct fleet *f, uint64_t now_us)
{
    uint32_t n_stale = 0;
    const uint32_t n_sources = sources_count(&f->sources, now_us, STALE_US, FORGET_US, &n_stale);

    list_each (&f->runs, node) {
        struct run *const run = list_entry(node, struct run, node);

        if (run->conf != NULL)
            decide_run(f, run, n_sources, n_stale, now_us);
        else
            run->last.desired = run_warm(run, now_us);
    }
}
