#include "gateway/answer.h"

#include <stdlib.h>

#include "base/buf.h"
#include "base/xalloc.h"
#include "gateway/local.h"
#include "gateway/request.h"
#include "gateway/worker.h"

#define ARENA_BYTES  (64u * 1024)  /* the request's header fields */
#define QUEUED_BYTES (256u * 1024) /* of answers to a client that does not read: then reset */

struct answer {
    struct call call; /* first */
    struct worker *worker;
    struct arena arena;
    struct dead dead;
    struct coarse_timer deadline;
    struct grpc_reader reader;
    struct buf message;
    struct local_call *local;
    const struct h2_field *content_type; /* of the request */
    size_t booked_bytes;                 /* in worker.call_bytes */
    bool client_ended;
    bool headers_sent;
    bool ended;
};

static struct answer *answer_of(struct call *c)
{
    return container_of(c, struct answer, call);
}

static void answer_finish(struct answer *a, enum grpc_status status, const char *text)
{
    if (a->ended)
        return;
    a->ended = true;
    coarse_timer_stop(&a->worker->loop, &a->deadline);
    call_send_status(&a->call, a->content_type, a->headers_sent, status, text);
    if (!a->client_ended)
        call_stop_upload(&a->call);
}

static void answer_on_send(void *user, const uint8_t *message, size_t len)
{
    struct answer *a = user;
    const struct h2_field fields[] = {
        H2_FIELD_INIT(":status", "200"),
        call_content_type(a->content_type),
    };
    uint8_t prefix[GRPC_PREFIX_BYTES];

    if (a->ended || a->call.down == NULL)
        return;
    if (h2_stream_queued(a->call.down) > QUEUED_BYTES) {
        a->ended = true;
        h2_reset(a->call.down, H2_ENHANCE_YOUR_CALM);
        return;
    }
    if (!a->headers_sent) {
        a->headers_sent = true;
        h2_send_headers(a->call.down, H2_RESPONSE, fields, ARRAY_LEN(fields), false);
    }
    grpc_prefix_write(prefix, false, (uint32_t)len);
    h2_send_data(a->call.down, NULL, prefix, sizeof(prefix), false);
    h2_send_data(a->call.down, NULL, message, len, false);
}

static void answer_on_finish(void *user, uint32_t grpc_status, const char *message)
{
    answer_finish(user, (enum grpc_status)grpc_status,
                  message != NULL && message[0] != '\0' ? message : NULL);
}

static const struct local_sink answer_sink = {.send = answer_on_send, .finish = answer_on_finish};

/* One step of the reader; false: no more for now. */
static bool answer_read(struct answer *a, const uint8_t **p, size_t *len)
{
    const uint8_t *piece;
    size_t piece_len;

    switch (grpc_reader_next(&a->reader, p, len, &piece, &piece_len)) {
    case GRPC_READ_MORE:
        return false;
    case GRPC_READ_BEGIN:
        if (a->reader.compressed && a->reader.message_bytes > 0)
            answer_finish(a, GRPC_UNIMPLEMENTED,
                          "compressed requests are not understood by this service");
        break;
    case GRPC_READ_BYTES:
        buf_append(&a->message, piece, piece_len);
        break;
    case GRPC_READ_END:
        local_on_message(a->local, a->message.data, a->message.len);
        buf_reset(&a->message);
        break;
    case GRPC_READ_TOO_LONG:
        answer_finish(a, GRPC_RESOURCE_EXHAUSTED,
                      "the request message is over the limit of 65536 bytes of this service");
        break;
    case GRPC_READ_BAD_FLAG:
        answer_finish(a, GRPC_INTERNAL, "the request's compressed flag is neither 0 nor 1");
        break;
    }
    return !a->ended;
}

static void answer_half_close(struct answer *a)
{
    a->client_ended = true;
    if (a->ended)
        return;
    if (!grpc_reader_is_between(&a->reader))
        answer_finish(a, GRPC_INTERNAL, "the request ends inside a message");
    else
        local_on_end(a->local);
}

static void answer_on_data(struct call *c, struct slab *slab, const uint8_t *p, size_t len,
                           bool end)
{
    struct answer *a = answer_of(c);

    (void)slab;
    h2_consume(c->down, len);
    while (!a->ended && answer_read(a, &p, &len))
        ;
    if (end)
        answer_half_close(a);
}

static void answer_on_trailers(struct call *c, const struct h2_field *fields, size_t n)
{
    (void)fields;
    (void)n;
    answer_half_close(answer_of(c));
}

static void answer_on_sent(struct call *c, size_t bytes)
{
    (void)c;
    (void)bytes;
}

static void answer_reap(struct dead *d)
{
    struct answer *a = container_of(d, struct answer, dead);

    worker_unbook_call(a->worker, &a->booked_bytes);
    arena_fini(&a->arena);
    buf_fini(&a->message);
    free(a);
}

static void answer_on_close(struct call *c, uint32_t code)
{
    struct answer *a = answer_of(c);

    (void)code;
    c->down = NULL;
    a->ended = true;
    coarse_timer_stop(&a->worker->loop, &a->deadline);
    if (a->local != NULL)
        a->local = local_close(a->local);
    a->worker->counters[COUNT_streams_open]--;
    loop_bury(&a->worker->loop, &a->dead);
}

static const struct call_ops answer_ops = {
    .on_data = answer_on_data,
    .on_trailers = answer_on_trailers,
    .on_sent = answer_on_sent,
    .on_close = answer_on_close,
};

static void answer_on_deadline(struct coarse_timer *t)
{
    answer_finish(container_of(t, struct answer, deadline), GRPC_DEADLINE_EXCEEDED,
                  "the call's grpc-timeout has passed");
}

void answer_start(struct session *session, struct h2_stream *down,
                  const struct local_method *method, const struct h2_field *fields, size_t n,
                  bool end)
{
    struct worker *w = session->worker;
    struct answer *a = xcalloc(1, sizeof(*a));
    struct request_head head;

    a->worker = w;
    a->dead.reap = answer_reap;
    a->deadline.fire = answer_on_deadline;
    arena_init(&a->arena, ARENA_BYTES);
    buf_init(&a->message, LOCAL_MESSAGE_BYTES);
    grpc_reader_init(&a->reader, LOCAL_MESSAGE_BYTES);
    call_attach(&a->call, &answer_ops, session, down);
    worker_count(w, COUNT_streams_started);
    worker_count(w, COUNT_streams_local);
    w->counters[COUNT_streams_open]++;
    a->client_ended = end;

    const enum request_fault fault = request_read(&head, &a->arena, fields, n);

    worker_book_call(w, &a->booked_bytes, a->arena.used_bytes);
    if (fault != REQUEST_OK || head.fields == NULL) {
        a->ended = true;
        call_refuse(&a->call, fault, &head);
        if (!end)
            call_stop_upload(&a->call);
        return;
    }
    a->content_type = head.content_type;
    if (head.timeout != NULL)
        coarse_timer_start(&w->loop, &a->deadline, w->loop.now_us + head.timeout_us);
    a->local = local_open(w->local, method, &answer_sink, a);
    if (end)
        answer_half_close(a);
}
