#include "gateway/handshakes.h"

#include "base/check.h"
#include "base/clock.h"
#include "gateway/door.h"
#include "gateway/session.h"
#include "gateway/worker.h"

#define GRACE_US (1 * US_PER_S) /* two round trips around the earth, with one packet lost */

/* When the oldest has had its time. */
static void arm(struct handshakes *h)
{
    const struct session *const oldest = list_first(&h->under_way, struct session, handshake);

    timer_start(&h->worker->loop, &h->make_room, oldest->accepted_us + GRACE_US);
}

static void on_make_room(struct timer *t)
{
    struct handshakes *const h = container_of(t, struct handshakes, make_room);
    struct session *const oldest = list_first(&h->under_way, struct session, handshake);

    if (!h->waited_for || h->n < h->max)
        return;
    if (oldest->accepted_us + GRACE_US <= h->worker->loop.now_us) {
        worker_count(h->worker, COUNT_tls_handshakes_evicted);
        /* Its place is free in this turn's reaping. */
        session_close(oldest, "slow to end its TLS handshake, and others want in");
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
