#include "loadtest/nn.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/rng.h"
#include "base/xalloc.h"
#include "loadtest/nn_math.h"

uint32_t nn_stride(uint32_t width)
{
    return (width + NN_LANES - 1) / NN_LANES * NN_LANES;
}

bool nn_shape_is_valid(const struct nn_shape *shape)
{
    if (shape->n_layers == 0 || shape->n_layers > NN_MAX_LAYERS)
        return false;
    for (uint32_t l = 0; l <= shape->n_layers; l++) {
        if (shape->widths[l] == 0 || shape->widths[l] > NN_MAX_WIDTH)
            return false;
    }
    return true;
}

size_t nn_weights_at(const struct nn_shape *shape, uint32_t l)
{
    size_t at = 0;

    for (uint32_t k = 0; k < l; k++)
        at += ((size_t)shape->widths[k] + 1) * nn_stride(shape->widths[k + 1]);
    return at;
}

size_t nn_biases_at(const struct nn_shape *shape, uint32_t l)
{
    return nn_weights_at(shape, l) + (size_t)shape->widths[l] * nn_stride(shape->widths[l + 1]);
}

size_t nn_n_params(const struct nn_shape *shape)
{
    return nn_weights_at(shape, shape->n_layers);
}

void nn_init(struct nn *nn, const struct nn_shape *shape)
{
    check(nn_shape_is_valid(shape));
    nn->shape = *shape;
    nn->n_params = nn_n_params(shape);
    nn->params = xcalloc(nn->n_params, sizeof(float));
}

void nn_fini(struct nn *nn)
{
    free(nn->params);
    *nn = (struct nn){0};
}

void nn_seed(struct nn *nn, uint64_t seed)
{
    const struct nn_shape *s = &nn->shape;
    struct rng rng;

    rng_init(&rng, seed);
    memset(nn->params, 0, nn->n_params * sizeof(float));
    if (s->n_layers == 1)
        return; /* convex: no symmetry to break */
    for (uint32_t l = 0; l < s->n_layers; l++) {
        float *w = nn->params + nn_weights_at(s, l);
        const double width = sqrt(6.0 / s->widths[l]);

        for (uint32_t i = 0; i < s->widths[l]; i++) {
            for (uint32_t j = 0; j < s->widths[l + 1]; j++)
                w[(size_t)i * nn_stride(s->widths[l + 1]) + j] =
                    (float)((2.0 * rng_unit(&rng) - 1.0) * width);
        }
    }
}

void nn_rotate_classes(struct nn *nn)
{
    const struct nn_shape *s = &nn->shape;
    const uint32_t l = s->n_layers - 1;
    const uint32_t n_out = s->widths[l + 1];

    for (uint32_t i = 0; i <= s->widths[l]; i++) { /* the last row is the biases */
        float *row = nn->params + nn_weights_at(s, l) + (size_t)i * nn_stride(n_out);
        const float last = row[n_out - 1];

        memmove(row + 1, row, (n_out - 1) * sizeof(float));
        row[0] = last;
    }
}

void nn_work_init(struct nn_work *work, const struct nn_shape *shape, uint32_t max_batch)
{
    uint32_t widest = 0;

    check(nn_shape_is_valid(shape) && max_batch > 0 && max_batch <= NN_MAX_BATCH);
    *work = (struct nn_work){.shape = *shape, .max_batch = max_batch};
    for (uint32_t l = 0; l < shape->n_layers; l++) {
        const size_t row = nn_stride(shape->widths[l + 1]);

        if (shape->widths[l] > widest)
            widest = shape->widths[l];
        work->act[l] = xcalloc(max_batch * row, sizeof(float));
        work->delta[l] = xcalloc(max_batch * row, sizeof(float));
    }
    work->transposed = xcalloc((size_t)max_batch * widest, sizeof(float));
    work->nonzero = xcalloc(widest, sizeof(unsigned));
}

void nn_work_fini(struct nn_work *work)
{
    for (uint32_t l = 0; l < NN_MAX_LAYERS; l++) {
        free(work->act[l]);
        free(work->delta[l]);
    }
    free(work->transposed);
    free(work->nonzero);
    *work = (struct nn_work){0};
}

