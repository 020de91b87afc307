/* One engine against a scripted peer that writes frames byte by byte: what a well-behaved library
 * would never send, and the exact bytes that leave. Frames are built by RFC 9113 and RFC 7541
 * alone. */
#include "h2_pair.h"

#ifndef ENGINE
#define ENGINE "session"
#endif

#define END_STREAM  0x1
#define END_HEADERS 0x4
#define PADDED      0x8
#define ACK         0x1

/* ---- a peer that writes what it is told ---- */

struct script {
    uint8_t bytes[2000000];
    size_t len;
};

static struct script sc;

static void put(const void *p, size_t len)
{
    assert_true(sc.len + len <= sizeof(sc.bytes));
    memcpy(sc.bytes + sc.len, p, len);
    sc.len += len;
}

static void put32(uint32_t v)
{
    const uint8_t b[4] = {(uint8_t)(v >> 24), (uint8_t)(v >> 16), (uint8_t)(v >> 8), (uint8_t)v};

    put(b, 4);
}

static void frame(uint8_t type, uint8_t flags, uint32_t id, const void *payload, size_t len)
{
    const uint8_t head[5] = {(uint8_t)(len >> 16), (uint8_t)(len >> 8), (uint8_t)len, type, flags};

    put(head, 5);
    put32(id);
    if (len > 0)
        put(payload, len);
}

