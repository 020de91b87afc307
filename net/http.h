/* net/http.h - HTTP/1.1 client of the control plane (Consul, Kubernetes, our own admin API).
 *
 * Owns:      the libcurl multi handle; the only file that calls libcurl.
 * Called by: conf and drivers on the control loop (http_start); CLI verbs (http_do). Never a
 * worker. Lifetime:  http_client_new .. http_client_free (running requests end without their
 * callback). Thread:    the loop's; http_do: any.
 */
#ifndef NET_HTTP_H
#define NET_HTTP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "net/loop.h"

struct http_client;
struct http_call;

struct http_request {
    const char *method;         /* NULL: GET, or POST with a body */
    const char *url;            /* http(s)://... */
    const char *unix_socket;    /* path, or NULL */
    const char *const *headers; /* "Name: value", NULL at the end; or NULL */
    const void *body;
    size_t body_len;
    uint64_t timeout_us;         /* of the whole request; 0: 30 s */
    uint64_t connect_timeout_us; /* 0: 3 s */
    size_t max_response_bytes;   /* 0: 16 MiB */
    const char *ca_file;         /* https: NULL: the system's */
};

struct http_response {
    int status;       /* 200 ... */
    const char *body; /* NUL-terminated past body_len */
    size_t body_len;
    const char *content_type; /* "" if none */
    uint64_t consul_index;    /* X-Consul-Index, 0 if none */
};

/* Exactly once, from the loop. resp NULL: err says why there is no answer. */
typedef void (*http_done_fn)(void *arg, const struct http_response *resp, const struct err *err);
/* A streamed answer (Kubernetes watch): each piece as it comes; the final resp has no body. */
typedef void (*http_piece_fn)(void *arg, const char *p, size_t len);

struct http_client *http_client_new(struct loop *l);
struct http_client *http_client_free(struct http_client *c);
/* Everything in req is copied. on_piece: NULL: the body is gathered. */
struct http_call *http_start(struct http_client *c, const struct http_request *req,
                             http_piece_fn on_piece, http_done_fn done, void *arg);
void http_cancel(struct http_call *call); /* done is not called; the call is gone */

/* Blocking. 0 and a response to be freed by http_response_fini, or -errno with err:
 * -ECONNREFUSED, -ETIMEDOUT, -EMSGSIZE, -EIO. */
int http_do(const struct http_request *req, struct http_response *ret_resp, struct err *err);
void http_response_fini(struct http_response *r);

#endif
