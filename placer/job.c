#include "placer/job_book.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/xalloc.h"

#define BACKOFF_MAX_MS 60000 /* a job that fails at once is tried once a minute at most */

/* ---- states ---- */

#define TO(s) (1u << JOB_##s)
static const struct {
    const char *name;
    unsigned next;
} states[JOB_N_STATES] = {
    [JOB_QUEUED] = {"queued", TO(WAITING) | TO(STARTING) | TO(RETRYING) | TO(SUSPENDED) |
                                  TO(FAILED) | TO(CANCELLED)},
    [JOB_WAITING] = {"waiting", TO(QUEUED) | TO(STARTING) | TO(RETRYING) | TO(SUSPENDED) |
                                    TO(FAILED) | TO(CANCELLED)},
    [JOB_STARTING] = {"starting", TO(RUNNING) | TO(STOPPING) | TO(RETRYING) | TO(SUSPENDED) |
                                      TO(SUCCEEDED) | TO(CANCELLED) | TO(FAILED)},
    [JOB_RUNNING] = {"running", TO(STARTING) | TO(STOPPING) | TO(RETRYING) | TO(SUSPENDED) |
                                    TO(SUCCEEDED) | TO(CANCELLED) | TO(FAILED)},
    [JOB_STOPPING] = {"stopping", TO(QUEUED) | TO(RETRYING) | TO(SUSPENDED) | TO(SUCCEEDED) |
                                      TO(FAILED) | TO(CANCELLED)},
    [JOB_RETRYING] = {"retrying", TO(QUEUED) | TO(SUSPENDED) | TO(CANCELLED)},
    [JOB_SUSPENDED] = {"suspended", TO(QUEUED) | TO(CANCELLED)},
    [JOB_SUCCEEDED] = {"succeeded", 0},
    [JOB_FAILED] = {"failed", 0},
    [JOB_CANCELLED] = {"cancelled", 0},
};
#undef TO

static const char *const task_names[TASK_N_STATES] = {
    [TASK_PENDING] = "pending",   [TASK_STARTING] = "starting",   [TASK_RUNNING] = "running",
    [TASK_STOPPING] = "stopping", [TASK_SUCCEEDED] = "succeeded", [TASK_FAILED] = "failed",
    [TASK_STOPPED] = "stopped",
};

const char *job_state_name(enum job_state s)
{
    check(s < JOB_N_STATES);
    return states[s].name;
}

const char *task_state_name(enum task_state s)
{
    check(s < TASK_N_STATES);
    return task_names[s];
}

bool job_state_is_final(enum job_state s)
{
    return s == JOB_SUCCEEDED || s == JOB_FAILED || s == JOB_CANCELLED;
}

static void job_tell(struct job_book *book, struct job *job, bool is_new_state)
{
    if (book->effects.changed != NULL)
        book->effects.changed(book->effects.arg, job, is_new_state);
}

void job_set_state(struct job_book *book, struct job *job, enum job_state to, uint64_t now_us)
{
    check(states[job->state].next & (1u << to));
    if (job_state_is_final(to)) {
        book->n_alive--;
        book->n_ended++;
        job->ended_us = now_us;
    }
    if (to == JOB_STARTING && !(job->state == JOB_RUNNING && job->spec->gang)) {
        job->start_us = now_us; /* the rest of a gang does not begin it anew */
        if (job->first_start_us == 0)
            job->first_start_us = now_us;
    }
    job->state = to;
    job_tell(book, job, true);
}

void job_set_why(struct job_book *book, struct job *job, const char *fmt, ...)
{
    char text[sizeof(job->why)];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    if (strcmp(text, job->why) == 0)
        return;
    memcpy(job->why, text, sizeof(text));
    job_tell(book, job, false);
}

/* ---- book ---- */

struct job_book *job_book_new(struct cluster_view *view, const struct job_effects *effects)
{
    struct job_book *book = xcalloc(1, sizeof(*book));

    book->view = view;
    book->effects = *effects;
    book->next_number = 1;
    book->protected_until_us = UINT64_MAX;
    list_init(&book->jobs);
    map_init(&book->tasks);
    return book;
}

