#include "gateway/certs.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/xalloc.h"
#include "gateway/metrics.h"
#include "net/loop.h"

#define LOOK_US   (250 * US_PER_MS) /* changed, the same again, read: within a second */
#define CERTS_MAX 65                /* of one listener */

struct certs_entry {
    struct list node;
    char *label; /* the listener's address, or "replicas" */
    char *key;   /* upstream: its settings; NULL: of a listener */
    struct tls_ctx *ctx;
    uint64_t tried; /* the files as they were read last, well or not */
    uint64_t seen;  /* and as they were at the last look */
};

struct certs {
    struct loop *loop;
    struct timer look;
    struct list entries;
    struct certs_entry **listeners; /* [n_listeners], NULL entries: cleartext */
    size_t n_listeners;
    struct map identities; /* SAN -> const struct tenant_conf * */
    uint64_t n_reloaded, n_refused;
};

/* ---- entries ---- */

static void warn_of_dates(const struct certs_entry *e)
{
    struct tls_cert_info info[CERTS_MAX];
    const size_t n = tls_ctx_certs(e->ctx, info, CERTS_MAX);
    const int64_t now_s = (int64_t)(clock_wall_us() / US_PER_S);

    for (size_t i = 0; i < n && i < CERTS_MAX; i++) {
        if (info[i].not_after_s < now_s)
            log_warn("certificate_expired", "listener=%s file=%s msg=\"peers will refuse it\"",
                     e->label, info[i].file);
        else if (info[i].not_before_s > now_s)
            log_warn("certificate_early", "listener=%s file=%s msg=\"not valid yet\"", e->label,
                     info[i].file);
    }
}

static struct certs_entry *entry_add(struct certs *c, const char *label, const char *key,
                                     const struct tls_conf *conf, struct err *err)
{
    struct tls_ctx *const ctx = tls_ctx_new(conf, err);
    struct certs_entry *e;

    if (ctx == NULL)
        return NULL;
    e = xcalloc(1, sizeof(*e));
    e->label = xstrdup(label);
    e->key = key != NULL ? xstrdup(key) : NULL;
    e->ctx = ctx;
    e->tried = e->seen = tls_ctx_stamp(ctx);
    list_push_back(&c->entries, &e->node);
    warn_of_dates(e);
    return e;
}

static void entry_free(struct certs_entry *e)
{
    list_remove(&e->node);
    tls_ctx_unref(e->ctx);
    free(e->label);
    free(e->key);
    free(e);
}

/* ---- files that change ---- */

static void entry_reload(struct certs *c, struct certs_entry *e, uint64_t stamp)
{
    struct err err = {0};
    char quoted[600];

    e->tried = stamp;
    if (tls_ctx_reload(e->ctx, &err) == 0) {
        c->n_reloaded++;
        log_info("tls_reload", "listener=%s msg=\"new connections use the new files\"", e->label);
        warn_of_dates(e);
        return;
    }
    c->n_refused++;
    err_prefix(&err, "the old files stay in use");
    log_error("tls_reload_refused", "listener=%s msg=%s", e->label,
              log_quote(quoted, sizeof(quoted), err.text));
}

static void certs_look(struct certs *c, bool settled)
{
    list_each (&c->entries, it) {
        struct certs_entry *const e = list_entry(it, struct certs_entry, node);
        const uint64_t stamp = tls_ctx_stamp(e->ctx);

        if (stamp != e->tried && (settled || stamp == e->seen))
            entry_reload(c, e, stamp);
        e->seen = stamp;
    }
}

static void certs_on_look(struct timer *t)
{
    struct certs *const c = container_of(t, struct certs, look);

    certs_look(c, false);
    timer_start(c->loop, t, c->loop->now_us + LOOK_US);
}

void certs_reload(struct certs *c)
{
    certs_look(c, true);
}

/* ---- contexts ---- */

struct certs *certs_new(struct loop *control)
{
    struct certs *const c = xcalloc(1, sizeof(*c));

    c->loop = control;
    list_init(&c->entries);
    map_init(&c->identities);
    c->look.fire = certs_on_look;
    timer_start(control, &c->look, control->now_us + LOOK_US);
    return c;
}

struct certs *certs_free(struct certs *c)
{
    if (c == NULL)
        return NULL;
    timer_stop(c->loop, &c->look);
    while (!list_is_empty(&c->entries))
        entry_free(list_first(&c->entries, struct certs_entry, node));
    map_fini(&c->identities);
    free(c->listeners);
    free(c);
    return NULL;
}

static const char *none_if_empty(const char *text)
{
    return text != NULL && text[0] != '\0' ? text : NULL;
}

