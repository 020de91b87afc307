/* placer/preempt.h - which running gangs must end so that a waiting one has room: a whole plan,
 * proven by placing the gang without them, before the first of them is touched.
 *
 * Two reasons allow a victim:
 *   preemption  it is of the same queue and of strictly lower priority;
 *   reclaim     it is of another queue that still holds at least what it deserves without it, and
 *               the asking queue holds at most what it deserves with the gang.
 * Both end: let D be the GPU that all queues hold beyond what they deserve. A reclaim makes D
 * smaller by the loss of the victims, and adds nothing, since the asking queue stays within what it
 * deserves; a preemption moves room to a higher priority of one queue. So no plan undoes another,
 * and equal jobs never end each other.
 *
 * Of the sets that make room: the one whose highest priority is lowest, then the least lost work,
 * then the fewest, as far as the search goes: node by node for each task, best node first chosen,
 * then every victim is dropped from the set that the gang fits without.
 *
 * Owns:      nothing.
 * Called by: placer/job_place.c, for the first waiting job of a queue.
 * Thread:    one; no clock, no I/O: works on a copy of the view.
 * Source:    simulate, trim, commit: the scheme of Borg (EuroSys 2015, section 2.5) with the
 * victims checked on the card ledger itself.
 */
#ifndef PLACER_PREEMPT_H
#define PLACER_PREEMPT_H

#include "placer/plan.h"

/* A gang that runs and may be ended, whole. */
struct preempt_victim {
    const struct plan_placement *placements; /* what stands in the view */
    size_t n_placements;
    size_t queue; /* index in the ask's queues */
    uint32_t priority;
    uint64_t lost_gpu_ms; /* milliseconds of whole cards that it would lose: since its last
                             checkpoint, or its start */
    uint64_t start_us;    /* of equal ones the youngest goes */
};
struct preempt_queue {
    uint64_t used_gpu_milli;
    uint64_t deserved_gpu_milli; /* 0: it deserves nothing: all of it can be reclaimed, and it
                                    reclaims nothing */
};
struct preempt_ask {
    const struct plan_request *tasks;
    size_t n_tasks;
    size_t queue;
    uint32_t priority;
    const struct preempt_queue *queues;
    size_t n_queues;
    size_t max_victims; /* a budget: more are never ended for one gang */
};

/* Find the victims. ret_chosen: room for max_victims indices, rising; *ret_n of them are set, 0
 * when the gang fits as things are. PLAN_E_NO_ROOM: no set within the rules and the budget makes
 * room; nothing should then be ended. O(n_tasks x (nodes + placements of victims) + trimming). */
enum plan_outcome preempt_plan(const struct cluster_view *view, const struct preempt_ask *ask,
                               const struct preempt_victim *victims, size_t n_victims,
                               size_t *ret_chosen, size_t *ret_n);

#endif