static void preface(void)
{
    put("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 24);
}

static void setting(uint16_t id, uint32_t value)
{
    const uint8_t b[6] = {(uint8_t)(id >> 8),     (uint8_t)id,           (uint8_t)(value >> 24),
                          (uint8_t)(value >> 16), (uint8_t)(value >> 8), (uint8_t)value};

    frame(FR_SETTINGS, 0, 0, b, 6);
}

static void window_update(uint32_t id, uint32_t by)
{
    const uint8_t b[4] = {(uint8_t)(by >> 24), (uint8_t)(by >> 16), (uint8_t)(by >> 8),
                          (uint8_t)by};

    frame(FR_WU, 0, id, b, 4);
}

static void rst(uint32_t id, uint32_t code)
{
    const uint8_t b[4] = {0, 0, 0, (uint8_t)code};

    frame(FR_RST, 0, id, b, 4);
}

/* :method POST, :scheme http, :path /, :authority x, all from the static table or as literals */
static const uint8_t request_block[] = {0x83, 0x86, 0x84, 0x01, 0x01, 'x'};
static const uint8_t response_block[] = {0x88}; /* :status 200 */
static const uint8_t trailer_block[] = {0x00, 0x0b, 'g', 'r', 'p', 'c',  '-', 's',
                                        't',  'a',  't', 'u', 's', 0x01, '0'};

static void headers(uint32_t id, uint8_t flags, const uint8_t *block, size_t len)
{
    frame(FR_HEADERS, (uint8_t)(flags | END_HEADERS), id, block, len);
}

static bool say(struct side *sd)
{
    const bool ok = side_feed(sd, sc.bytes, sc.len, sd->pair->piece);

    sc.len = 0;
    return ok;
}

/* The engine under test is one side of a pair whose other side takes no part. */
static struct pair *client_under_test(void)
{
    struct pair *p = pair_new(ENGINE, ENGINE, NULL, NULL);

    sc.len = 0;
    side_move(&p->client, NULL, &p->to_server);
    return p;
}

static struct pair *server_with(const struct h2_limits *limits)
{
    struct pair *p = pair_new(ENGINE, ENGINE, NULL, limits);

    sc.len = 0;
    preface();
    frame(FR_SETTINGS, 0, 0, NULL, 0);
    assert_true(say(&p->server));
    return p;
}

static struct pair *server_under_test(void)
{
    return server_with(NULL);
}

static size_t data_sent(struct pair *p)
{
    size_t n = 0;

    side_move(&p->client, NULL, &p->to_server);
    for (size_t i = 0; i < p->to_server.n; i++)
        if (p->to_server.frames[i].type == FR_DATA)
            n += p->to_server.frames[i].len;
    return n;
}

/* The connection is to be closed, with this code in a GOAWAY if the engine says one. */
static void assert_refused(struct side *sd, struct tap *tap, uint32_t code)
{
    const bool fed = say(sd);
    const struct frame *f;

    side_move(sd, NULL, tap);
    assert_true(!fed || h2_is_done(sd->h));
    assert_true(h2_is_done(sd->h));
    assert_true(h2_why_done(sd->h)[0] != '\0');
    f = tap_last(tap, FR_GOAWAY);
    if (f != NULL)
        assert_int_equal(be32(f->payload + 4), code);
}

/* ---- windows ---- */

static void shrunk_window_goes_negative_and_comes_back_exactly(void **state)
{
    struct pair *p = client_under_test();
    struct seen *c = pair_open(p, false);

    (void)state;
    frame(FR_SETTINGS, 0, 0, NULL, 0);
    window_update(0, 1000000);
    say(&p->client);
    send_pattern(c->s, 0, 300000, true, 0);
    assert_int_equal(data_sent(p), 65535);
    setting(4, 1000); /* INITIAL_WINDOW_SIZE: the stream's window is now 1000 - 65535 */
    say(&p->client);
    assert_int_equal(data_sent(p), 65535);
    window_update(1, 64535); /* back to 0 */
    say(&p->client);
    assert_int_equal(data_sent(p), 65535);
    window_update(1, 1);
    say(&p->client);
    assert_int_equal(data_sent(p), 65536);
    setting(4, 101000); /* and up: + 100000 */
    say(&p->client);
    assert_int_equal(data_sent(p), 165536);
    setting(4, 0);
    say(&p->client);
    setting(4, 1000000);
    say(&p->client);
    assert_int_equal(data_sent(p), 300000);
    pair_free(p);
}

static void connection_window_of_the_peer_holds(void **state)
{
    struct pair *p = client_under_test();
    struct seen *a = pair_open(p, false), *b = pair_open(p, false);

    (void)state;
    setting(4, 1000000);
    say(&p->client);
    send_pattern(a->s, 0, 50000, true, 0);
    send_pattern(b->s, 0, 50000, true, 0);
    assert_int_equal(data_sent(p), 65535);
    window_update(0, 34465);
    say(&p->client);
    assert_int_equal(data_sent(p), 100000);
    pair_free(p);
}

static void padding_is_dropped_and_its_credit_returned(void **state)
{
    struct pair *p = client_under_test();
    struct seen *c = pair_open(p, true);
    uint8_t padded[1 + 1000 + 200] = {200};
    size_t credit = 0;

    (void)state;
    frame(FR_SETTINGS, 0, 0, NULL, 0);
    side_move(&p->client, NULL, &p->to_server);
    headers(1, 0, response_block, sizeof(response_block));
    frame(FR_SETTINGS, ACK, 0, NULL, 0); /* from here on our window is 1 MiB, not 64 KiB */
    for (int i = 0; i < 1000; i++) {
        frame(FR_DATA, PADDED, 1, padded, sizeof(padded));
        assert_true(say(&p->client));
        side_move(&p->client, NULL, &p->to_server);
    }
    assert_int_equal(c->bytes, 1000 * 1000);
    for (size_t i = 0; i < p->to_server.n; i++)
        if (p->to_server.frames[i].type == FR_WU && p->to_server.frames[i].id == 1)
            credit += be32(p->to_server.frames[i].payload);
    assert_in_range(credit, 1000 * 1201 - 1024 * 1024 / 2 - 1201, 1000 * 1201);
    pair_free(p);
}

static void zero_window_update_is_an_error(void **state)
{
    struct pair *p = client_under_test();
    struct seen *c = pair_open(p, false);

    (void)state;
    frame(FR_SETTINGS, 0, 0, NULL, 0);
    side_move(&p->client, NULL, &p->to_server);
    window_update(1, 0);
    say(&p->client);
    side_move(&p->client, NULL, &p->to_server);
    assert_true(c->n_close == 1 || h2_is_done(p->client.h)); /* RFC 9113 6.9 allows both */
    pair_free(p);
    p = client_under_test();
    frame(FR_SETTINGS, 0, 0, NULL, 0);
    window_update(0, 0);
    assert_refused(&p->client, &p->to_server, H2_PROTOCOL_ERROR);
    pair_free(p);
}

static void window_over_the_limit_is_an_error(void **state)
{
    struct pair *p = client_under_test();

    (void)state;
    frame(FR_SETTINGS, 0, 0, NULL, 0);
    window_update(0, 0x7fffffff);
    assert_refused(&p->client, &p->to_server, H2_FLOW_CONTROL_ERROR);
    pair_free(p);
}

/* ---- limits that the peer names ---- */

static void peer_that_names_no_stream_limit_has_none(void **state)
{
    struct pair *p = client_under_test();

    (void)state;
    assert_int_equal(h2_peer_max_streams(p->client.h), 100);
    frame(FR_SETTINGS, 0, 0, NULL, 0);
    say(&p->client);
    assert_true(h2_peer_max_streams(p->client.h) == UINT32_MAX);
    setting(3, 7);
    say(&p->client);
    assert_int_equal(h2_peer_max_streams(p->client.h), 7);
    assert_int_equal(p->client.n_settings, 2);
    pair_free(p);
}

static void goaway_with_debug_data_is_passed_on(void **state)
{
    static const uint8_t body[] = {0,   0,   0,   1,   0,   0,   0,   0xb, 't', 'o', 'o',
                                   '_', 'm', 'a', 'n', 'y', '_', 'p', 'i', 'n', 'g', 's'};
    struct pair *p = client_under_test();
    struct seen *a = pair_open(p, true), *b = pair_open(p, true);

    (void)state;
    side_move(&p->client, NULL, &p->to_server);
    frame(FR_SETTINGS, 0, 0, NULL, 0);
    frame(FR_GOAWAY, 0, 0, body, sizeof(body));
    say(&p->client);
    side_move(&p->client, NULL, &p->to_server); /* an engine may tell on_close in its flush */
    assert_int_equal(p->client.n_goaway, 1);
    assert_int_equal(p->client.goaway_code, H2_ENHANCE_YOUR_CALM);
    assert_int_equal(a->n_close, 0);
    assert_int_equal(b->code, H2_REFUSED_STREAM);
    pair_free(p);
}

/* ---- ends of streams ---- */

static void code_of_the_peers_reset_is_told(void **state)
{
    static const uint32_t codes[] = {H2_NO_ERROR, H2_INTERNAL_ERROR, H2_REFUSED_STREAM, H2_CANCEL,
                                     H2_ENHANCE_YOUR_CALM};
    struct pair *p = client_under_test();

    (void)state;
    frame(FR_SETTINGS, 0, 0, NULL, 0);
    say(&p->client);
    for (uint32_t i = 0; i < ARRAY_LEN(codes); i++) {
        struct seen *c = pair_open(p, false);

        send_pattern(c->s, 0, 500000, false, 0);
        side_move(&p->client, NULL, &p->to_server);
        rst(1 + 2 * i, codes[i]);
        say(&p->client);
        assert_int_equal(c->n_close, 1);
        assert_int_equal(c->code, codes[i]);
        assert_true(c->by_peer);
        window_update(0, 65535);
        say(&p->client);
    }
    pair_free(p);
}

static void end_stream_on_data_ends_without_trailers(void **state)
{
    struct pair *p = client_under_test();
    struct seen *c = pair_open(p, true);

    (void)state;
    side_move(&p->client, NULL, &p->to_server);
    frame(FR_SETTINGS, 0, 0, NULL, 0);
    headers(1, 0, response_block, sizeof(response_block));
    frame(FR_DATA, END_STREAM, 1, "abc", 3);
    say(&p->client);
    assert_int_equal(c->bytes, 3);
    assert_int_equal(c->n_trailers, 0);
    assert_int_equal(c->code, H2_NO_ERROR);
    pair_free(p);
}

static void data_for_a_stream_that_we_reset_is_dropped_with_credit(void **state)
{
    static uint8_t body[16384];
    struct h2_limits l;
    struct pair *p;
    size_t credit = 0;

    (void)state;
    h2_limits_default(&l);
    l.conn_window = 65535;
    p = server_with(&l);
    headers(1, 0, request_block, sizeof(request_block));
    assert_true(say(&p->server));
    h2_reset(p->server.seen[0].s, H2_CANCEL);
    side_move(&p->server, NULL, &p->to_client);
    assert_int_equal(p->server.seen[0].n_close, 1);
    for (int i = 0; i < 60; i++) {
        frame(FR_DATA, 0, 1, body, sizeof(body));
        assert_true(say(&p->server));
        side_move(&p->server, NULL, &p->to_client);
    }
    assert_int_equal(p->server.seen[0].bytes, 0);
    for (size_t i = 0; i < p->to_client.n; i++)
        if (p->to_client.frames[i].type == FR_WU && p->to_client.frames[i].id == 0)
            credit += be32(p->to_client.frames[i].payload);
    assert_true(credit > 60 * sizeof(body) - 65535 / 2 - sizeof(body));
    frame(FR_DATA, END_STREAM, 1, body, sizeof(body));
    headers(3, END_STREAM, request_block, sizeof(request_block)); /* and the next call is served */
    assert_true(say(&p->server));
    assert_int_equal(p->server.n_seen, 2);
    pair_free(p);
}

static void trailers_without_end_stream_reset_the_stream(void **state)
{
    struct pair *p = client_under_test();
    struct seen *c = pair_open(p, true);

    (void)state;
    side_move(&p->client, NULL, &p->to_server);
    frame(FR_SETTINGS, 0, 0, NULL, 0);
    headers(1, 0, response_block, sizeof(response_block));
    headers(1, 0, trailer_block, sizeof(trailer_block));
    say(&p->client);
    side_move(&p->client, NULL, &p->to_server);
    assert_int_equal(c->n_trailers, 0);
    assert_int_equal(c->n_close, 1);
    assert_int_equal(c->code, H2_PROTOCOL_ERROR);
    assert_false(c->by_peer);
    pair_free(p);
}

static void malformed_requests_reset_their_stream_only(void **state)
{
    static const uint8_t upper[] = {0x83, 0x86, 0x84, 0x00, 0x01, 'X', 0x01, 'y'};
    static const uint8_t no_path[] = {0x83, 0x86};
    static const uint8_t late_pseudo[] = {0x83, 0x86, 0x00, 0x01, 'a', 0x01, 'b', 0x84};
    static const uint8_t hop[] = {0x83, 0x86, 0x84, 0x00, 0x0a, 'c', 'o',  'n', 'n',
                                  'e',  'c',  't',  'i',  'o',  'n', 0x01, 'x'};
    static const uint8_t te[] = {0x83, 0x86, 0x84, 0x00, 0x02, 't', 'e', 0x04, 'g', 'z', 'i', 'p'};
    static const struct {
        const uint8_t *block;
        size_t len;
    } bad[] = {{upper, sizeof(upper)},
               {no_path, sizeof(no_path)},
               {late_pseudo, sizeof(late_pseudo)},
               {hop, sizeof(hop)},
               {te, sizeof(te)}};
    struct pair *p = server_under_test();

    (void)state;
    for (uint32_t i = 0; i < ARRAY_LEN(bad); i++) {
        headers(1 + 2 * i, END_STREAM, bad[i].block, bad[i].len);
        assert_true(say(&p->server));
        side_move(&p->server, NULL, &p->to_client);
        assert_int_equal(p->server.n_seen, 0);
        assert_int_equal(tap_count(&p->to_client, FR_RST, 1 + 2 * i), 1);
    }
    headers(101, END_STREAM, request_block, sizeof(request_block));
    assert_true(say(&p->server));
    assert_int_equal(p->server.n_seen, 1);
    pair_free(p);
}

/* ---- connections that must go ---- */

static void frame_over_the_size_limit_closes(void **state)
{
    static uint8_t body[16385];
    struct pair *p = server_under_test();

    (void)state;
    headers(1, 0, request_block, sizeof(request_block));
    frame(FR_DATA, 0, 1, body, sizeof(body));
    assert_refused(&p->server, &p->to_client, H2_FRAME_SIZE_ERROR);
    pair_free(p);
}

static void broken_header_compression_closes(void **state)
{
    static const uint8_t block[] = {0xff, 0xff, 0xff, 0xff, 0xff, 0xff}; /* an index without end */
    struct pair *p = server_under_test();

    (void)state;
    headers(1, END_STREAM, block, sizeof(block));
    assert_refused(&p->server, &p->to_client, H2_COMPRESSION_ERROR);
    pair_free(p);
}

static void stream_ids_that_are_even_or_go_back_close(void **state)
{
    struct pair *p = server_under_test();

    (void)state;
    headers(2, END_STREAM, request_block, sizeof(request_block));
    assert_refused(&p->server, &p->to_client, H2_PROTOCOL_ERROR);
    pair_free(p);
}

static void endless_continuation_closes(void **state)
{
    struct pair *p = server_under_test();
    bool over = false;

    (void)state;
    frame(FR_HEADERS, END_STREAM, 1, request_block, sizeof(request_block));
    for (int i = 0; i < 100 && !over; i++) {
        frame(9, 0, 1, NULL, 0);
        over = !say(&p->server);
        side_move(&p->server, NULL, &p->to_client);
        over = over || h2_is_done(p->server.h);
    }
    assert_true(over);
    assert_int_equal(p->server.n_seen, 0);
    pair_free(p);
}

static void flood_of_pings_that_nobody_reads_answers_to_closes(void **state)
{
    struct pair *p = server_under_test();
    bool over = false;

    (void)state;
    for (int i = 0; i < 5000 && !over; i++) { /* no flush: the socket takes nothing */
        frame(FR_PING, 0, 0, "12345678", 8);
        over = !say(&p->server);
    }
    assert_true(over);
    pair_free(p);
}

static void rapid_reset_attack_closes(void **state)
{
    struct pair *p = server_under_test();
    bool over = false;
    unsigned n = 0;

    (void)state;
    for (uint32_t id = 1; id < 30000 && !over; id += 2, n++) {
        headers(id, 0, request_block, sizeof(request_block));
        rst(id, H2_CANCEL);
        if (n < 900) { /* the fixture has room for so many streams */
            over = !say(&p->server);
        } else {
            p->server.n_seen = 899; /* the last slot again */
            memset(&p->server.seen[899], 0, sizeof(p->server.seen[899]));
            over = !say(&p->server);
        }
        side_move(&p->server, NULL, &p->to_client);
        over = over || h2_is_done(p->server.h);
    }
    assert_true(over);
    assert_true(n >= 1000); /* a client that cancels a lot is no attack */
    pair_free(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shrunk_window_goes_negative_and_comes_back_exactly),
        cmocka_unit_test(connection_window_of_the_peer_holds),
        cmocka_unit_test(padding_is_dropped_and_its_credit_returned),
        cmocka_unit_test(zero_window_update_is_an_error),
        cmocka_unit_test(window_over_the_limit_is_an_error),
        cmocka_unit_test(peer_that_names_no_stream_limit_has_none),
        cmocka_unit_test(goaway_with_debug_data_is_passed_on),
        cmocka_unit_test(code_of_the_peers_reset_is_told),
        cmocka_unit_test(end_stream_on_data_ends_without_trailers),
        cmocka_unit_test(data_for_a_stream_that_we_reset_is_dropped_with_credit),
        cmocka_unit_test(trailers_without_end_stream_reset_the_stream),
        cmocka_unit_test(malformed_requests_reset_their_stream_only),
        cmocka_unit_test(frame_over_the_size_limit_closes),
        cmocka_unit_test(broken_header_compression_closes),
        cmocka_unit_test(stream_ids_that_are_even_or_go_back_close),
        cmocka_unit_test(endless_continuation_closes),
        cmocka_unit_test(flood_of_pings_that_nobody_reads_answers_to_closes),
        cmocka_unit_test(rapid_reset_attack_closes),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
