/* The admin listener on a real loop; the client is a thread with a plain socket. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <pthread.h>
#include <unistd.h>

#include "base/xalloc.h"
#include "gateway/admin.h"
#include "net/conn.h"
#include "net/loop.h"

struct fixture {
    struct loop loop;
    struct admin *admin;
    struct admin_request *held;
    struct timer later;
    /* client thread */
    const char *request;
    size_t extra_bytes; /* of body, after request */
    char *answer;
    struct mbox_msg done;
};

static void on_echo(struct admin_request *r, void *arg)
{
    size_t len;
    const char *const body = admin_request_body(r, &len);
    const char *const q = admin_request_query(r, "q");
    const char *const h = admin_request_header(r, "X-Reason");
    char text[512];

    (void)arg;
    snprintf(text, sizeof(text), "{\"body\":\"%s\",\"len\":%zu,\"q\":\"%s\",\"h\":\"%s\"}", body,
             len, q == NULL ? "-" : q, h == NULL ? "-" : h);
    admin_reply_json(r, 201, text);
}

static void on_rest(struct admin_request *r, void *arg)
{
    admin_reply(r, 200, "text/plain", admin_request_rest(r), strlen(admin_request_rest(r)));
    (void)arg;
}

static void on_exact(struct admin_request *r, void *arg)
{
    (void)arg;
    admin_reply_error(r, 409, "generation %d is not \"%s\"", 3, "2");
}

static void on_hold(struct admin_request *r, void *arg)
{
    struct fixture *const f = arg;

    f->held = r;
    timer_start(&f->loop, &f->later, f->loop.now_us + 20000);
}

static void fire_later(struct timer *t)
{
    struct fixture *const f = container_of(t, struct fixture, later);

    admin_reply_json(f->held, 200, "{\"late\":true}");
}

static int set_up(void **state)
{
    static struct fixture f;
    struct err err;

    memset(&f, 0, sizeof(f));
    loop_init(&f.loop, &f);
    f.later.fire = fire_later;
    f.admin = admin_new(&f.loop, "127.0.0.1:0", &err);
    assert_non_null(f.admin);
    admin_route(f.admin, "POST", "/v1/echo", on_echo, &f);
    admin_route(f.admin, "GET", "/v1/models/*", on_rest, &f);
    admin_route(f.admin, "GET", "/v1/models/exact", on_exact, &f);
    admin_route(f.admin, "GET", "/v1/hold", on_hold, &f);
    *state = &f;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *const f = *state;

    f->admin = admin_free(f->admin);
    loop_fini(&f->loop);
    return 0;
}

static void on_done(struct mbox_msg *msg, void *arg)
{
    (void)msg;
    loop_stop(&((struct fixture *)arg)->loop);
}

static void on_discard(struct mbox_msg *msg)
{
    (void)msg;
}

static int dial(const struct fixture *f)
{
    struct net_addr addr;
    struct err err;

    check(net_addr_parse(&addr, admin_address(f->admin), &err) == 0);
    const int fd = socket(addr.sa.ss_family, SOCK_STREAM, 0);
    check(fd >= 0 && connect(fd, (struct sockaddr *)&addr.sa, addr.sa_len) == 0);
    return fd;
}

static void send_all(int fd, const char *p, size_t len)
{
    while (len > 0) {
        const ssize_t n = send(fd, p, len, MSG_NOSIGNAL);

        if (n <= 0)
            return;
        p += n;
        len -= (size_t)n;
    }
}

static void *client(void *arg)
{
    struct fixture *const f = arg;
    const int fd = dial(f);
    size_t len = 0;

    send_all(fd, f->request, strlen(f->request));
    if (f->extra_bytes > 0) {
        char *const extra = xcalloc(f->extra_bytes, 1);

        memset(extra, 'x', f->extra_bytes);
        send_all(fd, extra, f->extra_bytes);
        free(extra);
    }
    f->answer = xcalloc(65536, 1);
    for (;;) {
        const ssize_t n = read(fd, f->answer + len, 65535 - len);

        if (n <= 0)
            break;
        len += (size_t)n;
    }
    close(fd);
    mbox_post(&f->loop.mbox, &f->done);
    return NULL;
}

/* The whole answer to a request; the caller frees it. */
static char *ask(struct fixture *f, const char *request, size_t extra_bytes)
{
    pthread_t thread;

    f->request = request;
    f->extra_bytes = extra_bytes;
    f->done = (struct mbox_msg){.deliver = on_done, .discard = on_discard};
    assert_int_equal(pthread_create(&thread, NULL, client, f), 0);
    loop_run(&f->loop);
    pthread_join(thread, NULL);
    return f->answer;
}

static void assert_answer(struct fixture *f, const char *request, const char *status,
                          const char *part)
{
    char *const answer = ask(f, request, 0);

    if (strstr(answer, status) == NULL || strstr(answer, part) == NULL)
        fail_msg("%s -> %s", request, answer);
    free(answer);
}

#define CLOSE "\r\nHost: localhost:7080\r\nConnection: close\r\n"

