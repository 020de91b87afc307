/* balancer/prober.h - asks every replica, over its own connection, whether it can serve.
 *
 * Owns:      one connection, timers and the verdict for each target.
 * Called by: the verbs (gateway, relay) and the controller's driver glue, on the control loop.
 * Lifetime:  prober_new .. prober_free.
 * Thread:    the control loop's. Workers see the verdicts in snapshots.
 *
 * What is asked, by protocol and dialect. An UNIMPLEMENTED answer means "does not speak it": the
 * next question of the line is asked from then on, until the connection is made anew. kserve
 * ModelReady(model, version); health Check "" ; then the connection alone tensorflow
 * GetModelStatus(model, version); health Check "" ; then the connection alone grpc        health
 * Check ""; then the connection alone Never ServerReady or whole-server health of a Triton for a
 * model: both go false while any other model loads (measured), which would take a healthy replica
 * out.
 */
#ifndef BALANCER_PROBER_H
#define BALANCER_PROBER_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "conf/model.h"
#include "conf/snapshot.h"

struct loop;
struct prober;
struct tls_ctx;

struct probe_target {
    const char *address;
    const char *model;   /* "" for plain gRPC */
    const char *version; /* "": the server's default */
    enum model_protocol protocol;
    enum model_dialect dialect;
};

struct prober_conf {
    uint64_t interval_us;      /* between probes of a ready replica; +-20 % jitter */
    uint64_t fast_interval_us; /* of one that is not ready (yet) */
    uint64_t timeout_us;       /* of one probe, connect included */
    uint32_t fall;             /* failures in a row that make READY -> UNHEALTHY */
    uint32_t rise;             /* successes in a row that make it READY */
    uint64_t seed;
    struct tls_ctx *tls; /* NULL: cleartext */
};
void prober_conf_default(struct prober_conf *c); /* 1 s, 100 ms, 1 s, 3, 1 */

/* t was STARTING and is READY, was READY and is UNHEALTHY, ... why: one line for the log. Comes
 * from the loop, never from inside prober_set. */
typedef void (*prober_change_fn)(void *arg, const struct probe_target *t, enum endpoint_state state,
                                 const char *why);

struct prober *prober_new(struct loop *loop, const struct prober_conf *conf, prober_change_fn fn,
                          void *arg);
struct prober *prober_free(struct prober *p); /* returns NULL */

/* Watch exactly these from now on; targets that stay keep their verdict. Copies the strings. */
void prober_set(struct prober *p, const struct probe_target *targets, size_t n);
/* STARTING until the first verdict, also for a target that is not watched. */
enum endpoint_state prober_state(const struct prober *p, const char *address, const char *model,
                                 const char *version);

#endif
