/* A closed loop over simulated replicas: who gets how many calls. */
#include "tests/unit/balancer_fixture.h"

#include "base/heap.h"

enum service { SERVICE_FIXED, SERVICE_EXPONENTIAL, SERVICE_HEAVY, SERVICE_NONE };

struct sim {
    uint32_t weights[4];
    double mean_us[4]; /* service time of a replica, whatever its load */
    enum service service;
    uint32_t concurrency;
    uint32_t calls;
    enum model_policy policy;
    uint64_t seed;
    uint64_t got[4];
};

struct sim_call {
    struct heap_node ends;
    struct member *at;
};

static uint64_t service_us(const struct sim *sim, size_t replica, struct rng *rng)
{
    const double mean = sim->mean_us[replica];

    switch (sim->service) {
    case SERVICE_FIXED:
        return (uint64_t)mean;
    case SERVICE_EXPONENTIAL:
        return (uint64_t)rng_exponential(rng, mean) + 1;
    case SERVICE_HEAVY: /* one in twenty takes ten times as long */
        return (uint64_t)(rng_below(rng, 20) == 0 ? mean * 10 : mean / 2) + 1;
    case SERVICE_NONE:
        break;
    }
    return 0;
}

static void run(struct sim *sim)
{
    struct fix_snapshot f;
    struct balancer_hooks hooks = {.endpoint_added = NULL};
    struct rng rng;
    struct heap ends = {.n = 0};
    struct sim_call calls[64];
    uint64_t now_us = 1;
    uint32_t begun = 0;

    assert_true(sim->concurrency <= 64);
    fix_replicas(&f, 4, sim->weights, 0);
    f.model_confs[0].policy = sim->policy;
    struct balancer *b = balancer_new(1, sim->seed, &hooks, NULL);
    balancer_apply(b, &f.snap, now_us);
    struct cluster *const c = fix_cluster(b, 0, 0);
    rng_init(&rng, sim->seed + 1);
    memset(sim->got, 0, sizeof(sim->got));
    memset(calls, 0, sizeof(calls));

    for (uint32_t i = 0; begun < sim->calls || heap_min(&ends) != NULL;) {
        struct sim_call *call;

        if (i < sim->concurrency) {
            call = &calls[i++];
        } else {
            struct heap_node *const first = heap_min(&ends);

            call = container_of(first, struct sim_call, ends);
            now_us = first->key;
            heap_remove(&ends, first);
            member_done(call->at, OUTCOME_OK, now_us);
        }
        if (begun == sim->calls)
            continue;
        begun++;
        assert_int_equal(cluster_pick(c, &rng, now_us, NULL, 0, &call->at), PICK_OK);
        const size_t replica = (size_t)(call->at->endpoint->address[1] - '0');
        sim->got[replica]++;
        heap_push(&ends, &call->ends, now_us + service_us(sim, replica, &rng));
    }
    heap_fini(&ends);
    balancer_free(b);
}

/* Every replica within ratio of its share by weight. */
static void assert_spread(const struct sim *sim, double ratio, const char *what)
{
    uint64_t total = 0;

    for (size_t i = 0; i < 4; i++)
        total += sim->weights[i];
    for (size_t i = 0; i < 4; i++) {
        const double due = (double)sim->calls * sim->weights[i] / (double)total;
        const double off = (double)sim->got[i] / due - 1;

        if (off > ratio || off < -ratio)
            fail_msg("%s, service %d, seed %d: r%zu (weight %u) got %d of %.0f due: %+.2f %%", what,
                     sim->service, (int)sim->seed, i, sim->weights[i], (int)sim->got[i], due,
                     off * 100);
    }
}

#define EQUAL_WEIGHTS                                                                              \
    {                                                                                              \
        1000, 1000, 1000, 1000                                                                     \
    }
#define UNEQUAL_WEIGHTS                                                                            \
    {                                                                                              \
        250, 250, 500, 1000                                                                        \
    }
#define SAME_SPEED                                                                                 \
    {                                                                                              \
        2000, 2000, 2000, 2000                                                                     \
    }

static void spread_over_seeds(struct sim sim, double ratio, const char *what)
{
    for (sim.seed = 1; sim.seed <= 60; sim.seed++) {
        run(&sim);
        assert_spread(&sim, ratio, what);
    }
}

