#include "loadtest/nn_math.h"

/* Eight floats wherever they lie; the compiler splits them where the machine has only four. */
typedef float lanes __attribute__((vector_size(4 * NN_LANES), aligned(4), may_alias));

#define LOAD(p)     (*(const lanes *)(p))
#define STORE(p, v) (*(lanes *)(p) = (v))

/* One copy for any x86-64 and one for AVX2, chosen when the program starts. */
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define VECTOR_CLONES __attribute__((target_clones("default", "avx2")))
#else
#define VECTOR_CLONES
#endif

/* Four accumulators of eight lanes stay in registers; narrower tails take one at a time. */
#define BLOCK (4 * NN_LANES)

VECTOR_CLONES
void nn_math_affine(const float *x, size_t n, size_t n_in, size_t x_stride, const float *w,
                    const float *bias, size_t stride, unsigned *nonzero, float *ret_out)
{
    for (size_t b = 0; b < n; b++) {
        const float *row = x + b * x_stride;
        float *out = ret_out + b * stride;
        size_t n_set = 0;
        size_t j = 0;

        for (size_t i = 0; i < n_in; i++) {
            nonzero[n_set] = (unsigned)i;
            n_set += row[i] != 0.0f;
        }
        for (; j + BLOCK <= stride; j += BLOCK) {
            lanes a0 = LOAD(bias + j), a1 = LOAD(bias + j + 8);
            lanes a2 = LOAD(bias + j + 16), a3 = LOAD(bias + j + 24);

            for (size_t k = 0; k < n_set; k++) {
                const float v = row[nonzero[k]];
                const float *wi = w + (size_t)nonzero[k] * stride + j;

                a0 += v * LOAD(wi);
                a1 += v * LOAD(wi + 8);
                a2 += v * LOAD(wi + 16);
                a3 += v * LOAD(wi + 24);
            }
            STORE(out + j, a0);
            STORE(out + j + 8, a1);
            STORE(out + j + 16, a2);
            STORE(out + j + 24, a3);
        }
        for (; j < stride; j += NN_LANES) {
            lanes a = LOAD(bias + j);

            for (size_t k = 0; k < n_set; k++)
                a += row[nonzero[k]] * LOAD(w + (size_t)nonzero[k] * stride + j);
            STORE(out + j, a);
        }
    }
}

void nn_math_transpose(const float *x, size_t n, size_t n_in, size_t x_stride, float *ret_xt)
{
    for (size_t i = 0; i < n_in; i++) {
        for (size_t b = 0; b < n; b++)
            ret_xt[i * n + b] = x[b * x_stride + i];
    }
}

VECTOR_CLONES
void nn_math_gradient(const float *xt, size_t n, size_t n_in, const float *delta, size_t stride,
                      float *ret_w, float *ret_bias)
{
    size_t j = 0;

    for (; j + BLOCK <= stride; j += BLOCK) {
        for (size_t i = 0; i < n_in; i++) {
            lanes a0 = {0}, a1 = {0}, a2 = {0}, a3 = {0};

            for (size_t b = 0; b < n; b++) {
                const float v = xt[i * n + b];
                const float *d = delta + b * stride + j;

                a0 += v * LOAD(d);
                a1 += v * LOAD(d + 8);
                a2 += v * LOAD(d + 16);
                a3 += v * LOAD(d + 24);
            }
            STORE(ret_w + i * stride + j, a0);
            STORE(ret_w + i * stride + j + 8, a1);
            STORE(ret_w + i * stride + j + 16, a2);
            STORE(ret_w + i * stride + j + 24, a3);
        }
    }
    for (; j < stride; j += NN_LANES) {
        for (size_t i = 0; i < n_in; i++) {
            lanes a = {0};

            for (size_t b = 0; b < n; b++)
                a += xt[i * n + b] * LOAD(delta + b * stride + j);
            STORE(ret_w + i * stride + j, a);
        }
    }
    for (j = 0; j < stride; j += NN_LANES) {
        lanes a = {0};

        for (size_t b = 0; b < n; b++)
            a += LOAD(delta + b * stride + j);
        STORE(ret_bias + j, a);
    }
}

VECTOR_CLONES
void nn_math_back(const float *delta, size_t n, const float *w, size_t n_in, size_t stride,
                  size_t out_stride, float *ret_out)
{
    for (size_t b = 0; b < n; b++) {
        for (size_t i = 0; i < n_in; i++) {
            lanes a = {0};

            for (size_t j = 0; j < stride; j += NN_LANES)
                a += LOAD(delta + b * stride + j) * LOAD(w + i * stride + j);
            ret_out[b * out_stride + i] =
                ((a[0] + a[4]) + (a[1] + a[5])) + ((a[2] + a[6]) + (a[3] + a[7]));
        }
    }
}

VECTOR_CLONES
void nn_math_momentum(float *w, float *v, const float *g, size_t len, float rate, float momentum)
{
    for (size_t i = 0; i < len; i += NN_LANES) {
        const lanes moved = momentum * LOAD(v + i) - rate * LOAD(g + i);

        STORE(v + i, moved);
        STORE(w + i, LOAD(w + i) + moved);
    }
}
