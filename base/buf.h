/* base/buf.h - a growing run of bytes with a ceiling.
 *
 * Owns:      its memory.
 * Lifetime:  buf_init .. buf_fini; data moves when it grows.
 * Thread:    one.
 */
#ifndef BASE_BUF_H
#define BASE_BUF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct buf {
    uint8_t *data;
    size_t len;
    size_t cap;
    size_t ceiling_bytes; /* an append past it fails and sets overflow; nothing is cut half-way */
    bool overflow;
};

void buf_init(struct buf *b, size_t ceiling_bytes);
void buf_fini(struct buf *b); /* works on a zeroed buf */
void buf_reset(struct buf *b);

/* Each returns false past the ceiling (and overflow stays set, so a run of appends can be checked
 * once at its end). */
bool buf_append(struct buf *b, const void *p, size_t len);
bool buf_append_str(struct buf *b, const char *s);
bool buf_append_byte(struct buf *b, uint8_t byte);
bool buf_printf(struct buf *b, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
uint8_t *buf_reserve(struct buf *b, size_t len); /* room for len more bytes; then add to b->len */
void buf_consume(struct buf *b, size_t len);     /* drops bytes at the front */
const char *buf_cstr(struct buf *b);             /* NUL-terminated view; the NUL is not in len */

#endif
