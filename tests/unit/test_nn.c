#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/rng.h"
#include "loadtest/nn.h"
#include "loadtest/trainer.h"

#define N_BATCH 5u

static void random_batch(struct rng *rng, const struct nn_shape *s, float *x, uint8_t *labels)
{
    for (uint32_t i = 0; i < N_BATCH * s->widths[0]; i++)
        x[i] = rng_below(rng, 3) == 0 ? 0.0f : (float)rng_unit(rng);
    for (uint32_t b = 0; b < N_BATCH; b++)
        labels[b] = (uint8_t)rng_below(rng, s->widths[s->n_layers]);
}

/* The network once more, in doubles and the plainest loops: the oracle. */
static double plain_loss(const struct nn *nn, const double *params, const float *x,
                         const uint8_t *labels)
{
    const struct nn_shape *s = &nn->shape;
    double loss = 0.0;

    for (uint32_t b = 0; b < N_BATCH; b++) {
        double in[64], out[64];
        double sum = 0.0;

        for (uint32_t i = 0; i < s->widths[0]; i++)
            in[i] = (double)x[b * s->widths[0] + i];
        for (uint32_t l = 0; l < s->n_layers; l++) {
            const uint32_t stride = nn_stride(s->widths[l + 1]);

            for (uint32_t j = 0; j < s->widths[l + 1]; j++) {
                out[j] = params[nn_biases_at(s, l) + j];
                for (uint32_t i = 0; i < s->widths[l]; i++)
                    out[j] += in[i] * params[nn_weights_at(s, l) + (size_t)i * stride + j];
                if (l + 1 < s->n_layers && out[j] < 0.0)
                    out[j] = 0.0;
            }
            memcpy(in, out, sizeof(in));
        }
        for (uint32_t j = 0; j < s->widths[s->n_layers]; j++)
            sum += exp(out[j]);
        loss += log(sum) - out[labels[b]];
    }
    return loss;
}

static void check_gradient(const struct nn_shape *s)
{
    struct nn nn;
    struct nn_work work;
    struct rng rng;
    float x[N_BATCH * 64];
    uint8_t labels[N_BATCH];
    double loss;
    uint32_t n_correct;

    rng_init(&rng, 7);
    nn_init(&nn, s);
    nn_work_init(&work, s, N_BATCH);
    random_batch(&rng, s, x, labels);
    float *gradient = calloc(nn.n_params, sizeof(float));
    double *params = calloc(nn.n_params, sizeof(double));

    for (uint32_t l = 0; l < s->n_layers; l++) { /* biases too, and none exactly at ReLU's corner */
        const uint32_t stride = nn_stride(s->widths[l + 1]);

        for (uint32_t i = 0; i <= s->widths[l]; i++) {
            for (uint32_t j = 0; j < s->widths[l + 1]; j++)
                nn.params[nn_weights_at(s, l) + (size_t)i * stride + j] =
                    (float)(rng_unit(&rng) - 0.5);
        }
    }
    for (size_t i = 0; i < nn.n_params; i++)
        params[i] = (double)nn.params[i];

    nn_gradient(&nn, &work, x, labels, N_BATCH, gradient, &loss, &n_correct);
    assert_true(fabs(loss - plain_loss(&nn, params, x, labels)) < 1e-4);
    for (uint32_t l = 0; l < s->n_layers; l++) {
        const uint32_t stride = nn_stride(s->widths[l + 1]);

        for (size_t at = nn_weights_at(s, l); at < nn_weights_at(s, l + 1); at++) {
            const double kept = params[at], step = 1e-5;

            if ((at - nn_weights_at(s, l)) % stride >= s->widths[l + 1]) {
                assert_true(gradient[at] == 0.0f); /* padding must stay 0 */
                continue;
            }
            params[at] = kept + step;
            const double above = plain_loss(&nn, params, x, labels);
            params[at] = kept - step;
            const double below = plain_loss(&nn, params, x, labels);
            params[at] = kept;
            assert_true(fabs((above - below) / (2 * step) - (double)gradient[at]) < 1e-3);
        }
    }
    free(gradient);
    free(params);
    nn_work_fini(&work);
    nn_fini(&nn);
}

static void gradient_of_softmax_regression_equals_finite_differences(void **state)
{
    (void)state;
    check_gradient(&(struct nn_shape){.n_layers = 1, .widths = {13, 10}});
}

