#include "base/mbox.h"

#include <string.h>

#include "base/check.h"

/* The whole queue is taken under the lock and delivered outside it: a handler may post. A handler
 * may also end the loop, but not the mbox. */
static void on_wake(struct ev_loop *loop, ev_async *w, int revents)
{
    struct mbox *m = container_of(w, struct mbox, wake);
    struct list batch;

    (void)loop;
    (void)revents;
    list_init(&batch);
    pthread_mutex_lock(&m->lock);
    for (struct list *node; (node = list_pop_front(&m->queue)) != NULL;)
        list_push_back(&batch, node);
    pthread_mutex_unlock(&m->lock);
    for (struct list *node; (node = list_pop_front(&batch)) != NULL;) {
        struct mbox_msg *msg = list_entry(node, struct mbox_msg, node);

        msg->deliver(msg, m->arg);
    }
}

void mbox_init(struct mbox *m, struct ev_loop *loop, void *arg)
{
    m->loop = loop;
    m->arg = arg;
    list_init(&m->queue);
    check(pthread_mutex_init(&m->lock, NULL) == 0);
    ev_async_init(&m->wake, on_wake);
    ev_async_start(loop, &m->wake);
}

/* Nobody posts any more: the posters have ended or were told. */
void mbox_fini(struct mbox *m)
{
    if (m->loop == NULL)
        return;
    ev_async_stop(m->loop, &m->wake);
    for (struct list *node; (node = list_pop_front(&m->queue)) != NULL;) {
        struct mbox_msg *msg = list_entry(node, struct mbox_msg, node);

        msg->discard(msg);
    }
    pthread_mutex_destroy(&m->lock);
    memset(m, 0, sizeof(*m));
}

void mbox_post(struct mbox *m, struct mbox_msg *msg)
{
    pthread_mutex_lock(&m->lock);
    list_push_back(&m->queue, &msg->node);
    pthread_mutex_unlock(&m->lock);
    ev_async_send(m->loop, &m->wake);
}
