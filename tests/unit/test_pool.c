/* The connection pool against real servers on loopback; waits for events, never for time. */
#include "net/pool.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/check.h"
#include "base/clock.h"
#include "net/grpc_server.h"

#define MAX_STREAMS 64

struct fixture {
    struct loop loop;
    struct net_addr addr;
    struct grpc_server *server, *server2;
    struct pool *pool;
    struct h2_stream *streams[MAX_STREAMS]; /* NULL: closed */
    uint32_t codes[MAX_STREAMS];
    size_t n_streams;
    unsigned n_closed;
    char states[256]; /* "dialling up down ..." as told */
    char why[128];
    struct srv_call *calls[MAX_STREAMS];
    size_t n_calls;
    struct pool_waiter waiter, waiter2;
    char woken[16]; /* '1', '2': ok; 'a', 'b': failed */
    char wake_why[128];
    bool drained;
};

static struct fixture *fx;

/* ---- server: answers when told ---- */

static void held_start(void *arg, struct srv_call *c)
{
    (void)arg;
    fx->calls[fx->n_calls++] = c;
}

static void held_done(struct srv_call *c, bool cancelled)
{
    (void)cancelled;
    for (size_t i = 0; i < fx->n_calls; i++)
        if (fx->calls[i] == c)
            fx->calls[i] = NULL;
}

static const struct srv_ops held_ops = {.on_start = held_start, .on_done = held_done};

static struct grpc_server *serve(uint32_t max_streams)
{
    const struct srv_method any = {NULL, &held_ops, NULL};
    struct grpc_server_conf conf;
    struct grpc_server *s;

    grpc_server_conf_default(&conf);
    conf.reuse_port = true;
    conf.conn.limits.max_concurrent_streams = max_streams;
    s = grpc_server_new(&fx->loop, &fx->addr, &conf, &any, 1, NULL);
    assert_non_null(s);
    fx->addr = *grpc_server_addr(s);
    return s;
}

static void answer_all(void)
{
    for (size_t i = 0; i < fx->n_calls; i++)
        if (fx->calls[i] != NULL)
            srv_call_finish(fx->calls[i], 0, NULL, NULL, 0);
}

/* ---- client ---- */

static const struct h2_field fields[] = {
    H2_FIELD_INIT(":method", "POST"),
    H2_FIELD_INIT(":scheme", "http"),
    H2_FIELD_INIT(":path", "/p.P/Hold"),
    H2_FIELD_INIT(":authority", "x"),
    H2_FIELD_INIT("content-type", "application/grpc"),
    H2_FIELD_INIT("te", "trailers"),
};

static void on_close(void *user, struct h2_stream *s, uint32_t code, bool by_peer)
{
    struct h2_stream **slot = h2_stream_user(s);

    assert_ptr_equal(user, fx);
    (void)by_peer;
    assert_ptr_equal(*slot, s);
    *slot = NULL;
    fx->codes[slot - fx->streams] = code;
    fx->n_closed++;
}

static void on_state(void *user, enum pool_state state, const char *why)
{
    const size_t n = strlen(fx->states);

    (void)user;
    snprintf(fx->states + n, sizeof(fx->states) - n, "%s ", pool_state_name(state));
    snprintf(fx->why, sizeof(fx->why), "%s", why);
}

static const struct pool_ops ops = {.h2 = {.on_close = on_close}, .on_state = on_state};

static void make_pool(uint32_t min_conns, uint32_t max_conns)
{
    struct pool_conf conf;

    pool_conf_default(&conf);
    conf.min_conns = min_conns;
    conf.max_conns = max_conns;
    conf.backoff_min_us = 20000;
    fx->pool = pool_new(&fx->loop, &fx->addr, &conf, &ops, fx);
}

static bool open_one(void)
{
    struct h2_stream **slot = &fx->streams[fx->n_streams];

    *slot = pool_open(fx->pool, NULL, fields, ARRAY_LEN(fields), true, slot);
    fx->n_streams += *slot != NULL;
    return *slot != NULL;
}

static void open_when_ready(void)
{
    while (!open_one())
        loop_turn(&fx->loop);
}

static void turns_until(const bool *cond)
{
    while (!*cond)
        loop_turn(&fx->loop);
}

static void quiet_turns(int n)
{
    for (int i = 0; i < n; i++) {
        loop_refresh(&fx->loop);
        ev_run(fx->loop.ev, EVRUN_NOWAIT);
    }
}

