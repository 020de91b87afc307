#include "net/loop.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/check.h"
#include "base/xalloc.h"

struct fixture {
    struct loop loop;
    struct timer a, b, c;
    struct coarse_timer coarse, other;
    struct dirty d, e;
    struct dead dead;
    char order[64]; /* what happened, one letter each */
    int again;
};

static struct fixture *fx;

static void note(char what)
{
    const size_t n = strlen(fx->order);

    check(n + 1 < sizeof(fx->order));
    fx->order[n] = what;
}

static void fire_a(struct timer *t)
{
    (void)t;
    note('a');
}

static void fire_b(struct timer *t)
{
    (void)t;
    note('b');
}

static void fire_stop(struct timer *t)
{
    (void)t;
    note('.');
    loop_stop(&fx->loop);
}

static void flush_d(struct dirty *d)
{
    note('d');
    if (fx->again-- > 0)
        loop_mark_dirty(&fx->loop, d); /* from its own flush */
}

static void flush_e(struct dirty *d)
{
    (void)d;
    note('e');
    loop_mark_dirty(&fx->loop, &fx->d); /* a flush makes another dirty: the same turn */
}

static void reap(struct dead *d)
{
    (void)d;
    note('x');
    loop_mark_dirty(&fx->loop, &fx->d); /* an end makes output elsewhere: the same turn */
}

static int set_up(void **state)
{
    fx = xcalloc(1, sizeof(*fx));
    loop_init(&fx->loop, NULL);
    fx->a.fire = fire_a;
    fx->b.fire = fire_b;
    fx->c.fire = fire_stop;
    fx->d.flush = flush_d;
    fx->e.flush = flush_e;
    fx->dead.reap = reap;
    *state = fx;
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    loop_fini(&fx->loop);
    free(fx);
    return 0;
}

static void turn_without_waiting(void)
{
    loop_refresh(&fx->loop);
    ev_run(fx->loop.ev, EVRUN_NOWAIT);
}

static void timers_fire_in_order_of_time_and_once(void **state)
{
    (void)state;
    timer_start(&fx->loop, &fx->c, fx->loop.now_us + 6000);
    timer_start(&fx->loop, &fx->b, fx->loop.now_us + 4000);
    timer_start(&fx->loop, &fx->a, fx->loop.now_us + 2000);
    loop_run(&fx->loop);
    assert_string_equal(fx->order, "ab.");
}

static void timer_never_fires_early(void **state)
{
    const uint64_t at = fx->loop.now_us + 3500;

    (void)state;
    timer_start(&fx->loop, &fx->c, at);
    loop_run(&fx->loop);
    assert_true(fx->loop.now_us >= at);
}

static void started_again_it_moves_and_stopped_it_is_silent(void **state)
{
    (void)state;
    timer_start(&fx->loop, &fx->a, fx->loop.now_us + 1000);
    timer_start(&fx->loop, &fx->a, fx->loop.now_us + 5000); /* past c */
    timer_start(&fx->loop, &fx->b, fx->loop.now_us + 1000);
    timer_stop(&fx->loop, &fx->b);
    timer_stop(&fx->loop, &fx->b);
    timer_start(&fx->loop, &fx->c, fx->loop.now_us + 3000);
    loop_run(&fx->loop);
    assert_string_equal(fx->order, ".");
}

static void fire_coarse(struct coarse_timer *t)
{
    (void)t;
    note('k');
    coarse_timer_stop(&fx->loop, &fx->other); /* due with it */
}

static void coarse_timers_come_in_between_and_never_early(void **state)
{
    const uint64_t began = fx->loop.now_us;

    (void)state;
    fx->coarse.fire = fx->other.fire = fire_coarse;
    coarse_timer_start(&fx->loop, &fx->coarse, began + 5000);
    coarse_timer_start(&fx->loop, &fx->other, began + 5000);
    timer_start(&fx->loop, &fx->a, began + 1000);
    while (strchr(fx->order, 'k') == NULL)
        loop_turn(&fx->loop);
    assert_string_equal(fx->order, "ak");
    assert_true(fx->loop.now_us >= began + 5000);
    assert_false(coarse_timer_runs(&fx->coarse));
    assert_false(coarse_timer_runs(&fx->other));
    coarse_timer_start(&fx->loop, &fx->coarse, began + 60000000);
    coarse_timer_stop(&fx->loop, &fx->coarse);
    timer_start(&fx->loop, &fx->c, fx->loop.now_us + 3000);
    loop_run(&fx->loop);
    assert_string_equal(fx->order, "ak.");
}

static void fire_past(struct timer *t)
{
    note('a');
    if (strlen(fx->order) < 5)
        timer_start(&fx->loop, t, 0); /* in the past */
    else
        loop_stop(&fx->loop);
}

