/* placer/job_run.h - runs the jobs of a book on a driver: addresses, environment, events, retries.
 *
 * Each task gets, beside the driver's own (placer/driver.h) and its role's `env`:
 *   PENSTOCK_JOB PENSTOCK_TASK ("worker-0") PENSTOCK_ROLE PENSTOCK_INDEX PENSTOCK_TRY
 *   RANK WORLD_SIZE LOCAL_RANK MASTER_ADDR MASTER_PORT (rank 0, as torch.distributed wants them)
 *   TF_CONFIG {"cluster":{"worker":["host:port",...],...},"task":{"type":"worker","index":0}}
 *
 * Owns:      the book.
 * Called by: the controller.
 * Lifetime:  job_runner_new .. job_runner_free, before the driver's and the view's end.
 * Thread:    the control loop's.
 * Source:    TensorFlow, distributed training guide (TF_CONFIG); PyTorch, environment variable
 *            initialisation.
 */
#ifndef PLACER_JOB_RUN_H
#define PLACER_JOB_RUN_H

#include "placer/driver.h"
#include "placer/job.h"

struct job_runner_conf {
    struct loop *loop;
    struct driver *driver;
    struct cluster_view *view;
    /* As in struct job_effects; must not call the runner. NULL: nobody listens. */
    void (*changed)(void *arg, struct job *job, bool is_new_state);
    void *arg;
};

struct job_runner;
struct job_runner *job_runner_new(const struct job_runner_conf *conf);
struct job_runner *job_runner_free(struct job_runner *r); /* returns NULL */
struct job_book *job_runner_book(struct job_runner *r);

/* Place what waits. After a submission, a cancel, and whenever room came free; serving first. */
void job_runner_step(struct job_runner *r);

/* False: the unit is not a task of ours. When it released something, the caller may want to place
 * its replicas before it calls job_runner_step. */
bool job_runner_on_event(struct job_runner *r, const struct driver_event *ev);

#endif
