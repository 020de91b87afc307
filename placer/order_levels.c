/* Our own order, which knows no durations: jobs sink through levels as they are served, so that
 * short ones pass long ones without anybody telling which they are (least attained service, in
 * steps that grow, as Tiresias and older feedback queues have it).
 *
 * - A job's attained service is run time x gpus^1.25: a gang sinks somewhat faster than its
 *   GPU-hours say, since it keeps more others waiting.
 * - Levels end at 1, 4, 16, ... GPU-hours: the longer a job has run, the less often it changes
 *   places with its like. In a level the smaller gang goes first, then first come.
 * - A job that has waited out its patience goes in front of all for one period: 24 hours before its
 *   first start, twice as long in each further level. So the first start comes within 24 hours, a
 *   period, and one period more for each job whose patience ended earlier; nobody waits for ever.
 *
 * Measured on the traces of docs/simulate.md: against a patience that grows as the levels do (4
 * times) doubling cuts the longest wait of any job from 40.7 to 11.1 million s and costs the
 * average 2 % at most; with 24 hours in every level an overload of long jobs ends in turns of one
 * period, and the average of trace 2 grows by a third.
 */
#include <math.h>

#include "placer/order.h"

#define PERIOD_US   (30ull * 60 * 1000000) /* a restart costs up to 46 s: under 3 % of it */
#define PATIENCE_US (24ull * 3600 * 1000000)
#define GPU_HOUR_US 3600e6
#define LEVELS_MAX  24 /* 4^23 GPU-hours are out of reach */

static uint32_t level_of(const struct order_job *job)
{
    /* gpus^1.25 by square roots, which are exactly rounded everywhere: pow isn't. */
    const double weight = (double)job->gpus * sqrt(sqrt((double)job->gpus));
    const double attained = (double)job->run_us * weight;
    double end = GPU_HOUR_US;
    uint32_t level = 0;

    while (level < LEVELS_MAX && attained >= end) {
        level++;
        end *= 4;
    }
    return level;
}

static uint64_t levels_key(const struct order_job *job)
{
    return (uint64_t)level_of(job) << 32 | job->gpus;
}

static uint64_t levels_patience_us(const struct order_job *job)
{
    return PATIENCE_US << level_of(job);
}

const struct order_ops order_levels = {.name = "penstock",
                                       .preempt = ORDER_PREEMPT_PERIODIC,
                                       .period_us = PERIOD_US,
                                       .key = levels_key,
                                       .patience_us = levels_patience_us};
