/* net/tls_ocsp.c - OCSP responses that we are given in files and staple (RFC 6960, RFC 6066 8).
 * Nothing is fetched: whoever renews the file does that. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <openssl/ocsp.h>

#include "base/xalloc.h"
#include "net/tls_parts.h"

#define OCSP_BYTES_MAX (16l * 1024) /* usual ones have 0.5 to 2 KiB; each handshake sends it */

static int read_bytes(struct tls_staple *s, const char *file, struct err *err)
{
    FILE *const f = fopen(file, "rb");
    size_t n;

    if (f == NULL)
        return err_set(err, -EINVAL, "%s: %s", file, strerror(errno));
    s->bytes = xcalloc(1, OCSP_BYTES_MAX + 1);
    n = fread(s->bytes, 1, OCSP_BYTES_MAX + 1, f);
    fclose(f);
    if (n > OCSP_BYTES_MAX)
        return err_set(err, -EINVAL, "%s: is over the limit of 16 KiB", file);
    s->len = n;
    return 0;
}

/* What the response says of this certificate; NULL: nothing. */
static OCSP_SINGLERESP *find_single(OCSP_BASICRESP *basic, X509 *cert)
{
    for (int i = 0; i < OCSP_resp_count(basic); i++) {
        OCSP_SINGLERESP *const single = OCSP_resp_get0(basic, i);
        ASN1_INTEGER *serial = NULL;

        OCSP_id_get0_info(NULL, NULL, NULL, &serial,
                          (OCSP_CERTID *)(uintptr_t)OCSP_SINGLERESP_get0_id(single));
        if (serial != NULL && ASN1_INTEGER_cmp(serial, X509_get0_serialNumber(cert)) == 0)
            return single;
    }
    return NULL;
}

static int judge(struct tls_staple *s, OCSP_RESPONSE *response, X509 *cert, const char *file,
                 struct err *err)
{
    OCSP_BASICRESP *basic;
    OCSP_SINGLERESP *single;
    ASN1_GENERALIZEDTIME *until = NULL;
    int r = 0;

    if (OCSP_response_status(response) != OCSP_RESPONSE_STATUS_SUCCESSFUL)
        return err_set(err, -EINVAL, "%s: is an OCSP error: %s", file,
                       OCSP_response_status_str(OCSP_response_status(response)));
    basic = OCSP_response_get1_basic(response);
    single = basic != NULL ? find_single(basic, cert) : NULL;
    if (single == NULL)
        r = err_set(err, -EINVAL, "%s: the OCSP response is not about the certificate", file);
    else
        OCSP_single_get0_status(single, NULL, NULL, NULL, &until);
    if (until != NULL)
        s->until = ASN1_STRING_dup(until);
    OCSP_BASICRESP_free(basic);
    return r;
}

int tls_staple_read(struct tls_staple *s, const char *file, X509 *cert, struct err *err)
{
    OCSP_RESPONSE *response;
    const unsigned char *p;
    int r = read_bytes(s, file, err);

    if (r < 0)
        return r;
    p = s->bytes;
    response = d2i_OCSP_RESPONSE(NULL, &p, (long)s->len);
    if (response == NULL)
        return err_set(err, -EINVAL, "%s: is not an OCSP response in DER form", file);
    r = judge(s, response, cert, file, err);
    OCSP_RESPONSE_free(response);
    return r;
}

void tls_staple_fini(struct tls_staple *s)
{
    free(s->bytes);
    ASN1_STRING_free(s->until);
}

/* An expired response helps nobody: clients refuse it, and do without one. */
int tls_staple_on_status(SSL *ssl, void *arg)
{
    const struct tls_files *const f = arg;
    X509 *const shown = SSL_get_certificate(ssl);

    for (size_t i = 0; i < f->n_certs; i++) {
        const struct tls_staple *const s = &f->certs[i].staple;
        void *bytes;

        if (s->bytes == NULL || X509_cmp(shown, f->certs[i].leaf) != 0)
            continue;
        if (s->until != NULL && X509_cmp_current_time(s->until) < 0)
            return SSL_TLSEXT_ERR_NOACK;
        bytes = OPENSSL_memdup(s->bytes, s->len);
        if (bytes == NULL)
            return SSL_TLSEXT_ERR_NOACK;
        SSL_set_tlsext_status_ocsp_resp(ssl, bytes, (long)s->len);
        return SSL_TLSEXT_ERR_OK;
    }
    return SSL_TLSEXT_ERR_NOACK;
}
