/* Whose turn it is: order in and among queues, caps, backfill and the longest wait, gangs that end
 * for others, suspended jobs, time limits. */
#include "tests/unit/job_fixture.h"

static void a_waiting_gang_is_not_overtaken_in_its_queue(void **state)
{
    struct fixture *f = *state;
    struct job *a = submit_cards(f, "a", "", 2), *big = submit_cards(f, "big", "", 4);
    struct job *small = submit_cards(f, "small", "", 1);

    assert_int_equal(big->state, JOB_WAITING);
    assert_int_equal(small->state, JOB_QUEUED);
    assert_says(small->why, "behind job big in queue default");
    exited(f, a, 0, 0);
    exited(f, a, 1, 0);
    assert_int_equal(big->state, JOB_STARTING);
    assert_int_equal(small->state, JOB_WAITING);
    for (size_t i = 0; i < 4; i++)
        exited(f, big, i, 0);
    assert_int_equal(small->state, JOB_STARTING);
}

/* Two of four cards are free in 100 s: a job of 60 s ends by 90 s at the latest as estimates go,
 * one of 80 s by 120 s. */
static void a_short_job_starts_before_a_waiting_gang_when_it_ends_in_time(void **state)
{
    struct fixture *f = *state;
    struct job *a = submit_cards(f, "a", "\"estimate_s\":100,", 2);
    struct job *big = submit_cards(f, "big", "", 4);
    struct job *lengthy = submit_cards(f, "long", "\"estimate_s\":80,", 1);
    struct job *brief = submit_cards(f, "brief", "\"estimate_s\":60,", 1);

    assert_int_equal(big->state, JOB_WAITING);
    assert_int_equal(big->expected_us, a->start_us + 100 * US_PER_S);
    assert_int_equal(lengthy->state, JOB_QUEUED);
    assert_says(lengthy->why, "behind job big in queue default");
    assert_says(lengthy->why, "it would delay job big");
    assert_int_equal(brief->state, JOB_STARTING);
    f->now_us += 90 * US_PER_S;
    exited(f, brief, 0, 0);
    exited(f, a, 0, 0);
    exited(f, a, 1, 0);
    assert_int_equal(big->state, JOB_STARTING);
}

static void a_job_that_wants_other_cards_is_not_held_up_by_its_queue(void **state)
{
    struct fixture *f = *state;
    const struct node_spec node = {.name = "b",
                                   .cpu_milli = 8000,
                                   .memory_mib = 8192,
                                   .cards = {{"0", "A10", 24576}},
                                   .n_cards = 1};
    struct job *other;

    submit_cards(f, "a", "", 2);
    assert_int_equal(cluster_view_set_node(&f->view, &node, NULL), 1);
    submit(
        f,
        "{\"job\":\"big\",\"gang\":true,\"tasks\":[{\"role\":\"w\",\"count\":4,\"command\":[\"x\"],"
        "\"gpu\":{\"milli\":1000,\"models\":[\"T4\"]}}]}");
    other = submit(f, "{\"job\":\"other\",\"tasks\":[{\"role\":\"w\",\"command\":[\"x\"],"
                      "\"gpu\":{\"milli\":1000,\"models\":[\"A10\"]}}]}");
    assert_int_equal(other->state, JOB_STARTING);
}

/* Four cards come free at once for the jobs long, wide, unknown, short, submitted so: one card
 * each, wide four. starts: those that do, in the order of submission. */
static void check_order(struct fixture *f, enum queue_order order, const char *starts)
{
    static const char *const names[] = {"long", "wide", "unknown", "short"};
    const struct queue_conf queue = {.name = "q", .weight = 1, .order = order};
    char got[64] = "";
    struct job *full;

    job_book_set_queues(f->book, &queue, 1);
    full = submit_cards(f, "full", "\"queue\":\"q\",", 4);
    all_started(f, full);
    submit_cards(f, "long", "\"queue\":\"q\",\"estimate_s\":100,", 1);
    submit_cards(f, "wide", "\"queue\":\"q\",\"estimate_s\":6,", 4);
    submit_cards(f, "unknown", "\"queue\":\"q\",", 1);
    submit_cards(f, "short", "\"queue\":\"q\",\"estimate_s\":10,", 1);
    for (size_t i = 0; i < 4; i++)
        assert_true(job_on_exited(f->book, full->tasks[i].id, 0, f->now_us));
    job_book_step(f->book, f->now_us);
    for (size_t i = 0; i < 4; i++)
        if (job_find(f->book, names[i])->state == JOB_STARTING)
            snprintf(got + strlen(got), sizeof(got) - strlen(got), "%s ", names[i]);
    assert_string_equal(got, starts);
}

