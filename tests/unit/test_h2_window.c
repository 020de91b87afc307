/* Our stream windows while they move: grown by round trips, shrunk by the user, and the peer told
 * apart that does not keep them. The oracle of room is arithmetic on frames: RFC 9113 6.9. */
#include "h2_pair.h"

#define KIB 1024u

static size_t data_bytes(const struct tap *t, size_t from)
{
    size_t sum = 0;

    for (size_t i = from; i < t->n; i++)
        sum += t->frames[i].type == FR_DATA ? t->frames[i].len : 0;
    return sum;
}

static uint32_t last_window(const struct tap *t)
{
    uint32_t window = 0;

    for (size_t i = 0; i < t->n; i++) {
        const struct frame *f = &t->frames[i];

        for (uint32_t at = 0; f->type == FR_SETTINGS && at + 6 <= f->len && at + 6 <= 16; at += 6)
            if (f->payload[at] == 0 && f->payload[at + 1] == 4)
                window = be32(f->payload + at + 2);
    }
    return window;
}

static struct pair *small_pair(uint32_t window, uint32_t most)
{
    struct h2_limits limits;

    h2_limits_default(&limits);
    limits.stream_window = window;
    limits.stream_window_most = most;
    return pair_new("native", "native", &limits, &limits);
}

/* One round trip: all that the client may send, then the server's answers. Returns the payload. */
static size_t round_trip(struct pair *p)
{
    const size_t from = p->to_server.n;

    side_move(&p->client, &p->server, &p->to_server);
    side_move(&p->server, &p->client, &p->to_client);
    return data_bytes(&p->to_server, from);
}

static void window_grows_while_it_holds_a_stream_back(void **state)
{
    struct pair *p = small_pair(64 * KIB, 1024 * KIB);
    struct seen *c;
    size_t most = 0, sum = 0;
    unsigned n = 0;

    (void)state;
    p->high_water = 64 * 1024 * KIB;
    pair_pump(p);
    c = pair_open(p, false);
    send_pattern(c->s, 0, 20000 * KIB, true, 0);
    while (c->sent < 20000 * KIB && n < 200) {
        const size_t moved = round_trip(p);

        most = moved > most ? moved : most;
        sum += moved;
        n++;
    }
    assert_int_equal(sum, 20000 * KIB);
    assert_true(n < 60); /* 313 with the first window */
    assert_int_equal(last_window(&p->to_client), 1024 * KIB);
    assert_true(most <= 1024 * KIB);
    h2_send_headers(p->server.seen[0].s, H2_RESPONSE, resp_fields, ARRAY_LEN(resp_fields), true);
    pair_pump(p);
    assert_int_equal(c->n_close, 1);
    pair_free(p);
}

/* A sender that is slower than its window makes none grow. */
static void window_stays_when_it_is_not_what_holds_back(void **state)
{
    struct pair *p = small_pair(64 * KIB, 1024 * KIB);
    struct seen *c;

    (void)state;
    pair_pump(p);
    c = pair_open(p, false);
    for (unsigned i = 0; i < 200; i++) {
        send_pattern(c->s, 0, 8 * KIB, false, 0);
        round_trip(p);
    }
    assert_int_equal(last_window(&p->to_client), 64 * KIB);
    pair_free(p);
}

/* Lower, with bytes on their way: the window goes below zero, and nothing comes until it is above;
 * what was sent before the peer knew is no fault. RFC 9113 6.9.2. */
static void shrunk_window_holds_for_open_streams(void **state)
{
    struct pair *p = small_pair(256 * KIB, 0);
    struct seen *c, *s;
    size_t from;

    (void)state;
    p->high_water = 64 * 1024 * KIB;
    pair_pump(p);
    c = pair_open(p, false);
    pair_pump(p);
    s = &p->server.seen[0];
    s->hold = true;
    send_pattern(c->s, 0, 1000 * KIB, true, 0);
    h2_set_stream_window(p->server.h, 64 * KIB); /* crosses the bytes */
    pair_pump(p);
    assert_int_equal(s->bytes, 256 * KIB);
    assert_int_equal(last_window(&p->to_client), 64 * KIB);
    from = p->to_server.n;
    h2_consume(s->s, 192 * KIB); /* 64 KiB are held: the window is 0 now */
    s->unconsumed -= 192 * KIB;
    pair_pump(p);
    assert_int_equal(data_bytes(&p->to_server, from), 0);
    h2_consume(s->s, 64 * KIB);
    pair_pump(p);
    assert_int_equal(data_bytes(&p->to_server, from), 64 * KIB);
    s->hold = false;
    h2_consume(s->s, 64 * KIB);
    pair_pump(p);
    assert_int_equal(s->bytes, 1000 * KIB);
    assert_int_equal(s->n_end, 1);
    pair_free(p);
}

static void settings_wait_until_they_are_acknowledged(void **state)
{
    struct pair *p = small_pair(64 * KIB, 0);
    uint64_t now_us = 1000;

    (void)state;
    h2_set_clock(p->server.h, &now_us);
    assert_true(h2_settings_wait_us(p->server.h) == 0);
    side_move(&p->server, &p->client, &p->to_client);
    assert_true(h2_settings_wait_us(p->server.h) == 1000);
    pair_pump(p);
    assert_true(h2_settings_wait_us(p->server.h) == 0);
    now_us = 2000;
    h2_set_stream_window(p->server.h, 32 * KIB);
    side_move(&p->server, &p->client, &p->to_client);
    assert_true(h2_settings_wait_us(p->server.h) == 2000);
    pair_pump(p);
    assert_true(h2_settings_wait_us(p->server.h) == 0);
    pair_free(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(window_grows_while_it_holds_a_stream_back),
        cmocka_unit_test(window_stays_when_it_is_not_what_holds_back),
        cmocka_unit_test(shrunk_window_holds_for_open_streams),
        cmocka_unit_test(settings_wait_until_they_are_acknowledged),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
