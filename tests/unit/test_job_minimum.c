/* Gangs that start with a part of their tasks, and dry runs, under a virtual clock. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/xalloc.h"
#include "placer/job.h"
#include "placer/job_dry_run.h"

struct fixture {
    struct cluster_view view; /* node a: 4 cards */
    struct job_book *book;
    uint64_t now_us;
    unsigned n_started;
};

static int fake_prepare(void *arg, struct job_task *task, struct err *err)
{
    (void)arg;
    (void)err;
    snprintf(task->address, sizeof(task->address), "127.0.0.1:1");
    return 0;
}

static int fake_start(void *arg, struct job_task *task, struct err *err)
{
    struct fixture *const f = arg;

    (void)task;
    (void)err;
    f->n_started++;
    return 0;
}

static void fake_stop(void *arg, struct job_task *task, uint64_t grace_us)
{
    (void)arg;
    (void)task;
    (void)grace_us;
}

static void set_cards(struct fixture *f, const char *name, uint32_t n_cards)
{
    static const char *const ids[] = {"0", "1", "2", "3"};
    struct node_spec node = {
        .name = name, .cpu_milli = 100000, .memory_mib = 100000, .n_cards = n_cards};

    for (uint32_t i = 0; i < n_cards; i++)
        node.cards[i] = (struct card_spec){ids[i], "T4", 16384};
    assert_true(cluster_view_set_node(&f->view, &node, NULL) >= 0);
}

static int setup(void **state)
{
    struct fixture *const f = xcalloc(1, sizeof(*f));
    const struct job_effects effects = {
        .arg = f, .prepare = fake_prepare, .start = fake_start, .stop = fake_stop};

    cluster_view_init(&f->view);
    set_cards(f, "a", 4);
    f->book = job_book_new(&f->view, &effects);
    f->now_us = 100 * US_PER_S;
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *const f = *state;

    job_book_free(f->book);
    for (uint32_t c = 0; c < 4; c++)
        assert_int_equal(f->view.nodes[0].cards[c].used_milli, 0);
    cluster_view_fini(&f->view);
    free(f);
    return 0;
}

static struct job_spec *load(const char *json)
{
    struct conf_problems problems;
    struct job_spec *spec;

    conf_problems_init(&problems);
    spec = job_file_load("job.json", json, strlen(json), &problems);
    if (spec == NULL)
        fail_msg("%s", buf_cstr(&problems.text));
    conf_problems_fini(&problems);
    return spec;
}

static struct job *submit(struct fixture *f, const char *json)
{
    struct job *job = NULL;

    assert_int_equal(job_submit(f->book, load(json), f->now_us, &job), JOB_OK);
    job_book_step(f->book, f->now_us);
    return job;
}

#define CARD "\"command\": [\"x\"], \"gpu\": {\"milli\": 1000}"

/* Tasks of a role that have been started. */
static unsigned n_of(const struct job *job, const char *role)
{
    unsigned n = 0;

    for (size_t i = 0; i < job->n_tasks; i++)
        n += strcmp(job->tasks[i].role->role, role) == 0 && job->tasks[i].state != TASK_PENDING;
    return n;
}

static void exited(struct fixture *f, struct job *job, size_t i, int status)
{
    assert_true(job_on_exited(f->book, job->tasks[i].id, status, f->now_us));
    job_book_step(f->book, f->now_us);
}

static const char t1_and_t2[] =
    "{\"job\": \"part\", \"gang\": true, \"min_available\": 5, \"tasks\": ["
    "{\"role\": \"t1\", \"count\": 6, \"min\": 2, " CARD "},"
    "{\"role\": \"t2\", \"count\": 2, \"min\": 2, " CARD "}]}";

/* Five cards: 2 + 2 for the minimum of each, one more for that of the whole. */
static void a_gang_starts_with_the_minimum_of_each_role_and_of_the_whole(void **state)
{
    struct fixture *const f = *state;
    struct job *job;

    set_cards(f, "b", 1);
    job = submit(f, t1_and_t2);
    assert_int_equal(job->state, JOB_STARTING);
    assert_int_equal(n_of(job, "t1"), 3);
    assert_int_equal(n_of(job, "t2"), 2);
    assert_non_null(strstr(job->why, "some tasks run, the rest"));
}