void job_free(struct job_book *book, struct job *job)
{
    for (size_t i = 0; i < job->n_tasks; i++) {
        struct job_task *task = &job->tasks[i];

        if (task->placed)
            cluster_view_release(book->view, &task->placement);
        free(task->name);
        free(task->log);
        free(task->id);
    }
    list_remove(&job->node);
    job_spec_free(job->spec);
    free(job->tasks);
    free(job);
}

struct job_book *job_book_free(struct job_book *book)
{
    if (book == NULL)
        return NULL;
    list_each (&book->jobs, it)
        job_free(book, list_entry(it, struct job, node));
    for (size_t i = 0; i < book->n_queues; i++) {
        free(book->queues[i]->name);
        free(book->queues[i]);
    }
    free(book->queues);
    map_fini(&book->tasks);
    free(book);
    return NULL;
}

static struct job_queue *book_queue(struct job_book *book, const char *name)
{
    struct job_queue *q;

    for (size_t i = 0; i < book->n_queues; i++)
        if (strcmp(book->queues[i]->name, name) == 0)
            return book->queues[i];
    q = xcalloc(1, sizeof(*q));
    q->name = xstrdup(name);
    q->order = &order_fifo;
    q->weight = 1;
    q->index = book->n_queues;
    book->queues = xrealloc(book->queues, book->n_queues + 1, sizeof(*book->queues));
    book->queues[book->n_queues++] = q;
    return q;
}

size_t job_book_n_queues(const struct job_book *book)
{
    return book->n_queues;
}

struct job_queue_use job_book_queue_use(struct job_book *book, size_t i, uint64_t now_us)
{
    const struct job_queue *q = book->queues[i];
    struct job_queue_use use = {.name = q->name,
                                .weight = q->weight,
                                .gpu_milli_cap = q->gpu_milli_cap,
                                .gpu_milli_deserved = q->gpu_milli_deserved,
                                .used_gpu_milli = q->used_gpu_milli,
                                .used_cpu_milli = q->used_cpu_milli};

    list_each (&book->jobs, it) {
        const struct job *job = list_entry(it, struct job, node);

        if (job->queue != q || job_state_is_final(job->state))
            continue;
        if (job->state == JOB_SUSPENDED) {
            use.n_suspended++;
        } else if (job->state == JOB_QUEUED || job->state == JOB_WAITING ||
                   job->state == JOB_RETRYING) {
            use.n_waiting++;
            if (now_us - job->submitted_us > use.oldest_wait_us)
                use.oldest_wait_us = now_us - job->submitted_us;
        } else {
            use.n_running++;
        }
    }
    return use;
}

static const struct order_ops *const queue_orders[] = {
    [QUEUE_ORDER_FIFO] = &order_fifo,
    [QUEUE_ORDER_SRTF] = &order_srtf,
    [QUEUE_ORDER_SRSF] = &order_srsf,
};

void job_book_set_queues(struct job_book *book, const struct queue_conf *queues, size_t n_queues)
{
    for (size_t i = 0; i < book->n_queues; i++) {
        struct job_queue *q = book->queues[i];

        q->order = &order_fifo;
        q->weight = 1;
        q->gpu_milli_cap = q->gpu_milli_deserved = 0;
        q->preempt = false;
        q->min_run_us = q->max_wait_us = 0;
    }
    for (size_t i = 0; i < n_queues; i++) {
        struct job_queue *q = book_queue(book, queues[i].name);

        q->order = queue_orders[queues[i].order];
        q->weight = queues[i].weight > 0 ? queues[i].weight : 1;
        q->gpu_milli_cap = queues[i].gpu_milli_cap;
        q->gpu_milli_deserved = queues[i].gpu_milli_deserved;
        q->preempt = queues[i].preempt;
        q->min_run_us = queues[i].min_run_s * US_PER_S;
        q->max_wait_us = queues[i].max_wait_s * US_PER_S;
    }
}

struct job *job_find(const struct job_book *book, const char *name)
{
    for (const struct list *it = book->jobs.prev; it != &book->jobs; it = it->prev) {
        struct job *job = list_entry((struct list *)it, struct job, node);

        if (strcmp(job->spec->name, name) == 0)
            return job;
    }
    return NULL;
}

