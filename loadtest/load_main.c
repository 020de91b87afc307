/* penstock-load: gRPC calls at a rate or at a concurrency, and what became of them. */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/xalloc.h"
#include "loadtest/args.h"
#include "loadtest/load_gen.h"
#include "loadtest/saturate.h"
#include "net/tls.h"

static const char usage[] =
    "usage: penstock-load --to ADDR WHAT [HOW] [OPTION]...\n"
    "\n"
    "Send gRPC calls and report latency, statuses, versions and replicas. With --rate or\n"
    "--rate-file the loop is open: calls start at their moment whatever became of the others, and\n"
    "latency counts from that moment. Else it is closed: --concurrency calls at a time.\n"
    "\n"
    "    penstock-load --to 127.0.0.1:8080 --model digits --rate 2000 --duration 60\n"
    "    penstock-load --to 127.0.0.1:8080 --model digits --check-accuracy --calls 10000\n"
    "    penstock-load --to 127.0.0.1:8080 --echo 100 --stream --concurrency 64\n"
    "    penstock-load --to 127.0.0.1:8080 --method /a.B/C --message request.bin\n"
    "    penstock-load --to 127.0.0.1:8080 --echo 128 --connections 50 --saturate 20\n"
    "\n"
    "Exit status: 0 all calls were OK and answered rightly; 1 some were not (or no connection);\n"
    "64 usage.\n";

static _Atomic bool stop_asked;

static void on_stop_signal(int sig)
{
    (void)sig;
    atomic_store(&stop_asked, true);
}

struct options {
    struct load_payload_conf payload;
    struct arg_list metadata, cpu_of;
    const char *to, *protocol, *rate_file, *arrival, *authority;
    const char *ca, *cert, *key, *tls_host;
    double rate, duration_s;
    uint64_t echo_bytes, batch, images, concurrency, threads, connections, streams;
    uint64_t saturate, warm_up_ms, calls_each, hold_ms;
    uint64_t messages_per_stream, calls, deadline_ms, drain_ms, connect_ms, max_in_flight, seed;
    bool tls, insecure, stream, check_accuracy, request_ids, allow_fail, json;
};

struct worker {
    pthread_t thread;
    struct load_gen *gen;
    int result;
    struct err err;
};

static void *worker_main(void *arg)
{
    struct worker *w = arg;

    w->result = load_gen_run(w->gen, &w->err);
    return NULL;
}

/* --- options to configuration --- */

static int payload_conf(struct options *o, struct err *err)
{
    struct load_payload_conf *p = &o->payload;
    const int n_kinds = (p->message != NULL) + (p->model != NULL) + (o->echo_bytes != UINT64_MAX);

    if (n_kinds != 1)
        return err_set(err, -EINVAL, "give one of --model, --echo and --message");
    p->is_stream = o->stream || o->streams > 0;
    if (p->message != NULL) {
        p->kind = LOAD_RAW;
    } else if (p->model == NULL) {
        p->kind = LOAD_ECHO;
        p->echo_bytes = (uint32_t)o->echo_bytes;
    } else if (strcmp(o->protocol, "kserve") == 0) {
        p->kind = LOAD_KSERVE;
    } else if (strcmp(o->protocol, "tf") == 0) {
        p->kind = LOAD_TF;
    } else {
        return err_set(err, -EINVAL, "--protocol %s: neither kserve nor tf", o->protocol);
    }
    p->version_is_label =
        p->version != NULL && p->version[strspn(p->version, "0123456789")] != '\0';
    p->batch = (uint32_t)o->batch;
    if (o->images == 0) /* preparing all takes a moment: only where accuracy is the question */
        o->images = o->check_accuracy ? 10000 : o->batch > 256 ? o->batch : 256;
    p->n_images = (uint32_t)o->images;
    if (getrandom(&p->run, sizeof(p->run), 0) != (ssize_t)sizeof(p->run))
        return err_set(err, -errno, "getrandom: %s", strerror(errno));
    return 0;
}

