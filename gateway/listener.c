#include "gateway/listener.h"

#include <errno.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "gateway/door.h"
#include "gateway/worker.h"

#define ACCEPTS_A_TURN 64                /* then the other objects of the loop have their turn */
#define PAUSE_US       (100 * US_PER_MS) /* out of descriptors: some will end in that time */

/* What accept may say about the connection that it would have returned (accept(2)): go on. */
static bool accept_error_is_of_peer(int e)
{
    return e == ECONNABORTED || e == EINTR || e == EPROTO || e == ENETDOWN || e == ENOPROTOOPT ||
           e == EHOSTDOWN || e == ENONET || e == EHOSTUNREACH || e == EOPNOTSUPP ||
           e == ENETUNREACH;
}

static void listener_accept(struct listener *l)
{
    for (int i = 0; i < ACCEPTS_A_TURN; i++) {
        if (!door_has_room(l->worker, l->conn.tls != NULL)) {
            ev_io_stop(l->worker->loop.ev, &l->io);
            return;
        }

        struct net_addr peer;
        const int fd = net_accept(l->fd, &peer);

        if (fd >= 0) {
            door_hand(l->worker, (size_t)(l - l->worker->listeners), fd, &peer);
            continue;
        }
        if (errno == EAGAIN || errno == EWOULDBLOCK)
            return;
        if (accept_error_is_of_peer(errno))
            continue;
        log_warn("accept_failed", "worker=%u errno=%d", l->worker->index, errno);
        door_make_room(l->worker);
        ev_io_stop(l->worker->loop.ev, &l->io);
        timer_start(&l->worker->loop, &l->pause, l->worker->loop.now_us + PAUSE_US);
        return;
    }
}

static void listener_on_readable(struct ev_loop *loop, ev_io *w, int revents)
{
    (void)loop;
    (void)revents;
    listener_accept(container_of(w, struct listener, io));
}

static void listener_on_pause_over(struct timer *t)
{
    struct listener *l = container_of(t, struct listener, pause);

    ev_io_start(l->worker->loop.ev, &l->io);
}

/* With SO_REUSEPORT, so that the next process can listen before this one stops. The kernel would
 * let any other share the address, too, which would take part of our connections without a word: so
 * it is asked for alone before. */
static int listener_bind(const struct net_addr *addr, struct err *err)
{
    const int fd = net_listen(addr, false, err);

    if (fd < 0 || addr->sa.ss_family == AF_UNIX)
        return fd;
    close(fd);
    return net_listen(addr, true, err);
}

int listener_init(struct listener *l, struct worker *w, const struct net_addr *addr,
                  const struct listener *first, const struct conn_conf *conn, struct err *err)
{
    *l = (struct listener){.worker = w, .conn = *conn, .fd = -1};
    l->pause.fire = listener_on_pause_over;
    ev_io_init(&l->io, listener_on_readable, -1, EV_READ);
    if (first != NULL) {
        l->addr = first->addr;
        return 0;
    }

    const int fd = listener_bind(addr, err);

    if (fd < 0)
        return fd;
    l->fd = fd;
    net_addr_of_socket(fd, &l->addr);
    return 0;
}

void listener_start(struct listener *l)
{
    if (l->fd < 0)
        return;
    ev_io_set(&l->io, l->fd, EV_READ);
    ev_io_start(l->worker->loop.ev, &l->io);
}

void listener_resume(struct listener *l)
{
    if (l->conn.tls != NULL && l->fd >= 0)
        ev_io_start(l->worker->loop.ev, &l->io);
}

void listener_stop(struct listener *l)
{
    if (l->fd < 0)
        return;
    ev_io_stop(l->worker->loop.ev, &l->io);
    timer_stop(&l->worker->loop, &l->pause);
    close(l->fd);
    l->fd = -1;
}

void listener_fini(struct listener *l)
{
    if (l->worker != NULL)
        listener_stop(l);
}
