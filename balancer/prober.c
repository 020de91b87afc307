#include "balancer/prober.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "balancer/probe_question.h"
#include "base/buf.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/list.h"
#include "base/rng.h"
#include "base/xalloc.h"
#include "net/grpc_client.h"
#include "net/loop.h"
#include "proto/grpc.h"

#define ANSWER_BYTES  65536            /* a GetModelStatus of thousands of versions; else 2 bytes */
#define LOOK_EVERY_US (10 * US_PER_MS) /* at a connection that is being made */

/* One address: the connection that its probes share. */
struct site {
    struct list node; /* prober.sites */
    struct prober *prober;
    char *address;
    struct tls_ctx *tls;
    char *key; /* of both */
    struct net_addr addr;
    bool addr_is_known;
    struct grpc_channel *channel; /* NULL: closed */
    uint32_t n_probes;
    uint32_t n_ready;
    uint32_t n_asking;
    struct timer closer; /* a channel is never freed inside its own events */
};

struct probe {
    struct list node; /* prober.probes */
    struct prober *prober;
    struct site *site;
    struct probe_target target; /* its strings are ours */
    char *key;
    uint64_t mark; /* of the last prober_set that named it */
    enum endpoint_state state;
    enum question question;
    uint32_t n_good, n_bad; /* in a row */
    uint64_t not_ready_since_us;
    struct timer next; /* the next probe, or the next look at the connection */
    uint64_t asked_us;
    bool asking, was_asked;
    struct grpc_call *call; /* NULL: none, or ASK_CONNECTION */
    struct buf answer;
    bool answered;
    char why[256]; /* the last verdict's reason */
};

struct prober {
    struct loop *loop;
    struct prober_conf conf;
    prober_change_fn on_change;
    void *arg;
    struct rng rng;
    struct map by_key;     /* -> struct probe */
    struct map by_address; /* and TLS settings -> struct site */
    struct list probes, sites;
    uint64_t mark;
};

void prober_conf_default(struct prober_conf *c)
{
    *c = (struct prober_conf){
        .interval_us = US_PER_S,
        .fast_interval_us = 100 * US_PER_MS,
        .fast_for_us = 60 * US_PER_S,
        .timeout_us = US_PER_S,
        .fall = 3,
        .rise = 1,
        .seed = 1,
    };
}

/* Sites */

static void close_channel(struct timer *t)
{
    struct site *const s = container_of(t, struct site, closer);

    if (s->n_asking > 0)
        return; /* the last answer closes it */
    s->channel = grpc_channel_free(s->channel);
    if (s->n_probes > 0)
        return;
    map_del(&s->prober->by_address, s->key, strlen(s->key));
    list_remove(&s->node);
    free(s->address);
    free(s->key);
    free(s);
}

static void close_later(struct site *s)
{
    timer_start(s->prober->loop, &s->closer, s->prober->loop->now_us);
}

static struct site *take_site(struct prober *p, const char *address, struct tls_ctx *tls)
{
    char *key = xasprintf("%s\n%p", address, (void *)tls);
    struct site *s = map_get(&p->by_address, key, strlen(key));

    if (s == NULL) {
        s = xcalloc(1, sizeof(*s));
        s->prober = p;
        s->address = xstrdup(address);
        s->tls = tls;
        s->key = key;
        s->closer.fire = close_channel;
        list_push_back(&p->sites, &s->node);
        map_set(&p->by_address, key, strlen(key), s);
        key = NULL;
    }
    free(key);
    s->n_probes++;
    return s;
}

/* false: the address has no meaning (now); err says why. */
static bool open_channel(struct site *s, struct err *err)
{
    const struct prober_conf *const conf = &s->prober->conf;
    struct grpc_channel_conf c;

    timer_stop(s->prober->loop, &s->closer);
    if (s->channel != NULL)
        return true;
    if (!s->addr_is_known && net_addr_parse(&s->addr, s->address, err) != 0)
        return false;
    s->addr_is_known = true;
    grpc_channel_conf_default(&c);
    c.pool.min_conns = 0;
    c.pool.max_conns = 1;
    c.pool.seed = rng_next(&s->prober->rng);
    c.pool.conn.tls = s->tls;
    c.pool.conn.connect_timeout_us = conf->timeout_us;
    c.pool.conn.ping_after_us = 0;
    c.user_agent = "penstock-probe";
    s->channel = grpc_channel_new(s->prober->loop, &s->addr, &c);
    return true;
}

/* Verdicts */

static void schedule(struct probe *b)
{
    const struct prober *const p = b->prober;
    const uint64_t now_us = p->loop->now_us;
    const bool settled = b->state == ENDPOINT_READY
                             ? b->n_bad == 0
                             : now_us - b->not_ready_since_us > p->conf.fast_for_us;
    const uint64_t interval_us = settled ? p->conf.interval_us : p->conf.fast_interval_us;
    const double jitter = 0.8 + 0.4 * rng_unit(&b->prober->rng);

    timer_start(b->prober->loop, &b->next, now_us + (uint64_t)((double)interval_us * jitter));
}

