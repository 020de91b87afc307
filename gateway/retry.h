/* gateway/retry.h - may a call be tried again after an attempt that failed?
 *
 * Owns:      nothing; a budget is a member of struct lane.
 * Called by: gateway/attempt.
 * Thread:    any; pure.
 * Source:    gRFC A6 (commit, throttling, what never counts); RFC 9113 8.7.
 *
 * Rules:
 *  - never once something was passed on to the client, or when the request is no longer whole;
 *  - what a replica never began (no connection, REFUSED_STREAM, above a GOAWAY's last id, CANCELLED
 *    by a stopping replica, "not ready", "unknown model") is tried elsewhere, without counting;
 * from the RETRY_FREE_MAXth on each such try takes from the budget too, so not for ever;
 *  - a call that was answered UNAVAILABLE with no data, or whose replica or connection died under
 *    it, may have been executed: only when the model says limits.idempotent, counted against
 *    limits.attempts, unless the answer has grpc-retry-pushback-ms;
 *  - an answer or a reset counts against the model's budget too, since a replica that refuses all
 *    would be given every call twice. A connection that dies does not: it costs one try for each
 *    call that was on it, and that replica takes no more;
 *  - a replica whose own queue is full is healthy and busy: not tried elsewhere.
 */
#ifndef GATEWAY_RETRY_H
#define GATEWAY_RETRY_H

#include <stdbool.h>
#include <stdint.h>

#include "balancer/endpoint.h"

#define RETRY_FREE_MAX 10 /* tries of a call that no replica ever began, and that cost nothing */

enum retry {
    RETRY_NO = 0,      /* the outcome is no reason to */
    RETRY_COMMITTED,   /* too late: the client has seen something */
    RETRY_NO_BUFFER,   /* the request was too long to keep */
    RETRY_NO_ATTEMPTS, /* limits.attempts are used up */
    RETRY_NO_BUDGET,   /* the model's budget is */
    RETRY_FREE,        /* yes: never processed */
    RETRY_COUNTED,     /* yes, and it counts */
};

/* Tokens: full at first; a retry takes one, a call that ended well gives a fifth back. */
struct retry_budget {
    uint32_t milli_tokens;
};
void retry_budget_init(struct retry_budget *b);
void retry_budget_credit(struct retry_budget *b);

struct retry_view {
    bool committed;
    bool whole; /* every byte of the request so far is kept */
    bool idempotent;
    bool pushed_back;     /* the answer has grpc-retry-pushback-ms */
    uint32_t counted;     /* attempts so far that count, the failed one included */
    uint32_t counted_max; /* limits.attempts */
    uint32_t free;        /* tries so far that do not count */
};

/* RETRY_COUNTED takes its token, where the budget has a say. */
enum retry retry_decide(const struct retry_view *v, enum outcome how, struct retry_budget *b);

/* Did the replica certainly not begin the call? */
bool outcome_is_never_processed(enum outcome how);

#endif
