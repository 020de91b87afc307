/* First come, first served: the head of the queue waits until it has room, and all behind it. */
#include "placer/order.h"

static uint64_t fifo_key(const struct order_job *job)
{
    return job->submit_us;
}

const struct order_ops order_fifo = {
    .name = "fifo", .strict = true, .preempt = ORDER_PREEMPT_NEVER, .key = fifo_key};
