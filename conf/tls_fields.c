/* conf/tls_fields.c - the rows about TLS and identity: listeners, tenants, and TLS to replicas. */
#include <stdio.h>
#include <string.h>

#include "conf/process.h"
#include "conf/rules.h"
#include "conf/tables.h"
#include "net/tls.h"

#define PATH_BYTES_MAX 4095
#define NAME_BYTES_MAX 128
#define SAN_BYTES_MAX  2048 /* a SPIFFE id, the longest kind in use, ends there */

/* ---- listeners ---- */

static const char *const client_auth_words[] = {
    [CLIENT_AUTH_REQUIRED] = "required",
    [CLIENT_AUTH_OPTIONAL] = "optional",
    NULL,
};

static const char *const min_tls_words[] = {
    [MIN_TLS_1_2] = "1.2",
    [MIN_TLS_1_3] = "1.3",
    NULL,
};

#define OCSP_DOC                                                                                   \
    "OCSP response (DER) that is stapled for it, until it expires. Nothing is fetched: whoever "   \
    "renews the file does. Empty: none."

static const struct conf_field certificate_fields[] = {
    CONF_STR(struct certificate_conf, cert, "cert", .required = true, .min = 1,
             .max = PATH_BYTES_MAX, .doc = "Certificate chain (PEM)."),
    CONF_STR(struct certificate_conf, key, "key", .required = true, .min = 1, .max = PATH_BYTES_MAX,
             .doc = "Its private key (PEM), without a passphrase."),
    CONF_STR(struct certificate_conf, ocsp, "ocsp", .max = PATH_BYTES_MAX, .doc = OCSP_DOC),
    CONF_END,
};
static const struct conf_table certificate_table = {
    .title = "certificate",
    .doc = "One more certificate of a listener, for the DNS names in it (`*.` stands for one "
           "label; an exact name goes before it).",
    .size = sizeof(struct certificate_conf),
    .fields = certificate_fields,
};

static const struct conf_field listener_fields[] = {
    CONF_STR(struct listener_conf, address, "address", .required = true, .min = 1, .max = 256,
             .rule = conf_rule_listen, .doc = "Where clients connect; port 0: any free one."),
    CONF_STR(struct listener_conf, cert, "cert", .max = PATH_BYTES_MAX,
             .doc = "Certificate chain (PEM), for clients that ask for no other name. Empty: "
                    "cleartext. A file that changes is taken over within a second."),
    CONF_STR(struct listener_conf, key, "key", .max = PATH_BYTES_MAX,
             .doc = "Its private key (PEM), without a passphrase."),
    CONF_STR(struct listener_conf, ocsp, "ocsp", .max = PATH_BYTES_MAX, .doc = OCSP_DOC),
    CONF_LIST(struct listener_conf, certificates, "certificates", .max = 64,
              .table = &certificate_table,
              .doc = "More certificates, chosen by the name that the client asks for; see "
                     "`certificate`."),
    CONF_ENUM(struct listener_conf, min_tls, "min_tls", .words = min_tls_words, .dflt = MIN_TLS_1_2,
              .doc = "The oldest TLS version that is spoken."),
    CONF_STR(struct listener_conf, client_ca, "client_ca", .max = PATH_BYTES_MAX,
             .doc = "Clients show a certificate that these CAs (PEM) signed. Empty: none is asked "
                    "for."),
    CONF_ENUM(struct listener_conf, client_auth, "client_auth", .words = client_auth_words,
              .dflt = CLIENT_AUTH_REQUIRED,
              .doc = "With `client_ca`: must clients show one? One that is shown must be good "
                     "either way."),
    CONF_BOOL(struct listener_conf, tenants_only, "tenants_only",
              .doc = "Refuse clients whose certificate has no name of `tenants`."),
    CONF_END,
};
const struct conf_table conf_listener_table = {
    .title = "listener",
    .doc = "One address for clients.",
    .size = sizeof(struct listener_conf),
    .fields = listener_fields,
};

/* A file's problem at the key that names it. */
static bool check_chain(struct conf_where *where, const char *key, const char *file)
{
    struct err err = {0};

    if (tls_check_chain(file, &err) == 0)
        return true;
    conf_problem_at(where, key, "%s", err.text);
    return false;
}

