/* penstock/replica.h - one model-server process that we started, from its start to its end.
 *
 * Owns:      its strings, and its placement in the cluster view until it is gone.
 * Called by: penstock/fleet.c.
 * Lifetime:  replica_new .. replica_free; the fleet owns it.
 * Thread:    the control loop's.
 */
#ifndef PENSTOCK_REPLICA_H
#define PENSTOCK_REPLICA_H

#include "base/list.h"
#include "conf/snapshot.h"
#include "placer/plan.h"

enum replica_state {
    REPLICA_STARTING = 0, /* the process was asked for; not ready yet */
    REPLICA_READY,
    REPLICA_UNHEALTHY, /* was ready; the prober says no */
    REPLICA_DRAINING,  /* gets no new calls; the running ones end */
    REPLICA_STOPPING,  /* the driver ends the process */
    REPLICA_N_STATES
};

struct run; /* penstock/fleet.h: its model version */

struct replica {
    struct list node;   /* of the fleet, oldest first */
    struct list of_run; /* of its version, likewise */
    struct run *run;
    char *id; /* "digits/2#3", also its name in messages */
    char *address;
    uint64_t spec; /* run->spec when it was started; another one now: it is outdated */
    enum replica_state state;
    struct plan_placement placement;
    int pid;
    uint64_t started_us, state_us; /* of the process; of the state */
    uint64_t ready_us;             /* first time ready; 0: never */
    uint64_t drain_epoch;          /* of the snapshot that told the workers; 0: none yet */
    uint64_t drain_limit_us;
};

struct replica *replica_new(struct run *run, const char *id, const char *address, uint64_t now_us);
struct replica *replica_free(struct replica *r); /* off its lists; returns NULL */
void replica_set_state(struct replica *r, enum replica_state to, uint64_t now_us);
const char *replica_state_name(enum replica_state s);

/* Counts for its version: it serves, or will soon. */
static inline bool replica_is_live(const struct replica *r)
{
    return r->state <= REPLICA_UNHEALTHY;
}

#endif
