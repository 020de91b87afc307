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

int rig_connect(struct rig *r);                /* a client */
int rig_accept(struct rig *r, size_t replica); /* the next connection that came there, or -1 */
/* Write all of it, in pieces if the gateway is slow to read. false: the gateway has closed. */
bool rig_write(struct rig *r, int fd, const uint8_t *p, size_t len);
/* What came: 0: nothing now, -1: closed. */
ssize_t rig_read(int fd, uint8_t *dst, size_t room);
/* Another snapshot: bit i of states says in pairs what replica i is now: 0 ready, 1 draining,
 * 2 unhealthy, 3 gone. */
void rig_publish(struct rig *r, unsigned states);
void rig_drain(struct rig *r);

#endif
