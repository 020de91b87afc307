/* One stream of more than 4 GiB, with both engines: no counter of a stream or a connection has 32
 * bits too few. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/check.h"
#include "net/h2.h"

#define CHUNK      (1024u * 1024)
#define TOTAL      ((UINT64_C(4) << 30) + 1)
#define HIGH_WATER (256u * 1024)

struct end {
    struct h2 *h;
    struct h2_stream *s;
    struct outq out;
    uint64_t bytes, sent;
    unsigned n_end, n_close;
    uint32_t code;
};

static void on_headers(void *user, struct h2_stream *s, enum h2_block kind,
                       const struct h2_field *fields, size_t n, bool end)
{
    struct end *e = user;

    (void)kind;
    (void)fields;
    (void)n;
    e->s = s;
    e->n_end += end;
}

static void on_data(void *user, struct h2_stream *s, struct slab *slab, const uint8_t *p,
                    size_t len, bool end)
{
    struct end *e = user;

    (void)slab;
    (void)p;
    e->bytes += len;
    e->n_end += end;
    h2_consume(s, len);
}

static void on_sent(void *user, struct h2_stream *s, size_t bytes)
{
    struct end *e = user;

    (void)s;
    e->sent += bytes;
}

static void on_close(void *user, struct h2_stream *s, uint32_t code, bool by_peer)
{
    struct end *e = user;

    (void)s;
    (void)by_peer;
    e->s = NULL;
    e->code = code;
    e->n_close++;
}

static const struct h2_events events = {
    .on_headers = on_headers, .on_data = on_data, .on_sent = on_sent, .on_close = on_close};

/* Bytes from one to the other; how many. */
static size_t move(struct end *from, struct end *to, struct slab_pool *pool)
{
    size_t moved = 0;

    h2_flush(from->h, &from->out, HIGH_WATER);
    while (from->out.bytes > 0) {
        struct slab *slab = slab_get(pool, SLAB_LARGE_BYTES);
        struct iovec iov[64];
        const int n = outq_iov(&from->out, iov, 64);
        size_t len = 0;

        for (int i = 0; i < n && len < slab->cap; i++) {
            const size_t room = slab->cap - len;
            const size_t take = iov[i].iov_len < room ? iov[i].iov_len : room;

            memcpy(slab->data + len, iov[i].iov_base, take);
            len += take;
        }
        outq_sent(&from->out, len);
        assert_int_equal(h2_recv(to->h, slab, slab->data, len, NULL), 0);
        slab_unref(slab);
        moved += len;
    }
    return moved;
}

static void send_all(const struct h2_engine *engine)
{
    static const struct h2_field request[] = {
        H2_FIELD_INIT(":method", "POST"), H2_FIELD_INIT(":scheme", "http"),
        H2_FIELD_INIT(":path", "/a.B/C"), H2_FIELD_INIT(":authority", "x")};
    static const struct h2_field response[] = {H2_FIELD_INIT(":status", "200")};
    static const struct h2_field trailers[] = {H2_FIELD_INIT("grpc-status", "0")};
    static const uint8_t chunk[CHUNK];
    struct end client = {0}, server = {0};
    struct slab_pool pool;
    struct h2_limits limits;
    uint64_t given = 0;

    slab_pool_init(&pool);
    outq_init(&client.out, &pool);
    outq_init(&server.out, &pool);
    h2_limits_default(&limits);
    client.h = h2_new(engine, H2_CLIENT, &limits, &events, &client, &pool);
    server.h = h2_new(engine, H2_SERVER, &limits, &events, &server, &pool);
    client.s = h2_open(client.h, request, ARRAY_LEN(request), true, NULL);
    while (move(&client, &server, &pool) + move(&server, &client, &pool) > 0)
        ;
    assert_non_null(server.s);
    h2_send_headers(server.s, H2_RESPONSE, response, ARRAY_LEN(response), false);
    while (given < TOTAL) {
        const size_t len = TOTAL - given < CHUNK ? (size_t)(TOTAL - given) : CHUNK;

        h2_send_data(server.s, NULL, chunk, len, false);
        given += len;
        while (h2_stream_queued(server.s) > 0)
            assert_true(move(&server, &client, &pool) + move(&client, &server, &pool) > 0);
    }
    h2_send_headers(server.s, H2_TRAILERS, trailers, ARRAY_LEN(trailers), true);
    while (move(&server, &client, &pool) + move(&client, &server, &pool) > 0)
        ;
    assert_true(client.bytes == TOTAL && server.sent == TOTAL);
    assert_int_equal(client.n_end, 1);
    assert_int_equal(client.n_close, 1);
    assert_int_equal(client.code, H2_NO_ERROR);
    client.h = h2_free(client.h);
    server.h = h2_free(server.h);
    outq_fini(&client.out);
    outq_fini(&server.out);
    slab_pool_fini(&pool);
}

static void native_engine(void **state)
{
    (void)state;
    send_all(&h2_engine_native);
}

static void session_engine(void **state)
{
    (void)state;
    send_all(&h2_engine_session);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(native_engine),
                                       cmocka_unit_test(session_engine)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
