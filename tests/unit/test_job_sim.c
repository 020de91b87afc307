/* The orders, and the replay of jobs under them: cases small enough to be worked by hand. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <string.h>

#include "base/rng.h"
#include "placer/job_sim.h"

#define S(seconds) ((uint64_t)(seconds)*1000000)
#define PERIOD_S   1800  /* of the order "penstock" */
#define PATIENCE_S 86400 /* likewise, before the first start */

static struct job_sim sim(const char *order, uint32_t n_nodes, uint32_t gpus_per_node)
{
    const struct order_ops *ops = order_find(order);

    assert_non_null(ops);
    return (struct job_sim){.n_nodes = n_nodes, .gpus_per_node = gpus_per_node, .order = ops};
}

static struct job_sim_job job(uint64_t number, uint32_t gpus, uint64_t submit_s, uint64_t work_s)
{
    return (struct job_sim_job){
        .number = number, .gpus = gpus, .submit_us = S(submit_s), .work_us = S(work_s)};
}

static void run(const struct job_sim *s, struct job_sim_job *jobs, size_t n)
{
    assert_int_equal(job_sim_run(s, jobs, n, NULL), 0);
}

static void assert_ran(const struct job_sim_job *j, uint64_t first_start_s, uint64_t end_s)
{
    assert_int_equal(j->first_start_us, S(first_start_s));
    assert_int_equal(j->end_us, S(end_s));
}

/* ---- orders ---- */

static void orders_are_found_by_name(void **state)
{
    (void)state;
    assert_ptr_equal(order_find("fifo"), &order_fifo);
    assert_ptr_equal(order_find("srtf"), &order_srtf);
    assert_ptr_equal(order_find("srsf"), &order_srsf);
    assert_ptr_equal(order_find("penstock"), &order_levels);
    assert_null(order_find("lifo"));
    assert_null(order_at(4));
    assert_false(order_find("penstock")->knows_durations || order_find("fifo")->knows_durations);
}

static uint64_t level_key(uint32_t gpus, uint64_t run_us)
{
    const struct order_job j = {.gpus = gpus, .run_us = run_us};

    return order_levels.key(&j);
}

static void levels_end_at_1_and_4_and_16_gpu_hours_of_weighted_service(void **state)
{
    (void)state;
    /* One card weighs 1: 3600, 14400, 57600 s. */
    assert_int_equal(level_key(1, S(3600) - 1), level_key(1, 0));
    assert_true(level_key(1, S(3600)) > level_key(1, S(3600) - 1));
    assert_int_equal(level_key(1, S(14400) - 1), level_key(1, S(3600)));
    assert_true(level_key(1, S(14400)) > level_key(1, S(14400) - 1));
    assert_true(level_key(1, S(57600)) > level_key(1, S(57600) - 1));
    /* 16^1.25 = 32: 3600 / 32 = 112.5 s. */
    assert_int_equal(level_key(16, S(112)), level_key(16, 0));
    assert_true(level_key(16, 112500000) > level_key(16, 112499999));
    /* A smaller gang first, but a lower level before that. */
    assert_true(level_key(1, 0) < level_key(2, 0));
    assert_true(level_key(32, 0) < level_key(1, S(3600)));
}

static void patience_doubles_with_each_level(void **state)
{
    const struct order_job fresh = {.gpus = 1}, old = {.gpus = 1, .run_us = S(14400)};

    (void)state;
    assert_int_equal(order_levels.patience_us(&fresh), S(24 * 3600));
    assert_int_equal(order_levels.patience_us(&old), S(4 * 24 * 3600)); /* level 2 */
}

/* ---- first come, first served ---- */

static void fifo_lets_nobody_pass_the_head(void **state)
{
    const struct job_sim s = sim("fifo", 1, 2);
    struct job_sim_job jobs[] = {job(1, 1, 0, 10), job(2, 2, 1, 5), job(3, 1, 2, 1)};

    (void)state;
    run(&s, jobs, 3); /* a card is free all the time until 10, but 2 needs both */
    assert_ran(&jobs[0], 0, 10);
    assert_ran(&jobs[1], 10, 15);
    assert_ran(&jobs[2], 15, 16);
    assert_int_equal(jobs[2].longest_wait_us, S(13));
}

