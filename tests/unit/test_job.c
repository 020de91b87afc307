/* The job book: starts, ends, retries, cancels; then random histories. */
#include "base/rng.h"
#include "tests/unit/job_fixture.h"

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
        job->state == JOB_SUSPENDED || job_state_is_final(job->state))
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
    uint64_t used = 0, by_queue = 0;

    job_book_each(f->book, check_job, &t);
    for (size_t i = 0; i < job_book_n_queues(f->book); i++) {
        const struct job_queue_use use = job_book_queue_use(f->book, i, f->now_us);

        by_queue += use.used_gpu_milli;
        if (use.gpu_milli_cap > 0)
            assert_true(use.used_gpu_milli <= use.gpu_milli_cap);
    }
    for (uint32_t c = 0; c < 4; c++)
        used += f->view.nodes[0].cards[c].used_milli;
    assert_int_equal(t.gpu_milli, used);
    assert_int_equal(by_queue, used);
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
    switch (rng_below(rng, 8)) {
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
    case 2:
        snprintf(name, sizeof(name), "j%u", (unsigned)rng_below(rng, *n_jobs + 1));
        if (rng_below(rng, 3) == 0)
            job_suspend(f->book, name, f->now_us);
        else
            job_resume(f->book, name, f->now_us);
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

static void count_evictions(void *arg, struct job *job)
{
    *(uint32_t *)arg += job->evictions;
}

static void resume(void *arg, struct job *job)
{
    struct fixture *f = arg;

    job_resume(f->book, job->spec->name, f->now_us);
}

/* In every second round the queues end gangs for others, take back their own, and have a longest
 * wait. */
static void random_histories_hold_the_invariants_and_come_to_an_end(void **state)
{
    static const struct queue_conf queues[] = {
        {.name = "q0", .weight = 1, .preempt = true, .gpu_milli_deserved = 2000, .max_wait_s = 60},
        {.name = "q1",
         .weight = 2,
         .gpu_milli_cap = 3000,
         .gpu_milli_deserved = 1000,
         .preempt = true,
         .min_run_s = 5}};
    uint32_t n_evictions = 0;
    struct rng rng;

    (void)state;
    rng_init(&rng, 5);
    for (int round = 0; round < 200; round++) {
        struct fixture *f;
        uint32_t n_jobs = 0;
        void *p;

        setup(&p);
        f = p;
        if (round % 2 == 1)
            job_book_set_queues(f->book, queues, 2);
        for (int i = 0; i < 400; i++)
            random_step(f, &rng, &n_jobs);
        job_book_each(f->book, count_evictions, &n_evictions);
        job_book_each(f->book, resume, f);
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
    assert_true(n_evictions > 100); /* or nothing of it was tried */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_gang_starts_together_runs_and_succeeds),
        TEST(two_gangs_of_four_on_four_cards_run_one_after_the_other),
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
