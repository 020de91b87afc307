#include "penstock/relay_tls.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "conf/rules.h"
#include "net/tls.h"
#include "penstock/verb.h"

/* 0, or EXIT_FAILURE with the reason printed: result is that of a tls_check function. */
static int check_file(const char *option, int result, const struct err *err)
{
    if (result == 0)
        return 0;
    fprintf(stderr, "penstock relay: --%s: %s\n", option, err->text);
    return EXIT_FAILURE;
}

static int check_pair(const char *cert_option, const char *key_option, const struct tls_pair *pair)
{
    struct err err = {0};
    const int bad = check_file(cert_option, tls_check_chain(pair->cert_file, &err), &err);

    return bad != 0 ? bad : check_file(key_option, tls_check_pair(pair, &err), &err);
}

static int check_word(const struct args_spec *spec, const char *option, const char *word,
                      const char *first, const char *second)
{
    if (word == NULL || strcmp(word, first) == 0 || strcmp(word, second) == 0)
        return 0;
    return args_usage_error(spec, "--%s %s: not one of %s, %s", option, word, first, second);
}

static int check_tenant(const struct args_spec *spec, const char *text)
{
    const char *const equals = strchr(text, '=');
    char name[129];

    if (equals == NULL || equals == text || equals[1] == '\0' ||
        (size_t)(equals - text) >= sizeof(name))
        return args_usage_error(spec, "--tenant %s: not NAME=SAN", text);
    snprintf(name, sizeof(name), "%.*s", (int)(equals - text), text);
    if (conf_rule_name(name) != NULL)
        return args_usage_error(spec, "--tenant %s: the name %s", text, conf_rule_name(name));
    return 0;
}

/* Options that need another one. */
static int check_together(const struct relay_tls *t, const struct args_spec *spec)
{
    if (t->cert.n != t->key.n)
        return args_usage_error(spec, "--cert and --key go together: %zu of one, %zu of the other",
                                t->cert.n, t->key.n);
    if (t->cert.n == 0 && (t->client_ca != NULL || t->min_tls != NULL))
        return args_usage_error(spec, "--%s without --cert: it is about TLS for clients",
                                t->client_ca != NULL ? "client-ca" : "min-tls");
    if (t->client_ca == NULL && (t->client_auth != NULL || t->tenant.n > 0 || t->tenants_only))
        return args_usage_error(spec, "--%s without --client-ca: nobody is asked for a certificate",
                                t->client_auth != NULL ? "client-auth"
                                : t->tenant.n > 0      ? "tenant"
                                                       : "tenants-only");
    if (t->tenants_only && t->tenant.n == 0)
        return args_usage_error(spec, "--tenants-only without --tenant: nobody could come in");
    if ((t->to_cert == NULL) != (t->to_key == NULL))
        return args_usage_error(spec, "--to-cert and --to-key go together");
    if (t->to_no_verify && t->to_ca != NULL)
        return args_usage_error(spec, "--to-no-verify with --to-ca: it would not be used");
    if (t->to_name != NULL && (t->to_name[0] == '\0' || conf_rule_host(t->to_name) != NULL))
        return args_usage_error(spec, "--to-name \"%s\" %s", t->to_name,
                                t->to_name[0] == '\0' ? "is empty" : conf_rule_host(t->to_name));
    return 0;
}

static int check_files(const struct relay_tls *t)
{
    struct err err = {0};
    int bad = 0;

    for (size_t i = 0; i < t->cert.n && bad == 0; i++)
        bad =
            check_pair("cert", "key", &(struct tls_pair){t->cert.items[i], t->key.items[i], NULL});
    if (bad == 0 && t->client_ca != NULL)
        bad = check_file("client-ca", tls_check_chain(t->client_ca, &err), &err);
    if (bad == 0 && t->to_ca != NULL)
        bad = check_file("to-ca", tls_check_chain(t->to_ca, &err), &err);
    if (bad == 0 && t->to_cert != NULL)
        bad = check_pair("to-cert", "to-key", &(struct tls_pair){t->to_cert, t->to_key, NULL});
    return bad;
}

