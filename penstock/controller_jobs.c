#include "penstock/controller_jobs.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json_out.h"
#include "base/log.h"
#include "base/xalloc.h"
#include "placer/job_dry_run.h"
#include "placer/manifest.h"

#define ANSWER_CEILING  (64u * 1024 * 1024)
#define LOG_BYTES_DFLT  (64u * 1024)
#define LOG_BYTES_MAX   (8u * 1024 * 1024) /* what the local driver keeps of one task */
#define LOG_QUOTE_BYTES 256

struct controller_jobs {
    struct loop *loop;
    struct driver *driver;
    struct cluster_view *view;
    struct job_runner *runner;
    bool ending; /* nothing starts any more */
};

static void on_changed(void *arg, struct job *job, bool is_new_state)
{
    char why[LOG_QUOTE_BYTES];

    (void)arg;
    if (is_new_state)
        log_info("job_state", "job=%s queue=%s state=%s number=%" PRIu64 " failures=%u msg=%s",
                 job->spec->name, job->spec->queue, job_state_name(job->state), job->number,
                 job->failures, log_quote(why, sizeof(why), job->why));
}

struct controller_jobs *controller_jobs_new(struct loop *loop, struct driver *driver,
                                            struct cluster_view *view)
{
    struct controller_jobs *const j = xcalloc(1, sizeof(*j));
    const struct job_runner_conf conf = {
        .loop = loop, .driver = driver, .view = view, .changed = on_changed, .arg = j};

    j->loop = loop;
    j->driver = driver;
    j->view = view;
    j->runner = job_runner_new(&conf);
    return j;
}

struct controller_jobs *controller_jobs_free(struct controller_jobs *j)
{
    if (j == NULL)
        return NULL;
    job_runner_free(j->runner);
    free(j);
    return NULL;
}

void controller_jobs_set_generation(struct controller_jobs *j, const struct generation *g)
{
    job_book_set_queues(job_runner_book(j->runner), g->queues, g->n_queues);
}

bool controller_jobs_on_event(struct controller_jobs *j, const struct driver_event *ev)
{
    return job_runner_on_event(j->runner, ev);
}

void controller_jobs_step(struct controller_jobs *j)
{
    if (!j->ending)
        job_runner_step(j->runner);
}

struct stopping {
    struct controller_jobs *jobs;
    size_t n_left;
};

static void stop_one(void *arg, struct job *job)
{
    struct stopping *const s = arg;

    if (job_state_is_final(job->state))
        return;
    (void)job_cancel(job_runner_book(s->jobs->runner), job->spec->name, "penstock was stopped",
                     s->jobs->loop->now_us);
    s->n_left += !job_state_is_final(job->state);
}

bool controller_jobs_stop_all(struct controller_jobs *j)
{
    struct stopping s = {.jobs = j};

    j->ending = true;
    job_book_each(job_runner_book(j->runner), stop_one, &s);
    return s.n_left == 0;
}

/* ---- answers ---- */

static void reply(struct admin_request *r, unsigned status, struct buf *out)
{
    if (out->overflow)
        admin_reply_error(r, 500, "the answer is over %u bytes", ANSWER_CEILING);
    else
        admin_reply_json(r, status, buf_cstr(out));
    buf_fini(out);
}

