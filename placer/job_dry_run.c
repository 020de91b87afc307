#include "placer/job_dry_run.h"

#include <stdio.h>
#include <string.h>

#include "base/xalloc.h"
#include "placer/job_book.h"

static int prepare_nothing(void *arg, struct job_task *task, struct err *err)
{
    (void)arg;
    (void)err;
    task->address[0] = '\0';
    return 0;
}

static int start_nothing(void *arg, struct job_task *task, struct err *err)
{
    (void)arg;
    (void)task;
    (void)err;
    return 0;
}

static void stop_nothing(void *arg, struct job_task *task, uint64_t grace_us)
{
    (void)arg;
    (void)task;
    (void)grace_us;
}

void job_dry_run_init(struct job_dry_run *d, const struct job_book *book)
{
    const struct job_effects effects = {
        .prepare = prepare_nothing, .start = start_nothing, .stop = stop_nothing};

    cluster_view_copy(&d->view, book->view);
    d->book = job_book_new(&d->view, &effects);
    d->book->next_number = book->next_number;
    d->book->queues = xcalloc(book->n_queues + 1, sizeof(struct job_queue *));
    d->book->n_queues = book->n_queues;
    for (size_t i = 0; i < book->n_queues; i++) {
        struct job_queue *const q = xcalloc(1, sizeof(*q));

        *q = *book->queues[i];
        q->name = xstrdup(book->queues[i]->name);
        q->blocked_by = NULL;
        d->book->queues[i] = q;
    }
}

void job_dry_run_fini(struct job_dry_run *d)
{
    d->book = job_book_free(d->book);
    cluster_view_fini(&d->view);
}

enum job_outcome job_dry_run_submit(struct job_dry_run *d, struct job_spec *spec, uint64_t now_us,
                                    struct job **ret_job)
{
    return job_submit(d->book, spec, now_us, ret_job);
}

void job_dry_run_step(struct job_dry_run *d, uint64_t now_us)
{
    job_book_step(d->book, now_us);
}

size_t job_dry_run_ahead(const struct job_book *book, const struct job *job)
{
    size_t n = 0;

    for (const struct list *it = book->jobs.next; it != &book->jobs; it = it->next) {
        const struct job *const other = list_entry((struct list *)it, struct job, node);

        n += (other->state == JOB_QUEUED || other->state == JOB_WAITING) &&
             strcmp(other->spec->queue, job->spec->queue) == 0 &&
             other->spec->priority >= job->spec->priority;
    }
    return n;
}
