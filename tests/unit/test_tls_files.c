/* Files of net/tls.h that change, are half-written, expire or can't be used; what is stapled. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>
#include <openssl/ocsp.h>

#include "tests/unit/tls_meeting.h"

static bool shows(struct tls_ctx *ctx, const struct identity *id)
{
    struct meeting m;

    meeting_init(&m, ctx, &(struct client_as){0});
    assert_true(meet(&m));
    const bool same = X509_cmp(SSL_get0_peer_certificate(m.client), id->cert) == 0;

    meeting_fini(&m);
    return same;
}

static void only_a_whole_new_pair_takes_the_place_of_the_old(void **state)
{
    struct identity next, stale;
    char cert[160], key[160];
    struct tls_conf conf = server_conf(NULL);
    struct tls_ctx *ctx;
    struct err err;
    uint64_t stamp;

    (void)state;
    identity_make(&next, "next", "DNS:default.test", &ca);
    identity_make_as(
        &stale, &(struct identity_spec){
                    .name = "stale", .san = "DNS:default.test", .issuer = &ca, .lasts_s = -3600});
    snprintf(cert, sizeof(cert), "%s/live.crt", dir);
    snprintf(key, sizeof(key), "%s/live.key", dir);
    copy_file(server_id.cert_file, cert);
    copy_file(server_id.key_file, key);
    conf.cert_file = cert;
    conf.key_file = key;
    ctx = new_ctx(&conf);
    stamp = tls_ctx_stamp(ctx);
    assert_true(stamp == tls_ctx_stamp(ctx));

    copy_file(next.cert_file, cert); /* the key is still the old one's */
    assert_true(stamp != tls_ctx_stamp(ctx));
    assert_true(tls_ctx_reload(ctx, &err) < 0);
    assert_non_null(strstr(err.text, "live.key: the key does not belong to"));
    assert_true(shows(ctx, &server_id));

    copy_file(next.key_file, key);
    assert_int_equal(truncate(key, 60), 0);
    assert_true(tls_ctx_reload(ctx, &err) < 0);
    assert_non_null(strstr(err.text, "live.key"));
    assert_true(shows(ctx, &server_id));

    unlink(key);
    assert_true(tls_ctx_reload(ctx, &err) < 0);
    assert_non_null(strstr(err.text, "No such file"));

    copy_file(stale.cert_file, cert);
    copy_file(stale.key_file, key);
    assert_true(tls_ctx_reload(ctx, &err) < 0);
    assert_non_null(strstr(err.text, "live.crt: expired on"));
    assert_true(shows(ctx, &server_id));

    copy_file(next.cert_file, cert);
    copy_file(next.key_file, key);
    assert_int_equal(tls_ctx_reload(ctx, &err), 0);
    assert_true(shows(ctx, &next));
    ctx = tls_ctx_unref(ctx);
    unlink(cert);
    unlink(key);
    identity_drop(&next);
    identity_drop(&stale);
}

static void *reload_often(void *arg)
{
    for (int i = 0; i < 200; i++)
        check(tls_ctx_reload(arg, NULL) == 0);
    return NULL;
}

static void files_change_while_other_threads_shake_hands(void **state)
{
    const struct tls_conf conf = server_conf(ca.cert_file);
    struct tls_ctx *ctx = new_ctx(&conf);
    struct meeting long_lived;
    pthread_t thread;
    uint8_t byte = 1, wire[256];

    (void)state;
    meeting_init(&long_lived, ctx, &(struct client_as){.id = &client_id});
    assert_true(meet(&long_lived));
    assert_int_equal(pthread_create(&thread, NULL, reload_often, ctx), 0);
    for (int i = 0; i < 50; i++)
        assert_true(meets(ctx, &(struct client_as){.id = &client_id}, NULL));
    pthread_join(thread, NULL);
    assert_int_equal(SSL_write(long_lived.client, &byte, 1), 1); /* begun with the first files */
    const int n = BIO_read(long_lived.to_server, wire, sizeof(wire));

    tls_feed(long_lived.server, wire, (size_t)n);
    assert_int_equal(tls_read(long_lived.server, wire, sizeof(wire), &long_lived.err), 1);
    meeting_fini(&long_lived);
    ctx = tls_ctx_unref(ctx);
}

static void certificates_say_when_they_end(void **state)
{
    const struct tls_conf conf = server_conf(NULL);
    struct tls_ctx *ctx = new_ctx(&conf);
    struct tls_cert_info info[2];
    const time_t now = time(NULL);

    (void)state;
    assert_int_equal(tls_ctx_certs(ctx, info, 2), 1);
    assert_string_equal(info[0].file, server_id.cert_file);
    assert_in_range(info[0].not_after_s - now, 3000, 3600);
    ctx = tls_ctx_unref(ctx);
}

