#include "placer/job_sim.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/xalloc.h"

#define NEVER_US   UINT64_MAX
#define CLOCK_MAX  (1ull << 62)
#define GANG16     16
#define SUBMIT_MAX (1ull << 55) /* 1,100 years */

/* Invariants between two events:
 * - queue holds the jobs that have arrived and not ended, sorted by job_goes_before; running those
 *   of them that hold cards;
 * - free_gpus[] is what the running jobs leave of each node, n_free its sum;
 * - a running job's work counts from ready_us on: left_us is what is left at that time. */
struct sim_job {
    struct order_job seen; /* what the order may see */
    struct job_sim_job *job;
    uint64_t key;
    uint64_t overdue_us;      /* when its patience ends */
    uint64_t rested_us;       /* when it last had run for a whole period; else its submission */
    uint64_t ready_us;        /* running */
    uint64_t running_from_us; /* running */
    uint64_t waiting_from_us;
    uint16_t *nodes; /* running: where, ascending but for the last */
    bool running, placed, in_front, moves, ended;
};

struct sim {
    const struct job_sim *conf;
    struct sim_job *jobs, **arrivals; /* arrivals: sorted by submission, then number */
    size_t n_jobs, n_arrived, n_ended;
    struct sim_job **queue, **running, **scratch;
    size_t n_queue, n_running;
    uint16_t *nodes; /* of all jobs */
    uint32_t free_gpus[JOB_SIM_NODES_MAX];
    uint32_t n_free;
    uint64_t now_us;
};

/* ---- order ---- */

static int job_compare(const struct sim_job *a, const struct sim_job *b)
{
    if (a->in_front != b->in_front)
        return a->in_front ? -1 : 1;
    if (a->key != b->key)
        return a->key < b->key ? -1 : 1;
    return a->seen.number < b->seen.number ? -1 : a->seen.number > b->seen.number;
}

static int by_order(const void *a, const void *b)
{
    return job_compare(*(struct sim_job *const *)a, *(struct sim_job *const *)b);
}

static int by_arrival(const void *a, const void *b)
{
    const struct order_job *x = &(*(struct sim_job *const *)a)->seen;
    const struct order_job *y = &(*(struct sim_job *const *)b)->seen;

    if (x->submit_us != y->submit_us)
        return x->submit_us < y->submit_us ? -1 : 1;
    return x->number < y->number ? -1 : x->number > y->number;
}

static void job_rekey(const struct sim *s, struct sim_job *j)
{
    const struct order_ops *order = s->conf->order;

    if (order->patience_us != NULL)
        j->overdue_us = j->rested_us + order->patience_us(&j->seen);
    j->key = j->in_front ? j->overdue_us : order->key(&j->seen);
    j->moves = true;
}

/* Takes the jobs that move, and those that ended, out of the queue; puts the former, and the n
 * that are in scratch already, back where they belong now. */
static void queue_sort(struct sim *s, size_t n)
{
    size_t kept = 0, i, to;

    for (i = 0; i < s->n_queue; i++) {
        struct sim_job *j = s->queue[i];

        if (j->moves)
            s->scratch[n++] = j;
        else if (!j->ended)
            s->queue[kept++] = j;
    }
    qsort(s->scratch, n, sizeof(struct sim_job *), by_order);
    s->n_queue = to = kept + n;
    while (n > 0) { /* merge from the back */
        if (kept > 0 && job_compare(s->queue[kept - 1], s->scratch[n - 1]) > 0) {
            s->queue[--to] = s->queue[--kept];
        } else {
            s->queue[--to] = s->scratch[--n];
            s->queue[to]->moves = false;
        }
    }
}

/* ---- places ---- */

/* Takes the lowest nodes that do; false and nothing taken when there are none. ret_nodes: room for
 * one a started node. */
static bool nodes_take(struct sim *s, uint32_t gpus, uint16_t *ret_nodes)
{
    const uint32_t per_node = s->conf->gpus_per_node;
    const uint32_t rest = gpus % per_node;
    uint32_t whole = gpus / per_node, n = 0;

    if (gpus > s->n_free)
        return false;
    for (uint32_t i = 0; i < s->conf->n_nodes && n < whole; i++)
        if (s->free_gpus[i] == per_node)
            ret_nodes[n++] = (uint16_t)i;
    if (n < whole)
        return false;
    for (uint32_t k = 0; k < whole; k++)
        s->free_gpus[ret_nodes[k]] = 0;
    for (uint32_t i = 0; rest > 0 && i < s->conf->n_nodes && n == whole; i++)
        if (s->free_gpus[i] >= rest) {
            s->free_gpus[i] -= rest;
            ret_nodes[n++] = (uint16_t)i;
        }
    if (rest > 0 && n == whole) {
        for (uint32_t k = 0; k < whole; k++)
            s->free_gpus[ret_nodes[k]] = per_node;
        return false;
    }
    s->n_free -= gpus;
    return true;
}

