/* penstock-fault: a slow, far link between a client and a server, for TCP of any kind.
 *
 * Each connection to --listen gets one of its own to --to. Bytes leave at --rate-kib, one way as
 * the other, and arrive --delay-ms after they left: what a link of that capacity and half that
 * round trip does. A link holds what is on its way and a short queue in front of it, then its
 * sender waits. Prints `listening grpc ADDR` and `ready`; SIGTERM ends it.
 *
 * TCP itself is answered on this machine, so only what is above it feels the distance: windows of
 * HTTP/2, handshakes of TLS, requests and answers. */
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/list.h"
#include "base/xalloc.h"
#include "loadtest/args.h"
#include "net/conn.h"

#define EVENTS      64
#define CHUNK_BYTES 16384u
#define QUEUE_MS    20u        /* in front of a link with a rate */
#define FREE_BYTES  (4u << 20) /* held on a link without a rate */
#define CONNECT_S   5
#define NEVER       UINT64_MAX

static const char usage[] =
    "usage: penstock-fault --listen ADDR --to ADDR [--delay-ms MS] [--rate-kib N]\n"
    "\n"
    "A slow, far link between a client and a server. Each way, of each connection:\n"
    "\n"
    "    penstock-fault --listen 127.0.0.1:0 --to 127.0.0.1:8080 --delay-ms 25 --rate-kib 12500\n"
    "\n"
    "is a link of 100 Mbit/s with a round trip of 50 ms.\n";

struct chunk {
    struct list node; /* end.chunks */
    uint64_t due_us;  /* when its last byte arrives */
    size_t from, len; /* len 0: the sender has finished */
    uint8_t data[];
};

/* One end of a connection, with the way that leads from it to the other. */
struct end {
    int fd;
    struct end *peer;
    struct link *link;
    struct list chunks; /* read here, not written there yet */
    size_t n_bytes;     /* of them */
    uint64_t free_us;   /* when the link is done with what it has */
    uint32_t events;    /* asked of epoll */
    bool finished;      /* no more comes from here */
    bool gone;          /* closed both ways, and no longer watched */
    bool blocked;       /* this socket takes no more now */
};

struct link {
    struct list node; /* fault.links or fault.ended */
    struct end a, b;
    bool ended;
};

struct fault {
    int epoll, listener, signals;
    struct net_addr to;
    uint64_t delay_us, rate_kib;
    size_t hold_bytes; /* of one way */
    struct list links, ended;
    uint64_t now_us;
};

static void end_watch(struct fault *f, struct end *e)
{
    const bool may_read = !e->finished && e->n_bytes < f->hold_bytes;
    const uint32_t events = (may_read ? EPOLLIN : 0) | (e->blocked ? EPOLLOUT : 0);
    struct epoll_event ev = {.events = events, .data.ptr = e};

    if (events == e->events || e->gone)
        return;
    e->events = events;
    check(epoll_ctl(f->epoll, EPOLL_CTL_MOD, e->fd, &ev) == 0);
}

/* Its socket has nothing more to say; what came from it may still be on its way. */
static void end_forget(struct fault *f, struct end *e)
{
    e->gone = true;
    check(epoll_ctl(f->epoll, EPOLL_CTL_DEL, e->fd, NULL) == 0);
}

/* Freed after the turn: its events may still name it. */
static void link_end(struct fault *f, struct link *l)
{
    if (l->ended)
        return;
    l->ended = true;
    close(l->a.fd);
    close(l->b.fd);
    list_remove(&l->node);
    list_push_back(&f->ended, &l->node);
}

static void end_drop_chunks(struct end *e)
{
    list_each (&e->chunks, it)
        free(list_entry(it, struct chunk, node));
}

static void link_free(struct link *l)
{
    list_remove(&l->node);
    end_drop_chunks(&l->a);
    end_drop_chunks(&l->b);
    free(l);
}

/* n bytes set out now: when do they arrive? */
static uint64_t end_depart(struct fault *f, struct end *e, size_t n)
{
    if (e->free_us < f->now_us)
        e->free_us = f->now_us;
    if (f->rate_kib > 0)
        e->free_us += n * US_PER_S / (f->rate_kib * 1024);
    return e->free_us + f->delay_us;
}

