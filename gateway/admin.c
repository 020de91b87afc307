#include "gateway/admin.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ev.h>
#include <microhttpd.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/json_out.h"
#include "base/list.h"
#include "base/xalloc.h"
#include "net/conn.h"
#include "net/loop.h"

#define MAX_CONNECTIONS 64 /* operators, a scraper, a console */
#define IDLE_S          5  /* those that say nothing may not keep others out for longer */
#define TURNS_A_WAKE    16 /* MHD_run passes for one readiness: what is left waits for the next */
#define ACCEPT_PAUSE_US (100 * US_PER_MS) /* out of descriptors: some will end in that time */

struct route {
    struct list node;
    char *method, *path;
    size_t path_len;
    bool takes_rest; /* the path ended in a star, which is cut off */
    admin_handler_fn fn;
    void *arg;
};

struct admin_request {
    struct list node; /* admin.requests */
    struct admin *admin;
    struct MHD_Connection *connection;
    struct buf body;
    const struct route *route; /* NULL: `refusal` is the answer */
    unsigned refusal;
    const char *rest;
    bool suspended;  /* the handler replies later */
    unsigned status; /* 0: no reply yet */
    char *reply_type, *reply_body;
    size_t reply_len;
};

struct admin {
    struct loop *loop;
    struct MHD_Daemon *daemon;
    int fd; /* the listening socket; ours, see on_acceptable */
    ev_io acceptable;
    struct timer accept_pause;
    unsigned n_connections;
    ev_io readable;  /* MHD's epoll descriptor */
    ev_timer expiry; /* MHD's own time limits */
    struct list routes;
    struct list requests;
    struct net_addr address;
    bool on_loopback;
    bool ending;
};

/* Lets MHD work and arms the watchers again. */
static void run_daemon(struct admin *a)
{
    MHD_UNSIGNED_LONG_LONG wait_ms = 0;

    for (int i = 0; i < TURNS_A_WAKE; i++) {
        MHD_run(a->daemon);
        if (MHD_get_timeout(a->daemon, &wait_ms) != MHD_YES) {
            ev_timer_stop(a->loop->ev, &a->expiry);
            return;
        }
        if (wait_ms > 0)
            break;
    }
    a->expiry.repeat = wait_ms > 0 ? (double)wait_ms / 1000 : 0.001;
    ev_timer_again(a->loop->ev, &a->expiry);
}

static void on_readable(struct ev_loop *loop, ev_io *w, int revents)
{
    (void)loop;
    (void)revents;
    run_daemon(container_of(w, struct admin, readable));
}

static void on_expiry(struct ev_loop *loop, ev_timer *w, int revents)
{
    (void)loop;
    (void)revents;
    run_daemon(container_of(w, struct admin, expiry));
}

/* MHD would accept by itself, but it stays deaf after it had as many connections as it may, and
 * turns in a circle while the process has no descriptor left. */
static void on_acceptable(struct ev_loop *loop, ev_io *w, int revents)
{
    struct admin *const a = container_of(w, struct admin, acceptable);
    struct sockaddr_storage peer;
    socklen_t len = sizeof(peer);

    (void)revents;
    if (a->n_connections == MAX_CONNECTIONS) {
        ev_io_stop(loop, w); /* until one ends */
        return;
    }
    const int fd = accept4(a->fd, (struct sockaddr *)&peer, &len, SOCK_NONBLOCK | SOCK_CLOEXEC);

    if (fd >= 0) {
        MHD_add_connection(a->daemon, fd, (struct sockaddr *)&peer, len); /* or closes it */
        run_daemon(a);
    } else if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
        ev_io_stop(loop, w);
        timer_start(a->loop, &a->accept_pause, a->loop->now_us + ACCEPT_PAUSE_US);
    }
}

static void on_accept_pause_over(struct timer *t)
{
    struct admin *const a = container_of(t, struct admin, accept_pause);

    ev_io_start(a->loop->ev, &a->acceptable);
}

static void on_connection(void *arg, struct MHD_Connection *connection, void **socket_data,
                          enum MHD_ConnectionNotificationCode what)
{
    struct admin *const a = arg;

    (void)connection;
    (void)socket_data;
    if (what == MHD_CONNECTION_NOTIFY_STARTED) {
        a->n_connections++;
        return;
    }
    if (a->n_connections-- == MAX_CONNECTIONS && !a->ending)
        ev_io_start(a->loop->ev, &a->acceptable);
}