static void nodes_give_back(struct sim *s, const struct sim_job *j)
{
    const uint32_t per_node = s->conf->gpus_per_node, whole = j->seen.gpus / per_node;

    for (uint32_t k = 0; k < whole; k++)
        s->free_gpus[j->nodes[k]] = per_node;
    if (j->seen.gpus % per_node > 0)
        s->free_gpus[j->nodes[whole]] += j->seen.gpus % per_node;
    s->n_free += j->seen.gpus;
}

static void nodes_reset(struct sim *s)
{
    s->n_free = s->conf->n_nodes * s->conf->gpus_per_node;
    for (uint32_t i = 0; i < s->conf->n_nodes; i++)
        s->free_gpus[i] = s->conf->gpus_per_node;
}

/* ---- events ---- */

static uint64_t next_tick_us(const struct sim *s)
{
    const struct order_ops *order = s->conf->order;

    if (order->preempt != ORDER_PREEMPT_PERIODIC || s->n_queue == s->n_running)
        return NEVER_US;
    return (s->now_us / order->period_us + 1) * order->period_us;
}

static uint64_t next_event_us(const struct sim *s)
{
    uint64_t next_us = next_tick_us(s);

    if (s->n_arrived < s->n_jobs && s->arrivals[s->n_arrived]->seen.submit_us < next_us)
        next_us = s->arrivals[s->n_arrived]->seen.submit_us;
    for (size_t i = 0; i < s->n_running; i++) {
        const uint64_t end_us = s->running[i]->ready_us + s->running[i]->seen.left_us;

        if (end_us < next_us)
            next_us = end_us;
    }
    return next_us;
}

/* Books what has run since the last event. True: it has ended. */
static bool job_advance(const struct sim *s, struct sim_job *j)
{
    uint64_t ran_us = s->now_us > j->ready_us ? s->now_us - j->ready_us : 0;

    if (ran_us < j->seen.left_us) {
        if (s->conf->overhead == JOB_SIM_OVERHEAD_EACH_EVENT)
            ran_us = ran_us > j->job->overhead_us ? ran_us - j->job->overhead_us : 0;
        j->seen.run_us += ran_us;
        j->seen.left_us -= ran_us;
        if (j->ready_us < s->now_us)
            j->ready_us = s->now_us;
        return false;
    }
    j->job->end_us = s->now_us;
    j->ended = true;
    return true;
}

static void sim_advance(struct sim *s)
{
    size_t n = 0;

    for (size_t i = 0; i < s->n_running; i++) {
        struct sim_job *j = s->running[i];

        if (!job_advance(s, j)) {
            job_rekey(s, j);
            s->running[n++] = j;
            continue;
        }
        nodes_give_back(s, j);
        j->running = false;
        s->n_ended++;
    }
    s->n_running = n;
}

/* Whose patience has ended goes in front; who has run a period goes back. */
static void sim_mark_overdue(struct sim *s)
{
    const struct order_ops *order = s->conf->order;

    for (size_t i = 0; i < s->n_queue; i++) {
        struct sim_job *j = s->queue[i];

        if (j->ended)
            continue;
        if (j->running && s->now_us - j->running_from_us >= order->period_us) {
            j->rested_us = s->now_us;
            j->in_front = false;
            job_rekey(s, j);
        } else if (!j->in_front && j->overdue_us <= s->now_us) {
            j->in_front = true;
            job_rekey(s, j);
        }
    }
}

static void job_begin(struct sim *s, struct sim_job *j)
{
    const uint64_t waited_us = s->now_us - j->waiting_from_us;

    if (waited_us > j->job->longest_wait_us)
        j->job->longest_wait_us = waited_us;
    if (j->job->starts == 0)
        j->job->first_start_us = s->now_us;
    j->running = true;
    j->running_from_us = s->now_us;
}