static void put_task(struct json_out *o, const struct controller_jobs *j,
                     const struct job_task *task)
{
    const struct plan_placement *const p = &task->placement;
    const struct plan_node *const node = task->tries > 0 ? &j->view->nodes[p->node] : NULL;

    json_out_object(o, NULL);
    json_out_str(o, "task", task->name);
    json_out_str(o, "role", task->role->role);
    json_out_uint(o, "index", task->index);
    json_out_uint(o, "rank", task->rank);
    json_out_str(o, "state", task_state_name(task->state));
    json_out_uint(o, "tries", task->tries);
    json_out_str(o, "node", node == NULL ? NULL : node->name);
    json_out_str(o, "address", task->tries > 0 ? task->address : NULL);
    json_out_int(o, "pid", task->pid);
    json_out_int(o, "status", task->status);
    json_out_str(o, "text", task->text);
    json_out_uint(o, "cpu_milli", task->role->cpu_milli);
    json_out_uint(o, "memory_mib", task->role->memory_mib);
    json_out_uint(o, "gpu_milli", task->role->gpu.milli);
    json_out_array(o, "cards");
    for (size_t i = 0; node != NULL && i < p->n_cards; i++)
        json_out_str(o, NULL, node->cards[p->cards[i]].id);
    json_out_end_array(o);
    json_out_end_object(o);
}

/* The members of a job that list and show have in common. */
static void put_job_members(struct json_out *o, const struct controller_jobs *j,
                            const struct job *job)
{
    const uint64_t now_us = j->loop->now_us;
    const uint64_t end_us = job->ended_us != 0 ? job->ended_us : now_us;
    size_t n_running = 0, n_succeeded = 0;

    for (size_t i = 0; i < job->n_tasks; i++) {
        n_running += job->tasks[i].state == TASK_RUNNING;
        n_succeeded += job->tasks[i].state == TASK_SUCCEEDED;
    }
    json_out_str(o, "job", job->spec->name);
    json_out_uint(o, "number", job->number);
    json_out_str(o, "state", job_state_name(job->state));
    json_out_bool(o, "ended", job_state_is_final(job->state));
    json_out_str(o, "why", job->why);
    json_out_str(o, "queue", job->spec->queue);
    json_out_uint(o, "priority", job->spec->priority);
    json_out_bool(o, "gang", job->spec->gang);
    json_out_uint(o, "tasks_total", job->n_tasks);
    json_out_uint(o, "tasks_running", n_running);
    json_out_uint(o, "tasks_succeeded", n_succeeded);
    json_out_uint(o, "retries", job->spec->retries);
    json_out_uint(o, "failures", job->failures);
    json_out_uint(o, "evictions", job->evictions);
    if (job->state == JOB_WAITING && job->expected_us != UINT64_MAX)
        json_out_uint(o, "expected_in_us",
                      job->expected_us > now_us ? job->expected_us - now_us : 0);
    json_out_uint(o, "age_us", now_us - job->submitted_us);
    json_out_uint(o, "waited_us",
                  (job->first_start_us != 0 ? job->first_start_us : end_us) - job->submitted_us);
    json_out_uint(o, "ran_us", job->first_start_us != 0 ? end_us - job->first_start_us : 0);
}

static void put_lines(struct json_out *o, const char *name, struct buf *lines)
{
    char *const text = xstrdup(buf_cstr(lines));
    char *line = NULL;

    json_out_array(o, name);
    for (char *rest = text; (line = strsep(&rest, "\n")) != NULL;)
        if (line[0] != '\0')
            json_out_str(o, NULL, line);
    json_out_end_array(o);
    free(text);
}

/* warnings: of its submission; NULL: nothing is said of them. */
static void put_job(struct json_out *o, const struct controller_jobs *j, const struct job *job,
                    struct buf *warnings, bool is_dry_run)
{
    json_out_object(o, NULL);
    put_job_members(o, j, job);
    if (warnings != NULL)
        put_lines(o, "warnings", warnings);
    if (is_dry_run) {
        json_out_bool(o, "dry_run", true);
        json_out_bool(o, "fits", job->state == JOB_STARTING);
        json_out_uint(o, "waiting_ahead", job_dry_run_ahead(job_runner_book(j->runner), job));
    }
    json_out_array(o, "tasks");
    for (size_t i = 0; i < job->n_tasks; i++)
        put_task(o, j, &job->tasks[i]);
    json_out_end_array(o);
    json_out_raw(o, "file", job->spec->json);
    json_out_end_object(o);
}

