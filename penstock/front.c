#include "penstock/front.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"

#define OTHER_DESCRIPTORS 4096 /* connections to replicas, their probes and processes, files */

static void on_drained(void *arg)
{
    struct front *const f = arg;

    if (f->conf.on_drained != NULL)
        f->conf.on_drained(f->conf.arg);
    else
        front_end(f);
}

void front_end(struct front *f)
{
    loop_stop(&f->loop);
}

static void begin_drain(struct front *f, const char *signal_name)
{
    if (f->draining) {
        log_warn("stop", "msg=\"second %s: not waiting for running calls\"", signal_name);
        loop_stop(&f->loop);
        return;
    }
    f->draining = true;
    log_info("drain", "signal=%s limit_s=%" PRIu32, signal_name, f->conf.process->drain_s);
    if (f->status != NULL)
        status_set_draining(f->status);
    if (f->conf.on_drain != NULL)
        f->conf.on_drain(f->conf.arg);
    gateway_drain(f->gateway, f->conf.process->drain_s * US_PER_S, on_drained, f);
}

static void on_term(struct ev_loop *loop, ev_signal *w, int revents)
{
    (void)loop;
    (void)revents;
    begin_drain(container_of(w, struct front, term), "SIGTERM");
}

static void on_intr(struct ev_loop *loop, ev_signal *w, int revents)
{
    (void)loop;
    (void)revents;
    begin_drain(container_of(w, struct front, intr), "SIGINT");
}

static void on_hup(struct ev_loop *loop, ev_signal *w, int revents)
{
    struct front *const f = container_of(w, struct front, hup);

    (void)loop;
    (void)revents;
    if (f->draining)
        return;
    certs_reload(f->certs);
    if (f->conf.on_hup != NULL)
        f->conf.on_hup(f->conf.arg);
}

void front_init(struct front *f, const struct front_conf *conf)
{
    memset(f, 0, sizeof(*f));
    f->conf = *conf;
    loop_init(&f->loop, f);
    f->certs = certs_new(&f->loop);
    signal(SIGPIPE, SIG_IGN); /* a peer that is gone is an errno */
    ev_signal_init(&f->term, on_term, SIGTERM);
    ev_signal_init(&f->intr, on_intr, SIGINT);
    ev_signal_init(&f->hup, on_hup, SIGHUP);
    ev_signal_start(f->loop.ev, &f->hup);
}

/* As many descriptors as max_connections wants, or as we are allowed: the usual soft limit of 1024
 * is for programs that use select(). */
static void raise_descriptor_limit(const struct process_conf *p)
{
    const rlim_t wanted = (rlim_t)p->max_connections + OTHER_DESCRIPTORS;
    struct rlimit now;

    if (getrlimit(RLIMIT_NOFILE, &now) != 0 || now.rlim_cur >= wanted)
        return;
    now.rlim_cur = wanted < now.rlim_max ? wanted : now.rlim_max;
    setrlimit(RLIMIT_NOFILE, &now);
    if (now.rlim_cur < p->max_connections)
        log_info("descriptor_limit",
                 "limit=%ju wanted=%ju msg=\"the hard limit (ulimit -Hn) allows fewer connections "
                 "than max_connections\"",
                 (uintmax_t)now.rlim_cur, (uintmax_t)wanted);
}

int front_start(struct front *f, struct snapshot *first, struct err *err)
{
    const struct process_conf *const p = f->conf.process;
    const struct gateway_conf conf = {
        .process = p,
        .name = f->conf.verb,
        .control = &f->loop,
        .on_report = f->conf.on_report,
        .report_arg = f->conf.arg,
        .certs = f->certs,
    };

    if (certs_add_listeners(f->certs, p, err) < 0)
        return err->code;
    raise_descriptor_limit(p);
    f->gateway = gateway_start(&conf, first, err);
    if (f->gateway == NULL)
        return err->code;
    if (p->admin[0] == '\0')
        return 0;
    f->admin = admin_new(&f->loop, p->admin, err);
    if (f->admin == NULL)
        return err_prefix(err, "admin");
    f->status = status_new(f->admin, f->gateway, f->conf.verb);
    return 0;
}

static void print_ready(const struct front *f)
{
    for (size_t i = 0; i < f->conf.process->n_listeners; i++)
        printf("listening grpc %s\n", gateway_listen_address(f->gateway, i));
    if (f->admin != NULL)
        printf("listening admin %s\n", admin_address(f->admin));
    puts("ready");
    fflush(stdout);
}

int front_run(struct front *f)
{
    /* From here on these end us gracefully; before, at once. */
    ev_signal_start(f->loop.ev, &f->term);
    ev_signal_start(f->loop.ev, &f->intr);
    print_ready(f);
    log_info("ready", "verb=%s pid=%d workers=%" PRIu32, f->conf.verb, (int)getpid(),
             gateway_n_workers(f->gateway));
    loop_run(&f->loop);
    log_info("stopped", "verb=%s", f->conf.verb);
    return EXIT_SUCCESS;
}

void front_fini(struct front *f)
{
    f->admin = admin_free(f->admin);
    f->status = status_free(f->status);
    if (f->gateway != NULL)
        f->gateway = gateway_stop(f->gateway);
    f->certs = certs_free(f->certs);
    ev_signal_stop(f->loop.ev, &f->term);
    ev_signal_stop(f->loop.ev, &f->intr);
    ev_signal_stop(f->loop.ev, &f->hup);
    loop_fini(&f->loop);
}