int relay_tls_check(const struct relay_tls *t, const struct args_spec *spec)
{
    int bad = check_word(spec, "client-auth", t->client_auth, "required", "optional");

    if (bad == 0)
        bad = check_word(spec, "min-tls", t->min_tls, "1.2", "1.3");
    for (size_t i = 0; i < t->tenant.n && bad == 0; i++)
        bad = check_tenant(spec, t->tenant.items[i]);
    if (bad == 0)
        bad = check_together(t, spec);
    return bad != 0 ? bad : check_files(t);
}

static const char *text_or_empty(const char *text)
{
    return text != NULL ? text : "";
}

static void *take(struct process_conf *p, size_t bytes)
{
    void *const room = arena_alloc(&p->arena, bytes > 0 ? bytes : 1);

    check(room != NULL); /* as many as argv has */
    return room;
}

static struct tenant_conf *tenant_named(struct process_conf *p, const char *name, size_t len,
                                        size_t max_san)
{
    struct tenant_conf *t = NULL;

    for (size_t i = 0; i < p->n_tenants; i++) {
        t = &p->tenants[i];
        if (strlen(t->name) == len && memcmp(t->name, name, len) == 0)
            return t;
    }
    t = &p->tenants[p->n_tenants++];
    t->name = arena_strndup(&p->arena, name, len);
    t->san = take(p, max_san * sizeof(*t->san));
    t->n_san = 0;
    check(t->name != NULL);
    return t;
}

static void fill_tenants(const struct relay_tls *t, struct process_conf *p)
{
    p->tenants = take(p, t->tenant.n * sizeof(*p->tenants));
    for (size_t i = 0; i < t->tenant.n; i++) {
        const char *const text = t->tenant.items[i], *const equals = strchr(text, '=');
        struct tenant_conf *const tenant =
            tenant_named(p, text, (size_t)(equals - text), t->tenant.n);

        tenant->san[tenant->n_san++] = equals + 1;
    }
}

void relay_tls_fill(const struct relay_tls *t, struct process_conf *p)
{
    const size_t n_more = t->cert.n > 0 ? t->cert.n - 1 : 0;
    struct certificate_conf *const more = take(p, n_more * sizeof(*more));

    fill_tenants(t, p);
    for (size_t i = 0; i < n_more; i++)
        more[i] = (struct certificate_conf){t->cert.items[i + 1], t->key.items[i + 1], ""};
    for (size_t i = 0; i < p->n_listeners; i++) {
        struct listener_conf *const l = &p->listeners[i];

        l->cert = t->cert.n > 0 ? t->cert.items[0] : "";
        l->key = t->cert.n > 0 ? t->key.items[0] : "";
        l->certificates = more;
        l->n_certificates = n_more;
        l->client_ca = text_or_empty(t->client_ca);
        l->client_auth = t->client_auth != NULL && strcmp(t->client_auth, "optional") == 0
                             ? CLIENT_AUTH_OPTIONAL
                             : CLIENT_AUTH_REQUIRED;
        l->min_tls =
            t->min_tls != NULL && strcmp(t->min_tls, "1.3") == 0 ? MIN_TLS_1_3 : MIN_TLS_1_2;
        l->tenants_only = t->tenants_only;
    }
}

struct upstream_tls_conf relay_tls_upstream(const struct relay_tls *t)
{
    const bool on = t->to_tls || t->to_no_verify || t->to_ca != NULL || t->to_cert != NULL ||
                    t->to_name != NULL;

    return (struct upstream_tls_conf){
        .mode = t->to_no_verify ? UPSTREAM_TLS_NO_VERIFY
                : on            ? UPSTREAM_TLS_VERIFY
                                : UPSTREAM_TLS_OFF,
        .ca = text_or_empty(t->to_ca),
        .cert = text_or_empty(t->to_cert),
        .key = text_or_empty(t->to_key),
        .name = text_or_empty(t->to_name),
    };
}
