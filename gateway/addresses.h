/* gateway/addresses.h - what each client address has open at one worker, and what it has spent.
 *
 * Owns:      one struct address for each that has a session, or has not yet paid for its resets.
 * Called by: session.c, worker.c.
 * Lifetime:  addresses_init .. addresses_fini, after the last session.
 * Thread:    its worker's. The limits are a worker's share of the process's.
 *
 * An address is an IPv4 address or the first 64 bits of an IPv6 one: who has one of these has all.
 */
#ifndef GATEWAY_ADDRESSES_H
#define GATEWAY_ADDRESSES_H

#include <sys/socket.h>

#include "base/hash.h"
#include "base/list.h"
#include "conf/client_limits.h"
#include "net/h2_budget.h"

struct address {
    char key[8];
    uint8_t key_len;
    uint32_t n_sessions;
    struct list sessions; /* struct session.of_address, oldest first */
    struct list node;     /* of addresses.left, while it has none */
    struct budget spent;  /* its resets alone */
};

struct addresses {
    struct map by_key;
    struct list left; /* those without a session, longest first */
    uint32_t n_left;
    uint32_t max_sessions; /* 0: no limit */
    bool count_loopback;
    struct h2_limits limits; /* resets, resets_per_s; resets 0: no limit */
};

void addresses_init(struct addresses *a, const struct client_limits *l, uint32_t n_workers);
void addresses_fini(struct addresses *a);

/* Of a peer that accept(2) named. NULL: it has none that counts (a UNIX socket, loopback). */
struct address *addresses_of_peer(struct addresses *a, const struct sockaddr_storage *peer);
void addresses_enter(struct addresses *a, struct address *of, struct list *session);
void addresses_leave(struct addresses *a, struct address *of, struct list *session);
bool addresses_is_full(const struct addresses *a, const struct address *of);
/* A call of it ended early by its doing. False: it has spent its budget. */
bool addresses_take_reset(struct addresses *a, struct address *of, uint64_t now_us);
/* Forget those that have paid. To be called now and then. */
void addresses_sweep(struct addresses *a, uint64_t now_us);

#endif
