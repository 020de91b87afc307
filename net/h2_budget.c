#include "net/h2_budget.h"

#define STRAINED_OF_4                                                                              \
    3u /* quarters of a limit: time enough for a peer that means well to leave                     \
        */
#define SERVER_STREAMS   20u
#define SERVER_WINDOW_US 1000000u

static int32_t repay(int32_t spent, uint64_t per_s, uint64_t us)
{
    const uint64_t less = us * per_s / 1000000;

    if (spent <= 0)
        return spent;
    return less >= (uint64_t)spent ? 0 : spent - (int32_t)less;
}

/* In steps of 0.1 s, so that no fraction of a unit is lost to rounding. */
void budget_pay_time(struct budget *b, const struct h2_limits *l, uint64_t now_us)
{
    uint64_t us;

    if (b->paid_us == 0)
        b->paid_us = now_us;
    if (now_us < b->paid_us + 100000)
        return;
    us = now_us - b->paid_us;
    if (us > UINT64_C(3600000000))
        us = UINT64_C(3600000000); /* an hour pays for anything; keeps the product small */
    b->score = repay(b->score, l->score_per_s, us);
    b->resets = repay(b->resets, l->resets_per_s, us);
    b->paid_us = now_us;
}

static enum budget_verdict judge(int32_t spent, uint32_t limit)
{
    const uint64_t n = spent > 0 ? (uint64_t)spent : 0;

    if (n > limit)
        return BUDGET_SPENT;
    return 4 * n > STRAINED_OF_4 * (uint64_t)limit ? BUDGET_STRAINED : BUDGET_OK;
}

enum budget_verdict budget_take_frame(struct budget *b, const struct h2_limits *l,
                                      enum budget_cost cost, uint64_t now_us)
{
    budget_pay_time(b, l, now_us);
    b->score += (int32_t)cost;
    return judge(b->score, l->score);
}

enum budget_verdict budget_take_reset(struct budget *b, const struct h2_limits *l, uint64_t now_us)
{
    budget_pay_time(b, l, now_us);
    b->resets++;
    return judge(b->resets, l->resets);
}

enum budget_verdict budget_take_ping(struct budget *b, const struct h2_limits *l,
                                     uint32_t n_streams, uint64_t now_us)
{
    const bool early =
        b->ping_us != 0 && now_us < b->ping_us + (uint64_t)l->ping_interval_ms * 1000;

    b->ping_us = now_us;
    if (n_streams > 0 || !early)
        return BUDGET_OK;
    return ++b->pings > l->ping_strikes ? BUDGET_SPENT : BUDGET_OK;
}

enum budget_verdict budget_take_server_reset(struct budget *b, uint64_t now_us)
{
    if (now_us >= b->window_us + SERVER_WINDOW_US) {
        b->window_us = now_us;
        b->streams = b->streams_reset = 0;
    }
    b->streams++;
    b->streams_reset++;
    return b->streams >= SERVER_STREAMS && 2 * b->streams_reset > b->streams ? BUDGET_STRAINED
                                                                             : BUDGET_OK;
}
