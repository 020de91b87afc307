/* Two engines back to back: what net/h2.h promises, for every pair of engines. */
#include "h2_pair.h"

#include "base/rng.h"

#ifndef ENGINE_A /* net/meson.build builds this file for each pair of engines */
#define ENGINE_A "session"
#define ENGINE_B "session"
#endif

#define CLIENT_STREAM(p, i) ((p)->client.seen[i])
#define SERVER_STREAM(p, i) ((p)->server.seen[i])

static struct pair *default_pair(void)
{
    return pair_new(ENGINE_A, ENGINE_B, NULL, NULL);
}

/* ---- one call ---- */

static void call_in_pieces(size_t piece, size_t up, size_t down)
{
    struct pair *p = default_pair();
    struct seen *c;
    uint64_t sum_up, sum_down;

    p->piece = piece;
    c = pair_open(p, false);
    assert_int_equal(h2_stream_id(c->s), 0); /* has not left */
    sum_up = send_pattern(c->s, 0, up, true, 0);
    pair_pump(p);
    assert_int_equal(h2_stream_id(c->s), 1);
    assert_int_equal(p->server.n_seen, 1);
    assert_int_equal(SERVER_STREAM(p, 0).n_request, 1);
    assert_int_equal(SERVER_STREAM(p, 0).bytes, up);
    assert_true(SERVER_STREAM(p, 0).sum == sum_up);
    assert_int_equal(SERVER_STREAM(p, 0).n_end, 1);
    respond(SERVER_STREAM(p, 0).s);
    sum_down = send_pattern(SERVER_STREAM(p, 0).s, 5, down, false, 0);
    finish(SERVER_STREAM(p, 0).s);
    pair_pump(p);
    assert_int_equal(c->n_response, 1);
    assert_int_equal(c->n_trailers, 1);
    assert_int_equal(c->n_end, 1);
    assert_int_equal(c->bytes, down);
    assert_true(c->sum == sum_down);
    assert_int_equal(c->sent, up);
    assert_int_equal(c->n_close, 1);
    assert_int_equal(c->code, H2_NO_ERROR);
    assert_int_equal(SERVER_STREAM(p, 0).n_close, 1);
    assert_int_equal(SERVER_STREAM(p, 0).code, H2_NO_ERROR);
    assert_int_equal(h2_n_streams(p->client.h), 0);
    assert_int_equal(h2_n_streams(p->server.h), 0);
    pair_free(p);
}

static void call_is_whole_at_every_piece_size(void **state)
{
    static const size_t pieces[] = {0, 1, 2, 3, 9, 10, 17, 1000, 16393};
    static const size_t sizes[] = {0, 1, 133, 2047, 2048, 16384, 16385, 100000};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(pieces); i++)
        for (size_t j = 0; j < ARRAY_LEN(sizes); j++)
            if (pieces[i] == 0 || pieces[i] > 3 || sizes[j] < 16384)
                call_in_pieces(pieces[i], sizes[j], sizes[j] / 2 + 1);
    call_in_pieces(0, 9000000, 9000000);
}

static void trailers_only_is_one_block_with_end(void **state)
{
    struct pair *p = default_pair();
    struct seen *c = pair_open(p, true);

    (void)state;
    pair_pump(p);
    h2_send_headers(SERVER_STREAM(p, 0).s, H2_RESPONSE, resp_fields, ARRAY_LEN(resp_fields), true);
    pair_pump(p);
    assert_int_equal(c->n_response, 1);
    assert_int_equal(c->n_trailers, 0);
    assert_int_equal(c->n_end, 1);
    assert_int_equal(c->code, H2_NO_ERROR);
    assert_int_equal(tap_count(&p->to_client, FR_HEADERS, 1), 1);
    assert_int_equal(tap_count(&p->to_client, FR_DATA, 1), 0);
    pair_free(p);
}

static void trailers_without_data_make_no_data_frame(void **state)
{
    struct pair *p = default_pair();

    (void)state;
    pair_open(p, true);
    pair_pump(p);
    respond(SERVER_STREAM(p, 0).s);
    finish(SERVER_STREAM(p, 0).s); /* in the same turn */
    pair_pump(p);
    assert_int_equal(tap_count(&p->to_client, FR_DATA, 1), 0);
    pair_open(p, true);
    pair_pump(p);
    respond(SERVER_STREAM(p, 1).s);
    pair_pump(p); /* and in a later one */
    finish(SERVER_STREAM(p, 1).s);
    pair_pump(p);
    assert_int_equal(tap_count(&p->to_client, FR_DATA, 3), 0);
    assert_int_equal(CLIENT_STREAM(p, 1).n_trailers, 1);
    pair_free(p);
}

