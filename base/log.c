#include "base/log.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"

#define LINE_MAX_BYTES 4096 /* PIPE_BUF: a line stays whole when several threads write */
#define LIMIT_BURST    10
#define LIMIT_US       UINT64_C(1000000)

static const char *const level_names[] = {"error", "warn", "info", "debug"};

static struct { /* the log sink: the one mutable global, set by main before threads start */
    _Atomic int max_level;
    _Atomic int fd;
} sink = {LOG_INFO, STDERR_FILENO};

void log_set(enum log_level max_level, int fd)
{
    atomic_store_explicit(&sink.max_level, (int)max_level, memory_order_relaxed);
    atomic_store_explicit(&sink.fd, fd, memory_order_relaxed);
}

bool log_level_parse(const char *word, enum log_level *ret_level)
{
    for (size_t i = 0; i < ARRAY_LEN(level_names); i++) {
        if (strcmp(word, level_names[i]) == 0) {
            *ret_level = (enum log_level)i;
            return true;
        }
    }
    return false;
}

bool log_is_on(enum log_level level)
{
    return (int)level <= atomic_load_explicit(&sink.max_level, memory_order_relaxed);
}

/* A line longer than LINE_MAX_BYTES is cut; a line that can't be written is lost: logging never
 * stops the work. Control characters that slipped in unquoted become '?', one event is one line. */
void log_event(enum log_level level, const char *ev, const char *fmt, ...)
{
    const uint64_t now_us = clock_wall_us();
    const time_t now_s = (time_t)(now_us / US_PER_S);
    char line[LINE_MAX_BYTES];
    struct tm tm;
    va_list ap;
    size_t len;
    int n;

    if (!log_is_on(level))
        return;
    gmtime_r(&now_s, &tm);
    len = strftime(line, sizeof(line), "ts=%Y-%m-%dT%H:%M:%S", &tm);
    n = snprintf(line + len, sizeof(line) - len, ".%06uZ lvl=%s ev=%s ",
                 (unsigned)(now_us % US_PER_S), level_names[level], ev);
    check(n > 0 && (size_t)n < sizeof(line) - len);
    len += (size_t)n;
    va_start(ap, fmt);
    n = vsnprintf(line + len, sizeof(line) - len, fmt, ap);
    va_end(ap);
    if (n > 0)
        len += (size_t)n < sizeof(line) - len ? (size_t)n : sizeof(line) - len - 1;
    for (size_t i = 0; i < len; i++)
        if ((unsigned char)line[i] < ' ' || line[i] == 0x7f)
            line[i] = '?';
    line[len++] = '\n'; /* over the NUL */
    if (write(atomic_load_explicit(&sink.fd, memory_order_relaxed), line, len) < 0)
        return;
}

const char *log_quote(char *dst, size_t size, const char *text)
{
    size_t n = 0;
    bool plain = *text != '\0';

    check(size >= 3);
    for (const unsigned char *s = (const unsigned char *)text; *s != '\0' && plain; s++)
        plain = *s > ' ' && *s != '"' && *s != '=' && *s != '\\' && *s != 0x7f;
    if (plain && strlen(text) < size)
        return strcpy(dst, text);
    dst[n++] = '"';
    for (const unsigned char *s = (const unsigned char *)text; *s != '\0'; s++) {
        char piece[5] = {(char)*s, '\0'};

        if (*s == '"' || *s == '\\')
            snprintf(piece, sizeof(piece), "\\%c", *s);
        else if (*s == '\n')
            snprintf(piece, sizeof(piece), "\\n");
        else if (*s < ' ' || *s == 0x7f)
            snprintf(piece, sizeof(piece), "\\x%02x", *s);
        if (n + strlen(piece) + 2 > size) /* the closing quote and the NUL */
            break;
        memcpy(dst + n, piece, strlen(piece));
        n += strlen(piece);
    }
    dst[n++] = '"';
    dst[n] = '\0';
    return dst;
}

bool log_limit_pass(struct log_limit *l, uint64_t now_us, uint32_t *ret_suppressed)
{
    *ret_suppressed = 0;
    if (l->burst_used >= LIMIT_BURST && now_us < l->next_us) {
        l->suppressed++;
        return false;
    }
    if (now_us >= l->next_us + LIMIT_BURST * LIMIT_US)
        l->burst_used = 0; /* quiet for long: a whole burst again */
    if (l->burst_used < LIMIT_BURST)
        l->burst_used++;
    l->next_us = now_us + LIMIT_US;
    *ret_suppressed = l->suppressed;
    l->suppressed = 0;
    return true;
}
