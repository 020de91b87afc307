/* gateway/report.h - what a worker has counted, every 250 ms, on its way to the control loop.
 *
 * Owns:      a report on its way: plain copies, no pointer into the worker.
 * Called by: worker.c (its timer), gateway.c (adds it to struct gateway_stats).
 * Lifetime:  report_new .. report_free.
 * Thread:    made on the worker's, read on the control's.
 */
#ifndef GATEWAY_REPORT_H
#define GATEWAY_REPORT_H

#include "base/clock.h"
#include "base/mbox.h"
#include "gateway/lane.h"
#include "gateway/stats.h"

struct gateway;
struct gateway_link;
struct worker;

#define REPORT_US (250 * US_PER_MS)

struct report_version {
    char *model, *version;
    struct lane_counts counts;
    uint32_t in_flight, queued;
    struct histogram *latency_us; /* NULL: no call has ended */
};

struct report_endpoint {
    char *address;
    uint32_t in_flight;
    uint64_t started, failed; /* since this worker knows it */
};

struct report {
    struct mbox_msg msg;
    struct gateway_link *link; /* gateway.c's */
    uint32_t worker;
    uint64_t epoch;
    uint64_t counters[N_COUNTERS];
    const struct tenant_conf *tenants; /* [n_tenants], the process's */
    struct tenant_counts *tenant_counts;
    size_t n_tenants;
    struct report_version *versions;
    size_t n_versions;
    struct report_endpoint *endpoints;
    size_t n_endpoints;
    uint8_t *packed; /* penstock.v1.LoadReport */
    size_t packed_len;
};

/* Takes what is new since the last one: the lanes start at zero again. */
struct report *report_new(struct worker *w);
struct report *report_free(struct report *r); /* returns NULL */

/* gateway.c, from a worker's thread: r goes to the control loop. */
void gateway_post_report(struct gateway *g, struct report *r);
const char *gateway_name(const struct gateway *g);

#endif
