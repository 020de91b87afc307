#include "net/loop.h"

#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "net/linger.h"

/* A flush may make others dirty and a reap may bury others (a session's end closes its upstream
 * streams): go round until quiet, but let the sockets have their turn after this many rounds. */
#define MAX_ROUNDS 16

/* Of large bodies, read and not written yet: these leave while they are in the cache, and then the
 * next read comes to the same place. */
#define EARLY_BYTES (96u * 1024)

static void on_check(struct ev_loop *ev, ev_check *w, int revents)
{
    (void)ev;
    (void)revents;

    struct loop *const l = container_of(w, struct loop, check);

    l->now_us = clock_mono_us();
    l->handshakes_begun = 0;
}

static void on_again(struct ev_loop *ev, ev_idle *w, int revents)
{
    (void)ev;
    (void)w;
    (void)revents;
}

/* Fires what is due now; timers started by these callbacks wait for the next tick, so that a timer
 * that restarts itself in the past can't keep the loop. */
static void on_tick(struct ev_loop *ev, ev_timer *w, int revents)
{
    struct loop *l = container_of(w, struct loop, tick);
    size_t left = l->timers.n;
    struct heap_node *node;
    struct list due, *first;

    (void)ev;
    (void)revents;
    l->tick_at_us = 0;
    while (left-- > 0 && (node = heap_min(&l->timers)) != NULL && node->key <= l->now_us) {
        struct timer *t = container_of(node, struct timer, node);

        heap_remove(&l->timers, node);
        t->fire(t);
    }
    list_init(&due);
    wheel_advance(&l->wheel, l->now_us, &due);
    while ((first = list_pop_front(&due)) != NULL) {
        struct coarse_timer *t = list_entry(first, struct coarse_timer, node.node);

        t->fire(t);
    }
}

static void flush_all(struct loop *l)
{
    struct list batch;
    struct list *node;

    list_init(&batch);
    while ((node = list_pop_front(&l->dirty)) != NULL)
        list_push_back(&batch, node);
    while ((node = list_pop_front(&batch)) != NULL) {
        struct dirty *d = list_entry(node, struct dirty, node);

        d->flush(d);
    }
}

void loop_flush_early(struct loop *l)
{
    if (l->read_slab != NULL && l->read_slab->refs > 1 && l->read_used >= EARLY_BYTES)
        flush_all(l);
}

static void reap_all(struct loop *l)
{
    struct list *node;

    while ((node = list_pop_front(&l->dead)) != NULL) {
        struct dead *d = list_entry(node, struct dead, node);

        d->reap(d);
    }
}

static void arm_tick(struct loop *l)
{
    const struct heap_node *node = heap_min(&l->timers);
    uint64_t at_us = wheel_next_us(&l->wheel);
    double after_s;

    if (node != NULL && node->key < at_us)
        at_us = node->key;
    if (at_us == UINT64_MAX) {
        if (ev_is_active(&l->tick))
            ev_timer_stop(l->ev, &l->tick);
        l->tick_at_us = 0;
        return;
    }
    /* Armed too early costs one turn; to move it each time the first call ends costs more. */
    if (ev_is_active(&l->tick) && l->tick_at_us <= at_us)
        return;
    after_s = at_us > l->now_us ? (double)(at_us - l->now_us) / 1e6 : 0.0;
    ev_timer_stop(l->ev, &l->tick);
    ev_timer_set(&l->tick, after_s, 0.0);
    ev_timer_start(l->ev, &l->tick);
    l->tick_at_us = at_us;
}

/* Flushes and reaps until quiet or for MAX_ROUNDS. Returns whether there was anything to do. */
static bool settle(struct loop *l)
{
    int i = 0;

    for (; i < MAX_ROUNDS && !(list_is_empty(&l->dirty) && list_is_empty(&l->dead)); i++) {
        flush_all(l);
        reap_all(l);
    }
    return i > 0;
}

static void on_prepare(struct ev_loop *ev, ev_prepare *w, int revents)
{
    struct loop *l = container_of(w, struct loop, prepare);
    bool more;

    (void)revents;
    settle(l);
    more = !list_is_empty(&l->dirty) || !list_is_empty(&l->dead);
    if (more && !ev_is_active(&l->again))
        ev_idle_start(ev, &l->again);
    else if (!more && ev_is_active(&l->again))
        ev_idle_stop(ev, &l->again);
    arm_tick(l);
}

