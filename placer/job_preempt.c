#include <stdlib.h>

#include "base/clock.h"
#include "base/xalloc.h"
#include "placer/job_book.h"
#include "placer/preempt.h"

#define VICTIMS_MAX 32 /* gangs that may end for one that waits */

/* Jobs that are being ended for this one. */
static size_t job_n_ending_for(struct job_book *book, const struct job *job)
{
    size_t n = 0;

    list_each (&book->jobs, it) {
        const struct job *other = list_entry(it, struct job, node);

        n += other->state == JOB_STOPPING && other->evicted_for == job->number &&
             other->ending == JOB_QUEUED;
    }
    return n;
}

static uint64_t job_protected_until_us(const struct job *job)
{
    return job->start_us + job->queue->min_run_us;
}

/* Whether the queues let `other` be ended for the job, sooner or later; what each queue holds and
 * deserves is preempt_plan's business. */
static bool job_may_end(const struct job *job, const struct job *other)
{
    if ((other->state != JOB_STARTING && other->state != JOB_RUNNING) || !other->spec->gang ||
        !other->spec->preemptible)
        return false;
    if (other->queue == job->queue)
        return job->queue->preempt && other->spec->priority < job->spec->priority;
    return job->queue->gpu_milli_deserved > 0;
}

/* Work since the last checkpoint, in milliseconds of whole cards. */
static uint64_t job_lost_gpu_ms(const struct job *job, uint64_t gpu_milli, uint64_t now_us)
{
    uint64_t ms = (now_us - job->start_us) / US_PER_MS;

    if (job->spec->checkpoint_s > 0)
        ms %= job->spec->checkpoint_s * (uint64_t)1000;
    return ms * gpu_milli / PLAN_CARD_MILLI;
}

/* A running gang as the planner sees it; its placements are appended to all. */
static struct preempt_victim victim_of(const struct job *job, struct plan_placement *ret_placements,
                                       uint64_t now_us)
{
    struct preempt_victim v = {.placements = ret_placements,
                               .queue = job->queue->index,
                               .priority = job->spec->priority,
                               .start_us = job->start_us};
    uint64_t gpu_milli = 0;

    for (size_t i = 0; i < job->n_tasks; i++) {
        if (!job->tasks[i].placed)
            continue;
        gpu_milli += placement_gpu_milli(&job->tasks[i].placement);
        ret_placements[v.n_placements++] = job->tasks[i].placement;
    }
    v.lost_gpu_ms = job_lost_gpu_ms(job, gpu_milli, now_us);
    return v;
}

/* The job that this one is being ended for, or NULL. */
static struct job *ended_for(struct job_book *book, const struct job *job)
{
    if (job->state != JOB_STOPPING || job->ending != JOB_QUEUED)
        return NULL;
    list_each (&book->jobs, it) {
        struct job *other = list_entry(it, struct job, node);

        if (other->number == job->evicted_for)
            return other->state == JOB_WAITING || other->state == JOB_QUEUED ? other : NULL;
    }
    return NULL;
}

/* Whether the job fits when those that are being ended for it are gone. */
static bool job_fits_after(struct job_book *book, const struct job *job)
{
    struct plan_request *reqs = xcalloc(job->n_tasks, sizeof(*reqs));
    struct job_task **tasks = xcalloc(job->n_tasks, sizeof(struct job_task *));
    const size_t n = job_needed(job, reqs, tasks);
    struct cluster_view view;
    struct plan plan;
    bool fits;

    cluster_view_copy(&view, book->view);
    list_each (&book->jobs, it) {
        const struct job *other = list_entry(it, struct job, node);

        for (size_t i = 0; ended_for(book, other) == job && i < other->n_tasks; i++)
            if (other->tasks[i].placed)
                cluster_view_release(&view, &other->tasks[i].placement);
    }
    plan_init(&plan, &view);
    fits = plan_gang(&plan, reqs, n, NULL) == PLAN_OK;
    plan_fini(&plan);
    cluster_view_fini(&view);
    free(reqs);
    free(tasks);
    return fits;
}

bool job_preemptors_have_room(struct job_book *book, const struct job *placed,
                              const struct job **ret_first)
{
    const struct job *checked = NULL;

    list_each (&book->jobs, it) {
        const struct job *for_job = ended_for(book, list_entry(it, struct job, node));

        if (for_job == NULL || for_job == placed || for_job == checked)
            continue;
        if (!job_fits_after(book, for_job)) {
            *ret_first = for_job;
            return false;
        }
        checked = for_job;
    }
    return true;
}

size_t job_preempt(struct job_book *book, struct job *job, const struct plan_request *reqs,
                   size_t n_reqs, uint64_t now_us)
{
    size_t n = job_n_ending_for(book, job), n_jobs = 0, n_tasks = 0, chosen[VICTIMS_MAX];
    struct preempt_victim *victims;
    struct plan_placement *placements;
    struct preempt_queue *queues;
    struct job **jobs;

    if (n > 0 || (!job->queue->preempt && job->queue->gpu_milli_deserved == 0))
        return n;
    list_each (&book->jobs, it) {
        const struct job *other = list_entry(it, struct job, node);

        if (!job_may_end(job, other))
            continue;
        if (job_protected_until_us(other) > now_us) {
            if (job_protected_until_us(other) < book->protected_until_us)
                book->protected_until_us = job_protected_until_us(other);
            continue;
        }
        n_jobs++;
        n_tasks += other->n_tasks;
    }
    if (n_jobs == 0)
        return 0;

    victims = xcalloc(n_jobs, sizeof(*victims));
    placements = xcalloc(n_tasks, sizeof(*placements));
    queues = xcalloc(book->n_queues, sizeof(*queues));
    jobs = xcalloc(n_jobs, sizeof(struct job *));
    n_jobs = n_tasks = 0;
    list_each (&book->jobs, it) {
        struct job *other = list_entry(it, struct job, node);

        if (!job_may_end(job, other) || job_protected_until_us(other) > now_us)
            continue;
        victims[n_jobs] = victim_of(other, &placements[n_tasks], now_us);
        n_tasks += victims[n_jobs].n_placements;
        jobs[n_jobs++] = other;
    }
    for (size_t q = 0; q < book->n_queues; q++)
        queues[q] = (struct preempt_queue){book->queues[q]->used_gpu_milli,
                                           book->queues[q]->gpu_milli_deserved};
    if (preempt_plan(book->view,
                     &(struct preempt_ask){.tasks = reqs,
                                           .n_tasks = n_reqs,
                                           .queue = job->queue->index,
                                           .priority = job->spec->priority,
                                           .queues = queues,
                                           .n_queues = book->n_queues,
                                           .max_victims = VICTIMS_MAX},
                     victims, n_jobs, chosen, &n) != PLAN_OK)
        n = 0;
    for (size_t i = 0; i < n; i++)
        job_evict(book, jobs[chosen[i]], job, now_us);
    free(victims);
    free(placements);
    free(queues);
    free(jobs);
    return n;
}
