/* net/h2_meter.h - the frame meter before an engine that does not see every frame: nghttp2_session
 * tells nothing of frames that it ignores, or of how a header block was cut.
 *
 * It walks frame heads in the byte stream, whatever the pieces, and charges each frame to the
 * connection's budget. (The native engine charges where it parses.)
 *
 * Owns:      nothing: plain data in its engine.
 * Called by: net/h2_session.c, before each nghttp2_session_mem_recv.
 * Thread:    one.
 */
#ifndef NET_H2_METER_H
#define NET_H2_METER_H

#include "net/h2_engine.h"
#include "net/h2_frame.h"

struct meter {
    uint8_t head[FRAME_HEAD_BYTES];
    uint32_t n_head;
    uint32_t n_magic; /* bytes of the preface to come */
    uint32_t left;    /* payload of frame to come */
    struct frame frame;
    bool settings_seen;
    bool in_block; /* HEADERS without END_HEADERS has come */
    uint32_t block_bytes, block_frames, block_empty;
    uint32_t empty_data; /* in a row */
    uint32_t rsts;       /* whole RST_STREAM frames; the engine sets it back */
};

void meter_init(struct meter *m, enum h2_role role);
/* Charge what [p, p+len) holds to h->budget, and note what it leaves unfinished. NULL, or why the
 * peer is to be sent away, with h->fault set. */
const char *meter_feed(struct meter *m, struct h2 *h, const uint8_t *p, size_t len);

#endif
