/* penstock/up.c - `penstock up`: gateway, controller and local driver in one process. */
#include <stdio.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "conf/rules.h"
#include "penstock/args.h"
#include "penstock/controller.h"
#include "penstock/front.h"
#include "penstock/verb.h"

#define REPLICAS_END_US (15 * US_PER_S) /* SIGTERM, SIGKILL after 10 s, and time to see it */

struct up {
    struct front front;
    struct process_conf process;
    struct controller *controller;
    struct timer limit; /* of the replicas' end */
};

/* ---- the end: clients first, then the replicas ---- */

static void on_stopped(void *arg)
{
    struct up *const up = arg;

    front_end(&up->front);
}

static void on_limit(struct timer *t)
{
    struct up *const up = container_of(t, struct up, limit);

    log_warn("end_limit", "msg=\"replicas did not end in time: they are killed\"");
    front_end(&up->front);
}

static void on_drained(void *arg)
{
    struct up *const up = arg;

    timer_start(&up->front.loop, &up->limit, up->front.loop.now_us + REPLICAS_END_US);
    controller_stop(up->controller, on_stopped, up);
}

/* ---- the start ---- */

static void on_report(void *arg, const uint8_t *packed, size_t len)
{
    const struct up *const up = arg;

    controller_on_report(up->controller, packed, len);
}

static void on_hup(void *arg)
{
    const struct up *const up = arg;

    controller_reload(up->controller);
}

static int refused(struct conf_problems *problems)
{
    fwrite(problems->text.data, 1, problems->text.len, stderr);
    fprintf(stderr, "penstock up: %zu problem%s in the config\n", problems->n,
            problems->n == 1 ? "" : "s");
    return EX_CONFIG;
}

/* EXIT_SUCCESS, or the exit status with the reason printed. */
static int start(struct up *up)
{
    struct conf_problems problems;
    struct err err = {0};
    int status = EXIT_SUCCESS;

    conf_problems_init(&problems);
    int r = controller_new(&up->controller, &up->front.loop, up->front.certs, &up->process,
                           &problems, &err);

    if (r == 0) {
        struct snapshot *const first = controller_first_snapshot(up->controller);

        r = front_start(&up->front, first, &err);
        snapshot_unref(first);
    }
    if (r < 0 && problems.n > 0) {
        status = refused(&problems);
    } else if (r < 0) {
        fprintf(stderr, "penstock up: %s\n", err.text);
        status = EXIT_FAILURE;
    }
    conf_problems_fini(&problems);
    return status;
}

static int run(struct up *up)
{
    front_init(&up->front, &(struct front_conf){.verb = "up",
                                                .process = &up->process,
                                                .on_report = on_report,
                                                .on_hup = on_hup,
                                                .on_drained = on_drained,
                                                .arg = up});
    up->limit.fire = on_limit;
    int status = start(up);

    if (status == EXIT_SUCCESS) {
        if (up->front.admin != NULL)
            controller_add_routes(up->controller, up->front.admin);
        controller_start(up->controller, up->front.gateway);
        status = front_run(&up->front);
    }
    timer_stop(&up->front.loop, &up->limit);
    up->controller = controller_free(up->controller);
    front_fini(&up->front);
    return status;
}

/* ---- options: what the command line says goes over what the file says ---- */

struct up_options {
    const char *config, *listen, *admin, *models, *state;
    uint64_t workers;
};

#define WORKERS_UNSET UINT32_MAX

static int override(struct process_conf *p, const struct args_spec *spec,
                    const struct up_options *o)
{
    if (o->listen != NULL && conf_rule_listen(o->listen) != NULL)
        return args_usage_error(spec, "--listen \"%s\" %s", o->listen, conf_rule_listen(o->listen));
    if (o->admin != NULL && conf_rule_admin(o->admin) != NULL)
        return args_usage_error(spec, "--admin \"%s\" %s", o->admin, conf_rule_admin(o->admin));
    if (o->state != NULL && o->state[0] == '\0')
        return args_usage_error(spec, "--state \"\" is no folder");
    if (o->listen != NULL) {
        p->listeners[0] =
            (struct listener_conf){.address = o->listen, .cert = "", .key = "", .client_ca = ""};
        p->n_listeners = 1;
    }
    p->admin = o->admin == NULL ? p->admin : o->admin;
    p->models = o->models == NULL ? p->models : o->models;
    p->state = o->state == NULL ? p->state : o->state;
    p->workers = o->workers == WORKERS_UNSET ? p->workers : (uint32_t)o->workers;
    return EXIT_SUCCESS;
}

static int read_process(struct process_conf *p, const struct args_spec *spec,
                        const struct up_options *o)
{
    struct conf_problems problems;
    enum log_level level = LOG_INFO;
    int status = EXIT_SUCCESS;

    conf_problems_init(&problems);
    if (o->config == NULL)
        process_conf_default(p);
    else if (process_conf_load(p, o->config, &problems) < 0)
        status = refused(&problems);
    if (status == EXIT_SUCCESS && p->catalogue != NULL)
        status = args_usage_error(spec,
                                  "%s#/catalogue is for penstock gateway: penstock up keeps "
                                  "generations of a folder, give --models DIR",
                                  o->config);
    conf_problems_fini(&problems);
    if (status == EXIT_SUCCESS)
        status = override(p, spec, o);
    if (status == EXIT_SUCCESS && log_level_parse(p->log_level, &level))
        log_set(level, STDERR_FILENO);
    return status;
}

int verb_up(int argc, char **argv)
{
    struct up_options o = {.workers = WORKERS_UNSET};
    struct up up = {0};
    const struct arg options[] = {
        ARG_STR("config", "FILE", &o.config, "penstock.json; the options below go over it"),
        ARG_STR("models", "DIR", &o.models, "config folder to apply at the start"),
        ARG_STR("listen", "ADDR", &o.listen, "where clients connect; default 127.0.0.1:7070"),
        ARG_STR("admin", "ADDR", &o.admin, "admin interface; default 127.0.0.1:7080; \"\": none"),
        ARG_STR("state", "DIR", &o.state, "state folder; default ./state"),
        ARG_UINT("workers", "N", &o.workers, 0, 256, "event loops; 0: one per core (default)"),
        ARG_END,
    };
    const struct args_spec spec = {
        .verb = "up",
        .positional = "",
        .about =
            "Gateway, controller and replicas on this machine, in one process.\n\n"
            "SIGHUP takes the config folder over again. SIGTERM ends it gracefully: clients are\n"
            "sent away, running calls end, then the replicas stop.",
        .options = options,
    };
    int r = args_parse(&spec, &argc, argv);

    if (r != ARGS_OK)
        return args_exit(r);
    r = read_process(&up.process, &spec, &o);
    if (r == EXIT_SUCCESS)
        r = run(&up);
    process_conf_fini(&up.process);
    return r;
}