static void a_gang_of_up_to_a_node_must_fit_one_node(void **state)
{
    struct job_sim s = sim("fifo", 2, 2);
    struct job_sim_job jobs[] = {job(1, 1, 0, 10), job(2, 1, 0, 4), job(3, 1, 0, 10),
                                 job(4, 2, 1, 1)};

    (void)state;
    run(&s, jobs, 4); /* 1 and 2 fill node 0, 3 takes half of node 1; from 4 on each has one free */
    assert_ran(&jobs[2], 0, 10);
    assert_ran(&jobs[3], 10, 11);
    s.repacks = true; /* at 4, 1 and 3 both go to node 0 */
    run(&s, jobs, 4);
    assert_ran(&jobs[3], 4, 5);
    assert_ran(&jobs[0], 0, 10);
}

static void a_larger_gang_takes_whole_idle_nodes_and_the_rest_on_one_more(void **state)
{
    const struct job_sim s = sim("fifo", 3, 4);
    struct job_sim_job jobs[] = {job(1, 1, 0, 10), job(2, 6, 0, 3), job(3, 2, 0, 5),
                                 job(4, 5, 0, 2)};

    (void)state;
    /* 1: node 0. 2: node 1 whole, 2 cards of node 0, which leaves it 1. 3: node 2. 4: needs an idle
     * node: node 1 at 3, and 1 card of node 0. */
    run(&s, jobs, 4);
    assert_ran(&jobs[1], 0, 3);
    assert_ran(&jobs[2], 0, 5);
    assert_ran(&jobs[3], 3, 5);
}

/* ---- with durations ---- */

static void srtf_puts_a_longer_job_aside(void **state)
{
    struct job_sim s = sim("srtf", 1, 1);
    struct job_sim_job jobs[] = {job(1, 1, 0, 10), job(2, 1, 3, 2)};

    (void)state;
    run(&s, jobs, 2);
    assert_ran(&jobs[1], 3, 5);
    assert_ran(&jobs[0], 0, 12);
    assert_int_equal(jobs[0].starts, 2);

    /* The published replays: at 3 job 1 has run 3 - 1 s, so 8 are left. What ends ends on time. */
    s.overhead = JOB_SIM_OVERHEAD_EACH_EVENT;
    jobs[0].overhead_us = jobs[1].overhead_us = S(1);
    run(&s, jobs, 2);
    assert_ran(&jobs[1], 3, 5);
    assert_ran(&jobs[0], 0, 13);

    /* Never below nothing: with 5 s a start, at 3 job 1 has all its 10 s before it. */
    jobs[0].overhead_us = S(5);
    run(&s, jobs, 2);
    assert_ran(&jobs[0], 0, 15);
}

static void srsf_counts_cards_and_srtf_does_not(void **state)
{
    struct job_sim_job jobs[] = {job(1, 1, 0, 5), job(2, 2, 0, 3)};
    struct job_sim s = sim("srtf", 1, 2);

    (void)state;
    run(&s, jobs, 2); /* 3 s before 5 s */
    assert_ran(&jobs[1], 0, 3);
    assert_ran(&jobs[0], 3, 8);
    s = sim("srsf", 1, 2);
    run(&s, jobs, 2); /* 5 s before 2 x 3 s */
    assert_ran(&jobs[0], 0, 5);
    assert_ran(&jobs[1], 5, 8);
}

static void equal_jobs_go_by_number_whatever_their_place_in_the_list(void **state)
{
    const struct job_sim s = sim("srtf", 1, 1);
    struct job_sim_job jobs[] = {job(2, 1, 0, 3), job(1, 1, 0, 3), job(3, 1, 0, 3)};

    (void)state;
    run(&s, jobs, 3);
    assert_ran(&jobs[1], 0, 3);
    assert_ran(&jobs[0], 3, 6);
    assert_ran(&jobs[2], 6, 9);
}

/* ---- without durations ---- */

