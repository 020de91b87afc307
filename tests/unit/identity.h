/* tests/unit/identity.h - certificates made in the test: a key, a certificate, and both as files.
 *
 * Owns:      the files, in a folder that the test made.
 * Lifetime:  identity_make .. identity_drop.
 */
#ifndef TESTS_UNIT_IDENTITY_H
#define TESTS_UNIT_IDENTITY_H

#include <stdbool.h>
#include <stdio.h>
#include <unistd.h>

#include <openssl/ec.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>

struct identity {
    EVP_PKEY *key;
    X509 *cert;
    char cert_file[128], key_file[128];
};

static char dir[] = "/tmp/penstock-tls-XXXXXX"; /* for mkdtemp */

static inline void add_ext(X509 *cert, int nid, const char *value)
{
    X509V3_CTX ctx;
    X509_EXTENSION *ext;

    X509V3_set_ctx_nodb(&ctx);
    X509V3_set_ctx(&ctx, cert, cert, NULL, NULL, 0);
    ext = X509V3_EXT_conf_nid(NULL, &ctx, nid, value);
    assert_non_null(ext);
    X509_add_ext(cert, ext, -1);
    X509_EXTENSION_free(ext);
}

/* DNS:name with bytes of any value, which no config text can say. */
static inline void add_raw_dns(X509 *cert, const void *bytes, int len)
{
    GENERAL_NAMES *const names = sk_GENERAL_NAME_new_null();
    GENERAL_NAME *const name = GENERAL_NAME_new();
    ASN1_IA5STRING *const text = ASN1_IA5STRING_new();

    ASN1_STRING_set(text, bytes, len);
    GENERAL_NAME_set0_value(name, GEN_DNS, text);
    sk_GENERAL_NAME_push(names, name);
    X509_add1_ext_i2d(cert, NID_subject_alt_name, names, 0, 0);
    GENERAL_NAMES_free(names);
}

struct identity_spec {
    const char *name; /* of the files, and the common name */
    const char *san;  /* "DNS:a,URI:b"; NULL: none */
    const char *raw_dns;
    int raw_dns_len;
    const struct identity *issuer; /* NULL: self-signed authority */
    bool is_ca;
    long lasts_s; /* 0: an hour; may lie in the past */
};

static inline void identity_write(const struct identity *id)
{
    FILE *f = fopen(id->cert_file, "w");

    PEM_write_X509(f, id->cert);
    fclose(f);
    f = fopen(id->key_file, "w");
    PEM_write_PrivateKey(f, id->key, NULL, NULL, 0, NULL, NULL);
    fclose(f);
}

static inline void identity_make_as(struct identity *id, const struct identity_spec *spec)
{
    static long serial;
    const bool is_ca = spec->is_ca || spec->issuer == NULL;
    X509_NAME *subject;

    id->key = EVP_EC_gen("P-256");
    id->cert = X509_new();
    X509_set_version(id->cert, 2);
    ASN1_INTEGER_set(X509_get_serialNumber(id->cert), ++serial);
    X509_gmtime_adj(X509_getm_notBefore(id->cert), -7200);
    X509_gmtime_adj(X509_getm_notAfter(id->cert), spec->lasts_s != 0 ? spec->lasts_s : 3600);
    X509_set_pubkey(id->cert, id->key);
    subject = X509_get_subject_name(id->cert);
    X509_NAME_add_entry_by_txt(subject, "CN", MBSTRING_ASC, (const unsigned char *)spec->name, -1,
                               -1, 0);
    X509_set_issuer_name(id->cert, spec->issuer != NULL ? X509_get_subject_name(spec->issuer->cert)
                                                        : subject);
    add_ext(id->cert, NID_basic_constraints, is_ca ? "critical,CA:TRUE" : "CA:FALSE");
    if (spec->san != NULL)
        add_ext(id->cert, NID_subject_alt_name, spec->san);
    if (spec->raw_dns != NULL)
        add_raw_dns(id->cert, spec->raw_dns, spec->raw_dns_len);
    assert_true(
        X509_sign(id->cert, spec->issuer != NULL ? spec->issuer->key : id->key, EVP_sha256()) > 0);
    snprintf(id->cert_file, sizeof(id->cert_file), "%s/%s.crt", dir, spec->name);
    snprintf(id->key_file, sizeof(id->key_file), "%s/%s.key", dir, spec->name);
    identity_write(id);
}

/* issuer NULL: self-signed authority. */
static inline void identity_make(struct identity *id, const char *name, const char *san,
                                 const struct identity *issuer)
{
    identity_make_as(id, &(struct identity_spec){.name = name, .san = san, .issuer = issuer});
}

static inline void identity_drop(struct identity *id)
{
    unlink(id->cert_file);
    unlink(id->key_file);
    X509_free(id->cert);
    EVP_PKEY_free(id->key);
}

#endif