static void reply_job(struct admin_request *r, const struct controller_jobs *j,
                      const struct job *job)
{
    struct json_out o;
    struct buf out;

    buf_init(&out, ANSWER_CEILING);
    json_out_init(&o, &out);
    put_job(&o, j, job, NULL, false);
    reply(r, 200, &out);
}

static void reply_refused(struct admin_request *r, struct conf_problems *problems)
{
    struct json_out o;
    struct buf out;

    buf_init(&out, ANSWER_CEILING);
    json_out_init(&o, &out);
    json_out_object(&o, NULL);
    json_out_str(&o, "error", "the job file is refused");
    put_lines(&o, "problems", &problems->text);
    json_out_end_object(&o);
    reply(r, 422, &out);
}

/* ---- routes ---- */

/* Submits the jobs of a text, all or none. dry: to it, in place of the book. */
static enum job_outcome submit_all(struct controller_jobs *j, struct manifest_jobs *texts,
                                   struct job_dry_run *dry, struct job **ret_jobs,
                                   const char **ret_name)
{
    struct job_book *const book = job_runner_book(j->runner);

    for (size_t i = 0; i < texts->n; i++) {
        const struct job *const same = job_find(book, texts->entries[i].spec->name);

        *ret_name = texts->entries[i].spec->name;
        if (same != NULL && !job_state_is_final(same->state))
            return JOB_E_EXISTS;
        for (size_t k = 0; k < i; k++)
            if (strcmp(texts->entries[k].spec->name, *ret_name) == 0)
                return JOB_E_EXISTS;
    }
    if (!job_book_has_room(book, texts->n))
        return JOB_E_FULL;
    for (size_t i = 0; i < texts->n; i++) {
        struct job_spec *const spec = texts->entries[i].spec;
        const enum job_outcome how =
            dry != NULL ? job_dry_run_submit(dry, spec, j->loop->now_us, &ret_jobs[i])
                        : job_submit(book, spec, j->loop->now_us, &ret_jobs[i]);

        check(how == JOB_OK); /* all that can be refused was asked above */
        texts->entries[i].spec = NULL;
    }
    return JOB_OK;
}

/* One job: the job. Several, from a text of several documents: {"jobs": [...]}. */
static void reply_submitted(struct admin_request *r, const struct controller_jobs *j,
                            struct manifest_jobs *texts, struct job **jobs, bool is_dry_run)
{
    struct json_out o;
    struct buf out;

    buf_init(&out, ANSWER_CEILING);
    json_out_init(&o, &out);
    if (texts->n > 1) {
        json_out_object(&o, NULL);
        json_out_array(&o, "jobs");
    }
    for (size_t i = 0; i < texts->n; i++)
        put_job(&o, j, jobs[i], &texts->entries[i].warnings, is_dry_run);
    if (texts->n > 1) {
        json_out_end_array(&o);
        json_out_end_object(&o);
    }
    reply(r, 200, &out);
}

static void submit(struct admin_request *r, struct controller_jobs *j, struct manifest_jobs *texts,
                   bool is_dry_run)
{
    struct job **const jobs = xcalloc(texts->n, sizeof(struct job *));
    const char *name = "";
    struct job_dry_run dry;

    if (is_dry_run)
        job_dry_run_init(&dry, job_runner_book(j->runner));
    switch (submit_all(j, texts, is_dry_run ? &dry : NULL, jobs, &name)) {
    case JOB_OK:
        if (is_dry_run)
            job_dry_run_step(&dry, j->loop->now_us);
        else
            job_runner_step(j->runner);
        reply_submitted(r, j, texts, jobs, is_dry_run);
        break;
    case JOB_E_EXISTS:
        admin_reply_error(r, 409, "a job %s is there and has not ended", name);
        break;
    case JOB_E_FULL:
        admin_reply_error(r, 429, "there are %d jobs that have not ended", JOB_BOOK_MAX);
        break;
    case JOB_E_UNKNOWN:
    case JOB_E_ENDED:
        check(false && "job_submit has no such outcome");
    }
    if (is_dry_run)
        job_dry_run_fini(&dry);
    free(jobs);
}