/* Routes */

void admin_route(struct admin *a, const char *method, const char *path, admin_handler_fn fn,
                 void *arg)
{
    struct route *const r = xcalloc(1, sizeof(*r));

    r->method = xstrdup(method);
    r->path_len = strlen(path);
    check(r->path_len > 0 && path[0] == '/');
    r->takes_rest = path[r->path_len - 1] == '*';
    if (r->takes_rest)
        r->path_len--;
    r->path = xstrndup(path, r->path_len);
    r->fn = fn;
    r->arg = arg;
    list_push_back(&a->routes, &r->node);
}

/* HEAD is GET without the body, which MHD leaves out. */
static const char *method_asked(const char *method)
{
    return strcmp(method, MHD_HTTP_METHOD_HEAD) == 0 ? MHD_HTTP_METHOD_GET : method;
}

static bool route_matches(const struct route *r, const char *path)
{
    return r->takes_rest ? strncmp(r->path, path, r->path_len) == 0 : strcmp(r->path, path) == 0;
}

/* The longest match of that method; NULL with ret_refusal 404, or 405 when only the method is
 * wrong. */
static const struct route *find_route(const struct admin *a, const char *method, const char *path,
                                      unsigned *ret_refusal)
{
    const struct route *best = NULL;

    *ret_refusal = MHD_HTTP_NOT_FOUND;
    list_each (&a->routes, it) {
        const struct route *const r = list_entry(it, struct route, node);

        if (!route_matches(r, path))
            continue;
        if (strcmp(r->method, method) != 0) {
            *ret_refusal = MHD_HTTP_METHOD_NOT_ALLOWED;
            continue;
        }
        if (best == NULL || r->path_len > best->path_len)
            best = r;
    }
    return best;
}

/* Requests */

const char *admin_request_body(const struct admin_request *r, size_t *ret_len)
{
    if (ret_len != NULL)
        *ret_len = r->body.len;
    return buf_cstr((struct buf *)(uintptr_t)&r->body);
}

const char *admin_request_query(const struct admin_request *r, const char *name)
{
    return MHD_lookup_connection_value(r->connection, MHD_GET_ARGUMENT_KIND, name);
}

const char *admin_request_header(const struct admin_request *r, const char *name)
{
    return MHD_lookup_connection_value(r->connection, MHD_HEADER_KIND, name);
}

const char *admin_request_rest(const struct admin_request *r)
{
    return r->rest;
}

void admin_reply(struct admin_request *r, unsigned status, const char *type, const char *body,
                 size_t len)
{
    check(r->status == 0 && status >= 100);
    r->status = status;
    r->reply_type = xstrdup(type);
    r->reply_body = xcalloc(len + 1, 1);
    if (len > 0)
        memcpy(r->reply_body, body, len);
    r->reply_len = len;
    if (!r->suspended)
        return;
    r->suspended = false;
    MHD_resume_connection(r->connection); /* it asks us again in its next run, which nothing else */
    ev_feed_event(r->admin->loop->ev, &r->admin->readable, EV_READ); /* wakes (0.9.75) */
}

void admin_reply_json(struct admin_request *r, unsigned status, const char *json)
{
    admin_reply(r, status, "application/json", json, strlen(json));
}

void admin_reply_error(struct admin_request *r, unsigned status, const char *fmt, ...)
{
    struct json_out j;
    struct buf b;
    char text[1024];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    buf_init(&b, SIZE_MAX);
    json_out_init(&j, &b);
    json_out_object(&j, NULL);
    json_out_str(&j, "error", text);
    json_out_end_object(&j);
    buf_append_byte(&b, '\n');
    admin_reply_json(r, status, buf_cstr(&b));
    buf_fini(&b);
}

static void request_free(struct admin_request *r)
{
    list_remove(&r->node);
    buf_fini(&r->body);
    free(r->reply_type);
    free(r->reply_body);
    free(r);
}

static struct admin_request *request_new(struct admin *a, struct MHD_Connection *connection,
                                         const char *url, const char *method)
{
    struct admin_request *const r = xcalloc(1, sizeof(*r));

    r->admin = a;
    r->connection = connection;
    r->rest = "";
    buf_init(&r->body, ADMIN_BODY_BYTES);
    r->route = find_route(a, method_asked(method), url, &r->refusal);
    if (r->route != NULL && r->route->takes_rest)
        r->rest = url + r->route->path_len; /* url lives as long as the request */
    list_push_back(&a->requests, &r->node);
    return r;
}