static void end_stream_rides_on_the_last_data_frame(void **state)
{
    struct pair *p = default_pair();
    struct seen *c = pair_open(p, false);
    const struct frame *f;

    (void)state;
    send_pattern(c->s, 0, 100, true, 0);
    pair_pump(p);
    f = tap_last(&p->to_server, FR_DATA);
    assert_int_equal(tap_count(&p->to_server, FR_DATA, 1), 1);
    assert_int_equal(f->len, 100);
    assert_int_equal(f->flags & 1, 1);
    pair_free(p);
}

static void empty_data_with_end_half_closes(void **state)
{
    struct pair *p = default_pair();
    struct seen *c = pair_open(p, false);

    (void)state;
    pair_pump(p);
    assert_int_equal(SERVER_STREAM(p, 0).n_end, 0);
    h2_send_data(c->s, NULL, NULL, 0, true);
    pair_pump(p);
    assert_int_equal(SERVER_STREAM(p, 0).n_end, 1);
    assert_int_equal(SERVER_STREAM(p, 0).bytes, 0);
    pair_free(p);
}

static void request_trailers_pass(void **state)
{
    const struct h2_field t = H2_FIELD("x-check", "1");
    struct pair *p = default_pair();
    struct seen *c = pair_open(p, false);

    (void)state;
    send_pattern(c->s, 0, 3000000, false, 0); /* they wait behind three windows */
    h2_send_headers(c->s, H2_TRAILERS, &t, 1, true);
    pair_pump(p);
    assert_int_equal(SERVER_STREAM(p, 0).bytes, 3000000);
    assert_int_equal(SERVER_STREAM(p, 0).n_trailers, 1);
    c = pair_open(p, false);
    h2_send_headers(c->s, H2_TRAILERS, &t, 1, true); /* before its HEADERS left */
    pair_pump(p);
    assert_int_equal(SERVER_STREAM(p, 1).n_trailers, 1);
    assert_int_equal(SERVER_STREAM(p, 1).n_end, 1);
    pair_free(p);
}

static void informational_blocks_come_before_the_response(void **state)
{
    const struct h2_field info = H2_FIELD(":status", "103");
    struct pair *p = default_pair();
    struct seen *c = pair_open(p, true);

    (void)state;
    pair_pump(p);
    h2_send_headers(SERVER_STREAM(p, 0).s, H2_INFORMATIONAL, &info, 1, false);
    pair_pump(p);
    assert_int_equal(c->n_info, 1);
    assert_int_equal(c->n_response, 0);
    respond(SERVER_STREAM(p, 0).s);
    send_pattern(SERVER_STREAM(p, 0).s, 0, 10, false, 0);
    finish(SERVER_STREAM(p, 0).s);
    pair_pump(p);
    assert_int_equal(c->n_response, 1);
    assert_int_equal(c->n_trailers, 1);
    assert_int_equal(c->bytes, 10);
    pair_free(p);
}

static void never_indexed_field_keeps_its_mark(void **state)
{
    struct h2_field f[ARRAY_LEN(req_fields) + 1];
    struct pair *p = default_pair();

    (void)state;
    memcpy(f, req_fields, sizeof(req_fields));
    f[ARRAY_LEN(req_fields)] = H2_FIELD("x-request-id", "0af7651916cd43dd8448eb211c80319c");
    f[ARRAY_LEN(req_fields)].flags = H2_FIELD_NO_INDEX;
    for (int i = 0; i < 2; i++) {
        seen_new(&p->client, h2_open(p->client.h, f, ARRAY_LEN(f), true, NULL));
        pair_pump(p);
        assert_int_equal(SERVER_STREAM(p, i).no_index, 1);
    }
    pair_free(p);
}

/* ---- flow control ---- */

static void stalled_stream_holds_its_window_and_no_other(void **state)
{
    struct h2_limits l;
    struct pair *p;
    struct seen *a, *b;

    (void)state;
    h2_limits_default(&l);
    l.stream_window = 300000;
    l.conn_window = 1000000; /* less than the two need in sum: credit must come back on receipt */
    p = pair_new(ENGINE_A, ENGINE_B, NULL, &l);
    a = pair_open(p, false);
    pair_pump(p);
    SERVER_STREAM(p, 0).hold = true;
    send_pattern(a->s, 0, 2000000, true, 0);
    pair_pump(p);
    assert_int_equal(SERVER_STREAM(p, 0).bytes, 300000);
    assert_int_equal(h2_stream_queued(a->s), 1700000);
    for (int i = 0; i < 5; i++) {
        b = pair_open(p, false);
        send_pattern(b->s, 0, 900000, true, 0);
        pair_pump(p);
        assert_int_equal(SERVER_STREAM(p, 1 + i).bytes, 900000);
    }
    SERVER_STREAM(p, 0).hold = false;
    h2_consume(SERVER_STREAM(p, 0).s, SERVER_STREAM(p, 0).unconsumed);
    pair_pump(p);
    assert_int_equal(SERVER_STREAM(p, 0).bytes, 2000000);
    assert_int_equal(SERVER_STREAM(p, 0).n_end, 1);
    pair_free(p);
}

