#include "gateway/addresses.h"

#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "base/check.h"
#include "base/xalloc.h"

#define LEFT_MAX 65536u /* kept without a session: then the oldest is forgotten unpaid */
#define A_SWEEP  256u

static uint32_t share(uint32_t whole, uint32_t n_workers)
{
    return whole == 0 ? 0 : (whole + n_workers - 1) / n_workers;
}

void addresses_init(struct addresses *a, const struct client_limits *l, uint32_t n_workers)
{
    memset(a, 0, sizeof(*a));
    map_init(&a->by_key);
    list_init(&a->left);
    a->max_sessions = share(l->address_connections, n_workers);
    a->count_loopback = l->count_loopback;
    a->limits.resets = share(l->address_resets, n_workers);
    a->limits.resets_per_s = share(l->address_resets_per_s, n_workers);
}

static void address_forget(struct addresses *a, struct address *of)
{
    list_remove(&of->node);
    a->n_left--;
    map_del(&a->by_key, of->key, of->key_len);
    free(of);
}

void addresses_fini(struct addresses *a)
{
    while (a->n_left > 0)
        address_forget(a, list_first(&a->left, struct address, node));
    map_fini(&a->by_key);
}

/* 0: none that counts. */
static size_t key_of(const struct addresses *a, const struct sockaddr_storage *sa, char key[8])
{
    static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};
    const struct sockaddr_in *v4 = (const struct sockaddr_in *)(const void *)sa;
    const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)(const void *)sa;
    const uint8_t *ip = NULL;

    if (sa->ss_family == AF_INET)
        ip = (const uint8_t *)&v4->sin_addr;
    else if (sa->ss_family == AF_INET6 && memcmp(&v6->sin6_addr, mapped, 12) == 0)
        ip = (const uint8_t *)&v6->sin6_addr + 12;
    if (ip != NULL) {
        if (ip[0] == 127 && !a->count_loopback)
            return 0;
        memcpy(key, ip, 4);
        return 4;
    }
    if (sa->ss_family != AF_INET6 || (IN6_IS_ADDR_LOOPBACK(&v6->sin6_addr) && !a->count_loopback))
        return 0;
    memcpy(key, &v6->sin6_addr, 8);
    return 8;
}

struct address *addresses_of_peer(struct addresses *a, const struct sockaddr_storage *peer)
{
    struct address *of;
    char key[8];
    size_t key_len;

    if (a->max_sessions == 0 && a->limits.resets == 0)
        return NULL;
    key_len = key_of(a, peer, key);
    if (key_len == 0)
        return NULL;
    of = map_get(&a->by_key, key, key_len);
    if (of != NULL)
        return of;
    of = xcalloc(1, sizeof(*of));
    memcpy(of->key, key, key_len);
    of->key_len = (uint8_t)key_len;
    list_init(&of->sessions);
    map_set(&a->by_key, of->key, key_len, of);
    list_push_back(&a->left, &of->node);
    if (++a->n_left > LEFT_MAX)
        address_forget(a, list_first(&a->left, struct address, node));
    return of;
}

void addresses_enter(struct addresses *a, struct address *of, struct list *session)
{
    if (of->n_sessions++ == 0) {
        list_remove(&of->node);
        a->n_left--;
    }
    list_push_back(&of->sessions, session);
}

void addresses_leave(struct addresses *a, struct address *of, struct list *session)
{
    list_remove(session);
    if (--of->n_sessions > 0)
        return;
    list_push_back(&a->left, &of->node);
    a->n_left++;
    if (of->spent.resets <= 0)
        address_forget(a, of);
}

bool addresses_is_full(const struct addresses *a, const struct address *of)
{
    return a->max_sessions != 0 && of->n_sessions >= a->max_sessions;
}

bool addresses_take_reset(struct addresses *a, struct address *of, uint64_t now_us)
{
    return a->limits.resets == 0 ||
           budget_take_reset(&of->spent, &a->limits, now_us) != BUDGET_SPENT;
}

void addresses_sweep(struct addresses *a, uint64_t now_us)
{
    const uint32_t n = a->n_left < A_SWEEP ? a->n_left : A_SWEEP;

    for (uint32_t i = 0; i < n; i++) {
        struct address *of = list_first(&a->left, struct address, node);

        budget_pay_time(&of->spent, &a->limits, now_us);
        if (of->spent.resets <= 0) {
            address_forget(a, of);
        } else {
            list_remove(&of->node);
            list_push_back(&a->left, &of->node);
        }
    }
}
