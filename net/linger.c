#include "net/linger.h"

#include <errno.h>
#include <poll.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/xalloc.h"
#include "net/loop.h"

#define LINGER_US      US_PER_S      /* a peer that is there ends in a round trip */
#define LINGER_MAX     256u          /* of a loop: more are closed at once */
#define LINGER_BYTES   (1024 * 1024) /* read and dropped: more than what a stopped upload sends */
#define LINGER_READS   8             /* per turn */
#define LINGER_LAST_MS 200

struct linger_socket {
    struct list node;
    struct loop *loop;
    int fd;
    size_t bytes;
    ev_io readable;
    struct timer timer;
};

static void linger_end(struct linger_socket *s)
{
    ev_io_stop(s->loop->ev, &s->readable);
    timer_stop(s->loop, &s->timer);
    list_remove(&s->node);
    s->loop->n_lingering--;
    close(s->fd);
    free(s);
}

/* Returns whether more may come. */
static bool linger_read(struct linger_socket *s)
{
    uint8_t sink[16 * 1024];

    for (int i = 0; i < LINGER_READS && s->bytes < LINGER_BYTES; i++) {
        const ssize_t n = read(s->fd, sink, sizeof(sink));

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN)
            return true;
        if (n <= 0)
            return false;
        s->bytes += (size_t)n;
    }
    return s->bytes < LINGER_BYTES;
}

static void linger_on_readable(struct ev_loop *ev, ev_io *w, int revents)
{
    struct linger_socket *s = container_of(w, struct linger_socket, readable);

    (void)ev;
    (void)revents;
    if (!linger_read(s))
        linger_end(s);
}

static void linger_on_timer(struct timer *t)
{
    linger_end(container_of(t, struct linger_socket, timer));
}

void linger_take(struct loop *l, int fd)
{
    struct linger_socket *s;

    if (l->n_lingering >= LINGER_MAX || shutdown(fd, SHUT_WR) != 0) {
        close(fd);
        return;
    }
    s = xcalloc(1, sizeof(*s));
    s->loop = l;
    s->fd = fd;
    s->timer.fire = linger_on_timer;
    ev_io_init(&s->readable, linger_on_readable, fd, EV_READ);
    ev_io_start(l->ev, &s->readable);
    timer_start(l, &s->timer, l->now_us + LINGER_US);
    list_push_back(&l->lingering, &s->node);
    l->n_lingering++;
}

void linger_finish(struct loop *l)
{
    const uint64_t until_us = clock_mono_us() + LINGER_LAST_MS * US_PER_MS;
    struct linger_socket *s;

    while ((s = list_first(&l->lingering, struct linger_socket, node)) != NULL) {
        struct pollfd p = {.fd = s->fd, .events = POLLIN};
        const uint64_t now_us = clock_mono_us();
        const int wait_ms = now_us < until_us ? (int)((until_us - now_us) / US_PER_MS) : 0;

        if (poll(&p, 1, wait_ms) <= 0 || !linger_read(s))
            linger_end(s);
    }
}
