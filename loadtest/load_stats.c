#include "loadtest/load_stats.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/json_out.h"
#include "base/xalloc.h"

static const struct {
    const char *name;
    double ratio;
} quantiles[] = {{"p50", 0.5}, {"p90", 0.9}, {"p99", 0.99}, {"p99_9", 0.999}};

void load_stats_init(struct load_stats *s)
{
    memset(s, 0, sizeof(*s));
    s->first_us = UINT64_MAX;
    histogram_init(&s->latency_us);
    histogram_init(&s->first_message_us);
    histogram_init(&s->late_us);
}

void load_stats_fini(struct load_stats *s)
{
    free(s->versions.rows);
    free(s->replicas.rows);
    s->versions = s->replicas = (struct load_names){0};
}

static struct load_name *find_row(struct load_names *names, const char *name, size_t len)
{
    for (size_t i = 0; i < names->n; i++) {
        if (strlen(names->rows[i].name) == len && memcmp(names->rows[i].name, name, len) == 0)
            return &names->rows[i];
    }
    return NULL;
}

struct load_name *load_names_find(struct load_names *names, const char *name, size_t len)
{
    static const char others[] = "(others)";
    struct load_name *row = find_row(names, name, len);

    if (row == NULL && (names->n >= LOAD_MAX_NAMES || len >= sizeof(names->rows[0].name))) {
        name = others;
        len = sizeof(others) - 1;
        row = find_row(names, name, len);
    }
    if (row != NULL)
        return row;
    if (names->rows == NULL)
        names->rows = xcalloc(LOAD_MAX_NAMES + 1, sizeof(*names->rows)); /* and the others' */
    memcpy(names->rows[names->n].name, name, len);
    return &names->rows[names->n++];
}

void load_stats_add_error(struct load_stats *s, int status, const char *text)
{
    char cut[sizeof(s->errors[0].text)];

    snprintf(cut, sizeof(cut), "%s", text);
    for (size_t i = 0; i < s->n_errors; i++) {
        if (s->errors[i].status == status && strcmp(s->errors[i].text, cut) == 0) {
            s->errors[i].n++;
            return;
        }
    }
    if (s->n_errors == LOAD_MAX_ERRORS)
        return; /* by_status counts all of them */
    s->errors[s->n_errors].status = status;
    s->errors[s->n_errors].n = 1;
    memcpy(s->errors[s->n_errors].text, cut, sizeof(cut));
    s->n_errors++;
}

static void merge_names(struct load_names *into, const struct load_names *from)
{
    for (size_t i = 0; i < from->n; i++) {
        const struct load_name *f = &from->rows[i];
        struct load_name *t = load_names_find(into, f->name, strlen(f->name));

        t->n_calls += f->n_calls;
        t->n_images += f->n_images;
        t->n_correct += f->n_correct;
        if (t->first_us == 0 || f->first_us < t->first_us)
            t->first_us = f->first_us;
        if (f->last_us > t->last_us)
            t->last_us = f->last_us;
    }
}

void load_stats_merge(struct load_stats *into, const struct load_stats *from)
{
    histogram_merge(&into->latency_us, &from->latency_us);
    histogram_merge(&into->first_message_us, &from->first_message_us);
    histogram_merge(&into->late_us, &from->late_us);
    into->n_started += from->n_started;
    into->n_ok += from->n_ok;
    into->n_failed += from->n_failed;
    into->n_wrong += from->n_wrong;
    into->n_unfinished += from->n_unfinished;
    into->n_messages += from->n_messages;
    into->bytes_sent += from->bytes_sent;
    into->bytes_received += from->bytes_received;
    if (from->first_us < into->first_us)
        into->first_us = from->first_us;
    if (from->last_us > into->last_us)
        into->last_us = from->last_us;
    for (int i = 0; i < GRPC_N_STATUS; i++)
        into->by_status[i] += from->by_status[i];
    merge_names(&into->versions, &from->versions);
    merge_names(&into->replicas, &from->replicas);
    for (size_t i = 0; i < from->n_errors; i++) {
        const uint64_t n = from->errors[i].n;

        load_stats_add_error(into, from->errors[i].status, from->errors[i].text);
        for (size_t k = 0; k < into->n_errors; k++) {
            if (into->errors[k].status == from->errors[i].status &&
                strcmp(into->errors[k].text, from->errors[i].text) == 0)
                into->errors[k].n += n - 1;
        }
    }
}

