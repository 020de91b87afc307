/* gateway/admin.h - the admin HTTP listener: routes with JSON bodies, on the control loop.
 *
 * Owns:      the socket, libmicrohttpd's daemon (driven by our loop, no thread), open requests.
 * Called by: the verbs; the controller adds its own routes.
 * Lifetime:  admin_new .. admin_free. A request lives from its handler to admin_reply, which comes
 *            exactly once: in the handler, or later in the control loop.
 * Thread:    the control loop's.
 *
 * No authentication here: the default address is loopback. So a web page that the operator has open
 * must not get at it through the browser: requests of another origin are refused, and on loopback
 * those under another host's name (DNS rebinding).
 */
#ifndef GATEWAY_ADMIN_H
#define GATEWAY_ADMIN_H

#include <stddef.h>

#include "base/err.h"

struct loop;
struct admin;
struct admin_request;

#define ADMIN_BODY_BYTES (16u * 1024 * 1024) /* a config tree; a longer body: 413 */

typedef void (*admin_handler_fn)(struct admin_request *r, void *arg);

/* address: "127.0.0.1:7080"; port 0: any. NULL with err. */
struct admin *admin_new(struct loop *loop, const char *address, struct err *err);
struct admin *admin_free(struct admin *a);        /* open requests get 503; returns NULL */
const char *admin_address(const struct admin *a); /* port filled in */

/* path: "/v1/status", or "/v1/models/" + "*": the star takes the rest, see admin_request_rest. The
 * longest match wins. A known path with another method: 405; an unknown path: 404. */
void admin_route(struct admin *a, const char *method, const char *path, admin_handler_fn fn,
                 void *arg);

/* Valid until admin_reply. */
const char *admin_request_body(const struct admin_request *r, size_t *ret_len); /* NUL-terminated */
const char *admin_request_query(const struct admin_request *r, const char *name); /* NULL: absent */
const char *admin_request_header(const struct admin_request *r, const char *name);
const char *admin_request_rest(const struct admin_request *r); /* what the star took; "" without */

/* body: copied. type: "application/json", ... */
void admin_reply(struct admin_request *r, unsigned status, const char *type, const char *body,
                 size_t len);
void admin_reply_json(struct admin_request *r, unsigned status, const char *json);
/* {"error": "..."} */
void admin_reply_error(struct admin_request *r, unsigned status, const char *fmt, ...)
    PRINTF_LIKE(3, 4);

#endif