void job_book_each(struct job_book *book, job_each_fn fn, void *arg)
{
    list_each (&book->jobs, it)
        fn(arg, list_entry(it, struct job, node));
}

bool job_book_has_room(const struct job_book *book, size_t n)
{
    return book->n_alive + n <= JOB_BOOK_MAX;
}

enum job_outcome job_submit(struct job_book *book, struct job_spec *spec, uint64_t now_us,
                            struct job **ret_job)
{
    const struct job *same = job_find(book, spec->name);
    struct job *job;

    if (same != NULL && !job_state_is_final(same->state))
        return JOB_E_EXISTS;
    if (!job_book_has_room(book, 1))
        return JOB_E_FULL;
    job = xcalloc(1, sizeof(*job));
    job->number = book->next_number++;
    job->spec = spec;
    job->queue = book_queue(book, spec->queue);
    job->submitted_us = now_us;
    job->expected_us = UINT64_MAX;
    for (size_t r = 0; r < spec->n_roles; r++)
        job->n_tasks += spec->roles[r].count;
    job->tasks = xcalloc(job->n_tasks, sizeof(*job->tasks));
    for (size_t r = 0, rank = 0; r < spec->n_roles; r++) {
        for (uint32_t i = 0; i < spec->roles[r].count; i++, rank++) {
            struct job_task *task = &job->tasks[rank];

            task->job = job;
            task->role = &spec->roles[r];
            task->index = i;
            task->rank = (uint32_t)rank;
            task->name = xasprintf("%s-%u", task->role->role, i);
            task->log = xasprintf("job-%s.%" PRIu64 ".%s", spec->name, job->number, task->name);
            task->id = xasprintf("job:%s/%s", spec->name, task->name);
        }
    }
    list_push_back(&book->jobs, &job->node);
    book->n_alive++;
    snprintf(job->why, sizeof(job->why), "submitted");
    job_tell(book, job, true);
    if (ret_job != NULL)
        *ret_job = job;
    return JOB_OK;
}

/* ---- ends ---- */

static bool task_is_active(const struct job_task *task)
{
    return task->state == TASK_STARTING || task->state == TASK_RUNNING ||
           task->state == TASK_STOPPING;
}

static bool job_has_active(const struct job *job)
{
    for (size_t i = 0; i < job->n_tasks; i++)
        if (task_is_active(&job->tasks[i]))
            return true;
    return false;
}

uint64_t placement_gpu_milli(const struct plan_placement *p)
{
    return (uint64_t)p->gpu_milli * p->n_cards;
}

void task_release(struct job_book *book, struct job_task *task)
{
    if (!task->placed)
        return;
    cluster_view_release(book->view, &task->placement);
    task->job->queue->used_gpu_milli -= placement_gpu_milli(&task->placement);
    task->job->queue->used_cpu_milli -= task->placement.cpu_milli;
    task->placed = false;
}

void task_end(struct job_book *book, struct job_task *task, enum task_state state, uint64_t now_us)
{
    map_del(&book->tasks, task->id, strlen(task->id));
    task_release(book, task);
    task->state = state;
    task->ended_us = now_us;
}

static uint64_t job_backoff_us(const struct job *job)
{
    uint64_t ms = job->spec->backoff_ms;

    for (uint32_t i = 1; i < job->failures && ms < BACKOFF_MAX_MS; i++)
        ms *= 2;
    return (ms < BACKOFF_MAX_MS ? ms : BACKOFF_MAX_MS) * US_PER_MS;
}

/* Every task back to the start, for the next try of a gang; of other jobs those that have not
 * succeeded. */
static void job_reset_tasks(struct job *job)
{
    for (size_t i = 0; i < job->n_tasks; i++) {
        struct job_task *task = &job->tasks[i];

        check(!task_is_active(task) && !task->placed);
        if (job->spec->gang || task->state != TASK_SUCCEEDED)
            task->state = TASK_PENDING;
    }
}

/* All tasks that end by themselves have succeeded: services are stopped. */
static bool job_is_done(const struct job *job)
{
    for (size_t i = 0; i < job->n_tasks; i++)
        if (!job->tasks[i].role->service && job->tasks[i].state != TASK_SUCCEEDED)
            return false;
    return true;
}

