/* penstock-light: a replica that costs next to nothing, for measuring what is in front of it.
 *
 * Every call gets the same answer once its request has ended: OK and a message of --bytes bytes,
 * encoded beforehand. Request headers are not looked at. Prints `listening grpc ADDR` and `ready`;
 * SIGTERM ends it. */
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

struct client {
    struct wire wire; /* its address is epoll's data */
    struct list node; /* light.clients */
    bool magic_seen;
    struct wire_block response, trailers;
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

static void client_answer(struct client *c, const struct light *l, uint32_t id)
{
    uint8_t *p;

    put_block(&c->wire, &c->response, 0, id);
    p = wire_put(&c->wire, FRAME_HEAD_BYTES + l->message_bytes);
    memcpy(frame_write(p, l->message_bytes, FRAME_DATA, 0, id), l->message, l->message_bytes);
    put_block(&c->wire, &c->trailers, FRAME_END_STREAM, id);
}

static void client_on_frame(struct client *c, const struct light *l, const struct frame *f,
                            const uint8_t *p, size_t len)
{
    switch (f->type) {
    case FRAME_DATA:
        wire_put_window(&c->wire, f->len);
        if (len > 0 && (f->flags & FRAME_END_STREAM) == 0) { /* this stream's window as well */
            uint8_t *to = wire_put(&c->wire, FRAME_HEAD_BYTES + 4);

            frame_write_u32(frame_write(to, 4, FRAME_WINDOW_UPDATE, 0, f->id), (uint32_t)len);
        }
        break;
    case FRAME_SETTINGS:
        if ((f->flags & FRAME_ACK) == 0)
            wire_put_settings_ack(&c->wire);
        return;
    case FRAME_PING:
        if ((f->flags & FRAME_ACK) == 0 && len == 8)
            wire_put_pong(&c->wire, p);
        return;
    case FRAME_HEADERS:
        break;
    default:
        return;
    }
    if ((f->flags & FRAME_END_STREAM) != 0)
        client_answer(c, l, f->id);
}

/* 0: goes on. */
static int client_turn(struct client *c, const struct light *l)
{
    struct frame f;
    const uint8_t *p;
    size_t len;
    const long n = wire_read(&c->wire);
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
    while ((r = wire_next(&c->wire, &f, &p, &len)) > 0)
        client_on_frame(c, l, &f, p, len);
    return r < 0 ? r : wire_flush(&c->wire);
}

static void client_free(struct client *c)
{
    list_remove(&c->node);
    wire_close(&c->wire);
    free(c);
}

static void light_accept(struct light *l)
{
    static const struct h2_field *const fields[] = {response, trailers};
    static const size_t n_fields[] = {ARRAY_LEN(response), ARRAY_LEN(trailers)};
    const int fd = accept4(l->listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    struct client *c;

    if (fd < 0)
        return;
    c = xcalloc(1, sizeof(*c));
    list_push_back(&l->clients, &c->node);

    struct wire_block *const blocks[] = {&c->response, &c->trailers};

    check(wire_block_make(blocks, fields, n_fields, ARRAY_LEN(blocks), true) == 0);
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
        {ARG_UINT, "bytes", "N", &bytes, 0, 16000, "of the answer's message (128)"},
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
