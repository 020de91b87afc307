/* net/h2_frame.h - the nine bytes before each frame, and the small frames, read and written.
 *
 * Owns:      nothing: pure functions on bytes.
 * Called by: net/h2_native*.c.
 * Source:    RFC 9113 sections 4.1 and 6.
 */
#ifndef NET_H2_FRAME_H
#define NET_H2_FRAME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "net/h2.h"

enum frame_type {
    FRAME_DATA = 0x0,
    FRAME_HEADERS = 0x1,
    FRAME_PRIORITY = 0x2,
    FRAME_RST_STREAM = 0x3,
    FRAME_SETTINGS = 0x4,
    FRAME_PUSH_PROMISE = 0x5,
    FRAME_PING = 0x6,
    FRAME_GOAWAY = 0x7,
    FRAME_WINDOW_UPDATE = 0x8,
    FRAME_CONTINUATION = 0x9,
};

enum {
    FRAME_END_STREAM = 0x1,
    FRAME_ACK = 0x1,
    FRAME_END_HEADERS = 0x4,
    FRAME_PADDED = 0x8,
    FRAME_HAS_PRIORITY = 0x20,
};

enum frame_setting {
    SETTING_HEADER_TABLE_SIZE = 0x1,
    SETTING_ENABLE_PUSH = 0x2,
    SETTING_MAX_CONCURRENT_STREAMS = 0x3,
    SETTING_INITIAL_WINDOW_SIZE = 0x4,
    SETTING_MAX_FRAME_SIZE = 0x5,
    SETTING_MAX_HEADER_LIST_SIZE = 0x6,
    SETTING_ENABLE_CONNECT_PROTOCOL = 0x8, /* RFC 8441 */
    SETTING_NO_RFC7540_PRIORITIES = 0x9,   /* RFC 9218 */
};

#define FRAME_HEAD_BYTES    9u
#define FRAME_MAX_ID        0x7fffffffu
#define FRAME_MAX_WINDOW    0x7fffffff
#define FRAME_PAYLOAD_BYTES 16384u /* what we send at most; every peer takes it */
#define FRAME_MAGIC         "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
#define FRAME_MAGIC_BYTES   24u

struct frame {
    uint32_t len;
    uint32_t id;
    uint8_t type;
    uint8_t flags;
};

static inline uint32_t frame_read_u32(const uint8_t *p)
{
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

static inline uint8_t *frame_write_u32(uint8_t *p, uint32_t v)
{
    p[0] = (uint8_t)(v >> 24);
    p[1] = (uint8_t)(v >> 16);
    p[2] = (uint8_t)(v >> 8);
    p[3] = (uint8_t)v;
    return p + 4;
}

/* p: FRAME_HEAD_BYTES bytes. The reserved bit is ignored. */
static inline void frame_read(struct frame *f, const uint8_t *p)
{
    const uint32_t first = frame_read_u32(p);

    f->len = first >> 8;
    f->type = (uint8_t)first;
    f->flags = p[4];
    f->id = frame_read_u32(p + 5) & FRAME_MAX_ID;
}

/* Returns the byte after the head. */
static inline uint8_t *frame_write(uint8_t *p, size_t len, enum frame_type type, unsigned flags,
                                   uint32_t id)
{
    frame_write_u32(p, (uint32_t)len << 8 | (uint32_t)type);
    p[4] = (uint8_t)flags;
    return frame_write_u32(p + 5, id);
}

/* The rules that a frame's head alone can break: length and stream id of its type (RFC 9113 6).
 * Returns what is wrong, with the connection error in ret_code, or NULL. Unknown types pass. */
const char *frame_check(const struct frame *f, uint32_t max_len, enum h2_code *ret_code);

/* Cut padding (and nothing else) off a payload that is here as a whole: RFC 9113 6.1.
 * Returns false when the padding is longer than the payload. */
bool frame_unpad(const struct frame *f, const uint8_t **p, size_t *len);

/* One entry of SETTINGS: what its value breaks, or NULL. role: ours. RFC 9113 6.5.2. */
const char *frame_check_setting(enum h2_role role, uint16_t id, uint32_t value,
                                enum h2_code *ret_code);

#endif
