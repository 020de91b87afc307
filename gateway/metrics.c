#include "gateway/metrics.h"

#include <inttypes.h>

#include "base/check.h"
#include "gateway/words.h"

/* Upper bounds of the duration buckets, 1 ms to 60 s: inference from a lookup to a long answer. */
static const uint32_t bucket_ms[] = {1,   2,    5,    10,   20,    50,    100,  200,
                                     500, 1000, 2000, 5000, 10000, 30000, 60000};

void metrics_head(struct buf *b, const char *name, const char *kind, const char *help)
{
    buf_printf(b, "# HELP penstock_%s %s\n# TYPE penstock_%s %s\n", name, help, name, kind);
}

void metrics_label(struct buf *b, bool first, const char *name, const char *value)
{
    buf_printf(b, "%s%s=\"", first ? "" : ",", name);
    for (const char *p = value; *p != '\0'; p++) {
        if (*p == '\n')
            buf_append_str(b, "\\n");
        else if (*p == '"' || *p == '\\')
            buf_printf(b, "\\%c", *p);
        else
            buf_append_byte(b, (uint8_t)*p);
    }
    buf_append_byte(b, '"');
}

/* "penstock_NAME{model=...,version=..." without the closing brace. */
static void version_sample(struct buf *b, const char *name, const char *model, const char *version)
{
    buf_printf(b, "penstock_%s{", name);
    metrics_label(b, true, "model", model);
    metrics_label(b, false, "version", version);
}

static void end_sample(struct buf *b, uint64_t value)
{
    buf_printf(b, "} %" PRIu64 "\n", value);
}

static void write_counters(struct buf *b, const struct gateway_stats *s)
{
    for (int c = 0; c < N_COUNTERS; c++) {
        const struct counter_info *const info = &counter_infos[c];
        const char *const suffix = info->is_gauge ? "" : "_total";

        buf_printf(b, "# HELP penstock_%s%s %s\n# TYPE penstock_%s%s %s\n", info->name, suffix,
                   info->help, info->name, suffix, info->is_gauge ? "gauge" : "counter");
        buf_printf(b, "penstock_%s%s %" PRIu64 "\n", info->name, suffix,
                   stats_counter(s, (enum counter)c));
    }
}

static void write_codes(struct buf *b, const struct gateway_stats *s)
{
    metrics_head(b, "calls_total", "counter",
                 "Calls ended, by the grpc-status that the client got.");
    for (size_t i = 0; i < s->n_versions; i++) {
        const struct version_stats *const v = s->versions[i];

        for (int code = 0; code < N_GRPC_CODES; code++) {
            if (v->codes[code] == 0 && code != 0)
                continue; /* a row appears with its first call; OK is always there */
            version_sample(b, "calls_total", v->model, v->version);
            metrics_label(b, false, "code", word_of_grpc(code));
            end_sample(b, v->codes[code]);
        }
    }
}

static void write_durations(struct buf *b, const struct gateway_stats *s)
{
    metrics_head(b, "call_duration_seconds", "histogram",
                 "Ended calls, from their headers to the last byte of the answer.");
    for (size_t i = 0; i < s->n_versions; i++) {
        const struct version_stats *const v = s->versions[i];

        for (size_t k = 0; k < ARRAY_LEN(bucket_ms); k++) {
            version_sample(b, "call_duration_seconds_bucket", v->model, v->version);
            buf_printf(b, ",le=\"%g\"", bucket_ms[k] / 1000.0);
            end_sample(b, histogram_count_below(&v->latency_us, bucket_ms[k] * UINT64_C(1000)));
        }
        version_sample(b, "call_duration_seconds_bucket", v->model, v->version);
        buf_append_str(b, ",le=\"+Inf\"");
        end_sample(b, v->latency_us.count);
        version_sample(b, "call_duration_seconds_sum", v->model, v->version);
        buf_printf(b, "} %.6f\n", (double)v->latency_us.sum / 1e6);
        version_sample(b, "call_duration_seconds_count", v->model, v->version);
        end_sample(b, v->latency_us.count);
    }
}

enum version_value { VALUE_STARTED, VALUE_FAILED, VALUE_IN_FLIGHT, VALUE_QUEUED };

static uint64_t version_value(const struct version_stats *v, enum version_value what,
                              uint32_t n_workers)
{
    switch (what) {
    case VALUE_STARTED:
        return v->started;
    case VALUE_FAILED:
        return v->failed;
    case VALUE_IN_FLIGHT:
        return stats_sum(v->in_flight, n_workers);
    case VALUE_QUEUED:
        return stats_sum(v->queued, n_workers);
    }
    check(false && "one of the above");
    return 0;
}

static void write_version_values(struct buf *b, const struct gateway_stats *s)
{
    static const struct {
        const char *name, *kind, *help;
        enum version_value what;
    } rows[] = {
        {"calls_started_total", "counter", "Calls routed to this version.", VALUE_STARTED},
        {"calls_failed_total", "counter",
         "Calls ended with a status that is the server's fault (2, 4, 8, 13, 14, 15).",
         VALUE_FAILED},
        {"calls_in_flight", "gauge", "Calls at replicas now.", VALUE_IN_FLIGHT},
        {"calls_queued", "gauge", "Calls waiting for a slot or for a replica.", VALUE_QUEUED},
    };

    for (size_t r = 0; r < ARRAY_LEN(rows); r++) {
        metrics_head(b, rows[r].name, rows[r].kind, rows[r].help);
        for (size_t i = 0; i < s->n_versions; i++) {
            version_sample(b, rows[r].name, s->versions[i]->model, s->versions[i]->version);
            end_sample(b, version_value(s->versions[i], rows[r].what, s->n_workers));
        }
    }
}

