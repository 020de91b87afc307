#include "penstock/roster.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/xalloc.h"

#define TOGETHER_US (5 * US_PER_MS)

bool roster_probe_parse(const char *word, enum roster_probe *ret_how)
{
    static const char *const words[] = {
        [ROSTER_PROBE_HEALTH] = "health",
        [ROSTER_PROBE_CONNECT] = "connect",
        [ROSTER_PROBE_OFF] = "off",
    };

    for (size_t i = 0; i < ARRAY_LEN(words); i++) {
        if (strcmp(words[i], word) == 0) {
            *ret_how = (enum roster_probe)i;
            return true;
        }
    }
    return false;
}

/* Names as the prober knows them: plain services have no model, "*" is the server's default. */
static const char *probe_model(const struct model_conf *m)
{
    return m->protocol == PROTOCOL_GRPC ? "" : m->name;
}

static const char *probe_version(const struct model_conf *m, const char *version)
{
    return m->protocol == PROTOCOL_GRPC || strcmp(version, VERSION_ANY) == 0 ? "" : version;
}

static const struct model_conf *find_model(const struct generation *g, const char *name)
{
    for (size_t i = 0; i < g->n_models; i++) {
        if (strcmp(g->models[i].name, name) == 0)
            return &g->models[i];
    }
    return NULL;
}

static enum endpoint_state state_of(void *arg, const char *model, const char *version,
                                    const char *address)
{
    const struct roster *const r = arg;
    const struct model_conf *const m = find_model(r->generation, model);

    check(m != NULL);
    return r->prober == NULL || prober_state(r->prober, address, probe_model(m),
                                             probe_version(m, version)) == ENDPOINT_READY
               ? ENDPOINT_READY
               : ENDPOINT_UNHEALTHY;
}

static void fire_publish(struct timer *t)
{
    struct roster *const r = container_of(t, struct roster, publish);

    r->on_change(r->arg);
}

static void log_verdict(const struct probe_target *t, enum endpoint_state state, const char *why)
{
    const bool has_model = t->model[0] != '\0', has_version = t->version[0] != '\0';
    char quoted[320];

    /* a relay's replicas serve whatever they serve */
    log_event(state == ENDPOINT_READY ? LOG_INFO : LOG_WARN,
              state == ENDPOINT_READY ? "endpoint_ready" : "endpoint_unhealthy",
              "address=%s%s%s%s%s msg=%s", t->address, has_model ? " model=" : "", t->model,
              has_version ? " version=" : "", t->version, log_quote(quoted, sizeof(quoted), why));
}

static void on_verdict(void *arg, const struct probe_target *t, enum endpoint_state state,
                       const char *why)
{
    struct roster *const r = arg;

    log_verdict(t, state, why);
    if (r->epoch > 0) /* before the first snapshot nobody waits for another */
        timer_start(r->loop, &r->publish, r->loop->now_us + TOGETHER_US);
}

/* One that was never ready changes no state, so nobody has said why. */
static void log_unready(void *arg, const struct probe_target *t, enum endpoint_state state,
                        const char *why)
{
    (void)arg;
    if (state != ENDPOINT_READY)
        log_verdict(t, state, why[0] != '\0' ? why : "no answer yet");
}

void roster_init(struct roster *r, struct loop *loop, enum roster_probe how, struct certs *certs,
                 void (*on_change)(void *arg), void *arg)
{
    struct prober_conf conf;

    memset(r, 0, sizeof(*r));
    r->loop = loop;
    r->certs = certs;
    r->only_connect = how == ROSTER_PROBE_CONNECT;
    r->on_change = on_change;
    r->arg = arg;
    r->publish.fire = fire_publish;
    if (how == ROSTER_PROBE_OFF)
        return;
    prober_conf_default(&conf);
    conf.seed = clock_wall_us();
    r->prober = prober_new(loop, &conf, on_verdict, r);
}

void roster_fini(struct roster *r)
{
    if (r->loop == NULL)
        return;
    timer_stop(r->loop, &r->publish);
    r->prober = prober_free(r->prober);
    generation_unref(r->generation);
    r->generation = NULL;
}

static size_t add_targets(const struct roster *r, struct probe_target *to,
                          const struct model_conf *m, const struct version_conf *v)
{
    const char **const lists[] = {m->endpoints, v->endpoints};
    const size_t lengths[] = {m->n_endpoints, v->n_endpoints};
    struct tls_ctx *tls = NULL;
    size_t n = 0;

    if (!certs_of_model(r->certs, m, &tls))
        return 0; /* said already; they count as not ready */
    for (size_t l = 0; l < ARRAY_LEN(lists); l++) {
        for (size_t i = 0; i < lengths[l]; i++)
            to[n++] = (struct probe_target){
                .address = lists[l][i],
                .model = probe_model(m),
                .version = probe_version(m, v->name),
                .protocol = m->protocol,
                .dialect = r->only_connect ? DIALECT_PLAIN : m->dialect,
                .tls = tls,
            };
    }
    return n;
}

static size_t count_targets(const struct generation *g)
{
    size_t n = 0;

    for (size_t i = 0; i < g->n_models; i++) {
        for (size_t v = 0; v < g->models[i].n_versions; v++)
            n += g->models[i].n_endpoints + g->models[i].versions[v].n_endpoints;
    }
    return n;
}

void roster_set(struct roster *r, struct generation *g)
{
    struct generation *const old = r->generation;
    size_t n = 0;

    r->generation = generation_ref(g);
    generation_unref(old);
    if (r->prober == NULL)
        return;
    struct probe_target *const targets = xcalloc(count_targets(g) + 1, sizeof(*targets));
    for (size_t i = 0; i < g->n_models; i++) {
        for (size_t v = 0; v < g->models[i].n_versions; v++)
            n += add_targets(r, targets + n, &g->models[i], &g->models[i].versions[v]);
    }
    prober_set(r->prober, targets, n);
    free(targets);
}

void roster_wait(struct roster *r, uint64_t limit_us)
{
    const uint64_t until_us = loop_refresh(r->loop) + limit_us;

    while (r->prober != NULL && !prober_has_asked_all(r->prober) && r->loop->now_us < until_us)
        loop_turn(r->loop);
    if (r->prober != NULL)
        prober_each(r->prober, log_unready, NULL);
}

struct snapshot *roster_snapshot(struct roster *r)
{
    return snapshot_build(r->generation, ++r->epoch, NULL, 0, state_of, r);
}
