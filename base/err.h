/* base/err.h - where and why a fault happened, in a fixed buffer.
 *
 * Owns:      its text; no allocation, so it can't fail.
 * Called by: every function that returns -errno and takes a struct err (NULL: don't care).
 * Lifetime:  the caller's, usually on the stack.
 * Thread:    any; one struct per thread.
 */
#ifndef BASE_ERR_H
#define BASE_ERR_H

#include "base/check.h"

struct err {
    int code;       /* 0, or a negative errno */
    char text[512]; /* one line, no trailing newline; cut, never overrun */
};

/* Fill err (if not NULL) and return code, so that `return err_set(err, -EINVAL, ...)` works. */
int err_set(struct err *err, int code, const char *fmt, ...) PRINTF_LIKE(3, 4);

/* Put "prefix: " before the text that is there, when a caller knows more. Returns err's code. */
int err_prefix(struct err *err, const char *fmt, ...) PRINTF_LIKE(2, 3);

#endif
