/* tests/bench/h2_calls.c - unary calls through two HTTP/2 engines back to back in memory, for
 * counting instructions: no socket, no clock, the same work each run.
 *
 *   valgrind --tool=callgrind h2_calls ENGINE CALLS [unique] [body=BYTES]
 *
 * 20 calls per turn on one connection, 9 request and 3 response fields as header sets, 128 bytes
 * each way by reference, trailers. unique: a request id of its own in each call.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "net/h2.h"

#define PER_TURN 20

struct side {
    struct h2 *h;
    struct outq out;
};

struct bench {
    struct slab_pool pool;
    struct side client, server;
    struct h2_set *request, *response, *trailers;
    struct slab *body;
    size_t body_bytes;
    unsigned long done;
};

static const struct h2_field request[] = {
    H2_FIELD_INIT(":method", "POST"),
    H2_FIELD_INIT(":scheme", "http"),
    H2_FIELD_INIT(":path", "/inference.GRPCInferenceService/ModelInfer"),
    H2_FIELD_INIT(":authority", "127.0.0.1:8001"),
    H2_FIELD_INIT("content-type", "application/grpc"),
    H2_FIELD_INIT("user-agent", "grpc-go/1.64.0"),
    H2_FIELD_INIT("te", "trailers"),
    H2_FIELD_INIT("grpc-accept-encoding", "gzip"),
    H2_FIELD_INIT("grpc-timeout", "10S"),
};
static const struct h2_field response[] = {
    H2_FIELD_INIT(":status", "200"),
    H2_FIELD_INIT("content-type", "application/grpc"),
};
static const struct h2_field trailers[] = {H2_FIELD_INIT("grpc-status", "0")};

static void answer(struct bench *b, struct h2_stream *s)
{
    h2_send_set(s, H2_RESPONSE, b->response, NULL, 0, false);
    h2_send_data(s, b->body, b->body->data, b->body_bytes, false);
    h2_send_set(s, H2_TRAILERS, b->trailers, NULL, 0, true);
}

static void server_data(void *user, struct h2_stream *s, struct slab *slab, const uint8_t *p,
                        size_t len, bool end)
{
    (void)slab;
    (void)p;
    h2_consume(s, len);
    if (end)
        answer(user, s);
}

static void client_data(void *user, struct h2_stream *s, struct slab *slab, const uint8_t *p,
                        size_t len, bool end)
{
    (void)user;
    (void)slab;
    (void)p;
    (void)end;
    h2_consume(s, len);
}

static void client_close(void *user, struct h2_stream *s, uint32_t code, bool by_peer)
{
    struct bench *b = user;

    (void)s;
    (void)by_peer;
    check(code == H2_NO_ERROR);
    b->done++;
}

static void server_headers(void *user, struct h2_stream *s, enum h2_block kind,
                           const struct h2_field *fields, size_t n, bool end)
{
    (void)user;
    (void)s;
    check(kind == H2_REQUEST && !end && n >= 9 && fields[0].name_len > 0);
}

static size_t move(struct bench *b, struct side *from, struct side *to)
{
    struct iovec iov[64];
    size_t moved = 0;

    h2_flush(from->h, &from->out, 256 * 1024);
    while (from->out.bytes > 0) { /* as read() would: into one slab */
        struct slab *slab = slab_get(&b->pool, SLAB_LARGE_BYTES);
        const int n = outq_iov(&from->out, iov, 64);
        size_t used = 0;

        for (int i = 0; i < n && used < slab->cap; i++) {
            const size_t room = slab->cap - used;
            const size_t take = iov[i].iov_len < room ? iov[i].iov_len : room;

            memcpy(slab->data + used, iov[i].iov_base, take);
            used += take;
        }
        outq_sent(&from->out, used);
        check(h2_recv(to->h, slab, slab->data, used, NULL) == 0);
        slab_unref(slab);
        moved += used;
    }
    return moved;
}

static void pump(struct bench *b)
{
    while (move(b, &b->client, &b->server) + move(b, &b->server, &b->client) > 0) {
    }
}

static void run(struct bench *b, unsigned long calls, bool unique)
{
    char id[33] = "";
    struct h2_field extra = H2_FIELD("x-request-id", "0123456789abcdef0123456789abcdef");

    extra.value = id;
    for (unsigned long i = 0; i < calls; i++) {
        struct h2_stream *s;

        if (unique)
            snprintf(id, sizeof(id), "%032lx", i * 0x9e3779b97f4a7c15ul);
        s = h2_open_set(b->client.h, b->request, &extra, unique ? 1 : 0, false, NULL);
        check(s != NULL);
        h2_send_data(s, b->body, b->body->data, b->body_bytes, true);
        if (i % PER_TURN == PER_TURN - 1)
            pump(b);
    }
    pump(b);
}

static void side_init(struct bench *b, struct side *sd, const char *engine, enum h2_role role)
{
    static const struct h2_events events[] = {
        [H2_SERVER] = {.on_headers = server_headers, .on_data = server_data},
        [H2_CLIENT] = {.on_data = client_data, .on_close = client_close},
    };
    struct h2_limits limits;

    h2_limits_default(&limits);
    outq_init(&sd->out, &b->pool);
    sd->h = h2_new(h2_engine_find(engine), role, &limits, &events[role], b, &b->pool);
}

int main(int argc, char **argv)
{
    struct bench b = {.body_bytes = 133};
    const unsigned long calls = argc > 2 ? strtoul(argv[2], NULL, 10) : 0;
    bool unique = false;

    if (calls == 0 || h2_engine_find(argv[1]) == NULL) {
        fprintf(stderr, "usage: h2_calls ENGINE CALLS [unique] [body=BYTES]\n");
        return 64;
    }
    for (int i = 3; i < argc; i++) {
        if (strcmp(argv[i], "unique") == 0)
            unique = true;
        else if (strncmp(argv[i], "body=", 5) == 0)
            b.body_bytes = strtoul(argv[i] + 5, NULL, 10);
    }
    slab_pool_init(&b.pool);
    b.request = h2_set_get(&b.pool, request, ARRAY_LEN(request));
    b.response = h2_set_get(&b.pool, response, ARRAY_LEN(response));
    b.trailers = h2_set_get(&b.pool, trailers, ARRAY_LEN(trailers));
    side_init(&b, &b.client, argv[1], H2_CLIENT);
    side_init(&b, &b.server, argv[1], H2_SERVER);
    b.body = slab_get(&b.pool, b.body_bytes > 0 ? b.body_bytes : 1);
    memset(b.body->data, 'x', b.body->cap);
    pump(&b);
    run(&b, calls, unique);
    check(b.done == calls);
    printf("%lu calls\n", b.done);
    slab_unref(b.body);
    h2_set_unref(b.request);
    h2_set_unref(b.response);
    h2_set_unref(b.trailers);
    h2_free(b.client.h);
    h2_free(b.server.h);
    outq_fini(&b.client.out);
    outq_fini(&b.server.out);
    slab_pool_fini(&b.pool);
    return 0;
}
