/* net/keepalive.h - is the other side still there? When to ask by PING, and when silence is the
 * answer.
 *
 * Owns:      nothing: plain data; time and the number of streams are arguments.
 * Called by: net/conn.c.
 * Lifetime:  zeroed it never asks; keepalive_start begins.
 * Thread:    one.
 * Source:    gRPC A8 and A9, grpc-core and grpc-go: by default a server sends away who PINGs for
 * the fourth time, each within five minutes of the one before, while it sent no HEADERS or DATA
 * frame in between; so two are for one silence, the third for one that goes on over a new call, and
 * the next waits.
 */
#ifndef NET_KEEPALIVE_H
#define NET_KEEPALIVE_H

#include <stdbool.h>
#include <stdint.h>

struct keepalive {
    uint64_t after_us;     /* streams open, and silence for so long: ask */
    uint64_t timeout_us;   /* for the answer */
    uint64_t look_us;      /* when to look; 0: never, or an answer is awaited */
    uint64_t answer_by_us; /* 0: none is awaited */
    uint64_t heard_us;     /* last bytes of any kind */
    uint64_t asked_us;
    uint32_t n_asked_streams; /* open at that time */
    uint32_t n_quiet;         /* PINGs answered since the last HEADERS or DATA */
};

/* after_us 0: never asks. */
void keepalive_start(struct keepalive *k, uint64_t after_us, uint64_t timeout_us, uint64_t now_us);

static inline void keepalive_heard(struct keepalive *k, uint64_t now_us)
{
    k->heard_us = now_us;
}

/* HEADERS or DATA came: the server's count of our PINGs begins anew. */
static inline void keepalive_got_news(struct keepalive *k)
{
    k->n_quiet = 0;
}

static inline bool keepalive_is_dead(const struct keepalive *k, uint64_t now_us)
{
    return k->answer_by_us != 0 && now_us >= k->answer_by_us;
}

/* Call it at look_us or later, any time else it does nothing. True: send a PING now. */
bool keepalive_asks(struct keepalive *k, uint32_t n_streams, uint64_t now_us);

/* The answer has come. False: none was awaited. */
bool keepalive_answered(struct keepalive *k, uint64_t now_us);

#endif
