/* autoscaler/decide.h - how many replicas one model version should have now, and why.
 *
 * Rules, in order: no data -> keep; a stable window and a burst window over calls in flight and
 * calls per second -> a need; in a burst never fewer; never fewer than what was needed at any time
 * in the scale-down delay; never fewer while data is partial; min and max.
 *
 * Owns:      plain data (struct scaler, one per model version).
 * Called by: the controller, each second per version; `penstock simulate`.
 * Lifetime:  scaler_init; nothing to free.
 * Thread:    one; pure: clock and data are arguments.
 * Source:    the two windows are Knative's KPA; here starting replicas count as capacity.
 */
#ifndef AUTOSCALER_DECIDE_H
#define AUTOSCALER_DECIDE_H

#include "autoscaler/window.h"

struct scaler_conf {
    uint32_t min, max;           /* max >= 1, max >= min */
    uint32_t target_inflight;    /* calls per replica to aim for; > 0 */
    uint32_t target_qps;         /* per replica; 0: not used */
    uint32_t stable_window_s;    /* 6 .. WINDOW_MAX_S */
    uint32_t burst_window_s;     /* 1 .. stable_window_s */
    uint32_t scale_down_delay_s; /* 0: none */
    uint32_t idle_s;             /* min 0 only: no call this long -> 0 replicas; 0: never */
};

/* The rule that set the figure. */
enum scale_reason {
    SCALE_INFLIGHT = 0, /* calls in flight, divided by the target of a replica */
    SCALE_QPS,          /* calls per second, likewise */
    SCALE_BURST,        /* the burst window asks for more, or is not over yet */
    SCALE_DELAY,        /* fewer would do, the scale-down delay is not over */
    SCALE_NO_DATA,      /* no report: keep */
    SCALE_PARTIAL,      /* some gateways are silent, or the window is not full yet: not fewer */
    SCALE_MIN,
    SCALE_MAX,
    SCALE_IDLE, /* to zero */
    SCALE_WAKE, /* from zero: a call waits */
    SCALE_N_REASONS
};
const char *scale_reason_name(enum scale_reason r);

#define SCALER_DELAY_SLOTS 64
struct scaler {
    struct window window;
    uint32_t desired;  /* last answer */
    uint64_t burst_us; /* when the burst was last seen; 0: none */
    uint32_t burst_floor;
    uint64_t active_us; /* last time a call was seen (or of init) */
    struct {
        uint64_t from_us; /* 0: empty */
        uint32_t need;
    } delay[SCALER_DELAY_SLOTS]; /* largest need per slice of the delay, a ring */
    uint64_t delay_slice_us; /* length of a slice now; another delay in the config: other slices */
};

struct scaler_input {
    uint64_t now_us;
    uint32_t ready;              /* replicas that take calls */
    uint32_t starting;           /* asked for, not ready yet */
    uint32_t n_sources, n_stale; /* from sources_count */
    uint32_t queued; /* calls that wait now, all sources: wakes a version that has no replica */
};
struct decision {
    uint32_t desired;
    enum scale_reason reason;
    struct window_mean stable, burst;
    char text[200]; /* one line with the figures, for `penstock why` and the log */
};

/* current: replicas that there are (after a restart), or scaler_conf.min. */
void scaler_init(struct scaler *s, uint32_t current, uint64_t now_us);
/* Feed: one report of one source about this version; absent from the report means zeros. */
bool scaler_observe(struct scaler *s, uint64_t now_us, uint64_t interval_us, double inflight_s,
                    double started, uint32_t n_sources);
struct decision scaler_decide(struct scaler *s, const struct scaler_conf *conf,
                              const struct scaler_input *in);

#endif
