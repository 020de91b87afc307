#include <stdlib.h>

#include "base/clock.h"
#include "base/xalloc.h"
#include "placer/job_book.h"

#define UNKNOWN_US (UINT64_MAX - 1) /* ends some time */

/* Something that stands in the view and ends. */
struct end {
    uint64_t us;
    const struct job *job;   /* its placed tasks */
    const struct plan *plan; /* or these placements */
};

static int end_cmp(const void *pa, const void *pb)
{
    const struct end *a = pa, *b = pb;

    return a->us < b->us ? -1 : a->us > b->us;
}

static uint64_t job_end_us(const struct job *job, uint64_t now_us)
{
    const uint64_t end_us = job->start_us + job->spec->estimate_s * US_PER_S;

    if (job->state == JOB_STOPPING)
        return now_us;
    if (job->spec->estimate_s == 0)
        return UNKNOWN_US;
    return end_us > now_us ? end_us : now_us;
}

/* Whether the requests fit once the first n ends have come. */
static bool fits_after(const struct cluster_view *now, const struct plan_request *reqs,
                       size_t n_reqs, const struct end *ends, size_t n)
{
    struct cluster_view view;
    struct plan plan;
    bool fits;

    cluster_view_copy(&view, now);
    for (size_t e = 0; e < n; e++) {
        for (size_t i = 0; ends[e].job != NULL && i < ends[e].job->n_tasks; i++)
            if (ends[e].job->tasks[i].placed)
                cluster_view_release(&view, &ends[e].job->tasks[i].placement);
        for (size_t i = 0; ends[e].plan != NULL && i < ends[e].plan->n; i++)
            cluster_view_release(&view, &ends[e].plan->placements[i]);
    }
    plan_init(&plan, &view);
    fits = plan_gang(&plan, reqs, n_reqs, NULL) == PLAN_OK;
    plan_fini(&plan);
    cluster_view_fini(&view);
    return fits;
}

/* When the job has room, if what runs ends when it says. plan: placements in the view that are no
 * job's yet, NULL for none; they end at plan_end_us. UNKNOWN_US: when some have ended that do not
 * say; UINT64_MAX: not even then. Room only grows with each end, so the first is found by halving:
 * O((nodes + jobs) x log jobs). */
static uint64_t job_room_us(struct job_book *book, const struct job *job, const struct plan *plan,
                            uint64_t plan_end_us, uint64_t now_us)
{
    struct plan_request *reqs = xcalloc(job->n_tasks, sizeof(*reqs));
    struct job_task **tasks = xcalloc(job->n_tasks, sizeof(struct job_task *));
    struct end *ends = xcalloc(book->n_alive + 1, sizeof(*ends));
    const size_t n_pending = job_needed(job, reqs, tasks);
    const size_t n_reqs = job->spec->gang || n_pending == 0 ? n_pending : 1;
    size_t n = 0, low = 0, high;
    uint64_t room_us = UINT64_MAX;

    list_each (&book->jobs, it) {
        const struct job *other = list_entry(it, struct job, node);

        if (other != job && (other->state == JOB_STARTING || other->state == JOB_RUNNING ||
                             other->state == JOB_STOPPING))
            ends[n++] = (struct end){.us = job_end_us(other, now_us), .job = other};
    }
    if (plan != NULL && plan_end_us != UINT64_MAX)
        ends[n++] = (struct end){.us = plan_end_us, .plan = plan};
    qsort(ends, n, sizeof(*ends), end_cmp);
    if (fits_after(book->view, reqs, n_reqs, ends, n)) {
        high = n; /* fits after high ends; low: not known */
        while (low < high) {
            const size_t half = low + (high - low) / 2;

            if (fits_after(book->view, reqs, n_reqs, ends, half))
                high = half;
            else
                low = half + 1;
        }
        room_us = high == 0 ? now_us : ends[high - 1].us;
    }
    free(reqs);
    free(tasks);
    free(ends);
    return room_us;
}

uint64_t job_expected_us(struct job_book *book, const struct job *job, uint64_t now_us)
{
    const uint64_t us = job_room_us(book, job, NULL, 0, now_us);

    return us >= UNKNOWN_US ? UINT64_MAX : us;
}

bool job_is_overdue(const struct job *job, uint64_t now_us)
{
    return job->queue->max_wait_us > 0 && (job->state == JOB_QUEUED || job->state == JOB_WAITING) &&
           now_us >= job->submitted_us + job->queue->max_wait_us;
}

bool job_keeps_its_turn(struct job_book *book, const struct job *waiting, const struct job *placed,
                        const struct plan *plan, uint64_t now_us)
{
    const uint64_t with_us = now_us + placed->spec->estimate_s * US_PER_S * 3 / 2;
    const uint64_t room_us = job_room_us(book, waiting, plan, now_us, now_us);
    bool may_end = placed->spec->estimate_s > 0 && placed->spec->gang;

    if (room_us == UNKNOWN_US || job_is_overdue(waiting, now_us))
        may_end = false; /* it has to leave the room itself, not only to end in time */
    return job_room_us(book, waiting, plan, may_end ? with_us : UINT64_MAX, now_us) <= room_us;
}