static void on_wake(struct pool_waiter *w, bool ok, const char *why)
{
    const size_t n = strlen(fx->woken);

    fx->woken[n] = (char)((ok ? '1' : 'a') + (w == &fx->waiter2));
    snprintf(fx->wake_why, sizeof(fx->wake_why), "%s", why);
    if (ok)
        assert_true(open_one()); /* as pool.h promises */
}

static int set_up(void **state)
{
    (void)state;
    fx = calloc(1, sizeof(*fx));
    loop_init(&fx->loop, NULL);
    fx->waiter.wake = fx->waiter2.wake = on_wake;
    return net_addr_parse(&fx->addr, "127.0.0.1:0", NULL);
}

static int tear_down(void **state)
{
    (void)state;
    fx->pool = pool_free(fx->pool);
    assert_int_equal(fx->n_closed, fx->n_streams);
    fx->server = grpc_server_free(fx->server);
    fx->server2 = grpc_server_free(fx->server2);
    loop_fini(&fx->loop);
    free(fx);
    return 0;
}

/* An address where nothing listens. */
static void free_address(void)
{
    const int fd = net_listen(&fx->addr, true, NULL);

    net_addr_of_socket(fd, &fx->addr);
    close(fd);
}

/* ---- tests ---- */

static void grows_before_the_peers_limit_and_spreads_evenly(void **state)
{
    (void)state;
    fx->server = serve(10);
    make_pool(1, 3);
    open_when_ready();
    for (int i = 1; i < 8; i++)
        assert_true(open_one());
    assert_int_equal(pool_n_conns(fx->pool), 2); /* 8 of 10: the second is dialled, two are free */
    while (grpc_server_n_calls(fx->server) < 8 || grpc_server_n_connections(fx->server) < 2)
        loop_turn(&fx->loop);
    quiet_turns(20);
    for (int i = 8; i < 16; i++)
        assert_true(open_one()); /* the emptier one takes them */
    assert_int_equal(pool_n_streams(fx->pool), 16);
    assert_int_equal(pool_n_conns(fx->pool), 3);
    answer_all();
}

static void full_pool_says_not_now_and_wakes_the_waiters_in_order(void **state)
{
    (void)state;
    fx->server = serve(2);
    make_pool(1, 1);
    open_when_ready();
    assert_true(open_one());
    assert_false(open_one());
    assert_false(pool_can_open(fx->pool));
    pool_wait(fx->pool, &fx->waiter);
    pool_wait(fx->pool, &fx->waiter2);
    while (grpc_server_n_calls(fx->server) < 2)
        loop_turn(&fx->loop);
    quiet_turns(5);
    assert_string_equal(fx->woken, "");
    srv_call_finish(fx->calls[0], 0, NULL, NULL, 0);
    while (fx->woken[0] == '\0')
        loop_turn(&fx->loop);
    quiet_turns(5);
    assert_string_equal(fx->woken, "1"); /* one place, one waiter */
    answer_all();
    while (fx->woken[1] == '\0')
        loop_turn(&fx->loop);
    assert_string_equal(fx->woken, "12");
}

static void cancelled_waiter_is_not_woken(void **state)
{
    (void)state;
    fx->server = serve(10);
    make_pool(0, 1);
    assert_int_equal(pool_state(fx->pool), POOL_IDLE);
    pool_wait(fx->pool, &fx->waiter);
    pool_wait(fx->pool, &fx->waiter2);
    assert_int_equal(pool_state(fx->pool), POOL_DIALLING);
    pool_wait_cancel(fx->pool, &fx->waiter);
    pool_wait_cancel(fx->pool, &fx->waiter);
    while (fx->woken[0] == '\0')
        loop_turn(&fx->loop);
    assert_string_equal(fx->woken, "2");
    assert_string_equal(fx->states, "dialling up ");
}

static void refused_dial_fails_the_waiters_and_keeps_the_patient_one(void **state)
{
    (void)state;
    free_address();
    make_pool(1, 1);
    fx->waiter2.patient = true;
    pool_wait(fx->pool, &fx->waiter);
    pool_wait(fx->pool, &fx->waiter2);
    while (fx->woken[0] == '\0')
        loop_turn(&fx->loop);
    assert_string_equal(fx->woken, "a");
    assert_string_equal(fx->wake_why, "connect: Connection refused");
    assert_int_equal(pool_state(fx->pool), POOL_DOWN);
    assert_string_equal(pool_why_down(fx->pool), "connect: Connection refused");
    pool_wait(fx->pool, &fx->waiter); /* while the back-off runs: told at once */
    quiet_turns(2);
    assert_string_equal(fx->woken, "aa");
    fx->server = serve(10); /* it comes up on that address */
    while (fx->woken[2] == '\0')
        loop_turn(&fx->loop);
    assert_string_equal(fx->woken, "aa2");
    assert_string_equal(pool_why_down(fx->pool), "");
    assert_string_equal(fx->states, "down up ");
}