static void a_job_sinks_at_the_re_sort_after_its_level(void **state)
{
    struct job_sim s = sim("penstock", 1, 1);
    struct job_sim_job jobs[] = {job(1, 1, 0, 7200), job(2, 1, 60, 600)};

    (void)state;
    s.overhead = JOB_SIM_OVERHEAD_EACH_START;
    jobs[0].overhead_us = jobs[1].overhead_us = S(10);
    run(&s, jobs, 2);
    /* Re-sorts at 1800 and 3600: job 1 has run 1790 and 3590 s, under its hour, and came first. At
     * 5400 it is a level below. Job 2: 5400 + 10 + 600. Job 1 has 7200 - 5390 s left and takes the
     * free card at once: 6010 + 10 + 1810. */
    assert_ran(&jobs[1], 5400, 6010);
    assert_ran(&jobs[0], 0, 7830);
    assert_int_equal(jobs[0].starts, 2);
    assert_int_equal(jobs[1].starts, 1);
}

static void a_free_card_is_filled_between_re_sorts_and_nobody_put_aside(void **state)
{
    const struct job_sim s = sim("penstock", 1, 4);
    struct job_sim_job jobs[] = {job(1, 3, 0, 900), job(2, 2, 1, 300), job(3, 1, 2, 300)};

    (void)state;
    run(&s, jobs, 3); /* 3 passes 2, which has no room; 2 is a smaller gang than 1 but waits */
    assert_ran(&jobs[2], 2, 302);
    assert_ran(&jobs[0], 0, 900);
    assert_ran(&jobs[1], 900, 1200);
}

/* Two cards, and two small jobs of 900 s each 900 s for 180,000 s: the gangs of two are never next.
 */
static void a_gang_past_its_patience_starts_at_the_next_re_sort(void **state)
{
    const struct job_sim s = sim("penstock", 1, 2);
    struct job_sim_job jobs[402];

    (void)state;
    for (uint64_t i = 0; i < 400; i++)
        jobs[i] = job(i, 1, i / 2 * 900, 900);
    jobs[400] = job(400, 2, 100, 3600);
    jobs[401] = job(401, 2, 100, 3600);
    run(&s, jobs, 402);
    /* 100 + 86,400 = 86,500, and 49 x 1800 = 88,200. It runs a period, then the other does. */
    assert_int_equal(jobs[400].first_start_us, S(88200));
    assert_int_equal(jobs[401].first_start_us, S(90000));
    assert_true(jobs[400].starts > 1); /* then it is put aside */
}

/* At a re-sort the first of those in front always has room, and has run a period by the next. So a
 * job starts within its patience, a period, and a period for each job that came no later and is
 * still there when the patience ends. */
static void the_first_start_comes_in_bounded_time_whatever_the_load(void **state)
{
    const struct job_sim s = sim("penstock", 2, 4);
    struct job_sim_job jobs[300];
    const size_t n = sizeof(jobs) / sizeof(jobs[0]);
    size_t n_overdue = 0;
    struct rng rng;

    (void)state;
    rng_init(&rng, 7);
    for (int round = 0; round < 20; round++) {
        for (uint64_t i = 0; i < n; i++)
            jobs[i] = job(i, 1 + (uint32_t)rng_below(&rng, 8), rng_below(&rng, 200000),
                          1 + rng_below(&rng, 20000));
        run(&s, jobs, n);
        for (size_t i = 0; i < n; i++) {
            const uint64_t patient_until_us = jobs[i].submit_us + S(PATIENCE_S);
            uint64_t ahead = 0;

            for (size_t k = 0; k < n; k++)
                ahead += k != i && jobs[k].submit_us <= jobs[i].submit_us &&
                         jobs[k].end_us > patient_until_us;
            n_overdue += jobs[i].first_start_us > patient_until_us;
            assert_true(jobs[i].first_start_us <= patient_until_us + (1 + ahead) * S(PERIOD_S));
        }
    }
    assert_true(n_overdue > 100); /* or the test says nothing */
}

/* ---- the rest ---- */

