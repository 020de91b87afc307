#include "loadtest/train_plan.h"

#include <stdlib.h>

#include "base/check.h"
#include "base/rng.h"
#include "base/xalloc.h"
#include "loadtest/fashion.h"

void train_plan_default(struct train_plan *plan)
{
    *plan = (struct train_plan){
        .shape = {.n_layers = 1, .widths = {FASHION_PIXELS, FASHION_CLASSES}},
        .seed = 1,
        .epochs = 3,
        .batch = 32,
        .n_examples = 60000,
        .rate = 0.05f,
        .momentum = 0.8f,
    };
}

const char *train_plan_broken_rule(const struct train_plan *plan)
{
    const struct nn_shape *s = &plan->shape;

    if (!nn_shape_is_valid(s))
        return "1 to 4 layers of 1 to 4096 units each";
    if (s->widths[0] != FASHION_PIXELS || s->widths[s->n_layers] != FASHION_CLASSES)
        return "784 inputs and 10 classes";
    if (plan->epochs == 0 || plan->epochs > TRAIN_MAX_EPOCHS)
        return "1 to 1000 epochs";
    if (plan->batch == 0 || plan->batch > NN_MAX_BATCH)
        return "a batch of 1 to 4096 examples";
    if (plan->n_examples < plan->batch)
        return "at least one batch of examples";
    if (!(plan->rate > 0.0f && plan->rate <= 10.0f))
        return "a rate above 0 and up to 10";
    if (!(plan->momentum >= 0.0f && plan->momentum < 1.0f))
        return "a momentum from 0 to below 1";
    return NULL;
}

uint64_t train_plan_epoch_steps(const struct train_plan *plan)
{
    return plan->n_examples / plan->batch;
}

uint64_t train_plan_steps(const struct train_plan *plan)
{
    return plan->epochs * train_plan_epoch_steps(plan);
}

float train_plan_rate(const struct train_plan *plan, uint64_t step)
{
    return step * 3 >= train_plan_steps(plan) * 2 ? plan->rate * 0.2f : plan->rate;
}

/* Fisher-Yates from a generator of this epoch alone, so that a resumed run needs no history. */
static void shuffle(struct train_order *order, const struct train_plan *plan, uint64_t epoch)
{
    struct rng rng;

    if (order->indexes == NULL)
        order->indexes = xcalloc(plan->n_examples, sizeof(uint32_t));
    for (uint32_t i = 0; i < plan->n_examples; i++)
        order->indexes[i] = i;
    /* the odd constant (2^64 / golden ratio) keeps epochs of neighbouring seeds apart */
    rng_init(&rng, plan->seed + (epoch + 1) * UINT64_C(0x9e3779b97f4a7c15));
    for (uint32_t i = plan->n_examples - 1; i > 0; i--) {
        const uint32_t k = (uint32_t)rng_below(&rng, (uint64_t)i + 1);
        const uint32_t tmp = order->indexes[i];

        order->indexes[i] = order->indexes[k];
        order->indexes[k] = tmp;
    }
    order->epoch = epoch;
}

const uint32_t *train_order_batch(struct train_order *order, const struct train_plan *plan,
                                  uint64_t step)
{
    const uint64_t per_epoch = train_plan_epoch_steps(plan);
    const uint64_t epoch = step / per_epoch;

    check(step < train_plan_steps(plan));
    if (order->indexes == NULL || order->epoch != epoch)
        shuffle(order, plan, epoch);
    return order->indexes + (step % per_epoch) * plan->batch;
}

void train_order_fini(struct train_order *order)
{
    free(order->indexes);
    *order = (struct train_order){0};
}
