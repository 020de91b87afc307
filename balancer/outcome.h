/* balancer/outcome.h - how a call at a replica ended, as far as it says something about the
 * replica.
 *
 * Called by: gateway/attempt.c finds the outcome, balancer/endpoint.c judges by it.
 * Thread:    any; pure.
 */
#ifndef BALANCER_OUTCOME_H
#define BALANCER_OUTCOME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum outcome {
    OUTCOME_OK = 0,         /* it answered; its caller's own mistakes (INVALID_ARGUMENT) too */
    OUTCOME_SERVER_ERROR,   /* INTERNAL, UNKNOWN, RESOURCE_EXHAUSTED ...: may be one bad client */
    OUTCOME_CONNECT_FAILED, /* no connection: the call never left */
    OUTCOME_LOST,           /* the connection died under the call */
    OUTCOME_RESET,          /* the replica reset the call's stream: it may have run */
    OUTCOME_REFUSED,        /* REFUSED_STREAM or above a GOAWAY: never processed, nobody's fault */
    OUTCOME_UNAVAILABLE,    /* grpc-status 14 without a reason that we know */
    OUTCOME_FULL,           /* its own queue is full: healthy, and retries make it worse */
    OUTCOME_STOPPING,       /* says that it shuts down */
    OUTCOME_NOT_READY,      /* says that this model or version is not (yet, or no longer) loaded */
    OUTCOME_UNKNOWN_MODEL,  /* NOT_FOUND for a version that the catalogue says it has */
    OUTCOME_CANCELLED,      /* we ended it: says nothing */
    OUTCOME_N
};
const char *outcome_name(enum outcome o); /* "connect_failed", for logs and metric labels */

/* What a replica's final status says. grpc_status 0..16 (others: UNKNOWN); message: as it came,
 * percent-encoded or not, n bytes, not NUL-terminated. goaway: the connection had announced its
 * end. Source: measured texts of Triton 2.51, MLServer 1.7, TF-Serving. */
enum outcome outcome_of_status(uint32_t grpc_status, const char *message, size_t n, bool goaway);

#endif
