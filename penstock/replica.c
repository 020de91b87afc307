#include "penstock/replica.h"

#include <stdlib.h>

#include "base/log.h"
#include "base/xalloc.h"

#define TO(s) (1u << REPLICA_##s)
static const struct {
    const char *name;
    unsigned next;
} states[REPLICA_N_STATES] = {
    [REPLICA_STARTING] = {"starting", TO(READY) | TO(DRAINING) | TO(STOPPING)},
    [REPLICA_READY] = {"ready", TO(UNHEALTHY) | TO(DRAINING) | TO(STOPPING)},
    [REPLICA_UNHEALTHY] = {"unhealthy", TO(READY) | TO(DRAINING) | TO(STOPPING)},
    [REPLICA_DRAINING] = {"draining", TO(STOPPING)},
    [REPLICA_STOPPING] = {"stopping", 0}, /* then it is gone */
};

struct replica *replica_new(struct run *run, const char *id, const char *address, uint64_t now_us)
{
    struct replica *const r = xcalloc(1, sizeof(*r));

    r->run = run;
    r->id = xstrdup(id);
    r->address = xstrdup(address);
    r->started_us = r->state_us = now_us;
    return r;
}

struct replica *replica_free(struct replica *r)
{
    if (r == NULL)
        return NULL;
    list_remove(&r->node);
    list_remove(&r->of_run);
    free(r->id);
    free(r->address);
    free(r);
    return NULL;
}

void replica_set_state(struct replica *r, enum replica_state to, uint64_t now_us)
{
    check(states[r->state].next & (1u << to));
    log_debug("replica_state", "replica=%s from=%s to=%s", r->id, states[r->state].name,
              states[to].name);
    r->state = to;
    r->state_us = now_us;
    if (to == REPLICA_READY && r->ready_us == 0)
        r->ready_us = now_us;
}

const char *replica_state_name(enum replica_state s)
{
    return states[s].name;
}
