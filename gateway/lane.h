/* gateway/lane.h - what one worker keeps for one model version: the calls that wait, the counts,
 * the retry budget.
 *
 * Owns:      itself; it is the `queue` of a struct cluster and outlives it while calls hold it.
 * Called by: worker.c (balancer hooks), stream and attempt, report.c.
 * Lifetime:  lane_new when the cluster is added; freed when the cluster is gone, no call holds it
 *            and its counts were reported.
 * Thread:    its worker's.
 */
#ifndef GATEWAY_LANE_H
#define GATEWAY_LANE_H

#include "base/histogram.h"
#include "gateway/retry.h"
#include "gateway/stats.h"
#include "net/loop.h"

struct cluster;
struct worker;

/* Since the last report. */
struct lane_counts {
    uint64_t started, finished, failed;
    uint64_t codes[N_GRPC_CODES];
    uint64_t latency_sum_us;
    uint64_t busy_us; /* integral of (in_flight + n_queued) over time */
};

struct lane {
    struct list node; /* worker.lanes */
    struct worker *worker;
    struct cluster *cluster; /* NULL: removed */
    char *model, *version;
    uint32_t n_holders; /* calls that point here */
    struct retry_budget budget;

    struct list queue; /* struct stream.queue_node, oldest first */
    uint32_t n_queued;
    uint32_t in_flight; /* at replicas */
    struct dirty pump;  /* slots may be free: look at the queue in this turn */

    uint64_t busy_since_us;
    struct lane_counts counts;
    struct histogram *latency_us; /* NULL until a call has ended */

    /* Shares of LANE_ALL, over the last dozens of calls, that carried much. */
    uint32_t bulk_requests, bulk_replies;
};

struct lane *lane_new(struct worker *w, struct cluster *c);
void lane_hold(struct lane *l);
void lane_release(struct lane *l);
void lane_cluster_removed(struct lane *l);
/* Look at the queue before this turn ends: room, or the cluster is going and calls must find
 * another way. */
void lane_has_room(struct lane *l);
/* Call before in_flight or n_queued change. */
void lane_account_busy(struct lane *l);
void lane_count_end(struct lane *l, uint32_t grpc_status, uint64_t took_us);
/* A call has ended that carried so much. */
#define LANE_ALL 1024u
static inline void lane_count_bulk(struct lane *l, bool request, bool reply)
{
    l->bulk_requests += (request ? LANE_ALL / 16 : 0) - l->bulk_requests / 16;
    l->bulk_replies += (reply ? LANE_ALL / 16 : 0) - l->bulk_replies / 16;
}
/* Frees it when nobody needs it any more (after a report). Returns whether it did. */
bool lane_reap(struct lane *l);

/* Is this status the server's fault, for reports and alarms? */
bool status_is_failure(uint32_t grpc_status);

#endif
