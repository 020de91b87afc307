/* penstock/controller_state.h - the inside of struct controller, for its own files only.
 *
 * Called by: penstock/controller.c (life, ticks, snapshots), penstock/controller_config.c
 *            (generations).
 * Thread:    the control loop's.
 */
#ifndef PENSTOCK_CONTROLLER_STATE_H
#define PENSTOCK_CONTROLLER_STATE_H

#include "balancer/prober.h"
#include "penstock/controller.h"

struct controller {
    struct loop *loop;
    struct certs *certs;
    const struct process_conf *process;
    struct store *store;
    struct driver *driver;
    struct cluster_view view;
    struct fleet fleet;
    struct controller_jobs *jobs;
    struct prober *prober;
    struct decisions *decisions;
    struct generation *generation; /* in force */
    struct buf last_diff;
    uint64_t epoch;
    struct gateway *gateway; /* NULL before controller_start */
    struct timer tick;
    struct timer publish; /* at once, but only one per turn */
    uint64_t decide_us;   /* when the autoscaler is asked next */
    struct list waiting;  /* of controller_api.c: answers that wait for the workers */
    void (*stopped)(void *arg);
    void *stopped_arg;
};

/* The generation that is in force first; see controller_new. */
int config_begin(struct controller *c, struct conf_problems *problems, struct err *err);
/* Something about endpoints changed: a snapshot goes out in the next turn. */
void controller_publish_soon(struct controller *c);
/* c->generation changed; at_once: see fleet_set_generation. */
void controller_take_generation(struct controller *c, bool at_once);
/* Every worker has taken over the snapshot of this epoch, or a later one. */
bool controller_workers_have(const struct controller *c, uint64_t epoch);
/* Answer those whose change has reached the workers. */
void api_step(struct controller *c);
void api_fini(struct controller *c);

#endif
