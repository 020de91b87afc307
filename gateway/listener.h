/* gateway/listener.h - one address that clients connect to: its socket at worker 0, its settings at
 * every worker.
 *
 * Owns:      the socket and its watcher.
 * Called by: worker.c.
 * Lifetime:  listener_init .. listener_fini.
 * Thread:    its worker's.
 */
#ifndef GATEWAY_LISTENER_H
#define GATEWAY_LISTENER_H

#include "net/conn.h"

struct worker;

struct listener {
    struct worker *worker;
    ev_io io;
    int fd; /* -1: not bound */
    struct net_addr addr;
    struct conn_conf conn; /* of the sessions it accepts */
    struct timer pause;    /* after accept failed for want of descriptors */
};

/* Bind and listen; 0 or -errno with err. first: the same listener of worker 0, which accepts for
 * all; NULL: this is it. accept begins with listener_start. */
int listener_init(struct listener *l, struct worker *w, const struct net_addr *addr,
                  const struct listener *first, const struct conn_conf *conn, struct err *err);
void listener_start(struct listener *l);
void listener_resume(struct listener *l); /* there is room for TLS handshakes again */
void listener_stop(struct listener *l);   /* closes the socket: new connections go elsewhere */
void listener_fini(struct listener *l);

#endif