/* --- text --- */

static void print_latency(FILE *to, const char *what, const struct histogram *h)
{
    if (h->count == 0)
        return;
    fprintf(to, "%-9s mean %.3f ms", what, (double)h->sum / (double)h->count / 1e3);
    for (size_t i = 0; i < ARRAY_LEN(quantiles); i++)
        fprintf(to, "  %s %.3f", quantiles[i].name,
                (double)histogram_quantile(h, quantiles[i].ratio) / 1e3);
    fprintf(to, "  max %.3f\n", (double)h->max / 1e3);
}

static void print_names(FILE *to, const char *what, const struct load_names *names,
                        uint64_t n_answers)
{
    for (size_t i = 0; i < names->n; i++) {
        const struct load_name *r = &names->rows[i];

        fprintf(to, "%-9s %s: %" PRIu64 " calls (%.2f %%)", what, r->name, r->n_calls,
                100.0 * (double)r->n_calls / (double)(n_answers > 0 ? n_answers : 1));
        if (r->n_images > 0)
            fprintf(to, ", %.2f %% of %" PRIu64 " images right",
                    100.0 * (double)r->n_correct / (double)r->n_images, r->n_images);
        fprintf(to, "\n");
    }
}

static void sum_accuracy(const struct load_stats *s, uint64_t *ret_images, uint64_t *ret_correct)
{
    *ret_images = *ret_correct = 0;
    for (size_t i = 0; i < s->versions.n; i++) {
        *ret_images += s->versions.rows[i].n_images;
        *ret_correct += s->versions.rows[i].n_correct;
    }
}

void load_stats_print(const struct load_stats *s, const struct load_summary *sum, FILE *to)
{
    uint64_t n_images, n_correct;

    fprintf(to, "calls     %" PRIu64 " started, %" PRIu64 " ok, %" PRIu64 " failed", s->n_started,
            s->n_ok, s->n_failed);
    if (s->n_wrong > 0)
        fprintf(to, ", %" PRIu64 " wrong answers", s->n_wrong);
    if (s->n_unfinished > 0)
        fprintf(to, ", %" PRIu64 " unfinished", s->n_unfinished);
    fprintf(to, " in %.2f s: %.1f ok/s", sum->elapsed_s, (double)s->n_ok / sum->elapsed_s);
    if (sum->is_open)
        fprintf(to, " (%.1f/s asked)\n", sum->rate);
    else
        fprintf(to, " (%" PRIu64 " at a time)\n", sum->concurrency);
    print_latency(to, "latency", &s->latency_us);
    print_latency(to, "1st msg", &s->first_message_us);
    if (sum->is_open)
        print_latency(to, "lateness", &s->late_us);
    for (int i = 0; i < GRPC_N_STATUS; i++) {
        if (s->by_status[i] > 0)
            fprintf(to, "status    %s: %" PRIu64 "\n", grpc_status_name((enum grpc_status)i),
                    s->by_status[i]);
    }
    print_names(to, "version", &s->versions, s->n_ok);
    print_names(to, "replica", &s->replicas, s->n_ok);
    sum_accuracy(s, &n_images, &n_correct);
    if (n_images > 0)
        fprintf(to, "accuracy  %.2f %% (%" PRIu64 " of %" PRIu64 " images)\n",
                100.0 * (double)n_correct / (double)n_images, n_correct, n_images);
    for (size_t i = 0; i < s->n_errors; i++)
        fprintf(to, "error     %s x %" PRIu64 ": %s\n",
                grpc_status_name((enum grpc_status)s->errors[i].status), s->errors[i].n,
                s->errors[i].text);
}

/* --- JSON --- */