static void a_queue_tries_its_jobs_first_in_first_out(void **state)
{
    /* wide waits for long's end at 100 s; short, over by 15 s, delays it not; unknown may. */
    check_order(*state, QUEUE_ORDER_FIFO, "long short ");
}

static void a_queue_tries_the_shortest_estimate_first(void **state)
{
    check_order(*state, QUEUE_ORDER_SRTF, "wide "); /* 6, 10, 100 s */
}

static void a_queue_tries_the_least_estimate_times_cards_first(void **state)
{
    /* 10, 4 x 6 = 24, 100 s: wide waits for short's end at 10 s, and the others are longer. */
    check_order(*state, QUEUE_ORDER_SRSF, "short ");
}

static void jobs_without_an_estimate_come_last_where_the_order_needs_one(void **state)
{
    struct fixture *f = *state;
    const struct queue_conf queue = {.name = "q", .weight = 1, .order = QUEUE_ORDER_SRTF};
    struct job *full, *unknown, *known, *urgent;

    job_book_set_queues(f->book, &queue, 1);
    full = submit_cards(f, "full", "\"queue\":\"q\",", 4);
    all_started(f, full);
    unknown = submit_cards(f, "unknown", "\"queue\":\"q\",", 2);
    known = submit_cards(f, "known", "\"queue\":\"q\",\"estimate_s\":9000,", 2);
    urgent = submit_cards(f, "urgent", "\"queue\":\"q\",\"priority\":1,", 2);
    for (size_t i = 0; i < 4; i++)
        assert_true(job_on_exited(f->book, full->tasks[i].id, 0, f->now_us));
    job_book_step(f->book, f->now_us);
    assert_int_equal(urgent->state, JOB_STARTING); /* priority stays above all orders */
    assert_int_equal(known->state, JOB_STARTING);
    assert_int_equal(unknown->state, JOB_WAITING);
}

/* One card jobs of 10 s each without end in a queue, a gang of all cards in another: the gang
 * starts when those that ran at its limit of 60 s have ended, 10 s later at most. */
static void a_gang_starts_soon_after_its_longest_wait_whatever_others_submit(void **state)
{
    struct fixture *f = *state;
    const struct queue_conf queues[] = {{.name = "stream", .weight = 1000},
                                        {.name = "q", .weight = 1, .max_wait_s = 60}};
    struct job *run[4] = {0}, *big;
    uint64_t ends_us[4], big_us;
    int n = 0;

    job_book_set_queues(f->book, queues, 2);
    for (int i = 0; i < 4; i++) {
        char name[16];

        snprintf(name, sizeof(name), "s%d", n++);
        run[i] = submit_cards(f, name, "\"queue\":\"stream\",", 1);
        all_started(f, run[i]);
        ends_us[i] = f->now_us + (uint64_t)(i + 7) * US_PER_S;
    }
    big = submit_cards(f, "big", "\"queue\":\"q\",", 4);
    big_us = f->now_us;
    while (big->state != JOB_STARTING) {
        assert_true(f->now_us <= big_us + 70 * US_PER_S);
        f->now_us += US_PER_S;
        for (int i = 0; i < 4; i++) {
            char name[16];

            if (run[i] == NULL || f->now_us < ends_us[i])
                continue;
            snprintf(name, sizeof(name), "s%d", n++);
            submit_cards(f, name, "\"queue\":\"stream\",", 1); /* there is always a next one */
            exited(f, run[i], 0, 0);
            run[i] = job_find(f->book, name);
            if (run[i]->state != JOB_STARTING) {
                assert_true(f->now_us >= big_us + 60 * US_PER_S);
                run[i] = NULL;
                continue;
            }
            all_started(f, run[i]);
            ends_us[i] = f->now_us + 10 * US_PER_S;
        }
    }
    assert_true(f->now_us >= big_us + 60 * US_PER_S);
}

