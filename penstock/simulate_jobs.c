/* penstock/simulate_jobs.c - `penstock simulate jobs`: a trace of training jobs under one of the
 * orders of placer/order.h. What the figures are compared with: docs/simulate.md. */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/csv.h"
#include "base/json_out.h"
#include "base/xalloc.h"
#include "conf/nearest.h"
#include "penstock/args.h"
#include "penstock/ctl.h"
#include "penstock/simulate.h"
#include "penstock/verb.h"
#include "placer/job_sim.h"

#define NODES_DEFAULT     8 /* the cluster of the published tables */
#define GPUS_DEFAULT      8
#define WORK_PERMILLE     1015 /* the published replays lengthen each job by so much ... */
#define MEASURED_FILE     "cluster_trace.csv" /* ... but not this trace, whose times were measured */
#define MEASURED_PERMILLE 1000
#define PERMILLE_MAX      10000
#define SUBMIT_MAX_MS     (1ull << 44) /* 557 years */
#define ITERATIONS_MAX    (1ull << 40)
#define ITERATION_MAX_MS  1e9

/* ---- what a start costs ---- */

#define N_SIZES 6 /* gangs of 1, 2, 4, 8, 16 and 32 cards; others count as the next larger */

/* Seconds, measured on V100: the simulator of Muri (SIGCOMM '22, Rivendile/Muri). */
static const struct {
    const char *model;
    uint8_t start_s[N_SIZES];
} models[] = {
    {"vgg16", {7, 7, 8, 9, 9, 10}},     {"vgg19", {7, 7, 8, 9, 10, 10}},
    {"resnet18", {4, 5, 5, 7, 7, 7}},   {"shufflenet_v2_x1_0", {4, 4, 5, 5, 7, 8}},
    {"bert", {10, 10, 10, 10, 10, 10}}, {"gpt2", {10, 10, 10, 10, 10, 10}},
    {"a2c", {38, 39, 39, 46, 46, 46}},  {"dqn", {5, 5, 6, 6, 8, 8}},
};

static int start_us(const struct csv *csv, int column, uint64_t gpus, uint64_t *ret_us,
                    struct err *err)
{
    const char *const name = csv_str(csv, column);
    char known[160] = "";
    size_t size = 0;

    while (size < N_SIZES - 1 && gpus > 1u << size)
        size++;
    for (size_t i = 0; i < ARRAY_LEN(models); i++) {
        if (strcmp(models[i].model, name) == 0) {
            *ret_us = models[i].start_s[size] * 1000000ull;
            return 0;
        }
        snprintf(known + strlen(known), sizeof(known) - strlen(known), "%s%s", i > 0 ? ", " : "",
                 models[i].model);
    }
    return csv_field_error(csv, column, err, "is none of the models whose start is known: %s",
                           known);
}

/* ---- the trace ---- */

struct trace {
    struct job_sim_job *jobs;
    size_t n, cap;
};

struct trace_columns {
    int job_id, num_gpu, submit_time, iterations, iteration_time, model_name;
};

static int find_columns(const struct csv *csv, struct trace_columns *ret, struct err *err)
{
    const struct {
        const char *name;
        int *to;
    } wanted[] = {
        {"job_id", &ret->job_id},           {"num_gpu", &ret->num_gpu},
        {"submit_time", &ret->submit_time}, {"iterations", &ret->iterations},
        {"model_name", &ret->model_name},   {"iteration_time", &ret->iteration_time},
    };

    for (size_t i = 0; i < ARRAY_LEN(wanted); i++) {
        *wanted[i].to = csv_need_column(csv, wanted[i].name, err);
        if (*wanted[i].to < 0)
            return *wanted[i].to;
    }
    return 0;
}

struct jobs_args {
    const char *trace, *policy;
    uint64_t nodes, gpus, permille;
    bool submit_at_zero, json;
};

