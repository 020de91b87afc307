/* placer/openb.h - the openb trace, and the published experiment on it, for any policy.
 *
 * Nodes and tasks come from CSV files in the columns of the trace; a run follows the protocol of
 * the paper: docs/simulate-placer.md says it in full.
 *
 * Owns:      openb: the files' text and what was read. openb_run: nothing after its return.
 * Called by: penstock/simulate_placer.c.
 * Lifetime:  openb_load .. openb_free.
 * Thread:    one; files are read by openb_load only, no clock: the same seed gives the same run.
 * Source:    Weng et al., "Beware of Fragmentation", USENIX ATC 2023, and its simulator.
 */
#ifndef PLACER_OPENB_H
#define PLACER_OPENB_H

#include "base/csv.h"
#include "base/rng.h"
#include "placer/pack.h"
#include "placer/score.h"

#define OPENB_MAX_NODES     1000000
#define OPENB_MAX_TASKS     10000000
#define OPENB_MAX_ARRIVALS  100000000 /* where inflation ends, however little the tasks ask for */
#define OPENB_NODE_TASKS    1001 /* tasks that a node holds at most, in the paper's simulator */
#define OPENB_COVERAGE_PCT  95
#define OPENB_INFLATION_PCT 130
#define OPENB_BINS          (OPENB_INFLATION_PCT + 2) /* whole per cent of cards asked for */

struct openb_task {
    const char *name;
    uint32_t shape; /* an index into shapes.shapes */
};

struct openb {
    struct csv nodes_csv, pods_csv; /* names point into them */
    struct pack_node_spec *nodes;
    const char **node_names;
    size_t n_nodes;
    struct openb_task *tasks; /* by name */
    size_t n_tasks;
    struct shape_table shapes;
    uint64_t capacity_milli;
};

/* 0, or -errno with err filled (file, line, column, value, rule). openb_free is right either way.
 */
int openb_load(struct openb *o, const char *nodes_path, const char *pods_path, struct err *err);
void openb_free(struct openb *o);

struct openb_policy {
    const char *name;
    const struct score_ops *score; /* NULL: any node with room, at random */
};
extern const struct openb_policy openb_policies[]; /* ends with a NULL name */
const struct openb_policy *openb_policy_find(const char *name, size_t len);

/* One decision, as it is made. spot: NULL: the task found no room and is dropped. node_name: of the
 * spot. */
struct openb_decision {
    size_t number;
    const char *task, *node_name;
    const struct pack_spot *spot;
};
typedef void (*openb_decision_fn)(void *arg, const struct openb_decision *d);

/* The mean over the arrivals of each bin; a bin without arrivals has n = 0. */
struct openb_bin {
    double alloc_pct, frag_ratio_pct;
    uint32_t n;
};
struct openb_result {
    struct openb_bin bins[OPENB_BINS];
    uint64_t n_decisions, n_dropped;
    uint64_t state_hash; /* of all nodes at the end, in the file's order */
};

/* One run. on_decision: NULL: not wanted. */
void openb_run(const struct openb *o, const struct openb_policy *policy, uint64_t seed,
               openb_decision_fn on_decision, void *arg, struct openb_result *ret);

/* A hash of what is free on all nodes. at: the pack's node for each of the file's; NULL: the same.
 */
uint64_t openb_state_hash(const struct pack *p, const uint32_t *at);

/* The log of a run, policy,seed,arrival,task,node,cards, taken again from empty nodes: each
 * placement must have room, and deciding anew must make as many decisions and leave the same nodes.
 * 0, or -errno with err filled: the file, line and value, or the run that differs. */
struct openb_replayed {
    uint64_t n_runs, n_placed, n_dropped;
};
int openb_replay(const struct openb *o, const char *path, struct openb_replayed *ret,
                 struct err *err);

#endif
