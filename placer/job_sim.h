/* placer/job_sim.h - replays a list of jobs on a cluster of like nodes, under a virtual clock.
 *
 * Owns:      nothing that outlives the call: jobs are the caller's, results are written into them.
 * Called by: penstock/simulate_jobs.c.
 * Thread:    any; no I/O, no clock: the same jobs give the same results on every machine.
 * Source:    the simulator of Muri (SIGCOMM '22, repository Rivendile/Muri) for placement, for what
 *            an event does, and for JOB_SIM_OVERHEAD_EACH_EVENT.
 *
 * A gang of up to gpus_per_node cards takes the lowest node that has room; a larger one takes the
 * lowest whole idle nodes, and what is left over the lowest node with room.
 */
#ifndef PLACER_JOB_SIM_H
#define PLACER_JOB_SIM_H

#include "base/err.h"
#include "placer/order.h"

#define JOB_SIM_NODES_MAX   1024
#define JOB_SIM_GPUS_MAX    16 /* per node */
#define JOB_SIM_JOBS_MAX    1000000
#define JOB_SIM_WORK_MAX_US (1ull << 49) /* 17 years; x 2^14 cards it stays under 2^64 */

/* What a start costs. */
enum job_sim_overhead {
    JOB_SIM_OVERHEAD_NONE = 0,
    /* Each event takes it from all that run, whether or not they move (but never more than the
     * time since the last event): what the published replays do. */
    JOB_SIM_OVERHEAD_EACH_EVENT,
    JOB_SIM_OVERHEAD_EACH_START, /* a job that starts, resumes or moves stands still for it */
};

struct job_sim_job {
    uint64_t number; /* unique; breaks ties of an order */
    uint32_t gpus;
    uint64_t submit_us, work_us, overhead_us;

    /* results */
    uint64_t first_start_us, end_us;
    uint64_t longest_wait_us; /* without a run, from its submission, its last stop or its end */
    uint32_t starts;          /* of which all but one are restarts or moves */
};

struct job_sim {
    uint32_t n_nodes, gpus_per_node;
    const struct order_ops *order;
    enum job_sim_overhead overhead;
    /* Each event empties the cluster and fills it anew in order, whatever the order says of putting
     * jobs aside: what the published replays do even for first come first served. */
    bool repacks;
};

/* Runs every job to its end. jobs: any order. Fails with -EINVAL where a job asks for more than the
 * cluster has, for nothing, or past the limits above; -ERANGE where the clock would run out. */
int job_sim_run(const struct job_sim *sim, struct job_sim_job *jobs, size_t n, struct err *err);

struct job_sim_summary {
    double avg_jct_s, p99_jct_s, makespan_s;
    size_t n_gang16;                 /* jobs of 16 cards and more */
    double p99_first_start_gang16_s; /* from submission; 0 where there are none */
};

/* jobs: as job_sim_run left them, n >= 1. p99: the value that 99 % of the n (rounded down) are not
 * above, as the published tables have it. */
struct job_sim_summary job_sim_summarize(const struct job_sim_job *jobs, size_t n);

#endif
