#include "placer/job_book.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/xalloc.h"

#define BEHIND_MAX 32 /* jobs of a queue tried in a step behind its first that has no room */

/* ---- starting ---- */

static struct plan_request task_request(const struct job_task *task)
{
    const struct role_spec *role = task->role;

    return (struct plan_request){.cpu_milli = role->cpu_milli,
                                 .memory_mib = role->memory_mib,
                                 .gpu_milli = role->gpu.milli,
                                 .gpu_memory_mib = role->gpu.memory_mib,
                                 .models = role->gpu.models,
                                 .n_models = role->gpu.n_models};
}

static void task_place(struct job_task *task, const struct plan_placement *p)
{
    task->placement = *p;
    task->placed = true;
    task->job->queue->used_gpu_milli += placement_gpu_milli(p);
    task->job->queue->used_cpu_milli += p->cpu_milli;
}

/* Start every task that is placed and pending. Addresses come first: each task learns all. */
static void job_start_placed(struct job_book *book, struct job *job, uint64_t now_us)
{
    struct job_task *failed = NULL;
    struct err err = {0};

    job_set_why(book, job, "placed, starting");
    if (job->state != JOB_STARTING)
        job_set_state(book, job, JOB_STARTING, now_us);
    for (size_t i = 0; i < job->n_tasks && failed == NULL; i++) {
        struct job_task *task = &job->tasks[i];

        if (task->state == TASK_PENDING && task->placed &&
            book->effects.prepare(book->effects.arg, task, &err) < 0)
            failed = task;
    }
    for (size_t i = 0; i < job->n_tasks && failed == NULL; i++) {
        struct job_task *task = &job->tasks[i];

        if (task->state != TASK_PENDING || !task->placed)
            continue;
        free(task->id);
        task->id = xasprintf("job:%s/%s~%u", job->spec->name, task->name, ++task->tries);
        task->state = TASK_STARTING;
        task->started_us = task->ended_us = 0;
        map_set(&book->tasks, task->id, strlen(task->id), task);
        if (book->effects.start(book->effects.arg, task, &err) < 0)
            failed = task;
    }
    if (failed == NULL)
        return;
    snprintf(failed->text, sizeof(failed->text), "%.90s", err.text);
    task_end(book, failed, TASK_FAILED, now_us);
    for (size_t i = 0; i < job->n_tasks; i++)
        if (job->tasks[i].state == TASK_PENDING)
            task_release(book, &job->tasks[i]); /* those after it never began */
    job_on_task_failure(book, job, failed, now_us);
}

size_t job_pending(const struct job *job, struct plan_request *ret_reqs,
                   struct job_task **ret_tasks)
{
    size_t n = 0;

    for (size_t i = 0; i < job->n_tasks; i++) {
        if (job->tasks[i].state != TASK_PENDING)
            continue;
        ret_reqs[n] = task_request(&job->tasks[i]);
        ret_tasks[n++] = &job->tasks[i];
    }
    return n;
}

/* Has been placed: what is pending now is the rest of it. */
static bool job_has_begun(const struct job *job)
{
    return job->state == JOB_STARTING || job->state == JOB_RUNNING;
}

/* One of those that its role has to start with: the first ones. */
static bool task_is_minimum(const struct job_task *task)
{
    return task->index < job_role_min(task->job->spec, task->role);
}

size_t job_needed(const struct job *job, struct plan_request *ret_reqs, struct job_task **ret_tasks)
{
    const size_t n_pending = job_pending(job, ret_reqs, ret_tasks);
    size_t n_minimum = 0, n_more = 0, n = 0;

    if (!job_starts_partly(job->spec) || job_has_begun(job))
        return n_pending;
    for (size_t i = 0; i < n_pending; i++)
        n_minimum += task_is_minimum(ret_tasks[i]);
    if (job->spec->min_available > n_minimum)
        n_more = job->spec->min_available - n_minimum;
    for (size_t i = 0; i < n_pending; i++) {
        const bool is_minimum = task_is_minimum(ret_tasks[i]);

        if (!is_minimum && n_more == 0)
            continue;
        n_more -= !is_minimum;
        ret_reqs[n] = ret_reqs[i];
        ret_tasks[n++] = ret_tasks[i];
    }
    return n;
}

/* Has tasks to place, and its back-off is over. */
static bool job_wants_room(const struct job *job, uint64_t now_us)
{
    if (job->retry_us > now_us)
        return false;
    if (!job_has_begun(job))
        return job->state == JOB_QUEUED || job->state == JOB_WAITING;
    if (job->spec->gang && !job_starts_partly(job->spec))
        return false;
    for (size_t i = 0; i < job->n_tasks; i++)
        if (job->tasks[i].state == TASK_PENDING)
            return true;
    return false;
}

