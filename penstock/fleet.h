/* penstock/fleet.h - the replicas that we run: how many of each version, which start, drain, stop.
 *
 * A run is one model version as long as it has replicas or is in the config; it outlives the
 * generation, so that a rollback finds its replicas warm.
 *
 * Owns:      runs and replicas. The driver and the cluster view belong to the controller.
 * Called by: penstock/controller.c: fleet_set_generation when the config changed, fleet_observe per
 *            load report, fleet_on_event per driver event, fleet_probed per verdict, fleet_step
 *            each tick and after any of these.
 * Lifetime:  fleet_new .. fleet_free.
 * Thread:    the control loop's. No clock, no socket: effects go through the driver's ops.
 *
 * Invariants:
 *  - A replica's placement stands in the view exactly until it is freed.
 *  - Nothing is stopped that may still have calls: READY -> DRAINING -> (every worker has the
 *    snapshot that says so, and none has a call there; or the limit) -> STOPPING.
 *  - A version takes over traffic only as far as its ready replicas cover it; until then who had it
 *    keeps it. Weights that the workers get sum to what the config's do.
 *  - What is ready never shrinks for missing or partial data: autoscaler/decide.h sees to it.
 */
#ifndef PENSTOCK_FLEET_H
#define PENSTOCK_FLEET_H

#include "autoscaler/decide.h"
#include "balancer/prober.h"
#include "base/hash.h"
#include "conf/generation.h"
#include "penstock/decisions.h"
#include "penstock/replica.h"
#include "placer/driver.h"

/* One worker's load of one version; a version that it did not name has zeros. */
struct fleet_load {
    const char *model, *version;
    double inflight_seconds;
    uint64_t started;
    uint32_t queued;
};

struct run {
    struct list node;
    struct list replicas; /* by their of_run, oldest first */
    char *model, *version;
    const struct model_conf *model_conf; /* of the current generation; NULL: not in it */
    const struct version_conf *conf;
    enum model_protocol protocol; /* kept when the version leaves the config, for the prober */
    enum model_dialect dialect;
    bool named;      /* the generation names it, with or without a command */
    uint32_t weight; /* that the config asks for */
    uint32_t shown;  /* that the workers get: see fleet_weigh.c */
    uint32_t needed; /* replicas for its share of the model's load, while it rises */
    uint64_t needed_until_us;
    bool held;     /* part of its weight waits for replicas */
    uint64_t spec; /* fingerprint of command and resources */
    struct scaler scaler;
    struct decision last;
    struct fleet_load load; /* of the report that is being counted */
    uint32_t waiting;       /* calls that waited at a worker, and when it last said so */
    uint64_t waiting_us;
    uint32_t warm_s;        /* of the config that it had before the current generation */
    uint32_t warm_replicas; /* kept until warm_until_us for a rollback */
    uint64_t warm_until_us;
    bool capped; /* without weight: it gave up room for another, and gets no more than cap */
    uint32_t cap;
    uint32_t last_number; /* of its replicas: "#3" */
    uint32_t failures;    /* starts in a row that did not live */
    uint64_t retry_us;    /* no start before */
    uint32_t restarts;    /* ends that nobody asked for, ever */
    char no_room[512];    /* the placer's words; "": there is room */
};

struct fleet {
    struct list runs;
    struct list replicas;
    struct map by_name; /* "model/version" -> run */
    struct driver *driver;
    struct cluster_view *view;
    struct decisions *decisions;
    uint64_t drain_us; /* how long running calls may take */
    struct sources sources;
    const struct generation *generation;
    uint32_t n_held;        /* runs whose weight waits for replicas */
    bool endpoints_changed; /* a new snapshot is due */
    bool released;          /* the view has more room than before: others may try again */
    bool ending;            /* fleet_stop_all: nothing starts any more */
};

void fleet_init(struct fleet *f, struct driver *driver, struct cluster_view *view,
                struct decisions *decisions, uint64_t drain_us);
void fleet_fini(struct fleet *f);

/* g stays valid until the next call. at_once: weights count now, whatever is ready (a rollback:
 * what serves is worse than what waits). */
void fleet_set_generation(struct fleet *f, const struct generation *g, bool at_once,
                          uint64_t now_us);

/* False: a repeat, nothing was counted. */
bool fleet_observe(struct fleet *f, const char *gateway, uint32_t worker, uint64_t sequence,
                   uint64_t interval_us, const struct fleet_load *loads, size_t n_loads,
                   uint64_t now_us);
/* Ask the autoscaler; each second. */
void fleet_decide(struct fleet *f, uint64_t now_us);
/* Make it so: start, replace, drain, stop what is due. */
void fleet_step(struct fleet *f, uint64_t now_us);

/* False: not a replica of ours. */
bool fleet_on_event(struct fleet *f, const struct driver_event *ev, uint64_t now_us);
void fleet_probed(struct fleet *f, const struct probe_target *t, enum endpoint_state state,
                  const char *why, uint64_t now_us);

/* What the snapshot builder gets. Returns the count; *ret_inputs to be freed, its strings are the
 * replicas'. */
size_t fleet_inputs(const struct fleet *f, struct endpoint_input **ret_inputs);
/* What the prober watches; same ownership. */
size_t fleet_targets(const struct fleet *f, struct probe_target **ret_targets);
/* The snapshot of fleet_inputs went out under this epoch. */
void fleet_published(struct fleet *f, uint64_t epoch);
/* Stop drained replicas. calls(arg, address, epoch): calls in flight there over all workers;
 * UINT32_MAX while a worker has not taken over the snapshot of that epoch. */
typedef uint32_t (*fleet_calls_fn)(void *arg, const char *address, uint64_t epoch);
void fleet_stop_drained(struct fleet *f, fleet_calls_fn calls, void *arg, uint64_t now_us);

/* The process ends: stop every replica; true when none is left. */
bool fleet_stop_all(struct fleet *f, uint64_t now_us);

struct run *fleet_run(const struct fleet *f, const char *model, const char *version);
uint32_t run_count(const struct run *run, enum replica_state s);

#endif
