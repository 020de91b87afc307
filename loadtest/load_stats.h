/* loadtest/load_stats.h - what became of the calls: latencies, statuses, versions, replicas.
 *
 * Owns:      its tables.
 * Called by: load_gen.c (add), load_main.c (merge, print).
 * Lifetime:  load_stats_init .. load_stats_fini.
 * Thread:    one writer; the atomics may be read by the thread that shows progress.
 */
#ifndef LOADTEST_LOAD_STATS_H
#define LOADTEST_LOAD_STATS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>

#include "base/buf.h"
#include "base/histogram.h"
#include "proto/grpc.h"

#define LOAD_MAX_NAMES  256u /* distinct versions, replicas; the rest counts as "(others)" */
#define LOAD_MAX_ERRORS 16u  /* distinct error texts that are kept */

struct load_name {
    char name[128];
    uint64_t n_calls, n_images, n_correct;
    uint64_t first_us, last_us; /* wall clock of the first and last answer */
};
struct load_names {
    struct load_name *rows;
    size_t n;
};

struct load_error {
    int status;
    char text[160];
    uint64_t n;
};

struct load_stats {
    struct histogram latency_us; /* of OK calls (streams: messages), from the intended start */
    struct histogram first_message_us; /* of calls with more than one answer message */
    struct histogram late_us;          /* how late the generator itself started calls */
    _Atomic uint64_t n_started, n_ok, n_failed;
    uint64_t n_wrong;      /* OK, but the answer belongs to another request or is none */
    uint64_t n_unfinished; /* still running when the generator gave up waiting */
    uint64_t n_messages, bytes_sent, bytes_received;
    uint64_t first_us,
        last_us; /* monotonic: when the first call was to start, the last one ended */
    uint64_t by_status[GRPC_N_STATUS];
    struct load_names versions, replicas;
    struct load_error errors[LOAD_MAX_ERRORS];
    size_t n_errors;
};

void load_stats_init(struct load_stats *s);
void load_stats_fini(struct load_stats *s);
void load_stats_merge(struct load_stats *into, const struct load_stats *from);

struct load_name *load_names_find(struct load_names *names, const char *name, size_t len);
void load_stats_add_error(struct load_stats *s, int status, const char *text);

struct load_summary {
    const char *to, *path;
    bool is_open; /* a rate was asked for */
    double rate;  /* asked for on average, calls/s */
    uint64_t concurrency;
    double elapsed_s;
    uint64_t started_at_us; /* wall clock */
};
void load_stats_print(const struct load_stats *s, const struct load_summary *sum, FILE *to);
void load_stats_print_json(const struct load_stats *s, const struct load_summary *sum, FILE *to);

#endif
