/* The job book under a virtual clock: effects are recorded, ends are told by the test. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/rng.h"
#include "base/xalloc.h"
#include "placer/job.h"

struct fixture {
    struct cluster_view view;
    struct job_book *book;
    uint64_t now_us;
    int n_prepared, n_started, n_stopped, n_changes;
    const char *refuse_start;   /* name of a task whose start fails */
    const char *refuse_prepare; /* likewise */
};

static int fake_prepare(void *arg, struct job_task *task, struct err *err)
{
    struct fixture *f = arg;

    if (f->refuse_prepare != NULL && strcmp(task->name, f->refuse_prepare) == 0)
        return err_set(err, -EADDRINUSE, "no free port");
    snprintf(task->address, sizeof(task->address), "127.0.0.1:%d", 10000 + f->n_prepared++);
    return 0;
}

static int fake_start(void *arg, struct job_task *task, struct err *err)
{
    struct fixture *f = arg;

    if (f->refuse_start != NULL && strcmp(task->name, f->refuse_start) == 0)
        return err_set(err, -ENOENT, "no such program");
    for (size_t i = 0; i < task->job->n_tasks; i++) /* each knows the address of all */
        if (task->job->spec->gang)
            assert_string_not_equal(task->job->tasks[i].address, "");
    f->n_started++;
    return 0;
}

static void fake_stop(void *arg, struct job_task *task, uint64_t grace_us)
{
    struct fixture *f = arg;

    assert_true(grace_us > 0 && task->state == TASK_STOPPING);
    f->n_stopped++;
}

static void fake_changed(void *arg, struct job *job, bool is_new_state)
{
    struct fixture *f = arg;

    assert_true(job->why[0] != '\0');
    f->n_changes += is_new_state;
}

static int setup(void **state)
{
    struct fixture *f = xcalloc(1, sizeof(*f));
    const struct job_effects effects = {.arg = f,
                                        .prepare = fake_prepare,
                                        .start = fake_start,
                                        .stop = fake_stop,
                                        .changed = fake_changed};
    const struct node_spec node = {
        .name = "a",
        .cpu_milli = 8000,
        .memory_mib = 8192,
        .cards = {{"0", "T4", 16384}, {"1", "T4", 16384}, {"2", "T4", 16384}, {"3", "T4", 16384}},
        .n_cards = 4};

    cluster_view_init(&f->view);
    assert_int_equal(cluster_view_set_node(&f->view, &node, NULL), 0);
    f->book = job_book_new(&f->view, &effects);
    f->now_us = 100 * US_PER_S;
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;

    job_book_free(f->book);
    for (uint32_t c = 0; c < 4; c++)
        assert_int_equal(f->view.nodes[0].cards[c].used_milli, 0);
    assert_int_equal(f->view.nodes[0].used_cpu_milli, 0);
    cluster_view_fini(&f->view);
    free(f);
    return 0;
}

static struct job *submit(struct fixture *f, const char *json)
{
    struct conf_problems problems;
    struct job_spec *spec;
    struct job *job = NULL;

    conf_problems_init(&problems);
    spec = job_file_load("job.json", json, strlen(json), &problems);
    if (spec == NULL)
        fail_msg("%s", buf_cstr(&problems.text));
    conf_problems_fini(&problems);
    assert_int_equal(job_submit(f->book, spec, f->now_us, &job), JOB_OK);
    job_book_step(f->book, f->now_us);
    return job;
}

/* A gang of whole cards. */
static struct job *submit_cards(struct fixture *f, const char *name, const char *more, uint32_t n)
{
    char json[512];

    snprintf(json, sizeof(json),
             "{\"job\":\"%s\",\"gang\":true,%s\"tasks\":[{\"role\":\"worker\",\"count\":%u,"
             "\"command\":[\"x\"],\"gpu\":{\"milli\":1000}}]}",
             name, more, n);
    return submit(f, json);
}

