/* penstock/simulate_placer.c - `penstock simulate placer`: policies against the openb workloads. */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/json_out.h"
#include "penstock/args.h"
#include "penstock/simulate.h"
#include "penstock/verb.h"
#include "placer/openb.h"

#define MAX_SEEDS    1000
#define MAX_POLICIES 16
#define JSON_BYTES   ((size_t)1024 * 1024)

static const uint32_t alloc_pcts[] = {100, 130}; /* shares of cards asked for that are reported */
static const uint32_t frag_pcts[] = {20, 50, 80};

struct placer_args {
    const char *nodes, *pods, *policies, *seeds, *log, *replay;
    bool json;
};

struct statistic { /* over the seeds */
    double sum, sum_of_squares;
    uint32_t n;
};

struct row {
    const char *policy;
    struct statistic alloc[ARRAY_LEN(alloc_pcts)], frag[ARRAY_LEN(frag_pcts)];
    uint64_t n_decisions, took_us;
};

static void statistic_add(struct statistic *s, double value)
{
    s->sum += value;
    s->sum_of_squares += value * value;
    s->n++;
}

static double mean_of(const struct statistic *s)
{
    return s->n > 0 ? s->sum / s->n : NAN;
}

/* Of a sample: over n - 1. One seed has none. */
static double deviation_of(const struct statistic *s)
{
    const double squares = s->n > 0 ? s->sum_of_squares - s->sum * s->sum / s->n : 0;

    return s->n > 1 && squares > 0 ? sqrt(squares / (s->n - 1)) : 0;
}

/* ---- what is asked for ---- */

/* "42:51", "42" or "42,43": numbers and inclusive ranges. Returns how many, 0: it is none of these.
 */
static size_t parse_seeds(const char *text, uint64_t *ret_seeds)
{
    size_t n = 0;

    for (const char *p = text;;) {
        uint64_t ends[2];
        int n_ends = 0;

        do {
            char *after;

            if (*p < '0' || *p > '9')
                return 0;
            errno = 0;
            ends[n_ends++] = strtoull(p, &after, 10);
            if (errno != 0)
                return 0;
            p = after;
        } while (n_ends == 1 && *p == ':' && *++p != '\0');
        if (n_ends == 1)
            ends[1] = ends[0];
        if (ends[1] < ends[0] || ends[1] - ends[0] >= MAX_SEEDS - n)
            return 0;
        for (uint64_t i = 0; i <= ends[1] - ends[0]; i++)
            ret_seeds[n++] = ends[0] + i;
        if (*p == '\0' && p[-1] != ':')
            return n;
        if (*p++ != ',')
            return 0;
    }
}

/* Returns how many, or 0 after an error message. */
static size_t parse_policies(const struct args_spec *spec, const char *text,
                             const struct openb_policy **ret_policies)
{
    size_t n = 0;

    for (const char *p = text;; p++) {
        const size_t len = strcspn(p, ",");
        const struct openb_policy *const policy = openb_policy_find(p, len);

        if (policy == NULL) {
            char known[200] = "";

            for (const struct openb_policy *k = openb_policies; k->name != NULL; k++)
                snprintf(known + strlen(known), sizeof(known) - strlen(known), "%s%s",
                         k == openb_policies ? "" : ", ", k->name);
            args_usage_error(spec, "--policy: unknown policy \"%.*s\"; known: %s", (int)len, p,
                             known);
            return 0;
        }
        if (n == MAX_POLICIES) {
            args_usage_error(spec, "--policy: more than %d of them", MAX_POLICIES);
            return 0;
        }
        ret_policies[n++] = policy;
        p += len;
        if (*p == '\0')
            return n;
    }
}

/* ---- runs ---- */

struct log_line {
    FILE *file;
    const char *policy;
    uint64_t seed;
};

static void write_decision(void *arg, const struct openb_decision *d)
{
    const struct log_line *const line = arg;

    fprintf(line->file, "%s,%" PRIu64 ",%zu,%s,%s,%x\n", line->policy, line->seed, d->number,
            d->task, d->spot != NULL ? d->node_name : "", d->spot != NULL ? d->spot->cards : 0u);
}

