#include "autoscaler/decide.h"

#include <math.h>
#include <stdio.h>

#include "base/check.h"
#include "base/clock.h"

/* A burst is seen when its window's load is this many times what the replicas are meant to take:
 * half as much again is more than a busy minute's noise, and early enough for a replica that needs
 * seconds to start. (Knative: 2.0, of ready replicas alone.) */
#define BURST_RATIO 1.5

/* More of the stable window missing than this: the mean says too little to take capacity away. */
#define MISSING_MAX 0.1

/* Loads past this are a fault of the reporter; keeps every later product in range. */
#define NEED_MAX 1e6

static const char *const reason_names[SCALE_N_REASONS] = {
    [SCALE_INFLIGHT] = "inflight", [SCALE_QPS] = "qps",         [SCALE_BURST] = "burst",
    [SCALE_DELAY] = "delay",       [SCALE_NO_DATA] = "no_data", [SCALE_PARTIAL] = "partial",
    [SCALE_MIN] = "min",           [SCALE_MAX] = "max",         [SCALE_IDLE] = "idle",
    [SCALE_WAKE] = "wake",
};

const char *scale_reason_name(enum scale_reason r)
{
    check(r < SCALE_N_REASONS);
    return reason_names[r];
}

void scaler_init(struct scaler *s, uint32_t current, uint64_t now_us)
{
    *s = (struct scaler){.desired = current, .active_us = now_us};
    window_init(&s->window);
}

bool scaler_observe(struct scaler *s, uint64_t now_us, uint64_t interval_us, double inflight_s,
                    double started, uint32_t n_sources)
{
    if (!window_add(&s->window, now_us, interval_us, inflight_s, started, n_sources))
        return false;
    if (inflight_s > 0 || started > 0)
        s->active_us = now_us;
    return true;
}

/* The load in replicas, not rounded; ret_reason: which of the two targets asks for more. */
static double load_of(const struct scaler_conf *conf, const struct window_mean *m,
                      enum scale_reason *ret_reason)
{
    const double by_inflight = m->inflight / conf->target_inflight;
    const double by_qps = conf->target_qps > 0 ? m->qps / conf->target_qps : 0;

    *ret_reason = by_qps > by_inflight ? SCALE_QPS : SCALE_INFLIGHT;
    return fmin(fmax(by_inflight, by_qps), NEED_MAX);
}

/* Whole replicas for a load; a hair over a whole number (rounding of sums) is not one more. */
static uint32_t replicas_for(double load)
{
    return (uint32_t)ceil(fmax(load - 1e-6, 0));
}

/* Remember need, and return the largest of the last scale_down_delay_s. */
static uint32_t scaler_delayed(struct scaler *s, const struct scaler_conf *conf, uint64_t now_us,
                               uint32_t need)
{
    const uint64_t delay_us = conf->scale_down_delay_s * US_PER_S;
    const uint64_t slice_us = delay_us / (SCALER_DELAY_SLOTS - 2) + 1;
    const uint64_t from_us = now_us - now_us % slice_us;
    const size_t at = (now_us / slice_us) % SCALER_DELAY_SLOTS;
    uint32_t most = need;

    if (delay_us == 0)
        return need;
    if (slice_us != s->delay_slice_us) {
        /* The delay was changed: what was needed until now stays remembered, as one slice. */
        uint32_t kept = 0;

        for (size_t i = 0; i < SCALER_DELAY_SLOTS; i++) {
            if (s->delay[i].need > kept)
                kept = s->delay[i].need;
            s->delay[i].from_us = s->delay[i].need = 0;
        }
        s->delay_slice_us = slice_us;
        s->delay[at].from_us = from_us;
        s->delay[at].need = kept;
    }
    if (s->delay[at].from_us != from_us) {
        s->delay[at].from_us = from_us;
        s->delay[at].need = 0;
    }
    if (need > s->delay[at].need)
        s->delay[at].need = need;
    for (size_t i = 0; i < SCALER_DELAY_SLOTS; i++)
        if (s->delay[i].from_us + slice_us + delay_us > now_us && s->delay[i].need > most)
            most = s->delay[i].need;
    return most;
}

