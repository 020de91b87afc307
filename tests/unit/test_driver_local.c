/* The local driver with real children of /bin/sh, on a real loop; waits for events, never for time.
 * (It lies beside the unit tests for its cmocka main; it is the one that starts processes.) */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/xalloc.h"
#include "placer/driver.h"
#include "placer/job_run.h"

#define MAX_EVENTS 64

struct told {
    enum driver_event_kind kind;
    char id[64], address[64], text[64];
    int pid, status;
};

struct fixture {
    struct loop loop;
    struct driver *driver;
    struct cluster_view view;
    struct job_runner *runner; /* NULL: events are only noted */
    char state[64];
    struct told told[MAX_EVENTS];
    size_t n_told;
    size_t wanted; /* stop the loop at this many events */
    struct timer limit;
    struct job *watched;
    enum job_state until;
};

static void on_event(void *arg, const struct driver_event *ev)
{
    struct fixture *f = arg;
    struct told *t = &f->told[f->n_told];

    assert_true(f->n_told < MAX_EVENTS);
    t->kind = ev->kind;
    t->pid = ev->pid;
    t->status = ev->status;
    snprintf(t->id, sizeof(t->id), "%s", ev->id);
    snprintf(t->address, sizeof(t->address), "%s", ev->address != NULL ? ev->address : "");
    snprintf(t->text, sizeof(t->text), "%s", ev->text != NULL ? ev->text : "");
    if (++f->n_told == f->wanted)
        loop_stop(&f->loop);
    if (f->runner != NULL) {
        assert_true(job_runner_on_event(f->runner, ev));
        job_runner_step(f->runner);
    }
}

static void on_limit(struct timer *t)
{
    (void)t;
    fail_msg("nothing happened for 20 s");
}

static void run_until(struct fixture *f, size_t n_events)
{
    f->wanted = n_events;
    timer_start(&f->loop, &f->limit, clock_mono_us() + 20 * US_PER_S);
    if (f->n_told < n_events)
        loop_run(&f->loop);
    timer_stop(&f->loop, &f->limit);
}

static void job_changed(void *arg, struct job *job, bool is_new_state)
{
    struct fixture *f = arg;

    if (is_new_state && job == f->watched && job->state == f->until)
        loop_stop(&f->loop);
}

static void run_until_state(struct fixture *f, struct job *job, enum job_state state)
{
    f->watched = job;
    f->until = state;
    f->wanted = 0;
    timer_start(&f->loop, &f->limit, clock_mono_us() + 20 * US_PER_S);
    if (job->state != state)
        loop_run(&f->loop);
    timer_stop(&f->loop, &f->limit);
    f->watched = NULL;
}

static struct card_conf cards[] = {{"GPU-a", "T4", 16384}, {"GPU-b", "T4", 16384}};
static const struct node_conf nodes[] = {
    {.name = "box", .cpu_milli = 4000, .memory_mib = 4096, .cards = cards, .n_cards = 2}};

static int setup(void **state)
{
    struct fixture *f = xcalloc(1, sizeof(*f));
    struct driver_local_conf conf = {.loop = &f->loop,
                                     .state = f->state,
                                     .nodes = nodes,
                                     .n_nodes = 1,
                                     .log_max_bytes = 64 * 1024,
                                     .on_event = on_event,
                                     .arg = f};
    struct err err = {0};

    snprintf(f->state, sizeof(f->state), "/tmp/penstock-driver-XXXXXX");
    assert_non_null(mkdtemp(f->state));
    loop_init(&f->loop, NULL);
    f->limit.fire = on_limit;
    f->driver = driver_local_new(&conf, &err);
    if (f->driver == NULL)
        fail_msg("%s", err.text);
    cluster_view_init(&f->view);
    assert_int_equal(driver_inventory(f->driver, &f->view, &err), 0);
    *state = f;
    return 0;
}

static int setup_jobs(void **state)
{
    struct fixture *f;

    setup(state);
    f = *state;
    f->runner = job_runner_new(&(struct job_runner_conf){
        .loop = &f->loop, .driver = f->driver, .view = &f->view, .changed = job_changed, .arg = f});
    return 0;
}

static void remove_tree(const char *path)
{
    DIR *dir = opendir(path);
    struct dirent *e;

    while (dir != NULL && (e = readdir(dir)) != NULL) {
        char *child = xasprintf("%s/%s", path, e->d_name);

        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0 && unlink(child) != 0)
            remove_tree(child);
        free(child);
    }
    if (dir != NULL)
        closedir(dir);
    rmdir(path);
}

