/* loadtest/train_plan.h - what a training run does, step by step: order, rate, end.
 *
 * A pure function of the plan: whoever asks (one process, a parameter server, any worker, a run
 * that was resumed) gets the same batch for the same step.
 *
 * Owns:      train_order: the permutation of one epoch.
 * Called by: trainer.c, train_ps.c, train_worker.c.
 * Thread:    any; one train_order per thread.
 */
#ifndef LOADTEST_TRAIN_PLAN_H
#define LOADTEST_TRAIN_PLAN_H

#include <stdbool.h>
#include <stdint.h>

#include "loadtest/nn.h"

struct train_plan {
    struct nn_shape shape;
    uint64_t seed;       /* of start values and order */
    uint32_t epochs;     /* 1..TRAIN_MAX_EPOCHS */
    uint32_t batch;      /* examples of one step over all workers, 1..NN_MAX_BATCH, <= n_examples */
    uint32_t n_examples; /* the first ones of the training set */
    float rate;          /* a fifth of it in the last third of the steps */
    float momentum;      /* 0..1 */
};

#define TRAIN_MAX_EPOCHS 1000u

/* Batch 32, rate 0.05, momentum 0.8, seed 1, 3 epochs of 60,000 examples of 784-10. */
void train_plan_default(struct train_plan *plan);
/* The first rule that the plan breaks, or NULL. */
const char *train_plan_broken_rule(const struct train_plan *plan);
/* n_examples / batch whole batches an epoch: the rest sits out (another rest each epoch). */
uint64_t train_plan_steps(const struct train_plan *plan);
uint64_t train_plan_epoch_steps(const struct train_plan *plan);
float train_plan_rate(const struct train_plan *plan, uint64_t step);

struct train_order {
    uint32_t *indexes; /* NULL: none yet */
    uint64_t epoch;
};
/* The examples of a step: plan->batch indexes, valid until the next call. */
const uint32_t *train_order_batch(struct train_order *order, const struct train_plan *plan,
                                  uint64_t step);
void train_order_fini(struct train_order *order); /* works on a zeroed order */

#endif