/* T1: 10,000 calls, 64 at once, each replica within 3 % of its weight. */
static void four_equal_replicas_get_a_quarter_each(void **state)
{
    (void)state;
    for (int s = SERVICE_FIXED; s <= SERVICE_NONE; s++)
        spread_over_seeds((struct sim){.weights = EQUAL_WEIGHTS,
                                       .mean_us = SAME_SPEED,
                                       .service = (enum service)s,
                                       .concurrency = 64,
                                       .calls = 10000},
                          0.03, "equal");
}

/* With heavy tails long calls clump: load comes first there, the share second. */
static void weights_of_1_1_2_4_are_kept(void **state)
{
    (void)state;
    for (int s = SERVICE_FIXED; s <= SERVICE_NONE; s++)
        spread_over_seeds((struct sim){.weights = UNEQUAL_WEIGHTS,
                                       .mean_us = SAME_SPEED,
                                       .service = (enum service)s,
                                       .concurrency = 64,
                                       .calls = 10000},
                          s == SERVICE_HEAVY ? 0.05 : 0.03, "1:1:2:4");
}

static void one_call_at_a_time_is_spread_by_weight_too(void **state)
{
    (void)state;
    spread_over_seeds((struct sim){.weights = UNEQUAL_WEIGHTS,
                                   .mean_us = SAME_SPEED,
                                   .service = SERVICE_EXPONENTIAL,
                                   .concurrency = 1,
                                   .calls = 10000},
                      0.03, "1:1:2:4 one at a time");
}

/* Three take 2 ms, one 20 ms: with least load its share is near 1 / (1 + 3 * 10), far under the
 * quarter that round robin gives it, whatever its "debt". */
static void a_slow_replica_gets_less(void **state)
{
    struct sim sim = {.weights = EQUAL_WEIGHTS,
                      .mean_us = {20000, 2000, 2000, 2000},
                      .service = SERVICE_EXPONENTIAL,
                      .concurrency = 64,
                      .calls = 10000};

    (void)state;
    for (sim.seed = 1; sim.seed <= 20; sim.seed++) {
        run(&sim);
        assert_in_range(sim.got[0], 100, 1000);
        for (size_t i = 1; i < 4; i++)
            assert_in_range(sim.got[i], 2700, 3300);
    }
}

static void least_inflight_and_round_robin_keep_weights(void **state)
{
    (void)state;
    for (int p = POLICY_LEAST_INFLIGHT; p <= POLICY_ROUND_ROBIN; p++)
        spread_over_seeds((struct sim){.weights = UNEQUAL_WEIGHTS,
                                       .mean_us = SAME_SPEED,
                                       .service = SERVICE_EXPONENTIAL,
                                       .concurrency = 64,
                                       .calls = 10000,
                                       .policy = (enum model_policy)p},
                          0.03, "other policies");
}

static void round_robin_is_exact_and_evenly_mixed(void **state)
{
    struct sim sim = {.weights = UNEQUAL_WEIGHTS,
                      .mean_us = SAME_SPEED,
                      .concurrency = 1,
                      .calls = 8000,
                      .policy = POLICY_ROUND_ROBIN,
                      .seed = 3};

    (void)state;
    run(&sim);
    assert_in_range(sim.got[0], 999, 1001);
    assert_in_range(sim.got[1], 999, 1001);
    assert_in_range(sim.got[2], 1999, 2001);
    assert_in_range(sim.got[3], 3999, 4001);
}

static void the_same_seed_gives_the_same_answer(void **state)
{
    struct sim a = {.weights = UNEQUAL_WEIGHTS,
                    .mean_us = SAME_SPEED,
                    .service = SERVICE_HEAVY,
                    .concurrency = 17,
                    .calls = 3000,
                    .seed = 9};
    struct sim b = a;

    (void)state;
    run(&a);
    run(&b);
    assert_memory_equal(a.got, b.got, sizeof(a.got));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(four_equal_replicas_get_a_quarter_each),
        cmocka_unit_test(weights_of_1_1_2_4_are_kept),
        cmocka_unit_test(one_call_at_a_time_is_spread_by_weight_too),
        cmocka_unit_test(a_slow_replica_gets_less),
        cmocka_unit_test(least_inflight_and_round_robin_keep_weights),
        cmocka_unit_test(round_robin_is_exact_and_evenly_mixed),
        cmocka_unit_test(the_same_seed_gives_the_same_answer),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