static void with_room_for_less_than_the_minimum_nothing_starts(void **state)
{
    struct fixture *const f = *state;
    struct job *const holder =
        submit(f, "{\"job\": \"h\", \"tasks\": [{\"role\": \"w\", " CARD "}]}");
    struct job *job;

    set_cards(f, "b", 1);
    job = submit(f, t1_and_t2); /* four cards are free */
    assert_int_equal(job->state, JOB_WAITING);
    assert_non_null(strstr(job->why, "4 of its 8 tasks have room, it starts with at least 5"));
    assert_int_equal(f->n_started, 1);
    job_on_started(f->book, holder->tasks[0].id, 1, f->now_us);
    exited(f, holder, 0, 0);
    assert_int_equal(n_of(job, "t1") + n_of(job, "t2"), 5);
    assert_int_equal(n_of(job, "t2"), 2);
}

static void a_minimum_that_can_never_fit_is_told_and_blocks_nobody(void **state)
{
    struct fixture *const f = *state; /* four cards in all */
    struct job *const job = submit(f, t1_and_t2);
    struct job *const next =
        submit(f, "{\"job\": \"n\", \"tasks\": [{\"role\": \"w\", " CARD "}]}");

    assert_non_null(strstr(job->why, "can never start here"));
    assert_int_equal(next->state, JOB_STARTING);
}

static void the_rest_starts_when_it_has_room_and_keeps_nobody_waiting(void **state)
{
    struct fixture *const f = *state;
    struct job *const job =
        submit(f, "{\"job\": \"e\", \"gang\": true, \"min_available\": 1, \"tasks\": ["
                  "{\"role\": \"w\", \"count\": 5, " CARD "}]}");
    struct job *const small =
        submit(f, "{\"job\": \"s\", \"tasks\": [{\"role\": \"w\", \"command\": [\"x\"]}]}");

    assert_int_equal(n_of(job, "w"), 4);
    assert_int_equal(small->state, JOB_STARTING); /* behind it in its queue, and not held up */
    for (size_t i = 0; i < 4; i++)
        job_on_started(f->book, job->tasks[i].id, 1, f->now_us);
    assert_int_equal(job->state, JOB_RUNNING);
    exited(f, job, 2, 0);
    assert_int_equal(n_of(job, "w"), 5);
    job_on_started(f->book, job->tasks[4].id, 1, f->now_us);
    exited(f, job, 0, 0);
    exited(f, job, 1, 0);
    exited(f, job, 3, 0);
    assert_int_equal(job->state, JOB_RUNNING);
    exited(f, job, 4, 0);
    assert_int_equal(job->state, JOB_SUCCEEDED);
}

static void a_failure_starts_the_part_again(void **state)
{
    struct fixture *const f = *state;
    struct job *const job =
        submit(f, "{\"job\": \"e\", \"gang\": true, \"min_available\": 1, \"retries\": 1, "
                  "\"tasks\": [{\"role\": \"w\", \"count\": 5, " CARD "}]}");

    for (size_t i = 0; i < 4; i++)
        job_on_started(f->book, job->tasks[i].id, 1, f->now_us);
    exited(f, job, 0, 1);
    assert_int_equal(job->state, JOB_STOPPING);
    for (size_t i = 1; i < 4; i++)
        exited(f, job, i, -15);
    assert_int_equal(job->state, JOB_RETRYING);
    f->now_us = job_book_next_us(f->book);
    job_book_step(f->book, f->now_us);
    assert_int_equal(n_of(job, "w"), 4);
    assert_int_equal(f->n_started, 8);
}

