#include "base/xalloc.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"

void *xcalloc(size_t n, size_t size)
{
    void *p = calloc(n > 0 ? n : 1, size > 0 ? size : 1);

    check(p != NULL);
    return p;
}

void *xrealloc(void *p, size_t n, size_t size)
{
    size_t bytes;

    check(!__builtin_mul_overflow(n, size, &bytes));
    p = realloc(p, bytes > 0 ? bytes : 1);
    check(p != NULL);
    return p;
}

char *xstrndup(const char *s, size_t len)
{
    char *copy = xrealloc(NULL, len + 1, 1);

    if (len > 0)
        memcpy(copy, s, len);
    copy[len] = '\0';
    return copy;
}

char *xstrdup(const char *s)
{
    return xstrndup(s, strlen(s));
}

char *xasprintf(const char *fmt, ...)
{
    va_list ap;
    char *text;
    int len;

    va_start(ap, fmt);
    len = vasprintf(&text, fmt, ap);
    va_end(ap);
    check(len >= 0);
    return text;
}
