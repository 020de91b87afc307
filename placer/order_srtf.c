/* Shortest remaining time first, as the baseline of Muri (SIGCOMM '22) has it. */
#include "placer/order.h"

static uint64_t srtf_key(const struct order_job *job)
{
    return job->left_us;
}

const struct order_ops order_srtf = {
    .name = "srtf", .knows_durations = true, .preempt = ORDER_PREEMPT_EACH_EVENT, .key = srtf_key};
