/* penstock/controller.h - holds the generation in force, and keeps gateway, replicas and jobs to
 * it.
 *
 * Owns:      the generation, the fleet, the cluster view, the prober, the decisions, batch jobs.
 * Called by: `penstock up`.
 * Lifetime:  controller_new (the first generation is in force, nothing runs yet),
 *            controller_start (the gateway is there), controller_stop .. stopped(),
 * controller_free. Thread:    the control loop's.
 *
 * The gateway and this never share memory: load reports come in packed, snapshots go out.
 */
#ifndef PENSTOCK_CONTROLLER_H
#define PENSTOCK_CONTROLLER_H

#include "conf/field.h"
#include "conf/process.h"
#include "conf/snapshot.h"
#include "gateway/admin.h"
#include "gateway/gateway.h"
#include "net/loop.h"
#include "penstock/controller_jobs.h"
#include "penstock/decisions.h"
#include "penstock/fleet.h"
#include "penstock/store.h"

struct certs;
struct controller;

/* The generation in force comes from process->models when that is set (a new one if it differs from
 * the newest in the state folder), else from the state folder, else it is empty. -EINVAL: problems
 * has all that is wrong; other -errno: err. */
int controller_new(struct controller **ret_controller, struct loop *loop, struct certs *certs,
                   const struct process_conf *process, struct conf_problems *problems,
                   struct err *err);
/* What the driver still runs is killed. When the loop no longer turns; returns NULL. */
struct controller *controller_free(struct controller *c);

/* For gateway_start: the first snapshot (its reference goes to the caller), and gateway_report_fn.
 */
struct snapshot *controller_first_snapshot(struct controller *c);
void controller_on_report(void *arg, const uint8_t *packed, size_t len);

/* From here on replicas run and snapshots are published. */
void controller_start(struct controller *c, struct gateway *g);
/* /v1/config, history, replicas, nodes, decisions, apply, rollback, traffic, jobs. */
void controller_add_routes(struct controller *c, struct admin *a);
/* Take over the config folder again (SIGHUP); what is wrong with it is logged, and changes nothing.
 */
void controller_reload(struct controller *c);
/* Stop every replica and task; stopped(arg) on the loop when none is left. */
void controller_stop(struct controller *c, void (*stopped)(void *arg), void *arg);

/* ---- for the admin routes ---- */

enum apply_outcome {
    APPLY_OK = 0,
    APPLY_SAME,       /* it is in force already: nothing changed */
    APPLY_E_INVALID,  /* problems has it; the old generation stays */
    APPLY_E_STALE,    /* another number is in force than the caller expects */
    APPLY_E_NOT_FOUND /* rollback, traffic: no such model or generation */
};
#define APPLY_ANY UINT64_MAX /* expected: whatever is in force */

struct apply_by {
    const char *author, *reason;
    uint64_t expected; /* number, or APPLY_ANY */
    bool back;         /* a rollback: weights count at once, versions with traffic may go */
};
/* APPLY_*, or -errno with err (the state folder can't be written: nothing changed). */
int controller_apply(struct controller *c, const char *text, size_t len, const struct apply_by *by,
                     struct conf_problems *problems, struct err *err);
/* number 0: the newest generation in which the model differs from now. */
int controller_rollback(struct controller *c, const char *model, uint64_t number,
                        const struct apply_by *by, struct conf_problems *problems, struct err *err);
int controller_set_traffic(struct controller *c, const char *model, const struct conf_pair *weights,
                           size_t n_weights, const struct apply_by *by,
                           struct conf_problems *problems, struct err *err);

const struct generation *controller_generation(const struct controller *c);
const char *controller_last_diff(const struct controller *c); /* of the last apply */
struct fleet *controller_fleet(struct controller *c);
struct cluster_view *controller_view(struct controller *c);
struct store *controller_store(struct controller *c);
struct controller_jobs *controller_batch(struct controller *c);
const struct decisions *controller_decisions(const struct controller *c);
/* Calls in flight at a replica over all workers, last reports. */
uint32_t controller_calls_at(const struct controller *c, const char *address);
uint64_t controller_now_us(const struct controller *c);

#endif
