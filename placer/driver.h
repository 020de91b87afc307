/* placer/driver.h - the thing that starts and stops processes where the placer said.
 *
 * A unit is what a driver runs: one serving replica or one task of a job. A driver knows neither
 * models nor jobs: it gets a command with its blanks filled from the spec, and tells by events what
 * became of it.
 *
 * Owns:      its units, from start until the event that ends them (exited or failed).
 * Called by: the controller and placer/job_run.c, on the control loop.
 * Lifetime:  *_new .. driver_free; free kills what still runs, without events.
 * Thread:    the loop's.
 */
#ifndef PLACER_DRIVER_H
#define PLACER_DRIVER_H

#include "base/buf.h"
#include "base/err.h"
#include "conf/generation.h"
#include "net/loop.h"
#include "placer/command.h"
#include "placer/plan.h"

struct unit_spec {
    const char *id;             /* unique while it lives: "digits/2#3", "train/worker-0" */
    const char *const *command; /* {address} {host} {port} {node} {cards} and what blanks has are
                                   filled in, see placer/command.h */
    size_t n_command;
    bool literal;                  /* nothing is filled in */
    const struct env_pair *blanks; /* further {name}s: model, version, rank, ... */
    size_t n_blanks;
    const struct env_pair *env; /* added to the driver's own environment */
    size_t n_env;
    const char *address; /* from driver_reserve_address; NULL: the driver reserves one */
    const char *node;
    const char *const *cards; /* ids */
    size_t n_cards;
    uint32_t cpu_milli, memory_mib;
    uint32_t gpu_milli, gpu_memory_mib; /* of each card; under 1000: MPS limits are set */
    const char *log;                    /* name of its log: letters, digits, ".-_"; NULL: from id */
};

enum driver_event_kind {
    DRIVER_STARTED, /* the process runs; says nothing about readiness */
    DRIVER_EXITED,  /* it ended; the unit is gone */
    DRIVER_FAILED,  /* it never ran; the unit is gone */
};
struct driver_event {
    enum driver_event_kind kind;
    const char *id;
    const char *address; /* STARTED */
    int pid;             /* STARTED and EXITED, local driver */
    int status;          /* EXITED: exit status, or -signal */
    const char *text;    /* EXITED, FAILED: for people: "exit status 3", "killed by signal 9" */
};
/* Never called from inside a driver_* call: always from the loop. The strings live for the call. */
typedef void (*driver_event_fn)(void *arg, const struct driver_event *ev);

struct driver; /* each driver's own struct begins with this */
struct driver_ops {
    const char *name; /* the word used in penstock.json */
    void (*free)(struct driver *d);
    int (*inventory)(struct driver *d, struct cluster_view *view, struct err *err);
    int (*reserve_address)(struct driver *d, const char *node, char *dst, size_t size,
                           struct err *err);
    int (*start)(struct driver *d, const struct unit_spec *spec, struct err *err);
    int (*stop)(struct driver *d, const char *id, uint64_t grace_us);
    int (*logs)(struct driver *d, const char *log, uint64_t max_bytes, struct buf *ret_text,
                struct err *err);
};
struct driver {
    const struct driver_ops *ops;
};

static inline struct driver *driver_free(struct driver *d)
{
    if (d != NULL)
        d->ops->free(d);
    return NULL;
}
/* Brings view up to date with the nodes and cards that the driver has. 0 or -errno. */
static inline int driver_inventory(struct driver *d, struct cluster_view *view, struct err *err)
{
    return d->ops->inventory(d, view, err);
}
/* An address "host:port" on the node that nobody uses, kept for one unit: gangs must know each
 * other's addresses before any of them starts. dst: at least DRIVER_ADDRESS_MAX. 0 or -errno. */
#define DRIVER_ADDRESS_MAX 280
static inline int driver_reserve_address(struct driver *d, const char *node, char *dst, size_t size,
                                         struct err *err)
{
    return d->ops->reserve_address(d, node, dst, size, err);
}
/* Begin a unit. 0: exactly one EXITED or FAILED will follow, STARTED perhaps before it.
 * -EEXIST: the id is in use. -EINVAL: unknown blank or node (err says which). */
static inline int driver_start(struct driver *d, const struct unit_spec *spec, struct err *err)
{
    return d->ops->start(d, spec, err);
}
/* Ask it to end (SIGTERM), and end it (SIGKILL) after grace_us. -ENOENT: no such unit (it has
 * ended). The event follows either way. */
static inline int driver_stop(struct driver *d, const char *id, uint64_t grace_us)
{
    return d->ops->stop(d, id, grace_us);
}
/* The newest max_bytes of a log, whole lines. -ENOENT: nothing was ever written. */
static inline int driver_logs(struct driver *d, const char *log, uint64_t max_bytes,
                              struct buf *ret_text, struct err *err)
{
    return d->ops->logs(d, log, max_bytes, ret_text, err);
}

/* Real processes on this host (placer/driver_local.c). */
struct driver_local_conf {
    struct loop *loop;
    const char *state; /* folder; logs go to STATE/logs */
    const char *host;  /* addresses are on it; NULL: 127.0.0.1 */
    const struct node_conf
        *nodes;             /* declared in nodes.json; 0: one node, this machine, NVML cards */
    size_t n_nodes;         /* (copied) */
    uint64_t log_max_bytes; /* per unit, two files of half; 0: 8 MiB */
    driver_event_fn on_event;
    void *arg;
};
struct driver *driver_local_new(const struct driver_local_conf *conf, struct err *err);
/* The declared nodes changed with a new generation; then call driver_inventory. */
void driver_local_set_nodes(struct driver *d, const struct node_conf *nodes, size_t n_nodes);

#endif