static void started(struct fixture *f, struct job *job, size_t i)
{
    assert_true(job_on_started(f->book, job->tasks[i].id, 1234, f->now_us));
}

static void all_started(struct fixture *f, struct job *job)
{
    for (size_t i = 0; i < job->n_tasks; i++)
        started(f, job, i);
}

static void exited(struct fixture *f, struct job *job, size_t i, int status)
{
    assert_true(job_on_exited(f->book, job->tasks[i].id, status, f->now_us));
    job_book_step(f->book, f->now_us);
}

static void assert_says(const char *text, const char *part)
{
    if (strstr(text, part) == NULL)
        fail_msg("\"%s\" does not say \"%s\"", text, part);
}

static uint32_t cards_in_use(const struct fixture *f)
{
    uint32_t n = 0;

    for (uint32_t c = 0; c < 4; c++)
        n += f->view.nodes[0].cards[c].n_users;
    return n;
}

static void a_gang_starts_together_runs_and_succeeds(void **state)
{
    struct fixture *f = *state;
    struct job *job = submit_cards(f, "train", "", 3);

    assert_int_equal(job->state, JOB_STARTING);
    assert_int_equal(f->n_started, 3);
    assert_int_equal(cards_in_use(f), 3);
    started(f, job, 0);
    started(f, job, 1);
    assert_int_equal(job->state, JOB_STARTING);
    started(f, job, 2);
    assert_int_equal(job->state, JOB_RUNNING);
    assert_string_equal(job->why, "every task has started");
    exited(f, job, 0, 0);
    exited(f, job, 2, 0);
    assert_int_equal(job->state, JOB_RUNNING);
    assert_int_equal(cards_in_use(f), 1); /* an ended task gives back at once */
    exited(f, job, 1, 0);
    assert_int_equal(job->state, JOB_SUCCEEDED);
    assert_int_equal(job->failures, 0);
    assert_int_equal(f->n_changes, 4); /* submitted, starting, running, succeeded */
}

static void two_gangs_of_four_on_four_cards_run_one_after_the_other(void **state)
{
    struct fixture *f = *state;
    struct job *a = submit_cards(f, "a", "", 4), *b = submit_cards(f, "b", "", 4);

    assert_int_equal(a->state, JOB_STARTING);
    assert_int_equal(b->state, JOB_WAITING);
    assert_says(b->why, "0 of 1000 milli free");
    assert_int_equal(cards_in_use(f), 4); /* b holds nothing */
    all_started(f, a);
    for (size_t i = 0; i < 3; i++)
        exited(f, a, i, 0);
    assert_int_equal(b->state, JOB_WAITING);
    assert_int_equal(cards_in_use(f), 1);
    exited(f, a, 3, 0);
    assert_int_equal(a->state, JOB_SUCCEEDED);
    assert_int_equal(b->state, JOB_STARTING);
    assert_int_equal(f->n_started, 8);
}

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

static void a_job_that_can_never_fit_says_so_and_blocks_nobody(void **state)
{
    struct fixture *f = *state;
    struct job *never = submit_cards(f, "never", "", 5), *next = submit_cards(f, "next", "", 4);

    assert_int_equal(never->state, JOB_WAITING);
    assert_says(never->why, "can never start here");
    assert_int_equal(next->state, JOB_STARTING);
}

