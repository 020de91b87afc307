/* penstock/gateway.c - `penstock gateway`: the data plane alone, before replicas that others start.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "penstock/args.h"
#include "penstock/front.h"
#include "penstock/roster.h"
#include "penstock/verb.h"

#define FIRST_ROUND_US (1500 * US_PER_MS) /* a probe's timeout, and some */

struct gateway_verb {
    const char *config, *models, *listen, *admin;
    uint64_t workers;
    struct process_conf process;
    struct front front;
    struct roster roster;
    uint64_t n_generations;
};

static void publish(void *arg)
{
    struct gateway_verb *const v = arg;
    struct snapshot *const s = roster_snapshot(&v->roster);

    gateway_publish(v->front.gateway, s);
    snapshot_unref(s);
}

/* A folder written for `penstock up` is no error here, but somebody should know. */
static void warn_of_commands(const struct generation *g)
{
    for (size_t m = 0; m < g->n_models; m++) {
        for (size_t i = 0; i < g->models[m].n_versions; i++) {
            if (g->models[m].versions[i].n_command > 0)
                log_warn("no_endpoints",
                         "model=%s version=%s msg=\"it has a command: only penstock up starts "
                         "replicas\"",
                         g->models[m].name, g->models[m].versions[i].name);
        }
    }
}

/* The models folder, or the file's own catalogue, as the next generation; false: the problems are
 * in p. */
static bool load(struct gateway_verb *v, struct conf_problems *p)
{
    const char *const text = v->process.models[0] == '\0' ? v->process.catalogue : NULL;
    struct generation *const g = text != NULL ? generation_load_text(text, strlen(text), p)
                                              : generation_load_dir(v->process.models, p);

    if (g == NULL)
        return false;
    g->number = ++v->n_generations;
    warn_of_commands(g);
    roster_set(&v->roster, g);
    generation_unref(g);
    return true;
}

/* All or nothing: a folder with a problem changes nothing. */
static void on_hup(void *arg)
{
    struct gateway_verb *const v = arg;
    struct conf_problems problems;

    conf_problems_init(&problems);
    if (load(v, &problems)) {
        log_info("reload", "generation=%" PRIu64 " models=%zu", v->n_generations,
                 v->roster.generation->n_models);
        publish(v);
    } else {
        log_error("reload_refused", "problems=%zu generation=%" PRIu64 " msg=\"stays in force\"",
                  problems.n, v->n_generations);
        fputs(buf_cstr(&problems.text), stderr);
    }
    conf_problems_fini(&problems);
}

static int serve(struct gateway_verb *v, struct conf_problems *problems)
{
    struct err err = {.code = 0};
    int status = EXIT_FAILURE;

    front_init(&v->front,
               &(struct front_conf){
                   .verb = "gateway", .process = &v->process, .on_hup = on_hup, .arg = v});
    roster_init(&v->roster, &v->front.loop, ROSTER_PROBE_HEALTH, v->front.certs, publish, v);
    if (!load(v, problems)) {
        status = EX_CONFIG;
    } else {
        roster_wait(&v->roster, FIRST_ROUND_US);
        struct snapshot *const first = roster_snapshot(&v->roster);

        if (front_start(&v->front, first, &err) == 0)
            status = front_run(&v->front);
        else
            fprintf(stderr, "penstock gateway: %s\n", err.text);
        snapshot_unref(first);
    }
    roster_fini(&v->roster);
    front_fini(&v->front);
    return status;
}

/* Options come over the file. */
static void fill_process(struct gateway_verb *v)
{
    struct process_conf *const p = &v->process;

    if (v->models != NULL)
        p->models = v->models;
    if (v->admin != NULL)
        p->admin = v->admin;
    if (v->workers > 0)
        p->workers = (uint32_t)v->workers;
    if (v->listen != NULL) {
        p->listeners[0] =
            (struct listener_conf){.address = v->listen, .cert = "", .key = "", .client_ca = ""};
        p->n_listeners = 1;
    }
}

static int run(struct gateway_verb *v, const struct args_spec *spec)
{
    struct conf_problems problems;
    enum log_level level = LOG_INFO;
    int status = EX_CONFIG;

    conf_problems_init(&problems);
    if (v->config == NULL)
        process_conf_default(&v->process);
    if (v->config == NULL || process_conf_load(&v->process, v->config, &problems) == 0) {
        fill_process(v);
        log_level_parse(v->process.log_level, &level);
        log_set(level, 2);
        if (v->process.models[0] == '\0' && v->process.catalogue == NULL)
            status = args_usage_error(spec, "no models folder: --models DIR, or \"models\" or "
                                            "\"catalogue\" in the file of --config");
        else
            status = serve(v, &problems);
    }
    fputs(buf_cstr(&problems.text), stderr);
    conf_problems_fini(&problems);
    process_conf_fini(&v->process);
    return status;
}

int verb_gateway(int argc, char **argv)
{
    static struct gateway_verb v;
    const struct arg options[] = {
        ARG_STR("config", "FILE", &v.config, "penstock.json of this process; default: none"),
        ARG_STR("models", "DIR", &v.models, "config folder with models/*.json"),
        ARG_STR("listen", "ADDR", &v.listen, "where clients connect; default 127.0.0.1:7070"),
        ARG_STR("admin", "ADDR", &v.admin, "admin pages; default 127.0.0.1:7080, \"\": none"),
        ARG_UINT("workers", "N", &v.workers, 0, 256, "event loops; default one per core"),
        ARG_END,
    };
    const struct args_spec spec = {
        .verb = "gateway",
        .positional = "",
        .about = "Routes, balances and answers for the replicas that models/*.json names as "
                 "endpoints; starts none.\nSIGHUP reads the models folder again: a folder with a "
                 "problem changes nothing.",
        .options = options,
    };
    const int parsed = args_parse(&spec, &argc, argv);

    return parsed != ARGS_OK ? args_exit(parsed) : run(&v, &spec);
}
