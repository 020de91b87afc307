/* gateway/gateway.h - the data plane: N workers, each with its own loop, sessions and upstreams.
 *
 * Owns:      the worker threads and their listeners.
 * Called by: the verbs up, relay and gateway, on the control thread.
 * Lifetime:  gateway_start .. gateway_stop.
 * Thread:    control; workers are reached by their mailboxes.
 */
#ifndef GATEWAY_GATEWAY_H
#define GATEWAY_GATEWAY_H

#include "base/err.h"
#include "conf/process.h"
#include "conf/snapshot.h"

struct certs;
struct gateway;
struct loop;

/* A packed penstock.v1.LoadReport, on the control loop's thread, each 250 ms per worker. */
typedef void (*gateway_report_fn)(void *arg, const uint8_t *packed, size_t len);

struct gateway_conf {
    const struct process_conf *process;
    const char *name;
    struct loop *control;        /* reports and answers come back here */
    gateway_report_fn on_report; /* NULL: nobody listens */
    void *report_arg;
    struct certs *certs; /* with the listeners of process; stays as long as the gateway */
};

struct gateway *gateway_start(const struct gateway_conf *conf, struct snapshot *first,
                              struct err *err);
/* Swap the snapshot under traffic: takes a reference; workers pass over to it in their next turn.
 */
void gateway_publish(struct gateway *g, struct snapshot *next);
/* Two-step GOAWAY to every client, running calls go on; drained() on the control loop when all have
 * ended or the limit passed. */
void gateway_drain(struct gateway *g, uint64_t limit_us, void (*drained)(void *arg), void *arg);
struct gateway *gateway_stop(struct gateway *g); /* joins the workers; returns NULL */

/* Addresses that the listeners got (port 0 filled in); i < process->n_listeners. */
const char *gateway_listen_address(const struct gateway *g, size_t i);
const struct certs *gateway_certs(const struct gateway *g);
uint32_t gateway_n_workers(const struct gateway *g);

#endif
