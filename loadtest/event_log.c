#include "loadtest/event_log.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"

#define LINE_BYTES 16384u

int event_log_open(struct event_log *log, const char *path, struct err *err)
{
    *log = (struct event_log){.fd = -1};
    buf_init(&log->line, LINE_BYTES);
    if (path == NULL)
        return 0;
    log->fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    if (log->fd < 0)
        return err_set(err, -errno, "--events %s: %s", path, strerror(errno));
    return 0;
}

void event_log_close(struct event_log *log)
{
    if (log->fd >= 0)
        close(log->fd);
    log->fd = -1;
    buf_fini(&log->line);
}

void event_begin(struct event_log *log, const char *ev)
{
    if (log->fd < 0)
        return;
    buf_reset(&log->line);
    json_out_init(&log->json, &log->line);
    json_out_object(&log->json, NULL);
    json_out_uint(&log->json, "t_us", clock_wall_us());
    json_out_str(&log->json, "ev", ev);
}

void event_str(struct event_log *log, const char *key, const char *value)
{
    if (log->fd >= 0 && value != NULL)
        json_out_str(&log->json, key, value);
}

void event_u64(struct event_log *log, const char *key, uint64_t value)
{
    if (log->fd >= 0)
        json_out_uint(&log->json, key, value);
}

void event_bool(struct event_log *log, const char *key, bool value)
{
    if (log->fd >= 0)
        json_out_bool(&log->json, key, value);
}

void event_end(struct event_log *log)
{
    if (log->fd < 0)
        return;
    json_out_end_object(&log->json);
    buf_append_byte(&log->line, '\n');
    if (log->line.overflow)
        return; /* a line over the limit (a peer's giant metadata) is no line */
    if (write(log->fd, log->line.data, log->line.len) < 0)
        return; /* a full disk must not stop the replica; the test misses its line */
}
