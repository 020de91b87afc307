/* Preemption and reclaim: whole plans, the right victims, and no end of them in circles. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "base/xalloc.h"
#include "placer/preempt.h"

#define MAX_VICTIMS 64

struct fixture {
    struct cluster_view view;
    struct preempt_victim victims[MAX_VICTIMS];
    struct plan_placement placements[MAX_VICTIMS];
    size_t n;
    struct preempt_queue queues[4];
    size_t chosen[MAX_VICTIMS], n_chosen;
};

static int setup(void **state)
{
    struct fixture *f = xcalloc(1, sizeof(*f));

    cluster_view_init(&f->view);
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;

    cluster_view_fini(&f->view);
    free(f);
    return 0;
}

static void add_node(struct fixture *f, const char *name, uint32_t cpu_milli, uint32_t n_cards)
{
    static const char *const ids[] = {"0", "1", "2", "3", "4", "5", "6", "7"};
    struct node_spec spec = {
        .name = name, .cpu_milli = cpu_milli, .memory_mib = 65536, .n_cards = n_cards};

    for (uint32_t i = 0; i < n_cards; i++)
        spec.cards[i] = (struct card_spec){ids[i], "A100", 81920};
    assert_true(cluster_view_set_node(&f->view, &spec, NULL) >= 0);
}

/* A gang of one task on one node: cores, or whole cards from `card` on. */
static size_t add_victim(struct fixture *f, uint32_t node, uint32_t priority, uint32_t cpu_milli,
                         uint8_t card, uint8_t n_cards)
{
    struct plan_placement *p = &f->placements[f->n];

    *p = (struct plan_placement){.node = node, .cpu_milli = cpu_milli, .n_cards = n_cards};
    for (uint8_t i = 0; i < n_cards; i++)
        p->cards[i] = (uint8_t)(card + i);
    if (n_cards > 0) {
        p->gpu_milli = 1000;
        p->gpu_memory_mib = 81920;
    }
    assert_true(cluster_view_take(&f->view, p));
    f->victims[f->n] =
        (struct preempt_victim){.placements = p, .n_placements = 1, .priority = priority};
    f->queues[0].used_gpu_milli += 1000u * n_cards;
    return f->n++;
}

static enum plan_outcome ask(struct fixture *f, const struct plan_request *tasks, size_t n,
                             size_t queue, uint32_t priority)
{
    const struct preempt_ask a = {.tasks = tasks,
                                  .n_tasks = n,
                                  .queue = queue,
                                  .priority = priority,
                                  .queues = f->queues,
                                  .n_queues = 4,
                                  .max_victims = MAX_VICTIMS};

    return preempt_plan(&f->view, &a, f->victims, f->n, f->chosen, &f->n_chosen);
}

static void cards(struct plan_request *ret, uint32_t n)
{
    *ret = (struct plan_request){.gpu_milli = 1000 * n};
}

static void nothing_ends_for_a_gang_that_fits(void **state)
{
    struct fixture *f = *state;
    struct plan_request one;

    cards(&one, 1);
    add_node(f, "a", 64000, 2);
    add_victim(f, 0, 0, 0, 0, 1);
    assert_int_equal(ask(f, &one, 1, 0, 10), PLAN_OK);
    assert_int_equal(f->n_chosen, 0);
}

static void the_victim_with_the_lower_highest_priority_is_taken(void **state)
{
    struct fixture *f = *state;
    const struct plan_request ten_cores = {.cpu_milli = 10000};

    add_node(f, "one", 10000, 0);
    add_node(f, "two", 10000, 0);
    add_victim(f, 0, 1000, 5000, 0, 0);
    add_victim(f, 0, 0, 5000, 0, 0);
    add_victim(f, 1, 100, 10000, 0, 0);
    assert_int_equal(ask(f, &ten_cores, 1, 0, 10000), PLAN_OK);
    assert_int_equal(f->n_chosen, 1);
    assert_int_equal(f->chosen[0], 2); /* node one would cost the job of priority 1000 */
}

static void nothing_ends_where_it_would_not_help(void **state)
{
    struct fixture *f = *state;
    struct plan_request eight;

    cards(&eight, 8);
    for (uint32_t n = 0; n < 4; n++) { /* six of high and two of low priority on each */
        const char *const names[] = {"a", "b", "c", "d"};

        add_node(f, names[n], 64000, 8);
        for (uint8_t c = 0; c < 8; c++)
            add_victim(f, n, c < 6 ? 10 : 1, 0, c, 1);
    }
    assert_int_equal(ask(f, &eight, 1, 0, 10), PLAN_E_NO_ROOM);
    assert_int_equal(f->n_chosen, 0);
}