/* What became of the pending tasks. */
enum try_outcome {
    TRY_PLACED = 0,
    TRY_WAITS, /* some have no room now */
    TRY_NEVER, /* some can never have room, the others are placed */
};

/* False, and the plan rewound, when what was just placed of the job takes room that is another's:
 * that is being made for it, that the first of the queue waits for, or an overdue one of any queue.
 */
static bool plan_is_fair(struct job_book *book, const struct job *job, struct plan *plan,
                         struct plan_why *why, uint64_t now_us)
{
    const struct job *first;

    if (!job_preemptors_have_room(book, job, &first)) {
        snprintf(why->text, sizeof(why->text), "the room is being made for job %s of queue %s",
                 first->spec->name, first->queue->name);
        goto unfair;
    }
    for (size_t i = 0; i < book->n_queues; i++) {
        const struct job *waiting = book->queues[i]->blocked_by;

        if (waiting == NULL || waiting == job || book->queues[i]->blocked_by_cap)
            continue;
        if ((waiting->queue != job->queue && !job_is_overdue(waiting, now_us)) ||
            job_keeps_its_turn(book, waiting, job, plan, now_us))
            continue;
        snprintf(why->text, sizeof(why->text), "it would delay job %s of queue %s",
                 waiting->spec->name, waiting->queue->name);
        goto unfair;
    }
    return true;

unfair:
    plan_rewind(plan, (struct plan_mark){0});
    return false;
}

static enum try_outcome job_try_gang(struct job_book *book, const struct plan_request *reqs,
                                     struct job_task **tasks, size_t n, struct plan_why *why,
                                     uint64_t now_us)
{
    struct plan plan;
    enum plan_outcome r;

    plan_init(&plan, book->view);
    r = plan_gang(&plan, reqs, n, why);
    if (r == PLAN_OK && !plan_is_fair(book, tasks[0]->job, &plan, why, now_us))
        r = PLAN_E_NO_ROOM;
    for (size_t i = 0; i < plan.n; i++)
        task_place(tasks[plan.placements[i].task], &plan.placements[i]);
    plan_fini(&plan);
    return r == PLAN_OK ? TRY_PLACED : r == PLAN_E_NEVER ? TRY_NEVER : TRY_WAITS;
}

/* Each task for itself: as many as have room and stay under the queue's cap. why: of the first that
 * waits, or else of the first that never fits. */
static enum try_outcome job_try_each(struct job_book *book, const struct plan_request *reqs,
                                     struct job_task **tasks, size_t n, struct plan_why *why,
                                     uint64_t now_us)
{
    const struct job_queue *q = n > 0 ? tasks[0]->job->queue : NULL;
    enum try_outcome r = TRY_PLACED;

    for (size_t i = 0; i < n; i++) {
        struct plan_why this_why = {0};
        enum plan_outcome one = PLAN_E_NO_ROOM;
        struct plan plan;

        plan_init(&plan, book->view);
        if (q->gpu_milli_cap > 0 && q->used_gpu_milli + reqs[i].gpu_milli > q->gpu_milli_cap)
            snprintf(this_why.text, sizeof(this_why.text),
                     "queue %s holds %" PRIu64 " of at most %u milli of cards, %s asks for %u",
                     q->name, q->used_gpu_milli, q->gpu_milli_cap, tasks[i]->name,
                     reqs[i].gpu_milli);
        else
            one = plan_task(&plan, &reqs[i], &this_why);
        if (one == PLAN_OK && !plan_is_fair(book, tasks[0]->job, &plan, &this_why, now_us))
            one = PLAN_E_NO_ROOM;
        if (one == PLAN_OK) {
            task_place(tasks[i], &plan.placements[0]);
        } else if (r == TRY_PLACED || (r == TRY_NEVER && one == PLAN_E_NO_ROOM)) {
            r = one == PLAN_E_NEVER ? TRY_NEVER : TRY_WAITS;
            *why = this_why;
        }
        plan_fini(&plan);
    }
    return r;
}

/* May the queue hold so much more? */
static bool cap_allows(const struct job_queue *q, uint64_t want_milli)
{
    return q->gpu_milli_cap == 0 || q->used_gpu_milli + want_milli <= q->gpu_milli_cap;
}

