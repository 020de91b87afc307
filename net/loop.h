/* net/loop.h - one thread's event loop: time, timers, what is dirty, what is dead.
 *
 * Owns:      the ev_loop, the slab pool, the timer heap and wheel, the dirty and dead lists.
 * Called by: everything that runs on that thread.
 * Lifetime:  loop_init .. loop_fini, both on the thread that runs it (or before it runs).
 * Thread:    one; other threads reach it by mbox_post(&loop->mbox, ...).
 *
 * A turn: readiness events -> parse and forward into queues -> ev_prepare: flush every dirty
 * connection once, reap the dead -> block.
 */
#ifndef NET_LOOP_H
#define NET_LOOP_H

#include <ev.h>
#include <stdint.h>

#include "base/heap.h"
#include "base/list.h"
#include "base/mbox.h"
#include "base/wheel.h"
#include "net/slab.h"

struct loop {
    struct ev_loop *ev; /* epoll back end */
    ev_check check;     /* first after blocking: takes the time */
    ev_prepare prepare;
    ev_idle again; /* runs while a turn left something for the next one: do not block */
    ev_timer tick; /* armed for the first timer's time, or earlier */
    uint64_t tick_at_us;
    struct heap timers;
    struct wheel wheel; /* coarse timers */
    struct list dirty;  /* struct dirty */
    struct list dead;   /* struct dead */
    struct slab_pool slabs;
    struct slab *read_slab; /* filled from front to back by all connections: what they hold of it is
                               what they use, not a whole slab for each read */
    size_t read_used;
    struct slab *cipher_slab;  /* TLS: ciphertext between read and decryption */
    unsigned handshakes_begun; /* steps of TLS handshakes in this turn */
    struct list lingering;     /* net/linger.h */
    unsigned n_lingering;
    struct mbox mbox;
    uint64_t now_us; /* CLOCK_MONOTONIC, taken once per turn */
};

/* Take the time again: before timers are started outside a turn (start-up, after a long blocking
 * call). Returns now_us. */
uint64_t loop_refresh(struct loop *l);

void loop_init(struct loop *l, void *mbox_arg);
void loop_fini(struct loop *l);
void loop_run(struct loop *l); /* until loop_stop */
/* One turn: what is due now, or block for one event. For tests and CLI verbs. */
void loop_turn(struct loop *l);
void loop_stop(struct loop *l); /* on its thread */

/* Where the next bytes of a socket go: *ret_slab (borrowed; slab_ref what is kept) and at least
 * LOOP_READ_ROOM bytes at the place returned. Then say how many came, before anything else reads.
 */
#define LOOP_READ_ROOM (16u * 1024)
uint8_t *loop_read_room(struct loop *l, struct slab **ret_slab, size_t *ret_room);
void loop_read_taken(struct loop *l, size_t bytes);

/* A timer: fires once, on the loop's thread. */
struct timer {
    struct heap_node node;
    void (*fire)(struct timer *t);
};
void timer_start(struct loop *l, struct timer *t, uint64_t at_us); /* moves it when running */
void timer_stop(struct loop *l, struct timer *t);                  /* safe when not running */

/* One that fires up to a tick of the wheel late, and costs the same however many there are: for
 * what each call has and hardly any needs. */
struct coarse_timer {
    struct wheel_timer node;
    void (*fire)(struct coarse_timer *t);
};
void coarse_timer_start(struct loop *l, struct coarse_timer *t, uint64_t at_us); /* moves it */
void coarse_timer_stop(struct loop *l, struct coarse_timer *t); /* safe when not running */
static inline bool coarse_timer_runs(const struct coarse_timer *t)
{
    return wheel_timer_runs(&t->node);
}

/* Flushed once in this turn's ev_prepare. */
struct dirty {
    struct list node;
    void (*flush)(struct dirty *d);
};
void loop_mark_dirty(struct loop *l, struct dirty *d); /* idempotent within a turn */
/* Flushes what is dirty already if much of it waits; frees nothing. */
void loop_flush_early(struct loop *l);

/* Freed in this turn's ev_prepare, after the flushes: never inside its own callback. */
struct dead {
    struct list node;
    void (*reap)(struct dead *d);
};
void loop_bury(struct loop *l, struct dead *d);

#endif