static void check_pair(struct conf_where *where, const char *cert, const char *key,
                       const char *ocsp)
{
    struct err err = {0};

    if (!check_chain(where, "cert", cert))
        return;
    if (tls_check_pair(&(struct tls_pair){cert, key, NULL}, &err) != 0)
        conf_problem_at(where, "key", "%s", err.text);
    else if (ocsp[0] != '\0' && tls_check_pair(&(struct tls_pair){cert, key, ocsp}, &err) != 0)
        conf_problem_at(where, "ocsp", "%s", err.text);
}

static void check_certificates(struct conf_where *where, const struct listener_conf *l)
{
    const size_t mark = conf_where_key(where, "certificates");

    for (size_t i = 0; i < l->n_certificates; i++) {
        const size_t inner = conf_where_index(where, i);

        if (l->certificates[i].cert[0] != '\0' && l->certificates[i].key[0] != '\0')
            check_pair(where, l->certificates[i].cert, l->certificates[i].key,
                       l->certificates[i].ocsp);
        conf_where_up(where, inner);
    }
    conf_where_up(where, mark);
}

static void check_listener_tls(struct conf_where *where, const struct listener_conf *l,
                               bool has_tenants)
{
    const bool tls = l->cert[0] != '\0', asks = l->client_ca[0] != '\0';

    if (tls && l->key[0] == '\0')
        conf_problem_at(where, "key", "is missing; a certificate needs its key");
    if (l->key[0] != '\0' && !tls)
        conf_problem_at(where, "cert", "is missing; a key needs its certificate");
    if (!tls && l->ocsp[0] != '\0')
        conf_problem_at(where, "ocsp", "without cert: it is about one");
    if (!tls && l->n_certificates > 0)
        conf_problem_at(where, "certificates", "without cert: give the default one there");
    if (!tls && asks)
        conf_problem_at(where, "client_ca", "without cert: only TLS asks for certificates");
    if (!asks && l->client_auth == CLIENT_AUTH_OPTIONAL)
        conf_problem_at(where, "client_auth", "without client_ca: nobody is asked");
    if (!asks && l->tenants_only)
        conf_problem_at(where, "tenants_only", "without client_ca: nobody shows a name");
    if (asks && l->tenants_only && !has_tenants)
        conf_problem_at(where, "tenants_only", "without \"tenants\": nobody could come in");
    if (tls && l->key[0] != '\0')
        check_pair(where, l->cert, l->key, l->ocsp);
    if (tls && asks)
        check_chain(where, "client_ca", l->client_ca);
    check_certificates(where, l);
}

void conf_check_listeners(struct conf_where *where, const struct process_conf *c)
{
    const size_t outer = conf_where_key(where, "listeners");

    for (size_t i = 0; i < c->n_listeners; i++) {
        const struct listener_conf *const l = &c->listeners[i];
        const size_t mark = conf_where_index(where, i);

        check_listener_tls(where, l, c->n_tenants > 0);
        for (size_t j = 0; j < i; j++) {
            const size_t len = strlen(l->address);
            const bool any_port = len > 2 && strcmp(l->address + len - 2, ":0") == 0;

            if (len > 0 && !any_port && strcmp(l->address, c->listeners[j].address) == 0)
                conf_problem_at(where, "address", "\"%s\" is the address of listener %zu too",
                                l->address, j);
        }
        conf_where_up(where, mark);
    }
    conf_where_up(where, outer);
}

/* ---- tenants ---- */

static const char *san_rule(const char *text)
{
    for (const char *p = text; *p != '\0'; p++) {
        if (*p <= ' ' || *p > '~')
            return "has a character that URIs and DNS names in certificates do not have";
    }
    return NULL;
}

static const struct conf_field tenant_fields[] = {
    CONF_STR(struct tenant_conf, name, "name", .required = true, .min = 1, .max = NAME_BYTES_MAX,
             .rule = conf_rule_name,
             .doc = "What calls of this tenant are counted under; replicas get it as "
                    "`penstock-tenant`."),
    CONF_STRS(struct tenant_conf, san, "san", .required = true, .min = 1, .max = 256,
              .max_value = SAN_BYTES_MAX, .rule = san_rule,
              .doc = "Subject alternative names of its clients' certificates, URI or DNS; whole "
                     "and byte by byte."),
    CONF_END,
};
const struct conf_table conf_tenant_table = {
    .title = "tenant",
    .doc = "Who a client is, by its certificate. The common name never counts; of a certificate "
           "with several names the first listed URI counts, else the first listed DNS name.",
    .size = sizeof(struct tenant_conf),
    .fields = tenant_fields,
};