static int teardown(void **state)
{
    struct fixture *f = *state;

    job_runner_free(f->runner);
    driver_free(f->driver);
    cluster_view_fini(&f->view);
    loop_fini(&f->loop);
    remove_tree(f->state);
    free(f);
    return 0;
}

static void start_shell(struct fixture *f, const char *id, const char *script)
{
    const char *command[] = {"/bin/sh", "-c", script};
    const struct unit_spec spec = {.id = id, .command = command, .n_command = 3, .node = "box"};
    struct err err = {0};

    if (driver_start(f->driver, &spec, &err) != 0)
        fail_msg("%s", err.text);
}

static char *logs_of(struct fixture *f, const char *log, uint64_t max_bytes)
{
    struct err err = {0};
    struct buf b;
    char *text;

    buf_init(&b, 1 << 20);
    if (driver_logs(f->driver, log, max_bytes, &b, &err) != 0)
        fail_msg("%s", err.text);
    text = xstrdup(buf_cstr(&b));
    buf_fini(&b);
    return text;
}

/* Turns the loop until the unit has written something. */
static void run_until_logged(struct fixture *f, const char *log)
{
    const uint64_t limit_us = clock_mono_us() + 20 * US_PER_S;
    struct buf b;

    buf_init(&b, 4096);
    while (driver_logs(f->driver, log, 100, &b, NULL) != 0 || b.len == 0) {
        assert_true(clock_mono_us() < limit_us);
        ev_run(f->loop.ev, EVRUN_ONCE);
    }
    buf_fini(&b);
}

/* A process that is not our child: gone, or dead and not reaped by whoever inherited it. */
static void assert_dies(pid_t pid)
{
    const uint64_t limit_us = clock_mono_us() + 20 * US_PER_S;
    char *path = xasprintf("/proc/%d/stat", pid);

    for (;;) {
        char text[256] = "";
        const int fd = open(path, O_RDONLY);

        if (fd < 0)
            break;
        if (read(fd, text, sizeof(text) - 1) <= 0 || strstr(text, ") Z") != NULL) {
            close(fd);
            break;
        }
        close(fd);
        assert_true(clock_mono_us() < limit_us);
        usleep(1000);
    }
    free(path);
}

static void assert_says(const char *text, const char *part)
{
    if (strstr(text, part) == NULL)
        fail_msg("\"%s\" does not say \"%s\"", text, part);
}

static void a_unit_starts_ends_and_its_output_is_kept(void **state)
{
    struct fixture *f = *state;
    char *log;

    start_shell(f, "a/1#0", "echo out; echo err >&2; exit 3");
    assert_int_equal(f->n_told, 0); /* never from inside a call */
    run_until(f, 2);
    assert_int_equal(f->told[0].kind, DRIVER_STARTED);
    assert_true(f->told[0].pid > 0);
    assert_int_equal(f->told[1].kind, DRIVER_EXITED);
    assert_int_equal(f->told[1].status, 3);
    assert_string_equal(f->told[1].text, "exit status 3");
    log = logs_of(f, "a-1-0", 1000);
    assert_string_equal(log, "out\nerr\n");
    free(log);
    assert_int_equal(driver_stop(f->driver, "a/1#0", 1), -ENOENT);
}

static void blanks_environment_and_address_reach_the_unit(void **state)
{
    struct fixture *f = *state;
    const char *command[] = {
        "/bin/sh", "-c",
        "echo address={address} port={port} host={host} node={node} cards={cards} model={model} "
        "left={other} shell=${HOME:+{kept}}; echo PORT=$PORT NODE=$PENSTOCK_NODE "
        "CUDA=$CUDA_VISIBLE_DEVICES THREADS=$CUDA_MPS_ACTIVE_THREAD_PERCENTAGE "
        "MEM=$CUDA_MPS_PINNED_DEVICE_MEM_LIMIT EXTRA=$EXTRA TF=$MINE"};
    const struct env_pair blanks[] = {{"model", "digits"}};
    const struct env_pair env[] = {{"EXTRA", "a b"}, {"MINE", "new"}};
    const char *ids[] = {"GPU-b"};
    const struct unit_spec spec = {.id = "u",
                                   .command = command,
                                   .n_command = 3,
                                   .blanks = blanks,
                                   .n_blanks = 1,
                                   .env = env,
                                   .n_env = 2,
                                   .node = "box",
                                   .cards = ids,
                                   .n_cards = 1,
                                   .gpu_milli = 250,
                                   .gpu_memory_mib = 2048};
    const char *port;
    char *log, *want;

    setenv("MINE", "old", 1);
    setenv("CUDA_VISIBLE_DEVICES", "7", 1);
    assert_int_equal(driver_start(f->driver, &spec, NULL), 0);
    run_until(f, 2);
    port = strchr(f->told[0].address, ':') + 1;
    assert_true(atoi(port) >= 10000 && atoi(port) <= 32767);
    log = logs_of(f, "u", 4000);
    want = xasprintf("address=127.0.0.1:%s port=%s host=127.0.0.1 node=box cards=GPU-b "
                     "model=digits left={other} shell={kept}\nPORT=%s NODE=box CUDA=GPU-b "
                     "THREADS=25 MEM=0=2048M EXTRA=a b TF=new\n",
                     port, port, port);
    assert_string_equal(log, want);
    free(log);
    free(want);
}

