#include "gateway/door.h"

#include <stdlib.h>
#include <unistd.h>

#include "base/xalloc.h"
#include "gateway/listener.h"
#include "gateway/session.h"
#include "gateway/worker.h"

struct hand_msg {
    struct mbox_msg msg;
    size_t listener;
    int fd;
    struct net_addr peer;
};

static unsigned count_of(atomic_uint *count)
{
    return atomic_load_explicit(count, memory_order_relaxed);
}

static void count_up(atomic_uint *count)
{
    atomic_fetch_add_explicit(count, 1, memory_order_relaxed);
}

static void count_down(atomic_uint *count)
{
    atomic_fetch_sub_explicit(count, 1, memory_order_relaxed);
}

static bool has_handshake_room(struct worker *w)
{
    return count_of(&w->door.handshakes) < w->handshakes.max;
}

/* The worker with the fewest connections; of equals the next in turn. NULL: with TLS, none. */
static struct worker *door_choose(struct worker *acceptor, bool tls)
{
    struct worker *best = NULL;
    unsigned fewest = 0;

    for (uint32_t i = 0; i < acceptor->n_peers; i++) {
        struct worker *w = &acceptor->peers[(acceptor->door_turn + i) % acceptor->n_peers];
        const unsigned n = count_of(&w->door.sessions);

        if ((best == NULL || n < fewest) && (!tls || has_handshake_room(w))) {
            best = w;
            fewest = n;
        }
    }
    return best;
}

static void ask_for_handshake_room(struct worker *w)
{
    if (handshakes_has_room(&w->handshakes))
        worker_accept_again(w);
}

bool door_has_room(struct worker *acceptor, bool tls)
{
    if (!tls || door_choose(acceptor, true) != NULL)
        return true;
    for (uint32_t i = 0; i < acceptor->n_peers; i++)
        worker_post_task(&acceptor->peers[i], ask_for_handshake_room);
    return false;
}

static void door_enter(struct worker *w, size_t listener, int fd, const struct net_addr *peer)
{
    const struct conn_conf *conf = &w->listeners[listener].conn;

    if (session_accept(w, fd, peer, conf))
        return;
    if (conf->tls != NULL)
        door_handshake_ended(w);
    door_session_ended(w);
}

static void hand_deliver(struct mbox_msg *msg, void *arg)
{
    struct hand_msg *m = container_of(msg, struct hand_msg, msg);

    door_enter(arg, m->listener, m->fd, &m->peer);
    free(m);
}

static void hand_discard(struct mbox_msg *msg)
{
    struct hand_msg *m = container_of(msg, struct hand_msg, msg);

    close(m->fd);
    free(m);
}

void door_hand(struct worker *acceptor, size_t listener, int fd, const struct net_addr *peer)
{
    const bool tls = acceptor->listeners[listener].conn.tls != NULL;
    struct worker *to = door_choose(acceptor, tls);
    struct hand_msg *m;

    check(to != NULL); /* room was asked for, and nobody else hands over */
    count_up(&to->door.sessions);
    if (tls)
        count_up(&to->door.handshakes);
    acceptor->door_turn = to->index + 1;
    if (to == acceptor) {
        door_enter(to, listener, fd, peer);
        return;
    }
    m = xcalloc(1, sizeof(*m));
    m->msg.deliver = hand_deliver;
    m->msg.discard = hand_discard;
    m->listener = listener;
    m->fd = fd;
    m->peer = *peer;
    mbox_post(&to->loop.mbox, &m->msg);
}

static void make_room(struct worker *w)
{
    session_make_room(w);
}

void door_make_room(struct worker *acceptor)
{
    for (uint32_t i = 0; i < acceptor->n_peers; i++)
        worker_post_task(&acceptor->peers[i], make_room);
}

void door_session_ended(struct worker *w)
{
    count_down(&w->door.sessions);
}

void door_handshake_ended(struct worker *w)
{
    count_down(&w->door.handshakes);
}
