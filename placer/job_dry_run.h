/* placer/job_dry_run.h - what would become of jobs if they were submitted now: the book's own code
 * on a copy of its view and queues, with effects that start nothing.
 *
 * Jobs that wait in the book are not copied: it says whether there is room now, and how many wait
 * before it (job_dry_run_ahead).
 *
 * Owns:      the copies, and the jobs that were added.
 * Called by: the controller (POST /v1/jobs?dry_run=1).
 * Lifetime:  job_dry_run_init .. job_dry_run_fini, shorter than the book's next change.
 * Thread:    the book's.
 */
#ifndef PLACER_JOB_DRY_RUN_H
#define PLACER_JOB_DRY_RUN_H

#include "placer/job.h"

struct job_dry_run {
    struct cluster_view view;
    struct job_book *book;
};

void job_dry_run_init(struct job_dry_run *d, const struct job_book *book);
void job_dry_run_fini(struct job_dry_run *d);
/* As job_submit. */
enum job_outcome job_dry_run_submit(struct job_dry_run *d, struct job_spec *spec, uint64_t now_us,
                                    struct job **ret_job);
/* Places what has room: a job that fits is then JOB_STARTING, else its why says what it lacks. */
void job_dry_run_step(struct job_dry_run *d, uint64_t now_us);
/* Jobs of book that wait in the same queue and would go first. */
size_t job_dry_run_ahead(const struct job_book *book, const struct job *job);

#endif
