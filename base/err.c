#include "base/err.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

int err_set(struct err *err, int code, const char *fmt, ...)
{
    va_list ap;

    if (err == NULL)
        return code;
    err->code = code;
    va_start(ap, fmt);
    vsnprintf(err->text, sizeof(err->text), fmt, ap);
    va_end(ap);
    return code;
}

int err_prefix(struct err *err, const char *fmt, ...)
{
    char old[sizeof(err->text)];
    va_list ap;
    size_t len;

    if (err == NULL)
        return 0;
    memcpy(old, err->text, sizeof(old));
    va_start(ap, fmt);
    vsnprintf(err->text, sizeof(err->text), fmt, ap);
    va_end(ap);
    len = strlen(err->text);
    snprintf(err->text + len, sizeof(err->text) - len, ": %s", old);
    return err->code;
}
