/* placer/unit_log.h - what a unit wrote, in two files of at most half the cap each.
 *
 * FOLDER/NAME.log is written; when it is half the cap it becomes NAME.log.1 and the older one goes.
 *
 * Owns:      the open file.
 * Called by: placer/driver_local.c.
 * Lifetime:  unit_log_open .. unit_log_close.
 * Thread:    one.
 */
#ifndef PLACER_UNIT_LOG_H
#define PLACER_UNIT_LOG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"

struct unit_log {
    const char *folder; /* the caller's, for the life of the log */
    char *name;
    uint64_t max_bytes;
    int fd;         /* -1: closed, or the disk said no: output is dropped */
    uint64_t bytes; /* in the current file */
};

/* Letters, digits and "._-", not a dot first: it can't leave its folder. */
bool unit_log_name_is_fine(const char *name);
/* A fine name out of any text; the caller frees it. */
char *unit_log_name_of(const char *text);

/* Appends to a log that is there. 0, or -errno with err filled and the log closed. */
int unit_log_open(struct unit_log *log, const char *folder, const char *name, uint64_t max_bytes,
                  struct err *err);
void unit_log_close(struct unit_log *log); /* works on a closed log */
void unit_log_write(struct unit_log *log, const char *p, size_t len);

/* The newest max_bytes, whole lines, appended to ret_text. -EINVAL: not a name; -ENOENT. */
int unit_log_tail(const char *folder, const char *name, uint64_t max_bytes, struct buf *ret_text,
                  struct err *err);

#endif
