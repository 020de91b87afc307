#include "base/mbox.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/xalloc.h"

#define N_POSTERS 4
#define N_EACH    2000

struct note {
    struct mbox_msg msg;
    int poster, number;
};

struct reader {
    struct ev_loop *loop;
    struct mbox box;
    int next[N_POSTERS + 1]; /* the last row is for notes that a delivery posted */
    int n_delivered, n_wanted;
    int n_discarded;
};

static struct reader *only_reader; /* discard gets no argument */

static void note_deliver(struct mbox_msg *msg, void *arg)
{
    struct note *note = container_of(msg, struct note, msg);
    struct reader *r = arg;

    assert_int_equal(note->number, r->next[note->poster]); /* in order of posting */
    r->next[note->poster]++;
    free(note);
    if (++r->n_delivered == r->n_wanted)
        ev_break(r->loop, EVBREAK_ALL);
}

static void note_discard(struct mbox_msg *msg)
{
    only_reader->n_discarded++;
    free(container_of(msg, struct note, msg));
}

static void post(struct reader *r, int poster, int number)
{
    struct note *note = xcalloc(1, sizeof(*note));

    note->msg.deliver = note_deliver;
    note->msg.discard = note_discard;
    note->poster = poster;
    note->number = number;
    mbox_post(&r->box, &note->msg);
}

static void *post_all(void *arg)
{
    const int poster = *(int *)arg;

    for (int i = 0; i < N_EACH; i++)
        post(only_reader, poster, i);
    return NULL;
}

static int reader_open(void **state)
{
    struct reader *r = xcalloc(1, sizeof(*r));

    r->loop = ev_loop_new(EVFLAG_AUTO);
    mbox_init(&r->box, r->loop, r);
    *state = only_reader = r;
    return 0;
}

static int reader_close(void **state)
{
    struct reader *r = *state;

    mbox_fini(&r->box);
    mbox_fini(&r->box); /* safe on a finished one */
    ev_loop_destroy(r->loop);
    free(r);
    return 0;
}

static void notes_of_many_threads_all_arrive_each_threads_in_order(void **state)
{
    struct reader *r = *state;
    int posters[N_POSTERS];
    pthread_t threads[N_POSTERS];

    r->n_wanted = N_POSTERS * N_EACH;
    for (int i = 0; i < N_POSTERS; i++) {
        posters[i] = i;
        assert_int_equal(pthread_create(&threads[i], NULL, post_all, &posters[i]), 0);
    }
    ev_run(r->loop, 0);
    for (int i = 0; i < N_POSTERS; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(r->next[i], N_EACH);
    }
}

static void chain_deliver(struct mbox_msg *msg, void *arg)
{
    struct note *note = container_of(msg, struct note, msg);
    struct reader *r = arg;

    for (int i = 0; i < 10; i++)
        post(r, N_POSTERS, i);
    free(note);
}

static void a_delivery_may_post(void **state)
{
    struct reader *r = *state;
    struct note *note = xcalloc(1, sizeof(*note));

    note->msg.deliver = chain_deliver;
    note->msg.discard = note_discard;
    r->n_wanted = 10;
    mbox_post(&r->box, &note->msg);
    ev_run(r->loop, 0);
    assert_int_equal(r->next[N_POSTERS], 10);
}

static void what_was_not_delivered_is_discarded(void **state)
{
    struct reader *r = *state;

    for (int i = 0; i < 7; i++)
        post(r, 0, i);
    mbox_fini(&r->box);
    assert_int_equal(r->n_discarded, 7);
    assert_int_equal(r->n_delivered, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(notes_of_many_threads_all_arrive_each_threads_in_order,
                                        reader_open, reader_close),
        cmocka_unit_test_setup_teardown(a_delivery_may_post, reader_open, reader_close),
        cmocka_unit_test_setup_teardown(what_was_not_delivered_is_discarded, reader_open,
                                        reader_close),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
