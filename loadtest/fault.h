/* loadtest/fault.h - the ways in which penstock-model misbehaves when a test asks it to.
 *
 * A fault has a word and a number, `--fault WORD=N`; the numbers count calls, seconds or streams
 * as fault_words says. Whatever is scripted applies to data calls only (ModelInfer,
 * ModelStreamInfer, Predict, the echo service): health stays truthful, as it does in real bad
 * replicas.
 *
 * Owns:      nothing. Thread: one.
 */
#ifndef LOADTEST_FAULT_H
#define LOADTEST_FAULT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

enum fault_kind {
    FAULT_UNKNOWN_MODEL = 0,       /* N seconds of NOT_FOUND "unknown model", then gone */
    FAULT_UNAVAILABLE,             /* N calls: Trailers-Only UNAVAILABLE */
    FAULT_UNAVAILABLE_IN_TRAILERS, /* N calls: HEADERS, then trailers UNAVAILABLE, no DATA */
    FAULT_UNAVAILABLE_AFTER_DATA,  /* N calls: HEADERS, the answer, then trailers UNAVAILABLE */
    FAULT_CLOSE_AFTER_REQUEST, /* N calls: the TCP connection closes when the request is whole */
    FAULT_RESET_AFTER_REQUEST, /* N calls: RST_STREAM INTERNAL_ERROR when it is whole */
    FAULT_REFUSE,              /* N calls: RST_STREAM REFUSED_STREAM at their HEADERS */
    FAULT_GOAWAY_HALF,         /* once, at N open calls: GOAWAY, last id in their middle */
    FAULT_IGNORE_DEADLINE,     /* goes on working past grpc-timeout; no number */
    FAULT_N,
};

struct fault_set {
    uint64_t left[FAULT_N]; /* 0: not asked for, or used up */
};

/* "WORD=N" or "WORD" (every call; once; for ever). -EINVAL with err that lists the words. */
int fault_parse(struct fault_set *f, const char *text, struct err *err);
bool fault_is_on(const struct fault_set *f, enum fault_kind kind);
/* True when this call gets it; counts one down. */
bool fault_take(struct fault_set *f, enum fault_kind kind);
const char *fault_help(void); /* lines for --help */

#endif
