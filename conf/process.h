/* conf/process.h - penstock.json: this process (listeners, TLS, admin, workers, state folder).
 *
 * Owns:      its strings, in its arena.
 * Called by: the verbs up, gateway, relay.
 * Lifetime:  process_conf_load .. process_conf_fini.
 * Thread:    main, before the workers start; read-only after.
 */
#ifndef CONF_PROCESS_H
#define CONF_PROCESS_H

#include "base/arena.h"
#include "conf/client_limits.h"
#include "conf/generation.h"

struct certificate_conf {
    const char *cert, *key; /* files */
    const char *ocsp;       /* file; empty: nothing is stapled */
};

enum min_tls { MIN_TLS_1_2 = 0, MIN_TLS_1_3 };
enum client_auth { CLIENT_AUTH_REQUIRED = 0, CLIENT_AUTH_OPTIONAL };

struct listener_conf {
    const char *address;
    const char *cert, *key, *client_ca;    /* empty: cleartext */
    const char *ocsp;                      /* empty or NULL: nothing is stapled */
    struct certificate_conf *certificates; /* further ones, by server name */
    size_t n_certificates;
    int min_tls;       /* enum min_tls */
    int client_auth;   /* enum client_auth; with client_ca */
    bool tenants_only; /* refuse whoever is no tenant */
};

struct tenant_conf {
    const char *name;
    const char **san; /* URI or DNS names in its clients' certificates */
    size_t n_san;
};

struct process_conf {
    struct arena arena;
    struct listener_conf *listeners;
    size_t n_listeners;
    const char *admin;     /* address; default 127.0.0.1:7080; "" = none */
    const char *state;     /* folder; default "state" */
    const char *models;    /* config folder that `up` loads at start and with --watch follows */
    const char *catalogue; /* JSON text of such a folder (generation_load_text); NULL: none */
    uint32_t workers;      /* 0: one per core */
    const char *engine;    /* h2 engine name */
    const char *log_level;
    uint32_t drain_s;         /* SIGTERM: how long running calls may take; default 30 */
    uint32_t max_streams;     /* per client connection; default 1000 */
    uint32_t max_connections; /* per process; default 20000 */
    uint32_t max_handshakes;  /* TLS handshakes under way, per worker; default 32 */
    uint32_t handshake_s;     /* each of them; default 10 */
    struct tenant_conf *tenants;
    size_t n_tenants;
    uint32_t memory_mib; /* budget of one worker */
    struct client_limits limits;

    /* connections to replicas */
    uint32_t upstream_connect_ms;
    uint32_t upstream_settings_ms;
    uint32_t upstream_no_streams_ms;
    uint32_t upstream_ping_after_ms;
    uint32_t upstream_ping_timeout_ms;
};

void process_conf_default(struct process_conf *c);
/* 0, or -EINVAL / -errno with problems filled. */
int process_conf_load(struct process_conf *c, const char *file, struct conf_problems *problems);
void process_conf_fini(struct process_conf *c);

#endif