static void a_failed_task_stops_the_gang_and_all_start_again_after_the_back_off(void **state)
{
    struct fixture *f = *state;
    struct job *job = submit_cards(f, "train", "\"retries\":1,\"backoff_ms\":500,", 3);
    char first_id[64];

    all_started(f, job);
    snprintf(first_id, sizeof(first_id), "%s", job->tasks[0].id);
    exited(f, job, 1, 3);
    assert_int_equal(job->state, JOB_STOPPING);
    assert_int_equal(f->n_stopped, 2);
    assert_says(job->why, "worker-1 failed (exit status 3), retry 1 of 1");
    exited(f, job, 0, -15);
    assert_int_equal(job->state, JOB_STOPPING);
    exited(f, job, 2, -15);
    assert_int_equal(job->state, JOB_RETRYING);
    assert_int_equal(job->failures, 1); /* those that we ended are no failures */
    assert_int_equal(cards_in_use(f), 0);
    assert_int_equal(job_book_next_us(f->book), f->now_us + 500 * US_PER_MS);
    f->now_us += 499 * US_PER_MS;
    job_book_step(f->book, f->now_us);
    assert_int_equal(job->state, JOB_RETRYING);
    f->now_us += US_PER_MS;
    job_book_step(f->book, f->now_us);
    assert_int_equal(job->state, JOB_STARTING);
    assert_int_equal(f->n_started, 6);
    assert_true(job_book_next_us(f->book) == UINT64_MAX);
    assert_string_not_equal(job->tasks[0].id, first_id);
    assert_false(job_on_exited(f->book, first_id, 1, f->now_us)); /* of the try before */
    exited(f, job, 2, 1);
    exited(f, job, 0, 0);
    exited(f, job, 1, -9);
    assert_int_equal(job->state, JOB_FAILED);
    assert_says(job->why, "after 1 of 1 retries");
}

static void the_back_off_doubles_up_to_a_minute(void **state)
{
    struct fixture *f = *state;
    struct job *job = submit_cards(f, "train", "\"retries\":20,\"backoff_ms\":1000,", 1);
    const uint64_t waits_s[] = {1, 2, 4, 8, 16, 32, 60, 60, 60};

    for (size_t i = 0; i < ARRAY_LEN(waits_s); i++) {
        exited(f, job, 0, 1);
        assert_int_equal(job->state, JOB_RETRYING);
        assert_int_equal(job_book_next_us(f->book) - f->now_us, waits_s[i] * US_PER_S);
        f->now_us += waits_s[i] * US_PER_S;
        job_book_step(f->book, f->now_us);
    }
    assert_int_equal(job_cancel(f->book, "train", "enough", f->now_us), JOB_OK);
    exited(f, job, 0, -15);
}

static void services_are_stopped_when_the_others_have_succeeded(void **state)
{
    struct fixture *f = *state;
    struct job *job = submit(f, "{\"job\":\"j\",\"gang\":true,\"tasks\":["
                                "{\"role\":\"ps\",\"command\":[\"x\"]},"
                                "{\"role\":\"worker\",\"count\":2,\"command\":[\"x\"]}]}");

    all_started(f, job);
    exited(f, job, 1, 0);
    assert_int_equal(f->n_stopped, 0);
    exited(f, job, 2, 0);
    assert_int_equal(f->n_stopped, 1);
    assert_int_equal(job->state, JOB_STOPPING);
    assert_int_equal(job_cancel(f->book, "j", "enough", f->now_us), JOB_E_ENDED);
    exited(f, job, 0, -15);
    assert_int_equal(job->state, JOB_SUCCEEDED);
    assert_int_equal(job->tasks[0].state, TASK_STOPPED);
}

static void a_failed_service_fails_its_gang(void **state)
{
    struct fixture *f = *state;
    struct job *job = submit(f, "{\"job\":\"j\",\"gang\":true,\"tasks\":["
                                "{\"role\":\"ps\",\"command\":[\"x\"]},"
                                "{\"role\":\"worker\",\"command\":[\"x\"]}]}");

    all_started(f, job);
    exited(f, job, 0, 1);
    exited(f, job, 1, 1);
    assert_int_equal(job->state, JOB_FAILED);
    assert_int_equal(job->failures, 1);
}

