/* tests/fuzz/fuzz_events.c - F3: a script of what both sides of a gateway do and of what happens to
 * it: frames, closes, silence, time, other snapshots, a drain.
 *
 * Input: steps of a few bytes, each one event (struct step below); a peer that is not there is not
 * asked. Runs on either engine.
 * Holds: what the gateway writes to either side keeps RFC 9113 and gRPC (wire.c); a client that
 * reads has an end of each of its calls once every deadline has passed, whatever the replicas did;
 * nothing is left (rig.c).
 */
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "base/check.h"
#include "base/clock.h"
#include "rig.h"

#define INPUT_MAX 4096u
#define CLIENTS   2u
#define UPS       8u
#define RAW_MAX   40u
#define OVER_US   (3 * US_PER_S) /* past the deadlines of rig.c's models */

enum { DATA = 0, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PUSH, PING, GOAWAY, WINDOW_UPDATE };
enum { END_STREAM = 1, END_HEADERS = 4 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct side {
    struct rig_peer peer;
    bool reads;  /* else what the gateway writes stays in the socket */
    bool narrow; /* a client that announced another window or took none back */
    bool half_closed;
    bool watches;
    uint32_t next_id; /* client: of its next call */
};

struct play {
    struct rig rig;
    struct side clients[CLIENTS];
    struct side ups[UPS];
    size_t n_ups;
    const uint8_t *p; /* the rest of the script */
    size_t left;
};

static uint8_t take(struct play *t)
{
    if (t->left == 0)
        return 0;
    t->left--;
    return *t->p++;
}

/* ---- what they say ---- */

struct text_field {
    const char *name, *value;
};

#define BLOCK_FIELDS 10
#define WATCH        6 /* of requests */
static const struct text_field requests[][BLOCK_FIELDS] = {
#define REQUEST(path)                                                                              \
    {":method", "POST"}, {":scheme", "http"}, {":path", path}, {":authority", "x"},                \
    {                                                                                              \
        "te", "trailers"                                                                           \
    }
#define GRPC                                                                                       \
    {                                                                                              \
        "content-type", "application/grpc"                                                         \
    }
    {REQUEST("/a.B/C"), GRPC},
    {REQUEST("/inference.GRPCInferenceService/ModelInfer"), GRPC, {"grpc-timeout", "1S"}},
    {REQUEST("/inference.GRPCInferenceService/ModelInfer"),
     GRPC,
     {"penstock-model", "digits"},
     {"grpc-timeout", "1S"}},
    {REQUEST("/tensorflow.serving.PredictionService/Predict"), GRPC, {"grpc-timeout", "1S"}},
    {REQUEST("/a.B/C"), GRPC, {"grpc-timeout", "30m"}},
    {REQUEST("/a.B/C"), GRPC, {"grpc-encoding", "gzip"}, {"grpc-timeout", "1S"}},
    {REQUEST("/grpc.health.v1.Health/Watch"), GRPC},
    {REQUEST("/a.B/C")},
    {{":method", "GET"}, {":scheme", "http"}, {":path", "/"}, {":authority", "x"}},
    {REQUEST("/inference.GRPCInferenceService/ModelInfer"),
     GRPC,
     {"penstock-version", "2"},
     {"x-request-id", "a-long-one-that-takes-some-room"},
     {"grpc-timeout", "1900m"}},
    {{"x-trailer", "1"}},
};
static const struct text_field responses[][BLOCK_FIELDS] = {
    {{":status", "200"}, GRPC},
    {{"grpc-status", "0"}},
    {{":status", "200"}, GRPC, {"grpc-status", "14"}, {"grpc-message", "no%20room"}},
    {{":status", "200"}, GRPC, {"grpc-status", "5"}},
    {{"grpc-status", "8"}, {"x-t-bin", "AAE="}},
    {{":status", "503"}, {"content-type", "text/html"}},
    {{":status", "103"}, {"link", "x"}},
    {{":status", "200"}, GRPC, {"grpc-status", "14"}, {"grpc-retry-pushback-ms", "20"}},
    {{"grpc-status", "77"}},
    {{":status", "200"}, GRPC, {"content-length", "8"}},
    {{"x-only", "1"}},
};
#undef GRPC
#undef REQUEST

static size_t put_string(uint8_t *dst, const char *s)
{
    const size_t len = strlen(s);

    check(len < 127); /* RFC 7541 5.1: one byte of length */
    dst[0] = (uint8_t)len;
    memcpy(dst + 1, s, len);
    return 1 + len;
}

/* Literals without indexing, RFC 7541 6.2.2. */
static size_t put_block(uint8_t *dst, const struct text_field *fields)
{
    size_t n = 0;

    for (size_t i = 0; i < BLOCK_FIELDS && fields[i].name != NULL; i++) {
        dst[n++] = 0;
        n += put_string(dst + n, fields[i].name);
        n += put_string(dst + n, fields[i].value);
    }
    return n;
}

static const struct {
    const char *bytes;
    size_t len;
} bodies[] = {
#define BODY(s)                                                                                    \
    {                                                                                              \
        s, sizeof(s) - 1                                                                           \
    }
    BODY("\0\0\0\0\3abc"),
    BODY("\0\0\0\0\x0d\x0a\6digits\x1a\3abc"),
    BODY("\0\0\0\0\x10\x0a\6digits\x12\1"
         "2\x1a\3abc"),
    BODY("\0\0\0\0\x0d\x0a\7\x0a\2tf\x12\0\x12\3abc"),
    BODY(""),
    BODY("\0\0\0"),
    BODY("\1\0\0\0\3abc"),
    BODY("\0\0\x20\0\0abcdefgh"),
    BODY("\0\xff\xff\xff\xff"),
    BODY("\0\0\0\4\0"
         "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"),
    BODY("\2\0\0\0\0"),
#undef BODY
};

static void send_frame(struct play *t, struct side *s, unsigned type, unsigned flags, uint32_t id,
                       const void *payload, size_t len)
{
    uint8_t frame[9 + 1024];

    check(len <= sizeof(frame) - 9);
    frame[0] = 0;
    frame[1] = (uint8_t)(len >> 8);
    frame[2] = (uint8_t)len;
    frame[3] = (uint8_t)type;
    frame[4] = (uint8_t)flags;
    for (int i = 0; i < 4; i++)
        frame[5 + i] = (uint8_t)(id >> (24 - 8 * i));
    if (len > 0)
        memcpy(frame + 9, payload, len);
    if (!s->half_closed)
        rig_write(&t->rig, &s->peer, frame, 9 + len);
}

static void send_u32(struct play *t, struct side *s, unsigned type, uint32_t id, uint32_t value)
{
    const uint8_t b[4] = {(uint8_t)(value >> 24), (uint8_t)(value >> 16), (uint8_t)(value >> 8),
                          (uint8_t)value};

    send_frame(t, s, type, 0, id, b, 4);
}

static void send_setting(struct play *t, struct side *s, unsigned setting, uint32_t value)
{
    const uint8_t b[6] = {0,
                          (uint8_t)setting,
                          (uint8_t)(value >> 24),
                          (uint8_t)(value >> 16),
                          (uint8_t)(value >> 8),
                          (uint8_t)value};

    send_frame(t, s, SETTINGS, 0, 0, b, setting == 0 ? 0 : 6);
}

static uint32_t number(uint8_t b)
{
    static const uint32_t numbers[] = {
        0, 1, 2, 7, 8, 100, 4096, 16383, 16384, 65535, 100000, 1 << 20, 0x7fffffff, 20000, 3, 5};

    return numbers[b % ARRAY_LEN(numbers)];
}

/* ---- the steps ---- */

static void client_connect(struct play *t, struct side *s, uint8_t window)
{
    static const uint8_t preface[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

    if (s->peer.fd >= 0 || !rig_connect(&t->rig, &s->peer))
        return;
    s->reads = true;
    s->half_closed = false;
    s->watches = false;
    s->next_id = 1;
    s->narrow = window % 4 == 3;
    rig_write(&t->rig, &s->peer, preface, sizeof(preface) - 1);
    send_setting(t, s, s->narrow ? 4 : 0, number(window / 4));
}

static void client_request(struct play *t, struct side *s)
{
    uint8_t block[512];
    const uint8_t which = take(t);
    const size_t len = put_block(block, requests[which % ARRAY_LEN(requests)]);

    if (s->peer.fd < 0)
        return;
    s->watches |= which % ARRAY_LEN(requests) == WATCH;
    send_frame(t, s, HEADERS, END_HEADERS | (which >= 0x80 ? END_STREAM : 0), s->next_id, block,
               len);
    s->next_id += 2;
}

/* One of the last calls: 0 is the newest. */
static uint32_t client_id(const struct side *s, unsigned back)
{
    return s->next_id > 2 * (back + 1) ? s->next_id - 2 * (back + 1) : 1;
}

static void send_body(struct play *t, struct side *s, uint32_t id, uint8_t which)
{
    const size_t i = which % ARRAY_LEN(bodies);

    send_frame(t, s, DATA, which >= 0x80 ? END_STREAM : 0, id, bodies[i].bytes, bodies[i].len);
}

static void say_something(struct play *t, struct side *s, uint32_t id)
{
    static const uint8_t zeros[8];
    const uint8_t what = take(t);

    switch (what & 7) {
    case 0:
        send_u32(t, s, RST_STREAM, id, what >> 3 & 15);
        break;
    case 1:
        send_u32(t, s, WINDOW_UPDATE, id, number(what >> 3));
        break;
    case 2:
        send_u32(t, s, WINDOW_UPDATE, 0, number(what >> 3));
        break;
    case 3:
        s->narrow = true;
        send_setting(t, s, 1 + (what >> 3) % 6, number(take(t)));
        break;
    case 4:
        send_frame(t, s, SETTINGS, 1, 0, NULL, 0);
        break;
    case 5:
        send_frame(t, s, PING, what >> 7, 0, zeros, 8);
        break;
    case 6:
        send_frame(t, s, GOAWAY, 0, 0, "\0\0\0\1\0\0\0\0", 8);
        break;
    default: {
        uint8_t raw[RAW_MAX];
        const uint8_t type = take(t), flags = take(t);
        const size_t len = take(t) % RAW_MAX;

        for (size_t i = 0; i < len; i++)
            raw[i] = take(t);
        s->narrow = true;
        send_frame(t, s, type, flags, (what & 8) != 0 ? id : 0, raw, len);
        break;
    }
    }
}

static void accept_ups(struct play *t, uint8_t how)
{
    for (size_t i = 0; i < RIG_REPLICAS; i++) {
        while (t->n_ups < UPS && rig_accept(&t->rig, i, &t->ups[t->n_ups].peer)) {
            struct side *s = &t->ups[t->n_ups++];

            s->reads = true;
            s->half_closed = false;
            send_setting(t, s, how % 7, number(how / 7));
        }
    }
}

static void up_headers(struct play *t, struct side *s, uint32_t id)
{
    uint8_t block[512];
    const uint8_t which = take(t);
    const size_t len = put_block(block, responses[which % ARRAY_LEN(responses)]);

    send_frame(t, s, HEADERS, END_HEADERS | (which >= 0x80 ? END_STREAM : 0), id, block, len);
}

static void read_all(struct play *t)
{
    for (size_t i = 0; i < CLIENTS; i++)
        if (t->clients[i].reads)
            rig_read(&t->clients[i].peer);
    for (size_t i = 0; i < t->n_ups; i++)
        if (t->ups[i].reads)
            rig_read(&t->ups[i].peer);
}

static void side_ends(struct play *t, struct side *s, unsigned how)
{
    if (s->peer.fd < 0)
        return;
    if (how % 3 == 0) {
        rig_close(&t->rig, &s->peer);
    } else if (how % 3 == 1) {
        shutdown(s->peer.fd, SHUT_WR);
        s->half_closed = true;
    } else {
        s->reads = !s->reads;
    }
}

static void step(struct play *t)
{
    static const uint64_t times_ms[] = {1, 5, 20, 60, 100, 300, 1000, 10000};
    const uint8_t op = take(t), arg = take(t);
    struct side *client = &t->clients[op >> 4 & 1];
    struct side *up = t->n_ups > 0 ? &t->ups[(op >> 4) % t->n_ups] : NULL;
    const uint32_t client_stream = client_id(client, arg & 7), up_stream = 1 + 2 * (arg & 7u);

    switch (op & 15) {
    case 0:
        client_connect(t, client, arg);
        break;
    case 1:
    case 2:
        client_request(t, client);
        break;
    case 3:
    case 4:
        send_body(t, client, client_stream, take(t));
        break;
    case 5:
        say_something(t, client, client_stream);
        break;
    case 6:
        side_ends(t, client, arg);
        break;
    case 7:
        accept_ups(t, arg);
        break;
    case 8:
    case 9:
        if (up != NULL)
            up_headers(t, up, up_stream);
        break;
    case 10:
        if (up != NULL)
            send_body(t, up, up_stream, take(t));
        break;
    case 11:
        if (up != NULL)
            say_something(t, up, up_stream);
        break;
    case 12:
        if (up != NULL)
            side_ends(t, up, arg);
        break;
    case 13:
        rig_pass(&t->rig, times_ms[arg % ARRAY_LEN(times_ms)] * US_PER_MS);
        break;
    case 14:
        rig_publish(&t->rig, arg);
        break;
    default:
        if (arg == 0xdd)
            rig_drain(&t->rig);
        break;
    }
    rig_settle(&t->rig);
    read_all(t);
}

/* ---- the whole ---- */

/* A client that was heard, that reads and that gave all the room there is by default. A health
 * watch alone may last. */
static void check_ends(const struct side *s)
{
    if (s->peer.fd < 0 || s->narrow || s->watches || !s->reads || s->half_closed ||
        s->peer.wire.goaway_code != 0)
        return;
    for (size_t i = 0; i < s->peer.wire.n_streams; i++) {
        const struct wire_stream *x = &s->peer.wire.streams[i];

        check(!x->opened || x->ended || x->reset || x->given_up ||
              x->id > s->peer.wire.goaway_last);
    }
}

static void run(struct play *t, const struct h2_engine *engine, const uint8_t *data, size_t size)
{
    t->p = data;
    t->left = size;
    t->n_ups = 0;
    for (size_t i = 0; i < CLIENTS; i++) {
        t->clients[i].peer.fd = -1;
        t->clients[i].reads = false;
        t->clients[i].next_id = 1;
    }
    rig_start(&t->rig, engine, false);
    while (t->left > 0)
        step(t);
    rig_pass(&t->rig, OVER_US);
    read_all(t);
    for (size_t i = 0; i < CLIENTS; i++) {
        if (t->clients[i].peer.fd >= 0 && t->clients[i].reads && rig_read(&t->clients[i].peer))
            check_ends(&t->clients[i]);
    }
    for (size_t i = 0; i < t->n_ups; i++) {
        if (t->ups[i].reads)
            rig_read(&t->ups[i].peer);
        rig_close(&t->rig, &t->ups[i].peer);
    }
    for (size_t i = 0; i < CLIENTS; i++)
        rig_close(&t->rig, &t->clients[i].peer);
    rig_stop(&t->rig);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct play t; /* 400 KiB */

    if (size > INPUT_MAX)
        return 0;
    run(&t, &h2_engine_native, data, size);
    run(&t, &h2_engine_session, data, size);
    return 0;
}
