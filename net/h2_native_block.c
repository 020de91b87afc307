/* Header blocks in: HEADERS and CONTINUATION put together, decoded, checked, told. */
#include <string.h>

#include "base/check.h"
#include "net/h2_native.h"

#define SHORT_BLOCK_BYTES 4096u /* a block that its sender cuts in single bytes may pass so far */
#define SHORT_FACTOR      32u
#define MAX_EMPTY_CONTS   4u
#define MAX_INFORMATIONAL 32u /* 1xx blocks of a response */

/* What becomes of the block that HEADERS opens. -EPROTO, or 0 with n->block set. */
static int judge_block(struct native *n, uint32_t id)
{
    const struct nstream *s = nstream_table_find(&n->table, id);
    const bool server = n->base.role == H2_SERVER;

    if (s != NULL) {
        if (nstream_recv_ended(s))
            return native_fail(n, H2_STREAM_CLOSED, "HEADERS after END_STREAM");
        n->block = BLOCK_OF_STREAM;
        return 0;
    }
    if (server && (id & 1) == 0)
        return native_fail(n, H2_PROTOCOL_ERROR, "HEADERS on an even stream id");
    if (server && id > n->last_peer_id) {
        n->last_peer_id = id;
        if (id / 2 >= n->base.limits.max_ids_used)
            n->base.strained = true;
        if (n->goaway_sent && id > n->our_last_id)
            n->block = BLOCK_IGNORED;
        else if (n->base.n_streams >= n->base.limits.max_concurrent_streams)
            n->block = BLOCK_REFUSED;
        else
            n->block = BLOCK_REQUEST;
        return 0;
    }
    if (native_is_idle(n, id))
        return native_fail(n, H2_PROTOCOL_ERROR, "HEADERS on an idle stream");
    switch (nstream_grave(&n->graves, id)) {
    case STREAM_END_CLEAN:
        return native_fail(n, H2_STREAM_CLOSED, "HEADERS on a closed stream");
    case STREAM_END_BY_PEER:
        n->block = BLOCK_AFTER_RST;
        return 0;
    case STREAM_END_BY_US: /* it crossed our reset */
        n->block = BLOCK_IGNORED;
        return 0;
    default: /* it has never been, or is long gone: RFC 9113 5.1.1 */
        if (server && !(n->goaway_sent && id > n->our_last_id))
            return native_fail(n, H2_PROTOCOL_ERROR, "HEADERS on a stream id below the last");
        n->block = BLOCK_IGNORED; /* answers to requests that we have cancelled may come late */
        return 0;
    }
}

/* Takes a request's stream into the connection. */
static struct nstream *open_request(struct native *n, uint32_t id)
{
    struct nstream *s = nstream_new(n->shared, &n->base, NULL);

    s->base.id = id;
    s->send_window = n->peer_window;
    nstream_table_add(&n->table, s);
    list_push_back(&n->all, &s->all);
    n->base.n_streams++;
    return s;
}

static enum message_part part_of(const struct native *n, const struct nstream *s)
{
    if (s == NULL)
        return MESSAGE_REQUEST;
    if (n->base.role == H2_SERVER || (s->flags & STREAM_RESPONDED) != 0)
        return MESSAGE_TRAILERS;
    return MESSAGE_RESPONSE;
}

/* The block has been found good: tell the user. Its last frame has END_STREAM: end. */
static void tell_block(struct native *n, struct nstream *s, enum h2_block kind, struct h2_set *set,
                       const struct h2_field *fields, size_t n_fields, bool end)
{
    if (end)
        nstream_end_recv(s);
    s->base.set = set;
    if (n->base.events.on_headers != NULL)
        n->base.events.on_headers(n->base.user, &s->base, kind, fields, n_fields, end);
    if (n->lost)
        return;
    s->base.set = NULL;
    if (end)
        native_after_end_recv(n, s);
}