static void without_gang_tasks_start_as_room_comes_and_fail_alone(void **state)
{
    struct fixture *f = *state;
    struct job *job = submit(f, "{\"job\":\"sweep\",\"retries\":1,\"tasks\":[{\"role\":\"run\","
                                "\"count\":6,\"command\":[\"x\"],\"gpu\":{\"milli\":1000}}]}");

    assert_int_equal(f->n_started, 4);
    assert_says(job->why, "some tasks run, the rest waits for room");
    for (size_t i = 0; i < 4; i++)
        started(f, job, i);
    assert_int_equal(job->state, JOB_RUNNING);
    assert_says(job->why, "some tasks run, the rest waits for room");
    exited(f, job, 0, 0);
    assert_int_equal(f->n_started, 5);
    exited(f, job, 1, 7); /* its retry and the sixth wait for the back-off */
    assert_int_equal(f->n_stopped, 0);
    assert_int_equal(f->n_started, 5);
    f->now_us += US_PER_S;
    job_book_step(f->book, f->now_us);
    assert_int_equal(f->n_started, 6);
    exited(f, job, 2, 0);
    assert_int_equal(f->n_started, 7);
    for (size_t i = 0; i < 6; i++)
        if (job->tasks[i].state != TASK_SUCCEEDED)
            exited(f, job, i, 0);
    assert_int_equal(job->state, JOB_SUCCEEDED);
    assert_int_equal(job->failures, 1);
}

static void cancel_ends_a_job_wherever_it_is(void **state)
{
    struct fixture *f = *state;
    struct job *run = submit_cards(f, "run", "\"retries\":3,", 4);
    struct job *wait = submit_cards(f, "wait", "", 1), *queued = submit_cards(f, "queued", "", 1);

    assert_int_equal(job_cancel(f->book, "nobody", "enough", f->now_us), JOB_E_UNKNOWN);
    assert_int_equal(job_cancel(f->book, "queued", "enough", f->now_us), JOB_OK);
    assert_int_equal(job_cancel(f->book, "wait", "enough", f->now_us), JOB_OK);
    assert_int_equal(queued->state, JOB_CANCELLED);
    assert_int_equal(wait->state, JOB_CANCELLED);
    all_started(f, run);
    exited(f, run, 3, 1); /* stopping, to be tried again */
    assert_int_equal(job_cancel(f->book, "run", "enough", f->now_us), JOB_OK);
    for (size_t i = 0; i < 3; i++)
        exited(f, run, i, -15);
    assert_int_equal(run->state, JOB_CANCELLED);
    assert_int_equal(job_cancel(f->book, "run", "enough", f->now_us), JOB_E_ENDED);

    run = submit_cards(f, "run", "\"retries\":3,", 1);
    exited(f, run, 0, 1);
    assert_int_equal(run->state, JOB_RETRYING);
    assert_int_equal(job_cancel(f->book, "run", "enough", f->now_us), JOB_OK);
    assert_int_equal(run->state, JOB_CANCELLED);
    assert_true(job_book_next_us(f->book) == UINT64_MAX);
}

static void a_start_that_fails_takes_the_whole_gang_back(void **state)
{
    struct fixture *f = *state;
    struct job *job;

    f->refuse_start = "worker-1";
    job = submit_cards(f, "train", "\"retries\":2,", 4);
    assert_int_equal(f->n_started, 1); /* worker-0; 2 and 3 never begin */
    assert_int_equal(f->n_stopped, 1);
    assert_int_equal(cards_in_use(f), 1);
    assert_int_equal(job->state, JOB_STOPPING);
    assert_says(job->why, "worker-1 failed (no such program)");
    exited(f, job, 0, -15);
    assert_int_equal(job->state, JOB_RETRYING);

    f->refuse_start = NULL;
    f->refuse_prepare = "worker-2";
    f->now_us += US_PER_S;
    job_book_step(f->book, f->now_us);
    assert_int_equal(f->n_started, 1);
    assert_int_equal(job->state, JOB_RETRYING);
    assert_int_equal(cards_in_use(f), 0);
    f->refuse_prepare = NULL;
    f->now_us += 10 * US_PER_S;
    job_book_step(f->book, f->now_us);
    assert_int_equal(f->n_started, 5);
    for (size_t i = 0; i < 4; i++)
        exited(f, job, i, 0);
    assert_int_equal(job->state, JOB_SUCCEEDED);
}

