#include "gateway/book.h"

#include <stdlib.h>
#include <string.h>

#include "base/xalloc.h"

const struct counter_info counter_infos[N_COUNTERS] = {
#define KIND_COUNTER                    false
#define KIND_GAUGE                      true
#define COUNTER(name, kind, unit, help) {#name, KIND_##kind, unit, help},
#include "gateway/counters.tbl"
#undef COUNTER
};

struct book {
    struct gateway_stats stats;
    struct map versions_by_key;
    struct map endpoints_by_address;
};

uint64_t stats_counter(const struct gateway_stats *s, enum counter c)
{
    uint64_t sum = 0;

    for (uint32_t i = 0; i < s->n_workers; i++)
        sum += s->worker_counters[i][c];
    return sum;
}

uint32_t stats_sum(const uint32_t *per_worker, uint32_t n_workers)
{
    uint32_t sum = 0;

    for (uint32_t i = 0; i < n_workers; i++)
        sum += per_worker[i];
    return sum;
}

static struct version_stats *book_version(struct book *b, const char *model, const char *version)
{
    struct gateway_stats *s = &b->stats;
    char *key = xasprintf("%s\n%s", model, version); /* names have no line ends */
    struct version_stats *v = map_get(&b->versions_by_key, key, strlen(key));

    if (v == NULL) {
        v = xcalloc(1, sizeof(*v));
        v->model = xstrdup(model);
        v->version = xstrdup(version);
        v->in_flight = xcalloc(b->stats.n_workers, sizeof(*v->in_flight));
        v->queued = xcalloc(b->stats.n_workers, sizeof(*v->queued));
        histogram_init(&v->latency_us);
        map_set(&b->versions_by_key, key, strlen(key), v);
        s->versions = xrealloc(s->versions, s->n_versions + 1, sizeof(struct version_stats *));
        s->versions[s->n_versions++] = v;
    }
    free(key);
    return v;
}

/* What is shown, and what the sums are made from. */
struct endpoint_account {
    struct endpoint_stats shown;
    uint64_t *started, *failed; /* [n_workers], as the worker said last */
    bool *known;                /* [n_workers]: in its last report */
};

static struct endpoint_account *book_endpoint(struct book *b, const char *address)
{
    struct gateway_stats *s = &b->stats;
    struct endpoint_account *e = map_get(&b->endpoints_by_address, address, strlen(address));

    if (e == NULL) {
        e = xcalloc(1, sizeof(*e));
        e->shown.address = xstrdup(address);
        e->shown.in_flight = xcalloc(b->stats.n_workers, sizeof(*e->shown.in_flight));
        e->started = xcalloc(b->stats.n_workers, sizeof(*e->started));
        e->failed = xcalloc(b->stats.n_workers, sizeof(*e->failed));
        e->known = xcalloc(b->stats.n_workers, sizeof(*e->known));
        map_set(&b->endpoints_by_address, address, strlen(address), e);
        s->endpoints = xrealloc(s->endpoints, s->n_endpoints + 1, sizeof(struct endpoint_stats *));
        s->endpoints[s->n_endpoints++] = &e->shown;
    }
    return e;
}

static void endpoint_account_free(struct endpoint_account *e)
{
    free(e->shown.address);
    free(e->shown.in_flight);
    free(e->started);
    free(e->failed);
    free(e->known);
    free(e);
}

/* The worker's total rises; it begins again at 0 when the worker met the address anew. */
static uint64_t risen(uint64_t *last, uint64_t now)
{
    const uint64_t by = now >= *last ? now - *last : now;

    *last = now;
    return by;
}

static void book_add_endpoint(struct book *b, uint32_t worker, const struct report_endpoint *r)
{
    struct endpoint_account *e = book_endpoint(b, r->address);

    e->known[worker] = true;
    e->shown.in_flight[worker] = r->in_flight;
    e->shown.started += risen(&e->started[worker], r->started);
    e->shown.failed += risen(&e->failed[worker], r->failed);
}

static bool endpoint_is_known(const struct book *b, const struct endpoint_account *e)
{
    for (uint32_t i = 0; i < b->stats.n_workers; i++) {
        if (e->known[i])
            return true;
    }
    return false;
}

