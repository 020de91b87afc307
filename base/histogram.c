#include "base/histogram.h"

#include <string.h>

#define SUB (UINT64_C(1) << HISTOGRAM_SUB_BITS)

void histogram_init(struct histogram *h)
{
    memset(h, 0, sizeof(*h));
    h->min = UINT64_MAX;
}

/* Values below 2 * SUB are their own bucket; a value whose highest bit is b >= SUB_BITS + 1 keeps
 * its SUB_BITS bits after the highest one. */
size_t histogram_bucket_of(uint64_t value)
{
    unsigned shift;

    if (value < 2 * SUB)
        return (size_t)value;
    if (value >> HISTOGRAM_MAX_BITS != 0)
        return HISTOGRAM_N_BUCKETS - 1;
    shift = 63 - (unsigned)__builtin_clzll(value) - HISTOGRAM_SUB_BITS;
    return (size_t)(((uint64_t)shift << HISTOGRAM_SUB_BITS) + (value >> shift));
}

uint64_t histogram_bucket_low(size_t bucket)
{
    const size_t shift = bucket >> HISTOGRAM_SUB_BITS;

    if (shift < 2)
        return bucket;
    return (SUB + (bucket & (SUB - 1))) << (shift - 1);
}

void histogram_add(struct histogram *h, uint64_t value, uint32_t times)
{
    if (times == 0)
        return;
    h->buckets[histogram_bucket_of(value)] += times;
    h->count += times;
    h->sum += value * times;
    if (value < h->min)
        h->min = value;
    if (value > h->max)
        h->max = value;
}

void histogram_merge(struct histogram *into, const struct histogram *from)
{
    for (size_t i = 0; i < HISTOGRAM_N_BUCKETS; i++)
        into->buckets[i] += from->buckets[i];
    into->count += from->count;
    into->sum += from->sum;
    if (from->min < into->min)
        into->min = from->min;
    if (from->max > into->max)
        into->max = from->max;
}

/* The middle of the bucket that holds the value of rank ceil(ratio * count), kept in [min, max]. */
uint64_t histogram_quantile(const struct histogram *h, double ratio)
{
    uint64_t rank, seen = 0;
    size_t i;

    if (h->count == 0)
        return 0;
    if (ratio >= 1)
        return h->max;
    rank = ratio > 0 ? (uint64_t)(ratio * (double)h->count) : 0;
    if (ratio > 0 && (double)rank < ratio * (double)h->count)
        rank++;
    if (rank <= 1)
        return h->min;
    for (i = 0; i < HISTOGRAM_N_BUCKETS - 1; i++) {
        seen += h->buckets[i];
        if (seen >= rank)
            break;
    }
    if (i == HISTOGRAM_N_BUCKETS - 1)
        return h->max;

    const uint64_t low = histogram_bucket_low(i);
    const uint64_t middle = low + (histogram_bucket_low(i + 1) - low) / 2;

    return middle < h->min ? h->min : middle > h->max ? h->max : middle;
}

uint64_t histogram_count_below(const struct histogram *h, uint64_t limit)
{
    const size_t last = histogram_bucket_of(limit);
    uint64_t n = 0;

    if (limit >= h->max)
        return h->count;
    for (size_t i = 0; i <= last; i++)
        n += h->buckets[i];
    return n;
}
