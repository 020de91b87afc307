/* tests/fuzz/rig.h - a gateway worker in this process: no thread, no clock but ours, peers that are
 * plain sockets in our hands.
 *
 * Owns:      the worker, its replicas' listening sockets, the time.
 * Called by: fuzz_session.c, fuzz_upstream.c, fuzz_events.c, test_alloc.c.
 * Lifetime:  rig_start .. rig_stop; one at a time.
 * Thread:    one. gateway.c is not linked: what workers ask of it is answered here.
 *
 * The sockets are UNIX ones: a write is readable at once and nothing is lost, so that the same
 * input does the same thing each time.
 */
#ifndef TESTS_FUZZ_RIG_H
#define TESTS_FUZZ_RIG_H

#include "gateway/worker.h"
#include "wire.h"

#define RIG_REPLICAS 2

struct rig {
    struct worker w;
    struct generation *generation;
    uint64_t epoch;
    struct loop peers;       /* of peers that are made of net/ */
    struct net_addr gateway; /* where its listener is */
    struct net_addr replicas[RIG_REPLICAS];
    int listening[RIG_REPLICAS]; /* -1: refused; rig_accept takes from it */
    bool served[RIG_REPLICAS];   /* somebody else listens there: no listening socket */
    bool draining;
};

/* What the rig routes: KServe model "digits" (version 1 on replica 0, 2 on 1), TF-Serving model
 * "tf" on replica 1, any other service on both. */

/* NULL: the default engine. served: replicas that the caller listens for itself. */
void rig_start(struct rig *r, const struct h2_engine *engine, bool served);
/* Every peer must be closed by now. Lets two minutes pass, then checks that nothing is left: no
 * session, call, attempt, or byte. */
void rig_stop(struct rig *r);

uint64_t rig_now_us(void);
/* Until no socket has anything to say and nothing is due. */
void rig_settle(struct rig *r);
/* Let time pass, timer by timer. */
void rig_pass(struct rig *r, uint64_t us);

/* A raw connection to the gateway, or from it: what we write it reads, what it writes is checked.
 */
struct rig_peer {
    int fd; /* -1: closed */
    struct wire wire;
};
/* A client. false: the gateway does not listen any more. */
bool rig_connect(struct rig *r, struct rig_peer *p);
/* As the replica, take the next connection that came. false: none. */
bool rig_accept(struct rig *r, size_t replica, struct rig_peer *p);
/* Write all of it, in pieces if the gateway is slow to read; what it does not take is not sent.
 * false: it has closed. */
bool rig_write(struct rig *r, struct rig_peer *p, const uint8_t *bytes, size_t len);
bool rig_read(struct rig_peer *p);                 /* all that came; false: closed */
void rig_close(struct rig *r, struct rig_peer *p); /* safe when closed */

/* Another snapshot: bit i of states says in pairs what replica i is now: 0 ready, 1 draining,
 * 2 unhealthy, 3 gone. */
void rig_publish(struct rig *r, unsigned states);
void rig_drain(struct rig *r);

#endif
