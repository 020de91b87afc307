/* penstock-light: a replica that costs next to nothing, for measuring what is in front of it.
 *
 * Every call gets the same answer once its request has ended: OK and a message of --bytes bytes,
 * encoded beforehand, as fast as the peer's windows let it. Request headers are not looked at.
 * Prints `listening grpc ADDR` and `ready`; SIGTERM ends it. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/check.h"
#include "base/list.h"
#include "base/xalloc.h"
#include "loadtest/args.h"
#include "loadtest/wire.h"
#include "net/conn.h"
#include "proto/grpc.h"

#define EVENTS 64

static const char usage[] =
    "usage: penstock-light --listen ADDR [--bytes N]\n"
    "\n"
    "Answer every gRPC call with OK and the same N bytes, as cheaply as can be: a replica for\n"
    "measuring what is in front of it.\n";

static const struct h2_field response[] = {
    H2_FIELD_INIT(":status", "200"),
    H2_FIELD_INIT("content-type", "application/grpc"),
};
static const struct h2_field trailers[] = {H2_FIELD_INIT("grpc-status", "0")};

/* An answer that the peer's windows let go only in parts. */
struct answer {
    struct list node; /* client.answers */
    uint32_t id;
    int64_t window;
    size_t left;
    bool begun; /* its headers are out */
};

struct client {
    struct wire wire; /* its address is epoll's data */
    struct list node; /* light.clients */
    bool magic_seen, settings_seen;
    struct wire_block response, trailers;
    struct list answers; /* begun, not ended: in turn */
    int64_t window, stream_window;
};

struct light {
    int epoll, listener, signals;
    struct list clients;
    uint8_t *message; /* framed */
    size_t message_bytes;
};

static void put_block(struct wire *w, struct wire_block *b, unsigned flags, uint32_t id)
{
    size_t len;
    const uint8_t *block = wire_block_next(b, &len);
    uint8_t *p = wire_put(w, FRAME_HEAD_BYTES + len);

    memcpy(frame_write(p, len, FRAME_HEADERS, FRAME_END_HEADERS | flags, id), block, len);
}

/* One DATA frame of what is left, as long as the windows let it be; they are open. */
static void put_data(struct client *c, const struct light *l, struct answer *a)
{
    const uint8_t *from = l->message + (l->message_bytes - a->left);
    size_t n = a->left < FRAME_PAYLOAD_BYTES ? a->left : FRAME_PAYLOAD_BYTES;
    uint8_t *p;

    if ((int64_t)n > a->window)
        n = (size_t)a->window;
    if ((int64_t)n > c->window)
        n = (size_t)c->window;
    p = wire_put(&c->wire, FRAME_HEAD_BYTES + n);
    memcpy(frame_write(p, n, FRAME_DATA, 0, a->id), from, n);
    a->left -= n;
    a->window -= (int64_t)n;
    c->window -= (int64_t)n;
}

static void client_answer(struct client *c, const struct light *l, uint32_t id)
{
    struct answer a = {.id = id, .window = c->stream_window, .left = l->message_bytes};

    if (!c->settings_seen)
        return; /* no client speaks before its SETTINGS */
    if (list_is_empty(&c->answers) && l->message_bytes <= FRAME_PAYLOAD_BYTES &&
        a.window >= (int64_t)a.left && c->window >= (int64_t)a.left) {
        put_block(&c->wire, &c->response, 0, id);
        put_data(c, l, &a);
        put_block(&c->wire, &c->trailers, FRAME_END_STREAM, id);
        return;
    }

    struct answer *kept = xcalloc(1, sizeof(*kept));

    *kept = a;
    list_push_back(&c->answers, &kept->node);
}

static void answer_free(struct answer *a)
{
    list_remove(&a->node);
    free(a);
}

/* Of the answers that wait, a frame each in turn, what the windows and our buffer have room for.
 * false: nothing. */