static void timer_in_the_past_does_not_hold_the_turn(void **state)
{
    (void)state;
    fx->a.fire = fire_past;
    timer_start(&fx->loop, &fx->a, 0);
    turn_without_waiting(); /* arms it */
    turn_without_waiting();
    assert_true(strlen(fx->order) <= 2);
    loop_run(&fx->loop);
    assert_string_equal(fx->order, "aaaaa");
}

static void dirty_is_flushed_once_a_turn_however_often_it_is_marked(void **state)
{
    (void)state;
    loop_mark_dirty(&fx->loop, &fx->d);
    loop_mark_dirty(&fx->loop, &fx->d);
    turn_without_waiting();
    assert_string_equal(fx->order, "d");
    turn_without_waiting();
    assert_string_equal(fx->order, "d");
}

static void what_flushes_and_ends_cause_is_flushed_in_the_same_turn(void **state)
{
    (void)state;
    loop_mark_dirty(&fx->loop, &fx->e);
    turn_without_waiting();
    assert_string_equal(fx->order, "ed");
    memset(fx->order, 0, sizeof(fx->order));
    loop_mark_dirty(&fx->loop, &fx->d);
    loop_bury(&fx->loop, &fx->dead);
    turn_without_waiting();
    assert_string_equal(fx->order, "dxd"); /* the reaping after the flushes */
}

static void one_that_is_always_dirty_lets_the_others_go_on(void **state)
{
    (void)state;
    fx->again = 40; /* more rounds than one turn has */
    loop_mark_dirty(&fx->loop, &fx->d);
    turn_without_waiting();
    assert_true(strlen(fx->order) < 40);
    timer_start(&fx->loop, &fx->c, 0);
    loop_run(&fx->loop); /* does not block although only the dirty one is left */
    assert_non_null(strchr(fx->order, '.'));
    while (fx->again >= 0)
        loop_turn(&fx->loop);
}

static void reads_fill_a_slab_from_front_to_back(void **state)
{
    struct slab *s1, *s2, *s3, *held;
    size_t room;
    uint8_t *p, *q;

    (void)state;
    p = loop_read_room(&fx->loop, &s1, &room);
    assert_int_equal(room, SLAB_LARGE_BYTES);
    loop_read_taken(&fx->loop, 1000);
    q = loop_read_room(&fx->loop, &s2, &room);
    assert_ptr_equal(q, p); /* nothing was kept */
    held = slab_ref(s2);
    loop_read_taken(&fx->loop, 1000);
    q = loop_read_room(&fx->loop, &s2, &room);
    assert_ptr_equal(s2, s1);
    assert_ptr_equal(q, p + 1000); /* behind what is held */
    loop_read_taken(&fx->loop, SLAB_LARGE_BYTES - 1000 - LOOP_READ_ROOM + 1);
    loop_read_room(&fx->loop, &s3, &room);
    assert_ptr_not_equal(s3, s1); /* too little room was left */
    assert_int_equal(held->refs, 1);
    slab_unref(held);
}

struct message {
    struct mbox_msg msg;
    struct loop *loop;
};

static void deliver(struct mbox_msg *msg, void *arg)
{
    (void)arg;
    note('m');
    loop_stop(container_of(msg, struct message, msg)->loop);
    free(container_of(msg, struct message, msg));
}

static void *post_from_another_thread(void *arg)
{
    struct message *m = xcalloc(1, sizeof(*m));

    m->loop = arg;
    m->msg.deliver = deliver;
    mbox_post(&m->loop->mbox, &m->msg);
    return NULL;
}

static void message_of_another_thread_wakes_the_loop(void **state)
{
    pthread_t t;

    (void)state;
    pthread_create(&t, NULL, post_from_another_thread, &fx->loop);
    loop_run(&fx->loop);
    pthread_join(t, NULL);
    assert_string_equal(fx->order, "m");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(timers_fire_in_order_of_time_and_once, set_up, tear_down),
        cmocka_unit_test_setup_teardown(timer_never_fires_early, set_up, tear_down),
        cmocka_unit_test_setup_teardown(coarse_timers_come_in_between_and_never_early, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(started_again_it_moves_and_stopped_it_is_silent, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(timer_in_the_past_does_not_hold_the_turn, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(dirty_is_flushed_once_a_turn_however_often_it_is_marked,
                                        set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_flushes_and_ends_cause_is_flushed_in_the_same_turn,
                                        set_up, tear_down),
        cmocka_unit_test_setup_teardown(one_that_is_always_dirty_lets_the_others_go_on, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(reads_fill_a_slab_from_front_to_back, set_up, tear_down),
        cmocka_unit_test_setup_teardown(message_of_another_thread_wakes_the_loop, set_up,
                                        tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