static void higher_priority_goes_first_and_age_decides_among_equals(void **state)
{
    struct fixture *f = *state;
    struct job *now = submit_cards(f, "now", "", 4);
    struct job *old = submit_cards(f, "old", "", 4);
    struct job *high = submit_cards(f, "high", "\"priority\":5,", 4);
    struct job *high2 = submit_cards(f, "high2", "\"priority\":5,", 4);

    assert_int_equal(high->state, JOB_WAITING);
    assert_int_equal(old->state, JOB_QUEUED);
    for (size_t i = 0; i < 4; i++)
        exited(f, now, i, 0);
    assert_int_equal(high->state, JOB_STARTING);
    for (size_t i = 0; i < 4; i++)
        exited(f, high, i, 0);
    assert_int_equal(high2->state, JOB_STARTING);
    for (size_t i = 0; i < 4; i++)
        exited(f, high2, i, 0);
    assert_int_equal(old->state, JOB_STARTING);
}

static void another_queue_is_not_held_up(void **state)
{
    struct fixture *f = *state;
    struct job *a = submit_cards(f, "a", "", 2), *big = submit_cards(f, "big", "", 4);
    struct job *other = submit_cards(f, "other", "\"queue\":\"q2\",", 2);

    assert_int_equal(a->state, JOB_STARTING);
    assert_int_equal(big->state, JOB_WAITING);
    assert_int_equal(other->state, JOB_STARTING);
}

static void the_queue_that_holds_less_per_weight_goes_first(void **state)
{
    struct fixture *f = *state;
    const struct queue_conf queues[] = {{.name = "light", .weight = 1},
                                        {.name = "heavy", .weight = 3}};
    struct job *first, *l2, *h2;

    job_book_set_queues(f->book, queues, 2);
    first = submit_cards(f, "first", "\"queue\":\"x\",", 2);
    submit_cards(f, "l1", "\"queue\":\"light\",", 1);
    submit_cards(f, "h1", "\"queue\":\"heavy\",", 1);
    l2 = submit_cards(f, "l2", "\"queue\":\"light\",", 1);
    h2 = submit_cards(f, "h2", "\"queue\":\"heavy\",", 1);
    assert_int_equal(l2->state, JOB_WAITING);
    assert_int_equal(h2->state, JOB_WAITING);
    exited(f, first, 0, 0);
    assert_int_equal(h2->state, JOB_STARTING); /* 1 of weight 3 is less than 1 of weight 1 */
    assert_int_equal(l2->state, JOB_WAITING);
}

static void a_queue_never_holds_more_than_its_cap(void **state)
{
    struct fixture *f = *state;
    const struct queue_conf queues[] = {{.name = "q", .weight = 1, .gpu_milli_cap = 2000}};
    struct job *jobs[4], *over;

    job_book_set_queues(f->book, queues, 1);
    over = submit_cards(f, "over", "\"queue\":\"q\",", 3);
    assert_says(over->why, "can never start");
    assert_says(over->why, "3000 milli");
    for (int i = 0; i < 4; i++) {
        char name[8];

        snprintf(name, sizeof(name), "j%d", i);
        jobs[i] = submit_cards(f, name, "\"queue\":\"q\",", 1);
    }
    assert_int_equal(jobs[1]->state, JOB_STARTING);
    assert_int_equal(jobs[2]->state, JOB_WAITING);
    assert_says(jobs[2]->why, "queue q holds 2000 of at most 2000");
    exited(f, jobs[0], 0, 0);
    assert_int_equal(jobs[2]->state, JOB_STARTING); /* one more, not two */
    assert_int_equal(jobs[3]->state, JOB_WAITING);
    assert_int_equal(cards_in_use(f), 2);
}