static void a_unit_without_cards_sees_none(void **state)
{
    struct fixture *f = *state;
    char *log;

    setenv("CUDA_VISIBLE_DEVICES", "7", 1);
    setenv("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "77", 1);
    start_shell(f, "u", "echo \"<$CUDA_VISIBLE_DEVICES$CUDA_MPS_ACTIVE_THREAD_PERCENTAGE>\"");
    run_until(f, 2);
    log = logs_of(f, "u", 100);
    assert_string_equal(log, "<>\n");
    free(log);
}

static void a_program_that_is_not_there_is_refused_and_leaves_nothing(void **state)
{
    struct fixture *f = *state;
    const char *command[] = {"no-such-program-anywhere"};
    const struct unit_spec spec = {.id = "u", .command = command, .n_command = 1, .node = "box"};
    struct err err;

    assert_int_equal(driver_start(f->driver, &spec, &err), -ENOENT);
    assert_says(err.text, "no-such-program-anywhere");
    start_shell(f, "u", "exit 0"); /* the id is free */
    assert_int_equal(driver_start(f->driver, &spec, &err), -EEXIST);
    run_until(f, 2);
    assert_int_equal(f->told[1].status, 0);
}

static void stop_asks_first_and_kills_after_the_grace(void **state)
{
    struct fixture *f = *state;

    start_shell(f, "polite", "trap 'echo bye; exit 0' TERM; echo up; while :; do sleep 0.05; done");
    start_shell(f, "deaf", "trap '' TERM; echo up; while :; do sleep 0.05; done");
    run_until(f, 2);
    run_until_logged(f, "polite"); /* both traps are set */
    run_until_logged(f, "deaf");
    assert_int_equal(driver_stop(f->driver, "polite", 10 * US_PER_S), 0);
    assert_int_equal(driver_stop(f->driver, "deaf", 100 * US_PER_MS), 0);
    run_until(f, 4);
    for (size_t i = 2; i < 4; i++) {
        const bool polite = strcmp(f->told[i].id, "polite") == 0;

        assert_int_equal(f->told[i].status, polite ? 0 : -SIGKILL);
    }
}

static void what_a_unit_left_running_goes_with_it(void **state)
{
    struct fixture *f = *state;
    char *log;
    pid_t left;

    start_shell(f, "u", "sleep 1000 & echo $!; exit 0");
    run_until(f, 2);
    log = logs_of(f, "u", 100);
    left = atoi(log);
    free(log);
    assert_true(left > 1);
    assert_dies(left);
}

static void no_descriptor_of_ours_reaches_a_unit(void **state)
{
    struct fixture *f = *state;
    char *log;

    start_shell(f, "u", "ls /proc/self/fd | wc -l");
    run_until(f, 2);
    log = logs_of(f, "u", 100);
    assert_int_equal(atoi(log), 4); /* 0 1 2 and the folder that ls reads */
    free(log);
}

static void a_log_is_capped_and_its_end_is_whole_lines(void **state)
{
    struct fixture *f = *state;
    char path[128], *log;
    struct stat st;

    start_shell(f, "u",
                "i=0; while [ $i -lt 8000 ]; do echo line $i of many, many; "
                "i=$((i+1)); done");
    run_until(f, 2);
    snprintf(path, sizeof(path), "%s/logs/u.log", f->state);
    assert_int_equal(stat(path, &st), 0);
    assert_true(st.st_size <= 32 * 1024);
    snprintf(path, sizeof(path), "%s/logs/u.log.1", f->state);
    assert_int_equal(stat(path, &st), 0);
    assert_true(st.st_size <= 32 * 1024);
    log = logs_of(f, "u", 40000);
    assert_true(strlen(log) > 32 * 1024 - 100);
    assert_int_equal(strncmp(log, "line ", 5), 0);
    assert_says(log, "line 7999 of many, many\n");
    free(log);
}

static void names_of_logs_cannot_leave_their_folder(void **state)
{
    struct fixture *f = *state;
    static const char *const bad[] = {"../x", "a/b", "", ".x", "..", "a\nb"};
    struct buf b;

    buf_init(&b, 100);
    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        assert_int_equal(driver_logs(f->driver, bad[i], 100, &b, NULL), -EINVAL);
    assert_int_equal(driver_logs(f->driver, "nobody", 100, &b, NULL), -ENOENT);
    buf_fini(&b);
}

static void reserved_addresses_differ(void **state)
{
    struct fixture *f = *state;
    char a[20][DRIVER_ADDRESS_MAX];

    for (int i = 0; i < 20; i++) {
        assert_int_equal(driver_reserve_address(f->driver, "box", a[i], sizeof(a[i]), NULL), 0);
        for (int j = 0; j < i; j++)
            assert_string_not_equal(a[i], a[j]);
    }
}

static void free_kills_what_still_runs(void **state)
{
    struct fixture *f = *state;
    pid_t pid;

    start_shell(f, "u", "trap '' TERM; sleep 1000");
    run_until(f, 1);
    pid = f->told[0].pid;
    assert_int_equal(kill(pid, 0), 0);
    f->driver = driver_free(f->driver);
    assert_int_equal(kill(pid, 0), -1);
    assert_int_equal(errno, ESRCH);
}

/* A process that dies without a word takes its units along, and what these started. */
static void units_die_with_the_process_that_started_them(void **state)
{
    struct fixture *f = *state;
    char *text;
    int fds[2];
    pid_t parent, unit = 0, below;

    assert_int_equal(pipe(fds), 0);
    parent = fork();
    if (parent == 0) {
        static struct fixture child;
        const char *command[] = {"/bin/sh", "-c", "sleep 1000 & echo $!; wait"};
        const struct unit_spec spec = {
            .id = "orphan", .command = command, .n_command = 3, .node = "box"};
        struct driver_local_conf conf = {.loop = &child.loop,
                                         .state = f->state,
                                         .nodes = nodes,
                                         .n_nodes = 1,
                                         .on_event = on_event,
                                         .arg = &child};

        loop_init(&child.loop, NULL);
        child.driver = driver_local_new(&conf, NULL);
        if (driver_start(child.driver, &spec, NULL) != 0)
            _exit(1);
        run_until_logged(&child, "orphan");
        if (write(fds[1], &child.told[0].pid, sizeof(int)) == sizeof(int))
            for (;;)
                pause();
        _exit(1);
    }
    assert_int_equal(read(fds[0], &unit, sizeof(int)), sizeof(int));
    close(fds[0]);
    close(fds[1]);
    text = logs_of(f, "orphan", 100);
    below = atoi(text);
    free(text);
    assert_int_equal(kill(unit, 0), 0);
    assert_int_equal(kill(below, 0), 0);
    kill(parent, SIGKILL);
    waitpid(parent, NULL, 0);
    assert_dies(unit);
    assert_dies(below);
}

static void declared_nodes_come_and_go_with_the_inventory(void **state)
{
    struct fixture *f = *state;
    const struct node_conf other[] = {{.name = "other", .cpu_milli = 1000, .memory_mib = 100}};

    assert_int_equal(f->view.n_nodes, 1);
    assert_string_equal(f->view.nodes[0].cards[1].id, "GPU-b");
    driver_local_set_nodes(f->driver, other, 1);
    assert_int_equal(driver_inventory(f->driver, &f->view, NULL), 0);
    assert_true(f->view.nodes[0].down);
    assert_int_equal(cluster_view_find(&f->view, "other"), 1);
    driver_local_set_nodes(f->driver, NULL, 0); /* this machine itself */
    assert_int_equal(driver_inventory(f->driver, &f->view, NULL), 0);
    assert_int_equal(f->view.n_nodes, 3);
    assert_true(f->view.nodes[2].cpu_milli >= 1000 && f->view.nodes[2].memory_mib > 100);
}

/* ---- jobs on it ---- */

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
    assert_int_equal(job_submit(job_runner_book(f->runner), spec, f->loop.now_us, &job), JOB_OK);
    job_runner_step(f->runner);
    return job;
}

