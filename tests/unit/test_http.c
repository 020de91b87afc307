/* The HTTP client against a scripted server on loopback: one thread that answers what it is told.
 */
#include "net/http.h"

#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/check.h"
#include "net/conn.h"

struct scripted {
    int listen_fd;
    const char *answer; /* NULL: accept and stay silent until the client goes */
    char request[2048];
    char url[192];
    pthread_t thread;
};

static void *serve_one(void *arg)
{
    struct scripted *s = arg;
    const int fd = accept(s->listen_fd, NULL, NULL);
    size_t len = 0;
    ssize_t n;

    while ((n = read(fd, s->request + len, sizeof(s->request) - 1 - len)) > 0) {
        len += (size_t)n;
        s->request[len] = '\0';
        if (s->answer != NULL && strstr(s->request, "\r\n\r\n") != NULL &&
            (strstr(s->request, "POST") == NULL || strstr(s->request, "body!") != NULL)) {
            if (write(fd, s->answer, strlen(s->answer)) < 0)
                break;
            break;
        }
    }
    close(fd);
    return NULL;
}

static void scripted_start(struct scripted *s, const char *answer)
{
    struct net_addr a;

    memset(s, 0, sizeof(*s));
    s->answer = answer;
    assert_int_equal(net_addr_parse(&a, "127.0.0.1:0", NULL), 0);
    s->listen_fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(bind(s->listen_fd, (struct sockaddr *)&a.sa, a.sa_len), 0);
    assert_int_equal(listen(s->listen_fd, 4), 0);
    net_addr_of_socket(s->listen_fd, &a);
    snprintf(s->url, sizeof(s->url), "http://%s/v1/x?y=1", a.text);
    assert_int_equal(pthread_create(&s->thread, NULL, serve_one, s), 0);
}

static void scripted_stop(struct scripted *s)
{
    pthread_join(s->thread, NULL);
    close(s->listen_fd);
}

static const char ok_answer[] = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
                                "X-Consul-Index: 4711\r\nContent-Length: 7\r\n\r\n[1,2,3]";

static void blocking_request_gives_status_body_and_index(void **state)
{
    struct http_request req = {.body = "body!", .body_len = 5};
    struct http_response resp;
    struct scripted s;
    struct err err;

    (void)state;
    scripted_start(&s, ok_answer);
    req.url = s.url;
    assert_int_equal(http_do(&req, &resp, &err), 0);
    assert_int_equal(resp.status, 200);
    assert_string_equal(resp.body, "[1,2,3]");
    assert_int_equal(resp.body_len, 7);
    assert_string_equal(resp.content_type, "application/json");
    assert_int_equal(resp.consul_index, 4711);
    http_response_fini(&resp);
    scripted_stop(&s);
    assert_int_equal(strncmp(s.request, "POST /v1/x?y=1 HTTP/1.1\r\n", 25), 0);
}

static void refused_connection_is_named(void **state)
{
    const struct http_request req = {.url = "http://127.0.0.1:1/"};
    struct http_response resp;
    struct err err;

    (void)state;
    assert_int_equal(http_do(&req, &resp, &err), -ECONNREFUSED);
    assert_non_null(strstr(err.text, "127.0.0.1"));
}

static void answer_over_the_limit_is_refused(void **state)
{
    struct http_request req = {.max_response_bytes = 6};
    struct http_response resp;
    struct scripted s;
    struct err err;

    (void)state;
    scripted_start(&s, ok_answer);
    req.url = s.url;
    assert_int_equal(http_do(&req, &resp, &err), -EMSGSIZE);
    scripted_stop(&s);
}

struct async {
    struct loop loop;
    struct http_client *client;
    unsigned n_done;
    int status, code;
    char body[64], pieces[64];
};

static void on_done(void *arg, const struct http_response *resp, const struct err *err)
{
    struct async *a = arg;

    a->n_done++;
    a->code = resp != NULL ? 0 : err->code;
    if (resp != NULL) {
        a->status = resp->status;
        snprintf(a->body, sizeof(a->body), "%s", resp->body);
    }
    loop_stop(&a->loop);
}

static void on_piece(void *arg, const char *p, size_t len)
{
    struct async *a = arg;
    const size_t have = strlen(a->pieces);

    snprintf(a->pieces + have, sizeof(a->pieces) - have, "%.*s", (int)len, p);
}

static void async_init(struct async *a)
{
    memset(a, 0, sizeof(*a));
    loop_init(&a->loop, NULL);
    a->client = http_client_new(&a->loop);
}

static void async_fini(struct async *a)
{
    a->client = http_client_free(a->client);
    loop_fini(&a->loop);
}

static void request_on_the_loop_is_answered_once(void **state)
{
    struct http_request req = {0};
    struct scripted s;
    struct async a;

    (void)state;
    scripted_start(&s, ok_answer);
    async_init(&a);
    req.url = s.url;
    http_start(a.client, &req, NULL, on_done, &a);
    assert_int_equal(a.n_done, 0);
    loop_run(&a.loop);
    assert_int_equal(a.n_done, 1);
    assert_int_equal(a.status, 200);
    assert_string_equal(a.body, "[1,2,3]");
    async_fini(&a);
    scripted_stop(&s);
}

static void streamed_answer_comes_in_pieces(void **state)
{
    struct http_request req = {0};
    struct scripted s;
    struct async a;

    (void)state;
    scripted_start(&s, ok_answer);
    async_init(&a);
    req.url = s.url;
    http_start(a.client, &req, on_piece, on_done, &a);
    loop_run(&a.loop);
    assert_string_equal(a.pieces, "[1,2,3]");
    assert_string_equal(a.body, "");
    async_fini(&a);
    scripted_stop(&s);
}

static void silent_server_times_out(void **state)
{
    struct http_request req = {.timeout_us = 50000};
    struct scripted s;
    struct async a;

    (void)state;
    scripted_start(&s, NULL);
    async_init(&a);
    req.url = s.url;
    http_start(a.client, &req, NULL, on_done, &a);
    loop_run(&a.loop);
    assert_int_equal(a.n_done, 1);
    assert_int_equal(a.code, -ETIMEDOUT);
    async_fini(&a);
    scripted_stop(&s);
}

static void cancelled_request_is_silent(void **state)
{
    struct http_request req = {0};
    struct scripted s;
    struct async a;

    (void)state;
    scripted_start(&s, NULL);
    async_init(&a);
    req.url = s.url;
    http_cancel(http_start(a.client, &req, NULL, on_done, &a));
    loop_refresh(&a.loop);
    ev_run(a.loop.ev, EVRUN_NOWAIT);
    http_start(a.client, &req, NULL, on_done, &a); /* ends with the client */
    while (s.request[0] == '\0')
        loop_turn(&a.loop);
    async_fini(&a);
    assert_int_equal(a.n_done, 0);
    scripted_stop(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blocking_request_gives_status_body_and_index),
        cmocka_unit_test(refused_connection_is_named),
        cmocka_unit_test(answer_over_the_limit_is_refused),
        cmocka_unit_test(request_on_the_loop_is_answered_once),
        cmocka_unit_test(streamed_answer_comes_in_pieces),
        cmocka_unit_test(silent_server_times_out),
        cmocka_unit_test(cancelled_request_is_silent),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
