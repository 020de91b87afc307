/* base/xalloc.h - allocation for long-lived objects: aborts when memory ends.
 *
 * A gateway that restarts is better than one that half works. Memory whose size a peer chooses
 * comes from an arena or a buf with a ceiling instead.
 * Thread:    any.
 */
#ifndef BASE_XALLOC_H
#define BASE_XALLOC_H

#include <stddef.h>

void *xcalloc(size_t n, size_t size); /* zeroed; n * size is checked for overflow */
void *xrealloc(void *p, size_t n, size_t size);
char *xstrdup(const char *s);
char *xstrndup(const char *s, size_t len);
char *xasprintf(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

#endif
