#include "placer/spawn.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/close_range.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/xalloc.h"
#include "placer/keeper.h"

/* Where execve finds the program: as execvp would, decided before the fork. */
static char *find_program(const char *name)
{
    const char *path = getenv("PATH");

    if (strchr(name, '/') != NULL)
        return xstrdup(name);
    for (path = path != NULL ? path : "/usr/local/bin:/usr/bin:/bin"; *path != '\0';) {
        const size_t len = strcspn(path, ":");
        char *candidate = xasprintf("%.*s/%s", (int)len, len > 0 ? path : ".", name);

        if (access(candidate, X_OK) == 0)
            return candidate;
        free(candidate);
        path += len + (path[len] == ':');
    }
    return xstrdup(name);
}

struct child {
    const char *program;
    char *const *argv, *const *envp;
    int null_fd, output_fd, keeper_fd;
    pid_t parent;
    volatile int failure; /* errno of the step that failed, set in the child: memory is shared */
};

/* Between vfork and execve only calls that touch nothing of the parent. */
static pid_t fork_child(struct child *c)
{
    sigset_t all, before, none;
    pid_t pid;

    sigfillset(&all);
    sigemptyset(&none);
    pthread_sigmask(SIG_SETMASK, &all, &before); /* no handler of ours may run in the child */
    /* vfork: fork would make every page of a busy gateway copy-on-write under its workers. */
    pid = vfork();
    if (pid == 0) {
        for (int sig = 1; sig < NSIG; sig++)
            signal(sig, SIG_DFL);
        setpgid(0, 0);
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != c->parent)
            _exit(127);
        keeper_add(c->keeper_fd, getpid());
        if (dup2(c->null_fd, STDIN_FILENO) >= 0 && dup2(c->output_fd, STDOUT_FILENO) >= 0 &&
            dup2(c->output_fd, STDERR_FILENO) >= 0) {
            /* Ours are close-on-exec; this is for descriptors that libraries, or whoever started
             * us, forgot. */
            syscall(SYS_close_range, 3U, ~0U, CLOSE_RANGE_CLOEXEC);
            sigprocmask(SIG_SETMASK, &none, NULL);
            execve(c->program, c->argv, c->envp);
        }
        c->failure = errno;
        _exit(127);
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (pid < 0)
        c->failure = errno;
    return pid;
}

int spawn(char *const *argv, char *const *envp, int keeper_fd, struct spawned *ret, struct err *err)
{
    struct child c = {
        .argv = argv, .envp = envp, .parent = getpid(), .null_fd = -1, .keeper_fd = keeper_fd};
    char *program = find_program(argv[0]);
    int fds[2] = {-1, -1}, r = 0;

    c.program = program;
    c.null_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (c.null_fd < 0 || pipe2(fds, O_CLOEXEC) != 0) {
        r = err_set(err, -errno, "can't start %s: %s", argv[0], strerror(errno));
        goto done;
    }
    fcntl(fds[0], F_SETFL, O_NONBLOCK);
    c.output_fd = fds[1];
    ret->pid = fork_child(&c);
    if (c.failure != 0) {
        if (ret->pid > 0) {
            waitpid(ret->pid, NULL, 0);
            keeper_remove(keeper_fd, ret->pid);
        }
        r = err_set(err, -c.failure, "can't run %s: %s", argv[0], strerror(c.failure));
        goto done;
    }
    ret->pidfd = (int)syscall(SYS_pidfd_open, ret->pid, 0); /* close-on-exec by itself */
    if (ret->pidfd < 0) {
        r = err_set(err, -errno, "can't watch %s: pidfd_open: %s", argv[0], strerror(errno));
        kill(-ret->pid, SIGKILL);
        waitpid(ret->pid, NULL, 0);
        keeper_remove(keeper_fd, ret->pid);
        goto done;
    }
    ret->output_fd = fds[0];
    fds[0] = -1;

done:
    if (fds[0] >= 0)
        close(fds[0]);
    if (fds[1] >= 0)
        close(fds[1]);
    if (c.null_fd >= 0)
        close(c.null_fd);
    free(program);
    return r;
}