/* Moves and tells; b may be gone afterwards. */
static void set_state(struct probe *b, enum endpoint_state to, const char *why)
{
    struct prober *const p = b->prober;

    if (b->state == to)
        return;
    if (to == ENDPOINT_READY)
        b->site->n_ready++;
    else if (b->state == ENDPOINT_READY)
        b->site->n_ready--;
    if (b->state == ENDPOINT_READY)
        b->not_ready_since_us = p->loop->now_us;
    b->state = to;
    schedule(b);
    p->on_change(p->arg, &b->target, to, why);
}

/* The end of one probe; b may be gone afterwards. */
static void conclude(struct probe *b, enum verdict v, const char *why)
{
    const struct prober_conf *const conf = &b->prober->conf;
    char text[sizeof(b->why)]; /* b may be gone while its state is told */

    b->asking = false;
    b->was_asked = true;
    b->site->n_asking--;
    b->n_good = v == VERDICT_READY ? b->n_good + 1 : 0;
    b->n_bad = v == VERDICT_READY ? 0 : b->n_bad + 1;
    if (v != VERDICT_READY && b->site->n_ready <= (b->state == ENDPOINT_READY)) {
        close_later(b->site);
        b->question = question_first(&b->target); /* another server may come up there */
    }
    schedule(b);
    snprintf(text, sizeof(text), "%s", why);
    memcpy(b->why, text, sizeof(text));
    if (v == VERDICT_READY && b->n_good >= conf->rise)
        set_state(b, ENDPOINT_READY, text);
    else if (b->state == ENDPOINT_READY && (v == VERDICT_NOT_READY || b->n_bad >= conf->fall))
        set_state(b, ENDPOINT_UNHEALTHY, text);
}

/* Probes */

static void ask(struct probe *b);

static void on_message(void *user, struct grpc_call *c, const uint8_t *message, size_t len,
                       bool compressed)
{
    struct probe *const b = user;

    (void)c;
    if (compressed)
        return; /* we said that we can't */
    buf_reset(&b->answer);
    buf_append(&b->answer, message, len);
    b->answered = true;
}

static void on_end(void *user, struct grpc_call *c, int status, const char *message,
                   const struct h2_field *trailers, size_t n)
{
    struct probe *const b = user;
    const bool doubt = b->question == ASK_HEALTH_DOUBT;
    char why[256];

    (void)c;
    (void)n;
    b->call = NULL;
    const enum verdict v = question_read(b->question, status, trailers != NULL,
                                         b->answered ? b->answer.data : NULL, b->answer.len);
    snprintf(why, sizeof(why), "%s: %s%s%.150s", question_path(b->question) + 1,
             status != GRPC_OK    ? grpc_status_name((enum grpc_status)status)
             : v == VERDICT_READY ? "ready"
                                  : "not ready",
             message[0] != '\0' ? " " : "", message);
    if (v == VERDICT_NOT_READY && b->question == ASK_HEALTH) {
        b->question = ASK_HEALTH_DOUBT;
        ask(b);
    } else if (v == VERDICT_NEXT) {
        b->question = question_next(&b->target, b->question);
        ask(b);
    } else {
        if (doubt)
            b->question = ASK_HEALTH;
        conclude(b, v, why);
    }
}

static const struct grpc_call_ops call_ops = {.on_message = on_message, .on_end = on_end};

static void look_at_connection(struct probe *b)
{
    struct pool *const pool = grpc_channel_pool(b->site->channel);
    const uint64_t now_us = b->prober->loop->now_us;

    if (pool_state(pool) == POOL_UP)
        conclude(b, VERDICT_READY, "connected");
    else if (pool_state(pool) == POOL_DOWN)
        conclude(b, VERDICT_FAILED, pool_why_down(pool));
    else if (now_us - b->asked_us >= b->prober->conf.timeout_us)
        conclude(b, VERDICT_FAILED, "no connection in time");
    else
        timer_start(b->prober->loop, &b->next, now_us + LOOK_EVERY_US);
}

static void ask(struct probe *b)
{
    struct grpc_call_conf conf = {
        .deadline_us = b->asked_us + b->prober->conf.timeout_us,
        .max_message_bytes = ANSWER_BYTES,
    };
    struct buf message;

    if (b->question == ASK_CONNECTION) {
        pool_warm(grpc_channel_pool(b->site->channel));
        timer_start(b->prober->loop, &b->next, b->prober->loop->now_us);
        return;
    }
    conf.path = question_path(b->question);
    b->answered = false;
    buf_init(&message, ANSWER_BYTES);
    question_write(&b->target, b->question, &message);
    b->call = grpc_call_unary(b->site->channel, &conf, message.data, message.len, &call_ops, b);
    buf_fini(&message);
}

