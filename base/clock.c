#include "base/clock.h"

#include <time.h>

#include "base/check.h"

static uint64_t read_clock(clockid_t id)
{
    struct timespec ts;

    check(clock_gettime(id, &ts) == 0);
    return (uint64_t)ts.tv_sec * US_PER_S + (uint64_t)ts.tv_nsec / 1000;
}

uint64_t clock_mono_us(void)
{
    return read_clock(CLOCK_MONOTONIC);
}

uint64_t clock_wall_us(void)
{
    return read_clock(CLOCK_REALTIME);
}