/* The low one goes, waits again, and starts anew. */
static void a_higher_priority_ends_a_lower_one_where_the_queue_says_so(void **state)
{
    struct fixture *f = *state;
    const struct queue_conf queues[] = {
        {.name = "q", .weight = 1, .preempt = true, .min_run_s = 60}};
    struct job *low, *low2, *high;

    job_book_set_queues(f->book, queues, 1);
    low = submit_cards(f, "low", "\"queue\":\"q\",\"retries\":0,", 2);
    all_started(f, low);
    f->now_us += 10 * US_PER_S;
    low2 = submit_cards(f, "low2", "\"queue\":\"q\",", 2);
    all_started(f, low2);
    f->now_us += 30 * US_PER_S;
    high = submit_cards(f, "high", "\"queue\":\"q\",\"priority\":1,", 2);
    assert_int_equal(high->state, JOB_WAITING); /* both have run less than their minute */
    assert_int_equal(f->n_stopped, 0);
    assert_int_equal(job_book_next_us(f->book), low->start_us + 60 * US_PER_S);

    f->now_us += 25 * US_PER_S;
    job_book_step(f->book, f->now_us);
    job_book_step(f->book, f->now_us); /* a second look ends nobody else */
    assert_int_equal(low->state, JOB_STOPPING);
    assert_int_equal(low2->state, JOB_RUNNING); /* protected for 5 s more */
    assert_int_equal(f->n_stopped, 2);
    assert_says(high->why, "1 job has ended to make room");
    exited(f, low, 0, -15);
    assert_int_equal(high->state, JOB_WAITING);
    exited(f, low, 1, -15);
    assert_int_equal(high->state, JOB_STARTING);
    assert_int_equal(low->state, JOB_WAITING);
    assert_int_equal(low->failures, 0);
    assert_int_equal(low->evictions, 1);
    exited(f, high, 0, 0);
    exited(f, high, 1, 0);
    assert_int_equal(low->state, JOB_STARTING); /* with its retries untouched */
    assert_int_equal(cards_in_use(f), 4);
}

/* maxRetry 3: five evictions are no failures, the fourth failure is the end. */
static void evictions_never_count_as_retries(void **state)
{
    struct fixture *f = *state;
    const struct queue_conf queues[] = {{.name = "q", .weight = 1, .preempt = true}};
    struct job *low;

    job_book_set_queues(f->book, queues, 1);
    low = submit_cards(f, "low", "\"queue\":\"q\",\"retries\":3,", 4);
    for (int i = 0; i < 5; i++) {
        char name[16];
        struct job *high;

        all_started(f, low);
        snprintf(name, sizeof(name), "high%d", i);
        high = submit_cards(f, name, "\"queue\":\"q\",\"priority\":1,", 1);
        for (size_t t = 0; t < 4; t++)
            exited(f, low, t, -15);
        assert_int_equal(high->state, JOB_STARTING);
        assert_int_equal(low->state, JOB_WAITING);
        exited(f, high, 0, 0);
        assert_int_equal(low->state, JOB_STARTING);
    }
    assert_int_equal(low->evictions, 5);
    assert_int_equal(low->failures, 0);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(low->state, JOB_STARTING);
        exited(f, low, 0, 1);
        for (size_t t = 1; t < 4; t++)
            exited(f, low, t, -15);
        f->now_us += 100 * US_PER_S;
        job_book_step(f->book, f->now_us);
    }
    assert_int_equal(low->state, JOB_FAILED);
    assert_int_equal(cards_in_use(f), 0);
}

/* a and b deserve two cards each. */
static void a_queue_takes_back_its_own_once_and_then_all_is_quiet(void **state)
{
    struct fixture *f = *state;
    const struct queue_conf queues[] = {{.name = "a", .weight = 1, .gpu_milli_deserved = 2000},
                                        {.name = "b", .weight = 1, .gpu_milli_deserved = 2000}};
    struct job *a[4], *b[3];
    int n_stopping = 0;

    job_book_set_queues(f->book, queues, 2);
    for (int i = 0; i < 4; i++) {
        char name[8];

        snprintf(name, sizeof(name), "a%d", i);
        a[i] = submit_cards(f, name, "\"queue\":\"a\",", 1);
        all_started(f, a[i]);
        f->now_us += US_PER_S;
    }
    b[0] = submit_cards(f, "b0", "\"queue\":\"b\",", 2);
    for (int i = 0; i < 4; i++)
        n_stopping += a[i]->state == JOB_STOPPING;
    assert_int_equal(n_stopping, 2);
    assert_int_equal(a[2]->state, JOB_STOPPING); /* the youngest have least to lose */
    assert_int_equal(a[3]->state, JOB_STOPPING);
    exited(f, a[2], 0, -15);
    exited(f, a[3], 0, -15);
    assert_int_equal(b[0]->state, JOB_STARTING);
    all_started(f, b[0]);
    b[1] = submit_cards(f, "b1", "\"queue\":\"b\",\"priority\":9,", 1);
    for (int i = 0; i < 100; i++) {
        f->now_us += 10 * US_PER_S;
        job_book_step(f->book, f->now_us);
    }
    assert_int_equal(f->n_stopped, 2); /* each queue holds what it deserves */
    assert_int_equal(b[1]->state, JOB_WAITING);
    assert_int_equal(a[2]->state, JOB_WAITING);
}

