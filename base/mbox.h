/* base/mbox.h - messages from any thread to the thread that runs one libev loop.
 *
 * Owns:      messages between post and delivery.
 * Called by: mbox_post from any thread; the handler runs on the loop's thread, in order of posting.
 * Lifetime:  mbox_init .. mbox_fini, both on the loop's thread; fini frees what was not delivered
 *            by its free function.
 * Thread:    mbox_post: any. The rest: the loop's.
 */
#ifndef BASE_MBOX_H
#define BASE_MBOX_H

#include <ev.h>
#include <pthread.h>

#include "base/list.h"

struct mbox_msg {
    struct list node;
    void (*deliver)(struct mbox_msg *msg, void *arg); /* owns msg from then on */
    void (*discard)(struct mbox_msg *msg);            /* frees one that was never delivered */
};

struct mbox {
    struct ev_loop *loop;
    ev_async wake;
    pthread_mutex_t lock;
    struct list queue;
    void *arg;
};

void mbox_init(struct mbox *m, struct ev_loop *loop, void *arg);
void mbox_fini(struct mbox *m);
void mbox_post(struct mbox *m, struct mbox_msg *msg);

#endif