/* nodes: where it runs from now on, which may be where it ran before. */
static void job_place(struct sim *s, struct sim_job *j, const uint16_t *nodes)
{
    const uint32_t per_node = s->conf->gpus_per_node;
    const size_t bytes = (j->seen.gpus + per_node - 1) / per_node * sizeof(*nodes);

    if (j->running && memcmp(j->nodes, nodes, bytes) == 0)
        return;
    memcpy(j->nodes, nodes, bytes);
    if (!j->running)
        job_begin(s, j);
    j->job->starts++;
    j->ready_us = s->now_us;
    if (s->conf->overhead == JOB_SIM_OVERHEAD_EACH_START)
        j->ready_us += j->job->overhead_us;
}

/* Gives free cards out in the order of the queue. from_empty: what runs competes, too. */
static void sim_fill(struct sim *s, bool from_empty)
{
    uint16_t nodes[JOB_SIM_NODES_MAX + 1];
    uint32_t no_room = UINT32_MAX; /* a gang of so many found none, so a larger one won't */
    const size_t n_before = s->n_running;
    size_t n = 0;

    if (from_empty)
        nodes_reset(s);
    for (size_t i = 0; i < s->n_queue && s->n_free > 0; i++) {
        struct sim_job *j = s->queue[i];

        if ((j->running && !from_empty) || j->seen.gpus >= no_room)
            continue;
        if (nodes_take(s, j->seen.gpus, nodes)) {
            job_place(s, j, nodes);
            j->placed = true;
            s->scratch[n++] = j;
            continue;
        }
        no_room = j->seen.gpus;
        if (s->conf->order->strict)
            break;
    }
    for (size_t i = 0; i < n_before; i++) {
        struct sim_job *j = s->running[i];

        if (!from_empty) {
            s->scratch[n++] = j;
        } else if (!j->placed) {
            j->running = false;
            j->waiting_from_us = s->now_us;
        }
    }
    memcpy(s->running, s->scratch, n * sizeof(struct sim_job *));
    s->n_running = n;
    for (size_t i = 0; i < n; i++)
        s->running[i]->placed = false;
}

static void sim_step(struct sim *s)
{
    const struct order_ops *order = s->conf->order;
    const bool is_tick =
        order->preempt == ORDER_PREEMPT_PERIODIC && s->now_us % order->period_us == 0;
    size_t n = 0;

    sim_advance(s);
    while (s->n_arrived < s->n_jobs && s->arrivals[s->n_arrived]->seen.submit_us <= s->now_us) {
        struct sim_job *j = s->arrivals[s->n_arrived++];

        job_rekey(s, j);
        s->scratch[n++] = j;
    }
    if (is_tick && order->patience_us != NULL)
        sim_mark_overdue(s);
    queue_sort(s, n);
    sim_fill(s, is_tick || s->conf->repacks || order->preempt == ORDER_PREEMPT_EACH_EVENT);
}

/* ---- the run ---- */

static int sim_check(const struct job_sim *c, const struct job_sim_job *jobs, size_t n,
                     struct err *err)
{
    const uint64_t n_gpus = (uint64_t)c->n_nodes * c->gpus_per_node;
    uint64_t sum_us = 0, last_us = 0, slowest_us = 0;

    if (c->n_nodes == 0 || c->n_nodes > JOB_SIM_NODES_MAX || c->gpus_per_node == 0 ||
        c->gpus_per_node > JOB_SIM_GPUS_MAX || n > JOB_SIM_JOBS_MAX)
        return err_set(err, -EINVAL, "%zu jobs on %u nodes of %u GPUs are over the limits", n,
                       c->n_nodes, c->gpus_per_node);
    for (size_t i = 0; i < n; i++) {
        const struct job_sim_job *j = &jobs[i];

        if (j->gpus == 0 || j->gpus > n_gpus)
            return err_set(err, -EINVAL, "job %" PRIu64 " asks for %u of %" PRIu64 " GPUs",
                           j->number, j->gpus, n_gpus);
        if (j->work_us == 0 || j->work_us > JOB_SIM_WORK_MAX_US || j->submit_us > SUBMIT_MAX)
            return err_set(err, -EINVAL, "job %" PRIu64 " has work or a time out of range",
                           j->number);
        if (c->order->preempt == ORDER_PREEMPT_PERIODIC && j->overhead_us > c->order->period_us / 2)
            return err_set(err, -EINVAL, "job %" PRIu64 " starts longer than half a period",
                           j->number);
        sum_us += j->work_us; /* 2^20 x 2^49 would wrap: checked as it grows */
        if (sum_us > CLOCK_MAX / 8)
            return err_set(err, -ERANGE, "the jobs' work is longer than the clock");
        last_us = j->submit_us > last_us ? j->submit_us : last_us;
        slowest_us = j->overhead_us > slowest_us ? j->overhead_us : slowest_us;
    }
    if (slowest_us > JOB_SIM_WORK_MAX_US / JOB_SIM_JOBS_MAX)
        return err_set(err, -ERANGE, "a start of %" PRIu64 " us is out of range", slowest_us);
    return 0;
}

