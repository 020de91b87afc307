/* net/tls_none.c - contexts of net/tls.h in a build without TLS: asking for one is refused. */
#include <errno.h>

#include "net/tls.h"

struct tls_ctx *tls_ctx_new(const struct tls_conf *conf, struct err *err)
{
    (void)conf;
    err_set(err, -ENOTSUP, "TLS is not part of this build");
    return NULL;
}

struct tls_ctx *tls_ctx_unref(struct tls_ctx *ctx)
{
    (void)ctx;
    return NULL;
}