static void a_suspended_job_holds_nothing_until_it_is_resumed(void **state)
{
    struct fixture *f = *state;
    struct job *a = submit_cards(f, "a", "", 4), *b = submit_cards(f, "b", "", 4);

    all_started(f, a);
    assert_int_equal(job_suspend(f->book, "a", f->now_us), JOB_OK);
    assert_int_equal(a->state, JOB_STOPPING);
    for (size_t i = 0; i < 4; i++)
        exited(f, a, i, -15);
    assert_int_equal(a->state, JOB_SUSPENDED);
    assert_int_equal(a->failures, 0);
    assert_int_equal(b->state, JOB_STARTING);
    for (size_t i = 0; i < 4; i++)
        exited(f, b, i, 0);
    assert_int_equal(cards_in_use(f), 0); /* a does not start by itself */
    assert_int_equal(job_resume(f->book, "b", f->now_us), JOB_E_ENDED);
    assert_int_equal(job_resume(f->book, "a", f->now_us), JOB_OK);
    job_book_step(f->book, f->now_us);
    assert_int_equal(a->state, JOB_STARTING);
    assert_int_equal(job_suspend(f->book, "none", f->now_us), JOB_E_UNKNOWN);
    assert_int_equal(job_suspend(f->book, "b", f->now_us), JOB_E_ENDED);
    assert_int_equal(job_cancel(f->book, "a", "enough", f->now_us), JOB_OK);
    assert_int_equal(job_suspend(f->book, "a", f->now_us), JOB_E_ENDED); /* it is ending for good */
}

static void a_suspended_waiting_job_lets_the_next_pass(void **state)
{
    struct fixture *f = *state;
    struct job *a = submit_cards(f, "a", "", 2), *big = submit_cards(f, "big", "", 4);
    struct job *small = submit_cards(f, "small", "", 2);

    assert_int_equal(small->state, JOB_QUEUED);
    assert_int_equal(job_suspend(f->book, "big", f->now_us), JOB_OK);
    job_book_step(f->book, f->now_us);
    assert_int_equal(big->state, JOB_SUSPENDED);
    assert_int_equal(small->state, JOB_STARTING);
    assert_int_equal(a->state, JOB_STARTING);
    assert_int_equal(job_cancel(f->book, "big", "no more", f->now_us), JOB_OK);
    assert_int_equal(big->state, JOB_CANCELLED);
}

static void of_a_suspended_job_without_gang_what_has_ended_stays_ended(void **state)
{
    struct fixture *f = *state;
    struct job *a =
        submit(f, "{\"job\":\"a\",\"tasks\":[{\"role\":\"w\",\"count\":2,\"command\":[\"x\"],"
                  "\"gpu\":{\"milli\":1000}}]}");

    all_started(f, a);
    exited(f, a, 0, 0);
    assert_int_equal(job_suspend(f->book, "a", f->now_us), JOB_OK);
    exited(f, a, 1, -15);
    assert_int_equal(a->state, JOB_SUSPENDED);
    assert_int_equal(job_resume(f->book, "a", f->now_us), JOB_OK);
    job_book_step(f->book, f->now_us);
    assert_int_equal(a->tasks[0].state, TASK_SUCCEEDED);
    assert_int_equal(a->tasks[1].state, TASK_STARTING);
    exited(f, a, 1, 0);
    assert_int_equal(a->state, JOB_SUCCEEDED);
}

/* It runs by name only: one task has ended, the other waits for room. */
static void a_job_of_which_nothing_runs_just_now_can_be_suspended(void **state)
{
    struct fixture *f = *state;
    struct job *all = submit_cards(f, "all", "", 3);
    struct job *a =
        submit(f, "{\"job\":\"a\",\"tasks\":[{\"role\":\"w\",\"count\":2,\"command\":[\"x\"],"
                  "\"gpu\":{\"milli\":1000}}]}");
    struct job *next;

    all_started(f, all);
    started(f, a, 0);
    next = submit_cards(f, "next", "\"queue\":\"q\",", 1);
    exited(f, a, 0, 0); /* queue q holds least: its job gets the card */
    assert_int_equal(next->state, JOB_STARTING);
    assert_int_equal(a->tasks[1].state, TASK_PENDING);
    assert_int_equal(job_suspend(f->book, "a", f->now_us), JOB_OK);
    assert_int_equal(a->state, JOB_SUSPENDED);
    exited(f, next, 0, 0);
    assert_int_equal(a->tasks[1].state, TASK_PENDING);
    assert_int_equal(job_resume(f->book, "a", f->now_us), JOB_OK);
    job_book_step(f->book, f->now_us);
    exited(f, a, 1, 0);
    assert_int_equal(a->state, JOB_SUCCEEDED);
}