static void sim_init(struct sim *s, const struct job_sim *conf, struct job_sim_job *jobs, size_t n)
{
    const uint32_t per_node = conf->gpus_per_node;
    size_t n_nodes = 0;
    uint16_t *nodes;

    *s = (struct sim){.conf = conf, .n_jobs = n};
    s->jobs = xcalloc(n, sizeof(*s->jobs));
    s->arrivals = xcalloc(n, sizeof(struct sim_job *));
    s->queue = xcalloc(n, sizeof(struct sim_job *));
    s->running = xcalloc(n, sizeof(struct sim_job *));
    s->scratch = xcalloc(n, sizeof(struct sim_job *));
    for (size_t i = 0; i < n; i++)
        n_nodes += (jobs[i].gpus + per_node - 1) / per_node;
    s->nodes = nodes = xcalloc(n_nodes, sizeof(*nodes));
    for (size_t i = 0; i < n; i++) {
        struct sim_job *j = &s->jobs[i];

        j->job = &jobs[i];
        j->seen = (struct order_job){.number = jobs[i].number,
                                     .submit_us = jobs[i].submit_us,
                                     .left_us = jobs[i].work_us,
                                     .gpus = jobs[i].gpus};
        j->rested_us = j->waiting_from_us = jobs[i].submit_us;
        j->nodes = nodes;
        nodes += (jobs[i].gpus + per_node - 1) / per_node;
        jobs[i].first_start_us = jobs[i].end_us = jobs[i].longest_wait_us = jobs[i].starts = 0;
        s->arrivals[i] = j;
    }
    qsort(s->arrivals, n, sizeof(struct sim_job *), by_arrival);
    nodes_reset(s);
}

static void sim_fini(struct sim *s)
{
    free(s->nodes);
    free(s->scratch);
    free(s->running);
    free(s->queue);
    free(s->arrivals);
    free(s->jobs);
}

int job_sim_run(const struct job_sim *conf, struct job_sim_job *jobs, size_t n, struct err *err)
{
    struct sim s;
    const int r = sim_check(conf, jobs, n, err);

    if (r < 0 || n == 0)
        return r;
    sim_init(&s, conf, jobs, n);
    while (s.n_ended < n) {
        s.now_us = next_event_us(&s);
        check(s.now_us < CLOCK_MAX);
        sim_step(&s);
    }
    sim_fini(&s);
    return 0;
}

/* ---- summary ---- */

static int by_value(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return x < y ? -1 : x > y;
}

/* values: sorted here; n >= 1. */
static double p99_s(uint64_t *values_us, size_t n)
{
    qsort(values_us, n, sizeof(*values_us), by_value);
    return (double)values_us[n * 99 / 100] / 1e6;
}

struct job_sim_summary job_sim_summarize(const struct job_sim_job *jobs, size_t n)
{
    struct job_sim_summary sum = {0};
    uint64_t *const jct_us = xcalloc(n, sizeof(*jct_us));
    uint64_t *const wait_us = xcalloc(n, sizeof(*wait_us));
    uint64_t first_us = UINT64_MAX, last_us = 0;
    double total_s = 0;

    for (size_t i = 0; i < n; i++) {
        jct_us[i] = jobs[i].end_us - jobs[i].submit_us;
        total_s += (double)jct_us[i] / 1e6;
        first_us = jobs[i].submit_us < first_us ? jobs[i].submit_us : first_us;
        last_us = jobs[i].end_us > last_us ? jobs[i].end_us : last_us;
        if (jobs[i].gpus >= GANG16)
            wait_us[sum.n_gang16++] = jobs[i].first_start_us - jobs[i].submit_us;
    }
    sum.avg_jct_s = total_s / (double)n;
    sum.p99_jct_s = p99_s(jct_us, n);
    sum.makespan_s = (double)(last_us - first_us) / 1e6;
    if (sum.n_gang16 > 0)
        sum.p99_first_start_gang16_s = p99_s(wait_us, sum.n_gang16);
    free(wait_us);
    free(jct_us);
    return sum;
}