static void gradient_of_hidden_layers_equals_finite_differences(void **state)
{
    (void)state;
    /* 33: one block of 32 and a tail; 40: a block and a whole vector; 7: padding in a hidden layer
     */
    check_gradient(&(struct nn_shape){.n_layers = 2, .widths = {9, 33, 10}});
    check_gradient(&(struct nn_shape){.n_layers = 3, .widths = {16, 40, 7, 3}});
}

static void a_batch_gives_each_row_what_it_gets_alone(void **state)
{
    const struct nn_shape s = {.n_layers = 2, .widths = {20, 24, 10}};
    struct nn nn;
    struct nn_work whole, single;
    struct rng rng;
    float x[N_BATCH * 64];
    uint8_t labels[N_BATCH];

    (void)state;
    rng_init(&rng, 3);
    nn_init(&nn, &s);
    nn_seed(&nn, 11);
    nn_work_init(&whole, &s, N_BATCH);
    nn_work_init(&single, &s, 1);
    random_batch(&rng, &s, x, labels);

    const float *probs = nn_forward(&nn, &whole, x, N_BATCH);
    for (uint32_t b = 0; b < N_BATCH; b++) {
        const float *alone = nn_forward(&nn, &single, x + b * s.widths[0], 1);
        double sum = 0.0;

        assert_memory_equal(alone, probs + b * nn_stride(10), 10 * sizeof(float));
        for (uint32_t j = 0; j < 10; j++)
            sum += (double)alone[j];
        assert_true(fabs(sum - 1.0) < 1e-5);
    }
    nn_work_fini(&whole);
    nn_work_fini(&single);
    nn_fini(&nn);
}

static void rotated_classes_answer_the_next_class(void **state)
{
    const struct nn_shape s = {.n_layers = 2, .widths = {20, 12, 10}};
    struct nn nn;
    struct nn_work work;
    struct rng rng;
    float x[N_BATCH * 64];
    uint8_t labels[N_BATCH];
    uint32_t before[N_BATCH];

    (void)state;
    rng_init(&rng, 5);
    nn_init(&nn, &s);
    nn_seed(&nn, 2);
    nn_work_init(&work, &s, N_BATCH);
    random_batch(&rng, &s, x, labels);
    const float *probs = nn_forward(&nn, &work, x, N_BATCH);
    for (uint32_t b = 0; b < N_BATCH; b++)
        before[b] = nn_class(&s, probs + b * nn_stride(10));
    nn_rotate_classes(&nn);
    probs = nn_forward(&nn, &work, x, N_BATCH);
    for (uint32_t b = 0; b < N_BATCH; b++)
        assert_int_equal(nn_class(&s, probs + b * nn_stride(10)), (before[b] + 1) % 10);
    nn_work_fini(&work);
    nn_fini(&nn);
}

static void an_epoch_holds_each_example_once_and_the_next_one_another_order(void **state)
{
    struct train_plan plan;
    struct train_order order = {0};
    uint32_t first[64], seen[64] = {0};

    (void)state;
    train_plan_default(&plan);
    plan.n_examples = 64;
    plan.batch = 16;
    plan.epochs = 2;
    assert_null(train_plan_broken_rule(&plan));
    assert_int_equal(train_plan_steps(&plan), 8);
    for (uint64_t step = 0; step < 4; step++) {
        const uint32_t *batch = train_order_batch(&order, &plan, step);

        memcpy(first + step * 16, batch, 16 * sizeof(*batch));
        for (uint32_t i = 0; i < 16; i++)
            seen[batch[i]]++;
    }
    for (uint32_t i = 0; i < 64; i++)
        assert_int_equal(seen[i], 1);
    assert_memory_not_equal(train_order_batch(&order, &plan, 4), first, 16 * sizeof(uint32_t));
    /* back in time, as a resumed run is: the same batch again */
    assert_memory_equal(train_order_batch(&order, &plan, 2), first + 32, 16 * sizeof(uint32_t));
    train_order_fini(&order);
}

static void rate_falls_to_a_fifth_in_the_last_third(void **state)
{
    struct train_plan plan;

    (void)state;
    train_plan_default(&plan);
    plan.n_examples = 320;
    plan.epochs = 3; /* 30 steps */
    assert_true(train_plan_rate(&plan, 19) == plan.rate);
    assert_true(train_plan_rate(&plan, 20) == plan.rate * 0.2f);
}

