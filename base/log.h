/* base/log.h - one event, one line of logfmt on standard error.
 *
 * Owns:      the sink and level that main set.
 * Called by: whoever decides what to do about something, once.
 * Thread:    any; a line is one write.
 *
 * `log_info("replica_ready", "model=%s replica=%s took_us=%llu", ...)` prints
 * `ts=2026-01-02T03:04:05.678901Z lvl=info ev=replica_ready model=... replica=... took_us=...`.
 * Values that may hold spaces, quotes or '=' go through log_quote.
 */
#ifndef BASE_LOG_H
#define BASE_LOG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/check.h"

enum log_level { LOG_ERROR = 0, LOG_WARN, LOG_INFO, LOG_DEBUG };

void log_set(enum log_level max_level, int fd);
bool log_level_parse(const char *word, enum log_level *ret_level);
bool log_is_on(enum log_level level);
void log_event(enum log_level level, const char *ev, const char *fmt, ...) PRINTF_LIKE(3, 4);

#define log_error(ev, ...) log_event(LOG_ERROR, ev, __VA_ARGS__)
#define log_warn(ev, ...)  log_event(LOG_WARN, ev, __VA_ARGS__)
#define log_info(ev, ...)  log_event(LOG_INFO, ev, __VA_ARGS__)
#define log_debug(ev, ...)                                                                         \
    do {                                                                                           \
        if (log_is_on(LOG_DEBUG))                                                                  \
            log_event(LOG_DEBUG, ev, __VA_ARGS__);                                                 \
    } while (0)

/* text as a logfmt value: quoted and escaped where needed, cut to fit size; returns dst. */
const char *log_quote(char *dst, size_t size, const char *text);

/* For lines that a client can trigger: at most burst lines, then one per interval; the count of
 * suppressed ones is returned in ret_suppressed with the next that passes. One struct a call site
 * and thread; zeroed is ready. */
struct log_limit {
    uint64_t next_us;
    uint32_t burst_used;
    uint32_t suppressed;
};
bool log_limit_pass(struct log_limit *l, uint64_t now_us, uint32_t *ret_suppressed);

#endif