static int add_listener(struct certs *c, const struct listener_conf *l,
                        struct certs_entry **ret_entry, struct err *err)
{
    struct tls_pair *const pairs = xcalloc(l->n_certificates + 1, sizeof(*pairs));
    const struct tls_conf conf = {
        .server = true,
        .cert_file = l->cert,
        .key_file = l->key,
        .ocsp_file = none_if_empty(l->ocsp),
        .pairs = pairs,
        .n_pairs = l->n_certificates,
        .ca_file = none_if_empty(l->client_ca),
        .client_optional = l->client_auth == CLIENT_AUTH_OPTIONAL,
        .only_tls13 = l->min_tls == MIN_TLS_1_3,
        .identities = &c->identities,
        .must_be_known = l->tenants_only,
        .name = l->address,
    };

    for (size_t i = 0; i < l->n_certificates; i++)
        pairs[i] = (struct tls_pair){l->certificates[i].cert, l->certificates[i].key,
                                     none_if_empty(l->certificates[i].ocsp)};
    *ret_entry = entry_add(c, l->address, NULL, &conf, err);
    free(pairs);
    return *ret_entry != NULL ? 0 : err_prefix(err, "listener %s", l->address);
}

int certs_add_listeners(struct certs *c, const struct process_conf *p, struct err *err)
{
    for (size_t i = 0; i < p->n_tenants; i++) {
        const struct tenant_conf *const t = &p->tenants[i];

        for (size_t k = 0; k < t->n_san; k++)
            map_set(&c->identities, t->san[k], strlen(t->san[k]), (void *)(uintptr_t)t);
    }
    c->listeners = xcalloc(p->n_listeners, sizeof(*c->listeners));
    c->n_listeners = p->n_listeners;
    for (size_t i = 0; i < p->n_listeners; i++) {
        const struct listener_conf *const l = &p->listeners[i];
        const int r =
            none_if_empty(l->cert) != NULL ? add_listener(c, l, &c->listeners[i], err) : 0;

        if (r < 0)
            return r;
    }
    return 0;
}

struct tls_ctx *certs_listener(const struct certs *c, size_t i)
{
    if (c == NULL)
        return NULL;
    check(i < c->n_listeners);
    return c->listeners[i] != NULL ? c->listeners[i]->ctx : NULL;
}

struct tls_ctx *certs_upstream(struct certs *c, const struct upstream_tls_conf *u, struct err *err)
{
    const struct tls_conf conf = {
        .cert_file = none_if_empty(u->cert),
        .key_file = none_if_empty(u->key),
        .ca_file = none_if_empty(u->ca),
        .no_verify = u->mode == UPSTREAM_TLS_NO_VERIFY,
        .peer_name = none_if_empty(u->name),
    };
    struct certs_entry *e;
    struct buf key;

    check(u->mode != UPSTREAM_TLS_OFF);
    buf_init(&key, 65536);
    buf_printf(&key, "%d\n%s\n%s\n%s\n%s", u->mode, u->ca, u->cert, u->key, u->name);
    list_each (&c->entries, it) {
        e = list_entry(it, struct certs_entry, node);
        if (e->key != NULL && strcmp(e->key, buf_cstr(&key)) == 0) {
            buf_fini(&key);
            return e->ctx;
        }
    }
    e = entry_add(c, "replicas", buf_cstr(&key), &conf, err);
    buf_fini(&key);
    if (e == NULL)
        err_prefix(err, "TLS to replicas");
    return e != NULL ? e->ctx : NULL;
}

bool certs_of_model(struct certs *c, const struct model_conf *m, struct tls_ctx **ret_tls)
{
    struct err err = {0};
    char quoted[600];

    *ret_tls = NULL;
    if (m->tls.mode == UPSTREAM_TLS_OFF)
        return true;
    *ret_tls = certs_upstream(c, &m->tls, &err);
    if (*ret_tls == NULL)
        log_error("upstream_tls", "model=%s msg=%s", m->name,
                  log_quote(quoted, sizeof(quoted), err.text));
    return *ret_tls != NULL;
}

/* ---- metrics ---- */

void certs_write_metrics(const struct certs *c, struct buf *b)
{
    metrics_head(b, "tls_reload_total", "counter",
                 "Changed certificate, key or CA files taken over (ok), or left alone because they "
                 "could not be used (refused).");
    buf_printf(b, "penstock_tls_reload_total{result=\"ok\"} %" PRIu64 "\n", c->n_reloaded);
    buf_printf(b, "penstock_tls_reload_total{result=\"refused\"} %" PRIu64 "\n", c->n_refused);
    metrics_head(b, "tls_cert_not_after_seconds", "gauge",
                 "When a certificate in use expires, in seconds since 1970.");
    list_each (&c->entries, it) {
        const struct certs_entry *const e = list_entry(it, struct certs_entry, node);
        struct tls_cert_info info[CERTS_MAX];
        const size_t n = tls_ctx_certs(e->ctx, info, CERTS_MAX);

        for (size_t i = 0; i < n && i < CERTS_MAX; i++) {
            buf_append_str(b, "penstock_tls_cert_not_after_seconds{");
            metrics_label(b, true, "listener", e->label);
            metrics_label(b, false, "cert", info[i].file);
            buf_printf(b, "} %" PRId64 "\n", info[i].not_after_s);
        }
    }
}