static void trailers_wait_behind_data_that_the_window_holds(void **state)
{
    struct pair *p = default_pair();
    struct seen *c = pair_open(p, true);

    (void)state;
    pair_pump(p);
    c->hold = true;
    respond(SERVER_STREAM(p, 0).s);
    send_pattern(SERVER_STREAM(p, 0).s, 0, 1500000, false, 0);
    finish(SERVER_STREAM(p, 0).s);
    pair_pump(p);
    assert_int_equal(c->n_trailers, 0);
    assert_int_equal(c->n_close, 0);
    c->hold = false;
    h2_consume(c->s, c->unconsumed);
    pair_pump(p);
    assert_int_equal(c->bytes, 1500000);
    assert_int_equal(c->n_trailers, 1);
    assert_int_equal(c->n_close, 1);
    pair_free(p);
}

static void output_stops_at_the_high_water_and_goes_on(void **state)
{
    struct pair *p = default_pair();
    struct seen *c = pair_open(p, false);
    size_t before;

    (void)state;
    pair_pump(p);
    send_pattern(c->s, 0, 900000, true, 0);
    h2_flush(p->client.h, &p->client.out, 100000);
    assert_in_range(p->client.out.bytes, 100000, 100000 + 16384 + 9);
    assert_true(h2_wants_flush(p->client.h));
    before = p->client.out.bytes;
    h2_ping(p->client.h, 1); /* control frames go in any case */
    h2_flush(p->client.h, &p->client.out, 100000);
    assert_int_equal(p->client.out.bytes, before + 17);
    pair_pump(p);
    assert_int_equal(SERVER_STREAM(p, 0).bytes, 900000);
    assert_int_equal(p->client.n_pong, 1);
    pair_free(p);
}

static void large_payload_leaves_by_reference(void **state)
{
    struct pair *p = default_pair();
    struct seen *c = pair_open(p, false);
    struct slab *slab = slab_get(&p->pool, SLAB_LARGE_BYTES);
    struct iovec iov[16];
    bool found = false;
    int n;

    (void)state;
    pair_pump(p);
    memset(slab->data, 'x', SLAB_LARGE_BYTES);
    h2_send_data(c->s, slab, slab->data + 100, 10000, true);
    assert_int_equal(slab->refs, 2);
    h2_flush(p->client.h, &p->client.out, p->high_water);
    n = outq_iov(&p->client.out, iov, 16);
    for (int i = 0; i < n; i++)
        found = found || iov[i].iov_base == slab->data + 100;
    assert_true(found);
    pair_pump(p);
    assert_int_equal(slab->refs, 1);
    slab_unref(slab);
    pair_free(p);
}

static void idle_connection_holds_no_slab(void **state)
{
    struct pair *p = default_pair();

    (void)state;
    for (int i = 0; i < 3; i++) {
        struct seen *c = pair_open(p, false);

        send_pattern(c->s, 0, 200, true, 0);
        pair_pump(p);
        respond(SERVER_STREAM(p, i).s);
        send_pattern(SERVER_STREAM(p, i).s, 0, 200, false, 0);
        finish(SERVER_STREAM(p, i).s);
        pair_pump(p);
        assert_int_equal(p->pool.pinned_bytes, 0);
    }
    pair_free(p);
}

/* ---- resets ---- */

static void clients_reset_reaches_the_server_and_drops_what_is_queued(void **state)
{
    struct pair *p = default_pair();
    struct seen *c = pair_open(p, false);

    (void)state;
    pair_pump(p);
    SERVER_STREAM(p, 0).hold = true;
    send_pattern(c->s, 0, 3000000, true, 0);
    pair_pump(p);
    h2_reset(c->s, H2_CANCEL);
    assert_int_equal(c->n_close, 0); /* not from inside */
    pair_pump(p);
    assert_int_equal(c->n_close, 1);
    assert_int_equal(c->code, H2_CANCEL);
    assert_false(c->by_peer);
    assert_int_equal(SERVER_STREAM(p, 0).code, H2_CANCEL);
    assert_true(SERVER_STREAM(p, 0).by_peer);
    assert_int_equal(tap_count(&p->to_server, FR_RST, 1), 1);
    assert_int_equal(p->pool.pinned_bytes, 0);
    pair_free(p);
}