static void run_seed(const struct openb *o, const struct openb_policy *policy, uint64_t seed,
                     FILE *log, struct row *row)
{
    struct log_line line = {.file = log, .policy = policy->name, .seed = seed};
    struct openb_result result;
    const uint64_t from_us = clock_mono_us();

    openb_run(o, policy, seed, log != NULL ? write_decision : NULL, &line, &result);
    row->took_us += clock_mono_us() - from_us;
    row->n_decisions += result.n_decisions;
    for (size_t i = 0; i < ARRAY_LEN(alloc_pcts); i++)
        if (result.bins[alloc_pcts[i]].n > 0)
            statistic_add(&row->alloc[i], result.bins[alloc_pcts[i]].alloc_pct);
    for (size_t i = 0; i < ARRAY_LEN(frag_pcts); i++)
        if (result.bins[frag_pcts[i]].n > 0)
            statistic_add(&row->frag[i], result.bins[frag_pcts[i]].frag_ratio_pct);
}

/* ---- answers ---- */

static double per_second(const struct row *row)
{
    return (double)row->n_decisions * 1e6 / (double)(row->took_us > 0 ? row->took_us : 1);
}

static void print_json(const char *pods, const struct row *rows, size_t n_rows)
{
    struct buf buf;
    struct json_out j;
    char name[16];

    buf_init(&buf, JSON_BYTES);
    json_out_init(&j, &buf);
    json_out_object(&j, NULL);
    json_out_array(&j, "rows");
    for (const struct row *row = rows; row < rows + n_rows; row++) {
        json_out_object(&j, NULL);
        json_out_str(&j, "policy", row->policy);
        json_out_str(&j, "pods", pods);
        json_out_object(&j, "alloc_pct");
        for (size_t i = 0; i < ARRAY_LEN(alloc_pcts); i++) {
            snprintf(name, sizeof(name), "%" PRIu32, alloc_pcts[i]);
            json_out_double(&j, name, mean_of(&row->alloc[i]));
        }
        json_out_end_object(&j);
        json_out_object(&j, "alloc_sd");
        for (size_t i = 0; i < ARRAY_LEN(alloc_pcts); i++) {
            snprintf(name, sizeof(name), "%" PRIu32, alloc_pcts[i]);
            json_out_double(&j, name, deviation_of(&row->alloc[i]));
        }
        json_out_end_object(&j);
        json_out_object(&j, "frag_ratio_pct");
        for (size_t i = 0; i < ARRAY_LEN(frag_pcts); i++) {
            snprintf(name, sizeof(name), "%" PRIu32, frag_pcts[i]);
            json_out_double(&j, name, mean_of(&row->frag[i]));
        }
        json_out_end_object(&j);
        json_out_double(&j, "decisions_per_s", round(per_second(row)));
        json_out_end_object(&j);
    }
    json_out_end_array(&j);
    json_out_end_object(&j);
    puts(buf_cstr(&buf));
    buf_fini(&buf);
}

static void print_table(const struct row *rows, size_t n_rows)
{
    printf("%-10s %14s %14s %9s %9s %9s %12s\n", "policy", "alloc @100 %", "alloc @130 %",
           "frag @20", "frag @50", "frag @80", "decisions/s");
    for (const struct row *row = rows; row < rows + n_rows; row++) {
        printf("%-10s", row->policy);
        for (size_t i = 0; i < ARRAY_LEN(alloc_pcts); i++)
            printf("  %6.2f +- %4.2f", mean_of(&row->alloc[i]), deviation_of(&row->alloc[i]));
        for (size_t i = 0; i < ARRAY_LEN(frag_pcts); i++)
            printf(" %9.1f", mean_of(&row->frag[i]));
        printf(" %12.0f\n", per_second(row));
    }
}

static void run_all(const struct openb *o, const struct openb_policy *const *policies,
                    size_t n_policies, const uint64_t *seeds, size_t n_seeds, FILE *log,
                    bool progress, struct row *rows)
{
    for (size_t p = 0; p < n_policies; p++) {
        rows[p].policy = policies[p]->name;
        for (size_t i = 0; i < n_seeds; i++) {
            if (progress)
                fprintf(stderr, "\r%s: seed %zu of %zu\x1b[K", policies[p]->name, i + 1, n_seeds);
            run_seed(o, policies[p], seeds[i], log, &rows[p]);
        }
    }
    if (progress)
        fputs("\r\x1b[K", stderr);
}

