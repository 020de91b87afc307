/* What a saturating run has found, in text or JSON. */
#include <inttypes.h>

#include "base/json_out.h"
#include "loadtest/saturate.h"

#define JSON_BYTES 16384u

static uint64_t n_failed(const struct saturate_result *r)
{
    uint64_t n = r->n_empty + r->n_no_status + r->n_reset + r->n_lost + r->n_unfinished;

    for (size_t i = GRPC_OK + 1; i < GRPC_N_STATUS; i++)
        n += r->by_status[i];
    return n;
}

bool saturate_is_good(const struct saturate_result *r)
{
    return r->n_ok > 0 && n_failed(r) == 0;
}

static double per_call(const struct saturate_result *r, double sum)
{
    return r->n_ok > 0 ? sum / (double)r->n_ok : 0.0;
}

static double calls_per_s(const struct saturate_result *r)
{
    return r->elapsed_s > 0.0 ? (double)r->n_ok / r->elapsed_s : 0.0;
}

static void print_json(const struct saturate_result *r, const struct saturate_conf *conf, FILE *to)
{
    struct json_out j;
    struct buf buf;

    buf_init(&buf, JSON_BYTES);
    json_out_init(&j, &buf);
    json_out_object(&j, NULL);
    json_out_str(&j, "to", conf->to.text);
    json_out_uint(&j, "connections", conf->n_connections);
    json_out_uint(&j, "streams", conf->n_streams);
    json_out_double(&j, "elapsed_s", r->elapsed_s);
    json_out_double(&j, "calls_per_s", calls_per_s(r));
    json_out_uint(&j, "ok", r->n_ok);
    json_out_uint(&j, "failed", n_failed(r));
    json_out_object(&j, "by_status");
    for (size_t i = 0; i < GRPC_N_STATUS; i++) {
        if (r->by_status[i] > 0)
            json_out_uint(&j, grpc_status_name((enum grpc_status)i), r->by_status[i]);
    }
    json_out_end_object(&j);
    json_out_uint(&j, "empty", r->n_empty);
    json_out_uint(&j, "no_status", r->n_no_status);
    json_out_uint(&j, "reset", r->n_reset);
    json_out_uint(&j, "lost", r->n_lost);
    json_out_uint(&j, "unfinished", r->n_unfinished);
    json_out_uint(&j, "connections_lost", r->n_connections_lost);
    json_out_str(&j, "why_lost", r->why_lost);
    json_out_double(&j, "p50_ms", (double)histogram_quantile(&r->latency_us, 0.5) / 1e3);
    json_out_double(&j, "p99_ms", (double)histogram_quantile(&r->latency_us, 0.99) / 1e3);
    json_out_double(&j, "p999_ms", (double)histogram_quantile(&r->latency_us, 0.999) / 1e3);
    json_out_double(&j, "bytes_per_answer", per_call(r, (double)r->bytes_received));
    json_out_double(&j, "own_cpu_us_per_call", per_call(r, r->own_cpu_us));
    if (conf->n_pids > 0)
        json_out_double(&j, "cpu_us_per_call", per_call(r, r->pids_cpu_us));
    json_out_double(&j, "own_reads_per_call", per_call(r, (double)r->n_reads));
    json_out_double(&j, "own_writes_per_call", per_call(r, (double)r->n_writes));
    json_out_end_object(&j);
    fprintf(to, "%s\n", buf_cstr(&buf));
    buf_fini(&buf);
}

static void print_failed(const struct saturate_result *r, FILE *to)
{
    fprintf(to, "failed      %" PRIu64 ":", n_failed(r));
    for (size_t i = GRPC_OK + 1; i < GRPC_N_STATUS; i++) {
        if (r->by_status[i] > 0)
            fprintf(to, " %s %" PRIu64, grpc_status_name((enum grpc_status)i), r->by_status[i]);
    }
    fprintf(to,
            " no message %" PRIu64 " no status %" PRIu64 " reset %" PRIu64 " lost %" PRIu64
            " unfinished %" PRIu64 "\n",
            r->n_empty, r->n_no_status, r->n_reset, r->n_lost, r->n_unfinished);
}

static void print_text(const struct saturate_result *r, const struct saturate_conf *conf, FILE *to)
{
    fprintf(to, "%" PRIu64 " calls OK in %.2f s: %.0f/s, %u connections x %u\n", r->n_ok,
            r->elapsed_s, calls_per_s(r), conf->n_connections, conf->n_streams);
    if (n_failed(r) > 0)
        print_failed(r, to);
    if (r->n_connections_lost > 0)
        fprintf(to, "connections %u lost: %s\n", r->n_connections_lost, r->why_lost);
    fprintf(to, "latency ms  p50 %.3f  p99 %.3f  p99.9 %.3f\n",
            (double)histogram_quantile(&r->latency_us, 0.5) / 1e3,
            (double)histogram_quantile(&r->latency_us, 0.99) / 1e3,
            (double)histogram_quantile(&r->latency_us, 0.999) / 1e3);
    fprintf(to, "answers     %.0f bytes each\n", per_call(r, (double)r->bytes_received));
    fprintf(to, "generator   %.2f us a call, %.3f reads, %.3f writes\n", per_call(r, r->own_cpu_us),
            per_call(r, (double)r->n_reads), per_call(r, (double)r->n_writes));
    if (conf->n_pids > 0)
        fprintf(to, "cpu         %.2f us a call (--cpu-of)\n", per_call(r, r->pids_cpu_us));
}

void saturate_print(const struct saturate_result *r, const struct saturate_conf *conf, bool json,
                    FILE *to)
{
    if (json)
        print_json(r, conf, to);
    else
        print_text(r, conf, to);
}