/* The minimum of each role together or nothing, then as many more as have room; with fewer than
 * min_available nothing is placed. use_cap: under the cap of the queue.
 * Placements name tasks by their index in tasks. O(n x nodes x cards). */
static enum plan_outcome plan_minimum(struct plan *plan, const struct plan_request *reqs,
                                      struct job_task **tasks, size_t n, bool use_cap,
                                      struct plan_why *why)
{
    const struct job_spec *const spec = tasks[0]->job->spec;
    const struct job_queue *const q = tasks[0]->job->queue;
    struct plan_request *const first = xcalloc(n, sizeof(*first));
    size_t *const whose = xcalloc(n, sizeof(*whose)); /* of first: index in tasks */
    enum plan_outcome r = PLAN_OK;
    uint64_t want = 0;
    size_t n_first = 0;

    for (size_t i = 0; i < n; i++) {
        if (!task_is_minimum(tasks[i]))
            continue;
        whose[n_first] = i;
        first[n_first++] = reqs[i];
        want += reqs[i].gpu_milli;
    }
    if (n_first > 0)
        r = plan_gang(plan, first, n_first, why);
    for (size_t i = 0; i < plan->n; i++)
        plan->placements[i].task = whose[plan->placements[i].task];
    for (size_t i = 0; i < n && r == PLAN_OK; i++) {
        if (task_is_minimum(tasks[i]) || (use_cap && !cap_allows(q, want + reqs[i].gpu_milli)) ||
            plan_task(plan, &reqs[i], NULL) != PLAN_OK)
            continue;
        plan->placements[plan->n - 1].task = i;
        want += reqs[i].gpu_milli;
    }
    if (r == PLAN_OK && plan->n < spec->min_available) {
        if (why != NULL)
            snprintf(why->text, sizeof(why->text),
                     "%zu of its %zu tasks have room, it starts with at least %u", plan->n, n,
                     spec->min_available);
        plan_rewind(plan, (struct plan_mark){0});
        r = PLAN_E_NO_ROOM;
    }
    free(first);
    free(whose);
    return r;
}

/* Would the minimum fit if nobody else were there? */
static bool minimum_fits_empty(const struct cluster_view *view, const struct plan_request *reqs,
                               struct job_task **tasks, size_t n)
{
    struct cluster_view empty;
    struct plan plan;
    bool fits = false;

    cluster_view_copy(&empty, view);
    for (size_t i = 0; i < empty.n_nodes; i++) {
        struct plan_node *const node = &empty.nodes[i];

        node->used_cpu_milli = node->used_memory_mib = 0;
        for (uint32_t c = 0; c < node->n_cards; c++)
            node->cards[c].used_milli = node->cards[c].used_memory_mib = node->cards[c].n_users = 0;
    }
    plan_init(&plan, &empty);
    fits = plan_minimum(&plan, reqs, tasks, n, false, NULL) == PLAN_OK;
    plan_fini(&plan);
    cluster_view_fini(&empty);
    return fits;
}

/* A gang that may start partly, and has not begun. */
static enum try_outcome job_try_minimum(struct job_book *book, const struct plan_request *reqs,
                                        struct job_task **tasks, size_t n, struct plan_why *why,
                                        uint64_t now_us)
{
    struct plan plan;
    enum plan_outcome r;

    plan_init(&plan, book->view);
    r = plan_minimum(&plan, reqs, tasks, n, true, why);
    if (r == PLAN_OK && !plan_is_fair(book, tasks[0]->job, &plan, why, now_us))
        r = PLAN_E_NO_ROOM;
    for (size_t i = 0; i < plan.n; i++)
        task_place(tasks[plan.placements[i].task], &plan.placements[i]);
    plan_fini(&plan);
    if (r == PLAN_E_NO_ROOM && !minimum_fits_empty(book->view, reqs, tasks, n))
        r = PLAN_E_NEVER;
    return r == PLAN_OK ? TRY_PLACED : r == PLAN_E_NEVER ? TRY_NEVER : TRY_WAITS;
}

/* The cap of the queue against what the gang starts with, or the largest single task, asks for. */
static enum try_outcome job_check_cap(const struct job *job, const struct plan_request *reqs,
                                      struct job_task **tasks, size_t n, struct plan_why *why)
{
    const bool partly = job_starts_partly(job->spec);
    const struct job_queue *q = job->queue;
    uint64_t want = 0, least_more = UINT64_MAX;
    size_t n_first = 0;