static void a_job_that_runs_too_long_fails_and_gives_all_back(void **state)
{
    struct fixture *f = *state;
    struct job *a = submit_cards(f, "a", "\"max_run_s\":60,\"retries\":5,", 2);

    all_started(f, a);
    assert_int_equal(job_book_next_us(f->book), a->start_us + 60 * US_PER_S);
    f->now_us += 59 * US_PER_S;
    job_book_step(f->book, f->now_us);
    assert_int_equal(a->state, JOB_RUNNING);
    f->now_us += US_PER_S;
    job_book_step(f->book, f->now_us);
    assert_int_equal(a->state, JOB_STOPPING);
    exited(f, a, 0, -15);
    exited(f, a, 1, -15);
    assert_int_equal(a->state, JOB_FAILED);
    assert_says(a->why, "max_run_s of 60 s");
    assert_int_equal(cards_in_use(f), 0);
}

static void a_queue_says_what_it_holds_and_who_waits(void **state)
{
    struct fixture *f = *state;
    const struct queue_conf queues[] = {
        {.name = "q", .weight = 3, .gpu_milli_cap = 3000, .gpu_milli_deserved = 2000}};
    struct job_queue_use use;

    job_book_set_queues(f->book, queues, 1);
    submit_cards(f, "a", "\"queue\":\"q\",", 2);
    submit_cards(f, "b", "\"queue\":\"q\",", 2);
    f->now_us += 7 * US_PER_S;
    submit_cards(f, "c", "\"queue\":\"q\",", 1);
    assert_int_equal(job_suspend(f->book, "c", f->now_us), JOB_OK);
    assert_int_equal(job_book_n_queues(f->book), 1);
    use = job_book_queue_use(f->book, 0, f->now_us);
    assert_string_equal(use.name, "q");
    assert_int_equal(use.weight, 3);
    assert_int_equal(use.gpu_milli_cap, 3000);
    assert_int_equal(use.gpu_milli_deserved, 2000);
    assert_int_equal(use.used_gpu_milli, 2000);
    assert_int_equal(use.n_running, 1);
    assert_int_equal(use.n_waiting, 1);
    assert_int_equal(use.n_suspended, 1);
    assert_int_equal(use.oldest_wait_us, 7 * US_PER_S);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_waiting_gang_is_not_overtaken_in_its_queue),
        TEST(a_short_job_starts_before_a_waiting_gang_when_it_ends_in_time),
        TEST(a_job_that_wants_other_cards_is_not_held_up_by_its_queue),
        TEST(a_queue_tries_its_jobs_first_in_first_out),
        TEST(a_queue_tries_the_shortest_estimate_first),
        TEST(a_queue_tries_the_least_estimate_times_cards_first),
        TEST(jobs_without_an_estimate_come_last_where_the_order_needs_one),
        TEST(a_gang_starts_soon_after_its_longest_wait_whatever_others_submit),
        TEST(higher_priority_goes_first_and_age_decides_among_equals),
        TEST(another_queue_is_not_held_up),
        TEST(the_queue_that_holds_less_per_weight_goes_first),
        TEST(a_queue_never_holds_more_than_its_cap),
        TEST(a_higher_priority_ends_a_lower_one_where_the_queue_says_so),
        TEST(evictions_never_count_as_retries),
        TEST(a_queue_takes_back_its_own_once_and_then_all_is_quiet),
        TEST(a_suspended_job_holds_nothing_until_it_is_resumed),
        TEST(a_suspended_waiting_job_lets_the_next_pass),
        TEST(of_a_suspended_job_without_gang_what_has_ended_stays_ended),
        TEST(a_job_of_which_nothing_runs_just_now_can_be_suspended),
        TEST(a_job_that_runs_too_long_fails_and_gives_all_back),
        TEST(a_queue_says_what_it_holds_and_who_waits),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