static bool client_send(struct client *c, const struct light *l)
{
    bool moved = true, sent = false;

    while (moved && c->window > 0) {
        moved = false;
        list_each (&c->answers, it) {
            struct answer *a = list_entry(it, struct answer, node);

            if (c->window <= 0 || wire_queued(&c->wire) >= WIRE_OUT_BYTES)
                return sent;
            if (a->window <= 0)
                continue;
            if (!c->trailers.was_sent && it != c->answers.next)
                break; /* both blocks enter the peer's table with the first answer */
            if (!a->begun)
                put_block(&c->wire, &c->response, 0, a->id);
            a->begun = true;
            put_data(c, l, a);
            moved = sent = true;
            if (a->left == 0) {
                put_block(&c->wire, &c->trailers, FRAME_END_STREAM, a->id);
                answer_free(a);
            }
        }
    }
    return sent;
}

static struct answer *client_find(struct client *c, uint32_t id)
{
    list_each (&c->answers, it) {
        struct answer *a = list_entry(it, struct answer, node);

        if (a->id == id)
            return a;
    }
    return NULL;
}

/* A peer whose table is smaller than the usual one (nginx: 0) gets literals. */
static int client_on_settings(struct client *c, const uint8_t *p, size_t len)
{
    static const struct h2_field *const fields[] = {response, trailers};
    static const size_t n_fields[] = {ARRAY_LEN(response), ARRAY_LEN(trailers)};
    struct wire_block *const blocks[] = {&c->response, &c->trailers};
    bool may_index = true;

    for (; len >= 6; p += 6, len -= 6) {
        const unsigned id = (unsigned)p[0] << 8 | p[1];
        const uint32_t value = frame_read_u32(p + 2);

        if (id == SETTING_HEADER_TABLE_SIZE)
            may_index = value >= 4096;
        if (id != SETTING_INITIAL_WINDOW_SIZE)
            continue;
        list_each (&c->answers, it)
            list_entry(it, struct answer, node)->window += (int64_t)value - c->stream_window;
        c->stream_window = value;
    }
    wire_put_settings_ack(&c->wire);
    if (c->settings_seen)
        return 0;
    c->settings_seen = true;
    return wire_block_make(blocks, fields, n_fields, ARRAY_LEN(blocks), may_index);
}

static void client_on_window(struct client *c, uint32_t id, uint32_t by)
{
    struct answer *a = id == 0 ? NULL : client_find(c, id);

    if (id == 0)
        c->window += by;
    else if (a != NULL)
        a->window += by;
}

static int client_on_frame(struct client *c, const struct light *l, const struct frame *f,
                           const uint8_t *p, size_t len)
{
    struct answer *a;

    switch (f->type) {
    case FRAME_DATA:
        wire_put_window(&c->wire, f->len); /* a stream's own is wider than any message */
        break;
    case FRAME_SETTINGS:
        return (f->flags & FRAME_ACK) == 0 ? client_on_settings(c, p, len) : 0;
    case FRAME_WINDOW_UPDATE:
        if (len == 4)
            client_on_window(c, f->id, frame_read_u32(p));
        return 0;
    case FRAME_PING:
        if ((f->flags & FRAME_ACK) == 0 && len == 8)
            wire_put_pong(&c->wire, p);
        return 0;
    case FRAME_RST_STREAM:
        a = client_find(c, f->id);
        if (a != NULL)
            answer_free(a);
        return 0;
    case FRAME_HEADERS:
        break;
    default:
        return 0;
    }
    if ((f->flags & FRAME_END_STREAM) != 0)
        client_answer(c, l, f->id);
    return 0;
}

/* 0: goes on. */
static int client_turn(struct client *c, const struct light *l)
{
    struct frame f;
    const uint8_t *p;
    size_t len;
    const long n = wire_read(&c->wire);
    bool more;
    int r = 0;

    if (n < 0)
        return (int)n;
    if (!c->magic_seen) {
        if (c->wire.in_len < FRAME_MAGIC_BYTES)
            return 0;
        if (memcmp(c->wire.in, FRAME_MAGIC, FRAME_MAGIC_BYTES) != 0)
            return -EPROTO;
        c->wire.in_from = FRAME_MAGIC_BYTES;
        c->magic_seen = true;
    }
    while ((r = wire_next(&c->wire, &f, &p, &len)) > 0) {
        if ((r = client_on_frame(c, l, &f, p, len)) < 0)
            break;
    }
    if (r < 0)
        return r;
    do {
        more = client_send(c, l);
        r = wire_flush(&c->wire);
    } while (r == 0 && more && !c->wire.write_waits);
    return r;
}