static void write_tenants(struct buf *b, const struct gateway_stats *s, const char *name,
                          const char *help, size_t offset)
{
    metrics_head(b, name, "counter", help);
    for (size_t t = 0; t < s->n_tenants; t++) {
        uint64_t sum = 0;

        for (uint32_t w = 0; w < s->n_workers; w++)
            sum +=
                *(const uint64_t *)((const char *)&s->tenant_counts[w * s->n_tenants + t] + offset);
        buf_printf(b, "penstock_%s{", name);
        metrics_label(b, true, "tenant", s->tenants[t].name);
        end_sample(b, sum);
    }
}

static void endpoint_sample(struct buf *b, const char *name, const struct endpoint_stats *e,
                            uint64_t value)
{
    buf_printf(b, "penstock_%s{", name);
    metrics_label(b, true, "address", e->address);
    end_sample(b, value);
}

static void write_endpoints(struct buf *b, const struct gateway_stats *s)
{
    metrics_head(b, "endpoint_calls_total", "counter", "Attempts begun at this replica.");
    for (size_t i = 0; i < s->n_endpoints; i++)
        endpoint_sample(b, "endpoint_calls_total", s->endpoints[i], s->endpoints[i]->started);
    metrics_head(b, "endpoint_calls_failed_total", "counter", "Attempts that failed by its fault.");
    for (size_t i = 0; i < s->n_endpoints; i++)
        endpoint_sample(b, "endpoint_calls_failed_total", s->endpoints[i], s->endpoints[i]->failed);
    metrics_head(b, "endpoint_in_flight", "gauge", "Attempts at this replica now.");
    for (size_t i = 0; i < s->n_endpoints; i++)
        endpoint_sample(b, "endpoint_in_flight", s->endpoints[i],
                        stats_sum(s->endpoints[i]->in_flight, s->n_workers));
}

static void write_weights(struct buf *b, const struct snapshot *snap)
{
    metrics_head(b, "version_weight", "gauge", "Share of a model's calls, in parts of 10,000.");
    for (size_t i = 0; i < snap->n_models; i++) {
        const struct snap_model *const m = &snap->models[i];

        for (size_t k = 0; k < m->n_versions; k++) {
            version_sample(b, "version_weight", m->conf->name, m->versions[k].conf->name);
            end_sample(b, m->versions[k].weight);
        }
    }
}

static void write_states_of(struct buf *b, const struct snap_model *m, const struct snap_version *v)
{
    uint64_t n[ENDPOINT_DRAINING + 1] = {0};

    for (size_t e = 0; e < v->n_endpoints; e++)
        n[v->endpoints[e]->state]++;
    for (int state = ENDPOINT_STARTING; state <= ENDPOINT_DRAINING; state++) {
        version_sample(b, "endpoints", m->conf->name, v->conf->name);
        metrics_label(b, false, "state", word_of_state((enum endpoint_state)state));
        end_sample(b, n[state]);
    }
}

static void write_snapshot(struct buf *b, const struct gateway_stats *s,
                           const struct snapshot *snap)
{
    metrics_head(b, "generation", "gauge", "Number of the config in use.");
    buf_printf(b, "penstock_generation %" PRIu64 "\n", snap->generation);
    metrics_head(b, "epoch", "gauge", "Number of the snapshot published last.");
    buf_printf(b, "penstock_epoch %" PRIu64 "\n", snap->epoch);
    metrics_head(b, "worker_epoch", "gauge", "Number of the snapshot that a worker uses.");
    for (uint32_t i = 0; i < s->n_workers; i++)
        buf_printf(b, "penstock_worker_epoch{worker=\"%u\"} %" PRIu64 "\n", i, s->worker_epochs[i]);
    write_weights(b, snap);
    metrics_head(b, "endpoints", "gauge", "Replicas of a version, by state.");
    for (size_t i = 0; i < snap->n_models; i++) {
        for (size_t k = 0; k < snap->models[i].n_versions; k++)
            write_states_of(b, &snap->models[i], &snap->models[i].versions[k]);
    }
}

void metrics_write(struct buf *b, const struct gateway_stats *s, const struct snapshot *snap)
{
    metrics_head(b, "build_info", "gauge", "Always 1.");
    buf_printf(b, "penstock_build_info{version=\"%s\"} 1\n", PENSTOCK_VERSION);
    write_counters(b, s);
    write_version_values(b, s);
    write_codes(b, s);
    write_durations(b, s);
    write_endpoints(b, s);
    if (s->n_tenants > 0) {
        write_tenants(b, s, "tenant_calls_total",
                      "Calls that came with a certificate of this tenant.",
                      offsetof(struct tenant_counts, started));
        write_tenants(b, s, "tenant_calls_failed_total",
                      "Of those, ended with a status that is the server's fault.",
                      offsetof(struct tenant_counts, failed));
    }
    write_snapshot(b, s, snap);
}
