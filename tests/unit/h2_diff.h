/* tests/unit/h2_diff.h - the same bytes into both engines: the same events, or two refusals.
 *
 * Refused: recv failed, or a GOAWAY with an error left. What a refusing engine told before it
 * refused is not compared. Nor is what came after a GOAWAY that left no stream: nghttp2 drops the
 * rest of that read, we read it. The cases where the engines may differ are `differences` below, by
 * the reason that the refusing one gives; each was looked at and is meant.
 */
#ifndef TESTS_UNIT_H2_DIFF_H
#define TESTS_UNIT_H2_DIFF_H

#include "h2_script.h"

struct difference {
    const char *by; /* the engine that refuses alone */
    const char *why;
    bool after_rst; /* only where the other engine had reset a stream */
    const char *reason;
};

static const struct difference differences[] = {
    {"native", "on a closed stream", false,
     "RFC 9113 5.1: STREAM_CLOSED. nghttp2 forgets closed streams (no_closed_streams) and ignores"},
    {"native", "on a stream id below the last", false,
     "RFC 9113 5.1.1: PROTOCOL_ERROR. nghttp2 takes it for a stream that has been"},
    {"native", "WINDOW_UPDATE of zero", false,
     "RFC 9113 6.9: nghttp2 lets it pass on a stream that has ended"},
    {"native", "padding over the payload", false,
     "RFC 9113 6.1: nghttp2 skips the padding with the frame when the stream has ended"},
    {"native", "DATA too short for its padding", false,
     "RFC 9113 4.2: FRAME_SIZE_ERROR. nghttp2 skips the frame whole when the stream has ended"},
    {"native", "ENHANCE_YOUR_CALM", false,
     "our budgets are tighter and count frames nghttp2 does not"},
    {"native", "SETTINGS_", false,
     "nghttp2 looks at the last of two entries of one id; and at no CONTINUATION's length"},
    {"native", "a boolean setting", false, "the same"},
    {"native", "depends on itself", false,
     "RFC 9113 5.4.1: a stream error may be taken for a connection error; nghttp2 resets the "
     "stream"},
    {"native", "PUSH_PROMISE", false,
     "nghttp2 takes one while our ENABLE_PUSH 0 is not acknowledged; it was our first frame"},
    {"session", "window_size_increment == 0", true, "as the next but one"},
    {"session", "Too many CONTINUATION", false,
     "nghttp2 takes 8; a block that comes byte by byte is no attack"},
    {"session", "NO_RFC7540_PRIORITIES cannot be changed", false, "RFC 9218 2.1: MAY"},
    {"session", "GOAWAY: invalid last_stream_id", false,
     "RFC 9113 6.8 asks for no parity, and 2^31-1 is what it recommends"},
    {"session", "STREAM_CLOSED", true,
     "nghttp2 keeps a stream that it resets until RST_STREAM has left; for us it is gone at once, "
     "and what comes for it is ignored"},
};

/* Drop a frame that is not all there, from at on: nghttp2 tells of its begin, we of whole header
 * blocks. The last read ends there. */
static inline void script_trim(struct script *s, size_t at)
{
    while (at + 9 <= s->len && at + 9 + (watch_u32(s->bytes + at) >> 8) <= s->len)
        at += 9 + (watch_u32(s->bytes + at) >> 8);
    s->len = at;
    while (s->n_ends > 0 && s->ends[s->n_ends - 1] >= at)
        s->n_ends--;
    s->ends[s->n_ends++] = at;
}

static inline bool is_known_difference(const char *engine, const char *why, bool other_reset)
{
    for (size_t i = 0; i < ARRAY_LEN(differences); i++)
        if (strcmp(differences[i].by, engine) == 0 && strstr(why, differences[i].why) != NULL &&
            (other_reset || !differences[i].after_rst))
            return true;
    return false;
}

static inline const struct watch_stream *watch_find(const struct watch *w, uint32_t id)
{
    for (size_t i = 0; i < w->n_streams; i++)
        if (w->streams[i].id == id)
            return &w->streams[i];
    return NULL;
}

/* A stream that an error ended: what came just before the error may be told or not. */
static inline bool is_cut(const struct watch_stream *x)
{
    return x->n_close > 0 && !x->by_peer && x->code != H2_NO_ERROR;
}

/* nghttp2 decodes a header block as it comes, we when it is whole: zeros make it whole. */
static inline bool was_inside_block(struct watch *native)
{
    static const uint8_t zeros[17000];

    watch_read(native, zeros, sizeof(zeros));
    return strstr(h2_why_done(native->h), "COMPRESSION_ERROR") != NULL ||
           strstr(h2_why_done(native->h), "inside a header block") != NULL;
}

static inline bool streams_equal(const struct watch_stream *a, const struct watch_stream *b)
{
    if (is_cut(b) && a->odd)
        return true;
    if (is_cut(b) && a->informed)
        return true; /* DATA before the final response, RFC 9113 8.1: nghttp2 ignores an empty one
                      */
    if (is_cut(b) && a->n_close > 0)
        return true; /* in nghttp2 the peer's RST_STREAM may overtake ours */
    if (a->n_close != b->n_close || a->code != b->code || a->by_peer != b->by_peer)
        return false;
    if (is_cut(a))
        return true;
    return a->blocks == b->blocks && a->n_blocks == b->n_blocks && a->bytes == b->bytes &&
           a->data == b->data && a->n_end == b->n_end;
}

static inline const char *watch_compare_all(const struct watch *session, const struct watch *native,
                                            char *text, size_t cap)
{
    if (session->refused && native->refused)
        return NULL;
    if (!session->refused && session->n_goaway > 0 && h2_is_done(session->h))
        return NULL;
    if (session->refused != native->refused) {
        const struct watch *one = session->refused ? session : native;
        const struct watch *other = session->refused ? native : session;
        const char *engine = session->refused ? "session" : "native";

        if (is_known_difference(engine, h2_why_done(one->h), other->n_rst > 0))
            return NULL;
        snprintf(text, cap, "only %s refuses: %s", engine, h2_why_done(one->h));
        return text;
    }
    for (size_t i = 0; i < session->n_streams; i++) {
        const struct watch_stream *a = &session->streams[i], *b = watch_find(native, a->id);

        if (b == NULL && (is_cut(a) || a->odd))
            continue;
        if (b == NULL || !streams_equal(a, b)) {
            snprintf(text, cap, "stream %u differs", a->id);
            return text;
        }
    }
    for (size_t i = 0; i < native->n_streams; i++) {
        const struct watch_stream *b = &native->streams[i];

        if (watch_find(session, b->id) == NULL && !is_cut(b)) {
            snprintf(text, cap, "only native has stream %u", b->id);
            return text;
        }
    }
    if (session->n_goaway != native->n_goaway || session->n_settings != native->n_settings ||
        session->n_pong != native->n_pong ||
        (session->n_goaway == 0 && session->n_acks != native->n_acks)) {
        snprintf(text, cap,
                 "connection events differ: goaway %u %u settings %u %u pong %u %u "
                 "acks %zu %zu",
                 session->n_goaway, native->n_goaway, session->n_settings, native->n_settings,
                 session->n_pong, native->n_pong, session->n_acks, native->n_acks);
        return text;
    }
    return NULL;
}

/* Returns NULL, or what differs, in text. The last of all: native may be fed more. */
static inline const char *watch_compare(const struct watch *session, struct watch *native,
                                        char *text, size_t cap)
{
    const char *what = watch_compare_all(session, native, text, cap);

    return what == NULL || was_inside_block(native) ? NULL : what;
}

#endif
