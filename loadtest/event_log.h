/* loadtest/event_log.h - what a replica saw, as JSON lines in a file that tests read.
 *
 * Owns:      the open file.
 * Called by: model_server.c.
 * Lifetime:  event_log_open .. event_log_close; a closed or zeroed one drops what it is given.
 * Thread:    one; a line is one write.
 */
#ifndef LOADTEST_EVENT_LOG_H
#define LOADTEST_EVENT_LOG_H

#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/json_out.h"

struct event_log {
    int fd; /* -1: none */
    struct buf line;
    struct json_out json;
};

/* path: appended to; NULL: no log. 0 or -errno with err. */
int event_log_open(struct event_log *log, const char *path, struct err *err);
void event_log_close(struct event_log *log);

/* A line is event_begin, any number of fields, event_end. t_us is the wall clock. */
void event_begin(struct event_log *log, const char *ev);
void event_str(struct event_log *log, const char *key, const char *value); /* NULL: left out */
void event_u64(struct event_log *log, const char *key, uint64_t value);
void event_bool(struct event_log *log, const char *key, bool value);
void event_end(struct event_log *log);

#endif
