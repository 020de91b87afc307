/* net/tls_tickets.h - keys that seal TLS session tickets: one in use, the one before it still read.
 *
 * Owns:      two keys; they never leave this process.
 * Called by: net/tls_ctx.c, from OpenSSL's callback, on any worker's thread.
 * Lifetime:  tls_tickets_init .. tls_tickets_fini.
 * Thread:    any: a lock, held for a copy of 80 bytes.
 *
 * A key seals for 12 hours and opens for 24: who steals one reads sessions of one day at most.
 */
#ifndef NET_TLS_TICKETS_H
#define NET_TLS_TICKETS_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#define TLS_TICKET_SEALS_US (12ull * 3600 * 1000000)
#define TLS_TICKET_OPENS_US (2 * TLS_TICKET_SEALS_US)

struct tls_ticket_key {
    uint8_t name[16]; /* in the ticket, in clear: which key */
    uint8_t cipher[32];
    uint8_t mac[32];
    uint64_t made_us; /* 0: no key */
};

struct tls_tickets {
    pthread_mutex_t lock;
    struct tls_ticket_key keys[2]; /* newest first */
};

void tls_tickets_init(struct tls_tickets *t);
void tls_tickets_fini(struct tls_tickets *t);

/* The key to seal with, a new one when it is time; false: no randomness to be had. */
bool tls_tickets_seal(struct tls_tickets *t, uint64_t now_us, struct tls_ticket_key *ret);

enum { TLS_TICKET_UNKNOWN = 0, TLS_TICKET_CURRENT, TLS_TICKET_OLD /* give the peer a new one */ };
int tls_tickets_open(struct tls_tickets *t, uint64_t now_us, const uint8_t name[16],
                     struct tls_ticket_key *ret);

#endif