/* The host part of "host:port", "[ipv6]:port" or either without a port. */
static void host_of(const char *text, char *dst, size_t size)
{
    const char *const end = text[0] == '[' ? strchr(text, ']') : NULL;
    const size_t len = end != NULL ? (size_t)(end - text - 1) : strcspn(text, ":");

    snprintf(dst, size, "%.*s", (int)(len < size ? len : size - 1), end != NULL ? text + 1 : text);
}

static bool host_is_loopback(const char *host)
{
    struct in_addr v4;
    struct in6_addr v6;

    if (inet_pton(AF_INET, host, &v4) == 1)
        return ntohl(v4.s_addr) >> 24 == 127;
    if (inet_pton(AF_INET6, host, &v6) == 1)
        return IN6_IS_ADDR_LOOPBACK(&v6);
    return strcasecmp(host, "localhost") == 0;
}

static bool origin_is_ours(const char *origin, const char *host)
{
    return host != NULL && strncmp(origin, "http://", 7) == 0 && strcasecmp(origin + 7, host) == 0;
}

/* Refuses what a foreign page may have made the browser send. False: refused. */
static bool request_is_from_here(struct admin_request *r)
{
    const char *const host = admin_request_header(r, MHD_HTTP_HEADER_HOST);
    const char *const origin = admin_request_header(r, MHD_HTTP_HEADER_ORIGIN);
    char name[256];

    if (origin != NULL && !origin_is_ours(origin, host)) {
        admin_reply_error(r, MHD_HTTP_FORBIDDEN, "Origin \"%.200s\" is not this page's own",
                          origin);
        return false;
    }
    if (host == NULL || !r->admin->on_loopback)
        return true;
    host_of(host, name, sizeof(name));
    if (host_is_loopback(name))
        return true;
    admin_reply_error(r, MHD_HTTP_FORBIDDEN,
                      "Host \"%.200s\" is not localhost or a loopback address", host);
    return false;
}

/* The pages that are there, for people who look around: at /, and with the 404 of a wrong one. */
static void reply_pages(struct admin_request *r, const char *url)
{
    const bool asked = strcmp(url, "/") == 0;
    char error[256];
    struct buf body;
    struct json_out j;

    snprintf(error, sizeof(error), "no such page: %.200s", url);
    buf_init(&body, ADMIN_BODY_BYTES);
    json_out_init(&j, &body);
    json_out_object(&j, NULL);
    if (!asked)
        json_out_str(&j, "error", error);
    json_out_array(&j, "pages");
    list_each (&r->admin->routes, it) {
        const struct route *const page = list_entry(it, struct route, node);
        char line[256];

        snprintf(line, sizeof(line), "%s %s%s", page->method, page->path,
                 page->takes_rest ? "*" : "");
        json_out_str(&j, NULL, line);
    }
    json_out_end_array(&j);
    json_out_end_object(&j);
    admin_reply(r, asked ? MHD_HTTP_OK : MHD_HTTP_NOT_FOUND, "application/json", buf_cstr(&body),
                body.len);
    buf_fini(&body);
}

/* The whole request is here: to the handler, or refused. */
static void request_run(struct admin_request *r, const char *url, const char *method)
{
    if (!request_is_from_here(r))
        return;
    if (r->body.overflow) {
        admin_reply_error(r, MHD_HTTP_CONTENT_TOO_LARGE, "the body is over the limit of %u bytes",
                          ADMIN_BODY_BYTES);
    } else if (r->route != NULL) {
        r->route->fn(r, r->route->arg);
    } else if (r->refusal == MHD_HTTP_METHOD_NOT_ALLOWED) {
        admin_reply_error(r, r->refusal, "%s is not a method of %s", method, url);
    } else {
        reply_pages(r, url);
    }
}

static enum MHD_Result send_reply(struct admin_request *r)
{
    struct MHD_Response *const response =
        MHD_create_response_from_buffer(r->reply_len, r->reply_body, MHD_RESPMEM_MUST_COPY);
    enum MHD_Result result = MHD_NO;

    if (response == NULL)
        return MHD_NO;
    MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, r->reply_type);
    MHD_add_response_header(response, MHD_HTTP_HEADER_CACHE_CONTROL, "no-store");
    result = MHD_queue_response(r->connection, r->status, response);
    MHD_destroy_response(response);
    return result;
}

/* MHD calls this with the headers, with each piece of the body, with size 0 at its end, and again
 * after a resume. */