static int parse_metadata(const struct arg_list *list, struct h2_field *fields, struct err *err)
{
    for (size_t i = 0; i < list->n; i++) {
        const char *pair = list->items[i];
        const size_t len = args_name_len(pair);

        if (len == 0 || !grpc_metadata_name_is_ok(pair, len) ||
            !grpc_metadata_value_is_ok(pair + len + 1, strlen(pair + len + 1)))
            return err_set(err, -EINVAL,
                           "--metadata %s: not NAME=VALUE with a name of [0-9a-z_.-] and a "
                           "printable value",
                           pair);
        fields[i] = (struct h2_field){.name = pair,
                                      .name_len = (uint32_t)len,
                                      .value = pair + len + 1,
                                      .value_len = (uint32_t)strlen(pair + len + 1)};
    }
    return 0;
}

/* NULL with err.code 0: cleartext. */
static struct tls_ctx *make_tls(const struct options *o, struct err *err)
{
    const struct tls_conf conf = {
        .cert_file = o->cert, .key_file = o->key, .ca_file = o->ca, .no_verify = o->insecure};

    if ((o->cert == NULL) != (o->key == NULL)) {
        err_set(err, -EINVAL, "--cert and --key: one without the other");
        return NULL;
    }
    if (!o->tls && o->ca == NULL && o->cert == NULL && !o->insecure)
        return NULL;
    return tls_ctx_new(&conf, err);
}

static int load_conf_of(const struct options *o, struct load_conf *c, struct err *err)
{
    int r = net_addr_parse(&c->to, o->to, err);

    if (r != 0)
        return r;
    if (strcmp(o->arrival, "even") != 0 && strcmp(o->arrival, "poisson") != 0)
        return err_set(err, -EINVAL, "--arrival %s: neither even nor poisson", o->arrival);
    if (o->rate > 0.0 && o->rate_file != NULL)
        return err_set(err, -EINVAL, "--rate and --rate-file: one of them only");
    if (o->rate_file != NULL)
        r = load_schedule_read(&c->schedule, o->rate_file, err);
    else if (o->rate > 0.0)
        load_schedule_constant(&c->schedule, o->rate);
    if (r != 0)
        return r;
    c->is_open = c->schedule.n_steps > 0;
    c->is_poisson = strcmp(o->arrival, "poisson") == 0;
    c->n_threads = (uint32_t)o->threads;
    c->n_connections = (uint32_t)(o->connections < o->threads ? o->threads : o->connections);
    c->concurrency = (uint32_t)o->concurrency;
    c->n_streams = (uint32_t)o->streams;
    if (o->stream && o->streams == 0)
        c->n_streams = c->n_connections;
    c->messages_per_stream = o->messages_per_stream;
    c->max_calls = o->calls > 0 ? o->calls : UINT64_MAX;
    c->duration_us = o->duration_s > 0.0 ? (uint64_t)(o->duration_s * 1e6) : UINT64_MAX;
    if (c->schedule.ends && c->duration_us == UINT64_MAX)
        c->duration_us = (uint64_t)(c->schedule.steps[c->schedule.n_steps - 1].from_s * 1e6);
    if (c->max_calls == UINT64_MAX && c->duration_us == UINT64_MAX)
        c->duration_us = 10 * US_PER_S;
    c->deadline_us = o->deadline_ms * US_PER_MS;
    c->drain_us = o->drain_ms * US_PER_MS;
    c->connect_us = o->connect_ms * US_PER_MS;
    c->max_in_flight = (uint32_t)o->max_in_flight;
    c->has_request_ids = o->request_ids;
    c->seed = o->seed;
    c->stop = &stop_asked;
    grpc_channel_conf_default(&c->channel);
    c->channel.authority = o->authority;
    c->channel.user_agent = "penstock-load/0.1.0";
    c->channel.pool.conn.tls = make_tls(o, err);
    c->channel.pool.conn.tls_host = o->tls_host;
    return err->code;
}

/* --- run --- */

