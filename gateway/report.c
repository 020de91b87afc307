#include "gateway/report.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/xalloc.h"
#include "gateway/worker.h"
#include "proto/penstock.pb-c.h"

static void report_take_lane(struct report_version *v, struct lane *l)
{
    lane_account_busy(l);
    v->model = xstrdup(l->model);
    v->version = xstrdup(l->version);
    v->counts = l->counts;
    v->in_flight = l->in_flight;
    v->queued = l->n_queued;
    v->latency_us = l->latency_us;
    l->counts = (struct lane_counts){0};
    l->latency_us = NULL;
}

static void report_take_lanes(struct report *r, struct worker *w)
{
    size_t n = 0;

    list_each (&w->lanes, it)
        n++;
    r->versions = xcalloc(n, sizeof(*r->versions));
    list_each (&w->lanes, it) {
        struct lane *l = list_entry(it, struct lane, node);

        report_take_lane(&r->versions[r->n_versions++], l);
        lane_reap(l);
    }
}

static void report_count_endpoint(void *arg, const struct endpoint *ep)
{
    (void)ep;
    ++*(size_t *)arg;
}

static void report_take_endpoint(void *arg, const struct endpoint *ep)
{
    struct report *r = arg;

    r->endpoints[r->n_endpoints++] = (struct report_endpoint){.address = xstrdup(ep->address),
                                                              .in_flight = ep->in_flight,
                                                              .started = ep->started,
                                                              .failed = ep->failed};
}

/* --- packing --- */

struct packing {
    Penstock__V1__LoadReport whole;
    Penstock__V1__VersionLoad *versions;
    Penstock__V1__VersionLoad **version_ptrs;
    Penstock__V1__EndpointLoad *endpoints;
    Penstock__V1__EndpointLoad **endpoint_ptrs;
};

static void pack_latency(Penstock__V1__VersionLoad *v, const struct histogram *h)
{
    size_t n = 0;

    for (size_t i = 0; i < HISTOGRAM_N_BUCKETS; i++)
        n += h->buckets[i] != 0;

    Penstock__V1__LatencyBucket *buckets = xcalloc(n, sizeof(*buckets));

    v->latency = xcalloc(n, sizeof(*v->latency));
    for (size_t i = 0; i < HISTOGRAM_N_BUCKETS; i++) {
        if (h->buckets[i] == 0)
            continue;

        Penstock__V1__LatencyBucket *b = &buckets[v->n_latency];

        penstock__v1__latency_bucket__init(b);
        b->index = (uint32_t)i;
        b->count = h->buckets[i];
        v->latency[v->n_latency++] = b;
    }
    if (n == 0)
        free(buckets);
}

static void pack_version(Penstock__V1__VersionLoad *v, const struct report_version *from)
{
    penstock__v1__version_load__init(v);
    v->model = from->model;
    v->version = from->version;
    v->started = from->counts.started;
    v->finished = from->counts.finished;
    v->failed = from->counts.failed;
    v->in_flight = from->in_flight;
    v->queued = from->queued;
    v->inflight_seconds = (double)from->counts.busy_us / (double)US_PER_S;
    v->latency_sum_us = from->counts.latency_sum_us;
    if (from->latency_us != NULL)
        pack_latency(v, from->latency_us);
}

static void pack_endpoint(Penstock__V1__EndpointLoad *e, const struct report_endpoint *from)
{
    penstock__v1__endpoint_load__init(e);
    e->address = from->address;
    e->in_flight = from->in_flight;
    e->started = from->started;
    e->failed = from->failed;
}

static void packing_fini(struct packing *p, size_t n_versions)
{
    for (size_t i = 0; i < n_versions; i++) {
        if (p->versions[i].n_latency > 0)
            free(p->versions[i].latency[0]); /* the array of all of them */
        free(p->versions[i].latency);
    }
    free(p->versions);
    free(p->version_ptrs);
    free(p->endpoints);
    free(p->endpoint_ptrs);
}

static void report_pack(struct report *r, struct worker *w, const char *name)
{
    struct packing p = {
        .versions = xcalloc(r->n_versions, sizeof(*p.versions)),
        .version_ptrs = xcalloc(r->n_versions, sizeof(*p.version_ptrs)),
        .endpoints = xcalloc(r->n_endpoints, sizeof(*p.endpoints)),
        .endpoint_ptrs = xcalloc(r->n_endpoints, sizeof(*p.endpoint_ptrs)),
    };

    for (size_t i = 0; i < r->n_versions; i++) {
        pack_version(&p.versions[i], &r->versions[i]);
        p.version_ptrs[i] = &p.versions[i];
    }
    for (size_t i = 0; i < r->n_endpoints; i++) {
        pack_endpoint(&p.endpoints[i], &r->endpoints[i]);
        p.endpoint_ptrs[i] = &p.endpoints[i];
    }
    penstock__v1__load_report__init(&p.whole);
    p.whole.gateway = (char *)(uintptr_t)name; /* only read */
    p.whole.worker = w->index;
    p.whole.sequence = w->report_sequence;
    p.whole.interval_us = w->loop.now_us - w->reported_us;
    p.whole.epoch = r->epoch;
    p.whole.versions = p.version_ptrs;
    p.whole.n_versions = r->n_versions;
    p.whole.endpoints = p.endpoint_ptrs;
    p.whole.n_endpoints = r->n_endpoints;
    r->packed = xcalloc(1, penstock__v1__load_report__get_packed_size(&p.whole));
    r->packed_len = penstock__v1__load_report__pack(&p.whole, r->packed);
    packing_fini(&p, r->n_versions);
}

struct report *report_new(struct worker *w)
{
    struct report *r = xcalloc(1, sizeof(*r));
    size_t n_endpoints = 0;

    r->worker = w->index;
    r->epoch = w->snap->epoch;
    memcpy(r->counters, w->counters, sizeof(r->counters));
    r->tenants = w->tenants;
    r->n_tenants = w->n_tenants;
    r->tenant_counts = xcalloc(w->n_tenants + 1, sizeof(*r->tenant_counts));
    memcpy(r->tenant_counts, w->tenant_counts, w->n_tenants * sizeof(*r->tenant_counts));
    report_take_lanes(r, w);
    balancer_each_endpoint(w->balancer, report_count_endpoint, &n_endpoints);
    r->endpoints = xcalloc(n_endpoints, sizeof(*r->endpoints));
    balancer_each_endpoint(w->balancer, report_take_endpoint, r);
    w->report_sequence++;
    report_pack(r, w, gateway_name(w->gateway));
    w->reported_us = w->loop.now_us;
    return r;
}

struct report *report_free(struct report *r)
{
    for (size_t i = 0; i < r->n_versions; i++) {
        free(r->versions[i].model);
        free(r->versions[i].version);
        free(r->versions[i].latency_us);
    }
    for (size_t i = 0; i < r->n_endpoints; i++)
        free(r->endpoints[i].address);
    free(r->tenant_counts);
    free(r->versions);
    free(r->endpoints);
    free(r->packed);
    free(r);
    return NULL;
}
