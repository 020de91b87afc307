#include "placer/keeper.h"

#include <errno.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define GROUPS_MAX 16384 /* more children than one machine runs; those past it are not kept */

struct note {
    int32_t group; /* to add; negative: to remove */
};

/* A record is whole or not at all. One that is lost (somebody killed or stopped the keeper) only
 * matters if we die too: nobody waits for it and no SIGPIPE comes of it. */
static void keeper_write(int fd, struct note note)
{
    (void)send(fd, &note, sizeof(note), MSG_NOSIGNAL | MSG_DONTWAIT);
}

void keeper_add(int fd, pid_t group)
{
    keeper_write(fd, (struct note){(int32_t)group});
}

void keeper_remove(int fd, pid_t group)
{
    keeper_write(fd, (struct note){-(int32_t)group});
}

static void take_note(int32_t *groups, size_t *n, struct note note)
{
    if (note.group > 0 && *n < GROUPS_MAX) {
        groups[(*n)++] = note.group;
        return;
    }
    for (size_t i = 0; i < *n; i++) {
        if (groups[i] != -note.group)
            continue;
        groups[i] = groups[--*n];
        return;
    }
}

/* The keeper's whole life. After a fork of a process with threads: system calls only. */
_Noreturn static void keep(int fd)
{
    static int32_t groups[GROUPS_MAX];
    struct note note;
    size_t n = 0;
    ssize_t got;

    setsid(); /* no signal of a terminal's reaches it */
    signal(SIGTERM, SIG_IGN);
    prctl(PR_SET_NAME, "penstock-keeper");
    if (dup2(fd, STDIN_FILENO) < 0) /* our other descriptors, standard ones too, are let go */
        _exit(1);
    syscall(SYS_close_range, 1U, ~0U, 0U);
    while ((got = recv(STDIN_FILENO, &note, sizeof(note), 0)) != 0) {
        if (got == sizeof(note))
            take_note(groups, &n, note);
        else if (got < 0 && errno != EINTR)
            break;
    }
    while (n > 0)
        kill(-groups[--n], SIGKILL);
    _exit(0);
}

int keeper_start(struct keeper *k, struct err *err)
{
    int fds[2];

    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds) != 0)
        return err_set(err, -errno, "can't start the keeper: %s", strerror(errno));
    k->pid = fork();
    if (k->pid == 0) {
        close(fds[1]);
        keep(fds[0]);
    }
    close(fds[0]);
    if (k->pid < 0) {
        const int code = errno;

        close(fds[1]);
        *k = (struct keeper){0};
        return err_set(err, -code, "can't start the keeper: %s", strerror(code));
    }
    k->fd = fds[1];
    return 0;
}

void keeper_stop(struct keeper *k)
{
    if (k->pid == 0)
        return;
    close(k->fd);
    while (waitpid(k->pid, NULL, 0) < 0 && errno == EINTR)
        ;
    *k = (struct keeper){0};
}