static void a_driver_that_cannot_run_a_task_is_a_failure_of_it(void **state)
{
    struct fixture *f = *state;
    struct job *job = submit_cards(f, "train", "", 2);

    assert_true(job_on_failed(f->book, job->tasks[1].id, "no image", f->now_us));
    exited(f, job, 0, -15);
    assert_int_equal(job->state, JOB_FAILED);
    assert_says(job->why, "no image");
}

static void a_name_is_free_again_when_its_job_has_ended(void **state)
{
    struct fixture *f = *state;
    struct job *a = submit_cards(f, "a", "", 1), *again;
    struct conf_problems problems;
    const char *json = a->spec->json;
    struct job_spec *spec;

    conf_problems_init(&problems);
    spec = job_file_load("job.json", json, strlen(json), &problems);
    assert_non_null(spec);
    assert_int_equal(job_submit(f->book, spec, f->now_us, NULL), JOB_E_EXISTS);
    exited(f, a, 0, 0);
    assert_int_equal(job_submit(f->book, spec, f->now_us, &again), JOB_OK);
    assert_true(again->number > a->number);
    assert_ptr_equal(job_find(f->book, "a"), again);
    assert_string_not_equal(again->tasks[0].log, a->tasks[0].log);
    conf_problems_fini(&problems);
}

static void count_job(void *arg, struct job *job)
{
    (void)job;
    ++*(size_t *)arg;
}

static void ended_jobs_are_forgotten_oldest_first(void **state)
{
    struct fixture *f = *state;
    size_t n = 0;

    for (int i = 0; i < JOB_ENDED_KEPT + 50; i++) {
        char name[16];

        snprintf(name, sizeof(name), "j%d", i);
        exited(f, submit_cards(f, name, "", 1), 0, 0);
    }
    job_book_each(f->book, count_job, &n);
    assert_int_equal(n, JOB_ENDED_KEPT);
    assert_null(job_find(f->book, "j0"));
    assert_non_null(job_find(f->book, "j249"));
}

/* ---- job files ---- */

static void assert_refused(const char *json, const char *part, const char *rule)
{
    struct conf_problems problems;

    conf_problems_init(&problems);
    assert_null(job_file_load("job.json", json, strlen(json), &problems));
    assert_true(problems.n > 0);
    assert_says(buf_cstr(&problems.text), part);
    assert_says(buf_cstr(&problems.text), rule);
    conf_problems_fini(&problems);
}

static void bad_job_files_name_pointer_value_and_rule(void **state)
{
    (void)state;
    assert_refused("{", "job.json", "not JSON");
    assert_refused("{\"job\":\"a\"}", "job.json#/tasks", "required");
    assert_refused("{\"job\":\"a/b\",\"tasks\":[{\"role\":\"w\",\"command\":[\"x\"]}]}",
                   "job.json#/job", "\"a/b\"");
    assert_refused(
        "{\"job\":\"a\",\"gangs\":true,\"tasks\":[{\"role\":\"w\",\"command\":[\"x\"]}]}",
        "job.json#/gangs", "nearest: gang");
    assert_refused("{\"job\":\"a\",\"tasks\":[{\"role\":\"w\",\"command\":[]}]}",
                   "job.json#/tasks/0/command", "limit of 1");
    assert_refused("{\"job\":\"a\",\"tasks\":[{\"role\":\"w\",\"command\":[\"{adress}\"]}]}",
                   "job.json#/tasks/0/command/0", "{address}");
    assert_refused("{\"job\":\"a\",\"tasks\":[{\"role\":\"w\",\"count\":0,\"command\":[\"x\"]}]}",
                   "job.json#/tasks/0/count", "0 is under the limit of 1");
    assert_refused("{\"job\":\"a\",\"tasks\":[{\"role\":\"w\",\"command\":[\"x\"]},"
                   "{\"role\":\"w\",\"command\":[\"x\"]}]}",
                   "job.json#/tasks/1/role", "role of tasks/0 too");
    assert_refused("{\"job\":\"a\",\"tasks\":[{\"role\":\"w\",\"command\":[\"x\"],"
                   "\"gpu\":{\"milli\":1500,\"memory_mib\":1}}]}",
                   "job.json#/tasks/0/gpu", "multiple of 1000");
    assert_refused("{\"job\":\"a\",\"tasks\":[{\"role\":\"ps\",\"command\":[\"x\"]}]}",
                   "job.json#/tasks", "never end");
    assert_refused("{\"job\":\"a\",\"tasks\":[{\"role\":\"w\",\"command\":[\"x\"],"
                   "\"env\":{\"A-B\":\"1\"}}]}",
                   "job.json#/tasks/0/env", "environment variable");
    assert_refused("{\"job\":\"a\",\"tasks\":[{\"role\":\"w\",\"count\":4000,\"command\":[\"x\"]},"
                   "{\"role\":\"v\",\"count\":4000,\"command\":[\"x\"]}]}",
                   "job.json#/tasks", "8000 tasks together is over the limit of 4096");
}