static void routes_bodies_queries_and_headers_reach_the_handler(void **state)
{
    struct fixture *const f = *state;

    assert_answer(
        f, "POST /v1/echo?q=a%20b HTTP/1.1" CLOSE "X-Reason: r\r\nContent-Length: 5\r\n\r\nhello",
        "HTTP/1.1 201", "{\"body\":\"hello\",\"len\":5,\"q\":\"a b\",\"h\":\"r\"}");
    assert_answer(f, "POST /v1/echo HTTP/1.1" CLOSE "Content-Length: 0\r\n\r\n", "HTTP/1.1 201",
                  "\"len\":0,\"q\":\"-\"");
    assert_answer(f, "GET /v1/models/a/b HTTP/1.1" CLOSE "\r\n", "HTTP/1.1 200", "\r\n\r\na/b");
    assert_answer(f, "GET /v1/models/exact HTTP/1.1" CLOSE "\r\n", "HTTP/1.1 409",
                  "{\"error\":\"generation 3 is not \\\"2\\\"\"}");
}

static void unknown_pages_and_methods_are_told_apart(void **state)
{
    struct fixture *const f = *state;

    assert_answer(f, "GET /v1/nope HTTP/1.1" CLOSE "\r\n", "HTTP/1.1 404",
                  "{\"error\":\"no such page: /v1/nope\",\"pages\":[\"");
    assert_answer(f, "GET / HTTP/1.1" CLOSE "\r\n", "HTTP/1.1 200", "\"POST /v1/echo\"");
    assert_answer(f, "GET /v1/echo HTTP/1.1" CLOSE "\r\n", "HTTP/1.1 405",
                  "GET is not a method of /v1/echo");
    assert_answer(f, "GET /v1/echo/more HTTP/1.1" CLOSE "\r\n", "HTTP/1.1 404", "no such page");
}

static void a_handler_may_reply_later(void **state)
{
    assert_answer(*state, "GET /v1/hold HTTP/1.1" CLOSE "\r\n", "HTTP/1.1 200", "{\"late\":true}");
}

static void a_body_over_the_limit_is_refused(void **state)
{
    struct fixture *const f = *state;
    char request[256];

    snprintf(request, sizeof(request), "POST /v1/echo HTTP/1.1" CLOSE "Content-Length: %u\r\n\r\n",
             ADMIN_BODY_BYTES + 1);
    char *const answer = ask(f, request, ADMIN_BODY_BYTES + 1);
    assert_non_null(strstr(answer, "HTTP/1.1 413"));
    assert_non_null(strstr(answer, "over the limit of 16777216 bytes"));
    free(answer);
}

static void what_a_foreign_web_page_sends_is_refused(void **state)
{
    static const struct {
        const char *fields, *status;
    } cases[] = {
        {"Host: localhost\r\n", "HTTP/1.1 201"},
        {"Host: LocalHost:7080\r\n", "HTTP/1.1 201"},
        {"Host: 127.0.0.1:7080\r\n", "HTTP/1.1 201"},
        {"Host: 127.1.2.3\r\n", "HTTP/1.1 201"},
        {"Host: [::1]:7080\r\n", "HTTP/1.1 201"},
        {"Host: evil.example:7080\r\n", "HTTP/1.1 403"}, /* resolves to 127.0.0.1 by now */
        {"Host: localhost.evil.example\r\n", "HTTP/1.1 403"},
        {"Host: 127.0.0.1.evil.example\r\n", "HTTP/1.1 403"},
        {"Host: 10.0.0.1\r\n", "HTTP/1.1 403"},
        {"Host: [::2]:7080\r\n", "HTTP/1.1 403"},
        {"Host: [\r\n", "HTTP/1.1 403"},
        {"Host:\r\n", "HTTP/1.1 403"},
        {"Host: localhost:7080\r\nOrigin: http://localhost:7080\r\n", "HTTP/1.1 201"},
        {"Host: localhost:7080\r\nOrigin: http://localhost:8000\r\n", "HTTP/1.1 403"},
        {"Host: localhost:7080\r\nOrigin: http://evil.example\r\n", "HTTP/1.1 403"},
        {"Host: localhost:7080\r\nOrigin: null\r\n", "HTTP/1.1 403"},
    };
    char request[512];

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        snprintf(request, sizeof(request),
                 "POST /v1/echo HTTP/1.1\r\nConnection: close\r\n%sContent-Length: 2\r\n\r\nhi",
                 cases[i].fields);
        assert_answer(*state, request, cases[i].status, "");
    }
}

static void fire_stop(struct timer *t)
{
    loop_stop(&container_of(t, struct fixture, later)->loop);
}

static void open_requests_are_ended_when_the_admin_ends(void **state)
{
    struct fixture *const f = *state;
    char answer[1024] = "";
    static const char request[] = "GET /v1/hold HTTP/1.1" CLOSE "\r\n";

    const int fd = dial(f);
    send_all(fd, request, sizeof(request) - 1);
    f->later.fire = fire_stop;
    loop_run(&f->loop);
    assert_non_null(f->held);
    f->admin = admin_free(f->admin);
    assert_true(read(fd, answer, sizeof(answer) - 1) >= 0); /* 503, or closed: not stuck */
    close(fd);
}

static void a_bad_address_is_named(void **state)
{
    struct fixture *const f = *state;
    struct err err = {.code = 0};

    assert_null(admin_new(&f->loop, "127.0.0.1:99999", &err));
    assert_non_null(strstr(err.text, "99999"));
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        CASE(routes_bodies_queries_and_headers_reach_the_handler),
        CASE(unknown_pages_and_methods_are_told_apart),
        CASE(a_handler_may_reply_later),
        CASE(a_body_over_the_limit_is_refused),
        CASE(what_a_foreign_web_page_sends_is_refused),
        CASE(open_requests_are_ended_when_the_admin_ends),
        CASE(a_bad_address_is_named),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
