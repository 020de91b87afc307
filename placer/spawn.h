/* placer/spawn.h - start a process in its own group, watched by descriptors, that dies with us.
 *
 * The child gets /dev/null and one pipe for both outputs, no other descriptor of ours, default
 * signals, and SIGKILL when the thread that started it ends (PR_SET_PDEATHSIG).
 *
 * Owns:      nothing: the caller reaps the process and closes the descriptors.
 * Called by: placer/driver_local.c.
 * Thread:    one that lives as long as the children should.
 */
#ifndef PLACER_SPAWN_H
#define PLACER_SPAWN_H

#include <sys/types.h>

#include "base/err.h"

struct spawned {
    pid_t pid;     /* also its process group */
    int pidfd;     /* readable when it has ended */
    int output_fd; /* read end of its standard output and error, non-blocking */
};

/* argv[0] is looked for in PATH. keeper_fd: of the keeper that gets to know the group before its
 * program runs; the caller removes it when the group is gone. 0, or -errno with err filled and
 * nothing left behind; a program that can't be run is found here, not by an exit status of 127. */
int spawn(char *const *argv, char *const *envp, int keeper_fd, struct spawned *ret,
          struct err *err);

#endif