static void resets_with_data_in_flight_do_not_eat_the_connection_window(void **state)
{
    struct h2_limits l;
    struct pair *p;
    struct seen *c;

    (void)state;
    h2_limits_default(&l);
    l.conn_window = 256 * 1024;
    p = pair_new(ENGINE_A, ENGINE_B, NULL, &l);
    pair_pump(p);
    for (int i = 0; i < 300; i++) {
        c = pair_open(p, false);
        send_pattern(c->s, 0, 200000, false, 0);
        side_move(&p->client, &p->server, &p->to_server);
        if (i % 3 == 0) { /* the server goes first, data and reset cross */
            SERVER_STREAM(p, i).hold = true;
            h2_reset(SERVER_STREAM(p, i).s, H2_INTERNAL_ERROR);
            send_pattern(c->s, 0, 200000, false, 0);
            side_move(&p->client, &p->server, &p->to_server);
        } else {
            h2_reset(c->s, H2_CANCEL);
        }
        pair_pump(p);
        assert_int_equal(c->n_close, 1);
        assert_int_equal(SERVER_STREAM(p, i).n_close, 1);
    }
    c = pair_open(p, false);
    send_pattern(c->s, 0, 5000000, true, 0);
    pair_pump(p);
    assert_int_equal(SERVER_STREAM(p, 300).bytes, 5000000);
    pair_free(p);
}

static void stream_cancelled_before_it_left_is_never_seen_by_the_server(void **state)
{
    struct pair *p = default_pair();
    struct seen *c = pair_open(p, false);

    (void)state;
    send_pattern(c->s, 0, 5000, true, 0);
    h2_reset(c->s, H2_CANCEL);
    pair_pump(p);
    assert_int_equal(c->n_close, 1);
    assert_int_equal(c->code, H2_CANCEL);
    assert_int_equal(p->server.n_seen, 0);
    c = pair_open(p, true); /* and the connection works on */
    pair_pump(p);
    assert_int_equal(p->server.n_seen, 1);
    pair_free(p);
}

static void early_answer_stops_the_upload_with_no_error(void **state)
{
    struct pair *p = default_pair();
    struct seen *c = pair_open(p, false);
    const struct frame *rst;

    (void)state;
    send_pattern(c->s, 0, 5000000, true, 0);
    side_move(&p->client, &p->server, &p->to_server);
    side_move(&p->server, &p->client, &p->to_client);
    side_move(&p->client, &p->server, &p->to_server);
    SERVER_STREAM(p, 0).hold = true;
    h2_send_headers(SERVER_STREAM(p, 0).s, H2_RESPONSE, resp_fields, ARRAY_LEN(resp_fields), true);
    h2_reset(SERVER_STREAM(p, 0).s, H2_NO_ERROR);
    pair_pump(p);
    assert_int_equal(c->n_response, 1);
    assert_int_equal(c->n_end, 1);
    assert_int_equal(c->code, H2_NO_ERROR);
    assert_true(c->by_peer);
    assert_int_equal(SERVER_STREAM(p, 0).code, H2_NO_ERROR);
    assert_false(SERVER_STREAM(p, 0).by_peer);
    rst = tap_last(&p->to_client, FR_RST);
    assert_non_null(rst);
    assert_int_equal(be32(rst->payload), H2_NO_ERROR);
    assert_true(rst > tap_last(&p->to_client, FR_HEADERS));
    pair_free(p);
}

static void no_reset_follows_when_the_client_had_ended(void **state)
{
    struct pair *p = default_pair();

    (void)state;
    pair_open(p, true);
    pair_pump(p);
    respond(SERVER_STREAM(p, 0).s);
    send_pattern(SERVER_STREAM(p, 0).s, 0, 5000, false, 0);
    finish(SERVER_STREAM(p, 0).s);
    h2_reset(SERVER_STREAM(p, 0).s, H2_NO_ERROR);
    pair_pump(p);
    assert_int_equal(tap_count(&p->to_client, FR_RST, 1), 0);
    assert_int_equal(CLIENT_STREAM(p, 0).code, H2_NO_ERROR);
    assert_false(CLIENT_STREAM(p, 0).by_peer);
    pair_free(p);
}