static void post_job(struct admin_request *r, void *arg)
{
    struct controller_jobs *const j = arg;
    const char *const file = admin_request_query(r, "file");
    const char *const dry_run = admin_request_query(r, "dry_run");
    struct conf_problems problems;
    struct manifest_jobs *texts = NULL;
    size_t len = 0;
    const char *const body = admin_request_body(r, &len);

    if (j->ending) {
        admin_reply_error(r, 503, "this process is ending");
        return;
    }
    conf_problems_init(&problems);
    texts = manifest_load(file != NULL ? file : "job", body, len, j->view, &problems);
    if (texts == NULL)
        reply_refused(r, &problems);
    else
        submit(r, j, texts, dry_run != NULL && strcmp(dry_run, "0") != 0);
    manifest_jobs_free(texts);
    conf_problems_fini(&problems);
}

struct list_answer {
    struct json_out o;
    const struct controller_jobs *jobs;
};

static void put_listed(void *arg, struct job *job)
{
    struct list_answer *const a = arg;

    json_out_object(&a->o, NULL);
    put_job_members(&a->o, a->jobs, job);
    json_out_end_object(&a->o);
}

static void get_jobs(struct admin_request *r, void *arg)
{
    struct controller_jobs *const j = arg;
    struct list_answer a = {.jobs = j};
    struct buf out;

    buf_init(&out, ANSWER_CEILING);
    json_out_init(&a.o, &out);
    json_out_object(&a.o, NULL);
    json_out_array(&a.o, "jobs");
    job_book_each(job_runner_book(j->runner), put_listed, &a);
    json_out_end_array(&a.o);
    json_out_end_object(&a.o);
    reply(r, 200, &out);
}

/* Splits "NAME/what"; what is "" when there is no slash. NULL with 404 sent: no such job. */
static struct job *find_job(struct admin_request *r, const struct controller_jobs *j,
                            const char **ret_what)
{
    const char *const rest = admin_request_rest(r), *const slash = strchr(rest, '/');
    char *const name = slash == NULL ? xstrdup(rest) : xstrndup(rest, (size_t)(slash - rest));
    struct job *const job = job_find(job_runner_book(j->runner), name);

    *ret_what = slash == NULL ? "" : slash + 1;
    if (job == NULL)
        admin_reply_error(r, 404, "there is no job \"%.100s\"", name);
    free(name);
    return job;
}

static void get_logs(struct admin_request *r, struct controller_jobs *j, const struct job *job)
{
    const char *const only = admin_request_query(r, "task");
    const char *const bytes_text = admin_request_query(r, "bytes");
    uint64_t max_bytes = bytes_text != NULL ? strtoull(bytes_text, NULL, 10) : LOG_BYTES_DFLT;
    bool any = false;
    struct json_out o;
    struct buf out;

    if (max_bytes == 0 || max_bytes > LOG_BYTES_MAX)
        max_bytes = LOG_BYTES_MAX;
    buf_init(&out, ANSWER_CEILING);
    json_out_init(&o, &out);
    json_out_object(&o, NULL);
    json_out_str(&o, "job", job->spec->name);
    json_out_array(&o, "logs");
    for (size_t i = 0; i < job->n_tasks; i++) {
        const struct job_task *const task = &job->tasks[i];
        struct buf text;

        if (only != NULL && strcmp(only, task->name) != 0)
            continue;
        any = true;
        buf_init(&text, LOG_BYTES_MAX + 1);
        (void)driver_logs(j->driver, task->log, max_bytes, &text, NULL); /* none yet: empty */
        json_out_object(&o, NULL);
        json_out_str(&o, "task", task->name);
        json_out_bytes(&o, "text", text.data, text.len);
        json_out_end_object(&o);
        buf_fini(&text);
    }
    json_out_end_array(&o);
    json_out_end_object(&o);
    if (any) {
        reply(r, 200, &out);
        return;
    }
    buf_fini(&out);
    admin_reply_error(r, 404, "job %s has no task \"%.100s\"", job->spec->name, only);
}