void loop_init(struct loop *l, void *mbox_arg)
{
    memset(l, 0, sizeof(*l));
    l->ev = ev_loop_new(EVBACKEND_EPOLL | EVFLAG_NOENV);
    check(l->ev != NULL);
    list_init(&l->dirty);
    list_init(&l->dead);
    list_init(&l->lingering);
    slab_pool_init(&l->slabs);
    wheel_init(&l->wheel, loop_refresh(l));
    ev_check_init(&l->check, on_check);
    ev_set_priority(&l->check, EV_MAXPRI); /* before every callback of the turn */
    ev_check_start(l->ev, &l->check);
    ev_prepare_init(&l->prepare, on_prepare);
    ev_prepare_start(l->ev, &l->prepare);
    ev_idle_init(&l->again, on_again);
    ev_timer_init(&l->tick, on_tick, 0.0, 0.0);
    mbox_init(&l->mbox, l->ev, mbox_arg);
}

/* Reaps what is dead; whatever still holds slabs or timers must have been freed before. */
void loop_fini(struct loop *l)
{
    if (l->ev == NULL)
        return;
    settle(l);
    linger_finish(l);
    mbox_fini(&l->mbox);
    ev_check_stop(l->ev, &l->check);
    ev_prepare_stop(l->ev, &l->prepare);
    ev_idle_stop(l->ev, &l->again);
    ev_timer_stop(l->ev, &l->tick);
    ev_loop_destroy(l->ev);
    l->ev = NULL;
    heap_fini(&l->timers);
    slab_unref(l->read_slab);
    slab_unref(l->cipher_slab);
    slab_pool_fini(&l->slabs);
}

void loop_run(struct loop *l)
{
    loop_refresh(l);
    ev_run(l->ev, 0);
}

/* What a flush or an end changed is seen by the caller before the loop blocks again. */
void loop_turn(struct loop *l)
{
    loop_refresh(l);
    if (settle(l))
        return;
    ev_run(l->ev, EVRUN_ONCE);
    settle(l);
}

void loop_stop(struct loop *l)
{
    ev_break(l->ev, EVBREAK_ALL);
}

uint64_t loop_refresh(struct loop *l)
{
    ev_now_update(l->ev);
    l->now_us = clock_mono_us();
    return l->now_us;
}

uint8_t *loop_read_room(struct loop *l, struct slab **ret_slab, size_t *ret_room)
{
    if (l->read_slab != NULL && l->read_slab->refs == 1)
        l->read_used = 0; /* nobody kept anything: the same lines, still in the cache */
    if (l->read_slab != NULL && l->read_slab->cap - l->read_used < LOOP_READ_ROOM) {
        slab_unref(l->read_slab);
        l->read_slab = NULL;
    }
    if (l->read_slab == NULL) {
        l->read_slab = slab_get(&l->slabs, SLAB_LARGE_BYTES);
        l->read_used = 0;
    }
    *ret_slab = l->read_slab;
    *ret_room = l->read_slab->cap - l->read_used;
    return l->read_slab->data + l->read_used;
}

void loop_read_taken(struct loop *l, size_t bytes)
{
    check(bytes <= l->read_slab->cap - l->read_used);
    l->read_used += bytes;
}

/* at_us: on CLOCK_MONOTONIC; a time that has passed fires in the next turn. */
void timer_start(struct loop *l, struct timer *t, uint64_t at_us)
{
    heap_remove(&l->timers, &t->node);
    heap_push(&l->timers, &t->node, at_us);
}

void timer_stop(struct loop *l, struct timer *t)
{
    heap_remove(&l->timers, &t->node);
}

void coarse_timer_start(struct loop *l, struct coarse_timer *t, uint64_t at_us)
{
    wheel_start(&l->wheel, &t->node, at_us);
}

void coarse_timer_stop(struct loop *l, struct coarse_timer *t)
{
    wheel_stop(&l->wheel, &t->node);
}

void loop_mark_dirty(struct loop *l, struct dirty *d)
{
    if (!list_is_linked(&d->node))
        list_push_back(&l->dirty, &d->node);
}

void loop_bury(struct loop *l, struct dead *d)
{
    check(!list_is_linked(&d->node));
    list_push_back(&l->dead, &d->node);
}
