#include "base/check.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* One write and abort: no log sink, no allocation, since anything may be broken by now. */
_Noreturn void check_failed(const char *cond, const char *file, int line)
{
    char text[512];
    int len = snprintf(text, sizeof(text), "lvl=error ev=check_failed at=%s:%d cond=\"%s\"\n", file,
                       line, cond);
    size_t n = len < 0 ? 0 : (size_t)len < sizeof(text) ? (size_t)len : sizeof(text) - 1;

    if (write(STDERR_FILENO, text, n) < 0)
        abort(); /* nowhere to complain; the core file has it all */
    abort();
}