static void work_is_conserved_under_every_order(void **state)
{
    struct job_sim_job jobs[200];
    const size_t n = sizeof(jobs) / sizeof(jobs[0]);
    struct rng rng;

    (void)state;
    for (size_t o = 0; order_at(o) != NULL; o++) {
        const struct job_sim s = sim(order_at(o)->name, 2, 4);

        rng_init(&rng, 3);
        for (uint64_t i = 0; i < n; i++)
            jobs[i] = job(i, 1 + (uint32_t)rng_below(&rng, 8), rng_below(&rng, 50000),
                          1 + rng_below(&rng, 9000));
        run(&s, jobs, n);
        for (size_t i = 0; i < n; i++) {
            assert_true(jobs[i].first_start_us >= jobs[i].submit_us);
            assert_true(jobs[i].end_us >= jobs[i].first_start_us + jobs[i].work_us);
            assert_true(jobs[i].starts > 1 ||
                        jobs[i].end_us == jobs[i].first_start_us + jobs[i].work_us);
        }
    }
}

static void what_the_cluster_can_never_hold_is_refused(void **state)
{
    struct job_sim s = sim("penstock", 2, 4);
    struct job_sim_job j = job(5, 9, 0, 1);
    struct err err = {0};

    (void)state;
    assert_int_equal(job_sim_run(&s, &j, 1, &err), -EINVAL);
    assert_non_null(strstr(err.text, "job 5 asks for 9 of 8 GPUs"));
    j.gpus = 0;
    assert_int_equal(job_sim_run(&s, &j, 1, NULL), -EINVAL);
    j = job(5, 1, 0, 0);
    assert_int_equal(job_sim_run(&s, &j, 1, NULL), -EINVAL);
    j = job(5, 1, 0, 1);
    j.overhead_us = S(901); /* it could move each period and never get anywhere */
    assert_int_equal(job_sim_run(&s, &j, 1, NULL), -EINVAL);
    j.overhead_us = 0;
    s.n_nodes = 0;
    assert_int_equal(job_sim_run(&s, &j, 1, NULL), -EINVAL);
}

static void the_summary_counts_as_the_published_tables_do(void **state)
{
    struct job_sim_job jobs[200];
    struct job_sim_summary sum;

    (void)state;
    for (uint64_t i = 0; i < 200; i++) { /* JCT 1 .. 200 s; gangs wait 1 and 3 s */
        jobs[i] = job(i, i == 0 ? 16 : i == 1 ? 32 : 8, 10, 1);
        jobs[i].first_start_us = S(i == 0 ? 11 : 13);
        jobs[i].end_us = S(10 + i + 1);
    }
    sum = job_sim_summarize(jobs, 200);
    assert_float_equal(sum.avg_jct_s, 100.5, 1e-9);
    assert_float_equal(sum.p99_jct_s, 199, 1e-9); /* 198 of 200 are below */
    assert_float_equal(sum.makespan_s, 200, 1e-9);
    assert_int_equal(sum.n_gang16, 2);
    assert_float_equal(sum.p99_first_start_gang16_s, 3, 1e-9);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(orders_are_found_by_name),
        cmocka_unit_test(levels_end_at_1_and_4_and_16_gpu_hours_of_weighted_service),
        cmocka_unit_test(patience_doubles_with_each_level),
        cmocka_unit_test(fifo_lets_nobody_pass_the_head),
        cmocka_unit_test(a_gang_of_up_to_a_node_must_fit_one_node),
        cmocka_unit_test(a_larger_gang_takes_whole_idle_nodes_and_the_rest_on_one_more),
        cmocka_unit_test(srtf_puts_a_longer_job_aside),
        cmocka_unit_test(srsf_counts_cards_and_srtf_does_not),
        cmocka_unit_test(equal_jobs_go_by_number_whatever_their_place_in_the_list),
        cmocka_unit_test(a_job_sinks_at_the_re_sort_after_its_level),
        cmocka_unit_test(a_free_card_is_filled_between_re_sorts_and_nobody_put_aside),
        cmocka_unit_test(a_gang_past_its_patience_starts_at_the_next_re_sort),
        cmocka_unit_test(the_first_start_comes_in_bounded_time_whatever_the_load),
        cmocka_unit_test(work_is_conserved_under_every_order),
        cmocka_unit_test(what_the_cluster_can_never_hold_is_refused),
        cmocka_unit_test(the_summary_counts_as_the_published_tables_do),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