static void of_equal_priorities_the_least_lost_work_goes(void **state)
{
    struct fixture *f = *state;
    struct plan_request two;

    cards(&two, 2);
    add_node(f, "a", 64000, 2);
    add_node(f, "b", 64000, 2);
    f->victims[add_victim(f, 0, 1, 0, 0, 2)].lost_gpu_ms = 900000;
    f->victims[add_victim(f, 1, 1, 0, 0, 1)].lost_gpu_ms = 100000;
    f->victims[add_victim(f, 1, 1, 0, 1, 1)].lost_gpu_ms = 200000;
    assert_int_equal(ask(f, &two, 1, 0, 2), PLAN_OK);
    assert_int_equal(f->n_chosen, 2); /* 300 GPU-seconds in two gangs against 900 in one */
    assert_int_equal(f->chosen[0], 1);
    assert_int_equal(f->chosen[1], 2);
}

static void equal_priority_never_ends_anybody(void **state)
{
    struct fixture *f = *state;
    struct plan_request one;

    cards(&one, 1);
    add_node(f, "a", 64000, 1);
    add_victim(f, 0, 5, 0, 0, 1);
    assert_int_equal(ask(f, &one, 1, 0, 5), PLAN_E_NO_ROOM);
    assert_int_equal(ask(f, &one, 1, 0, 6), PLAN_OK);
    assert_int_equal(f->n_chosen, 1);
}

static void no_more_end_than_needed(void **state)
{
    struct fixture *f = *state;
    struct plan_request one;

    cards(&one, 1);
    add_node(f, "a", 64000, 4);
    for (uint8_t c = 0; c < 4; c++)
        add_victim(f, 0, 1, 0, c, 1);
    assert_int_equal(ask(f, &one, 1, 0, 2), PLAN_OK);
    assert_int_equal(f->n_chosen, 1);
}

/* Queue 0 deserves 2 of 4 cards and holds 4; queue 1 deserves 2 and holds none. */
static void a_queue_takes_back_what_it_deserves_and_no_more(void **state)
{
    struct fixture *f = *state;
    struct plan_request two, three;

    cards(&two, 2);
    cards(&three, 3);
    add_node(f, "a", 64000, 4);
    f->queues[0].deserved_gpu_milli = f->queues[1].deserved_gpu_milli = 2000;
    for (uint8_t c = 0; c < 4; c++)
        add_victim(f, 0, 1000, 0, c, 1); /* priorities of another queue do not matter */
    assert_int_equal(ask(f, &two, 1, 1, 0), PLAN_OK);
    assert_int_equal(f->n_chosen, 2);
    assert_int_equal(ask(f, &three, 1, 1, 0), PLAN_E_NO_ROOM); /* would pass its 2 */
    f->queues[0].deserved_gpu_milli = 3000;
    assert_int_equal(ask(f, &two, 1, 1, 0), PLAN_E_NO_ROOM); /* would leave queue 0 below its 3 */
}

/* ---- random clusters: every plan is checked, and they come to an end ---- */

static void fill(struct fixture *f, struct rng *rng)
{
    const size_t n_nodes = 1 + rng_below(rng, 3);
    const char *const names[] = {"a", "b", "c"};

    for (size_t n = 0; n < n_nodes; n++) {
        const uint32_t n_cards = 1 + (uint32_t)rng_below(rng, 4);

        add_node(f, names[n], 64000, n_cards);
        for (uint8_t c = 0; c < n_cards; c++) {
            const size_t q = rng_below(rng, 4);

            if (rng_below(rng, 8) == 0)
                continue;
            f->victims[add_victim(f, (uint32_t)n, (uint32_t)rng_below(rng, 4), 0, c, 1)].queue = q;
            f->victims[f->n - 1].lost_gpu_ms = rng_below(rng, 1000);
            f->queues[q].used_gpu_milli += 1000;
        }
    }
    f->queues[0].used_gpu_milli = 0;
    for (size_t v = 0; v < f->n; v++)
        f->queues[0].used_gpu_milli += f->victims[v].queue == 0 ? 1000 : 0;
    for (size_t q = 0; q < 4; q++)
        f->queues[q].deserved_gpu_milli = 1000 * rng_below(rng, 5);
}

