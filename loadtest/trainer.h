/* loadtest/trainer.h - train a network on Fashion-MNIST in this process.
 *
 * Owns:      trainer: the network in the making and its optimizer.
 * Called by: penstock-train, the build's fashion_models; the parameter server and the workers use
 *            the pieces (trainer_gradient, trainer_apply, trainer_test).
 * Lifetime:  trainer_init .. trainer_fini.
 * Thread:    one.
 */
#ifndef LOADTEST_TRAINER_H
#define LOADTEST_TRAINER_H

#include "loadtest/fashion.h"
#include "loadtest/weights.h"

struct trainer {
    struct weights weights; /* velocity allocated */
    struct train_order order;
    struct nn_work work;
    float *x;        /* one batch of pixels */
    uint8_t *labels; /* and its labels */
    float *gradient;
};

/* A fresh start by plan (valid), or where weights_load left a checkpoint (moved in; it needs its
 * velocity: -EINVAL without). */
void trainer_init(struct trainer *t, const struct train_plan *plan);
int trainer_init_resumed(struct trainer *t, struct weights *checkpoint, struct err *err);
void trainer_fini(struct trainer *t); /* works on a zeroed one */

/* Gradient sum of examples [from, to) of the step's batch at the present weights, into t->gradient.
 * ret_loss: sum; ret_correct: hits. set: at least plan.n_examples. */
void trainer_gradient(struct trainer *t, const struct fashion_set *set, uint64_t step,
                      uint32_t from, uint32_t to, double *ret_loss, uint32_t *ret_correct);
/* One step with a gradient summed over the whole batch; moves weights.step on. */
void trainer_apply(struct trainer *t, const float *gradient);
bool trainer_is_done(const struct trainer *t);

/* Accuracy on a set: fills weights.n_tested and n_correct. */
void trainer_test(struct trainer *t, const struct fashion_set *test);

#endif
