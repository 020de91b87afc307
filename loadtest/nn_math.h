/* loadtest/nn_math.h - the few loops in which training and prediction spend their time.
 *
 * Apart from nn.c because this file alone is built with -O3 and without sanitizers: the versions
 * that a build trains would take minutes otherwise. The callers check every size.
 * Thread:    any; no state.
 *
 * Matrices are row-major; a stride is a multiple of NN_LANES and its padding columns hold zeros,
 * so that no loop has a remainder. Sums run in one fixed order without fused multiply-add, whatever
 * the vector unit: the same seed gives the same bits on every x86-64 machine.
 */
#ifndef LOADTEST_NN_MATH_H
#define LOADTEST_NN_MATH_H

#include <stddef.h>

#define NN_LANES 8u

/* ret_out[b][j] = bias[j] + sum over i of x[b][i] * w[i][j].
 * x: n rows of n_in values, x_stride apart. w: n_in x stride. ret_out: n x stride.
 * nonzero: room for n_in indexes; inputs that are 0 are skipped (half of an image's are). */
void nn_math_affine(const float *x, size_t n, size_t n_in, size_t x_stride, const float *w,
                    const float *bias, size_t stride, unsigned *nonzero, float *ret_out);

/* ret_xt: n_in x n from n rows of n_in values, x_stride apart. */
void nn_math_transpose(const float *x, size_t n, size_t n_in, size_t x_stride, float *ret_xt);

/* The gradient of nn_math_affine: ret_w[i][j] = sum over b of x[b][i] * delta[b][j], ret_bias[j] =
 * sum over b of delta[b][j]. xt: x transposed, n_in x n. */
void nn_math_gradient(const float *xt, size_t n, size_t n_in, const float *delta, size_t stride,
                      float *ret_w, float *ret_bias);

/* ret_out[b][i] = sum over j of delta[b][j] * w[i][j]; rows of ret_out are out_stride apart. */
void nn_math_back(const float *delta, size_t n, const float *w, size_t n_in, size_t stride,
                  size_t out_stride, float *ret_out);

/* v = momentum * v - rate * g; w += v. len: a multiple of NN_LANES. */
void nn_math_momentum(float *w, float *v, const float *g, size_t len, float rate, float momentum);

#endif