static int read_job(const struct jobs_args *a, const struct csv *csv,
                    const struct trace_columns *col, struct job_sim_job *ret, struct err *err)
{
    uint64_t gpus = 0, submit_ms = 0, iterations = 0;
    double iteration_ms = 0, work_us;
    int r;

    *ret = (struct job_sim_job){0};
    if ((r = csv_uint(csv, col->job_id, 0, INT64_MAX, &ret->number, err)) < 0 ||
        (r = csv_uint(csv, col->num_gpu, 1, a->nodes * a->gpus, &gpus, err)) < 0 ||
        (r = csv_uint(csv, col->submit_time, 0, SUBMIT_MAX_MS, &submit_ms, err)) < 0 ||
        (r = csv_uint(csv, col->iterations, 1, ITERATIONS_MAX, &iterations, err)) < 0 ||
        (r = csv_double(csv, col->iteration_time, 0.001, ITERATION_MAX_MS, &iteration_ms, err)) <
            0 ||
        (r = start_us(csv, col->model_name, gpus, &ret->overhead_us, err)) < 0)
        return r;
    work_us = (double)iterations * iteration_ms * (double)a->permille;
    if (work_us > (double)JOB_SIM_WORK_MAX_US)
        return csv_field_error(csv, col->iterations, err,
                               "of %g ms each are over the limit of %" PRIu64 " s", iteration_ms,
                               (uint64_t)(JOB_SIM_WORK_MAX_US / 1000000));
    ret->gpus = (uint32_t)gpus;
    ret->submit_us = a->submit_at_zero ? 0 : submit_ms * 1000;
    ret->work_us = work_us < 1 ? 1 : (uint64_t)llround(work_us);
    return 0;
}

static int by_number(const void *a, const void *b)
{
    const uint64_t x = ((const struct job_sim_job *)a)->number;
    const uint64_t y = ((const struct job_sim_job *)b)->number;

    return x < y ? -1 : x > y;
}

static int read_rows(const struct jobs_args *a, struct csv *csv, struct trace *t, struct err *err)
{
    struct trace_columns col;
    int r = find_columns(csv, &col, err);

    while (r == 0 && (r = csv_next(csv, err)) == CSV_ROW) {
        if (t->n == JOB_SIM_JOBS_MAX)
            return err_set(err, -EINVAL, "%s:%" PRIu64 ": over the limit of %d jobs", a->trace,
                           csv->line, JOB_SIM_JOBS_MAX);
        if (t->n == t->cap) {
            t->cap = t->cap == 0 ? 1024 : t->cap * 2;
            t->jobs = xrealloc(t->jobs, t->cap, sizeof(*t->jobs));
        }
        r = read_job(a, csv, &col, &t->jobs[t->n++], err);
    }
    if (r < 0)
        return r;
    if (t->n == 0)
        return err_set(err, -EINVAL, "%s: holds no job", a->trace);
    qsort(t->jobs, t->n, sizeof(*t->jobs), by_number);
    for (size_t i = 1; i < t->n; i++)
        if (t->jobs[i].number == t->jobs[i - 1].number)
            return err_set(err, -EINVAL, "%s: column \"job_id\": \"%" PRIu64 "\" is there twice",
                           a->trace, t->jobs[i].number);
    return 0;
}

static int read_trace(const struct jobs_args *a, struct trace *t, struct err *err)
{
    struct csv csv;
    int r = csv_open(&csv, a->trace, err);

    if (r == 0)
        r = read_rows(a, &csv, t, err);
    csv_close(&csv);
    return r;
}

/* ---- the verb ---- */

/* The published replays charge a start at each event and move jobs for nothing; an order that puts
 * jobs aside by the clock is charged for what it does. */
static struct job_sim sim_of(const struct jobs_args *a, const struct order_ops *order)
{
    return (struct job_sim){
        .n_nodes = (uint32_t)a->nodes,
        .gpus_per_node = (uint32_t)a->gpus,
        .order = order,
        .overhead = order->preempt == ORDER_PREEMPT_NEVER        ? JOB_SIM_OVERHEAD_NONE
                    : order->preempt == ORDER_PREEMPT_EACH_EVENT ? JOB_SIM_OVERHEAD_EACH_EVENT
                                                                 : JOB_SIM_OVERHEAD_EACH_START,
        .repacks = order->preempt == ORDER_PREEMPT_NEVER,
    };
}

static void print_json(const char *policy, const struct job_sim_summary *sum)
{
    struct json_out j;
    struct buf text;

    buf_init(&text, 4096);
    json_out_init(&j, &text);
    json_out_object(&j, NULL);
    json_out_str(&j, "policy", policy);
    json_out_double(&j, "avg_jct_s", sum->avg_jct_s);
    json_out_double(&j, "p99_jct_s", sum->p99_jct_s);
    json_out_double(&j, "makespan_s", sum->makespan_s);
    json_out_double(&j, "p99_first_start_gang16_s",
                    sum->n_gang16 > 0 ? sum->p99_first_start_gang16_s : NAN); /* null */
    json_out_end_object(&j);
    puts(buf_cstr(&text));
    buf_fini(&text);
}

