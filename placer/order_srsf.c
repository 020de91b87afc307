/* Shortest remaining service first: remaining time x cards (Tiresias, NSDI '19, calls it so). */
#include "placer/order.h"

static uint64_t srsf_key(const struct order_job *job)
{
    return job->left_us * job->gpus;
}

const struct order_ops order_srsf = {
    .name = "srsf", .knows_durations = true, .preempt = ORDER_PREEMPT_EACH_EVENT, .key = srsf_key};