static void end_read(struct fault *f, struct end *e)
{
    while (!e->finished && e->n_bytes < f->hold_bytes) {
        struct chunk *c = malloc(sizeof(*c) + CHUNK_BYTES);
        ssize_t n;

        check(c != NULL);
        n = recv(e->fd, c->data, CHUNK_BYTES, 0);
        if (n < 0) {
            free(c);
            if (errno != EAGAIN && errno != EINTR)
                link_end(f, e->link);
            return;
        }
        e->finished = n == 0;
        c->from = 0;
        c->len = (size_t)n;
        c->due_us = end_depart(f, e, c->len);
        e->n_bytes += c->len;
        list_push_back(&e->chunks, &c->node);
    }
}

/* What has arrived goes on to the peer. Returns when the next arrives, or NEVER. */
static uint64_t end_write(struct fault *f, struct end *e)
{
    struct chunk *c;

    e->peer->blocked = false;
    while ((c = list_first(&e->chunks, struct chunk, node)) != NULL) {
        ssize_t n;

        if (c->due_us > f->now_us)
            return c->due_us;
        if (c->len == 0) {
            shutdown(e->peer->fd, SHUT_WR);
        } else {
            n = send(e->peer->fd, c->data + c->from, c->len - c->from, MSG_NOSIGNAL);
            if (n < 0 && errno != EAGAIN && errno != EINTR) {
                link_end(f, e->link);
                return NEVER;
            }
            c->from += n > 0 ? (size_t)n : 0;
            e->n_bytes -= n > 0 ? (size_t)n : 0;
            if (c->from < c->len) {
                e->peer->blocked = true;
                return NEVER;
            }
        }
        list_remove(&c->node);
        free(c);
    }
    return NEVER;
}

static uint64_t link_turn(struct fault *f, struct link *l)
{
    uint64_t next = end_write(f, &l->a), other;

    if (!l->ended) {
        other = end_write(f, &l->b);
        next = other < next ? other : next;
    }
    if (!l->ended && l->a.finished && l->b.finished && list_is_empty(&l->a.chunks) &&
        list_is_empty(&l->b.chunks))
        link_end(f, l);
    if (l->ended)
        return NEVER;
    end_watch(f, &l->a);
    end_watch(f, &l->b);
    return next;
}

static void end_init(struct fault *f, struct link *l, struct end *e, struct end *peer, int fd)
{
    struct epoll_event ev = {.events = EPOLLIN, .data.ptr = e};
    const int one = 1;

    *e = (struct end){.fd = fd, .peer = peer, .link = l, .events = EPOLLIN};
    list_init(&e->chunks);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one)); /* a UNIX socket has none */
    fcntl(fd, F_SETFL, O_NONBLOCK);
    check(epoll_ctl(f->epoll, EPOLL_CTL_ADD, fd, &ev) == 0);
}