    for (size_t i = 0; i < n; i++) {
        if (job->spec->gang && (!partly || task_is_minimum(tasks[i]))) {
            want += reqs[i].gpu_milli;
            n_first++;
        } else if (job->spec->gang) {
            least_more = reqs[i].gpu_milli < least_more ? reqs[i].gpu_milli : least_more;
        } else if (reqs[i].gpu_milli > want) {
            want = reqs[i].gpu_milli;
        }
    }
    if (partly && job->spec->min_available > n_first && n_first < n)
        want += least_more * (job->spec->min_available - n_first); /* at least */
    if (cap_allows(q, want))
        return TRY_PLACED;
    snprintf(why->text, sizeof(why->text),
             "asks for %" PRIu64 " milli of cards; queue %s holds %" PRIu64 " of at most %u", want,
             q->name, q->used_gpu_milli, q->gpu_milli_cap);
    return want > q->gpu_milli_cap ? TRY_NEVER : TRY_WAITS;
}

/* Place what there is room for, start it, say what the rest waits for. One behind the first of its
 * queue that has no room stays queued unless it delays nobody. */
static void job_try(struct job_book *book, struct job *job, uint64_t now_us)
{
    struct plan_request *reqs = xcalloc(job->n_tasks, sizeof(*reqs));
    struct job_task **tasks = xcalloc(job->n_tasks, sizeof(struct job_task *));
    const size_t n = job_pending(job, reqs, tasks);
    const bool partly = job_starts_partly(job->spec);
    const bool is_rest = partly && job_has_begun(job); /* keeps nobody waiting */
    struct job_queue *q = job->queue;
    const struct job *behind = q->blocked_by;
    struct plan_why why = {0};
    enum try_outcome r = is_rest ? TRY_PLACED : job_check_cap(job, reqs, tasks, n, &why);
    const bool is_capped = r != TRY_PLACED;
    size_t n_ending = 0;
    bool any = false;

    if (!is_capped && partly && !is_rest)
        r = job_try_minimum(book, reqs, tasks, n, &why, now_us);
    else if (!is_capped)
        r = job->spec->gang && !is_rest ? job_try_gang(book, reqs, tasks, n, &why, now_us)
                                        : job_try_each(book, reqs, tasks, n, &why, now_us);
    if (r == TRY_WAITS && !is_capped && job->spec->gang && !is_rest && behind == NULL)
        n_ending = job_preempt(book, job, reqs, job_needed(job, reqs, tasks), now_us);
    for (size_t i = 0; i < n; i++)
        any = any || tasks[i]->placed;
    free(reqs);
    free(tasks);

    if (any)
        job_start_placed(book, job, now_us);
    else if (job->state == JOB_QUEUED && behind == NULL)
        job_set_state(book, job, JOB_WAITING, now_us);
    else if (job->state == JOB_WAITING && behind != NULL)
        job_set_state(book, job, JOB_QUEUED, now_us);
    if (r == TRY_WAITS && behind == NULL && !is_rest) {
        q->blocked_by = job;
        q->blocked_by_cap = is_capped;
        job->expected_us = is_capped ? UINT64_MAX : job_expected_us(book, job, now_us);
    } else if (r == TRY_WAITS && !is_rest) {
        q->n_tried_behind++;
        job->expected_us = UINT64_MAX;
    }
    if (n_ending > 0)
        job_set_why(book, job, "waits until %zu job%s ended to make room for it", n_ending,
                    n_ending > 1 ? "s have" : " has");
    else if (r == TRY_WAITS && behind != NULL && !any && !is_rest && job_wants_room(job, now_us))
        job_set_why(book, job, "behind job %s in queue %s; by itself: %s", behind->spec->name,
                    q->name, why.text);
    else if (r != TRY_PLACED && job_wants_room(job, now_us))
        job_set_why(book, job, "%s%s: %s", any || is_rest ? "some tasks run, the rest " : "",
                    r == TRY_WAITS ? "waits for room" : "can never start here", why.text);
    else if (partly && any && job_wants_room(job, now_us))
        job_set_why(book, job, "some tasks run, the rest waits for room");
}

/* ---- order ---- */

/* Whole cards that all its tasks ask for, rounded up; at least 1. */
static uint32_t job_gpus(const struct job *job)
{
    uint64_t milli = 0;

    for (size_t i = 0; i < job->n_tasks; i++)
        milli += job->tasks[i].role->gpu.milli;
    return milli <= 1000 ? 1 : (uint32_t)((milli + 999) / 1000);
}

/* What the order of its queue may know of it. Each start is a new one: all of the estimate is left.
 */