static struct endpoint_account *endpoint_account_of(struct endpoint_stats *shown)
{
    return container_of(shown, struct endpoint_account, shown);
}

static void book_forget_endpoints(struct book *b, uint32_t worker)
{
    for (size_t i = 0; i < b->stats.n_endpoints; i++) {
        endpoint_account_of(b->stats.endpoints[i])->known[worker] = false;
        b->stats.endpoints[i]->in_flight[worker] = 0;
    }
}

static void book_drop_unknown_endpoints(struct book *b)
{
    struct gateway_stats *s = &b->stats;
    size_t kept = 0;

    for (size_t i = 0; i < s->n_endpoints; i++) {
        struct endpoint_account *e = endpoint_account_of(s->endpoints[i]);

        if (endpoint_is_known(b, e)) {
            s->endpoints[kept++] = &e->shown;
            continue;
        }
        map_del(&b->endpoints_by_address, e->shown.address, strlen(e->shown.address));
        endpoint_account_free(e);
    }
    s->n_endpoints = kept;
}

static void book_add_version(struct book *b, uint32_t worker, const struct report_version *r)
{
    struct version_stats *v = book_version(b, r->model, r->version);

    v->started += r->counts.started;
    v->finished += r->counts.finished;
    v->failed += r->counts.failed;
    for (size_t c = 0; c < N_GRPC_CODES; c++)
        v->codes[c] += r->counts.codes[c];
    v->in_flight[worker] = r->in_flight;
    v->queued[worker] = r->queued;
    if (r->latency_us != NULL)
        histogram_merge(&v->latency_us, r->latency_us);
}

static void book_add_tenants(struct book *b, const struct report *r)
{
    struct gateway_stats *s = &b->stats;

    if (r->n_tenants == 0)
        return;
    if (s->tenant_counts == NULL) {
        s->tenants = r->tenants;
        s->n_tenants = r->n_tenants;
        s->tenant_counts = xcalloc(s->n_workers * r->n_tenants, sizeof(*s->tenant_counts));
    }
    memcpy(&s->tenant_counts[r->worker * s->n_tenants], r->tenant_counts,
           s->n_tenants * sizeof(*s->tenant_counts));
}

void book_add(struct book *b, const struct report *r)
{
    book_add_tenants(b, r);
    memcpy(b->stats.worker_counters[r->worker], r->counters, sizeof(r->counters));
    b->stats.worker_epochs[r->worker] = r->epoch;
    for (size_t i = 0; i < r->n_versions; i++)
        book_add_version(b, r->worker, &r->versions[i]);
    book_forget_endpoints(b, r->worker);
    for (size_t i = 0; i < r->n_endpoints; i++)
        book_add_endpoint(b, r->worker, &r->endpoints[i]);
    book_drop_unknown_endpoints(b);
}

const struct gateway_stats *book_stats(const struct book *b)
{
    return &b->stats;
}

struct book *book_new(uint32_t n_workers)
{
    struct book *b = xcalloc(1, sizeof(*b));
    struct gateway_stats *s = &b->stats;

    map_init(&b->versions_by_key);
    map_init(&b->endpoints_by_address);
    s->n_workers = n_workers;
    s->worker_counters = xcalloc(n_workers, sizeof(*s->worker_counters));
    s->worker_epochs = xcalloc(n_workers, sizeof(*s->worker_epochs));
    return b;
}

struct book *book_free(struct book *b)
{
    struct gateway_stats *s = &b->stats;

    for (size_t i = 0; i < s->n_versions; i++) {
        free(s->versions[i]->model);
        free(s->versions[i]->version);
        free(s->versions[i]->in_flight);
        free(s->versions[i]->queued);
        free(s->versions[i]);
    }
    for (size_t i = 0; i < s->n_endpoints; i++)
        endpoint_account_free(endpoint_account_of(s->endpoints[i]));
    free(s->versions);
    free(s->endpoints);
    free(s->worker_counters);
    free(s->worker_epochs);
    free(s->tenant_counts);
    map_fini(&b->versions_by_key);
    map_fini(&b->endpoints_by_address);
    free(b);
    return NULL;
}
