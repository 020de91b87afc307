#include "net/h2_budget.h"

void budget_init(struct budget *b)
{
    *b = (struct budget){.resets = BUDGET_RESETS, .frames = BUDGET_FRAMES};
}

static int32_t refill(int32_t have, int32_t full, uint64_t per_s, uint64_t us)
{
    const uint64_t more = us * per_s / 1000000;

    if (have >= full)
        return have;
    return more >= (uint64_t)(full - have) ? full : have + (int32_t)more;
}

/* In steps of 0.1 s, so that no fraction of a unit is lost to rounding. */
static void pay_time(struct budget *b, uint64_t now_us)
{
    uint64_t us;

    if (b->paid_us == 0)
        b->paid_us = now_us;
    if (now_us < b->paid_us + 100000)
        return;
    us = now_us - b->paid_us;
    if (us > UINT64_C(3600000000))
        us = UINT64_C(3600000000); /* an hour fills any bucket; keeps the product small */
    b->resets = refill(b->resets, BUDGET_RESETS, BUDGET_RESETS_PER_S, us);
    b->frames = refill(b->frames, BUDGET_FRAMES, BUDGET_FRAMES_PER_S, us);
    b->paid_us = now_us;
}

bool budget_take_reset(struct budget *b, uint64_t now_us)
{
    pay_time(b, now_us);
    return --b->resets >= 0;
}

bool budget_take_frame(struct budget *b, enum budget_cost cost, uint64_t now_us)
{
    pay_time(b, now_us);
    b->frames -= (int32_t)cost;
    return b->frames >= 0;
}