bool native_take_plain_headers(struct native *n, const struct frame *f, const uint8_t *p)
{
    static const enum h2_block kinds[] = {
        [MESSAGE_REQUEST] = H2_REQUEST,
        [MESSAGE_RESPONSE] = H2_RESPONSE,
        [MESSAGE_TRAILERS] = H2_TRAILERS,
    };
    const bool end = (f->flags & FRAME_END_STREAM) != 0, server = n->base.role == H2_SERVER;
    struct nstream *s = NULL;
    enum message_part part;
    struct h2_set *set;

    if ((f->flags & ~FRAME_END_STREAM) != FRAME_END_HEADERS)
        return false;
    if (!server || f->id <= n->last_peer_id)
        s = nstream_table_find(&n->table, f->id);
    if (s == NULL ? !server || (f->id & 1) == 0 || f->id <= n->last_peer_id || n->goaway_sent ||
                        f->id / 2 >= n->base.limits.max_ids_used ||
                        n->base.n_streams >= n->base.limits.max_concurrent_streams
                  : nstream_recv_ended(s) || s->content_left > 0 || (s->flags & STREAM_HEAD) != 0)
        return false;
    part = part_of(n, s);
    set = hpack_in_routine(&n->hpack_in, p, f->len);
    if (set == NULL || !h2_set_is_routine(set, part, end))
        return false;
    if (s == NULL) {
        n->last_peer_id = f->id;
        s = open_request(n, f->id);
    } else if (part == MESSAGE_RESPONSE) {
        s->flags |= STREAM_GOT_BLOCK | STREAM_RESPONDED;
    }
    tell_block(n, s, kinds[part], set, set->fields, set->n, end);
    return true;
}

/* Does the message keep its promise of a length, now that `end` is known? */
static bool length_is_ok(struct nstream *s, struct message *m, bool end)
{
    if (m->part == MESSAGE_TRAILERS)
        return m->content_length < 0 && s->content_left <= 0;
    if (!message_is_informational(m))
        s->content_left = message_body_bytes(m, (s->flags & STREAM_HEAD) != 0);
    return !end || s->content_left <= 0;
}

static enum h2_block kind_of(struct nstream *s, const struct message *m)
{
    if (m->part == MESSAGE_REQUEST)
        return H2_REQUEST;
    if (m->part == MESSAGE_TRAILERS)
        return H2_TRAILERS;
    s->flags |= STREAM_GOT_BLOCK;
    if (message_is_informational(m))
        return H2_INFORMATIONAL;
    s->flags |= STREAM_RESPONDED;
    return H2_RESPONSE;
}

/* A block that the user shall see. */
static int deliver_block(struct native *n, uint32_t id, struct hpack_list *list, bool end)
{
    struct nstream *s = nstream_table_find(&n->table, id);
    enum h2_block kind;

    if (!message_is_ok(&list->message, end))
        return native_stream_broken(n, s, id, H2_PROTOCOL_ERROR);
    if (s == NULL)
        s = open_request(n, id);
    if (!length_is_ok(s, &list->message, end)) {
        if (list->message.part != MESSAGE_REQUEST)
            return native_stream_broken(n, s, id, H2_PROTOCOL_ERROR);
        nstream_table_del(&n->table, s); /* nobody has seen it */
        list_remove(&s->all);
        n->base.n_streams--;
        nstream_free(n->shared, s);
        return native_stream_broken(n, NULL, id, H2_PROTOCOL_ERROR);
    }
    kind = kind_of(s, &list->message);
    if (kind == H2_INFORMATIONAL && ++s->n_info > MAX_INFORMATIONAL)
        return native_stream_broken(n, s, id, H2_ENHANCE_YOUR_CALM);
    tell_block(n, s, kind, list->set, list->fields, list->n, end);
    return 0;
}

static struct nstream *stream_of_block(struct native *n)
{
    return n->block == BLOCK_OF_STREAM ? nstream_table_find(&n->table, n->block_id) : NULL;
}

/* The block has been decoded with r; list is there where that is HPACK_OK. s: stream_of_block. */
static int settle_block(struct native *n, struct nstream *s, enum hpack_result r,
                        struct hpack_list *list)
{
    const enum native_block what = n->block;
    const uint32_t id = n->block_id;
    const bool wanted = what == BLOCK_REQUEST || s != NULL;

    n->block = BLOCK_NONE;
    if (r == HPACK_BROKEN)
        return native_fail(n, H2_COMPRESSION_ERROR, "header block breaks HPACK");
    if (r == HPACK_BOMB)
        return native_calm(n, H2_FAULT_HEADERS, "header list far over the limit");
    if (what == BLOCK_REFUSED)
        return native_stream_broken(n, NULL, id, H2_REFUSED_STREAM);
    if (what == BLOCK_AFTER_RST)
        return native_stream_broken(n, NULL, id, H2_STREAM_CLOSED);
    if (!wanted)
        return 0;
    if (r == HPACK_OVER) /* gRPC reads it as RESOURCE_EXHAUSTED */
        return native_stream_broken(n, s, id, H2_ENHANCE_YOUR_CALM);
    return deliver_block(n, id, list, n->block_end);
}

