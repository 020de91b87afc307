#include "placer/unit_log.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/xalloc.h"

static char *log_path(const char *folder, const char *name, bool old)
{
    return xasprintf("%s/%s.log%s", folder, name, old ? ".1" : "");
}

bool unit_log_name_is_fine(const char *name)
{
    if (name[0] == '\0' || name[0] == '.' || strlen(name) > 200)
        return false;
    for (const char *p = name; *p != '\0'; p++)
        if (!isalnum((unsigned char)*p) && strchr("._-", *p) == NULL)
            return false;
    return true;
}

char *unit_log_name_of(const char *text)
{
    char *name = xasprintf("%.200s", text);

    for (char *p = name; *p != '\0'; p++)
        if (!isalnum((unsigned char)*p) && strchr("._-", *p) == NULL)
            *p = '-';
    if (name[0] == '.')
        name[0] = '-';
    return name;
}

static int log_open_file(struct unit_log *log, struct err *err)
{
    char *path = log_path(log->folder, log->name, false);
    struct stat st;
    int r = 0;

    log->fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0644);
    if (log->fd < 0)
        r = err_set(err, -errno, "can't open log %s: %s", path, strerror(errno));
    else
        log->bytes = fstat(log->fd, &st) == 0 ? (uint64_t)st.st_size : 0;
    free(path);
    return r;
}

int unit_log_open(struct unit_log *log, const char *folder, const char *name, uint64_t max_bytes,
                  struct err *err)
{
    int r;

    *log = (struct unit_log){
        .folder = folder, .name = xstrdup(name), .max_bytes = max_bytes, .fd = -1};
    r = log_open_file(log, err);
    if (r < 0)
        unit_log_close(log);
    return r;
}

void unit_log_close(struct unit_log *log)
{
    if (log->name != NULL && log->fd >= 0)
        close(log->fd);
    free(log->name);
    *log = (struct unit_log){.fd = -1};
}

/* The file is half full: it becomes the old one. */
static void log_turn(struct unit_log *log)
{
    char *now = log_path(log->folder, log->name, false);
    char *old = log_path(log->folder, log->name, true);

    close(log->fd);
    rename(now, old);
    free(now);
    free(old);
    (void)log_open_file(log, NULL); /* a full disk does not stop a unit: output is dropped */
}

static void log_append(struct unit_log *log, const char *p, size_t len)
{
    while (len > 0 && log->fd >= 0) {
        const ssize_t n = write(log->fd, p, len);

        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return;
        log->bytes += (uint64_t)n;
        p += n;
        len -= (size_t)n;
    }
}

void unit_log_write(struct unit_log *log, const char *p, size_t len)
{
    const uint64_t half = log->max_bytes / 2;

    if (log->fd >= 0 && log->bytes + len > half) {
        const size_t room = log->bytes < half ? (size_t)(half - log->bytes) : 0;
        const char *nl = memrchr(p, '\n', room < len ? room : len);
        const size_t head = nl != NULL ? (size_t)(nl + 1 - p) : 0;

        log_append(log, p, head); /* files begin with whole lines where lines are short */
        log_turn(log);
        p += head;
        len -= head;
    }
    log_append(log, p, len);
}

/* Appends the last max_bytes of a file. */
static int tail_append(struct buf *text, const char *path, uint64_t max_bytes)
{
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    struct stat st;
    off_t from;

    if (fd < 0)
        return -errno;
    if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode)) {
        close(fd);
        return -EINVAL;
    }
    from = (uint64_t)st.st_size > max_bytes ? st.st_size - (off_t)max_bytes : 0;
    while (from < st.st_size) {
        char chunk[16384];
        const ssize_t n = pread(fd, chunk, sizeof(chunk), from);

        if (n <= 0 || !buf_append(text, chunk, (size_t)n))
            break;
        from += n;
    }
    close(fd);
    return 0;
}

int unit_log_tail(const char *folder, const char *name, uint64_t max_bytes, struct buf *ret_text,
                  struct err *err)
{
    const size_t before = ret_text->len;
    char *path, *old;
    struct stat st;
    uint64_t now_bytes = 0;
    int r, r_old = -ENOENT;

    if (!unit_log_name_is_fine(name))
        return err_set(err, -EINVAL, "\"%.100s\" is not the name of a log", name);
    path = log_path(folder, name, false);
    old = log_path(folder, name, true);
    if (stat(path, &st) == 0)
        now_bytes = (uint64_t)st.st_size;
    if (now_bytes < max_bytes)
        r_old = tail_append(ret_text, old, max_bytes - now_bytes);
    r = tail_append(ret_text, path, max_bytes);
    free(path);
    free(old);
    if (r < 0 && r_old < 0)
        return err_set(err, r, "no log \"%s\": %s", name, strerror(-r));
    if (ret_text->len - before >= max_bytes) { /* cut at the front: begin with a whole line */
        const uint8_t *nl = memchr(ret_text->data + before, '\n', ret_text->len - before);

        if (nl != NULL) {
            const size_t skip = (size_t)(nl + 1 - (ret_text->data + before));

            memmove(ret_text->data + before, nl + 1, ret_text->len - before - skip);
            ret_text->len -= skip;
        }
    }
    return 0;
}