static void fault_accept(struct fault *f)
{
    const struct timeval limit = {.tv_sec = CONNECT_S};
    const int client = accept4(f->listener, NULL, NULL, SOCK_CLOEXEC);
    const int server = socket(f->to.sa.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (client >= 0 && server >= 0) {
        setsockopt(server, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
        if (connect(server, (const struct sockaddr *)&f->to.sa, f->to.sa_len) == 0) {
            struct link *l = xcalloc(1, sizeof(*l));

            end_init(f, l, &l->a, &l->b, client);
            end_init(f, l, &l->b, &l->a, server);
            list_push_back(&f->links, &l->node);
            return;
        }
        fprintf(stderr, "penstock-fault: connect to %s: %s\n", f->to.text, strerror(errno));
    }
    if (client >= 0)
        close(client);
    if (server >= 0)
        close(server);
}

/* true: SIGTERM came. */
static bool fault_wait(struct fault *f, uint64_t next_us)
{
    struct epoll_event events[EVENTS];
    const uint64_t wait_us = next_us <= f->now_us ? 0 : next_us - f->now_us;
    const struct timespec wait = {.tv_sec = (time_t)(wait_us / US_PER_S),
                                  .tv_nsec = (long)(wait_us % US_PER_S * 1000)};
    const int n = epoll_pwait2(f->epoll, events, EVENTS, next_us == NEVER ? NULL : &wait, NULL);

    f->now_us = clock_mono_us();
    for (int i = 0; i < n; i++) {
        void *what = events[i].data.ptr;

        if (what == &f->signals)
            return true;
        if (what == &f->listener) {
            fault_accept(f);
            continue;
        }

        struct end *e = what;

        if (e->link->ended)
            continue;
        if ((events[i].events & EPOLLIN) != 0)
            end_read(f, e);
        else if ((events[i].events & EPOLLERR) != 0)
            link_end(f, e->link);
        else if ((events[i].events & EPOLLHUP) != 0 && e->finished)
            end_forget(f, e);
    }
    return false;
}

static void fault_run(struct fault *f)
{
    uint64_t next_us = NEVER;

    f->now_us = clock_mono_us();
    while (!fault_wait(f, next_us)) {
        next_us = NEVER;
        list_each (&f->links, it) {
            const uint64_t due_us = link_turn(f, list_entry(it, struct link, node));

            next_us = due_us < next_us ? due_us : next_us;
        }
        list_each (&f->ended, it)
            link_free(list_entry(it, struct link, node));
    }
    list_each (&f->links, it)
        link_end(f, list_entry(it, struct link, node));
    list_each (&f->ended, it)
        link_free(list_entry(it, struct link, node));
}

static void fault_watch(struct fault *f, const int *fd)
{
    struct epoll_event e = {.events = EPOLLIN, .data.ptr = (void *)(uintptr_t)fd};

    check(epoll_ctl(f->epoll, EPOLL_CTL_ADD, *fd, &e) == 0);
}

int main(int argc, char **argv)
{
    const char *listen = NULL, *to = NULL;
    uint64_t delay_ms = 0;
    struct fault f = {.listener = -1};
    const struct arg table[] = {
        {ARG_STR, "listen", "ADDR", &listen, 0, 0, "127.0.0.1:0, [::1]:80, unix:/path"},
        {ARG_STR, "to", "ADDR", &to, 0, 0, "the server"},
        {ARG_UINT, "delay-ms", "MS", &delay_ms, 0, 60000,
         "one way; a round trip is twice that (0)"},
        {ARG_UINT, "rate-kib", "N", &f.rate_kib, 0, 100u << 20,
         "KiB per second, each way (0: no limit)"},
        {0},
    };
    struct net_addr addr;
    struct err err = {0};
    sigset_t stop;
    const int r = args_parse(table, usage, argc, argv);

    if (r != ARGS_OK)
        return r == ARGS_HELP ? 0 : EXIT_USAGE;
    if (listen == NULL || to == NULL) {
        fprintf(stderr, "penstock-fault: --listen ADDR and --to ADDR are needed\n");
        return EXIT_USAGE;
    }
    if (net_addr_parse(&f.to, to, &err) == 0 && net_addr_parse(&addr, listen, &err) == 0)
        f.listener = net_listen(&addr, false, &err);
    if (f.listener < 0) {
        fprintf(stderr, "penstock-fault: %s\n", err.text);
        return 1;
    }
    list_init(&f.links);
    list_init(&f.ended);
    f.delay_us = delay_ms * US_PER_MS;
    f.hold_bytes = f.rate_kib == 0
                       ? FREE_BYTES
                       : (size_t)(f.rate_kib * 1024 * (delay_ms + QUEUE_MS) / 1000) + CHUNK_BYTES;
    sigemptyset(&stop);
    sigaddset(&stop, SIGTERM);
    sigaddset(&stop, SIGINT);
    sigprocmask(SIG_BLOCK, &stop, NULL);
    f.epoll = epoll_create1(EPOLL_CLOEXEC);
    f.signals = signalfd(-1, &stop, SFD_CLOEXEC);
    fault_watch(&f, &f.listener);
    fault_watch(&f, &f.signals);
    net_addr_of_socket(f.listener, &addr);
    printf("listening grpc %s\nready\n", addr.text);
    fflush(stdout);
    fault_run(&f);
    close(f.listener);
    return 0;
}
