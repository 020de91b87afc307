/* tests/fuzz/fuzz_session.c - F1: any bytes from a client into a whole gateway session, with good
 * replicas behind it, on either engine.
 *
 * Input: options (bit 0: no preface of ours, bit 1: end with our half closed, bit 2: read nothing
 * until the end, bit 3: drain in the middle), bytes per write (0: all at once), time between writes
 * (in steps of 20 ms), then what follows the preface.
 * Holds: what the gateway writes keeps RFC 9113 and gRPC (wire.c); the frames that it took notice
 * of are those that were sent, or it has refused the connection; no call, byte or counter is left
 * (rig.c); both engines give each call the same end.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/check.h"
#include "base/clock.h"
#include "net/grpc_server.h"
#include "rig.h"
#include "wire.h"

#define OPTION_BYTES 3u
#define INPUT_MAX    (32u * 1024)
#define STEP_US      UINT64_C(20000)
#define WRITES_MAX   400u

enum { NO_PREFACE = 1, HALF_CLOSE = 2, READ_LATE = 4, DRAIN = 8 };

static const uint8_t preface[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0";
#define PREFACE_BYTES (sizeof(preface) - 1)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* ---- the replicas: they send back what they get ---- */

static void echo_message(struct srv_call *c, const uint8_t *p, size_t len, bool compressed)
{
    (void)compressed;
    srv_call_send(c, p, len);
}

static void echo_half_close(struct srv_call *c)
{
    srv_call_finish(c, 0, NULL, NULL, 0);
}

static void echo_start(void *arg, struct srv_call *c)
{
    (void)arg;
    (void)c;
}

static const struct srv_ops echo_ops = {
    .on_start = echo_start, .on_message = echo_message, .on_half_close = echo_half_close};

static struct grpc_server *serve(struct rig *r, size_t replica)
{
    static const struct srv_method any = {.path = NULL, .ops = &echo_ops};
    struct grpc_server_conf conf;
    struct grpc_server *s;
    struct err err;

    grpc_server_conf_default(&conf);
    conf.conn.engine = &h2_engine_session;
    s = grpc_server_new(&r->peers, &r->replicas[replica], &conf, &any, 1, &err);
    check(s != NULL);
    return s;
}

/* ---- one session ---- */

/* Returns whether the gateway refused the connection. */
static bool run(struct wire *ret_wire, const struct h2_engine *engine, const uint8_t *data,
                size_t size)
{
    const unsigned how = data[0];
    size_t piece = data[1] == 0 ? size : data[1];
    struct grpc_server *servers[RIG_REPLICAS];
    static struct rig_peer p; /* 40 KiB */
    struct rig r;
    bool open = true;

    rig_start(&r, engine, true);
    for (size_t i = 0; i < RIG_REPLICAS; i++)
        servers[i] = serve(&r, i);
    rig_pass(&r, 200000); /* the replicas are reached: not all at the first dial */
    check(rig_connect(&r, &p));
    if ((how & NO_PREFACE) == 0)
        open = rig_write(&r, &p, preface, PREFACE_BYTES) && rig_read(&p);
    if (piece < (size - OPTION_BYTES) / WRITES_MAX)
        piece = size / WRITES_MAX;
    for (size_t at = OPTION_BYTES; at < size && open;) {
        const size_t n = size - at < piece ? size - at : piece;

        open = rig_write(&r, &p, data + at, n);
        if ((how & READ_LATE) == 0)
            open = rig_read(&p) && open;
        at += n;
        rig_pass(&r, data[2] * STEP_US);
        if ((how & DRAIN) != 0 && at > size / 2)
            rig_drain(&r);
    }
    if ((how & HALF_CLOSE) != 0)
        shutdown(p.fd, SHUT_WR);
    rig_settle(&r);
    open = rig_read(&p) && open;
    rig_pass(&r, 3 * US_PER_S); /* past every deadline of the configuration */
    open = rig_read(&p) && open;
    *ret_wire = p.wire; /* its rows are read after its end */
    rig_close(&r, &p);
    for (size_t i = 0; i < RIG_REPLICAS; i++)
        grpc_server_free(servers[i]);
    rig_stop(&r);
    return ret_wire->goaway_code != 0 || (!open && (how & (HALF_CLOSE | DRAIN)) == 0);
}

/* A call that both engines let come to its end has the same one. */
static void compare(const struct wire *a, const struct wire *b)
{
    for (size_t i = 0; i < a->n_streams; i++) {
        const struct wire_stream *x = &a->streams[i], *y = wire_find(b, x->id);

        if (y == NULL || !x->ended || !y->ended || x->reset || y->reset)
            continue;
        if (x->status == y->status && x->grpc_status == y->grpc_status &&
            x->data_bytes == y->data_bytes && x->data_hash == y->data_hash)
            continue;
        fprintf(stderr, "stream %u: HTTP %d %d, grpc-status %d %d, %llu %llu bytes\n", x->id,
                x->status, y->status, x->grpc_status, y->grpc_status,
                (unsigned long long)x->data_bytes, (unsigned long long)y->data_bytes);
        abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct wire session, native; /* 40 KiB each */
    bool refused;

    if (size < OPTION_BYTES || size > INPUT_MAX)
        return 0;
    refused = run(&native, &h2_engine_native, data, size);
    refused |= run(&session, &h2_engine_session, data, size);
    if (!refused && data[2] == 0)
        compare(&session, &native);
    return 0;
}