static char reset_in; /* the event in which the hook resets */

static void hook_reset(struct seen *x, char event)
{
    if (event == reset_in && x->s != NULL) {
        h2_reset(x->s, H2_CANCEL);
        h2_reset(x->s, H2_INTERNAL_ERROR); /* a second one says nothing */
        h2_send_data(x->s, NULL, (const uint8_t *)"late", 4, false);
        finish(x->s);
    }
}

static void reset_from_inside_every_event_ends_once(void **state)
{
    static const char events[] = "hds";

    (void)state;
    for (int who = 0; who < 2; who++) {
        for (size_t i = 0; i < 3; i++) {
            struct pair *p = default_pair();
            struct seen *c;

            reset_in = events[i];
            (who == 0 ? &p->client : &p->server)->hook = hook_reset;
            c = pair_open(p, false);
            send_pattern(c->s, 0, 50000, false, 0);
            pair_pump(p);
            if (SERVER_STREAM(p, 0).s != NULL) {
                respond(SERVER_STREAM(p, 0).s);
                send_pattern(SERVER_STREAM(p, 0).s, 0, 50000, false, 0);
            }
            pair_pump(p);
            assert_int_equal(c->n_close, 1);
            assert_int_equal(c->code, H2_CANCEL);
            assert_int_equal(SERVER_STREAM(p, 0).n_close, 1);
            p->client.hook = p->server.hook = NULL;
            pair_open(p, true); /* the connection lives */
            pair_pump(p);
            assert_int_equal(p->server.n_seen, 2);
            pair_free(p);
        }
    }
}

static void hook_lost(struct seen *x, char event)
{
    if (event == reset_in && x->s != NULL) {
        x->side->in_event = false;
        h2_lost(x->side->h);
    }
}

static void connection_lost_inside_an_event_ends_every_stream_once(void **state)
{
    static const char events[] = "hds";

    (void)state;
    for (size_t i = 0; i < 3; i++) {
        struct pair *p = default_pair();
        struct seen *a, *b;

        reset_in = events[i];
        a = pair_open(p, false);
        b = pair_open(p, false);
        pair_pump(p);
        respond(SERVER_STREAM(p, 0).s);
        p->client.hook = hook_lost;
        send_pattern(a->s, 0, 50000, false, 0);
        send_pattern(b->s, 0, 50000, false, 0);
        send_pattern(SERVER_STREAM(p, 0).s, 0, 50000, false, 0);
        pair_pump(p);
        assert_int_equal(a->n_close, 1);
        assert_int_equal(a->code, H2_CONNECT_ERROR);
        assert_int_equal(b->n_close, 1);
        assert_true(h2_is_done(p->client.h));
        pair_free(p);
    }
}

/* ---- the end of connections ---- */

static void lost_connection_says_what_never_left(void **state)
{
    struct pair *p = default_pair();
    struct seen *sent = pair_open(p, false), *unsent;

    (void)state;
    pair_pump(p);
    unsent = pair_open(p, false);
    h2_lost(p->client.h);
    assert_int_equal(sent->code, H2_CONNECT_ERROR);
    assert_true(sent->by_peer);
    assert_int_equal(unsent->code, H2_REFUSED_STREAM);
    assert_int_equal(h2_n_streams(p->client.h), 0);
    assert_null(h2_open(p->client.h, req_fields, ARRAY_LEN(req_fields), true, NULL));
    pair_free(p);
}

static void freed_connection_cancels_its_streams(void **state)
{
    struct pair *p = default_pair();
    struct seen *a = pair_open(p, false), *b;

    (void)state;
    pair_pump(p);
    b = pair_open(p, false);
    p->client.h = h2_free(p->client.h);
    assert_int_equal(a->code, H2_CANCEL);
    assert_int_equal(b->code, H2_CANCEL);
    assert_false(a->by_peer);
    pair_free(p);
}

