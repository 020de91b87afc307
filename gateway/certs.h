/* gateway/certs.h - the TLS contexts of this process, kept in step with their files.
 *
 * Owns:      a context per listener and per way to reach replicas, the table of tenants' names, a
 *            timer.
 * Called by: the verbs' common part (penstock/front.c) makes it; gateway.c, roster and controller
 *            take contexts; status.c prints it.
 * Lifetime:  certs_new .. certs_free; contexts are valid as long.
 * Thread:    control. Contexts are used by workers, which see a reload with their next connection.
 *
 * Files are looked at four times a second and after SIGHUP. One that changed is read when it has
 * been the same for two looks, so that a pair is seldom caught half-written; what can't be used
 * changes nothing, is logged as an error and counted.
 */
#ifndef GATEWAY_CERTS_H
#define GATEWAY_CERTS_H

#include "base/buf.h"
#include "base/err.h"
#include "conf/process.h"
#include "net/tls.h"

struct certs;
struct loop;

struct certs *certs_new(struct loop *control);
struct certs *certs_free(struct certs *c); /* NULL is fine; returns NULL */

/* For each listener of p, which stays as long as c. 0 or -EINVAL with err. */
int certs_add_listeners(struct certs *c, const struct process_conf *p, struct err *err);
/* NULL: cleartext, as all listeners are when c is NULL. */
struct tls_ctx *certs_listener(const struct certs *c, size_t i);
/* The same settings get the same context. NULL with err; mode is not UPSTREAM_TLS_OFF. */
struct tls_ctx *certs_upstream(struct certs *c, const struct upstream_tls_conf *conf,
                               struct err *err);

/* What a model's endpoints are reached with; NULL: cleartext. false: its TLS settings can't be
 * used, which is logged: nothing may go there. */
bool certs_of_model(struct certs *c, const struct model_conf *m, struct tls_ctx **ret_tls);

void certs_reload(struct certs *c); /* what has changed, without waiting for a second look */
void certs_write_metrics(const struct certs *c, struct buf *b);

#endif
