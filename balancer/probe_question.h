/* balancer/probe_question.h - what a prober asks a server, and what the answer says: bytes only.
 *
 * Called by: balancer/prober.c.
 * Thread:    any; no I/O.
 */
#ifndef BALANCER_PROBE_QUESTION_H
#define BALANCER_PROBE_QUESTION_H

#include "balancer/prober.h"
#include "base/buf.h"

enum question {
    ASK_MODEL_READY = 0, /* KServe ModelReady(model, version) */
    ASK_MODEL_STATUS,    /* TF-Serving GetModelStatus(model, version) */
    ASK_HEALTH,          /* grpc.health.v1 Check("") */
    ASK_HEALTH_DOUBT,    /* Check of a name that no server has: does it answer by name at all? */
    ASK_CONNECTION,      /* nothing: to be connected is the answer */
};

enum verdict {
    VERDICT_READY = 0,
    VERDICT_NOT_READY, /* the server says so: believed at once */
    VERDICT_FAILED,    /* no answer, or one that says nothing: believed after some in a row */
    VERDICT_NEXT,      /* it does not speak this: ask the next question */
};

enum question question_first(const struct probe_target *t);
/* After VERDICT_NEXT to q. */
enum question question_next(const struct probe_target *t, enum question q);
const char *question_path(enum question q); /* not for ASK_CONNECTION */
void question_write(const struct probe_target *t, enum question q, struct buf *ret_message);
/* status: grpc-status; by_server: it answered (false: the call never got that far). message: the
 * response message, NULL when none came. */
enum verdict question_read(enum question q, int status, bool by_server, const uint8_t *message,
                           size_t len);

#endif
