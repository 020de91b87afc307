/* penstock/front.h - what `up`, `relay` and `gateway` have in common: the control loop with the
 * data plane, the admin pages, signals and the end.
 *
 * Owns:      the control loop, the gateway, the admin listener, signal watchers.
 * Called by: those verbs, on the main thread.
 * Lifetime:  front_init, front_start, front_run, front_fini; fini works on a half-built front.
 * Thread:    main = the control loop's.
 *
 * On standard output, for whoever started us: `listening grpc ADDRESS` per listener (port 0 filled
 * in), `listening admin ADDRESS`, `ready`.
 * SIGTERM or SIGINT: graceful drain (two-step GOAWAY, running calls end, at most drain_s), exit 0;
 * a second one ends at once. SIGHUP: certificate files that changed
 * are read, then on_hup.
 */
#ifndef PENSTOCK_FRONT_H
#define PENSTOCK_FRONT_H

#include <ev.h>

#include "conf/process.h"
#include "gateway/admin.h"
#include "gateway/certs.h"
#include "gateway/gateway.h"
#include "gateway/status.h"
#include "net/loop.h"

struct front_conf {
    const char *verb;
    const struct process_conf *process; /* stays as long as the front */
    gateway_report_fn on_report;        /* NULL: nobody listens */
    void (*on_hup)(void *arg);          /* NULL: SIGHUP does nothing */
    /* A drain begins: stop what would start new work. NULL: nothing. */
    void (*on_drain)(void *arg);
    /* Running calls have ended, or the limit passed: end the rest, then call front_end. NULL: there
     * is no rest. */
    void (*on_drained)(void *arg);
    void *arg; /* of all of them */
};

struct front {
    struct front_conf conf;
    struct loop loop;
    struct certs *certs;
    struct gateway *gateway; /* NULL before front_start */
    struct admin *admin;     /* NULL: none is configured */
    struct status *status;
    ev_signal term, intr, hup;
    bool draining;
};

/* The loop exists from here, for what must be there before the first snapshot. */
void front_init(struct front *f, const struct front_conf *conf);
/* Starts workers and admin. Routes of the caller's own may be added to f->admin afterwards (it may
 * be NULL). 0 or -errno with err. */
int front_start(struct front *f, struct snapshot *first, struct err *err);
/* Prints the ready lines, runs until the end. Returns the exit status. */
int front_run(struct front *f);
void front_end(struct front *f); /* front_run returns */
void front_fini(struct front *f);

#endif