static void show_progress(struct worker *workers, uint32_t n, double elapsed_s, uint64_t *last_ok)
{
    uint64_t started = 0, ok = 0, failed = 0;

    for (uint32_t i = 0; i < n; i++) {
        struct load_stats *s = load_gen_stats(workers[i].gen);

        started += atomic_load_explicit(&s->n_started, memory_order_relaxed);
        ok += atomic_load_explicit(&s->n_ok, memory_order_relaxed);
        failed += atomic_load_explicit(&s->n_failed, memory_order_relaxed);
    }
    fprintf(stderr,
            "\r\033[K%5.0f s  %" PRIu64 " ok/s  %" PRIu64 " ok  %" PRIu64 " failed  %" PRIu64
            " in flight",
            elapsed_s, ok - *last_ok, ok, failed, started - ok - failed);
    fflush(stderr);
    *last_ok = ok;
}

/* Wait for the threads; show progress once a second where somebody looks. */
static void wait_for_workers(struct worker *workers, uint32_t n, uint64_t start_us)
{
    const bool is_terminal = isatty(STDERR_FILENO) != 0;
    uint64_t last_ok = 0;

    for (uint32_t i = 0; i < n;) {
        struct timespec until;

        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_sec++;
        if (pthread_timedjoin_np(workers[i].thread, NULL, &until) == 0)
            i++;
        else if (is_terminal)
            show_progress(workers, n, (double)(clock_mono_us() - start_us) / 1e6, &last_ok);
    }
    if (is_terminal)
        fprintf(stderr, "\r\033[K");
}

static double average_rate(const struct load_conf *c, double elapsed_s)
{
    const double end_s = c->duration_us == UINT64_MAX ? elapsed_s : (double)c->duration_us / 1e6;
    double calls = 0.0;

    for (size_t i = 0; i < c->schedule.n_steps; i++) {
        const double from = fmin(c->schedule.steps[i].from_s, end_s);
        const double to =
            i + 1 < c->schedule.n_steps ? fmin(c->schedule.steps[i + 1].from_s, end_s) : end_s;

        calls += (to - from) * c->schedule.steps[i].rate;
    }
    return end_s > 0.0 ? calls / end_s : 0.0;
}

static int generate(const struct options *o, const struct load_conf *c)
{
    struct worker *workers = xcalloc(c->n_threads, sizeof(*workers));
    struct load_stats all;
    const uint64_t start_us = clock_mono_us();
    struct load_summary sum = {.to = c->to.text,
                               .path = c->payload->path,
                               .is_open = c->is_open,
                               .concurrency = c->concurrency,
                               .started_at_us = clock_wall_us()};
    bool ok = true;

    for (uint32_t i = 0; i < c->n_threads; i++) {
        workers[i].gen = load_gen_new(c, i);
        check(pthread_create(&workers[i].thread, NULL, worker_main, &workers[i]) == 0);
    }
    wait_for_workers(workers, c->n_threads, start_us);
    load_stats_init(&all);
    for (uint32_t i = 0; i < c->n_threads; i++) {
        load_stats_merge(&all, load_gen_stats(workers[i].gen));
        if (workers[i].result != 0) {
            fprintf(stderr, "penstock-load: %s\n", workers[i].err.text);
            ok = false;
        }
        load_gen_free(workers[i].gen);
    }
    sum.elapsed_s = all.last_us > all.first_us ? (double)(all.last_us - all.first_us) / 1e6 : 1e-6;
    sum.rate = average_rate(c, sum.elapsed_s);
    if (o->json)
        load_stats_print_json(&all, &sum, stdout);
    else
        load_stats_print(&all, &sum, stdout);
    ok = ok && (o->allow_fail || (all.n_failed == 0 && all.n_unfinished == 0));
    load_stats_fini(&all);
    free(workers);
    return ok ? 0 : 1;
}

/* --- --saturate: its own, cheaper generator --- */

#define SATURATE_FIELDS 8

static int parse_pids(const struct arg_list *list, pid_t *pids, struct err *err)
{
    for (size_t i = 0; i < list->n; i++) {
        char *end;
        const long pid = strtol(list->items[i], &end, 10);

        if (*end != '\0' || pid <= 0 || pid > INT32_MAX)
            return err_set(err, -EINVAL, "--cpu-of %s: not a process id", list->items[i]);
        pids[i] = (pid_t)pid;
    }
    return 0;
}

static struct h2_field named_field(const char *name, const char *value)
{
    return (struct h2_field){.name = name,
                             .name_len = (uint32_t)strlen(name),
                             .value = value,
                             .value_len = (uint32_t)strlen(value)};
}

