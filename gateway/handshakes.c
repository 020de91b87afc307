#include "gateway/handshakes.h"

#include "base/check.h"
#include "base/clock.h"
#include "gateway/door.h"
#include "gateway/session.h"
#include "gateway/worker.h"

/* Clients speak first: who has not in this time has nothing to say. */
#define SILENT_US (1 * US_PER_S)
/* Who has is given what a busy client on a far, lossy link needs. */
#define SPEAKING_US (5 * US_PER_S)

static uint64_t grace_ends_us(const struct session *s)
{
    return s->accepted_us + (s->spoke ? SPEAKING_US : SILENT_US);
}

/* Whose time ends first. There is one: the places are taken. */
static struct session *first_to_go(struct handshakes *h)
{
    struct session *first = NULL;

    list_each (&h->under_way, it) {
        struct session *const s = list_entry(it, struct session, handshake);

        if (first == NULL || grace_ends_us(s) < grace_ends_us(first))
            first = s;
    }
    check(first != NULL);
    return first;
}

static void arm(struct handshakes *h)
{
    timer_start(&h->worker->loop, &h->make_room, grace_ends_us(first_to_go(h)));
}

static void on_make_room(struct timer *t)
{
    struct handshakes *const h = container_of(t, struct handshakes, make_room);
    struct session *s;

    if (!h->waited_for || h->n < h->max)
        return;
    s = first_to_go(h);
    while (!s->spoke && conn_has_spoken(s->conn)) {
        s->spoke = true;
        s = first_to_go(h);
    }
    if (grace_ends_us(s) <= h->worker->loop.now_us) {
        worker_count(h->worker, COUNT_tls_handshakes_evicted);
        /* Its place is free in this turn's reaping. */
        session_close(s, "slow to end its TLS handshake, and others want in");
    } else {
        arm(h);
    }
}

void handshakes_init(struct handshakes *h, struct worker *w, uint32_t max)
{
    *h = (struct handshakes){.worker = w, .max = max};
    list_init(&h->under_way);
    h->make_room.fire = on_make_room;
}

void handshakes_fini(struct handshakes *h)
{
    check(list_is_empty(&h->under_way));
    timer_stop(&h->worker->loop, &h->make_room);
}

void handshakes_begin(struct handshakes *h, struct session *s)
{
    list_push_back(&h->under_way, &s->handshake);
    h->n++;
    h->worker->counters[COUNT_tls_handshakes_open]++;
}

void handshakes_end(struct handshakes *h, struct session *s)
{
    if (!list_is_linked(&s->handshake))
        return;
    list_remove(&s->handshake);
    h->n--;
    h->worker->counters[COUNT_tls_handshakes_open]--;
    door_handshake_ended(h->worker);
    if (h->waited_for && h->n < h->max) {
        h->waited_for = false;
        timer_stop(&h->worker->loop, &h->make_room);
        worker_accept_again(h->worker);
    }
}

bool handshakes_has_room(struct handshakes *h)
{
    if (h->n < h->max)
        return true;
    h->waited_for = true;
    arm(h);
    return false;
}