static void goaway_refuses_the_streams_above_and_lets_the_others_end(void **state)
{
    struct pair *p = default_pair();
    struct seen *c[6];

    (void)state;
    for (int i = 0; i < 4; i++)
        c[i] = pair_open(p, false);
    pair_pump(p);
    h2_goaway_last(p->server.h, 3, H2_NO_ERROR, "half");
    c[4] = pair_open(p, false); /* crosses the GOAWAY */
    c[5] = pair_open(p, true);
    side_move(&p->server, &p->client, &p->to_client);
    pair_pump(p);
    assert_int_equal(p->client.n_goaway, 1);
    assert_int_equal(p->client.goaway_last, 3);
    assert_true(h2_saw_goaway(p->client.h));
    assert_false(h2_can_open(p->client.h));
    for (int i = 2; i < 6; i++) {
        assert_int_equal(c[i]->n_close, 1);
        assert_int_equal(c[i]->code, H2_REFUSED_STREAM);
        assert_true(c[i]->by_peer);
    }
    assert_int_equal(p->server.n_seen, 4);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(c[i]->n_close, 0);
        assert_false(h2_is_done(p->client.h));
        h2_send_data(c[i]->s, NULL, NULL, 0, true);
        respond(SERVER_STREAM(p, i).s);
        finish(SERVER_STREAM(p, i).s);
        pair_pump(p);
        assert_int_equal(c[i]->n_close, 1);
        assert_int_equal(c[i]->code, H2_NO_ERROR);
        assert_false(c[i]->by_peer);
    }
    assert_true(h2_is_done(p->client.h));
    assert_true(h2_is_done(p->server.h));
    pair_free(p);
}

static void drain_in_two_steps_loses_no_call(void **state)
{
    struct pair *p = default_pair();
    struct seen *a = pair_open(p, true), *b;

    (void)state;
    pair_pump(p);
    h2_goaway_notice(p->server.h);
    b = pair_open(p, true); /* leaves before the notice arrives */
    side_move(&p->client, &p->server, &p->to_server);
    pair_pump(p);
    assert_int_equal(p->client.goaway_last, 0x7fffffff);
    assert_false(h2_can_open(p->client.h));
    assert_int_equal(p->server.n_seen, 2); /* it is served */
    h2_goaway(p->server.h, H2_NO_ERROR, NULL);
    pair_pump(p);
    assert_int_equal(p->client.n_goaway, 2);
    assert_int_equal(p->client.goaway_last, 3);
    for (int i = 0; i < 2; i++)
        h2_send_headers(SERVER_STREAM(p, i).s, H2_RESPONSE, resp_fields, ARRAY_LEN(resp_fields),
                        true);
    pair_pump(p);
    assert_int_equal(a->code, H2_NO_ERROR);
    assert_int_equal(b->code, H2_NO_ERROR);
    assert_true(h2_is_done(p->server.h));
    pair_free(p);
}

static void ping_comes_back_with_its_number(void **state)
{
    struct pair *p = default_pair();

    (void)state;
    h2_ping(p->server.h, UINT64_C(0x0123456789abcdef));
    pair_pump(p);
    assert_int_equal(p->server.n_pong, 1);
    assert_true(p->server.pong == UINT64_C(0x0123456789abcdef));
    pair_free(p);
}

/* ---- limits ---- */

static void header_block_over_the_limit_resets_the_stream_only(void **state)
{
    static char value[6000];
    struct h2_field f[ARRAY_LEN(req_fields) + 1];
    struct h2_limits l;
    struct pair *p;
    struct seen *c;

    (void)state;
    h2_limits_default(&l);
    l.max_header_bytes = 4000;
    p = pair_new(ENGINE_A, ENGINE_B, NULL, &l);
    memset(value, 'v', sizeof(value));
    memcpy(f, req_fields, sizeof(req_fields));
    f[ARRAY_LEN(req_fields)] = H2_FIELD("x-long", "");
    f[ARRAY_LEN(req_fields)].value = value;
    f[ARRAY_LEN(req_fields)].value_len = sizeof(value);
    c = seen_new(&p->client, h2_open(p->client.h, f, ARRAY_LEN(f), false, NULL));
    send_pattern(c->s, 0, 100000, true, 0);
    pair_pump(p);
    assert_int_equal(p->server.n_seen, 0);
    assert_int_equal(c->code, H2_ENHANCE_YOUR_CALM);
    assert_true(c->by_peer);
    pair_open(p, true);
    pair_pump(p);
    assert_int_equal(p->server.n_seen, 1);
    pair_free(p);
}

static void too_many_fields_reset_the_stream_only(void **state)
{
    struct h2_field f[ARRAY_LEN(req_fields) + 200];
    struct pair *p = default_pair();
    struct seen *c;

    (void)state;
    memcpy(f, req_fields, sizeof(req_fields));
    for (size_t i = ARRAY_LEN(req_fields); i < ARRAY_LEN(f); i++)
        f[i] = H2_FIELD("a", "b");
    c = seen_new(&p->client, h2_open(p->client.h, f, ARRAY_LEN(f), true, NULL));
    pair_pump(p);
    assert_int_equal(c->code, H2_ENHANCE_YOUR_CALM);
    pair_open(p, true);
    pair_pump(p);
    assert_int_equal(p->server.n_seen, 1);
    pair_free(p);
}

