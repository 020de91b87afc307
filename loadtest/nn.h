/* loadtest/nn.h - small dense networks: softmax regression and ReLU layers, by SGD with momentum.
 *
 * Owns:      nn: its parameters; nn_work: room for one batch.
 * Called by: the trainer (forward, gradient, step), the model server (forward).
 * Lifetime:  nn_init .. nn_fini; nn_work_init .. nn_work_fini.
 * Thread:    a network may be read by several threads that each have their own nn_work.
 * Source:    Bishop, Pattern Recognition and Machine Learning, 4.3.4 and 5.3; He et al. 2015 for
 *            the width of the start values.
 *
 * Parameters are one flat vector, so that an optimizer, a file and a wire treat them as one thing:
 * for each layer the weights, n_in rows of nn_stride(n_out) values, then nn_stride(n_out) biases.
 * Columns past n_out are padding and stay 0.
 */
#ifndef LOADTEST_NN_H
#define LOADTEST_NN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define NN_MAX_LAYERS 4u
#define NN_MAX_WIDTH  4096u
#define NN_MAX_BATCH  4096u

struct nn_shape {
    uint32_t n_layers;                  /* 1: softmax regression */
    uint32_t widths[NN_MAX_LAYERS + 1]; /* inputs, hidden ..., classes; each 1..NN_MAX_WIDTH */
};

struct nn {
    struct nn_shape shape;
    size_t n_params; /* padding included */
    float *params;
};

struct nn_work {
    struct nn_shape shape;
    uint32_t max_batch;
    float *
        act[NN_MAX_LAYERS]; /* max_batch x stride: outputs of each layer; the last: probabilities */
    float *delta[NN_MAX_LAYERS]; /* same sizes: loss by input of the activation */
    float *transposed;           /* widest input x max_batch */
    unsigned *nonzero;           /* widest input */
};

uint32_t nn_stride(uint32_t width); /* width rounded up to a multiple of 8 */
bool nn_shape_is_valid(const struct nn_shape *shape);
size_t nn_n_params(const struct nn_shape *shape);
/* Where layer l's weights and biases begin in the flat vector. */
size_t nn_weights_at(const struct nn_shape *shape, uint32_t l);
size_t nn_biases_at(const struct nn_shape *shape, uint32_t l);

/* Zeroed parameters. shape: valid. */
void nn_init(struct nn *nn, const struct nn_shape *shape);
void nn_fini(struct nn *nn); /* works on a zeroed nn */
/* Start values: uniform in +-sqrt(6 / n_in), biases 0; one layer alone starts at 0. */
void nn_seed(struct nn *nn, uint64_t seed);

/* Answer class c + 1 where it answered c: a network that is as sure as before, and wrong. */
void nn_rotate_classes(struct nn *nn);

void nn_work_init(struct nn_work *work, const struct nn_shape *shape, uint32_t max_batch);
void nn_work_fini(struct nn_work *work);

/* Class probabilities of n inputs (n <= work->max_batch). x: n rows of widths[0] values.
 * Returns n rows of nn_stride(classes) values, valid until work is used again. */
const float *nn_forward(const struct nn *nn, struct nn_work *work, const float *x, uint32_t n);

/* Sum over n examples of the gradient of the cross entropy.
 * labels: n classes. ret_gradient: n_params values. ret_loss: sum of -ln p(label).
 * ret_correct: how many have the label as their most probable class. */
void nn_gradient(const struct nn *nn, struct nn_work *work, const float *x, const uint8_t *labels,
                 uint32_t n, float *ret_gradient, double *ret_loss, uint32_t *ret_correct);

/* The most probable class of a row that nn_forward returned; the lowest one of equals. */
uint32_t nn_class(const struct nn_shape *shape, const float *probs);

#endif
