/* raw_relay: bytes from each connection to one of our own to the server and back, not looked at.
 *
 *     raw_relay PORT TO_PORT[,TO_PORT...] BUFFER_BYTES
 *
 * What any proxy has to pay: the floor that `./dev bench` holds the gateway against. One thread,
 * level-triggered epoll, one buffer for all, one read and one write per readiness, TCP_NODELAY.
 * Servers take turns. Bytes that a socket does not take wait in the peer's own buffer, and its
 * reading stops. Prints `ready`. On 127.0.0.1. */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#define SERVERS 8
#define EVENTS  64

struct end {
    int fd;
    struct end *peer;
    uint8_t *kept; /* read from here, not taken by the peer */
    size_t n_kept;
    bool ended;
};

static int epoll;
static uint8_t *buffer;
static size_t buffer_bytes;

static _Noreturn void fail(const char *what)
{
    perror(what);
    exit(1);
}

static void watch(struct end *e, int op)
{
    const uint32_t in = e->n_kept == 0 ? EPOLLIN : 0;
    const uint32_t out = e->peer != NULL && e->peer->n_kept > 0 ? EPOLLOUT : 0;
    struct epoll_event ev = {.events = in | out, .data.ptr = e};

    if (epoll_ctl(epoll, op, e->fd, &ev) != 0)
        fail("epoll_ctl");
}

static struct sockaddr_in loopback(int port)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};

    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return a;
}

static struct end *end_new(int fd)
{
    struct end *e = calloc(1, sizeof(*e));
    const int one = 1;

    if (e == NULL)
        fail("calloc");
    e->fd = fd;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    return e;
}

static void accept_one(int listener, int to_port)
{
    const struct sockaddr_in to = loopback(to_port);
    const int client_fd = accept(listener, NULL, NULL);
    const int server_fd = socket(AF_INET, SOCK_STREAM, 0);

    if (client_fd < 0 || server_fd < 0)
        fail("accept");
    if (connect(server_fd, (const struct sockaddr *)&to, sizeof(to)) != 0)
        fail("connect");

    struct end *client = end_new(client_fd), *server = end_new(server_fd);

    client->peer = server;
    server->peer = client;
    watch(client, EPOLL_CTL_ADD);
    watch(server, EPOLL_CTL_ADD);
}

/* Both are done with: freed by free_ended, not while events of this turn may name them. */
static void end_pair(struct end *e)
{
    if (e->ended)
        return;
    e->ended = e->peer->ended = true;
    close(e->fd);
    close(e->peer->fd);
}

static void free_ended(struct epoll_event *events, int n)
{
    for (int i = 0; i < n; i++) {
        struct end *e = events[i].data.ptr;

        if (e == NULL || !e->ended)
            continue;
        for (int j = i + 1; j < n; j++) {
            if (events[j].data.ptr == e || events[j].data.ptr == e->peer)
                events[j].data.ptr = NULL;
        }
        free(e->peer->kept);
        free(e->peer);
        free(e->kept);
        free(e);
    }
}

static ssize_t send_some(const struct end *to, const uint8_t *p, size_t n)
{
    const ssize_t sent = send(to->fd, p, n, MSG_NOSIGNAL | MSG_DONTWAIT);

    return sent < 0 && errno == EAGAIN ? 0 : sent;
}

/* false: the pair has ended. */
static bool forward(struct end *from)
{
    const ssize_t n = recv(from->fd, buffer, buffer_bytes, MSG_DONTWAIT);
    ssize_t sent;

    if (n < 0 && errno == EAGAIN)
        return true;
    if (n <= 0 || (sent = send_some(from->peer, buffer, (size_t)n)) < 0)
        return false;
    if (sent == n)
        return true;
    from->n_kept = (size_t)(n - sent);
    from->kept = malloc(from->n_kept);
    if (from->kept == NULL)
        fail("malloc");
    memcpy(from->kept, buffer + sent, from->n_kept);
    watch(from, EPOLL_CTL_MOD);
    watch(from->peer, EPOLL_CTL_MOD);
    return true;
}

static bool send_kept(struct end *from)
{
    const ssize_t sent = send_some(from->peer, from->kept, from->n_kept);

    if (sent < 0)
        return false;
    from->n_kept -= (size_t)sent;
    memmove(from->kept, from->kept + sent, from->n_kept);
    if (from->n_kept > 0)
        return true;
    free(from->kept);
    from->kept = NULL;
    watch(from, EPOLL_CTL_MOD);
    watch(from->peer, EPOLL_CTL_MOD);
    return true;
}

static void turn(struct end *e, uint32_t events)
{
    if (e->ended)
        return;
    if (e->peer->n_kept > 0 && (events & (EPOLLOUT | EPOLLHUP | EPOLLERR)) != 0 &&
        !send_kept(e->peer)) {
        end_pair(e);
        return;
    }
    if (e->n_kept == 0 && (events & (EPOLLIN | EPOLLHUP | EPOLLERR)) != 0 && !forward(e))
        end_pair(e);
}

static int listen_on(int port)
{
    const struct sockaddr_in a = loopback(port);
    const int fd = socket(AF_INET, SOCK_STREAM, 0), one = 1;
    struct epoll_event ev = {.events = EPOLLIN, .data.ptr = NULL};

    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
    if (bind(fd, (const struct sockaddr *)&a, sizeof(a)) != 0 || listen(fd, 4096) != 0)
        fail("listen");
    if (epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &ev) != 0)
        fail("epoll_ctl");
    return fd;
}

int main(int argc, char **argv)
{
    struct epoll_event events[EVENTS];
    int to[SERVERS], n_to = 0, turns = 0;

    for (char *p = argc == 4 ? strtok(argv[2], ",") : NULL; p != NULL && n_to < SERVERS;
         p = strtok(NULL, ","))
        to[n_to++] = atoi(p);
    buffer_bytes = argc == 4 ? strtoul(argv[3], NULL, 10) : 0;
    if (n_to == 0 || buffer_bytes == 0) {
        fprintf(stderr, "usage: raw_relay PORT TO_PORT[,TO_PORT...] BUFFER_BYTES\n");
        return 64;
    }
    buffer = malloc(buffer_bytes);
    epoll = epoll_create1(0);
    if (buffer == NULL || epoll < 0)
        fail("start");

    const int listener = listen_on(atoi(argv[1]));

    printf("ready\n");
    fflush(stdout);
    for (;;) {
        const int n = epoll_wait(epoll, events, EVENTS, -1);

        for (int i = 0; i < n; i++) {
            if (events[i].data.ptr == NULL)
                accept_one(listener, to[turns++ % n_to]);
            else
                turn(events[i].data.ptr, events[i].events);
        }
        free_ended(events, n);
    }
}
