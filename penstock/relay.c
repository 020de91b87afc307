/* penstock/relay.c - `penstock relay`: the gateway with no files at all. */
#include <stdio.h>
#include <string.h>

#include "balancer/lb.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "net/h2.h"
#include "penstock/args.h"
#include "penstock/front.h"
#include "penstock/relay_tls.h"
#include "penstock/roster.h"
#include "penstock/verb.h"

#define ADDRESSES_MAX  1024
#define FIRST_ROUND_US (1500 * US_PER_MS) /* a probe's timeout, and some */

struct relay {
    struct args_list listen, to, limits;
    struct relay_tls tls;
    const char *policy, *admin, *engine, *log_level, *probe;
    uint64_t workers, drain_s;
    /* made of it */
    enum model_policy policy_id;
    enum roster_probe probe_how;
    const char *addresses[ADDRESSES_MAX];
    size_t n_addresses;
    struct process_conf process;
    struct front front;
    struct roster roster;
};

/* Splits each --to at its commas, into the arena of r->process. */
static int split_addresses(struct relay *r, const struct args_spec *spec)
{
    for (size_t i = 0; i < r->to.n; i++) {
        const char *p = r->to.items[i];

        for (;;) {
            const size_t len = strcspn(p, ",");

            if (r->n_addresses == ADDRESSES_MAX)
                return args_usage_error(spec, "--to: more than %d addresses", ADDRESSES_MAX);
            r->addresses[r->n_addresses] = arena_strndup(&r->process.arena, p, len);
            check(r->addresses[r->n_addresses] != NULL);
            r->n_addresses++;
            if (p[len] == '\0')
                break;
            p += len + 1;
        }
    }
    return 0;
}

static int find_policy(struct relay *r, const struct args_spec *spec)
{
    for (int p = POLICY_P2C; p <= POLICY_ROUND_ROBIN; p++) {
        if (strcmp(lb_of_policy((enum model_policy)p)->name, r->policy) == 0) {
            r->policy_id = (enum model_policy)p;
            return 0;
        }
    }
    return args_usage_error(spec, "--policy %s: not one of p2c, least_inflight, round_robin",
                            r->policy);
}

/* What the options mean together; 0 or EX_USAGE. */
static int check_options(struct relay *r, const struct args_spec *spec)
{
    enum log_level level;

    if (r->listen.n == 0 || r->to.n == 0)
        return args_usage_error(spec, "--%s is missing", r->listen.n == 0 ? "listen" : "to");
    if (!log_level_parse(r->log_level, &level))
        return args_usage_error(spec, "--log-level %s: not one of error, warn, info, debug",
                                r->log_level);
    if (!roster_probe_parse(r->probe, &r->probe_how))
        return args_usage_error(spec, "--probe %s: not one of health, connect, off", r->probe);
    if (r->engine != NULL && h2_engine_find(r->engine) == NULL)
        return args_usage_error(spec, "--engine %s: not an HTTP/2 engine of this build", r->engine);
    for (size_t i = 0; i < r->limits.n; i++) {
        struct err err;

        if (client_limits_set(&r->process, r->limits.items[i], &err) != 0)
            return args_usage_error(spec, "--limit %s", err.text);
    }
    log_set(level, 2);
    int bad = find_policy(r, spec);
    if (bad == 0)
        bad = relay_tls_check(&r->tls, spec);
    return bad != 0 ? bad : split_addresses(r, spec);
}

static void fill_process(struct relay *r)
{
    struct process_conf *const p = &r->process;

    p->n_listeners = r->listen.n;
    p->listeners = arena_alloc(&p->arena, r->listen.n * sizeof(p->listeners[0]));
    check(p->listeners != NULL);
    for (size_t i = 0; i < r->listen.n; i++)
        p->listeners[i] = (struct listener_conf){.address = r->listen.items[i]};
    relay_tls_fill(&r->tls, p);
    p->admin = r->admin != NULL ? r->admin : "";
    p->workers = (uint32_t)r->workers;
    p->drain_s = (uint32_t)r->drain_s;
    if (r->engine != NULL)
        p->engine = r->engine;
}

static void publish(void *arg)
{
    struct relay *const r = arg;
    struct snapshot *const s = roster_snapshot(&r->roster);

    gateway_publish(r->front.gateway, s);
    snapshot_unref(s);
}

static int start_and_run(struct relay *r, struct generation *gen, struct err *err)
{
    int status = EXIT_FAILURE;

    roster_set(&r->roster, gen);
    roster_wait(&r->roster, FIRST_ROUND_US);
    struct snapshot *const first = roster_snapshot(&r->roster);

    if (front_start(&r->front, first, err) == 0)
        status = front_run(&r->front);
    snapshot_unref(first);
    return status;
}