static void open_stops_at_the_peers_stream_limit(void **state)
{
    struct h2_limits l;
    struct pair *p;

    (void)state;
    h2_limits_default(&l);
    l.max_concurrent_streams = 3;
    p = pair_new(ENGINE_A, ENGINE_B, NULL, &l);
    assert_int_equal(h2_peer_max_streams(p->client.h), 100);
    assert_false(h2_settings_seen(p->client.h));
    pair_pump(p);
    assert_true(h2_settings_seen(p->client.h));
    assert_int_equal(h2_peer_max_streams(p->client.h), 3);
    for (int i = 0; i < 3; i++)
        pair_open(p, true);
    assert_false(h2_can_open(p->client.h));
    assert_null(h2_open(p->client.h, req_fields, ARRAY_LEN(req_fields), true, NULL));
    pair_pump(p);
    h2_send_headers(SERVER_STREAM(p, 1).s, H2_RESPONSE, resp_fields, ARRAY_LEN(resp_fields), true);
    pair_pump(p);
    assert_true(h2_can_open(p->client.h));
    pair_free(p);
}

static void streams_over_a_limit_that_came_late_are_refused_not_lost(void **state)
{
    struct h2_limits l;
    struct pair *p;
    unsigned n_refused = 0;

    (void)state;
    h2_limits_default(&l);
    l.max_concurrent_streams = 10;
    p = pair_new(ENGINE_A, ENGINE_B, NULL, &l);
    for (int i = 0; i < 50; i++) /* SETTINGS have not come: up to 100 may be opened */
        pair_open(p, true);
    pair_pump(p);
    for (size_t i = 0; i < p->client.n_seen; i++) {
        const struct seen *c = &CLIENT_STREAM(p, i);

        if (c->n_close > 0) {
            assert_int_equal(c->code, H2_REFUSED_STREAM);
            n_refused++;
        }
    }
    assert_int_equal(n_refused, 40);
    assert_int_equal(p->server.n_seen, 10);
    pair_free(p);
}

static void cancelling_client_keeps_its_connection(void **state)
{
    struct pair *p = default_pair();
    uint64_t now_us = 1;

    (void)state;
    h2_set_clock(p->server.h, &now_us);
    for (int i = 0; i < 1100; i++) {
        struct seen *c = pair_open(p, false);

        now_us += 5000; /* 200 cancels a second, and not one call that ends well */

        side_move(&p->client, &p->server, &p->to_server);
        h2_reset(c->s, H2_CANCEL);
        pair_pump(p);
    }
    assert_false(h2_is_done(p->server.h));
    pair_open(p, true);
    pair_pump(p);
    assert_int_equal(p->server.n_seen, 1101);
    pair_free(p);
}

/* ---- all at once ---- */

/* Random calls in random order and pieces: each stream's bytes arrive whole and in order unless it
 * was reset, every on_close comes once, nothing stalls, nothing leaks. */