static const struct tenant_conf *owner_of(const struct process_conf *c, size_t before,
                                          const char *san)
{
    for (size_t i = 0; i < before; i++) {
        for (size_t k = 0; k < c->tenants[i].n_san; k++) {
            if (strcmp(c->tenants[i].san[k], san) == 0)
                return &c->tenants[i];
        }
    }
    return NULL;
}

void conf_check_tenants(struct conf_where *where, const struct process_conf *c)
{
    const size_t outer = conf_where_key(where, "tenants");

    for (size_t i = 0; i < c->n_tenants; i++) {
        const struct tenant_conf *const t = &c->tenants[i];
        const size_t mark = conf_where_index(where, i);

        for (size_t j = 0; j < i; j++) {
            if (strcmp(t->name, c->tenants[j].name) == 0)
                conf_problem_at(where, "name", "\"%s\" is the name of tenant %zu too", t->name, j);
        }
        for (size_t k = 0; k < t->n_san; k++) {
            const struct tenant_conf *const other = owner_of(c, i, t->san[k]);
            char shown[CONF_QUOTE_BYTES];

            if (other != NULL)
                conf_problem_at(where, "san", "%s is a name of tenant %s too",
                                conf_quote(shown, sizeof(shown), t->san[k]), other->name);
        }
        conf_where_up(where, mark);
    }
    conf_where_up(where, outer);
}

/* ---- TLS to replicas ---- */

static const char *const upstream_tls_words[] = {
    [UPSTREAM_TLS_OFF] = "off",
    [UPSTREAM_TLS_VERIFY] = "verify",
    [UPSTREAM_TLS_NO_VERIFY] = "no_verify",
    NULL,
};

static const struct conf_field upstream_tls_fields[] = {
    CONF_ENUM(struct upstream_tls_conf, mode, "mode", .words = upstream_tls_words,
              .dflt = UPSTREAM_TLS_OFF,
              .doc = "`off`: cleartext. `verify`: TLS, and the replica's certificate must be good. "
                     "`no_verify`: any certificate will do, so anybody can stand in for it."),
    CONF_STR(struct upstream_tls_conf, ca, "ca", .max = PATH_BYTES_MAX,
             .doc = "CAs (PEM) that sign replicas' certificates. Empty: the system's."),
    CONF_STR(struct upstream_tls_conf, cert, "cert", .max = PATH_BYTES_MAX,
             .doc = "Our own certificate chain (PEM), where replicas ask for one."),
    CONF_STR(struct upstream_tls_conf, key, "key", .max = PATH_BYTES_MAX,
             .doc = "Its private key (PEM), without a passphrase."),
    CONF_STR(struct upstream_tls_conf, name, "name", .max = 253, .rule = conf_rule_host,
             .doc = "Name that the certificate must have, and that is asked for (SNI). Empty: the "
                    "host of the endpoint's address."),
    CONF_END,
};
const struct conf_table conf_upstream_tls_table = {
    .title = "tls",
    .doc = "TLS from the gateway, and from its prober, to the endpoints. Files that change are "
           "taken over within a second, for new connections.",
    .size = sizeof(struct upstream_tls_conf),
    .fields = upstream_tls_fields,
};

void conf_check_upstream_tls(struct conf_where *where, const struct upstream_tls_conf *t)
{
    const bool on = t->mode != UPSTREAM_TLS_OFF;

    if (t->cert[0] != '\0' && t->key[0] == '\0')
        conf_problem_at(where, "key", "is missing; a certificate needs its key");
    if (t->key[0] != '\0' && t->cert[0] == '\0')
        conf_problem_at(where, "cert", "is missing; a key needs its certificate");
    if (t->mode == UPSTREAM_TLS_NO_VERIFY && t->ca[0] != '\0')
        conf_problem_at(where, "ca", "with mode \"no_verify\": it would not be used");
    if (!on && (t->ca[0] != '\0' || t->cert[0] != '\0' || t->name[0] != '\0'))
        conf_problem_at(where, "mode", "is \"off\": give \"verify\", or take the other keys out");
}