/* Nothing of the job runs any more: it becomes what it was stopped for. */
static void job_finish(struct job_book *book, struct job *job, enum job_state to, uint64_t now_us)
{
    if ((to == JOB_QUEUED || to == JOB_SUSPENDED) && job_is_done(job))
        to = JOB_SUCCEEDED; /* it ended by itself just before it was ended */
    if (to == JOB_RETRYING)
        job->retry_us = now_us + job_backoff_us(job);
    if (to == JOB_RETRYING || to == JOB_QUEUED || to == JOB_SUSPENDED)
        job_reset_tasks(job);
    job_set_state(book, job, to, now_us);
}

/* Ends what still runs; the job becomes `ending` when that is done. */
static void job_stop(struct job_book *book, struct job *job, enum job_state ending, uint64_t now_us)
{
    if (!job_has_active(job)) {
        job_finish(book, job, ending, now_us);
        return;
    }
    job->ending = ending;
    job_set_state(book, job, JOB_STOPPING, now_us);
    for (size_t i = 0; i < job->n_tasks; i++) {
        struct job_task *task = &job->tasks[i];

        if (task->state != TASK_STARTING && task->state != TASK_RUNNING)
            continue;
        task->state = TASK_STOPPING;
        book->effects.stop(book->effects.arg, task, job->spec->grace_ms * US_PER_MS);
    }
}

void job_evict(struct job_book *book, struct job *job, const struct job *for_job, uint64_t now_us)
{
    job->evictions++;
    job->evicted_for = for_job->number;
    job_set_why(book, job, "ended to make room for job %s of queue %s; waits again",
                for_job->spec->name, for_job->queue->name);
    job_stop(book, job, JOB_QUEUED, now_us);
}

void job_on_task_failure(struct job_book *book, struct job *job, struct job_task *task,
                         uint64_t now_us)
{
    const bool again = ++job->failures <= job->spec->retries;

    if (again)
        job_set_why(book, job, "%s failed (%s), retry %u of %u", task->name, task->text,
                    job->failures, job->spec->retries);
    else
        job_set_why(book, job, "%s failed (%s) after %u of %u retries", task->name, task->text,
                    job->failures - 1, job->spec->retries);
    if (!again) {
        job_stop(book, job, JOB_FAILED, now_us);
    } else if (job->spec->gang) {
        job_stop(book, job, JOB_RETRYING, now_us);
    } else {
        task->state = TASK_PENDING; /* alone; the others go on */
        job->retry_us = now_us + job_backoff_us(job);
        if (!job_has_active(job))
            job_set_state(book, job, JOB_RETRYING, now_us);
    }
}

/* A job whose placed tasks have all begun runs. */
static void job_settle(struct job_book *book, struct job *job, uint64_t now_us)
{
    bool all = true;

    if (job->state != JOB_STARTING || !job_has_active(job))
        return;
    for (size_t i = 0; i < job->n_tasks; i++) {
        if (job->tasks[i].state == TASK_STARTING)
            return;
        all = all && job->tasks[i].state != TASK_PENDING;
    }
    if (all) /* else why says what the rest waits for */
        job_set_why(book, job, "every task has started");
    job_set_state(book, job, JOB_RUNNING, now_us);
}

static void job_on_task_end(struct job_book *book, struct job *job, struct job_task *task,
                            uint64_t now_us)
{
    if (job->state == JOB_STOPPING) {
        if (!job_has_active(job))
            job_finish(book, job, job->ending, now_us);
        return;
    }
    if (task->state == TASK_FAILED) {
        job_on_task_failure(book, job, task, now_us);
    } else if (job_is_done(job)) {
        job_set_why(book, job, "every task succeeded");
        job_stop(book, job, JOB_SUCCEEDED, now_us);
    }
    job_settle(book, job, now_us);
}

