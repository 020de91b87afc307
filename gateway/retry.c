#include "gateway/retry.h"

#define TOKEN           1000u
#define BUDGET_FULL     (100 * TOKEN) /* a burst of 100 retries per worker and model version */
#define CREDIT_PER_CALL (TOKEN / 5)   /* then at most one retry for five good calls */

void retry_budget_init(struct retry_budget *b)
{
    b->milli_tokens = BUDGET_FULL;
}

void retry_budget_credit(struct retry_budget *b)
{
    b->milli_tokens += CREDIT_PER_CALL;
    if (b->milli_tokens > BUDGET_FULL)
        b->milli_tokens = BUDGET_FULL;
}

bool outcome_is_never_processed(enum outcome how)
{
    switch (how) {
    case OUTCOME_CONNECT_FAILED:
    case OUTCOME_REFUSED:
    case OUTCOME_STOPPING:
    case OUTCOME_NOT_READY:
    case OUTCOME_UNKNOWN_MODEL:
        return true;
    case OUTCOME_OK:
    case OUTCOME_SERVER_ERROR:
    case OUTCOME_LOST:
    case OUTCOME_RESET:
    case OUTCOME_UNAVAILABLE:
    case OUTCOME_FULL:
    case OUTCOME_CANCELLED:
    case OUTCOME_N:
        break;
    }
    return false;
}

/* May have run, wholly or in part. A full queue is left out: trying it elsewhere makes an overload
 * worse, and the client's own policy decides. */
static bool outcome_may_have_run(enum outcome how)
{
    return how == OUTCOME_LOST || how == OUTCOME_RESET || how == OUTCOME_UNAVAILABLE;
}

enum retry retry_decide(const struct retry_view *v, enum outcome how, struct retry_budget *b)
{
    const bool unbegun = outcome_is_never_processed(how);

    if (!unbegun && !(outcome_may_have_run(how) && v->idempotent))
        return RETRY_NO;
    if (v->pushed_back)
        return RETRY_NO;
    if (v->committed)
        return RETRY_COMMITTED;
    if (!v->whole)
        return RETRY_NO_BUFFER;
    if (unbegun && v->free < RETRY_FREE_MAX)
        return RETRY_FREE;
    if (unbegun && how == OUTCOME_CONNECT_FAILED) /* nobody there to wait for */
        return RETRY_NO_ATTEMPTS;
    if (!unbegun && v->counted >= v->counted_max)
        return RETRY_NO_ATTEMPTS;
    if (how == OUTCOME_LOST)
        return RETRY_COUNTED;
    if (b->milli_tokens < TOKEN)
        return RETRY_NO_BUDGET;
    b->milli_tokens -= TOKEN;
    return unbegun ? RETRY_FREE : RETRY_COUNTED;
}
