#include "loadtest/trainer.h"

#include <errno.h>
#include <stdlib.h>

#include "base/xalloc.h"
#include "loadtest/nn_math.h"

static void trainer_init_room(struct trainer *t)
{
    const struct train_plan *plan = &t->weights.plan;

    nn_work_init(&t->work, &plan->shape, plan->batch);
    t->x = xcalloc((size_t)plan->batch * plan->shape.widths[0], sizeof(float));
    t->labels = xcalloc(plan->batch, 1);
    t->gradient = xcalloc(t->weights.nn.n_params, sizeof(float));
}

void trainer_init(struct trainer *t, const struct train_plan *plan)
{
    check(train_plan_broken_rule(plan) == NULL);
    *t = (struct trainer){.weights = {.plan = *plan}};
    nn_init(&t->weights.nn, &plan->shape);
    nn_seed(&t->weights.nn, plan->seed);
    t->weights.velocity = xcalloc(t->weights.nn.n_params, sizeof(float));
    trainer_init_room(t);
}

int trainer_init_resumed(struct trainer *t, struct weights *checkpoint, struct err *err)
{
    const char *rule = train_plan_broken_rule(&checkpoint->plan);

    if (rule != NULL)
        return err_set(err, -EINVAL, "the checkpoint's plan breaks a rule: %s", rule);
    if (checkpoint->velocity == NULL)
        return err_set(err, -EINVAL, "finished weights, not a checkpoint: no velocity inside");
    if (checkpoint->step > train_plan_steps(&checkpoint->plan))
        return err_set(err, -EINVAL, "the checkpoint is at step %llu of %llu",
                       (unsigned long long)checkpoint->step,
                       (unsigned long long)train_plan_steps(&checkpoint->plan));
    *t = (struct trainer){.weights = *checkpoint};
    *checkpoint = (struct weights){0};
    trainer_init_room(t);
    return 0;
}

void trainer_fini(struct trainer *t)
{
    weights_fini(&t->weights);
    train_order_fini(&t->order);
    nn_work_fini(&t->work);
    free(t->x);
    free(t->labels);
    free(t->gradient);
    *t = (struct trainer){0};
}

void trainer_gradient(struct trainer *t, const struct fashion_set *set, uint64_t step,
                      uint32_t from, uint32_t to, double *ret_loss, uint32_t *ret_correct)
{
    const struct train_plan *plan = &t->weights.plan;
    const uint32_t *batch = train_order_batch(&t->order, plan, step);

    check(from <= to && to <= plan->batch && set->n >= plan->n_examples);
    for (uint32_t i = from; i < to; i++) {
        fashion_pixels(set, batch[i], t->x + (size_t)(i - from) * FASHION_PIXELS);
        t->labels[i - from] = set->labels[batch[i]];
    }
    nn_gradient(&t->weights.nn, &t->work, t->x, t->labels, to - from, t->gradient, ret_loss,
                ret_correct);
}

void trainer_apply(struct trainer *t, const float *gradient)
{
    struct weights *w = &t->weights;
    const float rate = train_plan_rate(&w->plan, w->step) / (float)w->plan.batch;

    nn_math_momentum(w->nn.params, w->velocity, gradient, w->nn.n_params, rate, w->plan.momentum);
    w->step++;
}

bool trainer_is_done(const struct trainer *t)
{
    return t->weights.step >= train_plan_steps(&t->weights.plan);
}

void trainer_test(struct trainer *t, const struct fashion_set *test)
{
    struct weights *w = &t->weights;
    const size_t stride = nn_stride(FASHION_CLASSES);

    w->n_tested = test->n;
    w->n_correct = 0;
    for (uint32_t at = 0; at < test->n; at += w->plan.batch) {
        const uint32_t n = test->n - at < w->plan.batch ? test->n - at : w->plan.batch;

        for (uint32_t i = 0; i < n; i++)
            fashion_pixels(test, at + i, t->x + (size_t)i * FASHION_PIXELS);

        const float *probs = nn_forward(&w->nn, &t->work, t->x, n);
        for (uint32_t i = 0; i < n; i++)
            w->n_correct += nn_class(&w->nn.shape, probs + i * stride) == test->labels[at + i];
    }
}
