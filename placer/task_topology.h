/* placer/task_topology.h - which tasks of a job want to be together, as Volcano's annotations say
 * it: groups of roles with affinity and anti-affinity, and the buckets of tasks that follow.
 *
 * Buckets are built task by task, role by role in order: a task that some bucket attracts joins the
 * one with most attraction, among equals the least loaded, then the first; one that every bucket
 * repels opens its own.
 *
 * Owns:      nothing.
 * Called by: the reader of Volcano and Kubeflow manifests.
 * Thread:    any; pure.
 * Source:    volcano.sh/volcano, pkg/scheduler/plugins/task-topology (manager.go, bucket.go).
 */
#ifndef PLACER_TASK_TOPOLOGY_H
#define PLACER_TASK_TOPOLOGY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

#define TASK_TOPOLOGY_ROLES_MAX 64

struct task_topology_role {
    const char *role;
    uint32_t count;
    uint64_t load; /* of one task, in any unit that is the same for all roles */
};
struct task_topology {
    size_t n_roles;
    int8_t pull[TASK_TOPOLOGY_ROLES_MAX][TASK_TOPOLOGY_ROLES_MAX]; /* 1, 0, -1; symmetric */
    uint8_t order[TASK_TOPOLOGY_ROLES_MAX];                        /* roles, first to last */
};

/* affinity, anti_affinity: "ps,worker;ps,evaluator": groups of roles; a group of one role is about
 * its own tasks. order: "ps,worker": these first, then the rest as in roles. NULL or "": none.
 * -EINVAL with err: a role that is not there, or twice in a group or the order. */
int task_topology_parse(struct task_topology *t, const struct task_topology_role *roles,
                        size_t n_roles, const char *affinity, const char *anti_affinity,
                        const char *order, struct err *err);
/* ret_buckets: for each task, role by role as in roles, the number of its bucket. Returns how many
 * buckets there are. O(tasks x buckets x roles). */
size_t task_topology_buckets(const struct task_topology *t, const struct task_topology_role *roles,
                             uint32_t *ret_buckets);

#endif