static int serve(struct relay *r, struct generation *gen)
{
    struct err err = {.code = 0};
    int status = EXIT_FAILURE;

    front_init(&r->front, &(struct front_conf){.verb = "relay", .process = &r->process, .arg = r});
    roster_init(&r->roster, &r->front.loop, r->probe_how, r->front.certs, publish, r);
    status = start_and_run(r, gen, &err);
    if (err.code != 0)
        fprintf(stderr, "penstock relay: %s\n", err.text);
    roster_fini(&r->roster);
    front_fini(&r->front);
    return status;
}

static int run(struct relay *r)
{
    const struct upstream_tls_conf upstream = relay_tls_upstream(&r->tls);
    struct conf_problems problems;
    int status = EX_USAGE;

    fill_process(r);
    conf_problems_init(&problems);
    struct generation *const gen =
        generation_for_relay(r->addresses, r->n_addresses, r->policy_id, &upstream, &problems);

    if (gen != NULL)
        status = serve(r, gen);
    else
        fprintf(stderr, "penstock relay: %s", buf_cstr(&problems.text));
    generation_unref(gen);
    conf_problems_fini(&problems);
    return status;
}

int verb_relay(int argc, char **argv)
{
    static struct relay r = {
        .policy = "p2c", .probe = "health", .log_level = "info", .drain_s = 30};
    const struct arg options[] = {
        ARG_LIST("listen", "ADDR", &r.listen, "where clients connect; port 0: any free one"),
        ARG_LIST("to", "ADDR[,ADDR...]", &r.to, "the replicas"),
        ARG_LIST("cert", "FILE", &r.tls.cert,
                 "certificate chain (PEM): TLS for clients; of several the one for the name they "
                 "ask for"),
        ARG_LIST("key", "FILE", &r.tls.key, "its private key (PEM)"),
        ARG_STR("min-tls", "VERSION", &r.tls.min_tls, "1.2 (default) or 1.3"),
        ARG_STR("client-ca", "FILE", &r.tls.client_ca,
                "clients show a certificate that these CAs signed"),
        ARG_STR("client-auth", "WHO", &r.tls.client_auth,
                "required (default), or optional: those without one come in, too"),
        ARG_LIST("tenant", "NAME=SAN", &r.tls.tenant,
                 "a URI or DNS name in certificates, and whose it is"),
        ARG_FLAG("tenants-only", &r.tls.tenants_only, "refuse whoever is no tenant"),
        ARG_FLAG(
            "to-tls", &r.tls.to_tls,
            "TLS to the replicas, which must be signed by the system's CAs, or $SSL_CERT_FILE"),
        ARG_STR("to-ca", "FILE", &r.tls.to_ca, "TLS to the replicas; trust these CAs (PEM) alone"),
        ARG_STR("to-cert", "FILE", &r.tls.to_cert,
                "our own certificate chain (PEM), for replicas that ask for one"),
        ARG_STR("to-key", "FILE", &r.tls.to_key, "its private key (PEM)"),
        ARG_STR("to-name", "NAME", &r.tls.to_name,
                "the name that their certificates must have; default: the host of --to"),
        ARG_FLAG("to-no-verify", &r.tls.to_no_verify,
                 "take any certificate: anybody can stand in for a replica"),
        ARG_UINT("workers", "N", &r.workers, 0, 256, "event loops; default one per core"),
        ARG_STR("policy", "NAME", &r.policy, "p2c (default), least_inflight, round_robin"),
        ARG_STR("probe", "HOW", &r.probe,
                "ask replicas for their health (default), connect only, or off"),
        ARG_STR("admin", "ADDR", &r.admin, "/metrics, /healthz, /readyz, /v1/status; default none"),
        ARG_STR("engine", "NAME", &r.engine, "HTTP/2 engine: native (default) or session"),
        ARG_UINT("drain-s", "SECONDS", &r.drain_s, 0, 3600,
                 "for running calls after SIGTERM; default 30"),
        ARG_LIST("limit", "KEY=VALUE", &r.limits, "what clients may do: a row of docs/limits.md"),
        ARG_STR("log-level", "LEVEL", &r.log_level, "error, warn, info (default), debug"),
        ARG_END,
    };
    const struct args_spec spec = {
        .verb = "relay",
        .positional = "--listen ADDR --to ADDR[,ADDR...]",
        .about =
            "A per-call gRPC balancer before any service, without a config file. Each call "
            "goes to the replica\nwith fewer calls in flight of two that are drawn (--policy); "
            "one that dies is left out until it is back.\nEverything passes, also health "
            "checks and reflection.\n\n"
            "  penstock relay --listen 127.0.0.1:8080 --to 10.0.0.1:9000,10.0.0.2:9000",
        .options = options,
    };
    const int parsed = args_parse(&spec, &argc, argv);

    if (parsed != ARGS_OK)
        return args_exit(parsed);
    process_conf_default(&r.process);
    const int bad = check_options(&r, &spec);
    const int status = bad != 0 ? bad : run(&r);
    process_conf_fini(&r.process);
    return status;
}
