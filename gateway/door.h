/* gateway/door.h - which worker an accepted connection goes to.
 *
 * gRPC has few connections, and they live for hours: the kernel's hash over SO_REUSEPORT sockets
 * leaves one worker with twice the connections of another for as long. So worker 0 alone accepts,
 * and hands each connection to the worker that has fewest.
 *
 * Owns:      nothing; two counts are members of each worker, the only memory that workers share.
 *            They are touched when a connection comes or goes, never on a call's path.
 * Called by: listener.c (worker 0), session.c and handshakes.c (the ends).
 * Thread:    door_hand, door_has_room: worker 0's. The rest: the worker's own.
 *
 * A drain: worker 0 closes the sockets; what it had handed over reaches a worker that drains, and
 * is closed as what still waited in the kernel is: before it was told a word.
 */
#ifndef GATEWAY_DOOR_H
#define GATEWAY_DOOR_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct net_addr; /* net/conn.h */
struct worker;

struct door {
    atomic_uint sessions;   /* handed to the worker, and not ended */
    atomic_uint handshakes; /* of these, in TLS handshakes */
};

/* May a connection be accepted? Always, but with TLS when all workers have their fill of
 * handshakes: then they are asked for room, and worker_accept_again comes. */
bool door_has_room(struct worker *acceptor, bool tls);
/* fd, accepted from peer by the acceptor's listener of that index. */
void door_hand(struct worker *acceptor, size_t listener, int fd, const struct net_addr *peer);
/* Out of descriptors: every worker gives up a connection without a call, if it has one. */
void door_make_room(struct worker *acceptor);

void door_session_ended(struct worker *w);
void door_handshake_ended(struct worker *w);

#endif