static void print_table(const char *policy, size_t n, const struct job_sim_summary *sum)
{
    static const char *const titles[] = {
        "POLICY", "JOBS", "AVG JCT S", "P99 JCT S", "MAKESPAN S", "P99 FIRST START S, GANGS >= 16"};
    struct ctl_table table;

    ctl_table_init(&table, ARRAY_LEN(titles));
    for (size_t i = 0; i < ARRAY_LEN(titles); i++)
        ctl_table_cell(&table, "%s", titles[i]);
    ctl_table_cell(&table, "%s", policy);
    ctl_table_cell(&table, "%zu", n);
    ctl_table_cell(&table, "%.0f", sum->avg_jct_s);
    ctl_table_cell(&table, "%.0f", sum->p99_jct_s);
    ctl_table_cell(&table, "%.0f", sum->makespan_s);
    if (sum->n_gang16 > 0)
        ctl_table_cell(&table, "%.0f", sum->p99_first_start_gang16_s);
    else
        ctl_table_cell(&table, "-");
    ctl_table_print(&table);
}

static int simulate(const struct jobs_args *a, const struct order_ops *order)
{
    const struct job_sim sim = sim_of(a, order);
    struct trace t = {0};
    struct err err = {0};
    int r = read_trace(a, &t, &err);

    if (r == 0 && (r = job_sim_run(&sim, t.jobs, t.n, &err)) < 0)
        err_prefix(&err, "%s", a->trace);
    if (r == 0) {
        const struct job_sim_summary sum = job_sim_summarize(t.jobs, t.n);

        if (a->json)
            print_json(order->name, &sum);
        else
            print_table(order->name, t.n, &sum);
    } else {
        fprintf(stderr, "penstock: %s\n", err.text);
    }
    free(t.jobs);
    return r == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

static int unknown_policy(const struct args_spec *spec, const char *name)
{
    char known[160] = "";
    struct nearest near;

    nearest_init(&near, name);
    for (size_t i = 0; order_at(i) != NULL; i++) {
        nearest_offer(&near, order_at(i)->name);
        snprintf(known + strlen(known), sizeof(known) - strlen(known), "%s%s", i > 0 ? ", " : "",
                 order_at(i)->name);
    }
    return args_usage_error(spec, "--policy: \"%s\" is none of %s%s%s", name, known,
                            near.best != NULL ? "; nearest: " : "",
                            near.best != NULL ? near.best : "");
}

int simulate_jobs(int argc, char **argv)
{
    struct jobs_args a = {.nodes = NODES_DEFAULT, .gpus = GPUS_DEFAULT};
    const struct arg options[] = {
        ARG_STR("trace", "FILE", &a.trace,
                "CSV: job_id, num_gpu, submit_time (ms), iterations, iteration_time (ms), "
                "model_name"),
        ARG_UINT("nodes", "N", &a.nodes, 1, JOB_SIM_NODES_MAX, "like nodes; default 8"),
        ARG_UINT("gpus", "N", &a.gpus, 1, JOB_SIM_GPUS_MAX, "cards of each node; default 8"),
        ARG_STR("policy", "NAME", &a.policy,
                "fifo, srtf, srsf (both know durations), or penstock (knows none)"),
        ARG_FLAG("submit-at-zero", &a.submit_at_zero, "all jobs are there from the start"),
        ARG_UINT("work-permille", "N", &a.permille, 1, PERMILLE_MAX,
                 "each job's work, in thousandths of iterations x iteration_time; default 1015, as "
                 "in the published replays, and 1000 for " MEASURED_FILE),
        ARG_FLAG("json", &a.json, "print one JSON object"),
        ARG_END,
    };
    const struct args_spec spec = {
        .verb = "simulate jobs",
        .positional = "",
        .options = options,
        .about =
            "Training jobs of a trace in one queue on a cluster of like nodes, under a virtual "
            "clock: job completion times, and how long large gangs wait for their first "
            "start. docs/simulate.md has the published figures to compare with.",
    };
    const int r = args_parse(&spec, &argc, argv);
    const struct order_ops *order;
    const char *base;

    if (r != ARGS_OK)
        return args_exit(r);
    if (a.trace == NULL || a.policy == NULL)
        return args_usage_error(&spec, "%s is missing", a.trace == NULL ? "--trace" : "--policy");
    order = order_find(a.policy);
    if (order == NULL)
        return unknown_policy(&spec, a.policy);
    base = strrchr(a.trace, '/') != NULL ? strrchr(a.trace, '/') + 1 : a.trace;
    if (a.permille == 0)
        a.permille = strcmp(base, MEASURED_FILE) == 0 ? MEASURED_PERMILLE : WORK_PERMILLE;
    return simulate(&a, order);
}
