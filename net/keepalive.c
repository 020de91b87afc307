#include "net/keepalive.h"

#define QUIET_MAX     2                             /* answered PINGs of one silence */
#define QUIET_WAIT_US (UINT64_C(301) * 1000 * 1000) /* just over what servers want */

void keepalive_start(struct keepalive *k, uint64_t after_us, uint64_t timeout_us, uint64_t now_us)
{
    *k = (struct keepalive){.after_us = after_us, .timeout_us = timeout_us, .heard_us = now_us};
    if (after_us != 0)
        k->look_us = now_us + after_us;
}

static bool may_ask(const struct keepalive *k, uint32_t n_streams, uint64_t now_us)
{
    return k->n_quiet < QUIET_MAX || now_us - k->asked_us >= QUIET_WAIT_US ||
           (k->n_quiet == QUIET_MAX && n_streams > k->n_asked_streams);
}

/* The look itself goes on at its own pace, or each call would move it. */
bool keepalive_asks(struct keepalive *k, uint32_t n_streams, uint64_t now_us)
{
    if (k->look_us == 0 || now_us < k->look_us)
        return false;
    if (k->heard_us + k->after_us > now_us) {
        k->look_us = k->heard_us + k->after_us;
        return false;
    }
    if (n_streams == 0 || !may_ask(k, n_streams, now_us)) {
        k->look_us = now_us + k->after_us;
        return false;
    }
    k->look_us = 0;
    k->asked_us = now_us;
    k->n_asked_streams = n_streams;
    k->answer_by_us = now_us + k->timeout_us;
    return true;
}

bool keepalive_answered(struct keepalive *k, uint64_t now_us)
{
    if (k->answer_by_us == 0)
        return false;
    k->answer_by_us = 0;
    k->n_quiet++;
    k->look_us = now_us + k->after_us;
    return true;
}
