/* gateway/stats.h - what the workers have counted: plain data on the control loop.
 *
 * Owns:      nothing here; gateway/book.c owns the one struct gateway_stats.
 * Called by: admin and metrics read it; gateway/report.c makes what is added to it.
 * Lifetime:  gateway_start .. gateway_stop.
 * Thread:    control. Each worker counts in its own memory and posts what is new every 250 ms, so
 * no counter is shared and a reader sees numbers at most that old.
 */
#ifndef GATEWAY_STATS_H
#define GATEWAY_STATS_H

#include "base/hash.h"
#include "base/histogram.h"
#include "conf/process.h"
#include "conf/snapshot.h"

enum counter {
#define COUNTER(name, kind, unit, help) COUNT_##name,
#include "gateway/counters.tbl"
#undef COUNTER
    N_COUNTERS
};

struct counter_info {
    const char *name;
    bool is_gauge;
    const char *unit;
    const char *help;
};
extern const struct counter_info counter_infos[N_COUNTERS];

#define N_GRPC_CODES 17 /* 0..16 */

/* One model version; for a plain service the model's name and version as configured. */
struct version_stats {
    char *model, *version;
    uint64_t started;
    uint64_t finished;
    uint64_t failed;              /* the server's fault: codes 2, 4, 8, 13, 14, 15 */
    uint64_t codes[N_GRPC_CODES]; /* ended, by the grpc-status that the client got */
    uint32_t *in_flight, *queued; /* [n_workers], now */
    struct histogram latency_us;  /* ended calls, from HEADERS to the last byte */
};

/* One replica's address, for as long as a worker knows it. */
struct endpoint_stats {
    char *address;
    uint32_t *in_flight; /* [n_workers], now */
    uint64_t started;
    uint64_t failed;
};

/* Of all workers' counts, one per tenant of penstock.json. */
struct tenant_counts {
    uint64_t started, failed; /* failed: as version_stats.failed */
};

struct gateway_stats {
    uint32_t n_workers;
    uint64_t (*worker_counters)[N_COUNTERS]; /* [n_workers]; a sum over workers is the process's */
    uint64_t *worker_epochs;           /* [n_workers] of the snapshot in use; 0: none reported */
    const struct tenant_conf *tenants; /* [n_tenants], the process's */
    size_t n_tenants;
    struct tenant_counts *tenant_counts; /* [n_workers * n_tenants] */
    struct version_stats **versions;
    size_t n_versions;
    struct endpoint_stats **endpoints;
    size_t n_endpoints;
};

struct gateway;
const struct gateway_stats *gateway_stats(const struct gateway *g);
uint64_t stats_counter(const struct gateway_stats *s, enum counter c);
uint32_t stats_sum(const uint32_t *per_worker, uint32_t n_workers);
/* The snapshot published last; no reference is taken: use it within this turn of the control loop.
 */
const struct snapshot *gateway_snapshot(const struct gateway *g);

#endif