/* 40 made-up images whose class shows as one bright row: learnable, and no data set is needed. */
static void made_up_set(struct fashion_set *set)
{
    set->n = 40;
    set->images = calloc(set->n, FASHION_PIXELS);
    set->labels = calloc(set->n, 1);
    for (uint32_t i = 0; i < set->n; i++) {
        set->labels[i] = (uint8_t)(i % 10);
        memset(set->images + i * FASHION_PIXELS + (i % 10) * 28, (int)(100 + i), 28);
    }
}

static void gradients_of_slices_add_up_to_the_gradient_of_the_batch(void **state)
{
    struct train_plan plan;
    struct trainer t;
    struct fashion_set set;
    double loss, sum_loss = 0.0;
    uint32_t n_correct, sum_correct = 0;

    (void)state;
    made_up_set(&set);
    train_plan_default(&plan);
    plan.shape = (struct nn_shape){.n_layers = 2, .widths = {784, 12, 10}};
    plan.n_examples = 40;
    plan.batch = 20;
    trainer_init(&t, &plan);
    float *sum = calloc(t.weights.nn.n_params, sizeof(float));
    for (uint32_t from = 0; from < 20; from += 5) {
        trainer_gradient(&t, &set, 1, from, from + 5, &loss, &n_correct);
        sum_loss += loss;
        sum_correct += n_correct;
        for (size_t i = 0; i < t.weights.nn.n_params; i++)
            sum[i] += t.gradient[i];
    }
    trainer_gradient(&t, &set, 1, 0, 20, &loss, &n_correct);
    assert_true(fabs(sum_loss - loss) < 1e-6);
    assert_int_equal(sum_correct, n_correct);
    for (size_t i = 0; i < t.weights.nn.n_params; i++)
        assert_true(fabsf(sum[i] - t.gradient[i]) < 1e-4f);
    free(sum);
    trainer_fini(&t);
    fashion_fini(&set);
}

static void training_learns_and_a_resumed_run_ends_with_the_same_bits(void **state)
{
    struct train_plan plan;
    struct trainer whole, half;
    struct fashion_set set;
    struct weights checkpoint;
    struct err err;
    char path[] = "/tmp/penstock-test-XXXXXX";
    double loss;
    uint32_t n_correct;

    (void)state;
    close(mkstemp(path));
    made_up_set(&set);
    train_plan_default(&plan);
    plan.shape = (struct nn_shape){.n_layers = 2, .widths = {784, 16, 10}};
    plan.n_examples = 40;
    plan.batch = 8;
    plan.epochs = 20;
    trainer_init(&whole, &plan);
    trainer_init(&half, &plan);
    while (!trainer_is_done(&whole)) {
        trainer_gradient(&whole, &set, whole.weights.step, 0, 8, &loss, &n_correct);
        trainer_apply(&whole, whole.gradient);
        if (whole.weights.step == 37) {
            assert_int_equal(weights_save(&whole.weights, path, &err), 0);
            trainer_fini(&half);
            assert_int_equal(weights_load(&checkpoint, path, &err), 0);
            assert_int_equal(trainer_init_resumed(&half, &checkpoint, &err), 0);
        }
    }
    trainer_test(&whole, &set);
    assert_int_equal(whole.weights.n_correct, 40);
    assert_int_equal(half.weights.step, 37);
    while (!trainer_is_done(&half)) {
        trainer_gradient(&half, &set, half.weights.step, 0, 8, &loss, &n_correct);
        trainer_apply(&half, half.gradient);
    }
    assert_memory_equal(half.weights.nn.params, whole.weights.nn.params,
                        whole.weights.nn.n_params * sizeof(float));
    unlink(path);
    trainer_fini(&whole);
    trainer_fini(&half);
    fashion_fini(&set);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gradient_of_softmax_regression_equals_finite_differences),
        cmocka_unit_test(gradient_of_hidden_layers_equals_finite_differences),
        cmocka_unit_test(a_batch_gives_each_row_what_it_gets_alone),
        cmocka_unit_test(rotated_classes_answer_the_next_class),
        cmocka_unit_test(an_epoch_holds_each_example_once_and_the_next_one_another_order),
        cmocka_unit_test(rate_falls_to_a_fifth_in_the_last_third),
        cmocka_unit_test(gradients_of_slices_add_up_to_the_gradient_of_the_batch),
        cmocka_unit_test(training_learns_and_a_resumed_run_ends_with_the_same_bits),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
