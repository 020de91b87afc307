/* tests/unit/job_fixture.h - a job book on one node of four cards, under a virtual clock: effects
 * are recorded, ends are told by the test. */
#ifndef TESTS_JOB_FIXTURE_H
#define TESTS_JOB_FIXTURE_H

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

static inline int fake_prepare(void *arg, struct job_task *task, struct err *err)
{
    struct fixture *f = arg;

    if (f->refuse_prepare != NULL && strcmp(task->name, f->refuse_prepare) == 0)
        return err_set(err, -EADDRINUSE, "no free port");
    snprintf(task->address, sizeof(task->address), "127.0.0.1:%d", 10000 + f->n_prepared++);
    return 0;
}

static inline int fake_start(void *arg, struct job_task *task, struct err *err)
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

static inline void fake_stop(void *arg, struct job_task *task, uint64_t grace_us)
{
    struct fixture *f = arg;

    assert_true(grace_us > 0 && task->state == TASK_STOPPING);
    f->n_stopped++;
}

static inline void fake_changed(void *arg, struct job *job, bool is_new_state)
{
    struct fixture *f = arg;

    assert_true(job->why[0] != '\0');
    f->n_changes += is_new_state;
}

static inline int setup(void **state)
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

static inline int teardown(void **state)
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

static inline struct job *submit(struct fixture *f, const char *json)
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
static inline struct job *submit_cards(struct fixture *f, const char *name, const char *more,
                                       uint32_t n)
{
    char json[512];

    snprintf(json, sizeof(json),
             "{\"job\":\"%s\",\"gang\":true,%s\"tasks\":[{\"role\":\"worker\",\"count\":%u,"
             "\"command\":[\"x\"],\"gpu\":{\"milli\":1000}}]}",
             name, more, n);
    return submit(f, json);
}

static inline void started(struct fixture *f, struct job *job, size_t i)
{
    assert_true(job_on_started(f->book, job->tasks[i].id, 1234, f->now_us));
}

static inline void all_started(struct fixture *f, struct job *job)
{
    for (size_t i = 0; i < job->n_tasks; i++)
        started(f, job, i);
}

static inline void exited(struct fixture *f, struct job *job, size_t i, int status)
{
    assert_true(job_on_exited(f->book, job->tasks[i].id, status, f->now_us));
    job_book_step(f->book, f->now_us);
}

static inline void assert_says(const char *text, const char *part)
{
    if (strstr(text, part) == NULL)
        fail_msg("\"%s\" does not say \"%s\"", text, part);
}

static inline uint32_t cards_in_use(const struct fixture *f)
{
    uint32_t n = 0;

    for (uint32_t c = 0; c < 4; c++)
        n += f->view.nodes[0].cards[c].n_users;
    return n;
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

#endif