static void unusable_files_say_what_to_do(void **state)
{
    struct tls_conf conf = server_conf(NULL);
    char file[160];
    struct err err;
    FILE *f;

    (void)state;
    snprintf(file, sizeof(file), "%s/odd", dir);
    f = fopen(file, "w");
    PEM_write_PrivateKey(f, server_id.key, EVP_aes_128_cbc(), (const unsigned char *)"x", 1, NULL,
                         NULL);
    fclose(f);
    conf.key_file = file;
    assert_null(tls_ctx_new(&conf, &err));
    assert_non_null(
        strstr(err.text, "odd: the private key is encrypted; give one without a passphrase"));
    conf.key_file = server_id.cert_file;
    assert_null(tls_ctx_new(&conf, &err));
    assert_non_null(strstr(err.text, "there is no whole private key in PEM form in it"));
    conf = server_conf(dir);
    assert_null(tls_ctx_new(&conf, &err));
    assert_non_null(strstr(err.text, "is not a file"));
    unlink(file);
}

/* ---- stapling ---- */

/* A response about cert, signed by ca, that is good until then. */
static void write_ocsp(const char *file, X509 *cert, long until_s)
{
    OCSP_BASICRESP *const basic = OCSP_BASICRESP_new();
    OCSP_CERTID *const id = OCSP_cert_to_id(EVP_sha1(), cert, ca.cert);
    ASN1_TIME *const from = X509_gmtime_adj(NULL, -7200);
    ASN1_TIME *const until = X509_gmtime_adj(NULL, until_s);
    OCSP_RESPONSE *response;
    FILE *const f = fopen(file, "wb");

    OCSP_basic_add1_status(basic, id, V_OCSP_CERTSTATUS_GOOD, 0, NULL, from, until);
    assert_int_equal(OCSP_basic_sign(basic, ca.cert, ca.key, EVP_sha256(), NULL, 0), 1);
    response = OCSP_response_create(OCSP_RESPONSE_STATUS_SUCCESSFUL, basic);
    ASN1_item_i2d_fp(ASN1_ITEM_rptr(OCSP_RESPONSE), f, response);
    fclose(f);
    OCSP_RESPONSE_free(response);
    OCSP_BASICRESP_free(basic);
    OCSP_CERTID_free(id);
    ASN1_TIME_free(from);
    ASN1_TIME_free(until);
}

static long stapled_bytes(struct tls_ctx *ctx)
{
    struct meeting m;
    const unsigned char *staple = NULL;

    meeting_init(&m, ctx, &(struct client_as){0});
    SSL_set_tlsext_status_type(m.client, TLSEXT_STATUSTYPE_ocsp);
    assert_true(meet(&m));
    const long len = SSL_get_tlsext_status_ocsp_resp(m.client, &staple);

    meeting_fini(&m);
    return len;
}

static void only_a_response_that_helps_is_stapled(void **state)
{
    struct tls_conf conf = server_conf(NULL);
    char file[160];
    struct tls_ctx *ctx;
    struct err err;
    FILE *f;

    (void)state;
    snprintf(file, sizeof(file), "%s/staple", dir);
    ctx = new_ctx(&conf);
    assert_int_equal(stapled_bytes(ctx), -1); /* none was given: the handshake does without */
    ctx = tls_ctx_unref(ctx);

    conf.ocsp_file = file;
    assert_null(tls_ctx_new(&conf, &err));
    assert_non_null(strstr(err.text, "staple: No such file"));
    write_ocsp(file, server_id.cert, 3600);
    ctx = new_ctx(&conf);
    assert_true(stapled_bytes(ctx) > 100);

    f = fopen(file, "wb"); /* caught half-written */
    fwrite("0\x82", 1, 2, f);
    fclose(f);
    assert_true(tls_ctx_reload(ctx, &err) < 0);
    assert_non_null(strstr(err.text, "staple: is not an OCSP response"));
    assert_true(stapled_bytes(ctx) > 100);
    write_ocsp(file, client_id.cert, 3600);
    assert_true(tls_ctx_reload(ctx, &err) < 0);
    assert_non_null(strstr(err.text, "staple: the OCSP response is not about the certificate"));
    write_ocsp(file, server_id.cert, -60);
    assert_int_equal(tls_ctx_reload(ctx, &err), 0);
    assert_int_equal(stapled_bytes(ctx), -1);
    ctx = tls_ctx_unref(ctx);
    unlink(file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_a_whole_new_pair_takes_the_place_of_the_old),
        cmocka_unit_test(files_change_while_other_threads_shake_hands),
        cmocka_unit_test(certificates_say_when_they_end),
        cmocka_unit_test(unusable_files_say_what_to_do),
        cmocka_unit_test(only_a_response_that_helps_is_stapled),
    };

    return cmocka_run_group_tests(tests, make_all, drop_all);
}
