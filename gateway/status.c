#include "gateway/status.h"

#include "gateway/certs.h"

#include <stdlib.h>
#include <string.h>

#include "balancer/lb.h"
#include "base/buf.h"
#include "base/check.h"
#include "base/json_out.h"
#include "base/xalloc.h"
#include "gateway/admin.h"
#include "gateway/gateway.h"
#include "gateway/metrics.h"
#include "gateway/ready.h"
#include "gateway/stats.h"
#include "gateway/words.h"

#define STATUS_BYTES (64u * 1024 * 1024) /* a page for 100,000 endpoints */

struct status {
    struct gateway *g;
    const char *verb;
    bool draining;
};

static void on_healthz(struct admin_request *r, void *arg)
{
    (void)arg;
    admin_reply(r, 200, "text/plain", "ok\n", 3);
}

static void on_readyz(struct admin_request *r, void *arg)
{
    const struct status *const page = arg;

    if (page->draining)
        admin_reply(r, 503, "text/plain", "draining\n", 9);
    else if (ready_any(gateway_snapshot(page->g)))
        admin_reply(r, 200, "text/plain", "ready\n", 6);
    else
        admin_reply(r, 503, "text/plain", "no route can serve\n", 19);
}

static void on_metrics(struct admin_request *r, void *arg)
{
    const struct gateway *const g = arg;
    struct buf b;

    buf_init(&b, STATUS_BYTES);
    metrics_write(&b, gateway_stats(g), gateway_snapshot(g));
    certs_write_metrics(gateway_certs(g), &b);
    if (b.overflow)
        admin_reply_error(r, 500, "the page is over %u bytes", STATUS_BYTES);
    else
        admin_reply(r, 200, "text/plain; version=0.0.4; charset=utf-8", buf_cstr(&b), b.len);
    buf_fini(&b);
}

static const struct version_stats *find_version(const struct gateway_stats *s, const char *model,
                                                const char *version)
{
    for (size_t i = 0; i < s->n_versions; i++) {
        if (strcmp(s->versions[i]->model, model) == 0 &&
            strcmp(s->versions[i]->version, version) == 0)
            return s->versions[i];
    }
    return NULL;
}

static const struct endpoint_stats *find_endpoint(const struct gateway_stats *s,
                                                  const char *address)
{
    for (size_t i = 0; i < s->n_endpoints; i++) {
        if (strcmp(s->endpoints[i]->address, address) == 0)
            return s->endpoints[i];
    }
    return NULL;
}

static void write_endpoint(struct json_out *j, const struct gateway_stats *s,
                           const struct snap_endpoint *e)
{
    const struct endpoint_stats *const es = find_endpoint(s, e->address);

    json_out_object(j, NULL);
    json_out_str(j, "address", e->address);
    json_out_str(j, "replica", e->replica);
    json_out_str(j, "state", word_of_state(e->state));
    json_out_uint(j, "weight", e->weight);
    json_out_uint(j, "in_flight", es != NULL ? stats_sum(es->in_flight, s->n_workers) : 0);
    json_out_uint(j, "started", es != NULL ? es->started : 0);
    json_out_uint(j, "failed", es != NULL ? es->failed : 0);
    json_out_end_object(j);
}

static void write_codes(struct json_out *j, const struct version_stats *vs)
{
    json_out_object(j, "codes");
    for (int code = 0; vs != NULL && code < N_GRPC_CODES; code++) {
        if (vs->codes[code] > 0)
            json_out_uint(j, word_of_grpc(code), vs->codes[code]);
    }
    json_out_end_object(j);
}

static double quantile_ms(const struct version_stats *vs, double ratio)
{
    return vs != NULL ? (double)histogram_quantile(&vs->latency_us, ratio) / 1000 : 0;
}