static void tasks_of_a_gang_know_each_other(void **state)
{
    struct fixture *f = *state;
    struct job *job = submit(
        f, "{\"job\":\"train\",\"gang\":true,\"tasks\":["
           "{\"role\":\"ps\",\"command\":[\"/bin/sh\",\"-c\",\"sleep 1000\"]},"
           "{\"role\":\"worker\",\"count\":2,\"env\":{\"LR\":\"0.1\"},\"gpu\":{\"milli\":1000},"
           "\"command\":[\"/bin/sh\",\"-c\",\"echo {rank}/{world_size} {task} {index} "
           "{master_addr}:{master_port}; echo $RANK $WORLD_SIZE $PENSTOCK_JOB $PENSTOCK_TASK "
           "$PENSTOCK_ROLE $PENSTOCK_TRY $LR $CUDA_VISIBLE_DEVICES; echo $TF_CONFIG\"]}]}");
    char *log, *want;

    run_until_state(f, job, JOB_SUCCEEDED);
    assert_int_equal(job->tasks[0].state, TASK_STOPPED);
    log = logs_of(f, job->tasks[2].log, 4000);
    want = xasprintf("2/3 worker-1 1 %s\n2 3 train worker-1 worker 1 0.1 %s\n"
                     "{\"cluster\":{\"ps\":[\"%s\"],\"worker\":[\"%s\",\"%s\"]},\"task\":{\"type\":"
                     "\"worker\",\"index\":1}}\n",
                     job->tasks[0].address,
                     f->view.nodes[0].cards[job->tasks[2].placement.cards[0]].id,
                     job->tasks[0].address, job->tasks[1].address, job->tasks[2].address);
    assert_string_equal(log, want);
    free(log);
    free(want);
    assert_int_equal(f->view.nodes[0].cards[0].n_users, 0);
}