static void the_cap_of_the_queue_holds_for_a_part_too(void **state)
{
    struct fixture *const f = *state;
    const struct queue_conf queue = {.name = "small", .weight = 1, .gpu_milli_cap = 3000};
    struct job *job;

    job_book_set_queues(f->book, &queue, 1);
    job = submit(f, "{\"job\": \"e\", \"queue\": \"small\", \"gang\": true, \"min_available\": 2, "
                    "\"tasks\": [{\"role\": \"w\", \"count\": 4, " CARD "}]}");
    assert_int_equal(n_of(job, "w"), 3);
    job = submit(f, "{\"job\": \"n\", \"queue\": \"small\", \"gang\": true, \"tasks\": ["
                    "{\"role\": \"w\", \"count\": 5, \"min\": 4, " CARD "}]}");
    assert_non_null(strstr(job->why, "asks for 4000 milli of cards; queue small"));
    job = submit(f, "{\"job\": \"m\", \"queue\": \"small\", \"gang\": true, \"min_available\": 4, "
                    "\"tasks\": [{\"role\": \"w\", \"count\": 5, " CARD "}]}");
    assert_non_null(strstr(job->why, "can never start here: asks for 4000 milli of cards"));
}

static void bad_minimums_are_refused(void **state)
{
    struct conf_problems problems;
    static const char text[] =
        "{\"job\": \"e\", \"min_available\": 9, \"tasks\": ["
        "{\"role\": \"w\", \"count\": 2, \"min\": 3, \"command\": [\"x\"]}]}";

    (void)state;
    conf_problems_init(&problems);
    assert_null(job_file_load("j", text, strlen(text), &problems));
    assert_string_equal(buf_cstr(&problems.text),
                        "j#/tasks/0/min: 3 is over the count of 2\n"
                        "j#/tasks/0/min: is for gangs: the tasks of this job start one by one\n"
                        "j#/min_available: 9 is over the 2 tasks of the job\n"
                        "j#/min_available: is for gangs: the tasks of this job start one by one\n");
    conf_problems_fini(&problems);
}

static void a_literal_command_keeps_its_braces(void **state)
{
    struct job_spec *const spec =
        load("{\"job\": \"e\", \"tasks\": [{\"role\": \"w\", \"literal\": true, "
             "\"command\": [\"awk\", \"{print}\"]}]}");

    (void)state;
    assert_true(spec->roles[0].literal);
    job_spec_free(spec);
}

static void a_dry_run_tells_and_leaves_no_trace(void **state)
{
    struct fixture *const f = *state;
    struct job *const holder = submit(f, "{\"job\": \"h\", \"gang\": true, \"tasks\": ["
                                         "{\"role\": \"w\", \"count\": 3, " CARD "}]}");
    struct job *fits = NULL, *not = NULL, *wait;
    struct job_dry_run d;

    wait = submit(f, "{\"job\": \"w\", \"gang\": true, \"tasks\": ["
                     "{\"role\": \"w\", \"count\": 2, " CARD "}]}");
    assert_int_equal(wait->state, JOB_WAITING);
    job_dry_run_init(&d, f->book);
    job_dry_run_submit(&d, load("{\"job\": \"one\", \"tasks\": [{\"role\": \"w\", " CARD "}]}"),
                       f->now_us, &fits);
    job_dry_run_submit(&d, load("{\"job\": \"two\", \"tasks\": [{\"role\": \"w\", " CARD "}]}"),
                       f->now_us, &not );
    job_dry_run_step(&d, f->now_us);
    assert_int_equal(fits->state, JOB_STARTING);
    assert_int_equal(not ->state, JOB_WAITING); /* the first has the last card */
    assert_non_null(strstr(not ->why, "waits for room"));
    assert_int_equal(job_dry_run_ahead(f->book, fits), 1);
    job_dry_run_fini(&d);
    assert_null(job_find(f->book, "one"));
    assert_int_equal(f->n_started, 3);
    assert_int_equal(f->view.nodes[0].cards[3].used_milli, 0);
    assert_int_equal(holder->state, JOB_STARTING);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_gang_starts_with_the_minimum_of_each_role_and_of_the_whole),
        TEST(with_room_for_less_than_the_minimum_nothing_starts),
        TEST(a_minimum_that_can_never_fit_is_told_and_blocks_nobody),
        TEST(the_rest_starts_when_it_has_room_and_keeps_nobody_waiting),
        TEST(a_failure_starts_the_part_again),
        TEST(the_cap_of_the_queue_holds_for_a_part_too),
        TEST(bad_minimums_are_refused),
        TEST(a_literal_command_keeps_its_braces),
        TEST(a_dry_run_tells_and_leaves_no_trace),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