static void goaway_dials_the_replacement_while_the_old_calls_run_on(void **state)
{
    (void)state;
    fx->server = serve(10);
    make_pool(1, 4);
    open_when_ready();
    while (grpc_server_n_calls(fx->server) < 1)
        loop_turn(&fx->loop);
    fx->server2 = serve(10); /* same address: the new process of a rolling restart */
    grpc_server_drain(fx->server, NULL, NULL);
    while (grpc_server_n_connections(fx->server2) == 0 || !pool_can_open(fx->pool))
        loop_turn(&fx->loop);
    assert_int_equal(fx->n_closed, 0);
    assert_int_equal(pool_n_conns(fx->pool), 2);
    assert_true(open_one());
    while (grpc_server_n_calls(fx->server2) < 1)
        loop_turn(&fx->loop);
    answer_all();
    while (fx->n_closed < 2)
        loop_turn(&fx->loop);
    assert_int_equal(fx->codes[0], H2_NO_ERROR);
    assert_int_equal(fx->codes[1], H2_NO_ERROR);
    while (pool_n_conns(fx->pool) > 1)
        loop_turn(&fx->loop);
    assert_int_equal(pool_state(fx->pool), POOL_UP);
    assert_null(strstr(fx->states, "down"));
}

static void lost_connection_is_down_and_dialled_again(void **state)
{
    (void)state;
    fx->server = serve(10);
    make_pool(1, 1);
    open_when_ready();
    while (grpc_server_n_calls(fx->server) < 1)
        loop_turn(&fx->loop);
    fx->server = grpc_server_free(fx->server); /* no GOAWAY: it was killed */
    while (pool_state(fx->pool) != POOL_DOWN)
        loop_turn(&fx->loop);
    assert_int_equal(fx->n_closed, 1);
    assert_int_equal(fx->codes[0], H2_CONNECT_ERROR);
    fx->server = serve(10);
    open_when_ready();
    assert_int_equal(pool_state(fx->pool), POOL_UP);
    answer_all();
}

static void what_became_ready_is_dialled_at_once_whatever_failed_before(void **state)
{
    struct pool_conf conf;

    (void)state;
    free_address(); /* it starts: nobody listens yet */
    pool_conf_default(&conf);
    conf.backoff_min_us = 3600u * US_PER_S; /* of its own it would never come back */
    conf.backoff_max_us = 2 * conf.backoff_min_us;
    fx->pool = pool_new(&fx->loop, &fx->addr, &conf, &ops, fx);
    while (pool_state(fx->pool) != POOL_DOWN)
        loop_turn(&fx->loop);
    fx->server = serve(10);
    pool_renew(fx->pool);
    assert_int_equal(pool_state(fx->pool), POOL_DIALLING); /* calls wait, they do not fail */
    open_when_ready();
    assert_int_equal(pool_state(fx->pool), POOL_UP);
    pool_renew(fx->pool);
    assert_int_equal(pool_state(fx->pool), POOL_UP);
    assert_int_equal(pool_n_conns(fx->pool), 1);
    while (grpc_server_n_calls(fx->server) < 1)
        loop_turn(&fx->loop);
    answer_all();
}

struct hangup {
    ev_io io;
    unsigned n;
    int fds[64];
};

static void hang_up(struct ev_loop *ev, ev_io *w, int revents)
{
    struct hangup *h = container_of(w, struct hangup, io);
    const int fd = accept(w->fd, NULL, NULL);

    (void)ev;
    (void)revents;
    if (fd >= 0) {
        h->n++;
        close(fd);
    }
}

static bool time_is_up;

static void on_time(struct timer *t)
{
    (void)t;
    time_is_up = true;
}

static void peer_that_hangs_up_is_not_dialled_in_a_tight_loop(void **state)
{
    struct hangup h = {.n = 0};
    struct timer end = {.fire = on_time};
    const int fd = net_listen(&fx->addr, false, NULL);

    (void)state;
    net_addr_of_socket(fd, &fx->addr);
    ev_io_init(&h.io, hang_up, fd, EV_READ);
    ev_io_start(fx->loop.ev, &h.io);
    make_pool(1, 1);
    time_is_up = false;
    timer_start(&fx->loop, &end, loop_refresh(&fx->loop) + 300000);
    turns_until(&time_is_up);
    /* 20 ms doubled, less 20 % jitter: at 0, 16, 48, 112, 240 ms at the soonest */
    assert_in_range(h.n, 2, 5);
    assert_int_equal(pool_state(fx->pool), POOL_DOWN);
    ev_io_stop(fx->loop.ev, &h.io);
    close(fd);
}

