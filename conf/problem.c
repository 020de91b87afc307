#include "conf/problem.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define PROBLEMS_CEILING (4u * 1024 * 1024)

void conf_problems_init(struct conf_problems *p)
{
    buf_init(&p->text, PROBLEMS_CEILING);
    p->n = 0;
}

void conf_problems_fini(struct conf_problems *p)
{
    buf_fini(&p->text);
}

void conf_where_init(struct conf_where *w, struct conf_problems *problems, const char *file)
{
    w->problems = problems;
    w->file = file;
    w->len = 0;
    w->pointer[0] = '\0';
}

static void where_put(struct conf_where *w, char c)
{
    if (w->len + 1 < sizeof(w->pointer))
        w->pointer[w->len++] = c;
    w->pointer[w->len] = '\0';
}

size_t conf_where_key(struct conf_where *w, const char *key)
{
    const size_t mark = w->len;

    where_put(w, '/');
    for (; *key != '\0'; key++) {
        if (*key == '~' || *key == '/') {
            where_put(w, '~');
            where_put(w, *key == '~' ? '0' : '1');
        } else if ((unsigned char)*key < 0x20 || *key == 0x7f) {
            where_put(w, '?'); /* a message stays one line */
        } else {
            where_put(w, *key);
        }
    }
    return mark;
}

size_t conf_where_index(struct conf_where *w, size_t index)
{
    char key[24];

    snprintf(key, sizeof(key), "%zu", index);
    return conf_where_key(w, key);
}

void conf_where_up(struct conf_where *w, size_t mark)
{
    check(mark <= w->len);
    w->len = mark;
    w->pointer[mark] = '\0';
}

static void add_line(struct conf_problems *p, const char *place, const char *fmt, va_list ap)
    __attribute__((format(printf, 3, 0)));
static void add_at(struct conf_where *w, const char *fmt, va_list ap)
    __attribute__((format(printf, 2, 0)));

bool conf_where_is_clean(const struct conf_where *w)
{
    const char *line = buf_cstr(&w->problems->text);
    char place[1024];
    size_t len;

    snprintf(place, sizeof(place), "%s#%s", w->file, w->pointer); /* cut as add_at cuts it */
    len = strlen(place);
    while (*line != '\0') {
        const char *const end = line + strcspn(line, "\n");

        if (strncmp(line, place, len) == 0 && (line[len] == ':' || line[len] == '/'))
            return false;
        line = *end == '\0' ? end : end + 1;
    }
    return true;
}

/* One line is whole or not there at all, so the last one of a full buffer is not half a message. */
static void add_line(struct conf_problems *p, const char *place, const char *fmt, va_list ap)
{
    char text[1024];

    vsnprintf(text, sizeof(text), fmt, ap);
    p->n++;
    if (p->n < CONF_PROBLEMS_MAX)
        buf_printf(&p->text, "%s: %s\n", place, text);
    else if (p->n == CONF_PROBLEMS_MAX)
        buf_append_str(&p->text, "and more: only the first 999 problems are listed\n");
}

static void add_at(struct conf_where *w, const char *fmt, va_list ap)
{
    char place[1024];

    snprintf(place, sizeof(place), "%s#%s", w->file, w->pointer);
    add_line(w->problems, place, fmt, ap);
}

void conf_problem(struct conf_where *w, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    add_at(w, fmt, ap);
    va_end(ap);
}

void conf_problem_at(struct conf_where *w, const char *key, const char *fmt, ...)
{
    const size_t mark = conf_where_key(w, key);
    va_list ap;

    va_start(ap, fmt);
    add_at(w, fmt, ap);
    va_end(ap);
    conf_where_up(w, mark);
}

void conf_problem_file(struct conf_problems *p, const char *file, int line, int column,
                       const char *fmt, ...)
{
    char place[1024];
    va_list ap;

    if (line > 0)
        snprintf(place, sizeof(place), "%s:%d:%d", file, line, column);
    else
        snprintf(place, sizeof(place), "%s", file);
    va_start(ap, fmt);
    add_line(p, place, fmt, ap);
    va_end(ap);
}

const char *conf_quote(char *dst, size_t size, const char *text)
{
    size_t n = 0;

    check(size >= 8);
    dst[n++] = '"';
    for (; *text != '\0'; text++) {
        const unsigned char c = (unsigned char)*text;
        const bool escape = c == '"' || c == '\\';

        if (n + 8 > size) { /* room for an escape, "..." and the end */
            memcpy(dst + n, "...", 3);
            n += 3;
            break;
        }
        if (escape)
            dst[n++] = '\\';
        dst[n++] = c < 0x20 || c == 0x7f ? '?' : (char)c;
    }
    dst[n++] = '"';
    dst[n] = '\0';
    return dst;
}