static enum MHD_Result on_request(void *arg, struct MHD_Connection *connection, const char *url,
                                  const char *method, const char *version, const char *upload,
                                  size_t *upload_size, void **request)
{
    struct admin_request *r = *request;

    (void)version;
    if (r == NULL) {
        *request = request_new(arg, connection, url, method);
        return MHD_YES;
    }
    if (*upload_size > 0) {
        buf_append(&r->body, upload, *upload_size);
        *upload_size = 0;
        return MHD_YES;
    }
    if (r->status == 0)
        request_run(r, url, method);
    if (r->status != 0)
        return send_reply(r);
    r->suspended = true;
    MHD_suspend_connection(connection);
    return MHD_YES;
}

static void on_completed(void *arg, struct MHD_Connection *connection, void **request,
                         enum MHD_RequestTerminationCode why)
{
    (void)arg;
    (void)connection;
    (void)why;
    if (*request != NULL)
        request_free(*request);
    *request = NULL;
}

/* Life */

static struct MHD_Daemon *start_daemon(struct admin *a)
{
    return MHD_start_daemon(MHD_USE_EPOLL | MHD_ALLOW_SUSPEND_RESUME | MHD_USE_NO_LISTEN_SOCKET, 0,
                            NULL, NULL, on_request, a, MHD_OPTION_NOTIFY_COMPLETED, on_completed, a,
                            MHD_OPTION_NOTIFY_CONNECTION, on_connection, a,
                            MHD_OPTION_CONNECTION_LIMIT, (unsigned)MAX_CONNECTIONS,
                            MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)IDLE_S, MHD_OPTION_END);
}

static int epoll_fd_of(struct MHD_Daemon *daemon)
{
    const union MHD_DaemonInfo *const info = MHD_get_daemon_info(daemon, MHD_DAEMON_INFO_EPOLL_FD);

    return info != NULL ? info->epoll_fd : -1;
}

struct admin *admin_new(struct loop *loop, const char *address, struct err *err)
{
    struct admin *const a = xcalloc(1, sizeof(*a));
    char host[sizeof(a->address.text)];

    a->loop = loop;
    list_init(&a->routes);
    list_init(&a->requests);
    if (net_addr_parse(&a->address, address, err) != 0)
        goto fail;
    a->fd = net_listen(&a->address, false, err);
    if (a->fd < 0)
        goto fail;
    net_addr_of_socket(a->fd, &a->address);
    net_addr_host(&a->address, host, sizeof(host));
    a->on_loopback = host_is_loopback(host);
    a->daemon = start_daemon(a);
    if (a->daemon == NULL) {
        close(a->fd);
        err_set(err, -EIO, "%s: libmicrohttpd does not start", address);
        goto fail;
    }
    ev_io_init(&a->readable, on_readable, epoll_fd_of(a->daemon), EV_READ);
    ev_io_start(loop->ev, &a->readable);
    ev_timer_init(&a->expiry, on_expiry, 0, 0);
    a->accept_pause.fire = on_accept_pause_over;
    ev_io_init(&a->acceptable, on_acceptable, a->fd, EV_READ);
    ev_io_start(loop->ev, &a->acceptable);
    return a;

fail:
    free(a);
    return NULL;
}

static void free_routes(struct admin *a)
{
    list_each (&a->routes, it) {
        struct route *const r = list_entry(it, struct route, node);

        list_remove(&r->node);
        free(r->method);
        free(r->path);
        free(r);
    }
}

struct admin *admin_free(struct admin *a)
{
    if (a == NULL)
        return NULL;
    a->ending = true;
    ev_io_stop(a->loop->ev, &a->acceptable);
    timer_stop(a->loop, &a->accept_pause);
    close(a->fd);
    list_each (&a->requests, it) {
        struct admin_request *const r = list_entry(it, struct admin_request, node);

        if (r->suspended)
            admin_reply_error(r, MHD_HTTP_SERVICE_UNAVAILABLE, "the process is stopping");
    }
    MHD_run(a->daemon); /* suspended connections must be resumed before the stop */
    ev_io_stop(a->loop->ev, &a->readable);
    ev_timer_stop(a->loop->ev, &a->expiry);
    MHD_stop_daemon(a->daemon);
    check(list_is_empty(&a->requests));
    free_routes(a);
    free(a);
    return NULL;
}

const char *admin_address(const struct admin *a)
{
    return a->address.text;
}
