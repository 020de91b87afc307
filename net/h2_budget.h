/* net/h2_budget.h - how much useless work a peer may cause on one connection.
 *
 * Two buckets. Each misdeed costs, useful work and time pay back; an empty bucket ends the
 * connection with ENHANCE_YOUR_CALM.
 *   resets: streams that ended early by the peer's doing: its RST_STREAM (rapid reset), or ours for
 *           a fault of the peer (made you reset). A completed stream pays for one.
 *   frames: frames that carry nothing: PING, SETTINGS, PRIORITY, empty DATA, unknown ones,
 *           WINDOW_UPDATE that lets nothing move. DATA that we sent and completed streams pay.
 *
 * Owns:      nothing: plain data, time is an argument.
 * Called by: net/h2_native_recv.c, net/h2_native_send.c.
 * Source:    CVE-2023-44487, CVE-2025-8671, CVE-2019-9512 to 9518.
 */
#ifndef NET_H2_BUDGET_H
#define NET_H2_BUDGET_H

#include <stdbool.h>
#include <stdint.h>

#define BUDGET_RESETS 1000 /* at once */
#define BUDGET_RESETS_PER_S                                                                        \
    250 /* for ever: a client that hedges and cancels 200 calls/s lives on */
#define BUDGET_FRAMES       2000
#define BUDGET_FRAMES_PER_S 100

enum budget_cost {                     /* of a frame, in units of BUDGET_FRAMES */
                   COST_LIGHT = 1,     /* read and forgotten */
                   COST_ANSWERED = 5,  /* PING: we answer it */
                   COST_SETTINGS = 10, /* answered, and may touch every stream */
};
enum { PAY_DATA = 4, PAY_STREAM = 20 };

struct budget {
    int32_t resets;
    int32_t frames;
    uint64_t paid_us; /* up to when time has paid */
};

void budget_init(struct budget *b);
/* False: the bucket is empty. now_us: 0 where there is no clock; then time pays nothing. */
bool budget_take_reset(struct budget *b, uint64_t now_us);
bool budget_take_frame(struct budget *b, enum budget_cost cost, uint64_t now_us);

static inline void budget_pay_data(struct budget *b)
{
    if (b->frames < BUDGET_FRAMES)
        b->frames += PAY_DATA;
}

static inline void budget_pay_stream(struct budget *b)
{
    if (b->frames < BUDGET_FRAMES)
        b->frames += PAY_STREAM;
    if (b->resets < BUDGET_RESETS)
        b->resets++;
}

#endif
