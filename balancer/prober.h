/* balancer/prober.h - asks every replica, over a connection of its own, whether it can serve.
 *
 * Owns:      one connection per address, one verdict per target.
 * Called by: the verbs and the controller, on the control loop.
 * Lifetime:  prober_new .. prober_free.
 * Thread:    the control loop's. Workers see the verdicts in snapshots.
 *
 * What is asked, by protocol (or by dialect, where the config names one). An UNIMPLEMENTED answer
 * means "does not speak it": the next question of the line is asked from then on, until the
 * connection is made anew.
 *   kserve      ModelReady(model, version); health Check(""); the connection alone
 *   tensorflow  GetModelStatus(model, version); health Check(""); the connection alone
 *   grpc        health Check(""); the connection alone
 * Never ServerReady or whole-server health of a Triton: both go false while any model loads
 * (measured: 1.4 to 2.7 s each), which would take a healthy replica out. A server that is "not
 * serving" is asked for a made-up name first: Triton says the same of any, and is then judged by
 * its connection.
 *
 * A "not ready" is believed at once, and so is "ready" (after `rise`); silence and errors only
 * after `fall` in a row. After a "not ready" the connection is closed: an open one holds a stopping
 * Triton for all of its exit timeout (measured: 10.6 s instead of 3). No PINGs: Triton counts them.
 */
#ifndef BALANCER_PROBER_H
#define BALANCER_PROBER_H

#include <stddef.h>
#include <stdint.h>

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
    struct tls_ctx *tls; /* NULL: cleartext; stays as long as the prober */
};

struct prober_conf {
    uint64_t interval_us;      /* between probes of a ready replica; +-20 % jitter */
    uint64_t fast_interval_us; /* of one that is new, not ready or in doubt */
    uint64_t fast_for_us;      /* not ready this long: probed at interval_us from then on */
    uint64_t timeout_us;       /* of one probe, connect included */
    uint32_t fall;             /* failures in a row that make READY -> UNHEALTHY */
    uint32_t rise;             /* successes in a row that make it READY */
    uint64_t seed;
};
void prober_conf_default(struct prober_conf *c); /* 1 s, 100 ms, 60 s, 1 s, 3, 1 */

/* t was STARTING and is READY, was READY and is UNHEALTHY, or back. why: one line for the log.
 * Comes from the loop, never from inside prober_set; may call prober_set, after which t is no
 * longer valid. */
typedef void (*prober_change_fn)(void *arg, const struct probe_target *t, enum endpoint_state state,
                                 const char *why);

struct prober *prober_new(struct loop *loop, const struct prober_conf *conf, prober_change_fn fn,
                          void *arg);
struct prober *prober_free(struct prober *p); /* not from the change function; returns NULL */

/* Watch exactly these from now on; targets that stay keep their verdict. Copies the strings. */
void prober_set(struct prober *p, const struct probe_target *targets, size_t n);
/* Has every target been asked at least once, whatever the answer? */
bool prober_has_asked_all(const struct prober *p);
/* STARTING until the first READY, also for a target that is not watched. */
enum endpoint_state prober_state(const struct prober *p, const char *address, const char *model,
                                 const char *version);

/* What each target said last; why: "" before its first answer. */
void prober_each(const struct prober *p, prober_change_fn fn, void *arg);

#endif