enum job_outcome job_cancel(struct job_book *book, const char *name, const char *why,
                            uint64_t now_us)
{
    struct job *job = job_find(book, name);

    if (job == NULL)
        return JOB_E_UNKNOWN;
    if (job_state_is_final(job->state))
        return JOB_E_ENDED;
    if (job->state == JOB_STOPPING && job->ending == JOB_SUCCEEDED)
        return JOB_E_ENDED; /* its work is done, only services are left to stop */
    job_set_why(book, job, "%s", why);
    if (job->state == JOB_STOPPING)
        job->ending = JOB_CANCELLED;
    else
        job_stop(book, job, JOB_CANCELLED, now_us);
    return JOB_OK;
}

enum job_outcome job_suspend(struct job_book *book, const char *name, uint64_t now_us)
{
    struct job *job = job_find(book, name);

    if (job == NULL)
        return JOB_E_UNKNOWN;
    if (job_state_is_final(job->state) ||
        (job->state == JOB_STOPPING && job_state_is_final(job->ending)))
        return JOB_E_ENDED;
    if (job->state == JOB_SUSPENDED)
        return JOB_OK;
    job_set_why(book, job, "suspended by an operator");
    if (job->state == JOB_STOPPING)
        job->ending = JOB_SUSPENDED;
    else
        job_stop(book, job, JOB_SUSPENDED, now_us);
    job->retry_us = 0;
    return JOB_OK;
}

enum job_outcome job_resume(struct job_book *book, const char *name, uint64_t now_us)
{
    struct job *job = job_find(book, name);

    if (job == NULL)
        return JOB_E_UNKNOWN;
    if (job->state == JOB_STOPPING && job->ending == JOB_SUSPENDED)
        job->ending = JOB_QUEUED;
    else if (job->state == JOB_SUSPENDED)
        job_set_state(book, job, JOB_QUEUED, now_us);
    else
        return JOB_E_ENDED;
    job_set_why(book, job, "resumed by an operator");
    return JOB_OK;
}

/* Runs, and has a limit on it. */
static bool job_has_run_limit(const struct job *job)
{
    return job->spec->max_run_s > 0 && (job->state == JOB_STARTING || job->state == JOB_RUNNING);
}

uint64_t job_run_limit_us(const struct job *job)
{
    return job_has_run_limit(job) ? job->start_us + job->spec->max_run_s * US_PER_S : UINT64_MAX;
}

void job_check_run_limit(struct job_book *book, struct job *job, uint64_t now_us)
{
    if (now_us < job_run_limit_us(job))
        return;
    job_set_why(book, job, "ran longer than its max_run_s of %u s", job->spec->max_run_s);
    job_stop(book, job, JOB_FAILED, now_us);
}

/* ---- events ---- */

static struct job_task *book_task(const struct job_book *book, const char *id)
{
    return map_get(&book->tasks, id, strlen(id));
}

bool job_on_started(struct job_book *book, const char *id, int pid, uint64_t now_us)
{
    struct job_task *task = book_task(book, id);

    if (task == NULL)
        return false;
    task->pid = pid;
    task->started_us = now_us;
    if (task->state == TASK_STARTING) { /* else it is being stopped already */
        task->state = TASK_RUNNING;
        job_settle(book, task->job, now_us);
    }
    return true;
}

bool job_on_exited(struct job_book *book, const char *id, int status, uint64_t now_us)
{
    struct job_task *task = book_task(book, id);
    enum task_state state = status == 0 ? TASK_SUCCEEDED : TASK_FAILED;

    if (task == NULL)
        return false;
    if (task->state == TASK_STOPPING && status != 0)
        state = TASK_STOPPED;
    task->status = status;
    if (status < 0)
        snprintf(task->text, sizeof(task->text), "killed by signal %d", -status);
    else
        snprintf(task->text, sizeof(task->text), "exit status %d", status);
    task_end(book, task, state, now_us);
    job_on_task_end(book, task->job, task, now_us);
    return true;
}

bool job_on_failed(struct job_book *book, const char *id, const char *text, uint64_t now_us)
{
    struct job_task *task = book_task(book, id);
    enum task_state state = TASK_FAILED;

    if (task == NULL)
        return false;
    if (task->state == TASK_STOPPING)
        state = TASK_STOPPED;
    snprintf(task->text, sizeof(task->text), "%s", text);
    task_end(book, task, state, now_us);
    job_on_task_end(book, task->job, task, now_us);
    return true;
}
