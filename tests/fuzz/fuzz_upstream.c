/* tests/fuzz/fuzz_upstream.c - F2: any bytes from replicas into a whole gateway session with a good
 * client in front of it, on either engine.
 *
 * Input: options (bits 0 and 1: calls less one, bit 2: an idempotent model instead of any service,
 * bit 3: the clients end their requests late, bit 4: they cancel late, bit 5: no SETTINGS of ours,
 * bit 6: the replicas hang up at the end of the input), bytes per write (0: all at once), time
 * between writes (in steps of 10 ms), then what each connection of a replica sends.
 * Holds: each call has exactly one end, in time, and unless the client wished it, a grpc-status
 * (nothing lost); what the gateway writes to a replica keeps RFC 9113 (wire.c);
 * nothing is left (rig.c); what both engines end with OK has the same bytes.
 */
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "net/conn.h"
#include "rig.h"

#define OPTION_BYTES 3u
#define INPUT_MAX    (16u * 1024)
#define STEP_US      UINT64_C(10000)
#define WRITES_MAX   200u
#define CALLS_MAX    4u
#define CONNS_MAX    12u
#define DEADLINE_US  (2 * US_PER_S)
#define GRACE_US     (100 * US_PER_MS)

enum { N_CALLS = 3, MODEL = 4, END_LATE = 8, CANCEL = 16, NO_SETTINGS = 32, HANG_UP = 64 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* ---- the client ---- */

struct call_seen {
    struct h2_stream *s; /* NULL: over */
    unsigned n_ends;
    int grpc_status; /* -1: none came */
    uint64_t hash;
    uint32_t code;
    uint64_t ended_us;
};

struct client {
    struct conn *conn;
    struct call_seen calls[CALLS_MAX];
    size_t n;
    unsigned how;
};

static const uint8_t any_body[] = "\0\0\0\0\3abc";
static const uint8_t model_body[] = "\0\0\0\0\x0d\x0a\6digits\x1a\3abc";

static void send_body(struct client *c, size_t i, bool end)
{
    if ((c->how & MODEL) != 0)
        h2_send_data(c->calls[i].s, NULL, model_body, sizeof(model_body) - 1, end);
    else
        h2_send_data(c->calls[i].s, NULL, any_body, sizeof(any_body) - 1, end);
}

static void client_ready(void *user)
{
    struct h2_field fields[] = {
        H2_FIELD(":method", "POST"),
        H2_FIELD(":scheme", "http"),
        H2_FIELD(":path", "/a.B/C"),
        H2_FIELD(":authority", "x"),
        H2_FIELD("content-type", "application/grpc"),
        H2_FIELD("te", "trailers"),
        H2_FIELD("grpc-timeout", "2S"),
    };
    struct client *c = user;

    if ((c->how & MODEL) != 0)
        fields[2] = H2_FIELD(":path", "/inference.GRPCInferenceService/ModelInfer");
    for (size_t i = 0; i < c->n; i++) {
        c->calls[i].s = h2_open(conn_h2(c->conn), fields, ARRAY_LEN(fields), false, &c->calls[i]);
        check(c->calls[i].s != NULL);
        send_body(c, i, (c->how & END_LATE) == 0);
    }
}

static void client_headers(void *user, struct h2_stream *s, enum h2_block kind,
                           const struct h2_field *fields, size_t n, bool end)
{
    struct call_seen *call = h2_stream_user(s);

    (void)user;
    (void)kind;
    for (size_t i = 0; i < n; i++) {
        if (!end || fields[i].name_len != 11 || memcmp(fields[i].name, "grpc-status", 11) != 0)
            continue;
        check(call->grpc_status == -1 && fields[i].value_len < 3);
        call->grpc_status = atoi(fields[i].value);
    }
}

static void client_data(void *user, struct h2_stream *s, struct slab *slab, const uint8_t *p,
                        size_t len, bool end)
{
    struct call_seen *call = h2_stream_user(s);

    (void)user;
    (void)slab;
    check(!end); /* trailers end a gRPC answer */
    for (size_t i = 0; i < len; i++)
        call->hash = call->hash * 31 + p[i] + 1;
    h2_consume(s, len);
}

static void client_close(void *user, struct h2_stream *s, uint32_t code, bool by_peer)
{
    struct call_seen *call = h2_stream_user(s);

    (void)user;
    (void)by_peer;
    call->n_ends++;
    call->code = code;
    call->ended_us = rig_now_us();
    call->s = NULL;
}

static void client_closed(void *user, const char *why)
{
    (void)why;
    ((struct client *)user)->conn = NULL;
}

static void client_start(struct client *c, struct rig *r, unsigned how)
{
    static const struct conn_ops ops = {
        .h2 = {.on_headers = client_headers, .on_data = client_data, .on_close = client_close},
        .on_ready = client_ready,
        .on_closed = client_closed,
    };
    struct conn_conf conf;

    conn_conf_default(&conf);
    conf.engine = &h2_engine_session;
    *c = (struct client){.n = 1 + (how & N_CALLS), .how = how};
    for (size_t i = 0; i < CALLS_MAX; i++)
        c->calls[i].grpc_status = -1;
    c->conn = conn_dial(&r->peers, &r->gateway, &conf, &ops, c);
    rig_settle(r);
}

static void client_late(struct client *c, struct rig *r)
{
    for (size_t i = 0; i < c->n; i++) {
        if (c->calls[i].s != NULL && (c->how & END_LATE) != 0)
            send_body(c, i, true);
        if (c->calls[i].s != NULL && (c->how & CANCEL) != 0)
            h2_reset(c->calls[i].s, H2_CANCEL);
    }
    rig_settle(r);
}

/* ---- the replicas ---- */

struct replicas {
    struct rig_peer conns[CONNS_MAX];
    size_t at[CONNS_MAX]; /* of the input */
    size_t n;
};

static void accept_all(struct rig *r, struct replicas *ups, bool settings)
{
    static const uint8_t empty[] = "\0\0\0\4\0\0\0\0\0";

    for (size_t i = 0; i < RIG_REPLICAS; i++) {
        while (ups->n < CONNS_MAX && rig_accept(r, i, &ups->conns[ups->n])) {
            ups->at[ups->n] = OPTION_BYTES;
            if (settings)
                rig_write(r, &ups->conns[ups->n], empty, sizeof(empty) - 1);
            ups->n++;
        }
    }
}

static void run(struct client *c, const struct h2_engine *engine, const uint8_t *data, size_t size)
{
    static struct replicas ups; /* 500 KiB */
    const unsigned how = data[0];
    size_t piece = data[1] == 0 ? size : data[1];
    uint64_t began_us;
    struct rig r;

    if (piece < (size - OPTION_BYTES) / WRITES_MAX)
        piece = size / WRITES_MAX;
    ups.n = 0;
    rig_start(&r, engine, false);
    accept_all(&r, &ups, (how & NO_SETTINGS) == 0);
    client_start(c, &r, how);
    began_us = rig_now_us();
    for (bool more = true; more && rig_now_us() < began_us + DEADLINE_US;) {
        more = false;
        accept_all(&r, &ups, (how & NO_SETTINGS) == 0);
        for (size_t i = 0; i < ups.n; i++) {
            struct rig_peer *p = &ups.conns[i];
            const size_t left = size - ups.at[i], n = left < piece ? left : piece;

            if (p->fd >= 0 && n > 0 && !rig_write(&r, p, data + ups.at[i], n))
                ups.at[i] = size;
            else
                ups.at[i] += n;
            rig_read(p);
            if (ups.at[i] == size && (how & HANG_UP) != 0)
                rig_close(&r, p);
            more |= ups.at[i] < size;
        }
        rig_pass(&r, data[2] * STEP_US);
    }
    client_late(c, &r);
    for (size_t i = 0; i < ups.n; i++)
        rig_read(&ups.conns[i]);
    rig_pass(&r, DEADLINE_US + GRACE_US);
    for (size_t i = 0; i < c->n; i++) {
        check(c->calls[i].n_ends == 1);
        check(c->calls[i].ended_us <= began_us + DEADLINE_US + GRACE_US);
        check(c->calls[i].grpc_status >= 0 || (how & CANCEL) != 0);
    }
    if (c->conn != NULL)
        conn_close(c->conn, "over");
    rig_settle(&r);
    for (size_t i = 0; i < ups.n; i++) {
        rig_read(&ups.conns[i]);
        rig_close(&r, &ups.conns[i]);
    }
    rig_stop(&r);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct client native, session;

    if (size < OPTION_BYTES || size > INPUT_MAX)
        return 0;
    run(&native, &h2_engine_native, data, size);
    run(&session, &h2_engine_session, data, size);
    for (size_t i = 0; i < native.n; i++)
        check(native.calls[i].grpc_status != 0 || session.calls[i].grpc_status != 0 ||
              native.calls[i].hash == session.calls[i].hash);
    return 0;
}