static int replay(const struct openb *o, const char *path)
{
    struct openb_replayed counts;
    struct err err;

    if (openb_replay(o, path, &counts, &err) != 0) {
        fprintf(stderr, "penstock simulate placer: %s\n", err.text);
        return EX_CONFIG;
    }
    printf("ok: %" PRIu64 " runs, %" PRIu64 " placed, %" PRIu64 " dropped\n", counts.n_runs,
           counts.n_placed, counts.n_dropped);
    return EXIT_SUCCESS;
}

static int simulate(const struct args_spec *spec, const struct placer_args *a)
{
    const struct openb_policy *policies[MAX_POLICIES];
    uint64_t seeds[MAX_SEEDS];
    struct row rows[MAX_POLICIES] = {0};
    const size_t n_policies = parse_policies(spec, a->policies, policies);
    const size_t n_seeds = parse_seeds(a->seeds, seeds);
    struct openb o;
    struct err err;
    FILE *log = NULL;
    int r = EXIT_SUCCESS;

    if (n_policies == 0)
        return EX_USAGE;
    if (n_seeds == 0)
        return args_usage_error(spec,
                                "--seeds %s: not whole numbers and ranges as in 42:51 or 42,43; at "
                                "most %d",
                                a->seeds, MAX_SEEDS);
    if (openb_load(&o, a->nodes, a->pods, &err) != 0) {
        fprintf(stderr, "penstock simulate placer: %s\n", err.text);
        openb_free(&o);
        return EX_CONFIG;
    }
    if (a->replay != NULL) {
        r = replay(&o, a->replay);
        openb_free(&o);
        return r;
    }
    if (a->log != NULL && (log = fopen(a->log, "we")) == NULL) {
        fprintf(stderr, "penstock simulate placer: --log %s: %s\n", a->log, strerror(errno));
        openb_free(&o);
        return EX_CANTCREAT;
    }
    if (log != NULL)
        fputs("policy,seed,arrival,task,node,cards\n", log);
    run_all(&o, policies, n_policies, seeds, n_seeds, log, isatty(STDERR_FILENO), rows);
    if (log != NULL && (ferror(log) | fclose(log)) != 0) {
        fprintf(stderr, "penstock simulate placer: --log %s: %s\n", a->log, strerror(errno));
        r = EX_IOERR;
    }
    if (a->json)
        print_json(a->pods, rows, n_policies);
    else
        print_table(rows, n_policies);
    openb_free(&o);
    return r;
}

int simulate_placer(int argc, char **argv)
{
    struct placer_args a = {.policies = "random,bestfit,fgd,penstock", .seeds = "42:51"};
    const struct arg options[] = {
        ARG_STR("nodes", "FILE", &a.nodes, "the nodes: sn,cpu_milli,memory_mib,gpu,model"),
        ARG_STR("pods", "FILE", &a.pods,
                "the tasks: name,cpu_milli,memory_mib,num_gpu,gpu_milli[,gpu_spec]"),
        ARG_STR("policy", "NAME[,NAME]", &a.policies,
                "random, bestfit, fgd, penstock; default all of them"),
        ARG_STR("seeds", "LIST", &a.seeds, "42, 42,43 or 42:51 (default)"),
        ARG_STR("log", "FILE", &a.log, "write every decision there, one a line"),
        ARG_STR("replay", "FILE", &a.replay,
                "check such a file instead: each decision has room, deciding anew agrees"),
        ARG_FLAG("json", &a.json, "print JSON"),
        ARG_END,
    };
    const struct args_spec spec = {
        .verb = "simulate placer",
        .positional = "",
        .about =
            "How much of a cluster's cards a placement policy gives away: the tasks of a "
            "workload arrive\none by one in an order that the seed draws, until they ask for "
            "130 % of the cards.\ndocs/simulate-placer.md has the protocol and what was measured.",
        .options = options,
    };
    const int parsed = args_parse(&spec, &argc, argv);

    if (parsed != ARGS_OK)
        return args_exit(parsed);
    if (a.nodes == NULL || a.pods == NULL)
        return args_usage_error(&spec, "--%s is missing", a.nodes == NULL ? "nodes" : "pods");
    return simulate(&spec, &a);
}
