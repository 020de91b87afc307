/* net/h2_budget.h - how much useless work a peer may cause on one connection: its frame meter.
 *
 * Three counts. Misdeeds raise them; useful work and time lower them. At 75 % of a limit the
 * connection is to be drained, over it the connection ends with ENHANCE_YOUR_CALM.
 *   score:  frames that carry nothing or cost more than they bring: PING, SETTINGS, PRIORITY, empty
 *           DATA, unknown ones, WINDOW_UPDATE that lets nothing move. DATA that we sent and
 *           completed streams pay.
 *   resets: streams that ended early by the peer's doing: its RST_STREAM (rapid reset), or ours for
 *           a fault of the peer (made you reset). A completed stream pays for one.
 *   pings:  PINGs without a call that come faster than a keep-alive needs, as gRPC servers count
 *           them; a completed call takes them all back.
 * A server that resets is no attacker but ill: beside completed streams its resets are a ratio, and
 * a connection on which most calls are reset is drained.
 *
 * Owns:      nothing: plain data, time is an argument.
 * Called by: the engines (net/h2_native_*.c, net/h2_session.c).
 * Source:    CVE-2023-44487, CVE-2025-8671, CVE-2019-9512 to 9518; gRPC proposal A8 for pings.
 */
#ifndef NET_H2_BUDGET_H
#define NET_H2_BUDGET_H

#include <stdbool.h>
#include <stdint.h>

#include "net/h2.h"

enum budget_cost {                     /* of a frame, in units of h2_limits.score */
                   COST_LIGHT = 1,     /* read and forgotten */
                   COST_ANSWERED = 5,  /* PING: we answer it */
                   COST_SETTINGS = 10, /* answered, and may touch every stream */
};
enum { PAY_DATA = 4, PAY_STREAM = 20 };
#define PAY_DATA_BYTES 1024u /* of a DATA frame that a window cut short: less pays nothing */

enum budget_verdict { BUDGET_OK = 0, BUDGET_STRAINED, BUDGET_SPENT };

struct budget {
    int32_t score;
    int32_t resets;
    uint32_t pings;
    uint32_t streams, streams_reset; /* of a server, in the second since window_us */
    uint64_t paid_us;                /* up to when time has paid */
    uint64_t ping_us;                /* of the last PING */
    uint64_t window_us;
};

/* now_us: 0 where there is no clock; then time pays nothing. l: the connection's limits. */
enum budget_verdict budget_take_frame(struct budget *b, const struct h2_limits *l,
                                      enum budget_cost cost, uint64_t now_us);
enum budget_verdict budget_take_reset(struct budget *b, const struct h2_limits *l, uint64_t now_us);
/* A PING while n_streams calls are open. Its cost as a frame is taken beside this. */
enum budget_verdict budget_take_ping(struct budget *b, const struct h2_limits *l,
                                     uint32_t n_streams, uint64_t now_us);
/* What time has paid up to now_us. (The calls above do it themselves.) */
void budget_pay_time(struct budget *b, const struct h2_limits *l, uint64_t now_us);
/* The server reset a stream that it had not answered. BUDGET_STRAINED: most of them, of late. */
enum budget_verdict budget_take_server_reset(struct budget *b, uint64_t now_us);

static inline void budget_pay_data(struct budget *b)
{
    if (b->score > 0)
        b->score -= PAY_DATA;
}

static inline void budget_pay_stream(struct budget *b)
{
    if (b->score > 0)
        b->score -= PAY_STREAM;
    if (b->resets > 0)
        b->resets--;
    b->pings = 0;
    b->streams++;
}

#endif
