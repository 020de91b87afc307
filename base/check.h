/* base/check.h - bugs stop the process; small helpers that every file wants.
 *
 * Owns:      nothing.
 * Called by: everybody.
 * Thread:    any.
 */
#ifndef BASE_CHECK_H
#define BASE_CHECK_H

#include <stddef.h>
#include <stdint.h>

/* A broken invariant: our bug, never somebody's input. On in every build. */
#define check(cond)                                                                                \
    do {                                                                                           \
        if (__builtin_expect(!(cond), 0))                                                          \
            check_failed(#cond, __FILE__, __LINE__);                                               \
    } while (0)

_Noreturn void check_failed(const char *cond, const char *file, int line);

#define container_of(ptr, type, member) ((type *)(void *)((char *)(ptr)-offsetof(type, member)))

#define ARRAY_LEN(a) (sizeof(a) / sizeof((a)[0]))

#define PRINTF_LIKE(fmt_arg, first_arg) __attribute__((format(printf, fmt_arg, first_arg)))

/* Objects that pass through a library's void * begin with a magic number: `uint32_t magic`
 * set to X_MAGIC; obj_cast(X, struct x, ptr) checks it on the way back. */
#define obj_cast(tag, type, ptr) ((type *)obj_check((ptr), offsetof(type, magic), tag##_MAGIC))

static inline void *obj_check(void *ptr, size_t offset, uint32_t magic)
{
    check(ptr != NULL && *(uint32_t *)(void *)((char *)ptr + offset) == magic);
    return ptr;
}

#endif