static void write_version(struct json_out *j, const struct gateway_stats *s,
                          const struct snap_model *m, const struct snap_version *v)
{
    const struct version_stats *const vs = find_version(s, m->conf->name, v->conf->name);

    json_out_object(j, NULL);
    json_out_str(j, "version", v->conf->name);
    json_out_uint(j, "weight", v->weight);
    json_out_bool(j, "ready", ready_version(v));
    json_out_uint(j, "slots", v->conf->slots);
    json_out_uint(j, "started", vs != NULL ? vs->started : 0);
    json_out_uint(j, "finished", vs != NULL ? vs->finished : 0);
    json_out_uint(j, "failed", vs != NULL ? vs->failed : 0);
    json_out_uint(j, "in_flight", vs != NULL ? stats_sum(vs->in_flight, s->n_workers) : 0);
    json_out_uint(j, "queued", vs != NULL ? stats_sum(vs->queued, s->n_workers) : 0);
    json_out_double(j, "p50_ms", quantile_ms(vs, 0.5));
    json_out_double(j, "p99_ms", quantile_ms(vs, 0.99));
    write_codes(j, vs);
    json_out_array(j, "endpoints");
    for (size_t i = 0; i < v->n_endpoints; i++)
        write_endpoint(j, s, v->endpoints[i]);
    json_out_end_array(j);
    json_out_end_object(j);
}

static void write_model(struct json_out *j, const struct gateway_stats *s,
                        const struct snap_model *m)
{
    json_out_object(j, NULL);
    json_out_str(j, "model", m->conf->name);
    json_out_str(j, "protocol", word_of_protocol(m->conf->protocol));
    json_out_str(j, "policy", lb_of_policy(m->conf->policy)->name);
    json_out_bool(j, "ready", ready_model(m));
    json_out_object(j, "labels");
    for (size_t i = 0; i < m->conf->n_labels; i++)
        json_out_str(j, m->conf->labels[i].name,
                     m->conf->versions[m->conf->labels[i].version].name);
    json_out_end_object(j);
    json_out_array(j, "versions");
    for (size_t i = 0; i < m->n_versions; i++)
        write_version(j, s, m, &m->versions[i]);
    json_out_end_array(j);
    json_out_end_object(j);
}

static void on_status(struct admin_request *r, void *arg)
{
    const struct status *const page = arg;
    const struct gateway_stats *const s = gateway_stats(page->g);
    const struct snapshot *const snap = gateway_snapshot(page->g);
    struct json_out j;
    struct buf b;

    buf_init(&b, STATUS_BYTES);
    json_out_init(&j, &b);
    json_out_object(&j, NULL);
    json_out_str(&j, "verb", page->verb);
    json_out_str(&j, "version", PENSTOCK_VERSION);
    json_out_uint(&j, "generation", snap->generation);
    json_out_uint(&j, "epoch", snap->epoch);
    json_out_bool(&j, "ready", ready_any(snap) && !page->draining);
    json_out_bool(&j, "draining", page->draining);
    json_out_array(&j, "workers");
    for (uint32_t i = 0; i < s->n_workers; i++) {
        json_out_object(&j, NULL);
        json_out_uint(&j, "worker", i);
        json_out_uint(&j, "epoch", s->worker_epochs[i]);
        json_out_uint(&j, "sessions", s->worker_counters[i][COUNT_sessions_open]);
        json_out_uint(&j, "streams", s->worker_counters[i][COUNT_streams_open]);
        json_out_end_object(&j);
    }
    json_out_end_array(&j);
    json_out_array(&j, "models");
    for (size_t i = 0; i < snap->n_models; i++)
        write_model(&j, s, &snap->models[i]);
    json_out_end_array(&j);
    json_out_end_object(&j);
    buf_append_byte(&b, '\n');
    if (b.overflow)
        admin_reply_error(r, 500, "the page is over %u bytes", STATUS_BYTES);
    else
        admin_reply_json(r, 200, buf_cstr(&b));
    buf_fini(&b);
}

struct status *status_new(struct admin *a, struct gateway *g, const char *verb)
{
    struct status *const page = xcalloc(1, sizeof(*page));

    *page = (struct status){.g = g, .verb = verb};
    admin_route(a, "GET", "/healthz", on_healthz, NULL);
    admin_route(a, "GET", "/readyz", on_readyz, page);
    admin_route(a, "GET", "/metrics", on_metrics, g);
    admin_route(a, "GET", "/v1/status", on_status, page);
    return page;
}

void status_set_draining(struct status *s)
{
    s->draining = true;
}

struct status *status_free(struct status *s)
{
    free(s);
    return NULL;
}
