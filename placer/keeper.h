/* placer/keeper.h - ends the process groups of our children when we die without a word.
 *
 * The kernel kills a child when its parent's thread ends (PR_SET_PDEATHSIG), but not the child's
 * own children: the server behind a shell script would keep its port and its card. So a small
 * process of ours, the keeper, knows the groups and waits for the end of a socket that only we
 * hold.
 *
 * Owns:      the keeper process and the socket to it.
 * Called by: placer/driver_local.c, placer/spawn.c (in the child, before its program).
 * Lifetime:  keeper_start .. keeper_stop, which ends every group that is still kept.
 * Thread:    one.
 */
#ifndef PLACER_KEEPER_H
#define PLACER_KEEPER_H

#include <sys/types.h>

#include "base/err.h"

struct keeper {
    pid_t pid; /* 0: not started */
    int fd;    /* our end, close-on-exec */
};

/* 0, or -errno with err filled. The keeper holds none of our other descriptors. */
int keeper_start(struct keeper *k, struct err *err);
void keeper_stop(struct keeper *k); /* works on a zeroed keeper */

/* Only system calls: may run between vfork and exec. */
void keeper_add(int fd, pid_t group);
void keeper_remove(int fd, pid_t group);

#endif
