#include "net/http.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include <curl/curl.h>

#include "base/buf.h"
#include "base/check.h"
#include "base/xalloc.h"

#define HTTP_CALL_MAGIC 0x68747470u

#define DEFAULT_TIMEOUT_US 30000000
#define DEFAULT_CONNECT_US 3000000
#define DEFAULT_MAX_BYTES  (16u * 1024 * 1024)

/* One answer that is coming. */
struct gather {
    struct buf body;
    uint64_t consul_index;
    char error[CURL_ERROR_SIZE];
};

struct http_client {
    struct loop *loop;
    CURLM *multi;
    struct timer timer;
    struct list calls;
    struct list socks;
};

struct http_call {
    uint32_t magic;
    struct http_client *client;
    struct list node;
    struct dead dead;
    CURL *easy;
    struct curl_slist *headers;
    void *body;
    struct gather got;
    http_piece_fn on_piece;
    http_done_fn done;
    void *arg;
};

/* libcurl's interest in one socket. */
struct sock {
    struct list node;
    struct http_client *client;
    ev_io io;
    struct dead dead;
};

static pthread_once_t global_once = PTHREAD_ONCE_INIT;

static void global_init(void)
{
    check(curl_global_init(CURL_GLOBAL_DEFAULT) == CURLE_OK);
}

/* ---- one request ---- */

static size_t on_body(char *p, size_t size, size_t n, void *arg)
{
    struct gather *g = arg;

    (void)size; /* is 1 */
    return buf_append(&g->body, p, n) ? n : 0;
}

static size_t on_piece_body(char *p, size_t size, size_t n, void *arg)
{
    struct http_call *c = obj_cast(HTTP_CALL, struct http_call, arg);

    (void)size;
    if (c->done != NULL) /* not cancelled */
        c->on_piece(c->arg, p, n);
    return n;
}

static size_t on_header(char *p, size_t size, size_t n, void *arg)
{
    static const char index[] = "x-consul-index:";
    struct gather *g = arg;

    (void)size;
    if (n > sizeof(index) && strncasecmp(p, index, sizeof(index) - 1) == 0) {
        char digits[24] = "";
        const size_t rest = n - (sizeof(index) - 1);

        memcpy(digits, p + sizeof(index) - 1,
               rest < sizeof(digits) - 1 ? rest : sizeof(digits) - 1);
        g->consul_index = strtoull(digits, NULL, 10);
    }
    return n;
}

static void gather_init(struct gather *g, const struct http_request *req)
{
    memset(g, 0, sizeof(*g));
    buf_init(&g->body, req->max_response_bytes != 0 ? req->max_response_bytes : DEFAULT_MAX_BYTES);
}

static long to_ms(uint64_t us, uint64_t dflt_us)
{
    const uint64_t ms = ((us != 0 ? us : dflt_us) + 999) / 1000;

    return ms > INT32_MAX ? INT32_MAX : (long)ms;
}

static CURL *easy_new(const struct http_request *req, const void *body, struct gather *g,
                      struct curl_slist **ret_headers)
{
    CURL *e = curl_easy_init();
    struct curl_slist *headers = NULL;