static void a_gang_is_tried_again_after_a_task_failed(void **state)
{
    struct fixture *f = *state;
    struct job *job =
        submit(f, "{\"job\":\"flaky\",\"gang\":true,\"retries\":2,\"backoff_ms\":10,\"tasks\":["
                  "{\"role\":\"worker\",\"count\":2,\"command\":[\"/bin/sh\",\"-c\",\"echo try "
                  "$PENSTOCK_TRY; [ $PENSTOCK_TRY = 2 ] || [ {rank} = 0 ] && sleep 0.2 && exit "
                  "0; exit 9\"]}]}");
    char *log;

    run_until_state(f, job, JOB_SUCCEEDED);
    assert_int_equal(job->failures, 1);
    log = logs_of(f, job->tasks[1].log, 1000);
    assert_string_equal(log, "try 1\ntry 2\n");
    free(log);
}

static void a_cancelled_job_ends_its_processes(void **state)
{
    struct fixture *f = *state;
    struct job *job = submit(f, "{\"job\":\"long\",\"tasks\":[{\"role\":\"w\",\"count\":2,"
                                "\"command\":[\"/bin/sh\",\"-c\",\"sleep 1000\"]}]}");

    run_until_state(f, job, JOB_RUNNING);
    assert_int_equal(job_cancel(job_runner_book(f->runner), "long", "enough", f->loop.now_us),
                     JOB_OK);
    run_until_state(f, job, JOB_CANCELLED);
    assert_int_equal(kill(job->tasks[0].pid, 0), -1);
    assert_int_equal(kill(job->tasks[1].pid, 0), -1);
    assert_int_equal(f->view.nodes[0].used_cpu_milli, 0);
}

#define TEST(name)      cmocka_unit_test_setup_teardown(name, setup, teardown)
#define TEST_JOBS(name) cmocka_unit_test_setup_teardown(name, setup_jobs, teardown)
int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_unit_starts_ends_and_its_output_is_kept),
        TEST(blanks_environment_and_address_reach_the_unit),
        TEST(a_unit_without_cards_sees_none),
        TEST(a_program_that_is_not_there_is_refused_and_leaves_nothing),
        TEST(stop_asks_first_and_kills_after_the_grace),
        TEST(what_a_unit_left_running_goes_with_it),
        TEST(no_descriptor_of_ours_reaches_a_unit),
        TEST(a_log_is_capped_and_its_end_is_whole_lines),
        TEST(names_of_logs_cannot_leave_their_folder),
        TEST(reserved_addresses_differ),
        TEST(free_kills_what_still_runs),
        TEST(units_die_with_the_process_that_started_them),
        TEST(declared_nodes_come_and_go_with_the_inventory),
        TEST_JOBS(tasks_of_a_gang_know_each_other),
        TEST_JOBS(a_gang_is_tried_again_after_a_task_failed),
        TEST_JOBS(a_cancelled_job_ends_its_processes),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