static void braces_of_shells_and_json_are_left_alone(void **state)
{
    struct fixture *f = *state;

    submit(f, "{\"job\":\"a\",\"tasks\":[{\"role\":\"w\",\"command\":"
              "[\"sh\",\"-c\",\"echo ${home} {rank} x{2} {\\\"a\\\":1} | awk '{ print }'\"]}]}");
}

/* ---- random histories ---- */

struct tally {
    uint64_t gpu_milli;
};

static void check_job(void *arg, struct job *job)
{
    struct tally *t = arg;
    size_t n_active = 0, n_placed = 0;

    for (size_t i = 0; i < job->n_tasks; i++) {
        const struct job_task *task = &job->tasks[i];
        const bool active = task->state == TASK_STARTING || task->state == TASK_RUNNING ||
                            task->state == TASK_STOPPING;

        assert_int_equal(active, task->placed);
        n_active += active;
        n_placed += task->placed;
        if (task->placed)
            t->gpu_milli += task->placement.gpu_milli * task->placement.n_cards;
    }
    if (job->state == JOB_QUEUED || job->state == JOB_WAITING || job->state == JOB_RETRYING ||
        job_state_is_final(job->state))
        assert_int_equal(n_placed, 0);
    if (job->state == JOB_STOPPING)
        assert_true(n_active > 0);
    if (job->spec->gang && job->state == JOB_STARTING)
        for (size_t i = 0; i < job->n_tasks; i++)
            assert_int_not_equal(job->tasks[i].state, TASK_PENDING);
}

static void check_book(struct fixture *f)
{
    struct tally t = {0};
    uint64_t used = 0;

    job_book_each(f->book, check_job, &t);
    for (uint32_t c = 0; c < 4; c++)
        used += f->view.nodes[0].cards[c].used_milli;
    assert_int_equal(t.gpu_milli, used);
    assert_true(used <= 4000);
}

struct pick {
    struct rng *rng;
    struct job_task *task;
    uint64_t n;
};

static void pick_active(void *arg, struct job *job)
{
    struct pick *p = arg;

    for (size_t i = 0; i < job->n_tasks; i++)
        if (job->tasks[i].placed && rng_below(p->rng, ++p->n) == 0)
            p->task = &job->tasks[i];
}

