/* penstock-model: a gRPC model server with a real, small model; also the scripted bad replica. */
#include <errno.h>
#include <ev.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/xalloc.h"
#include "loadtest/model_server.h"

static const char usage[] =
    "usage: penstock-model --weights FILE [--version V] --listen ADDR [OPTION]...\n"
    "       penstock-model --weights V=FILE [--weights V=FILE]... --listen ADDR [OPTION]...\n"
    "\n"
    "Serve a network that penstock-train made: KServe v2 (ModelInfer, ModelStreamInfer, "
    "readiness,\n"
    "metadata, statistics), tensorflow.serving Predict, grpc.health.v1 and an echo service\n"
    "(/penstock.test.Echo/Unary, ClientStream, ServerStream, Bidi: raw bytes).\n"
    "\n"
    "Input  \"image\": FP32 [N, 784] or [N, 28, 28], values 0..1, raw or typed.\n"
    "Outputs \"probs\": FP32 [N, 10], and \"label\": INT64 [N].\n"
    "\n"
    "Prints `listening grpc ADDR`, then `ready`. SIGTERM: NOT_SERVING, GOAWAY, running calls end,\n"
    "exit 0; a second SIGTERM: at once.\n";

struct options {
    struct model_server_conf server;
    struct arg_list weights, faults;
    const char *listen, *name, *version, *service_dist;
    double service_ms;
    uint64_t slots, start_delay_ms, drain_ms, message_mib, max_streams, settings_delay_ms, seed;
};

/* "V=FILE", or "FILE" with --version (default 1). */
static int add_weights(struct model *m, const struct options *o, const char *text, struct err *err)
{
    const size_t len = strspn(text, "0123456789");
    int r;

    if (len == 0 || text[len] != '=')
        return model_add_version(m, o->version != NULL ? o->version : "1", text, err);

    char *number = xstrndup(text, len);
    r = model_add_version(m, number, text + len + 1, err);
    free(number);
    return r;
}

static void about(struct model *m, const char *key, const char *value)
{
    if (value == NULL || value[0] == '\0')
        return;
    m->about.items = xrealloc(m->about.items, m->about.n + 1, sizeof(*m->about.items));
    m->about.items[m->about.n++] = xasprintf("%s=%s", key, value);
}

/* What an operator asks of a replica: which share of which card, and what is emulated. */
static void describe(struct model *m, const struct options *o)
{
    char text[64];

    about(m, "replica", o->server.replica);
    about(m, "node", getenv("PENSTOCK_NODE"));
    about(m, "cuda_visible_devices", getenv("CUDA_VISIBLE_DEVICES"));
    about(m, "cuda_mps_active_thread_percentage", getenv("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"));
    about(m, "cuda_mps_pinned_device_mem_limit", getenv("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"));
    if (o->service_ms > 0.0) {
        snprintf(text, sizeof(text), "%g ms (%s), on top of the real prediction", o->service_ms,
                 o->service_dist);
        about(m, "emulated_service_time", text);
    }
    if (o->slots > 0) {
        snprintf(text, sizeof(text), "%" PRIu64, o->slots);
        about(m, "slots", text);
    }
    for (size_t i = 0; i < m->n_versions; i++) {
        const struct weights *w = &m->versions[i]->weights;

        log_info("model_loaded", "model=%s version=%s layers=%u test_accuracy=%.4f", m->name,
                 m->versions[i]->text, w->nn.shape.n_layers,
                 w->n_tested > 0 ? (double)w->n_correct / (double)w->n_tested : 0.0);
    }
    for (size_t i = 0; i < m->about.n; i++) {
        char quoted[128];

        log_info("replica_about", "msg=%s", log_quote(quoted, sizeof(quoted), m->about.items[i]));
    }
}

static int options_to_conf(struct options *o, struct err *err)
{
    struct model_server_conf *c = &o->server;

    if (o->listen == NULL || o->weights.n == 0)
        return err_set(err, -EINVAL, "--listen and --weights are needed; --help explains");
    if (strcmp(o->service_dist, "fixed") != 0 && strcmp(o->service_dist, "exp") != 0)
        return err_set(err, -EINVAL, "--service-dist %s: neither fixed nor exp", o->service_dist);
    for (size_t i = 0; i < o->faults.n; i++) {
        const int r = fault_parse(&c->faults, o->faults.items[i], err);

        if (r != 0)
            return r;
    }
    c->service_ms = o->service_ms;
    c->service_is_exponential = strcmp(o->service_dist, "exp") == 0;
    c->slots = (uint32_t)o->slots;
    c->start_delay_us = o->start_delay_ms * US_PER_MS;
    c->drain_us = o->drain_ms * US_PER_MS;
    c->max_message_bytes = (uint32_t)(o->message_mib * 1024 * 1024);
    c->max_streams = (uint32_t)o->max_streams;
    c->settings_delay_us = o->settings_delay_ms * US_PER_MS;
    c->seed = o->seed;
    return net_addr_parse(&c->listen, o->listen, err);
}

