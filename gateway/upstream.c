#include "gateway/upstream.h"

#include <stdlib.h>

#include "base/xalloc.h"
#include "gateway/stream.h"
#include "gateway/worker.h"

/* A connection stands: who was left alone because none could be made is tried again now. */
static void upstream_on_state(void *user, enum pool_state state, const char *why)
{
    struct upstream *u = user;

    (void)why;
    if (state == POOL_UP && u->endpoint != NULL)
        endpoint_connected(u->endpoint, u->worker->loop.now_us);
}

struct upstream *upstream_new(struct worker *w, struct endpoint *ep, const struct net_addr *addr,
                              const struct pool_conf *conf)
{
    const struct pool_ops ops = {.h2 = upstream_events, .on_state = upstream_on_state};
    struct upstream *u = xcalloc(1, sizeof(*u));

    u->worker = w;
    u->endpoint = ep;
    u->addr = *addr;
    u->conf = *conf;
    u->usual = pool_new(&w->loop, addr, conf, &ops, u);
    return u;
}

static void upstream_reap(struct dead *d)
{
    struct upstream *u = container_of(d, struct upstream, dead);

    pool_free(u->usual);
    pool_free(u->bulk);
    free(u);
}

void upstream_bury(struct upstream *u)
{
    u->endpoint = NULL;
    u->dead.reap = upstream_reap;
    loop_bury(&u->worker->loop, &u->dead);
}

struct pool *upstream_bulk(struct upstream *u)
{
    const struct pool_ops ops = {.h2 = upstream_events};
    struct pool_conf conf = u->conf;

    if (u->bulk == NULL) {
        conf.min_conns = 0;
        u->bulk = pool_new(&u->worker->loop, &u->addr, &conf, &ops, u);
    }
    return pool_state(u->bulk) == POOL_DOWN ? u->usual : u->bulk;
}

void upstream_renew(struct upstream *u)
{
    pool_renew(u->usual);
}

void upstream_set_tls(struct upstream *u, struct tls_ctx *tls)
{
    u->conf.conn.tls = tls;
    pool_set_tls(u->usual, tls);
    if (u->bulk != NULL)
        pool_set_tls(u->bulk, tls);
}

uint32_t upstream_n_streams(const struct upstream *u)
{
    return pool_n_streams(u->usual) + (u->bulk == NULL ? 0 : pool_n_streams(u->bulk));
}
