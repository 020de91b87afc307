/* autoscaler/window.h - what the gateways reported of one model version, in buckets of a second.
 *
 * Several sources (gateway workers) report at their own pace and may fall silent. Each bucket keeps
 * how much source-time was covered and how many sources were known, so a mean stands for all of
 * them: a silent one counts as the mean of those that spoke, and a new one does not make the past
 * look like more.
 *
 * Owns:      nothing outside itself: plain data, embed it.
 * Called by: the controller on every load report; autoscaler/decide.c.
 * Lifetime:  window_init; nothing to free.
 * Thread:    one; now_us is an argument.
 * Source:    Knative serving, aggregation: a mean over the seconds since the first write.
 */
#ifndef AUTOSCALER_WINDOW_H
#define AUTOSCALER_WINDOW_H

#include <stdbool.h>
#include <stdint.h>

#define WINDOW_MAX_S 600 /* longest stable window that a config may ask for */

struct window_bucket {
    uint64_t second; /* of the monotonic clock; 0: empty */
    uint32_t n_sources;
    double covered_s; /* source-seconds */
    double inflight_s;
    double started;
};
struct window {
    uint64_t first_us; /* of the data; 0: none yet */
    uint64_t last_us;
    struct window_bucket buckets[WINDOW_MAX_S + 1];
};
struct window_mean {
    double inflight; /* mean calls in flight or queued, over all sources */
    double qps;      /* calls started per second, over all sources */
    double span_s;   /* of the data behind it; 0: no data */
    double missing;  /* 0..1: share of source-time in the span that nobody covered */
};

void window_init(struct window *w);
/* One report of one source: the interval_us that end at now_us. inflight_s: integral of calls in
 * flight and queued. n_sources: known now, silent ones included, >= 1. A number that is not finite
 * or negative is refused: false. */
bool window_add(struct window *w, uint64_t now_us, uint64_t interval_us, double inflight_s,
                double started, uint32_t n_sources);
/* Over the last span_s seconds (1 .. WINDOW_MAX_S). */
struct window_mean window_over(const struct window *w, uint64_t now_us, uint32_t span_s);

/* Who reports: freshness and order. */
#define SOURCES_MAX 1024
struct source {
    char name[80]; /* "gateway/worker" */
    uint64_t sequence;
    uint64_t last_us;
};
struct sources {
    struct source *list;
    uint32_t n, cap;
};
void sources_init(struct sources *s);
void sources_fini(struct sources *s);
/* A report came in. False: it is the last one again, or there are too many sources: don't count it.
 * Reports of one source come in order, so a lower sequence is a source that began anew. */
bool sources_heard(struct sources *s, const char *gateway, uint32_t worker, uint64_t sequence,
                   uint64_t now_us);
/* Forget those that are silent for forget_us (they went away); returns how many are known and, in
 * ret_stale, how many of these are silent for more than stale_us. */
uint32_t sources_count(struct sources *s, uint64_t now_us, uint64_t stale_us, uint64_t forget_us,
                       uint32_t *ret_stale);

#endif