static void random_traffic(uint64_t seed)
{
    static const size_t pieces[] = {0, 1, 5, 100, 4000, 20000};
    struct h2_limits l;
    struct pair *p;
    struct rng r;
    uint64_t sums[MAX_SEEN];
    size_t lens[MAX_SEEN];
    bool reset[MAX_SEEN];
    size_t n_whole = 0, n_sent = 0;

    rng_init(&r, seed);
    h2_limits_default(&l);
    l.stream_window = (uint32_t)(65535 + rng_below(&r, 200000));
    l.conn_window = (uint32_t)(65535 + rng_below(&r, 300000));
    p = pair_new(ENGINE_A, ENGINE_B, &l, &l);
    pair_pump(p);
    for (int step = 0; step < 300; step++) {
        p->piece = pieces[rng_below(&r, ARRAY_LEN(pieces))];
        p->high_water = 1000 + rng_below(&r, 100000);
        for (uint64_t n = rng_below(&r, 4); n > 0 && p->client.n_seen < 200; n--) {
            const size_t i = p->client.n_seen;
            struct seen *c = pair_open(p, false);

            lens[i] = rng_below(&r, 60000);
            reset[i] = false;
            sums[i] = send_pattern(c->s, i, lens[i], true, 0);
        }
        for (size_t i = 0; i < p->client.n_seen; i++) {
            if (CLIENT_STREAM(p, i).s != NULL && rng_below(&r, 300) == 0) {
                reset[i] = true;
                h2_reset(CLIENT_STREAM(p, i).s, H2_CANCEL);
            }
        }
        for (size_t i = 0; i < p->server.n_seen; i++) {
            struct seen *x = &SERVER_STREAM(p, i);

            if (x->s != NULL && x->n_end > 0 && x->n_response == 0 && rng_below(&r, 3) == 0) {
                x->n_response = 1; /* server side: we answered */
                respond(x->s);
                send_pattern(x->s, 0, rng_below(&r, 50000), false, 0);
                finish(x->s);
            }
        }
        if (rng_below(&r, 2) == 0)
            side_move(&p->client, &p->server, &p->to_server);
        if (rng_below(&r, 2) == 0)
            side_move(&p->server, &p->client, &p->to_client);
    }
    pair_pump(p);
    for (size_t i = 0; i < p->server.n_seen; i++) {
        struct seen *x = &SERVER_STREAM(p, i);

        if (x->s != NULL && x->n_response == 0) {
            respond(x->s);
            finish(x->s);
        }
    }
    pair_pump(p);
    assert_int_equal(h2_n_streams(p->client.h), 0);
    assert_int_equal(h2_n_streams(p->server.h), 0);
    for (size_t i = 0; i < p->client.n_seen; i++) {
        const struct seen *c = &CLIENT_STREAM(p, i);

        assert_int_equal(c->n_close, 1);
        if (!reset[i]) {
            assert_int_equal(c->code, H2_NO_ERROR);
            assert_int_equal(c->n_trailers, 1);
            assert_int_equal(c->sent, lens[i]);
        }
    }
    for (size_t i = 0; i < p->server.n_seen; i++) {
        const struct seen *x = &SERVER_STREAM(p, i);
        size_t c = 0;

        while (c < p->client.n_seen && CLIENT_STREAM(p, c).id != x->id)
            c++;
        assert_true(c < p->client.n_seen);
        if (!reset[c]) {
            n_whole++;
            assert_int_equal(x->bytes, lens[c]);
            assert_true(x->sum == sums[c]);
        }
    }
    for (size_t i = 0; i < p->client.n_seen; i++)
        n_sent += !reset[i];
    assert_int_equal(n_whole, n_sent);
    assert_int_equal(p->pool.pinned_bytes, 0);
    pair_free(p);
}

static void random_traffic_arrives_whole(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 25; seed++)
        random_traffic(seed);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(call_is_whole_at_every_piece_size),
        cmocka_unit_test(trailers_only_is_one_block_with_end),
        cmocka_unit_test(trailers_without_data_make_no_data_frame),
        cmocka_unit_test(end_stream_rides_on_the_last_data_frame),
        cmocka_unit_test(empty_data_with_end_half_closes),
        cmocka_unit_test(request_trailers_pass),
        cmocka_unit_test(informational_blocks_come_before_the_response),
        cmocka_unit_test(never_indexed_field_keeps_its_mark),
        cmocka_unit_test(stalled_stream_holds_its_window_and_no_other),
        cmocka_unit_test(trailers_wait_behind_data_that_the_window_holds),
        cmocka_unit_test(output_stops_at_the_high_water_and_goes_on),
        cmocka_unit_test(large_payload_leaves_by_reference),
        cmocka_unit_test(idle_connection_holds_no_slab),
        cmocka_unit_test(clients_reset_reaches_the_server_and_drops_what_is_queued),
        cmocka_unit_test(resets_with_data_in_flight_do_not_eat_the_connection_window),
        cmocka_unit_test(stream_cancelled_before_it_left_is_never_seen_by_the_server),
        cmocka_unit_test(early_answer_stops_the_upload_with_no_error),
        cmocka_unit_test(no_reset_follows_when_the_client_had_ended),
        cmocka_unit_test(reset_from_inside_every_event_ends_once),
        cmocka_unit_test(connection_lost_inside_an_event_ends_every_stream_once),
        cmocka_unit_test(lost_connection_says_what_never_left),
        cmocka_unit_test(freed_connection_cancels_its_streams),
        cmocka_unit_test(goaway_refuses_the_streams_above_and_lets_the_others_end),
        cmocka_unit_test(drain_in_two_steps_loses_no_call),
        cmocka_unit_test(ping_comes_back_with_its_number),
        cmocka_unit_test(header_block_over_the_limit_resets_the_stream_only),
        cmocka_unit_test(too_many_fields_reset_the_stream_only),
        cmocka_unit_test(open_stops_at_the_peers_stream_limit),
        cmocka_unit_test(streams_over_a_limit_that_came_late_are_refused_not_lost),
        cmocka_unit_test(cancelling_client_keeps_its_connection),
        cmocka_unit_test(random_traffic_arrives_whole),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