static void client_free(struct client *c)
{
    list_remove(&c->node);
    list_each (&c->answers, it)
        answer_free(list_entry(it, struct answer, node));
    wire_close(&c->wire);
    free(c);
}

static void light_accept(struct light *l)
{
    const int fd = accept4(l->listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    struct client *c;

    if (fd < 0)
        return;
    c = xcalloc(1, sizeof(*c));
    list_push_back(&l->clients, &c->node);
    list_init(&c->answers);
    c->window = c->stream_window = 65535; /* RFC 9113 6.9.2 */
    if (wire_open(&c->wire, fd, l->epoll, NULL) == 0) {
        wire_put_greeting(&c->wire, false);
        if (wire_flush(&c->wire) == 0)
            return;
    }
    client_free(c);
}

static void light_watch(struct light *l, const int *fd)
{
    struct epoll_event e = {.events = EPOLLIN, .data.ptr = (void *)(uintptr_t)fd};

    check(epoll_ctl(l->epoll, EPOLL_CTL_ADD, *fd, &e) == 0);
}

static void light_run(struct light *l)
{
    struct epoll_event events[EVENTS];

    for (;;) {
        const int n = epoll_wait(l->epoll, events, EVENTS, -1);

        for (int i = 0; i < n; i++) {
            void *what = events[i].data.ptr;

            if (what == &l->signals)
                return;
            if (what == &l->listener) {
                light_accept(l);
                continue;
            }

            struct client *c = container_of(what, struct client, wire);

            if (client_turn(c, l) != 0) /* events of one connection come as one */
                client_free(c);
        }
    }
}

int main(int argc, char **argv)
{
    const char *listen = NULL;
    uint64_t bytes = 128;
    const struct arg table[] = {
        {ARG_STR, "listen", "ADDR", &listen, 0, 0, "127.0.0.1:0, [::1]:80, unix:/path"},
        {ARG_UINT, "bytes", "N", &bytes, 0, 1u << 30, "of the answer's message (128)"},
        {0},
    };
    struct light l = {.listener = -1};
    struct net_addr addr;
    struct err err = {0};
    sigset_t stop;
    const int r = args_parse(table, usage, argc, argv);

    if (r != ARGS_OK)
        return r == ARGS_HELP ? 0 : EXIT_USAGE;
    if (listen == NULL) {
        fprintf(stderr, "penstock-light: --listen ADDR is missing\n");
        return EXIT_USAGE;
    }
    if (net_addr_parse(&addr, listen, &err) == 0)
        l.listener = net_listen(&addr, false, &err);
    if (l.listener < 0) {
        fprintf(stderr, "penstock-light: %s\n", err.text);
        return 1;
    }
    list_init(&l.clients);
    l.message_bytes = GRPC_PREFIX_BYTES + bytes;
    l.message = xcalloc(1, l.message_bytes);
    grpc_prefix_write(l.message, false, (uint32_t)bytes);
    sigemptyset(&stop);
    sigaddset(&stop, SIGTERM);
    sigaddset(&stop, SIGINT);
    sigprocmask(SIG_BLOCK, &stop, NULL);
    l.epoll = epoll_create1(EPOLL_CLOEXEC);
    l.signals = signalfd(-1, &stop, SFD_CLOEXEC);
    light_watch(&l, &l.listener);
    light_watch(&l, &l.signals);
    net_addr_of_socket(l.listener, &addr);
    printf("listening grpc %s\nready\n", addr.text);
    fflush(stdout);
    light_run(&l);
    list_each (&l.clients, it)
        client_free(list_entry(it, struct client, node));
    free(l.message);
    close(l.listener);
    return 0;
}
