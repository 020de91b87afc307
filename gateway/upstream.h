/* gateway/upstream.h - one replica's connections of one worker: those for calls, and those for
 * bulk.
 *
 * What shares a TCP connection waits for what was sent before it: a tensor of a megabyte delays
 * every 128-byte call behind it, whatever HTTP/2 multiplexes. So calls that carry much have a
 * connection of their own.
 *
 * Owns:      the pools.
 * Called by: worker.c (an endpoint comes, goes, is ready), attempt.c.
 * Lifetime:  upstream_new .. upstream_bury; it is the `pool` of a struct endpoint.
 * Thread:    its worker's.
 */
#ifndef GATEWAY_UPSTREAM_H
#define GATEWAY_UPSTREAM_H

#include "balancer/endpoint.h"
#include "net/pool.h"

#define UPSTREAM_BULK_BYTES (256u * 1024) /* of a message or a call: it carries much */

struct worker;

struct upstream {
    struct worker *worker;
    struct endpoint *endpoint; /* NULL: gone */
    struct pool *usual;
    struct pool *bulk; /* NULL: not needed yet */
    struct net_addr addr;
    struct pool_conf conf;
    struct dead dead;
};

struct upstream *upstream_new(struct worker *w, struct endpoint *ep, const struct net_addr *addr,
                              const struct pool_conf *conf);
/* Its last call has ended: goes in this turn's reaping, since it ends connections. */
void upstream_bury(struct upstream *u);
/* Where calls that carry much are opened: on connections that small calls do not share. These are
 * made at the first need, and while none can be made it is the usual pool. */
struct pool *upstream_bulk(struct upstream *u);
uint32_t upstream_n_streams(const struct upstream *u);
/* For connections that are made from now on; NULL: cleartext. */
void upstream_set_tls(struct upstream *u, struct tls_ctx *tls);
/* The replica became ready: what failed before says nothing. */
void upstream_renew(struct upstream *u);

#endif