static void json_latency(struct json_out *j, const char *name, const struct histogram *h)
{
    json_out_object(j, name);
    json_out_uint(j, "count", h->count);
    if (h->count > 0) {
        json_out_double(j, "mean", (double)h->sum / (double)h->count / 1e3);
        json_out_double(j, "min", (double)h->min / 1e3);
        for (size_t i = 0; i < ARRAY_LEN(quantiles); i++)
            json_out_double(j, quantiles[i].name,
                            (double)histogram_quantile(h, quantiles[i].ratio) / 1e3);
        json_out_double(j, "max", (double)h->max / 1e3);
    }
    json_out_end_object(j);
}

static void json_names(struct json_out *j, const char *name, const struct load_names *names,
                       uint64_t n_answers)
{
    json_out_object(j, name);
    for (size_t i = 0; i < names->n; i++) {
        const struct load_name *r = &names->rows[i];

        json_out_object(j, r->name);
        json_out_uint(j, "calls", r->n_calls);
        json_out_double(j, "share", (double)r->n_calls / (double)(n_answers > 0 ? n_answers : 1));
        json_out_uint(j, "first_us", r->first_us);
        json_out_uint(j, "last_us", r->last_us);
        if (r->n_images > 0) {
            json_out_uint(j, "images", r->n_images);
            json_out_uint(j, "correct", r->n_correct);
            json_out_double(j, "accuracy", (double)r->n_correct / (double)r->n_images);
        }
        json_out_end_object(j);
    }
    json_out_end_object(j);
}

static void json_errors(struct json_out *j, const struct load_stats *s)
{
    json_out_array(j, "errors");
    for (size_t i = 0; i < s->n_errors; i++) {
        json_out_object(j, NULL);
        json_out_str(j, "status", grpc_status_name((enum grpc_status)s->errors[i].status));
        json_out_str(j, "message", s->errors[i].text);
        json_out_uint(j, "count", s->errors[i].n);
        json_out_end_object(j);
    }
    json_out_end_array(j);
}

void load_stats_print_json(const struct load_stats *s, const struct load_summary *sum, FILE *to)
{
    struct buf b;
    struct json_out j;
    uint64_t n_images, n_correct;

    buf_init(&b, 4u << 20);
    json_out_init(&j, &b);
    json_out_object(&j, NULL);
    json_out_str(&j, "to", sum->to);
    json_out_str(&j, "method", sum->path);
    json_out_str(&j, "loop", sum->is_open ? "open" : "closed");
    if (sum->is_open)
        json_out_double(&j, "rate_asked", sum->rate);
    else
        json_out_uint(&j, "concurrency", sum->concurrency);
    json_out_uint(&j, "started_at_us", sum->started_at_us);
    json_out_double(&j, "elapsed_s", sum->elapsed_s);
    json_out_uint(&j, "started", s->n_started);
    json_out_uint(&j, "ok", s->n_ok);
    json_out_uint(&j, "failed", s->n_failed);
    json_out_uint(&j, "wrong", s->n_wrong);
    json_out_uint(&j, "unfinished", s->n_unfinished);
    json_out_double(&j, "rate_ok", (double)s->n_ok / sum->elapsed_s);
    json_out_uint(&j, "messages", s->n_messages);
    json_out_uint(&j, "bytes_sent", s->bytes_sent);
    json_out_uint(&j, "bytes_received", s->bytes_received);
    json_latency(&j, "latency_ms", &s->latency_us);
    if (s->first_message_us.count > 0)
        json_latency(&j, "first_message_ms", &s->first_message_us);
    json_latency(&j, "lateness_ms", &s->late_us);
    json_out_object(&j, "status");
    for (int i = 0; i < GRPC_N_STATUS; i++) {
        if (s->by_status[i] > 0)
            json_out_uint(&j, grpc_status_name((enum grpc_status)i), s->by_status[i]);
    }
    json_out_end_object(&j);
    json_names(&j, "versions", &s->versions, s->n_ok);
    json_names(&j, "replicas", &s->replicas, s->n_ok);
    sum_accuracy(s, &n_images, &n_correct);
    if (n_images > 0)
        json_out_double(&j, "accuracy", (double)n_correct / (double)n_images);
    json_errors(&j, s);
    json_out_end_object(&j);
    fprintf(to, "%s\n", buf_cstr(&b));
    buf_fini(&b);
}