/* What all queues hold beyond what they deserve, then the room of each priority: a plan that is
 * carried out makes the first less, or leaves it and moves room upwards in one queue. */
static uint64_t over_deserved(const struct fixture *f)
{
    uint64_t sum = 0;

    for (size_t q = 0; q < 4; q++)
        if (f->queues[q].used_gpu_milli > f->queues[q].deserved_gpu_milli)
            sum += f->queues[q].used_gpu_milli - f->queues[q].deserved_gpu_milli;
    return sum;
}

static uint64_t low_priority(const struct fixture *f)
{
    uint64_t sum = 0;

    for (size_t v = 0; v < f->n; v++)
        sum += 3 - f->victims[v].priority;
    return sum;
}

/* End the chosen ones; a gang of one card each takes their place. */
static void carry_out(struct fixture *f, uint32_t n_tasks, size_t queue, uint32_t priority)
{
    struct plan plan;
    struct plan_request one;

    for (size_t i = f->n_chosen; i-- > 0;) {
        const size_t v = f->chosen[i];

        cluster_view_release(&f->view, &f->placements[v]);
        f->queues[f->victims[v].queue].used_gpu_milli -= 1000;
        f->n--;
        f->placements[v] = f->placements[f->n];
        f->victims[v] = f->victims[f->n];
        f->victims[v].placements = &f->placements[v];
    }
    cards(&one, 1);
    plan_init(&plan, &f->view);
    for (uint32_t t = 0; t < n_tasks; t++) {
        assert_int_equal(plan_task(&plan, &one, NULL), PLAN_OK); /* the plan was proven */
        f->placements[f->n] = plan.placements[t];
        f->victims[f->n] = (struct preempt_victim){.placements = &f->placements[f->n],
                                                   .n_placements = 1,
                                                   .queue = queue,
                                                   .priority = priority};
        f->n++;
        f->queues[queue].used_gpu_milli += 1000;
    }
    plan_fini(&plan);
}

static void plans_on_random_clusters_are_allowed_minimal_and_come_to_an_end(void **state)
{
    enum { ROUNDS = 100000 };
    struct rng rng;
    int n_plans = 0, n_refused = 0;

    (void)state;
    rng_init(&rng, 51);
    for (int round = 0; round < ROUNDS; round++) {
        struct fixture *f;
        void *p;

        setup(&p);
        f = p;
        fill(f, &rng);
        for (int step = 0; step < 3; step++) {
            const uint32_t n = 1 + (uint32_t)rng_below(&rng, 2);
            const size_t q = rng_below(&rng, 4);
            const uint32_t priority = (uint32_t)rng_below(&rng, 4);
            const uint64_t over = over_deserved(f), low = low_priority(f);
            const size_t n_before = f->n;
            struct plan_request tasks[2];
            bool reclaims = false;

            cards(&tasks[0], 1);
            cards(&tasks[1], 1);
            if (ask(f, tasks, n, q, priority) != PLAN_OK) {
                assert_int_equal(f->n_chosen, 0);
                n_refused++;
                continue;
            }
            if (f->n_chosen == 0)
                continue; /* it fits: not the planner's business */
            n_plans++;
            assert_true(f->n_chosen <= n); /* single cards: never more than asked for */
            for (size_t i = 0; i < f->n_chosen; i++) {
                const struct preempt_victim *v = &f->victims[f->chosen[i]];

                if (v->queue == q)
                    assert_true(v->priority < priority);
                reclaims = reclaims || v->queue != q;
            }
            carry_out(f, n, q, priority);
            if (reclaims) {
                assert_true(over_deserved(f) < over);
            } else if (f->n == n_before) {
                assert_true(over_deserved(f) == over && low_priority(f) < low);
            }
        }
        teardown(&p);
    }
    assert_true(n_plans > ROUNDS / 10 && n_refused > ROUNDS / 10);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(nothing_ends_for_a_gang_that_fits),
        TEST(the_victim_with_the_lower_highest_priority_is_taken),
        TEST(nothing_ends_where_it_would_not_help),
        TEST(of_equal_priorities_the_least_lost_work_goes),
        TEST(equal_priority_never_ends_anybody),
        TEST(no_more_end_than_needed),
        TEST(a_queue_takes_back_what_it_deserves_and_no_more),
        TEST(plans_on_random_clusters_are_allowed_minimal_and_come_to_an_end),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