static void get_job(struct admin_request *r, void *arg)
{
    struct controller_jobs *const j = arg;
    const char *what = "";
    const struct job *const job = find_job(r, j, &what);

    if (job == NULL)
        return;
    if (what[0] == '\0')
        reply_job(r, j, job);
    else if (strcmp(what, "logs") == 0)
        get_logs(r, j, job);
    else
        admin_reply_error(r, 404, "a job has no \"%.100s\"; it has: logs", what);
}

static void post_to_job(struct admin_request *r, void *arg)
{
    struct controller_jobs *const j = arg;
    const char *what = "";
    struct job *const job = find_job(r, j, &what);
    struct job_book *const book = job_runner_book(j->runner);
    enum job_outcome done;

    if (job == NULL)
        return;
    if (strcmp(what, "cancel") == 0) {
        done = job_cancel(book, job->spec->name, "cancelled by an operator", j->loop->now_us);
    } else if (strcmp(what, "suspend") == 0) {
        done = job_suspend(book, job->spec->name, j->loop->now_us);
    } else if (strcmp(what, "resume") == 0) {
        done = job_resume(book, job->spec->name, j->loop->now_us);
    } else {
        admin_reply_error(r, 404, "a job can't \"%.100s\"; it can: cancel, suspend, resume", what);
        return;
    }
    if (done == JOB_E_ENDED && job_state_is_final(job->state))
        admin_reply_error(r, 409, "job %s has ended: %s", job->spec->name,
                          job_state_name(job->state));
    else if (done == JOB_E_ENDED)
        admin_reply_error(r, 409, "job %s can't %s: it is %s", job->spec->name, what,
                          job_state_name(job->state));
    else
        reply_job(r, j, job);
}

static void get_queues(struct admin_request *r, void *arg)
{
    struct controller_jobs *const j = arg;
    struct job_book *const book = job_runner_book(j->runner);
    struct json_out o;
    struct buf out;

    buf_init(&out, ANSWER_CEILING);
    json_out_init(&o, &out);
    json_out_object(&o, NULL);
    json_out_array(&o, "queues");
    for (size_t i = 0; i < job_book_n_queues(book); i++) {
        const struct job_queue_use use = job_book_queue_use(book, i, j->loop->now_us);

        json_out_object(&o, NULL);
        json_out_str(&o, "queue", use.name);
        json_out_uint(&o, "weight", use.weight);
        json_out_uint(&o, "gpu_milli_cap", use.gpu_milli_cap);
        json_out_uint(&o, "gpu_milli_deserved", use.gpu_milli_deserved);
        json_out_uint(&o, "used_gpu_milli", use.used_gpu_milli);
        json_out_uint(&o, "used_cpu_milli", use.used_cpu_milli);
        json_out_uint(&o, "jobs_waiting", use.n_waiting);
        json_out_uint(&o, "jobs_running", use.n_running);
        json_out_uint(&o, "jobs_suspended", use.n_suspended);
        json_out_uint(&o, "oldest_wait_us", use.oldest_wait_us);
        json_out_end_object(&o);
    }
    json_out_end_array(&o);
    json_out_end_object(&o);
    reply(r, 200, &out);
}

void controller_jobs_add_routes(struct controller_jobs *j, struct admin *a)
{
    admin_route(a, "POST", "/v1/jobs", post_job, j);
    admin_route(a, "GET", "/v1/jobs", get_jobs, j);
    admin_route(a, "GET", "/v1/jobs/*", get_job, j);
    admin_route(a, "GET", "/v1/queues", get_queues, j);
    admin_route(a, "POST", "/v1/jobs/*", post_to_job, j);
}
