#include "net/tls_tickets.h"

#include <string.h>

#include <openssl/crypto.h>
#include <openssl/rand.h>

#include "base/check.h"

void tls_tickets_init(struct tls_tickets *t)
{
    memset(t, 0, sizeof(*t));
    check(pthread_mutex_init(&t->lock, NULL) == 0);
}

void tls_tickets_fini(struct tls_tickets *t)
{
    OPENSSL_cleanse(t->keys, sizeof(t->keys));
    pthread_mutex_destroy(&t->lock);
}

static bool opens(const struct tls_ticket_key *k, uint64_t now_us)
{
    return k->made_us != 0 && now_us - k->made_us < TLS_TICKET_OPENS_US;
}

/* Under the lock. */
static bool turn_over(struct tls_tickets *t, uint64_t now_us)
{
    struct tls_ticket_key next = {.made_us = now_us};

    if (t->keys[0].made_us != 0 && now_us - t->keys[0].made_us < TLS_TICKET_SEALS_US)
        return true;
    if (RAND_bytes(next.name, sizeof(next.name)) != 1 ||
        RAND_bytes(next.cipher, sizeof(next.cipher)) != 1 ||
        RAND_bytes(next.mac, sizeof(next.mac)) != 1)
        return false;
    t->keys[1] = t->keys[0];
    t->keys[0] = next;
    OPENSSL_cleanse(&next, sizeof(next));
    return true;
}

bool tls_tickets_seal(struct tls_tickets *t, uint64_t now_us, struct tls_ticket_key *ret)
{
    pthread_mutex_lock(&t->lock);
    const bool ok = turn_over(t, now_us);

    if (ok)
        *ret = t->keys[0];
    pthread_mutex_unlock(&t->lock);
    return ok;
}

int tls_tickets_open(struct tls_tickets *t, uint64_t now_us, const uint8_t name[16],
                     struct tls_ticket_key *ret)
{
    int found = TLS_TICKET_UNKNOWN;

    pthread_mutex_lock(&t->lock);
    for (int i = 0; i < 2 && found == TLS_TICKET_UNKNOWN; i++) {
        const struct tls_ticket_key *const k = &t->keys[i];

        if (!opens(k, now_us) || memcmp(k->name, name, sizeof(k->name)) != 0)
            continue;
        found = now_us - k->made_us < TLS_TICKET_SEALS_US ? TLS_TICKET_CURRENT : TLS_TICKET_OLD;
        *ret = *k;
    }
    pthread_mutex_unlock(&t->lock);
    return found;
}