/* fields: room for SATURATE_FIELDS and the metadata. */
static void saturate_fields(const struct options *o, const struct load_conf *c,
                            struct h2_field *fields, char timeout[GRPC_TIMEOUT_SIZE], size_t *ret_n)
{
    size_t n = 0;

    fields[n++] = named_field(":method", "POST");
    fields[n++] = named_field(":scheme", c->channel.pool.conn.tls != NULL ? "https" : "http");
    fields[n++] = named_field(":path", c->payload->path);
    fields[n++] = named_field(":authority", o->authority != NULL ? o->authority : c->to.text);
    fields[n++] = named_field("te", "trailers");
    fields[n++] = named_field("content-type", "application/grpc");
    fields[n++] = named_field("user-agent", c->channel.user_agent);
    if (c->deadline_us > 0) {
        grpc_timeout_format(timeout, c->deadline_us);
        fields[n++] = named_field("grpc-timeout", timeout);
    }
    for (size_t i = 0; i < c->n_metadata; i++)
        fields[n++] = c->metadata[i];
    *ret_n = n;
}

#define CALLS_EACH_US (120 * US_PER_S) /* --calls-each without --duration ends by then */

/* As many connections as the system lets us have. */
static void raise_open_files(void)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
        limit.rlim_cur = limit.rlim_max;
        (void)setrlimit(RLIMIT_NOFILE, &limit);
    }
}

static int saturate(const struct options *o, const struct load_conf *c)
{
    struct h2_field *fields = xcalloc(SATURATE_FIELDS + c->n_metadata, sizeof(*fields));
    pid_t *pids = xcalloc(o->cpu_of.n + 1, sizeof(*pids));
    char timeout[GRPC_TIMEOUT_SIZE], host[128] = "";
    struct saturate_conf conf = {
        .to = c->to,
        .fields = fields,
        .has_request_ids = o->request_ids,
        .n_connections = (uint32_t)o->connections,
        .n_streams = (uint32_t)o->saturate,
        .calls_each = o->calls_each,
        .hold_us = o->hold_ms * US_PER_MS,
        .max_calls = o->calls_each > 0 ? o->calls_each * o->connections : c->max_calls,
        .duration_us = o->calls_each > 0 && o->duration_s <= 0.0 ? CALLS_EACH_US : c->duration_us,
        .warm_up_us = o->calls > 0 || o->calls_each > 0 ? 0 : o->warm_up_ms * US_PER_MS,
        .tls = c->channel.pool.conn.tls,
        .tls_host = host,
        .pids = pids,
        .n_pids = o->cpu_of.n,
        .stop = &stop_asked};
    struct saturate_result result;
    struct buf message;
    struct err err = {0};
    int status = 1;

    if (o->tls_host != NULL)
        snprintf(host, sizeof(host), "%s", o->tls_host);
    else
        net_addr_host(&c->to, host, sizeof(host));
    raise_open_files();
    buf_init(&message, LOAD_MAX_MESSAGE_BYTES + GRPC_PREFIX_BYTES);
    buf_reserve(&message, GRPC_PREFIX_BYTES);
    message.len = GRPC_PREFIX_BYTES;
    load_payload_build(c->payload, 0, 0, &message);
    grpc_prefix_write(message.data, false, (uint32_t)(message.len - GRPC_PREFIX_BYTES));
    conf.message = message.data;
    conf.message_bytes = message.len;
    saturate_fields(o, c, fields, timeout, &conf.n_fields);
    if (parse_pids(&o->cpu_of, pids, &err) == 0 && saturate_run(&conf, &result, &err) == 0) {
        saturate_print(&result, &conf, o->json, stdout);
        status = o->allow_fail || saturate_is_good(&result) ? 0 : 1;
    }
    if (err.code != 0)
        fprintf(stderr, "penstock-load: %s\n", err.text);
    buf_fini(&message);
    free(fields);
    free(pids);
    return err.code == -EINVAL ? EXIT_USAGE : status;
}