/* Enters, holds or leaves the burst; returns the need that it sets, 0 outside of one. */
static uint32_t scaler_burst(struct scaler *s, const struct scaler_conf *conf,
                             const struct scaler_input *in, double burst_load)
{
    const uint32_t have = in->ready + in->starting > 0 ? in->ready + in->starting : 1;
    const uint32_t burst_need = replicas_for(burst_load);

    if (burst_load >= BURST_RATIO * have)
        s->burst_us = in->now_us;
    if (s->burst_us == 0)
        return 0;
    if (in->now_us - s->burst_us >= conf->stable_window_s * US_PER_S) {
        s->burst_us = 0;
        s->burst_floor = 0;
        return 0;
    }
    if (burst_need > s->burst_floor)
        s->burst_floor = burst_need;
    return s->burst_floor;
}

static bool scaler_data_is_partial(const struct scaler *s, const struct scaler_conf *conf,
                                   const struct scaler_input *in, const struct window_mean *stable)
{
    return in->n_stale > 0 || stable->missing > MISSING_MAX ||
           in->now_us - s->window.first_us < conf->stable_window_s * US_PER_S;
}

static void raise_to(uint32_t *need, uint32_t least, enum scale_reason *reason,
                     enum scale_reason why)
{
    if (*need < least) {
        *need = least;
        *reason = why;
    }
}

/* The rules after the windows, see decide.h. */
static uint32_t scaler_need(struct scaler *s, const struct scaler_conf *conf,
                            const struct scaler_input *in, const struct decision *d,
                            enum scale_reason *ret_reason)
{
    const bool can_idle = conf->min == 0 && conf->idle_s > 0;
    enum scale_reason unused;
    uint32_t need, burst_need, wanted;
    double burst_load;

    if (in->queued > 0)
        s->active_us = in->now_us;
    if (can_idle && in->now_us - s->active_us >= conf->idle_s * US_PER_S && d->stable.span_s > 0 &&
        !scaler_data_is_partial(s, conf, in, &d->stable)) {
        *ret_reason = SCALE_IDLE;
        return 0;
    }
    if (s->desired == 0) {
        if (can_idle && in->queued == 0 && d->burst.inflight <= 0 && d->burst.qps <= 0) {
            *ret_reason = SCALE_IDLE;
            return 0;
        }
        if (d->burst.span_s <= 0) {
            *ret_reason = in->queued > 0 ? SCALE_WAKE : SCALE_NO_DATA;
            return in->queued > 0 ? 1 : 0;
        }
    }
    if (d->burst.span_s <= 0) {
        *ret_reason = SCALE_NO_DATA;
        return s->desired;
    }

    need = replicas_for(load_of(conf, &d->stable, ret_reason));
    burst_load = load_of(conf, &d->burst, &unused);
    raise_to(&need, scaler_burst(s, conf, in, burst_load), ret_reason, SCALE_BURST);
    /* A mean that still remembers a lull takes nothing away that the last seconds use. */
    burst_need = replicas_for(burst_load);
    raise_to(&need, burst_need < s->desired ? burst_need : s->desired, ret_reason, SCALE_BURST);
    wanted = need;
    raise_to(&need, scaler_delayed(s, conf, in->now_us, wanted), ret_reason, SCALE_DELAY);
    if (scaler_data_is_partial(s, conf, in, &d->stable))
        raise_to(&need, s->desired, ret_reason, SCALE_PARTIAL);
    if (conf->min == 0)
        raise_to(&need, 1, ret_reason, s->desired == 0 ? SCALE_WAKE : SCALE_MIN);
    return need;
}

struct decision scaler_decide(struct scaler *s, const struct scaler_conf *conf,
                              const struct scaler_input *in)
{
    struct decision d = {0};

    check(conf->max >= 1 && conf->max >= conf->min && conf->target_inflight > 0);
    check(conf->burst_window_s >= 1 && conf->burst_window_s <= conf->stable_window_s);
    d.stable = window_over(&s->window, in->now_us, conf->stable_window_s);
    d.burst = window_over(&s->window, in->now_us, conf->burst_window_s);
    d.desired = scaler_need(s, conf, in, &d, &d.reason);
    raise_to(&d.desired, conf->min, &d.reason, SCALE_MIN);
    if (d.desired > conf->max) {
        d.desired = conf->max;
        d.reason = SCALE_MAX;
    }
    snprintf(d.text, sizeof(d.text),
             "%.4g in flight and %.4g calls/s over %u s, %.4g and %.4g over %u s; a replica takes "
             "%u in flight; %u ready, %u starting: %u (%s)",
             d.stable.inflight, d.stable.qps, conf->stable_window_s, d.burst.inflight, d.burst.qps,
             conf->burst_window_s, conf->target_inflight, in->ready, in->starting, d.desired,
             scale_reason_name(d.reason));
    s->desired = d.desired;
    return d;
}