static void on_signal(struct ev_loop *loop, ev_signal *w, int revents)
{
    (void)loop;
    (void)revents;
    model_server_drain(w->data);
}

static int serve(struct model *m, const struct model_server_conf *conf)
{
    struct loop loop;
    struct err err = {0};
    ev_signal term, intr;

    loop_init(&loop, NULL);
    struct model_server *s = model_server_new(&loop, m, conf, &err);
    if (s == NULL) {
        fprintf(stderr, "penstock-model: %s\n", err.text);
        loop_fini(&loop);
        return 1;
    }
    ev_signal_init(&term, on_signal, SIGTERM);
    ev_signal_init(&intr, on_signal, SIGINT);
    term.data = intr.data = s;
    ev_signal_start(loop.ev, &term);
    ev_signal_start(loop.ev, &intr);
    loop_run(&loop);
    ev_signal_stop(loop.ev, &term);
    ev_signal_stop(loop.ev, &intr);
    model_server_free(s);
    loop_fini(&loop);
    return 0;
}

static int run(struct options *o)
{
    struct model m;
    struct err err = {0};
    int r = options_to_conf(o, &err);

    if (r != 0) {
        fprintf(stderr, "penstock-model: %s\n", err.text);
        return EXIT_USAGE;
    }
    model_init(&m, o->name);
    for (size_t i = 0; i < o->weights.n && r == 0; i++)
        r = add_weights(&m, o, o->weights.items[i], &err);
    if (r != 0) {
        fprintf(stderr, "penstock-model: %s\n", err.text);
        model_fini(&m);
        return 1;
    }
    describe(&m, o);
    r = serve(&m, &o->server);
    model_fini(&m);
    return r;
}

int main(int argc, char **argv)
{
    struct options o = {.name = "digits",
                        .service_dist = "fixed",
                        .drain_ms = 30000,
                        .message_mib = 64,
                        .seed = 1,
                        .server.replica = getenv("PENSTOCK_REPLICA")};
    const struct arg table[] = {
        {ARG_GROUP, "What is served", NULL, NULL, 0, 0, NULL},
        {ARG_STR, "listen", "ADDR", &o.listen, 0, 0, "127.0.0.1:0, [::1]:80, unix:/path"},
        {ARG_LIST, "weights", "[V=]FILE", &o.weights, 0, 0,
         "of penstock-train; repeat it for more versions"},
        {ARG_STR, "name", "NAME", &o.name, 0, 0, "of the model (digits)"},
        {ARG_STR, "version", "V", &o.version, 0, 0, "of weights given without one (1)"},
        {ARG_STR, "replica", "NAME", &o.server.replica, 0, 0,
         "sent with each answer as metadata penstock-replica\n(default: $PENSTOCK_REPLICA)"},
        {ARG_UINT, "message-mib", "MIB", &o.message_mib, 1, 4095, "longest request message (64)"},
        {ARG_GROUP, "Emulation, on top of the real prediction", NULL, NULL, 0, 0, NULL},
        {ARG_NUM, "service-ms", "MS", &o.service_ms, 0, 600000, "service time of a request (0)"},
        {ARG_STR, "service-dist", "D", &o.service_dist, 0, 0,
         "fixed, or exp: exponential with that mean (fixed)"},
        {ARG_UINT, "slots", "N", &o.slots, 0, 1e6,
         "requests in service at once; others wait, oldest first (0: no limit)"},
        {ARG_UINT, "start-delay-ms", "MS", &o.start_delay_ms, 0, 3600000,
         "not ready for so long after the start, as if loading (0)"},
        {ARG_UINT, "drain-ms", "MS", &o.drain_ms, 0, 3600000, "longest drain at SIGTERM (30000)"},
        {ARG_UINT, "seed", "N", &o.seed, 0, 1e15, "of service times (1)"},
        {ARG_GROUP, "For tests", NULL, NULL, 0, 0, NULL},
        {ARG_STR, "events", "FILE", &o.server.events, 0, 0,
         "append what was seen, JSON lines: call_start (path, stream, grpc_timeout),\n"
         "call_request (id of the first ModelInferRequest), call_finish (status),\n"
         "call_done (cancelled)"},
        {ARG_UINT, "max-streams", "N", &o.max_streams, 0, 1e6,
         "announce MAX_CONCURRENT_STREAMS (the engine's default)"},
        {ARG_UINT, "settings-delay-ms", "MS", &o.settings_delay_ms, 0, 60000,
         "our first SETTINGS come so late (0)"},
        {ARG_LIST, "fault", "WORD[=N]", &o.faults, 0, 0, fault_help()},
        {0},
    };
    int r;

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
    free(o.weights.items);
    free(o.faults.items);
    return r;
}
