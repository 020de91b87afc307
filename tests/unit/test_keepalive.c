/* When a silent peer is asked, and how often: against a server that counts PINGs as gRPC's do. */
#include "net/keepalive.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define S     UINT64_C(1000000)
#define AFTER (10 * S)

/* grpc-core's ping_abuse_policy and grpc-go's keepalive.EnforcementPolicy, by their defaults. */
struct strict_server {
    uint64_t last_us; /* 0: none since it sent HEADERS or DATA */
    unsigned strikes;
};

static void server_gets_ping(struct strict_server *v, uint64_t now_us)
{
    if (v->last_us != 0 && now_us < v->last_us + 300 * S)
        v->strikes++;
    v->last_us = now_us;
    assert_true(v->strikes <= 2); /* else: GOAWAY too_many_pings */
}

static void server_sends_data(struct strict_server *v, struct keepalive *k, uint64_t now_us)
{
    *v = (struct strict_server){0};
    keepalive_heard(k, now_us);
    keepalive_got_news(k);
}

static void silence_is_asked_once_and_found_dead(void **state)
{
    struct keepalive k;

    (void)state;
    keepalive_start(&k, AFTER, 2 * S, S);
    assert_false(keepalive_asks(&k, 1, 10 * S));
    assert_true(keepalive_asks(&k, 1, 11 * S));
    assert_false(keepalive_asks(&k, 1, 12 * S));
    assert_false(keepalive_is_dead(&k, 13 * S - 1));
    assert_true(keepalive_is_dead(&k, 13 * S));
}

static void bytes_put_it_off_and_an_idle_connection_is_left_alone(void **state)
{
    struct keepalive k;

    (void)state;
    keepalive_start(&k, AFTER, 2 * S, S);
    keepalive_heard(&k, 9 * S);
    assert_false(keepalive_asks(&k, 1, 11 * S));
    assert_int_equal(k.look_us, 19 * S);
    for (uint64_t t = 19 * S; t < 1000 * S; t += S)
        assert_false(keepalive_asks(&k, 0, t));
    assert_false(keepalive_answered(&k, 1000 * S));
    keepalive_start(&k, 0, 2 * S, S);
    assert_false(keepalive_asks(&k, 1, UINT64_MAX / 2));
}

/* An hour of each mixture of silent calls and answers: a strict server never sends us away, and a
 * peer that dies during the first asks is found. */
static void a_strict_server_is_never_asked_too_often(void **state)
{
    (void)state;
    for (uint64_t each_s = 1; each_s < 700; each_s += 7) {
        struct strict_server v = {0};
        struct keepalive k;
        uint32_t n_streams = 1;
        unsigned asked = 0;

        keepalive_start(&k, AFTER, 2 * S, S);
        for (uint64_t t = 1; t < 3600; t++) {
            if (t % each_s == 0 && each_s > 30)
                server_sends_data(&v, &k, t * S);
            if (t % 45 == 0)
                n_streams++;
            if (!keepalive_asks(&k, n_streams, t * S))
                continue;
            asked++;
            server_gets_ping(&v, t * S);
            keepalive_heard(&k, t * S);
            assert_true(keepalive_answered(&k, t * S));
        }
        assert_true(asked >= 2);
    }
}

static void a_new_call_over_a_long_silence_is_worth_one_more(void **state)
{
    struct keepalive k;
    unsigned asked = 0;

    (void)state;
    keepalive_start(&k, AFTER, 2 * S, S);
    for (uint64_t t = 1; t < 100; t++) {
        if (keepalive_asks(&k, t < 60 ? 1 : 2, t * S)) {
            asked++;
            keepalive_heard(&k, t * S);
            keepalive_answered(&k, t * S);
        }
        assert_int_equal(asked, t < 11 ? 0 : t < 21 ? 1 : t < 61 ? 2 : 3);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(silence_is_asked_once_and_found_dead),
        cmocka_unit_test(bytes_put_it_off_and_an_idle_connection_is_left_alone),
        cmocka_unit_test(a_strict_server_is_never_asked_too_often),
        cmocka_unit_test(a_new_call_over_a_long_silence_is_worth_one_more),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
