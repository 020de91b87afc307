/* base/histogram.h - counts of uint64 values in log-linear buckets: <= 1 % error, mergeable.
 *
 * Values below 128 are exact; above, each power of two has 64 buckets, so that a bucket's middle is
 * within 1/128 of every value in it. Plain data: embed it, copy it, add it.
 * Thread:    one writer.
 * Source:    HdrHistogram (Tene); the layout here is ours.
 */
#ifndef BASE_HISTOGRAM_H
#define BASE_HISTOGRAM_H

#include <stddef.h>
#include <stdint.h>

#define HISTOGRAM_SUB_BITS  6
#define HISTOGRAM_MAX_BITS  40 /* values past 2^40 (12 days in us) count in the last bucket */
#define HISTOGRAM_N_BUCKETS ((HISTOGRAM_MAX_BITS - HISTOGRAM_SUB_BITS + 1) << HISTOGRAM_SUB_BITS)

struct histogram {
    uint64_t count;
    uint64_t sum;
    uint64_t min, max; /* exact; min is UINT64_MAX while empty */
    uint32_t buckets[HISTOGRAM_N_BUCKETS];
};

void histogram_init(struct histogram *h);
void histogram_add(struct histogram *h, uint64_t value, uint32_t times);
void histogram_merge(struct histogram *into, const struct histogram *from);

/* The value at or under which ratio (0..1) of the values lie; 0 when empty; never over max. */
uint64_t histogram_quantile(const struct histogram *h, double ratio);
/* How many values are <= limit, for Prometheus buckets (within the 1 % error). */
uint64_t histogram_count_below(const struct histogram *h, uint64_t limit);

size_t histogram_bucket_of(uint64_t value);
uint64_t histogram_bucket_low(size_t bucket);

#endif
