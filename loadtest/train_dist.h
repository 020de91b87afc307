/* loadtest/train_dist.h - synchronous SGD over gRPC: the parameter server and its workers.
 *
 * Both run until the plan is done. A worker that dies and comes back joins anew and computes the
 * present step; a server that comes back resumes from its checkpoint, and the workers, which retry
 * meanwhile, with it. The result is that of one process with the same plan, but for the order in
 * which floats are added up.
 *
 * Called by: train_main.c.
 * Thread:    main.
 */
#ifndef LOADTEST_TRAIN_DIST_H
#define LOADTEST_TRAIN_DIST_H

#include "loadtest/train_cluster.h"
#include "loadtest/train_run.h"

#define TRAIN_JOIN "/penstock.train.ParameterServer/Join"
#define TRAIN_PUSH "/penstock.train.ParameterServer/Push"

/* A message holds the parameters of the largest network (four layers of 4096 x 4096), and some. */
#define TRAIN_MAX_MESSAGE (UINT32_C(4) * 4097 * 4096 * 4 + 65536)

/* The part of a batch that is worker's: [*ret_from, *ret_to). */
void train_slice(const struct train_plan *plan, uint32_t worker, uint32_t n_workers,
                 uint32_t *ret_from, uint32_t *ret_to);

/* Both return the exit status, after a line about what went wrong. */
int train_serve(struct train_conf *conf, const struct train_cluster *cluster); /* PS, HOST */
int train_work(struct train_conf *conf, const struct train_cluster *cluster);  /* WORKER */

#endif
