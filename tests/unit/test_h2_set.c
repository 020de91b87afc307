/* Calls by header sets (struct h2_set): every pair of engines carries the same fields, and ours
 * gives the receiver the set. */
#include "h2_pair.h"

#define N_CALLS 24

static const struct h2_field extra_fields[] = {H2_FIELD_INIT("grpc-timeout", "1S"),
                                               H2_FIELD_INIT("x-request-id", "0123456789")};

/* What the hooks below saw of one direction. */
struct saw {
    struct h2_set *sets[4]; /* of requests, responses and trailers; the newest */
    unsigned n_with_set;
    unsigned n_blocks;
};
static struct saw to_server, to_client;

static void note_set(struct saw *saw, struct seen *x, enum h2_block kind)
{
    struct h2_set *set = h2_block_set(x->s);

    saw->n_blocks++;
    saw->n_with_set += set != NULL;
    if (set != NULL)
        saw->sets[kind] = set;
}

static void assert_same(const struct h2_field *a, const struct h2_field *b, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        assert_int_equal(a[i].name_len, b[i].name_len);
        assert_int_equal(a[i].value_len, b[i].value_len);
        assert_memory_equal(a[i].name, b[i].name, a[i].name_len);
        assert_memory_equal(a[i].value, b[i].value, a[i].value_len);
    }
}

static size_t n_extra;

static void server_headers(void *user, struct h2_stream *s, enum h2_block kind,
                           const struct h2_field *fields, size_t n, bool end)
{
    struct side *sd = user;
    const size_t n_req = ARRAY_LEN(req_fields);
    const struct h2_set *set = h2_block_set(s);

    pr_headers(user, s, kind, fields, n, end);
    assert_int_equal(n, n_req + n_extra);
    assert_same(fields, req_fields, n_req);
    assert_same(fields + n_req, extra_fields, n_extra);
    for (size_t i = n_req; i < n; i++)
        assert_int_equal(fields[i].flags, H2_FIELD_NO_INDEX);
    if (set != NULL) {
        assert_true(set->n <= n_req);
        assert_same(set->fields, fields, set->n);
    }
    note_set(&to_server, &sd->seen[sd->n_seen - 1], kind);
}

static void client_headers(void *user, struct h2_stream *s, enum h2_block kind,
                           const struct h2_field *fields, size_t n, bool end)
{
    const struct h2_field *want = kind == H2_RESPONSE ? resp_fields : trailer_fields;

    assert_int_equal(n, kind == H2_RESPONSE ? ARRAY_LEN(resp_fields) : ARRAY_LEN(trailer_fields));
    assert_same(fields, want, n);
    note_set(&to_client, h2_stream_user(s), kind);
    pr_headers(user, s, kind, fields, n, end);
}

static struct pair *set_pair(const char *client, const char *server)
{
    struct pair *p = pair_new(client, server, NULL, NULL);
    struct h2_limits limits;
    struct h2_events events = pair_events;

    h2_limits_default(&limits);
    p->client.h = h2_free(p->client.h);
    p->server.h = h2_free(p->server.h);
    events.on_headers = client_headers;
    p->client.h = h2_new(h2_engine_find(client), H2_CLIENT, &limits, &events, &p->client, &p->pool);
    events.on_headers = server_headers;
    p->server.h = h2_new(h2_engine_find(server), H2_SERVER, &limits, &events, &p->server, &p->pool);
    to_server = to_client = (struct saw){0};
    return p;
}

static void calls(struct pair *p, struct h2_set *request, struct h2_set *response,
                  struct h2_set *trailers)
{
    for (int i = 0; i < N_CALLS; i++) {
        struct seen *c = &p->client.seen[p->client.n_seen++];
        struct seen *s;

        c->side = &p->client;
        c->s = h2_open_set(p->client.h, request, extra_fields, n_extra, false, c);
        assert_non_null(c->s);
        h2_send_data(c->s, NULL, (const uint8_t *)"ask", 3, true);
        pair_pump(p);
        s = &p->server.seen[p->server.n_seen - 1];
        assert_int_equal(s->bytes, 3);
        h2_send_set(s->s, H2_RESPONSE, response, NULL, 0, false);
        h2_send_data(s->s, NULL, (const uint8_t *)"answer", 6, false);
        h2_send_set(s->s, H2_TRAILERS, trailers, NULL, 0, true);
        pair_pump(p);
        assert_int_equal(c->bytes, 6);
        assert_int_equal(c->n_close, 1);
        assert_int_equal(c->code, H2_NO_ERROR);
    }
}

static void sets_arrive_as_they_left(void **state)
{
    static const char *const engines[] = {"native", "session"};

    (void)state;
    for (size_t i = 0; i < 8; i++) {
        const char *client = engines[i & 1], *server = engines[i >> 1 & 1];
        struct pair *p = set_pair(client, server);
        struct h2_set *request = h2_set_get(&p->pool, req_fields, ARRAY_LEN(req_fields));
        struct h2_set *response = h2_set_get(&p->pool, resp_fields, ARRAY_LEN(resp_fields));
        struct h2_set *trailers = h2_set_get(&p->pool, trailer_fields, ARRAY_LEN(trailer_fields));

        n_extra = i >> 2 == 0 ? 0 : ARRAY_LEN(extra_fields);
        calls(p, request, response, trailers);
        assert_int_equal(to_server.n_blocks, N_CALLS);
        assert_int_equal(to_client.n_blocks, 2 * N_CALLS);
        if (server[0] == 'n')
            assert_true(to_server.n_with_set > N_CALLS / 2);
        else
            assert_int_equal(to_server.n_with_set, 0);
        if (client[0] == 'n') { /* same fields, same set: also the one that the sender has */
            assert_true(to_client.n_with_set > N_CALLS);
            assert_ptr_equal(to_client.sets[H2_RESPONSE], response);
            assert_ptr_equal(to_client.sets[H2_TRAILERS], trailers);
        }
        h2_set_unref(request);
        h2_set_unref(response);
        h2_set_unref(trailers);
        pair_free(p);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sets_arrive_as_they_left),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
