#include "tests/unit/balancer_fixture.h"

#include "balancer/split.h"

static void count(struct split *s, const bool *usable, uint32_t n, uint32_t *got)
{
    memset(got, 0, s->n * sizeof(got[0]));
    for (uint32_t i = 0; i < n; i++) {
        const int v = split_pick(s, usable);

        assert_in_range(v, 0, s->n - 1);
        got[v]++;
    }
}

static void every_ten_thousand_calls_are_exact_from_any_start(void **state)
{
    static const uint32_t weights[][4] = {
        {9900, 100, 0, 0}, {9999, 1, 0, 0},       {2500, 2500, 2500, 2500},
        {1, 2, 3, 9994},   {3333, 3333, 3334, 0}, {0, 0, 10000, 0},
    };
    static const bool usable[4] = {true, true, true, true};
    uint32_t got[4];

    (void)state;
    for (size_t w = 0; w < ARRAY_LEN(weights); w++) {
        for (uint64_t seed = 1; seed <= 5; seed++) {
            struct rng rng;
            struct split s;

            rng_init(&rng, seed);
            split_init(&s);
            split_set(&s, weights[w], 4, &rng);
            count(&s, usable, (uint32_t)seed * 777, got); /* any start */
            count(&s, usable, WEIGHT_WHOLE, got);
            for (size_t i = 0; i < 4; i++)
                assert_int_equal(got[i], weights[w][i]);
            split_fini(&s);
        }
    }
}

/* 1 % means one in any hundred in a row, not a hundred at the end of ten thousand. */
static void a_canary_is_evenly_spread(void **state)
{
    static const uint32_t weights[] = {9900, 100};
    static const bool usable[] = {true, true};
    struct rng rng;
    struct split s;
    uint32_t since = 0;

    (void)state;
    rng_init(&rng, 4);
    split_init(&s);
    split_set(&s, weights, 2, &rng);
    while (split_pick(&s, usable) != 1)
        continue;
    for (int i = 0; i < 30000; i++) {
        since++;
        if (split_pick(&s, usable) == 1) {
            assert_in_range(since, 100, 100);
            since = 0;
        }
    }
    split_fini(&s);
}

static void workers_start_at_different_places(void **state)
{
    static const uint32_t weights[] = {9000, 1000};
    static const bool usable[] = {true, true};
    uint32_t first_canary[8];
    uint32_t n_distinct = 0;

    (void)state;
    for (uint64_t seed = 0; seed < 8; seed++) {
        struct rng rng;
        struct split s;

        rng_init(&rng, seed);
        split_init(&s);
        split_set(&s, weights, 2, &rng);
        first_canary[seed] = 0;
        while (split_pick(&s, usable) != 1)
            first_canary[seed]++;
        split_fini(&s);
    }
    for (int i = 1; i < 8; i++)
        n_distinct += first_canary[i] != first_canary[0];
    assert_true(n_distinct >= 3);
}

static void the_share_of_a_version_without_replicas_goes_to_the_others(void **state)
{
    static const uint32_t weights[] = {6000, 3000, 1000};
    static const bool without_first[] = {false, true, true}, all[] = {true, true, true};
    struct rng rng;
    struct split s;
    uint32_t got[3];

    (void)state;
    rng_init(&rng, 1);
    split_init(&s);
    split_set(&s, weights, 3, &rng);
    count(&s, without_first, 4000, got);
    assert_int_equal(got[0], 0);
    assert_in_range(got[1], 2998, 3002);
    assert_in_range(got[2], 998, 1002);
    count(&s, all, WEIGHT_WHOLE, got); /* and no burst when it is back */
    for (size_t i = 0; i < 3; i++)
        assert_in_range(got[i], weights[i] - 2, weights[i] + 2);
    split_fini(&s);
}

/* The 1 % one gets its share though the other flaps all the time. */
static void flapping_does_not_starve_a_canary(void **state)
{
    static const uint32_t weights[] = {5000, 4900, 100};
    bool usable[] = {true, true, true};
    struct rng rng;
    struct split s;
    uint32_t canary = 0;

    (void)state;
    rng_init(&rng, 2);
    split_init(&s);
    split_set(&s, weights, 3, &rng);
    for (int i = 0; i < 20000; i++) {
        if (i % 7 == 0)
            usable[1] = !usable[1];
        canary += split_pick(&s, usable) == 2;
    }
    assert_in_range(canary, 200, 450); /* 1 % of half, 2 % of the other half: 300 */
    split_fini(&s);
}

static void weight_zero_gets_none_even_when_it_alone_is_ready(void **state)
{
    static const uint32_t weights[] = {10000, 0}, none[] = {0, 0};
    static const bool only_second[] = {false, true};
    struct rng rng;
    struct split s;
    uint32_t got[2];

    (void)state;
    rng_init(&rng, 1);
    split_init(&s);
    split_set(&s, weights, 2, &rng);
    count(&s, only_second, 100, got);
    assert_int_equal(got[1], 0);
    split_set(&s, none, 2, &rng);
    assert_int_equal(split_pick(&s, only_second), -1);
    split_fini(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_ten_thousand_calls_are_exact_from_any_start),
        cmocka_unit_test(a_canary_is_evenly_spread),
        cmocka_unit_test(workers_start_at_different_places),
        cmocka_unit_test(the_share_of_a_version_without_replicas_goes_to_the_others),
        cmocka_unit_test(flapping_does_not_starve_a_canary),
        cmocka_unit_test(weight_zero_gets_none_even_when_it_alone_is_ready),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