static uint64_t job_order_key(const struct job *job)
{
    const struct order_job seen = {.number = job->number,
                                   .submit_us = job->submitted_us,
                                   .left_us = job->spec->estimate_s * US_PER_S,
                                   .gpus = job_gpus(job)};

    return job->queue->order->key(&seen);
}

/* The same for two jobs of one queue: priority; where the queue's order goes by estimates, that,
 * and those without one last; then age. */
static bool job_goes_before_in_queue(const struct job *a, const struct job *b)
{
    const struct order_ops *order = a->queue->order;
    uint64_t key_a, key_b;

    if (a->spec->priority != b->spec->priority)
        return a->spec->priority > b->spec->priority;
    if (!order->knows_durations)
        return a->number < b->number;
    if ((a->spec->estimate_s == 0) != (b->spec->estimate_s == 0))
        return a->spec->estimate_s != 0;
    key_a = job_order_key(a);
    key_b = job_order_key(b);
    return key_a != key_b ? key_a < key_b : a->number < b->number;
}

/* a goes before b: overdue ones by age; then the queue with the smaller share first; in a queue
 * its own order. */
static bool job_goes_before(const struct job *a, const struct job *b, uint64_t now_us)
{
    const struct job_queue *qa = a->queue, *qb = b->queue;
    const bool is_overdue = job_is_overdue(a, now_us);

    if (is_overdue != job_is_overdue(b, now_us))
        return is_overdue;
    if (is_overdue)
        return a->number < b->number;
    if (qa == qb)
        return job_goes_before_in_queue(a, b);
    if (qa->used_gpu_milli * qb->weight != qb->used_gpu_milli * qa->weight)
        return qa->used_gpu_milli * qb->weight < qb->used_gpu_milli * qa->weight;
    if (qa->used_cpu_milli * qb->weight != qb->used_cpu_milli * qa->weight)
        return qa->used_cpu_milli * qb->weight < qb->used_cpu_milli * qa->weight;
    return a->number < b->number;
}

/* The next to try in this step, or NULL. */
static struct job *book_next(struct job_book *book, uint64_t now_us)
{
    struct job *best = NULL;

    list_each (&book->jobs, it) {
        struct job *job = list_entry(it, struct job, node);

        if (job->tried_step == book->step || !job_wants_room(job, now_us))
            continue;
        if (job->queue->blocked_by != NULL &&
            (job->queue->blocked_by_cap || job->queue->n_tried_behind >= BEHIND_MAX))
            continue;
        if (best == NULL || job_goes_before(job, best, now_us))
            best = job;
    }
    return best;
}

static void book_forget_old(struct job_book *book)
{
    list_each (&book->jobs, it) {
        struct job *job = list_entry(it, struct job, node);

        if (book->n_ended <= JOB_ENDED_KEPT)
            return;
        if (!job_state_is_final(job->state))
            continue;
        book->n_ended--;
        job_free(book, job);
    }
}

void job_book_step(struct job_book *book, uint64_t now_us)
{
    struct job *job;

    book_forget_old(book);
    book->step++;
    book->protected_until_us = UINT64_MAX;
    for (size_t i = 0; i < book->n_queues; i++) {
        book->queues[i]->blocked_by = NULL;
        book->queues[i]->n_tried_behind = 0;
    }
    list_each (&book->jobs, it) {
        job = list_entry(it, struct job, node);
        job_check_run_limit(book, job, now_us);
        if (job->retry_us > now_us)
            continue;
        job->retry_us = 0;
        if (job->state == JOB_RETRYING)
            job_set_state(book, job, JOB_QUEUED, now_us);
    }
    while ((job = book_next(book, now_us)) != NULL) {
        job->tried_step = book->step;
        job_try(book, job, now_us);
    }
    list_each (&book->jobs, it) {
        job = list_entry(it, struct job, node);
        if (job->tried_step == book->step || !job_wants_room(job, now_us))
            continue;
        if (job->state == JOB_WAITING)
            job_set_state(book, job, JOB_QUEUED, now_us);
        job_set_why(book, job, "behind job %s in queue %s", job->queue->blocked_by->spec->name,
                    job->queue->name);
    }
}

uint64_t job_book_next_us(const struct job_book *book)
{
    uint64_t next_us = book->protected_until_us;

    list_each (&book->jobs, it) {
        const struct job *job = list_entry(it, struct job, node);

        if (job_run_limit_us(job) < next_us)
            next_us = job_run_limit_us(job);
        if (job->retry_us != 0 && !job_state_is_final(job->state) && job->retry_us < next_us)
            next_us = job->retry_us;
    }
    return next_us;
}
