/* net/tls_names.c - names in certificates: who a client is, and which of our own pairs a name
 * means. Only URI and DNS subject alternative names count (RFC 9525 6.3: never the common name). */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include <openssl/x509v3.h>

#include "base/xalloc.h"
#include "net/tls_parts.h"

#define DNS_BYTES_MAX 253 /* RFC 1035 2.3.4, without the last dot */

static const ASN1_STRING *text_of(const GENERAL_NAME *g)
{
    return g->type == GEN_URI || g->type == GEN_DNS ? g->d.ia5 : NULL;
}

static bool has_broken_name(const GENERAL_NAMES *names)
{
    for (int i = 0; i < sk_GENERAL_NAME_num(names); i++) {
        const ASN1_STRING *const s = text_of(sk_GENERAL_NAME_value(names, i));

        if (s != NULL && (ASN1_STRING_length(s) <= 0 ||
                          memchr(ASN1_STRING_get0_data(s), '\0', (size_t)ASN1_STRING_length(s))))
            return true;
    }
    return false;
}

static const void *find_of_type(const struct map *identities, const GENERAL_NAMES *names, int type)
{
    for (int i = 0; i < sk_GENERAL_NAME_num(names); i++) {
        const GENERAL_NAME *const g = sk_GENERAL_NAME_value(names, i);

        if (g->type != type)
            continue;

        const void *const found = map_get(identities, (const char *)ASN1_STRING_get0_data(g->d.ia5),
                                          (size_t)ASN1_STRING_length(g->d.ia5));

        if (found != NULL)
            return found;
    }
    return NULL;
}

static const void *find(const struct map *identities, const GENERAL_NAMES *names)
{
    const void *found = NULL;

    if (identities == NULL || names == NULL)
        return NULL;
    found = find_of_type(identities, names, GEN_URI);
    return found != NULL ? found : find_of_type(identities, names, GEN_DNS);
}

const char *tls_names_refusal(const struct tls_ctx *ctx, X509 *cert)
{
    int critical = -1;
    GENERAL_NAMES *const names = X509_get_ext_d2i(cert, NID_subject_alt_name, &critical, NULL);
    const char *refusal = NULL;

    if (names == NULL && critical != -1)
        refusal = "its subject alternative names can't be read, or come twice";
    else if (names != NULL && has_broken_name(names))
        refusal = "one of its subject alternative names is empty or has a NUL in it";
    else if (ctx->conf.must_be_known && find(ctx->conf.identities, names) == NULL)
        refusal = "none of its subject alternative names is a tenant's";
    GENERAL_NAMES_free(names);
    return refusal;
}

const void *tls_names_identity(const struct tls_ctx *ctx, X509 *cert)
{
    GENERAL_NAMES *names;
    const void *found;

    if (ctx->conf.identities == NULL)
        return NULL;
    names = X509_get_ext_d2i(cert, NID_subject_alt_name, NULL, NULL);
    found = find(ctx->conf.identities, names);
    GENERAL_NAMES_free(names);
    return found;
}

static char *first_of_type(const GENERAL_NAMES *names, int type)
{
    for (int i = 0; names != NULL && i < sk_GENERAL_NAME_num(names); i++) {
        const GENERAL_NAME *const g = sk_GENERAL_NAME_value(names, i);

        if (g->type == type)
            return xstrndup((const char *)ASN1_STRING_get0_data(g->d.ia5),
                            (size_t)ASN1_STRING_length(g->d.ia5));
    }
    return NULL;
}

char *tls_names_first(X509 *cert)
{
    GENERAL_NAMES *const names = X509_get_ext_d2i(cert, NID_subject_alt_name, NULL, NULL);
    char *name = first_of_type(names, GEN_URI);

    if (name == NULL)
        name = first_of_type(names, GEN_DNS);
    GENERAL_NAMES_free(names);
    return name;
}

/* ---- our own names ---- */

/* Lower case into dst[DNS_BYTES_MAX]; 0: no such name. */
static size_t fold(char *dst, const char *name, size_t len)
{
    if (len > DNS_BYTES_MAX)
        return 0;
    for (size_t i = 0; i < len; i++)
        dst[i] = (char)tolower((unsigned char)name[i]);
    return len;
}

void tls_names_index(struct map *by_name, struct tls_cert *cert)
{
    GENERAL_NAMES *const names = X509_get_ext_d2i(cert->leaf, NID_subject_alt_name, NULL, NULL);

    for (int i = 0; names != NULL && i < sk_GENERAL_NAME_num(names); i++) {
        const GENERAL_NAME *const g = sk_GENERAL_NAME_value(names, i);
        char name[DNS_BYTES_MAX];
        size_t len = 0;

        if (g->type == GEN_DNS)
            len = fold(name, (const char *)ASN1_STRING_get0_data(g->d.ia5),
                       (size_t)ASN1_STRING_length(g->d.ia5));
        if (len > 0 && map_get(by_name, name, len) == NULL)
            map_set(by_name, name, len, cert);
    }
    GENERAL_NAMES_free(names);
}

/* The exact name before the wildcard, which stands for one label (RFC 9525 6.3). */
struct tls_cert *tls_names_lookup(const struct map *by_name, const char *server_name)
{
    char name[DNS_BYTES_MAX];
    const size_t len = fold(name, server_name, strlen(server_name));
    struct tls_cert *found = len > 0 ? map_get(by_name, name, len) : NULL;
    char *dot;

    if (found != NULL || len == 0)
        return found;
    dot = memchr(name, '.', len);
    if (dot == NULL || dot == name)
        return NULL;
    dot[-1] = '*';
    return map_get(by_name, dot - 1, len - (size_t)(dot - 1 - name));
}
