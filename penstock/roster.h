/* penstock/roster.h - who can serve when nobody starts replicas: the endpoints that the config
 * names, with the prober's verdicts, as snapshots.
 *
 * Owns:      the prober, a reference on the generation, the epoch.
 * Called by: the verbs relay and gateway.
 * Lifetime:  roster_init .. roster_fini.
 * Thread:    the control loop's.
 *
 * An endpoint without a good verdict is UNHEALTHY, not STARTING: it is tried when nobody else is
 * ready, since the config says that it serves.
 */
#ifndef PENSTOCK_ROSTER_H
#define PENSTOCK_ROSTER_H

#include "balancer/prober.h"
#include "conf/generation.h"
#include "gateway/certs.h"
#include "net/loop.h"

struct roster {
    struct loop *loop;
    struct prober *prober; /* NULL: nobody asks, all are READY */
    bool only_connect;     /* ask for a connection, not for health */
    struct certs *certs;
    struct generation *generation;
    uint64_t epoch;
    struct timer publish; /* verdicts that come together make one snapshot */
    void (*on_change)(void *arg);
    void *arg;
};

enum roster_probe { ROSTER_PROBE_HEALTH = 0, ROSTER_PROBE_CONNECT, ROSTER_PROBE_OFF };
/* "health", "connect", "off"; false: another word. */
bool roster_probe_parse(const char *word, enum roster_probe *ret_how);

/* on_change: a verdict changed after the first roster_snapshot; the caller takes roster_snapshot
 * and publishes it. certs: for TLS to the endpoints. */
void roster_init(struct roster *r, struct loop *loop, enum roster_probe how, struct certs *certs,
                 void (*on_change)(void *arg), void *arg);
void roster_fini(struct roster *r); /* works on a zeroed roster */

/* Go over to this generation; takes its own reference. */
void roster_set(struct roster *r, struct generation *g);
/* Runs the loop until every endpoint was asked once, so that the first snapshot is true. At most
 * limit_us. Before front_run only. */
void roster_wait(struct roster *r, uint64_t limit_us);
/* A new snapshot with the next epoch; the caller unrefs it. */
struct snapshot *roster_snapshot(struct roster *r);

#endif