static void random_step(struct fixture *f, struct rng *rng, uint32_t *n_jobs)
{
    struct pick p = {.rng = rng};
    char json[512], name[16];

    f->now_us += rng_below(rng, 3 * US_PER_S);
    switch (rng_below(rng, 6)) {
    case 0:
        snprintf(json, sizeof(json),
                 "{\"job\":\"j%u\",\"gang\":%s,\"retries\":%u,\"priority\":%u,\"queue\":\"q%u\","
                 "\"tasks\":[{\"role\":\"ps\",\"command\":[\"x\"],\"cpu_milli\":%u},{\"role\":"
                 "\"w\",\"count\":%u,\"command\":[\"x\"],\"gpu\":{\"milli\":%u}}]}",
                 (*n_jobs)++, rng_below(rng, 2) ? "true" : "false", (unsigned)rng_below(rng, 3),
                 (unsigned)rng_below(rng, 3), (unsigned)rng_below(rng, 2),
                 (unsigned)rng_below(rng, 3000), 1 + (unsigned)rng_below(rng, 5),
                 rng_below(rng, 2) ? 1000 : 250);
        submit(f, json);
        break;
    case 1:
        snprintf(name, sizeof(name), "j%u", (unsigned)rng_below(rng, *n_jobs + 1));
        job_cancel(f->book, name, "enough", f->now_us);
        break;
    default:
        job_book_each(f->book, pick_active, &p);
        if (p.task == NULL)
            break;
        if (p.task->state == TASK_STARTING && rng_below(rng, 2) == 0)
            job_on_started(f->book, p.task->id, 1, f->now_us);
        else
            job_on_exited(f->book, p.task->id, rng_below(rng, 4) == 0 ? 1 : 0, f->now_us);
        break;
    }
    job_book_step(f->book, f->now_us);
    check_book(f);
}

static void random_histories_hold_the_invariants_and_come_to_an_end(void **state)
{
    struct rng rng;

    (void)state;
    rng_init(&rng, 5);
    for (int round = 0; round < 40; round++) {
        struct fixture *f;
        uint32_t n_jobs = 0;
        void *p;

        setup(&p);
        f = p;
        for (int i = 0; i < 400; i++)
            random_step(f, &rng, &n_jobs);
        /* From here every task succeeds: every job that fits comes to its end. */
        for (int i = 0; i < 20000; i++) {
            struct pick pick = {.rng = &rng};

            f->now_us += US_PER_S;
            job_book_step(f->book, f->now_us);
            job_book_each(f->book, pick_active, &pick);
            if (pick.task == NULL && job_book_next_us(f->book) == UINT64_MAX)
                break;
            if (pick.task != NULL)
                job_on_exited(f->book, pick.task->id, 0, f->now_us);
        }
        for (uint32_t i = 0; i < n_jobs; i++) {
            char name[16];
            struct job *job;

            snprintf(name, sizeof(name), "j%u", i);
            job = job_find(f->book, name);
            if (job != NULL && !job_state_is_final(job->state))
                assert_says(job->why, "can never start here");
        }
        teardown(&p);
    }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_gang_starts_together_runs_and_succeeds),
        TEST(two_gangs_of_four_on_four_cards_run_one_after_the_other),
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
        TEST(a_job_that_runs_too_long_fails_and_gives_all_back),
        TEST(a_queue_says_what_it_holds_and_who_waits),
        TEST(a_job_that_can_never_fit_says_so_and_blocks_nobody),
        TEST(a_failed_task_stops_the_gang_and_all_start_again_after_the_back_off),
        TEST(the_back_off_doubles_up_to_a_minute),
        TEST(services_are_stopped_when_the_others_have_succeeded),
        TEST(a_failed_service_fails_its_gang),
        TEST(without_gang_tasks_start_as_room_comes_and_fail_alone),
        TEST(cancel_ends_a_job_wherever_it_is),
        TEST(a_start_that_fails_takes_the_whole_gang_back),
        TEST(a_driver_that_cannot_run_a_task_is_a_failure_of_it),
        TEST(a_name_is_free_again_when_its_job_has_ended),
        TEST(ended_jobs_are_forgotten_oldest_first),
        TEST(bad_job_files_name_pointer_value_and_rule),
        TEST(braces_of_shells_and_json_are_left_alone),
        TEST(random_histories_hold_the_invariants_and_come_to_an_end),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
