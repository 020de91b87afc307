/* penstock/controller_jobs.h - batch jobs of the controller: runner, admin routes, log.
 *
 *   POST /v1/jobs[?file=NAME]        a job file -> {"job": "train", "number": 7, "state": ...}
 *   GET  /v1/jobs                    {"jobs": [...]}, oldest first
 *   GET  /v1/jobs/NAME               the newest of that name: tasks, cards, reason, its file
 *   POST /v1/jobs/NAME/cancel
 *   GET  /v1/jobs/NAME/logs[?task=worker-0&bytes=N]
 *
 * 404: no such job or task; 409: the name is taken, or it has ended; 422: the file is refused, with
 * every problem; 429: too many jobs.
 *
 * Owns:      the job runner and its book.
 * Called by: penstock/controller.c. Serving comes first: it places its replicas, then calls
 *            controller_jobs_step; so a gang starts when replicas have given up its cards.
 * Lifetime:  controller_jobs_new .. controller_jobs_free, before the driver's and the view's end.
 * Thread:    the control loop's.
 */
#ifndef PENSTOCK_CONTROLLER_JOBS_H
#define PENSTOCK_CONTROLLER_JOBS_H

#include "gateway/admin.h"
#include "placer/job_run.h"

struct controller_jobs;
struct controller_jobs *controller_jobs_new(struct loop *loop, struct driver *driver,
                                            struct cluster_view *view);
struct controller_jobs *controller_jobs_free(struct controller_jobs *j); /* returns NULL */

/* Queues of the generation now in force. */
void controller_jobs_set_generation(struct controller_jobs *j, const struct generation *g);
/* False: not a task of ours. When true the caller makes its own step, then ours. */
bool controller_jobs_on_event(struct controller_jobs *j, const struct driver_event *ev);
/* Place what waits; after the replicas. */
void controller_jobs_step(struct controller_jobs *j);
/* The process ends: cancel all that runs or waits; true when nothing runs any more. */
bool controller_jobs_stop_all(struct controller_jobs *j);

void controller_jobs_add_routes(struct controller_jobs *j, struct admin *a);

#endif
