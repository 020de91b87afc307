#include "base/histogram.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/rng.h"

#define N_VALUES 20000

static int compare_values(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return (x > y) - (x < y);
}

/* Oracle: sort all values and take the one of that rank. */
static void assert_quantiles(const struct histogram *h, uint64_t *values, size_t n)
{
    const double ratios[] = {0.001, 0.01, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 0.999, 0.9999};

    qsort(values, n, sizeof(*values), compare_values);
    for (size_t i = 0; i < sizeof(ratios) / sizeof(ratios[0]); i++) {
        const double exact = (double)values[(size_t)ceil(ratios[i] * (double)n) - 1];
        const double got = (double)histogram_quantile(h, ratios[i]);

        assert_true(fabs(got - exact) <= exact * 0.01);
    }
    assert_int_equal(histogram_quantile(h, 0), values[0]);
    assert_int_equal(histogram_quantile(h, 1), values[n - 1]);
    assert_int_equal(h->min, values[0]);
    assert_int_equal(h->max, values[n - 1]);
}

static uint64_t draw(struct rng *r, int shape)
{
    switch (shape) {
    case 0: /* latencies */
        return (uint64_t)rng_exponential(r, 5000);
    case 1: /* two modes */
        return rng_below(r, 10) < 9 ? 100 + rng_below(r, 50) : 1000000 + rng_below(r, 100000);
    case 2: /* heavy tail */
        return (uint64_t)exp(rng_normal(r) * 4 + 10);
    default: /* small ones */
        return rng_below(r, 200);
    }
}

static void quantiles_are_within_one_percent_of_sorted_values(void **state)
{
    static uint64_t values[N_VALUES];
    static struct histogram h;
    struct rng r;

    (void)state;
    rng_init(&r, 6);
    for (int shape = 0; shape < 4; shape++) {
        histogram_init(&h);
        for (size_t i = 0; i < N_VALUES; i++) {
            values[i] = draw(&r, shape);
            histogram_add(&h, values[i], 1);
        }
        assert_int_equal(h.count, N_VALUES);
        assert_quantiles(&h, values, N_VALUES);
    }
}

static void merging_parts_gives_what_the_union_gives(void **state)
{
    static struct histogram whole, merged, part[3];
    struct rng r;

    (void)state;
    rng_init(&r, 7);
    histogram_init(&whole);
    histogram_init(&merged);
    for (int i = 0; i < 3; i++)
        histogram_init(&part[i]);
    for (int i = 0; i < 3000; i++) {
        const uint64_t value = draw(&r, i % 4);
        const uint32_t times = (uint32_t)rng_below(&r, 3); /* 0 adds nothing */

        histogram_add(&whole, value, times);
        histogram_add(&part[i % 2], value, times); /* part 2 stays empty */
    }
    for (int i = 0; i < 3; i++)
        histogram_merge(&merged, &part[i]);
    assert_memory_equal(&merged, &whole, sizeof(whole));
}

static void buckets_are_contiguous_and_narrow(void **state)
{
    (void)state;
    for (size_t b = 0; b + 1 < HISTOGRAM_N_BUCKETS; b++) {
        const uint64_t low = histogram_bucket_low(b), next = histogram_bucket_low(b + 1);

        assert_true(next > low);
        assert_int_equal(histogram_bucket_of(low), b);
        assert_int_equal(histogram_bucket_of(next - 1), b);
        assert_true((next - low - 1) * 64 <= low); /* the middle is within 1/128 of either end */
    }
    assert_int_equal(histogram_bucket_of(UINT64_MAX), HISTOGRAM_N_BUCKETS - 1);
    assert_int_equal(histogram_bucket_of(UINT64_C(1) << 40), HISTOGRAM_N_BUCKETS - 1);
}

static void an_empty_one_and_one_value_behave(void **state)
{
    static struct histogram h;

    (void)state;
    histogram_init(&h);
    assert_int_equal(histogram_quantile(&h, 0.99), 0);
    assert_int_equal(histogram_count_below(&h, 5), 0);
    histogram_add(&h, 123456789, 1);
    assert_int_equal(histogram_quantile(&h, 0.5), 123456789);
    assert_int_equal(histogram_quantile(&h, 0.999), 123456789);
    assert_int_equal(h.sum, 123456789);
    histogram_add(&h, UINT64_C(1) << 50, 1); /* past the last bucket: max is still exact */
    assert_int_equal(histogram_quantile(&h, 1), UINT64_C(1) << 50);
}

static void count_below_is_right_within_one_percent_of_the_limit(void **state)
{
    static struct histogram h;

    (void)state;
    histogram_init(&h);
    for (uint64_t v = 1; v <= 100000; v++)
        histogram_add(&h, v, 1);
    for (uint64_t limit = 1; limit <= 200000; limit = limit * 3 / 2 + 1) {
        const double exact = (double)(limit < 100000 ? limit : 100000);

        assert_true(fabs((double)histogram_count_below(&h, limit) - exact) <= exact / 64);
    }
    assert_int_equal(histogram_count_below(&h, 100000), 100000);
    assert_int_equal(histogram_count_below(&h, 100), 100);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(quantiles_are_within_one_percent_of_sorted_values),
        cmocka_unit_test(merging_parts_gives_what_the_union_gives),
        cmocka_unit_test(buckets_are_contiguous_and_narrow),
        cmocka_unit_test(an_empty_one_and_one_value_behave),
        cmocka_unit_test(count_below_is_right_within_one_percent_of_the_limit),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