/* In place; the largest value is taken off first so that exp can't overflow. */
static void softmax(float *row, uint32_t n)
{
    float top = row[0];
    float sum = 0.0f;

    for (uint32_t j = 1; j < n; j++)
        top = row[j] > top ? row[j] : top;
    for (uint32_t j = 0; j < n; j++) {
        row[j] = expf(row[j] - top);
        sum += row[j];
    }
    for (uint32_t j = 0; j < n; j++)
        row[j] /= sum;
}

const float *nn_forward(const struct nn *nn, struct nn_work *work, const float *x, uint32_t n)
{
    const struct nn_shape *s = &nn->shape;
    const uint32_t last = s->n_layers - 1;
    size_t x_stride = s->widths[0];

    check(n <= work->max_batch && memcmp(s, &work->shape, sizeof(*s)) == 0);
    for (uint32_t l = 0; l < s->n_layers; l++) {
        const size_t stride = nn_stride(s->widths[l + 1]);
        float *out = work->act[l];

        nn_math_affine(x, n, s->widths[l], x_stride, nn->params + nn_weights_at(s, l),
                       nn->params + nn_biases_at(s, l), stride, work->nonzero, out);
        for (size_t i = 0; l < last && i < n * stride; i++)
            out[i] = out[i] > 0.0f ? out[i] : 0.0f;
        for (uint32_t b = 0; l == last && b < n; b++)
            softmax(out + b * stride, s->widths[l + 1]);
        x = out;
        x_stride = stride;
    }
    return work->act[last];
}

uint32_t nn_class(const struct nn_shape *shape, const float *probs)
{
    uint32_t best = 0;

    for (uint32_t j = 1; j < shape->widths[shape->n_layers]; j++)
        best = probs[j] > probs[best] ? j : best;
    return best;
}

/* work->delta of the last layer (p - one-hot), loss and hits. */
static void output_delta(const struct nn *nn, struct nn_work *work, const uint8_t *labels,
                         uint32_t n, double *ret_loss, uint32_t *ret_correct)
{
    const uint32_t last = nn->shape.n_layers - 1;
    const uint32_t n_out = nn->shape.widths[last + 1];
    const size_t stride = nn_stride(n_out);

    *ret_loss = 0.0;
    *ret_correct = 0;
    for (uint32_t b = 0; b < n; b++) {
        const float *p = work->act[last] + b * stride;
        float *d = work->delta[last] + b * stride;

        check(labels[b] < n_out);
        /* FLT_MIN-like floor: a certain and wrong answer has a large loss, not an infinite one */
        *ret_loss -= log(fmax((double)p[labels[b]], 1e-30));
        *ret_correct += nn_class(&nn->shape, p) == labels[b];
        for (uint32_t j = 0; j < n_out; j++)
            d[j] = p[j] - (j == labels[b] ? 1.0f : 0.0f);
    }
}

void nn_gradient(const struct nn *nn, struct nn_work *work, const float *x, const uint8_t *labels,
                 uint32_t n, float *ret_gradient, double *ret_loss, uint32_t *ret_correct)
{
    const struct nn_shape *s = &nn->shape;

    nn_forward(nn, work, x, n);
    output_delta(nn, work, labels, n, ret_loss, ret_correct);
    for (uint32_t l = s->n_layers; l-- > 0;) {
        const float *in = l == 0 ? x : work->act[l - 1];
        const size_t in_stride = l == 0 ? s->widths[0] : nn_stride(s->widths[l]);
        const size_t stride = nn_stride(s->widths[l + 1]);

        nn_math_transpose(in, n, s->widths[l], in_stride, work->transposed);
        nn_math_gradient(work->transposed, n, s->widths[l], work->delta[l], stride,
                         ret_gradient + nn_weights_at(s, l), ret_gradient + nn_biases_at(s, l));
        if (l == 0)
            break;
        nn_math_back(work->delta[l], n, nn->params + nn_weights_at(s, l), s->widths[l], stride,
                     in_stride, work->delta[l - 1]);
        for (size_t i = 0; i < n * in_stride; i++)
            work->delta[l - 1][i] = in[i] > 0.0f ? work->delta[l - 1][i] : 0.0f;
    }
}