static int run(struct options *o)
{
    struct load_conf conf = {0};
    struct load_payload payload = {0};
    struct h2_field *fields = xcalloc(o->metadata.n + 1, sizeof(*fields));
    struct err err = {0};
    int status = EXIT_USAGE;

    if (o->to == NULL)
        err_set(&err, -EINVAL, "--to ADDR is missing; --help explains");
    else if (payload_conf(o, &err) == 0 && parse_metadata(&o->metadata, fields, &err) == 0 &&
             load_conf_of(o, &conf, &err) == 0 &&
             load_payload_init(&payload, &o->payload, &err) == 0) {
        conf.payload = &payload;
        conf.metadata = fields;
        conf.n_metadata = o->metadata.n;
        status = o->saturate > 0 ? saturate(o, &conf) : generate(o, &conf);
    }
    if (status == EXIT_USAGE)
        fprintf(stderr, "penstock-load: %s\n", err.text);
    load_payload_fini(&payload);
    load_schedule_fini(&conf.schedule);
    tls_ctx_unref(conf.channel.pool.conn.tls);
    free(fields);
    return status;
}

int main(int argc, char **argv)
{
    const struct sigaction stop = {.sa_handler = on_stop_signal};
    struct options o = {.protocol = "kserve",
                        .arrival = "even",
                        .echo_bytes = UINT64_MAX,
                        .batch = 1,
                        .concurrency = 1,
                        .threads = 1,
                        .connections = 1,
                        .drain_ms = 30000,
                        .connect_ms = 5000,
                        .max_in_flight = 10000,
                        .seed = 1,
                        .warm_up_ms = 500};
    const struct arg table[] = {
        {ARG_GROUP, "What is sent", NULL, NULL, 0, 0, NULL},
        {ARG_STR, "to", "ADDR", &o.to, 0, 0, "127.0.0.1:8080, [::1]:80, unix:/path"},
        {ARG_STR, "model", "NAME", &o.payload.model, 0, 0,
         "Fashion-MNIST test images to this model; answers are held against the\n"
         "request's id and the true labels"},
        {ARG_STR, "version", "V", &o.payload.version, 0, 0, "of the model, or a label of it"},
        {ARG_STR, "protocol", "P", &o.protocol, 0, 0, "kserve or tf (kserve)"},
        {ARG_UINT, "batch", "N", &o.batch, 1, 10000, "images of one request (1)"},
        {ARG_UINT, "images", "N", &o.images, 1, 10000,
         "of the test set, in turn (256; all with --check-accuracy)"},
        {ARG_FLAG, "typed", NULL, &o.payload.is_typed, 0, 0,
         "tensors as repeated floats instead of raw bytes"},
        {ARG_FLAG, "check-accuracy", NULL, &o.check_accuracy, 0, 0,
         "use all 10,000 images: the report's accuracy is the model's"},
        {ARG_STR, "data", "DIR", &o.payload.data, 0, 0, "Fashion-MNIST's files"},
        {ARG_UINT, "echo", "BYTES", &o.echo_bytes, 0, 1u << 29,
         "numbered bytes that must come back, to /penstock.test.Echo"},
        {ARG_STR, "message", "FILE", &o.payload.message, 0, 0, "one protobuf message, as bytes"},
        {ARG_STR, "method", "PATH", &o.payload.path, 0, 0, "/package.Service/Method"},
        {ARG_STR, "expect", "FILE", &o.payload.expect, 0, 0,
         "with --message: what the answer must be, or \"same\""},
        {ARG_LIST, "metadata", "K=V", &o.metadata, 0, 0, "with each call; may be repeated"},
        {ARG_FLAG, "request-ids", NULL, &o.request_ids, 0, 0,
         "metadata x-request-id, another for each call and run"},
        {ARG_STR, "authority", "NAME", &o.authority, 0, 0, "of the calls (ADDR)"},
        {ARG_UINT, "deadline-ms", "MS", &o.deadline_ms, 0, 86400000, "grpc-timeout (0: none)"},
        {ARG_GROUP, "TLS (each of these turns it on)", NULL, NULL, 0, 0, NULL},
        {ARG_FLAG, "tls", NULL, &o.tls, 0, 0, "with the system's certificate authorities"},
        {ARG_STR, "ca", "FILE", &o.ca, 0, 0, "trust these instead, PEM"},
        {ARG_FLAG, "insecure", NULL, &o.insecure, 0, 0, "take any certificate"},
        {ARG_STR, "cert", "FILE", &o.cert, 0, 0, "our own certificate (mTLS), PEM"},
        {ARG_STR, "key", "FILE", &o.key, 0, 0, "and its key, PEM"},
        {ARG_STR, "tls-host", "NAME", &o.tls_host, 0, 0,
         "what the server's certificate must name (host of ADDR)"},
        {ARG_GROUP, "How", NULL, NULL, 0, 0, NULL},
        {ARG_NUM, "rate", "R", &o.rate, 0.001, LOAD_MAX_RATE, "open loop, calls per second"},
        {ARG_STR, "rate-file", "FILE", &o.rate_file, 0, 0,
         "open loop after a trace: lines \"SECONDS RATE\", rate 0 at last ends it"},
        {ARG_STR, "arrival", "A", &o.arrival, 0, 0, "of an open loop: even or poisson (even)"},
        {ARG_UINT, "concurrency", "N", &o.concurrency, 1, 1000000, "closed loop (1)"},
        {ARG_FLAG, "stream", NULL, &o.stream, 0, 0,
         "messages over bidirectional streams, one per connection, in place of calls"},
        {ARG_UINT, "streams", "N", &o.streams, 1, 100000, "the same with so many streams"},
        {ARG_UINT, "messages-per-stream", "N", &o.messages_per_stream, 0, 1e15,
         "then the stream is closed and another opened (0: no limit)"},
        {ARG_UINT, "connections", "N", &o.connections, 1, 100000, "(1, or one per thread)"},
        {ARG_UINT, "threads", "N", &o.threads, 1, 256, "(1: enough for some 100,000 calls/s)"},
        {ARG_NUM, "duration", "S", &o.duration_s, 0.001, 1e7, "seconds (10 without --calls)"},
        {ARG_UINT, "calls", "N", &o.calls, 1, 1e15, "stop after so many"},
        {ARG_UINT, "max-in-flight", "N", &o.max_in_flight, 1, 1000000,
         "open loop, per thread: later calls wait, and their latency counts it (10000)"},
        {ARG_UINT, "drain-ms", "MS", &o.drain_ms, 0, 86400000,
         "wait at the end for calls that run (30000)"},
        {ARG_UINT, "connect-ms", "MS", &o.connect_ms, 0, 86400000,
         "wait at the start for the connections (5000)"},
        {ARG_UINT, "seed", "N", &o.seed, 0, 1e15, "of poisson arrivals (1)"},
        {ARG_GROUP, "Saturate: the same call again and again, at about 1 us of our own time", NULL,
         NULL, 0, 0, NULL},
        {ARG_UINT, "saturate", "M", &o.saturate, 1, 10000,
         "M calls in flight on each of --connections; one thread"},
        {ARG_UINT, "calls-each", "N", &o.calls_each, 0, 1e9,
         "N calls on each connection, then none (0: no such limit)"},
        {ARG_UINT, "hold-ms", "MS", &o.hold_ms, 0, 86400000,
         "keep the connections open after the last call; says \"holding N connections\""},
        {ARG_UINT, "warm-up-ms", "MS", &o.warm_up_ms, 0, 60000,
         "before what is counted; none with --calls (500)"},
        {ARG_LIST, "cpu-of", "PID", &o.cpu_of, 0, 0,
         "report CPU a call of this process too; may be repeated"},
        {ARG_GROUP, "Report", NULL, NULL, 0, 0, NULL},
        {ARG_FLAG, "json", NULL, &o.json, 0, 0, "one JSON object instead of text"},
        {ARG_FLAG, "allow-fail", NULL, &o.allow_fail, 0, 0, "exit 0 although calls failed"},
        {0},
    };
    int r;

    sigaction(SIGINT, &stop, NULL);
    sigaction(SIGTERM, &stop, NULL);
    switch (args_parse(table, usage, argc, argv)) {
    case ARGS_HELP:
        r = 0;
        break;
    case ARGS_WRONG:
        r = EXIT_USAGE;
        break;
    default:
        r = run(&o);
        break;
    }
    free(o.metadata.items);
    free(o.cpu_of.items);
    return r;
}