/* A server in its graceful end that still takes connections: GOAWAY is all they get. */
static void say_goodbye(struct ev_loop *loop, ev_io *w, int revents)
{
    static const uint8_t frames[] = {0, 0, 0, 4, 0, 0, 0, 0, 0, /* SETTINGS */
                                     0, 0, 8, 7, 0, 0, 0, 0, 0, /* GOAWAY */
                                     0, 0, 0, 0, 0, 0, 0, 0};   /* last id 0, NO_ERROR */
    struct hangup *h = container_of(w, struct hangup, io);
    const int fd = accept(w->fd, NULL, NULL);

    (void)revents;
    assert_true(fd >= 0);
    assert_int_equal(write(fd, frames, sizeof(frames)), sizeof(frames));
    h->fds[h->n++] = fd;
    if (h->n == ARRAY_LEN(h->fds))
        ev_io_stop(loop, w);
}

static void peer_that_sends_away_whoever_comes_is_not_dialled_in_a_tight_loop(void **state)
{
    struct hangup h = {.n = 0};
    struct timer end = {.fire = on_time};
    const int fd = net_listen(&fx->addr, false, NULL);

    (void)state;
    net_addr_of_socket(fd, &fx->addr);
    ev_io_init(&h.io, say_goodbye, fd, EV_READ);
    ev_io_start(fx->loop.ev, &h.io);
    make_pool(1, 1);
    time_is_up = false;
    timer_start(&fx->loop, &end, loop_refresh(&fx->loop) + 300000);
    turns_until(&time_is_up);
    /* two at once, then 40 ms doubled: at 0, 0, 32, 96, 224 ms at the soonest */
    assert_in_range(h.n, 2, 5);
    assert_string_equal(fx->why, "each new connection is asked to go away");
    ev_io_stop(fx->loop.ev, &h.io);
    for (unsigned i = 0; i < h.n; i++)
        close(h.fds[i]);
    close(fd);
}

static void told_drained(void *user)
{
    ((struct fixture *)user)->drained = true;
}

static void drained_pool_waits_for_its_last_stream(void **state)
{
    (void)state;
    fx->server = serve(10);
    make_pool(1, 1);
    open_when_ready();
    while (grpc_server_n_calls(fx->server) < 1)
        loop_turn(&fx->loop);
    pool_drain(fx->pool, told_drained);
    assert_false(open_one());
    quiet_turns(10);
    assert_false(fx->drained);
    answer_all();
    turns_until(&fx->drained);
    assert_int_equal(fx->n_closed, 1);
    assert_int_equal(fx->codes[0], H2_NO_ERROR);
    assert_int_equal(pool_n_conns(fx->pool), 0);
}

static void freed_pool_ends_its_streams_inside(void **state)
{
    (void)state;
    fx->server = serve(10);
    make_pool(1, 1);
    open_when_ready();
    assert_true(open_one());
    fx->pool = pool_free(fx->pool);
    assert_int_equal(fx->n_closed, 2);
}

static void our_own_cap_holds_below_the_peers(void **state)
{
    struct pool_conf conf;

    (void)state;
    fx->server = serve(1000);
    pool_conf_default(&conf);
    conf.max_conns = 2;
    conf.max_streams = 3;
    fx->pool = pool_new(&fx->loop, &fx->addr, &conf, &ops, fx);
    open_when_ready();
    for (int i = 1; i < 6; i++)
        open_when_ready();
    assert_false(open_one());
    assert_int_equal(pool_n_conns(fx->pool), 2);
    answer_all();
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(grows_before_the_peers_limit_and_spreads_evenly),
        TEST(full_pool_says_not_now_and_wakes_the_waiters_in_order),
        TEST(cancelled_waiter_is_not_woken),
        TEST(refused_dial_fails_the_waiters_and_keeps_the_patient_one),
        TEST(goaway_dials_the_replacement_while_the_old_calls_run_on),
        TEST(lost_connection_is_down_and_dialled_again),
        TEST(what_became_ready_is_dialled_at_once_whatever_failed_before),
        TEST(peer_that_hangs_up_is_not_dialled_in_a_tight_loop),
        TEST(peer_that_sends_away_whoever_comes_is_not_dialled_in_a_tight_loop),
        TEST(drained_pool_waits_for_its_last_stream),
        TEST(freed_pool_ends_its_streams_inside),
        TEST(our_own_cap_holds_below_the_peers),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