static void on_next(struct timer *t)
{
    struct probe *const b = container_of(t, struct probe, next);
    struct err err;

    if (b->asking) {
        look_at_connection(b);
        return;
    }
    b->asking = true;
    b->site->n_asking++;
    b->asked_us = b->prober->loop->now_us;
    if (open_channel(b->site, &err))
        ask(b);
    else
        conclude(b, VERDICT_FAILED, err.text);
}

static char *key_of(const char *address, const char *model, const char *version)
{
    return xasprintf("%s\n%s\n%s", address, model, version); /* names have no line ends */
}

static void add_probe(struct prober *p, const struct probe_target *t, char *key)
{
    struct probe *const b = xcalloc(1, sizeof(*b));

    b->prober = p;
    b->site = take_site(p, t->address, t->tls);
    b->target = *t;
    b->target.address = xstrdup(t->address);
    b->target.model = xstrdup(t->model);
    b->target.version = xstrdup(t->version);
    b->key = key;
    b->mark = p->mark;
    b->state = ENDPOINT_STARTING;
    b->question = question_first(&b->target);
    b->not_ready_since_us = p->loop->now_us;
    b->next.fire = on_next;
    buf_init(&b->answer, ANSWER_BYTES);
    list_push_back(&p->probes, &b->node);
    map_set(&p->by_key, key, strlen(key), b);
    timer_start(p->loop, &b->next, p->loop->now_us);
}

static void remove_probe(struct probe *b)
{
    struct prober *const p = b->prober;

    if (b->call != NULL)
        grpc_call_abandon(b->call);
    timer_stop(p->loop, &b->next);
    b->site->n_asking -= b->asking;
    b->site->n_ready -= b->state == ENDPOINT_READY;
    if (--b->site->n_probes == 0)
        close_later(b->site);
    map_del(&p->by_key, b->key, strlen(b->key));
    list_remove(&b->node);
    buf_fini(&b->answer);
    free((char *)(uintptr_t)b->target.address);
    free((char *)(uintptr_t)b->target.model);
    free((char *)(uintptr_t)b->target.version);
    free(b->key);
    free(b);
}

void prober_set(struct prober *p, const struct probe_target *targets, size_t n)
{
    p->mark++;
    for (size_t i = 0; i < n; i++) {
        char *const key = key_of(targets[i].address, targets[i].model, targets[i].version);
        struct probe *b = map_get(&p->by_key, key, strlen(key));

        if (b != NULL && (b->target.protocol != targets[i].protocol ||
                          b->target.dialect != targets[i].dialect)) {
            b->target.protocol = targets[i].protocol;
            b->target.dialect = targets[i].dialect;
            if (!b->asking)
                b->question = question_first(&b->target);
        }
        if (b != NULL && b->target.tls != targets[i].tls) { /* nothing said before counts */
            remove_probe(b);
            b = NULL;
        }
        if (b == NULL) {
            add_probe(p, &targets[i], key);
            continue;
        }
        b->mark = p->mark;
        free(key);
    }
    list_each (&p->probes, it) {
        struct probe *const b = list_entry(it, struct probe, node);

        if (b->mark != p->mark)
            remove_probe(b);
    }
}

bool prober_has_asked_all(const struct prober *p)
{
    list_each (&p->probes, it) {
        if (!list_entry(it, struct probe, node)->was_asked)
            return false;
    }
    return true;
}

void prober_each(const struct prober *p, prober_change_fn fn, void *arg)
{
    list_each (&p->probes, it) {
        const struct probe *const b = list_entry(it, struct probe, node);

        fn(arg, &b->target, b->state, b->why);
    }
}

enum endpoint_state prober_state(const struct prober *p, const char *address, const char *model,
                                 const char *version)
{
    char *const key = key_of(address, model, version);
    const struct probe *const b = map_get(&p->by_key, key, strlen(key));

    free(key);
    return b != NULL ? b->state : ENDPOINT_STARTING;
}

struct prober *prober_new(struct loop *loop, const struct prober_conf *conf, prober_change_fn fn,
                          void *arg)
{
    struct prober *const p = xcalloc(1, sizeof(*p));

    p->loop = loop;
    p->conf = *conf;
    p->on_change = fn;
    p->arg = arg;
    rng_init(&p->rng, conf->seed);
    map_init(&p->by_key);
    map_init(&p->by_address);
    list_init(&p->probes);
    list_init(&p->sites);
    return p;
}

struct prober *prober_free(struct prober *p)
{
    if (p == NULL)
        return NULL;
    prober_set(p, NULL, 0);
    list_each (&p->sites, it) {
        struct site *const s = list_entry(it, struct site, node);

        timer_stop(p->loop, &s->closer);
        close_channel(&s->closer);
    }
    check(list_is_empty(&p->sites));
    map_fini(&p->by_key);
    map_fini(&p->by_address);
    free(p);
    return NULL;
}