    check(e != NULL);
    curl_easy_setopt(e, CURLOPT_URL, req->url);
    curl_easy_setopt(e, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(e, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(e, CURLOPT_PROXY,
                     ""); /* the control plane is near: no proxy from the environment */
    curl_easy_setopt(e, CURLOPT_ERRORBUFFER, g->error);
    curl_easy_setopt(e, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    curl_easy_setopt(e, CURLOPT_TIMEOUT_MS, to_ms(req->timeout_us, DEFAULT_TIMEOUT_US));
    curl_easy_setopt(e, CURLOPT_CONNECTTIMEOUT_MS,
                     to_ms(req->connect_timeout_us, DEFAULT_CONNECT_US));
    curl_easy_setopt(e, CURLOPT_WRITEFUNCTION, on_body);
    curl_easy_setopt(e, CURLOPT_WRITEDATA, g);
    curl_easy_setopt(e, CURLOPT_HEADERFUNCTION, on_header);
    curl_easy_setopt(e, CURLOPT_HEADERDATA, g);
    if (req->unix_socket != NULL)
        curl_easy_setopt(e, CURLOPT_UNIX_SOCKET_PATH, req->unix_socket);
    if (req->ca_file != NULL)
        curl_easy_setopt(e, CURLOPT_CAINFO, req->ca_file);
    if (body != NULL) {
        curl_easy_setopt(e, CURLOPT_POST, 1L);
        curl_easy_setopt(e, CURLOPT_POSTFIELDS, body);
        curl_easy_setopt(e, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)req->body_len);
        headers = curl_slist_append(headers, "Expect:");
    }
    if (req->method != NULL) {
        if (strcmp(req->method, "HEAD") == 0)
            curl_easy_setopt(e, CURLOPT_NOBODY, 1L);
        else
            curl_easy_setopt(e, CURLOPT_CUSTOMREQUEST, req->method);
    }
    for (size_t i = 0; req->headers != NULL && req->headers[i] != NULL; i++)
        headers = curl_slist_append(headers, req->headers[i]);
    if (headers != NULL)
        curl_easy_setopt(e, CURLOPT_HTTPHEADER, headers);
    *ret_headers = headers;
    return e;
}

static int errno_of(CURLcode code, const struct gather *g)
{
    switch (code) {
    case CURLE_COULDNT_CONNECT:
        return -ECONNREFUSED;
    case CURLE_OPERATION_TIMEDOUT:
        return -ETIMEDOUT;
    case CURLE_WRITE_ERROR:
        return g->body.overflow ? -EMSGSIZE : -EIO;
    case CURLE_URL_MALFORMAT:
    case CURLE_UNSUPPORTED_PROTOCOL:
        return -EINVAL;
    default:
        return -EIO;
    }
}

/* Fills resp from a finished handle; its pointers live as long as handle and g. Or returns -errno.
 */
static int finish(CURL *e, CURLcode code, struct gather *g, struct http_response *resp,
                  struct err *err)
{
    const char *type = NULL, *url = NULL;
    long status = 0;

    memset(resp, 0, sizeof(*resp));
    if (code != CURLE_OK) {
        curl_easy_getinfo(e, CURLINFO_EFFECTIVE_URL, &url);
        return err_set(err, errno_of(code, g), "%s: %s", url != NULL ? url : "?",
                       g->body.overflow      ? "the answer is too long"
                       : g->error[0] != '\0' ? g->error
                                             : curl_easy_strerror(code));
    }
    curl_easy_getinfo(e, CURLINFO_RESPONSE_CODE, &status);
    curl_easy_getinfo(e, CURLINFO_CONTENT_TYPE, &type);
    resp->status = (int)status;
    resp->body_len = g->body.len;
    resp->body = buf_cstr(&g->body);
    resp->content_type = type != NULL ? type : "";
    resp->consul_index = g->consul_index;
    return 0;
}

int http_do(const struct http_request *req, struct http_response *ret_resp, struct err *err)
{
    struct curl_slist *headers;
    struct gather g;
    CURL *e;
    int r;

    pthread_once(&global_once, global_init);
    gather_init(&g, req);
    e = easy_new(req, req->body, &g, &headers);
    r = finish(e, curl_easy_perform(e), &g, ret_resp, err);
    if (r == 0) { /* the caller's from here */
        ret_resp->body = xstrndup(ret_resp->body, ret_resp->body_len);
        ret_resp->content_type = xstrdup(ret_resp->content_type);
    }
    curl_easy_cleanup(e);
    curl_slist_free_all(headers);
    buf_fini(&g.body);
    return r;
}

void http_response_fini(struct http_response *r)
{
    free((void *)(uintptr_t)r->body);
    free((void *)(uintptr_t)r->content_type);
    memset(r, 0, sizeof(*r));
}

/* ---- on the loop ---- */

static void call_reap(struct dead *d)
{
    struct http_call *c = container_of(d, struct http_call, dead);

    curl_multi_remove_handle(c->client->multi, c->easy);
    curl_easy_cleanup(c->easy);
    curl_slist_free_all(c->headers);
    free(c->body);
    buf_fini(&c->got.body);
    c->magic = 0;
    free(c);
}

static void call_bury(struct http_call *c)
{
    c->done = NULL;
    list_remove(&c->node);
    loop_bury(c->client->loop, &c->dead);
}

static void client_check_done(struct http_client *cl)
{
    CURLMsg *msg;
    int left;

    while ((msg = curl_multi_info_read(cl->multi, &left)) != NULL) {
        struct http_response resp;
        struct http_call *c;
        http_done_fn done;
        struct err err = {0};
        void *user = NULL;
        int r;

        if (msg->msg != CURLMSG_DONE)
            continue;
        curl_easy_getinfo(msg->easy_handle, CURLINFO_PRIVATE, &user);
        c = obj_cast(HTTP_CALL, struct http_call, user);
        done = c->done;
        if (done == NULL)
            continue; /* cancelled in this turn */
        r = finish(c->easy, msg->data.result, &c->got, &resp, &err);
        call_bury(c);
        done(c->arg, r == 0 ? &resp : NULL, &err);
    }
}

static void on_sock(struct ev_loop *ev, ev_io *w, int revents)
{
    struct sock *s = container_of(w, struct sock, io);
    struct http_client *cl = s->client;
    int running;

    (void)ev;
    curl_multi_socket_action(cl->multi, w->fd,
                             ((revents & EV_READ) != 0 ? CURL_CSELECT_IN : 0) |
                                 ((revents & EV_WRITE) != 0 ? CURL_CSELECT_OUT : 0),
                             &running);
    client_check_done(cl);
}

static void sock_reap(struct dead *d)
{
    free(container_of(d, struct sock, dead));
}

static int on_curl_socket(CURL *e, curl_socket_t fd, int what, void *arg, void *sock_arg)
{
    struct http_client *cl = arg;
    struct sock *s = sock_arg;

    (void)e;
    if (what == CURL_POLL_REMOVE) {
        if (s != NULL) {
            ev_io_stop(cl->loop->ev, &s->io);
            list_remove(&s->node);
            loop_bury(cl->loop, &s->dead); /* we may be in its callback */
        }
        curl_multi_assign(cl->multi, fd, NULL);
        return 0;
    }
    if (s == NULL) {
        s = xcalloc(1, sizeof(*s));
        s->client = cl;
        s->dead.reap = sock_reap;
        list_push_back(&cl->socks, &s->node);
        ev_init(&s->io, on_sock);
        curl_multi_assign(cl->multi, fd, s);
    }
    ev_io_stop(cl->loop->ev, &s->io);
    ev_io_set(&s->io, fd,
              (what != CURL_POLL_OUT ? EV_READ : 0) | (what != CURL_POLL_IN ? EV_WRITE : 0));
    ev_io_start(cl->loop->ev, &s->io);
    return 0;
}

static void on_timer(struct timer *t)
{
    struct http_client *cl = container_of(t, struct http_client, timer);
    int running;

    curl_multi_socket_action(cl->multi, CURL_SOCKET_TIMEOUT, 0, &running);
    client_check_done(cl);
}

static int on_curl_timer(CURLM *multi, long ms, void *arg)
{
    struct http_client *cl = arg;

    (void)multi;
    if (ms < 0)
        timer_stop(cl->loop, &cl->timer);
    else
        timer_start(cl->loop, &cl->timer, cl->loop->now_us + (uint64_t)ms * 1000);
    return 0;
}

struct http_client *http_client_new(struct loop *l)
{
    struct http_client *cl = xcalloc(1, sizeof(*cl));

    pthread_once(&global_once, global_init);
    cl->loop = l;
    cl->timer.fire = on_timer;
    list_init(&cl->calls);
    list_init(&cl->socks);
    cl->multi = curl_multi_init();
    check(cl->multi != NULL);
    curl_multi_setopt(cl->multi, CURLMOPT_SOCKETFUNCTION, on_curl_socket);
    curl_multi_setopt(cl->multi, CURLMOPT_SOCKETDATA, cl);
    curl_multi_setopt(cl->multi, CURLMOPT_TIMERFUNCTION, on_curl_timer);
    curl_multi_setopt(cl->multi, CURLMOPT_TIMERDATA, cl);
    return cl;
}

/* Not from inside a callback of this client. */
struct http_client *http_client_free(struct http_client *cl)
{
    if (cl == NULL)
        return NULL;
    while (!list_is_empty(&cl->calls)) {
        struct http_call *c = list_entry(cl->calls.next, struct http_call, node);

        list_remove(&c->node);
        call_reap(&c->dead);
    }
    list_each (&cl->loop->dead, it) {
        struct dead *d = list_entry(it, struct dead, node);

        if (d->reap == call_reap && container_of(d, struct http_call, dead)->client == cl) {
            list_remove(&d->node);
            call_reap(d);
        }
    }
    curl_multi_cleanup(cl->multi);
    while (!list_is_empty(&cl->socks)) {
        struct sock *s = list_entry(cl->socks.next, struct sock, node);

        ev_io_stop(cl->loop->ev, &s->io);
        list_remove(&s->node);
        free(s);
    }
    timer_stop(cl->loop, &cl->timer);
    free(cl);
    return NULL;
}

struct http_call *http_start(struct http_client *cl, const struct http_request *req,
                             http_piece_fn on_piece, http_done_fn done, void *arg)
{
    struct http_call *c = xcalloc(1, sizeof(*c));

    c->magic = HTTP_CALL_MAGIC;
    c->client = cl;
    c->dead.reap = call_reap;
    c->on_piece = on_piece;
    c->done = done;
    c->arg = arg;
    if (req->body != NULL) {
        c->body = xcalloc(1, req->body_len + 1);
        memcpy(c->body, req->body, req->body_len);
    }
    gather_init(&c->got, req);
    c->easy = easy_new(req, c->body, &c->got, &c->headers);
    curl_easy_setopt(c->easy, CURLOPT_PRIVATE, c);
    if (on_piece != NULL) {
        curl_easy_setopt(c->easy, CURLOPT_WRITEFUNCTION, on_piece_body);
        curl_easy_setopt(c->easy, CURLOPT_WRITEDATA, c);
    }
    list_push_back(&cl->calls, &c->node);
    check(curl_multi_add_handle(cl->multi, c->easy) == CURLM_OK);
    return c;
}

void http_cancel(struct http_call *c)
{
    call_bury(c);
}