/* The block is whole. It is decoded whatever becomes of it, or the table is lost: RFC 9113 4.3. */
static int take_block(struct native *n, const uint8_t *p, size_t len)
{
    struct nstream *s = stream_of_block(n);
    struct hpack_list list;
    const enum hpack_result r =
        hpack_in_block(&n->hpack_in, n->base.pool, &n->base.limits, part_of(n, s), p, len, &list);
    const int err = settle_block(n, s, r, &list);

    hpack_in_done(&list);
    return err;
}

/* Pass over what is there of the block. */
static enum hpack_result pass_block(struct native *n)
{
    size_t used;
    const enum hpack_result r = hpack_in_pass(&n->hpack_in, n->base.pool, &n->base.limits,
                                              n->block_passes, n->part->data, n->n_block, &used);

    n->block_passes = true;
    n->n_block -= (uint32_t)used;
    memmove(n->part->data, n->part->data + used, n->n_block);
    return r;
}

int native_shorten_block(struct native *n)
{
    enum hpack_result r;

    if (n->base.role == H2_SERVER || n->block == BLOCK_NONE)
        return 0;
    r = pass_block(n);
    return r == HPACK_OVER ? 0 : settle_block(n, NULL, r, NULL);
}

/* The end of a block that was shortened. */
static int end_block(struct native *n)
{
    const enum hpack_result r = pass_block(n);

    return settle_block(n, stream_of_block(n), n->n_block > 0 ? HPACK_BROKEN : r, NULL);
}

/* Cut priority off HEADERS: five bytes that RFC 9113 5.3.2 has us ignore. */
static int skip_priority(struct native *n, const struct frame *f, const uint8_t **p, size_t *len)
{
    if ((f->flags & FRAME_HAS_PRIORITY) == 0)
        return 0;
    if (*len < 5)
        return native_fail(n, H2_FRAME_SIZE_ERROR, "HEADERS too short for its priority");
    if ((frame_read_u32(*p) & FRAME_MAX_ID) == f->id)
        return native_fail(n, H2_PROTOCOL_ERROR, "stream depends on itself");
    *p += 5;
    *len -= 5;
    return 0;
}

void native_keep_part(struct native *n, size_t at, const uint8_t *p, size_t len, size_t want)
{
    struct slab *to = n->part;

    if (to == NULL || want > to->cap) {
        to = slab_get(n->base.pool, want > SLAB_SMALL_BYTES ? SLAB_LARGE_BYTES : SLAB_SMALL_BYTES);
        if (n->part != NULL)
            memcpy(to->data, n->part->data, at);
    }
    memmove(to->data + at, p, len);
    if (to != n->part) {
        slab_unref(n->part);
        n->part = to;
    }
}

/* Keep a fragment until the block is whole. p may lie in part. */
static void keep_fragment(struct native *n, const uint8_t *p, size_t len)
{
    native_keep_part(n, n->n_block, p, len, n->n_block + len);
    n->n_block += (uint32_t)len;
}

void native_drop_part(struct native *n)
{
    slab_unref(n->part);
    n->part = NULL;
    n->n_part = n->n_block = 0;
}

int native_on_headers(struct native *n, const struct frame *f, const uint8_t *p, size_t len)
{
    int err;

    if (!frame_unpad(f, &p, &len))
        return native_fail(n, H2_PROTOCOL_ERROR, "HEADERS: padding over the payload");
    err = skip_priority(n, f, &p, &len);
    if (err == 0)
        err = judge_block(n, f->id);
    if (err != 0)
        return err;
    n->block_id = f->id;
    n->block_end = (f->flags & FRAME_END_STREAM) != 0;
    n->n_continuations = n->n_empty_continuations = 0;
    n->block_passes = false;
    if ((f->flags & FRAME_END_HEADERS) != 0)
        return take_block(n, p, len);
    keep_fragment(n, p, len);
    return 0;
}

int native_on_continuation(struct native *n, const struct frame *f, const uint8_t *p, size_t len)
{
    const uint32_t frames = n->base.limits.max_header_frames;
    int err;

    if (len == 0 && ++n->n_empty_continuations > MAX_EMPTY_CONTS)
        return native_calm(n, H2_FAULT_HEADERS, "empty CONTINUATION frames");
    if (++n->n_continuations > frames && (n->block_passes || n->n_block + len > SHORT_BLOCK_BYTES ||
                                          n->n_continuations > SHORT_FACTOR * frames))
        return native_calm(n, H2_FAULT_HEADERS, "header block has no end");
    keep_fragment(n, p, len);
    if ((f->flags & FRAME_END_HEADERS) == 0)
        return 0;
    err = n->block_passes ? end_block(n) : take_block(n, n->part->data, n->n_block);
    native_drop_part(n);
    return err;
}
