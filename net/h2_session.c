/* The reference engine: net/h2.h on nghttp2_session.
 *
 * Invariants:
 *  - nghttp2 calls us back only from recv and flush; what is submitted from inside a callback
 * leaves later: mem_send is called from flush alone.
 *  - A stream that we reset is taken from nghttp2 at once (its user data is cleared) and waits on
 *    `gone` for its on_close, so that a socket that takes nothing does not hold on_close back.
 *  - nghttp2's DATA item of a stream points to our stream; it is dropped by nghttp2 before it calls
 *    the source again once an RST_STREAM is queued or the stream is closed.
 *  - Header blocks leave before DATA of any stream, in the order of submission: trailers submitted
 * while nothing is queued go before nghttp2 asks on_read again, and then it does not ask.
 *  - Connection credit is returned for every DATA byte: here for bytes of streams we know, by
 * nghttp2 for padding and ignored frames.
 *
 * Known limit of nghttp2: an empty DATA frame with END_STREAM waits for a window above zero.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <nghttp2/nghttp2.h>

#include "base/check.h"
#include "base/xalloc.h"
#include "net/h2_meter.h"
#include "net/sendq.h"

#define SESS_MAGIC 0x68327365u

#define LAST_STREAM_ID (1 << 30) /* retire the connection long before ids end */
#define NO_LIMIT                                                                                   \
    (1 << 30) /* of resets and header frames: nghttp2 counts passes of its parser, the             \
                 meter counts frames */
#define BOMB_FACTOR    16u /* as the native engine */
#define BOMB_FIELDS    1000u
#define MAX_SEND_BLOCK (1024 * 1024) /* we pass on what limits.max_header_bytes let in */
#define CONTROL_FACTOR                                                                             \
    4 /* control frames pass the high water by so much, then the peer must read */

enum {
    SF_RESPONDED = 1 << 0,  /* client: the final response block was seen */
    SF_END_QUEUED = 1 << 1, /* the user has given everything */
    SF_END_SENT = 1 << 2,
    SF_END_RECV = 1 << 3,
    SF_DEFERRED = 1 << 4,   /* nghttp2 waits for nghttp2_session_resume_data */
    SF_STOP_AFTER = 1 << 5, /* RST_STREAM(NO_ERROR) once our END_STREAM has left */
    SF_BY_PEER = 1 << 6,
    SF_GONE = 1 << 7, /* on_close waits on the gone list */
    /* output waited at the last sweep, and at the one before; moving clears both */
    SF_STILL = 1 << 8,
    SF_STILL_TWICE = 1 << 8 | 1 << 9,
};

struct sstream {
    struct h2_stream base;
    struct list node; /* of sess.streams or sess.gone */
    int32_t ng_id;
    unsigned flags;
    uint32_t close_code; /* while on gone */
    struct sendq out;
    nghttp2_nv *trailers; /* one block with its strings; waits behind out */
    size_t n_trailers;
};

struct sess {
    struct h2 base;
    uint32_t magic;
    nghttp2_session *ng;
    struct meter meter;
    unsigned own_rsts; /* not yet out, and submitted by us or paid for: the others that nghttp2
                          makes are the peer's doing */
    struct list streams;
    struct list gone;
    struct copy_slab copy;
    bool failed;                /* recv or flush broke, or a GOAWAY with an error left: close */
    bool lost;                  /* the transport is gone */
    bool settings;              /* the peer's came */
    uint32_t n_settings_out;    /* ours that are not acknowledged */
    uint64_t settings_since_us; /* the oldest of those left; 0: there is none */
    /* during recv */
    struct slab *slab;
    struct sstream *data_stream; /* its last chunk is held back: END_STREAM may go with it */
    const uint8_t *data;
    size_t data_len;
    /* the header block that is coming */
    struct h2_field *fields;
    nghttp2_rcbuf **bufs; /* two per field */
    size_t n_fields, cap_fields;
    size_t block_bytes, block_fields;
    bool block_over;
    /* during flush */
    struct outq *out;
    size_t high_water;
    nghttp2_nv *nva; /* scratch of outgoing blocks */
    size_t cap_nva;
};

static struct sess *sess_of(const struct h2 *h)
{
    return obj_cast(SESS, struct sess, (void *)(uintptr_t)h);
}

static struct sess *sess_of_user(void *user)
{
    return obj_cast(SESS, struct sess, user);
}

static struct sstream *stream_of(struct h2_stream *s)
{
    return (struct sstream *)s;
}

static struct sstream *find_stream(struct sess *ss, int32_t id)
{
    /* lost: an event ended every stream, and nghttp2 still holds pointers to them */
    return ss->lost ? NULL : nghttp2_session_get_stream_user_data(ss->ng, id);
}

/* ---- a stream's life ---- */

static struct sstream *stream_new(struct sess *ss, void *user)
{
    struct sstream *st = xcalloc(1, sizeof(*st));

    st->base.h2 = &ss->base;
    st->base.user = user;
    list_push_back(&ss->streams, &st->node);
    ss->base.n_streams++;
    return st;
}

static void stream_drop_output(struct sstream *st)
{
    sendq_fini(&st->out);
    free(st->trailers);
    st->trailers = NULL;
    st->n_trailers = 0;
}

static void deliver_data(struct sess *ss, bool end);

/* The last event, and the end of st. */
static void stream_end(struct sess *ss, struct sstream *st, uint32_t code, bool by_peer)
{
    if (ss->data_stream == st)
        deliver_data(ss, false);
    stream_drop_output(st);
    list_remove(&st->node);
    ss->base.n_streams--;
    if (ss->base.events.on_close != NULL)
        ss->base.events.on_close(ss->base.user, &st->base, code, by_peer);
    free(st);
}

/* Take st from nghttp2; its on_close comes with the next flush. */
static void stream_detach(struct sess *ss, struct sstream *st, uint32_t code, bool by_peer)
{
    stream_drop_output(st);
    nghttp2_session_set_stream_user_data(ss->ng, st->ng_id, NULL);
    if (ss->data_stream == st)
        ss->data_stream = NULL;
    st->flags |= SF_GONE | (by_peer ? SF_BY_PEER : 0u);
    st->close_code = code;
    list_remove(&st->node);
    list_push_back(&ss->gone, &st->node);
    h2_dirty(&ss->base);
}

/* ---- what rules cost when broken ---- */

/* ss->base.fault is set. The GOAWAY leaves with the next flush, and ends the connection. */
static void sess_calm(struct sess *ss, const char *why)
{
    if (ss->base.why != NULL)
        return;
    h2_set_why(&ss->base, "%s: %s", h2_code_name(H2_ENHANCE_YOUR_CALM), why);
    nghttp2_submit_goaway(ss->ng, NGHTTP2_FLAG_NONE,
                          nghttp2_session_get_last_proc_stream_id(ss->ng), H2_ENHANCE_YOUR_CALM,
                          (const uint8_t *)why, strlen(why));
    h2_dirty(&ss->base);
}

/* A stream ended early by the peer's doing. */
static void pay_reset(struct sess *ss)
{
    struct h2 *h = &ss->base;

    if (h->role == H2_CLIENT) { /* a server that resets is the business of outlier detection */
        h2_is_spent(h, budget_take_server_reset(&h->budget, h2_now(h)));
    } else if (h2_is_spent(h, budget_take_reset(&h->budget, &h->limits, h2_now(h)))) {
        h->fault = H2_FAULT_RESETS;
        sess_calm(ss, "too many streams reset");
    } else if (h->n_answers > h->limits.answers_to_end) {
        h->fault = H2_FAULT_ANSWERS;
        sess_calm(ss, "too many answers wait for the peer");
    }
}

/* nghttp2 resets a stream for the peer's fault. */
static void pay_made_reset(struct sess *ss)
{
    h2_tell_made_reset(&ss->base);
    pay_reset(ss);
}

static void submit_rst(struct sess *ss, int32_t id, uint32_t code)
{
    if (nghttp2_submit_rst_stream(ss->ng, NGHTTP2_FLAG_NONE, id, code) == 0)
        ss->own_rsts++;
}

/* ---- outgoing header blocks ---- */

static const nghttp2_nv *to_nva(struct sess *ss, const struct h2_field *fields, size_t n)
{
    if (n > ss->cap_nva) {
        ss->cap_nva = n < 32 ? 32 : n;
        ss->nva = xrealloc(ss->nva, ss->cap_nva, sizeof(*ss->nva));
    }
    for (size_t i = 0; i < n; i++)
        ss->nva[i] = (nghttp2_nv){
            .name = (uint8_t *)(uintptr_t)fields[i].name,
            .value = (uint8_t *)(uintptr_t)fields[i].value,
            .namelen = fields[i].name_len,
            .valuelen = fields[i].value_len,
            .flags = (fields[i].flags & H2_FIELD_NO_INDEX) != 0 ? NGHTTP2_NV_FLAG_NO_INDEX
                                                                : NGHTTP2_NV_FLAG_NONE,
        };
    return ss->nva;
}

static void keep_trailers(struct sstream *st, const struct h2_field *fields, size_t n)
{
    size_t bytes = n * sizeof(nghttp2_nv);
    uint8_t *p;

    for (size_t i = 0; i < n; i++)
        bytes += (size_t)fields[i].name_len + fields[i].value_len;
    st->trailers = xcalloc(1, bytes > 0 ? bytes : 1);
    st->n_trailers = n;
    p = (uint8_t *)(st->trailers + n);
    for (size_t i = 0; i < n; i++) {
        nghttp2_nv *nv = &st->trailers[i];

        nv->name = memcpy(p, fields[i].name, fields[i].name_len);
        nv->namelen = fields[i].name_len;
        p += nv->namelen;
        nv->value = memcpy(p, fields[i].value, fields[i].value_len);
        nv->valuelen = fields[i].value_len;
        p += nv->valuelen;
        nv->flags = (fields[i].flags & H2_FIELD_NO_INDEX) != 0 ? NGHTTP2_NV_FLAG_NO_INDEX
                                                               : NGHTTP2_NV_FLAG_NONE;
    }
}

static void submit_failed(struct sess *ss, struct sstream *st, int rv)
{
    check(rv != NGHTTP2_ERR_NOMEM);
    h2_set_why(&ss->base, "submit: %s", nghttp2_strerror(rv));
    submit_rst(ss, st->ng_id, H2_INTERNAL_ERROR);
    stream_detach(ss, st, H2_INTERNAL_ERROR, false);
}

static ssize_t on_read(nghttp2_session *ng, int32_t id, uint8_t *buf, size_t length,
                       uint32_t *data_flags, nghttp2_data_source *source, void *user)
{
    struct sess *ss = sess_of_user(user);
    struct sstream *st = source->ptr;
    size_t take;

    (void)buf;
    if (ss->lost)
        return NGHTTP2_ERR_PAUSE;
    if (st->out.bytes == 0 && (st->flags & SF_END_QUEUED) == 0) {
        st->flags |= SF_DEFERRED;
        return NGHTTP2_ERR_DEFERRED;
    }
    if (st->out.bytes > 0 && ss->out->bytes >= ss->high_water)
        return NGHTTP2_ERR_PAUSE;
    take = st->out.bytes < length ? st->out.bytes : length;
    *data_flags |= NGHTTP2_DATA_FLAG_NO_COPY;
    if (take == st->out.bytes && (st->flags & SF_END_QUEUED) != 0) {
        *data_flags |= NGHTTP2_DATA_FLAG_EOF;
        if (st->trailers != NULL) {
            *data_flags |= NGHTTP2_DATA_FLAG_NO_END_STREAM;
            if (nghttp2_submit_trailer(ng, id, st->trailers, st->n_trailers) != 0)
                return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
        }
    }
    return (ssize_t)take;
}

static int on_send_data(nghttp2_session *ng, nghttp2_frame *frame, const uint8_t *framehd,
                        size_t length, nghttp2_data_source *source, void *user)
{
    struct sess *ss = sess_of_user(user);
    struct sstream *st = source->ptr;

    (void)ng;
    check(frame->data.padlen == 0); /* we ask for none */
    st->flags &= ~(unsigned)SF_STILL_TWICE;
    if (length == st->out.bytes || length >= PAY_DATA_BYTES)
        budget_pay_data(&ss->base.budget);
    outq_copy(ss->out, framehd, 9);
    sendq_move(&st->out, ss->out, length);
    if (length > 0 && ss->base.events.on_sent != NULL)
        ss->base.events.on_sent(ss->base.user, &st->base, length);
    return 0;
}

static void stream_resume(struct sess *ss, struct sstream *st)
{
    if ((st->flags & SF_DEFERRED) != 0) {
        st->flags &= ~(unsigned)SF_DEFERRED;
        nghttp2_session_resume_data(ss->ng, st->ng_id);
    }
    h2_dirty(&ss->base);
}

/* ---- nghttp2's callbacks: receiving ---- */

static void drop_block(struct sess *ss)
{
    for (size_t i = 0; i < 2 * ss->n_fields; i++)
        nghttp2_rcbuf_decref(ss->bufs[i]);
    ss->n_fields = 0;
    ss->block_bytes = ss->block_fields = 0;
    ss->block_over = false;
}

static int on_begin_headers(nghttp2_session *ng, const nghttp2_frame *frame, void *user)
{
    (void)ng;
    (void)frame;
    drop_block(sess_of_user(user));
    return 0;
}

static int on_header(nghttp2_session *ng, const nghttp2_frame *frame, nghttp2_rcbuf *name,
                     nghttp2_rcbuf *value, uint8_t flags, void *user)
{
    struct sess *ss = sess_of_user(user);
    const nghttp2_vec n = nghttp2_rcbuf_get_buf(name);
    const nghttp2_vec v = nghttp2_rcbuf_get_buf(value);
    const size_t i = ss->n_fields;

    (void)ng;
    (void)frame;
    ss->block_bytes += n.len + v.len + 32;
    ss->block_fields++;
    if (ss->base.role == H2_SERVER && /* a server's large block costs that call alone */
        (ss->block_fields > BOMB_FIELDS ||
         ss->block_bytes > BOMB_FACTOR * (size_t)ss->base.limits.max_header_bytes)) {
        ss->base.fault = H2_FAULT_HEADERS;
        sess_calm(ss, "header list far over the limit");
        return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE; /* the rest is not decoded for us */
    }
    if (ss->block_bytes > ss->base.limits.max_header_bytes ||
        i >= ss->base.limits.max_header_fields) {
        ss->block_over = true; /* read on, or the HPACK state is lost; but keep nothing more */
        return 0;
    }
    if (i == ss->cap_fields) {
        ss->cap_fields = i == 0 ? 16 : 2 * i;
        ss->fields = xrealloc(ss->fields, ss->cap_fields, sizeof(*ss->fields));
        ss->bufs = xrealloc(ss->bufs, 2 * ss->cap_fields, sizeof(*ss->bufs));
    }
    nghttp2_rcbuf_incref(name);
    nghttp2_rcbuf_incref(value);
    ss->bufs[2 * i] = name;
    ss->bufs[2 * i + 1] = value;
    ss->fields[i] = (struct h2_field){
        .name = (const char *)n.base,
        .value = (const char *)v.base,
        .name_len = (uint32_t)n.len,
        .value_len = (uint32_t)v.len,
        .flags = (flags & NGHTTP2_NV_FLAG_NO_INDEX) != 0 ? H2_FIELD_NO_INDEX : 0,
    };
    ss->n_fields++;
    return 0;
}

static enum h2_block response_kind(struct sess *ss, struct sstream *st)
{
    if ((st->flags & SF_RESPONDED) != 0)
        return H2_TRAILERS;
    /* nghttp2 let only valid blocks through: :status is there, with three digits */
    if (ss->n_fields > 0 && ss->fields[0].value_len == 3 && ss->fields[0].value[0] == '1')
        return H2_INFORMATIONAL;
    st->flags |= SF_RESPONDED;
    return H2_RESPONSE;
}

static void on_block(struct sess *ss, const nghttp2_frame *frame)
{
    const int32_t id = frame->hd.stream_id;
    const bool end = (frame->hd.flags & NGHTTP2_FLAG_END_STREAM) != 0;
    const bool is_request = frame->headers.cat == NGHTTP2_HCAT_REQUEST;
    struct sstream *st = find_stream(ss, id);
    enum h2_block kind = H2_REQUEST;

    if (ss->base.fault != H2_FAULT_NONE) { /* nghttp2 parses on behind the GOAWAY */
        drop_block(ss);
        return;
    }
    if (is_request && (uint32_t)id / 2 >= ss->base.limits.max_ids_used)
        ss->base.strained = true;
    if (st == NULL && is_request && !ss->block_over) {
        st = stream_new(ss, NULL);
        st->ng_id = id;
        st->base.id = (uint32_t)id;
        nghttp2_session_set_stream_user_data(ss->ng, id, st);
    } else if (ss->block_over) {
        /* gRPC reads it as RESOURCE_EXHAUSTED */
        nghttp2_submit_rst_stream(ss->ng, NGHTTP2_FLAG_NONE, id, H2_ENHANCE_YOUR_CALM);
        if (st != NULL)
            stream_detach(ss, st, H2_ENHANCE_YOUR_CALM, false);
        st = NULL;
    } else if (st != NULL) {
        kind = ss->base.role == H2_SERVER ? H2_TRAILERS : response_kind(ss, st);
    }
    if (st != NULL) {
        if (end)
            st->flags |= SF_END_RECV;
        if (ss->base.events.on_headers != NULL)
            ss->base.events.on_headers(ss->base.user, &st->base, kind, ss->fields, ss->n_fields,
                                       end);
    }
    drop_block(ss);
}

static void deliver_data(struct sess *ss, bool end)
{
    struct sstream *st = ss->data_stream;
    const size_t len = ss->data_len;

    ss->data_stream = NULL;
    ss->data_len = 0;
    if (st == NULL || (len == 0 && !end))
        return;
    if (ss->base.events.on_data != NULL)
        ss->base.events.on_data(ss->base.user, &st->base, ss->slab, ss->data, len, end);
    else
        h2_consume(&st->base, len);
}

/* A chunk lies in the slab that recv was given. It is held until nghttp2 says whether the frame
 * ended with it: at most until recv returns. */
static int on_chunk(nghttp2_session *ng, uint8_t flags, int32_t id, const uint8_t *data, size_t len,
                    void *user)
{
    struct sess *ss = sess_of_user(user);

    (void)flags;
    deliver_data(ss, false);
    nghttp2_session_consume_connection(ng, len);
    ss->data_stream = find_stream(ss, id);
    ss->data = data;
    ss->data_len = len;
    return 0;
}

static void on_data_end(struct sess *ss, const nghttp2_frame *frame)
{
    struct sstream *st = find_stream(ss, frame->hd.stream_id);
    const bool end = (frame->hd.flags & NGHTTP2_FLAG_END_STREAM) != 0;

    if (st == NULL)
        return;
    if (end)
        st->flags |= SF_END_RECV;
    if (ss->data_stream == NULL) {
        ss->data_stream = st;
        ss->data = ss->slab->data;
        ss->data_len = 0;
    }
    deliver_data(ss, end);
}

static void on_goaway(struct sess *ss, const nghttp2_goaway *g)
{
    ss->base.saw_goaway = true;
    list_each (&ss->streams, it) {
        struct sstream *st = list_entry(it, struct sstream, node);

        /* nghttp2 closes the sent ones above the last id; those that have not left come here */
        if (ss->base.role == H2_CLIENT && st->base.id == 0) {
            submit_rst(ss, st->ng_id, H2_REFUSED_STREAM);
            stream_detach(ss, st, H2_REFUSED_STREAM, true);
        }
    }
    if (ss->base.events.on_goaway != NULL)
        ss->base.events.on_goaway(ss->base.user, (uint32_t)g->last_stream_id, g->error_code,
                                  g->opaque_data, g->opaque_data_len);
}

static uint64_t read_u64(const uint8_t *p)
{
    uint64_t v = 0;

    for (int i = 0; i < 8; i++)
        v = v << 8 | p[i];
    return v;
}

static int on_frame_recv(nghttp2_session *ng, const nghttp2_frame *frame, void *user)
{
    struct sess *ss = sess_of_user(user);
    struct sstream *st;

    (void)ng;
    switch (frame->hd.type) {
    case NGHTTP2_HEADERS:
        on_block(ss, frame);
        break;
    case NGHTTP2_DATA:
        on_data_end(ss, frame);
        break;
    case NGHTTP2_RST_STREAM:
        st = find_stream(ss, frame->hd.stream_id);
        if (st != NULL) {
            st->flags |= SF_BY_PEER;
            ss->meter.rsts -= ss->meter.rsts > 0; /* charged when it closes, unless it was served */
        }
        break;
    case NGHTTP2_SETTINGS:
        if ((frame->hd.flags & NGHTTP2_FLAG_ACK) != 0) { /* nghttp2 refused one too many */
            ss->settings_since_us = --ss->n_settings_out > 0 ? h2_now(&ss->base) : 0;
        } else {
            ss->settings = true;
            if (ss->base.events.on_settings != NULL)
                ss->base.events.on_settings(ss->base.user);
        }
        break;
    case NGHTTP2_PING:
        if ((frame->hd.flags & NGHTTP2_FLAG_ACK) != 0 && ss->base.events.on_ping_ack != NULL)
            ss->base.events.on_ping_ack(ss->base.user, read_u64(frame->ping.opaque_data));
        break;
    case NGHTTP2_GOAWAY:
        on_goaway(ss, &frame->goaway);
        break;
    default:
        break;
    }
    return 0;
}

/* nghttp2 has queued an RST_STREAM for the peer's fault (or a GOAWAY, then it is all the same). It
 * is paid for here and not when it leaves: a read holds thousands. */
static int on_invalid_frame(nghttp2_session *ng, const nghttp2_frame *frame, int lib_error,
                            void *user)
{
    struct sess *ss = sess_of_user(user);

    (void)ng;
    (void)frame;
    (void)lib_error;
    ss->own_rsts++;
    pay_made_reset(ss);
    return 0;
}

/* A call that was served is no attack. */
static bool was_served(const struct sess *ss, const struct sstream *st)
{
    return (st->flags & (ss->base.role == H2_SERVER ? SF_END_SENT : SF_END_RECV)) != 0;
}

static int on_stream_close(nghttp2_session *ng, int32_t id, uint32_t code, void *user)
{
    struct sess *ss = sess_of_user(user);
    struct sstream *st = find_stream(ss, id);

    (void)ng;
    if (st == NULL)
        return 0;
    if (code == H2_NO_ERROR)
        budget_pay_stream(&ss->base.budget);
    else if ((st->flags & SF_BY_PEER) != 0 && !was_served(ss, st))
        pay_reset(ss);
    if (ss->base.role == H2_CLIENT && st->base.id == 0)
        code = H2_REFUSED_STREAM; /* its HEADERS never left, whatever the reason */
    stream_end(ss, st, code,
               (st->flags & SF_BY_PEER) != 0 || (ss->base.saw_goaway && code == H2_REFUSED_STREAM));
    return 0;
}

/* ---- nghttp2's callbacks: sending ---- */

static int on_frame_send(nghttp2_session *ng, const nghttp2_frame *frame, void *user)
{
    struct sess *ss = sess_of_user(user);
    struct sstream *st;

    (void)ng;
    switch (frame->hd.type) {
    case NGHTTP2_GOAWAY:
        if (frame->goaway.error_code != H2_NO_ERROR) {
            ss->failed = true;
            if (ss->base.fault == H2_FAULT_NONE)
                ss->base.fault = H2_FAULT_PROTOCOL;
            if (ss->base.why == NULL)
                h2_set_why(&ss->base, "%s%s%.*s", h2_code_name(frame->goaway.error_code),
                           frame->goaway.opaque_data_len > 0 ? ": " : "",
                           (int)frame->goaway.opaque_data_len,
                           (const char *)frame->goaway.opaque_data);
        }
        return 0;
    case NGHTTP2_SETTINGS:
        if ((frame->hd.flags & NGHTTP2_FLAG_ACK) == 0 && ss->n_settings_out++ == 0)
            ss->settings_since_us = h2_now(&ss->base);
        return 0;
    case NGHTTP2_RST_STREAM:
        ss->base.n_answers++;
        if (ss->own_rsts > 0)
            ss->own_rsts--;
        else
            pay_made_reset(ss);
        return 0;
    case NGHTTP2_HEADERS:
    case NGHTTP2_DATA:
        break;
    default:
        return 0;
    }
    st = find_stream(ss, frame->hd.stream_id);
    if (st == NULL)
        return 0;
    st->base.id = (uint32_t)frame->hd.stream_id;
    if ((frame->hd.flags & NGHTTP2_FLAG_END_STREAM) != 0) {
        st->flags |= SF_END_SENT;
        if ((st->flags & SF_STOP_AFTER) != 0 && (st->flags & SF_END_RECV) == 0)
            submit_rst(ss, frame->hd.stream_id, H2_NO_ERROR);
    }
    return 0;
}

static int on_frame_not_send(nghttp2_session *ng, const nghttp2_frame *frame, int lib_error,
                             void *user)
{
    struct sess *ss = sess_of_user(user);
    struct sstream *st;

    (void)ng;
    if (frame->hd.type == NGHTTP2_RST_STREAM && ss->own_rsts > 0)
        ss->own_rsts--;
    if (frame->hd.type != NGHTTP2_HEADERS || frame->headers.cat == NGHTTP2_HCAT_REQUEST ||
        lib_error == NGHTTP2_ERR_STREAM_CLOSED || lib_error == NGHTTP2_ERR_STREAM_CLOSING)
        return 0; /* requests end by on_stream_close */
    st = find_stream(ss, frame->hd.stream_id);
    if (st != NULL) {
        submit_rst(ss, frame->hd.stream_id, H2_INTERNAL_ERROR);
        stream_detach(ss, st, H2_INTERNAL_ERROR, false);
    }
    return 0;
}

/* ---- the engine ---- */

static struct h2 *sess_create(enum h2_role role, const struct h2_limits *limits)
{
    struct sess *ss = xcalloc(1, sizeof(*ss));
    nghttp2_session_callbacks *cbs;
    nghttp2_option *opt;
    int rv;

    (void)limits;
    ss->magic = SESS_MAGIC;
    meter_init(&ss->meter, role);
    list_init(&ss->streams);
    list_init(&ss->gone);
    check(nghttp2_session_callbacks_new(&cbs) == 0);
    nghttp2_session_callbacks_set_on_begin_headers_callback(cbs, on_begin_headers);
    nghttp2_session_callbacks_set_on_header_callback2(cbs, on_header);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(cbs, on_chunk);
    nghttp2_session_callbacks_set_on_frame_recv_callback(cbs, on_frame_recv);
    nghttp2_session_callbacks_set_on_invalid_frame_recv_callback(cbs, on_invalid_frame);
    nghttp2_session_callbacks_set_on_stream_close_callback(cbs, on_stream_close);
    nghttp2_session_callbacks_set_on_frame_send_callback(cbs, on_frame_send);
    nghttp2_session_callbacks_set_on_frame_not_send_callback(cbs, on_frame_not_send);
    nghttp2_session_callbacks_set_send_data_callback(cbs, on_send_data);
    check(nghttp2_option_new(&opt) == 0);
    nghttp2_option_set_no_auto_window_update(opt, 1);
    nghttp2_option_set_no_closed_streams(opt, 1);
    nghttp2_option_set_peer_max_concurrent_streams(opt, UINT32_MAX); /* can_open counts */
    nghttp2_option_set_stream_reset_rate_limit(opt, NO_LIMIT, NO_LIMIT);
    nghttp2_option_set_max_continuations(opt, NO_LIMIT);
    nghttp2_option_set_max_send_header_block_length(opt, MAX_SEND_BLOCK);
    rv = role == H2_SERVER ? nghttp2_session_server_new2(&ss->ng, cbs, ss, opt)
                           : nghttp2_session_client_new2(&ss->ng, cbs, ss, opt);
    check(rv == 0);
    nghttp2_option_del(opt);
    nghttp2_session_callbacks_del(cbs);
    return &ss->base;
}

static void sess_start(struct h2 *h)
{
    struct sess *ss = sess_of(h);
    const struct h2_limits *l = &h->limits;
    nghttp2_settings_entry iv[4];
    size_t n = 0;

    if (h->role == H2_SERVER)
        iv[n++] = (nghttp2_settings_entry){NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS,
                                           l->max_concurrent_streams};
    else
        iv[n++] = (nghttp2_settings_entry){NGHTTP2_SETTINGS_ENABLE_PUSH, 0};
    iv[n++] = (nghttp2_settings_entry){NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, l->stream_window};
    iv[n++] = (nghttp2_settings_entry){NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE, l->max_header_bytes};
    if (l->max_frame_bytes != 16384)
        iv[n++] = (nghttp2_settings_entry){NGHTTP2_SETTINGS_MAX_FRAME_SIZE, l->max_frame_bytes};
    check(nghttp2_submit_settings(ss->ng, NGHTTP2_FLAG_NONE, iv, n) == 0);
    check(nghttp2_session_set_local_window_size(ss->ng, NGHTTP2_FLAG_NONE, 0,
                                                (int32_t)l->conn_window) == 0);
    h2_dirty(h);
}

static void sess_destroy(struct h2 *h)
{
    struct sess *ss = sess_of(h);

    drop_block(ss);
    nghttp2_session_del(ss->ng);
    copy_slab_drop(&ss->copy);
    free(ss->fields);
    free(ss->bufs);
    free(ss->nva);
    free(ss);
}

static void deliver_gone(struct sess *ss)
{
    struct list *node;

    while ((node = ss->gone.next) != &ss->gone) {
        struct sstream *st = list_entry(node, struct sstream, node);

        stream_end(ss, st, st->close_code, (st->flags & SF_BY_PEER) != 0);
    }
}

static void sess_lost(struct h2 *h, uint32_t code, bool by_peer)
{
    struct sess *ss = sess_of(h);

    ss->lost = true;
    deliver_gone(ss);
    while (!list_is_empty(&ss->streams)) {
        struct sstream *st = list_entry(ss->streams.next, struct sstream, node);

        if (by_peer && h->role == H2_CLIENT && st->base.id == 0)
            stream_end(ss, st, H2_REFUSED_STREAM, true); /* it never left */
        else
            stream_end(ss, st, code, by_peer);
    }
}

static int sess_recv(struct h2 *h, struct slab *slab, const uint8_t *p, size_t len, struct err *err)
{
    struct sess *ss = sess_of(h);
    const char *why;
    ssize_t n;

    if (ss->lost || ss->failed)
        return err_set(err, -EPROTO, "%s", h2_why_done(h));
    h2_dirty(h); /* nghttp2 tells of streams that it resets in our flush: that shall come first */
    why = meter_feed(&ss->meter, h, p, len);
    if (why != NULL) {
        sess_calm(ss, why);
        return err_set(err, -EPROTO, "%s", h2_why_done(h));
    }
    ss->slab = slab;
    n = nghttp2_session_mem_recv(ss->ng, p, len);
    deliver_data(ss, false);
    ss->slab = NULL;
    if (ss->lost)
        return 0;
    if (n < 0) {
        ss->failed = true;
        h->fault = H2_FAULT_PROTOCOL;
        h2_set_why(h, "%s", nghttp2_strerror((int)n));
        return err_set(err, -EPROTO, "%s", h2_why_done(h));
    }
    check((size_t)n == len);                     /* no callback of ours pauses */
    for (; ss->meter.rsts > 0; ss->meter.rsts--) /* on streams that are over */
        if (h->role == H2_SERVER)                /* of a server: it crossed our cancel */
            pay_reset(ss);
    if (nghttp2_session_want_write(ss->ng) != 0)
        h2_dirty(h);
    return 0;
}

static void sess_flush(struct h2 *h, struct outq *out, size_t high_water)
{
    struct sess *ss = sess_of(h);
    const size_t control_max = high_water * CONTROL_FACTOR;
    const uint8_t *p;
    ssize_t n = 0;

    deliver_gone(ss);
    if (ss->lost)
        return;
    ss->out = out;
    ss->high_water = high_water;
    while (!ss->lost && out->bytes < control_max && (n = nghttp2_session_mem_send(ss->ng, &p)) > 0)
        outq_copy(out, p, (size_t)n);
    ss->out = NULL;
    h->n_answers_out = h->n_answers;
    if (n < 0) {
        ss->failed = true;
        h->fault = H2_FAULT_PROTOCOL;
        h2_set_why(h, "%s", nghttp2_strerror((int)n));
    }
    copy_slab_drop_if_idle(&ss->copy); /* an idle connection holds no buffer */
}

static bool sess_wants_flush(const struct h2 *h)
{
    const struct sess *ss = sess_of(h);

    return !list_is_empty(&ss->gone) || (!ss->lost && nghttp2_session_want_write(ss->ng) != 0);
}

static bool sess_is_done(const struct h2 *h)
{
    const struct sess *ss = sess_of(h);

    return ss->lost || ss->failed ||
           (nghttp2_session_want_read(ss->ng) == 0 && !sess_wants_flush(h));
}

static struct h2_stream *sess_open(struct h2 *h, const struct h2_field *fields, size_t n, bool end,
                                   void *user)
{
    struct sess *ss = sess_of(h);
    struct sstream *st = stream_new(ss, user);
    const nghttp2_data_provider prd = {.source = {.ptr = st}, .read_callback = on_read};

    st->flags = end ? SF_END_QUEUED : 0;
    st->ng_id =
        nghttp2_submit_request(ss->ng, NULL, to_nva(ss, fields, n), n, end ? NULL : &prd, st);
    if (st->ng_id < 0) { /* out of ids: can_open keeps us far from it; or out of memory */
        list_remove(&st->node);
        h->n_streams--;
        free(st);
        return NULL;
    }
    h2_dirty(h);
    return &st->base;
}

static uint64_t sess_settings_wait_us(const struct h2 *h)
{
    return sess_of(h)->settings_since_us;
}

static uint32_t sess_peer_max_streams(const struct h2 *h)
{
    const struct sess *ss = sess_of(h);

    if (!ss->settings)
        return 100;
    return nghttp2_session_get_remote_settings(ss->ng, NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS);
}

static bool sess_can_open(const struct h2 *h)
{
    const struct sess *ss = sess_of(h);

    return !ss->lost && !ss->failed && !h->saw_goaway && h->n_streams < sess_peer_max_streams(h) &&
           nghttp2_session_check_request_allowed(ss->ng) != 0 &&
           nghttp2_session_get_next_stream_id(ss->ng) < LAST_STREAM_ID;
}

static bool sess_settings_seen(const struct h2 *h)
{
    return sess_of(h)->settings;
}

static void sess_send_headers(struct h2_stream *s, enum h2_block kind,
                              const struct h2_field *fields, size_t n, bool end)
{
    struct sess *ss = sess_of(s->h2);
    struct sstream *st = stream_of(s);
    const nghttp2_data_provider prd = {.source = {.ptr = st}, .read_callback = on_read};
    int rv = 0;

    if ((st->flags & (SF_GONE | SF_END_QUEUED)) != 0 || ss->lost)
        return;
    if (end)
        st->flags |= SF_END_QUEUED;
    if (kind == H2_INFORMATIONAL) {
        rv = nghttp2_submit_headers(ss->ng, NGHTTP2_FLAG_NONE, st->ng_id, NULL,
                                    to_nva(ss, fields, n), n, NULL);
    } else if (kind == H2_RESPONSE) {
        rv =
            nghttp2_submit_response(ss->ng, st->ng_id, to_nva(ss, fields, n), n, end ? NULL : &prd);
    } else {
        check(kind == H2_TRAILERS && end);
        if (st->out.bytes == 0 && st->base.id != 0) {
            rv = nghttp2_submit_trailer(ss->ng, st->ng_id, to_nva(ss, fields, n), n);
        } else {
            keep_trailers(st, fields, n);
            stream_resume(ss, st);
        }
    }
    if (rv != 0)
        submit_failed(ss, st, rv);
    h2_dirty(s->h2);
}

static void sess_send_data(struct h2_stream *s, struct slab *slab, const uint8_t *p, size_t len,
                           bool end)
{
    struct sess *ss = sess_of(s->h2);
    struct sstream *st = stream_of(s);

    if ((st->flags & (SF_GONE | SF_END_QUEUED)) != 0 || ss->lost)
        return;
    sendq_push(&st->out, s->h2->pool, &ss->copy, slab, p, len);
    if (end)
        st->flags |= SF_END_QUEUED;
    stream_resume(ss, st);
}

static size_t sess_queued(const struct h2_stream *s)
{
    return ((const struct sstream *)s)->out.bytes;
}

static void sess_consume(struct h2_stream *s, size_t bytes)
{
    struct sess *ss = sess_of(s->h2);
    struct sstream *st = stream_of(s);

    if (bytes == 0 || ss->lost || (st->flags & (SF_GONE | SF_END_RECV)) != 0)
        return;
    nghttp2_session_consume_stream(ss->ng, st->ng_id, bytes);
    if (nghttp2_session_want_write(ss->ng) != 0)
        h2_dirty(s->h2);
}

static void sess_reset(struct h2_stream *s, uint32_t code)
{
    struct sess *ss = sess_of(s->h2);
    struct sstream *st = stream_of(s);

    if ((st->flags & SF_GONE) != 0 || ss->lost)
        return;
    if ((st->flags & SF_END_SENT) != 0 && (st->flags & SF_END_RECV) != 0)
        return; /* over on both sides: we are in the event before its on_close */
    if (code == H2_NO_ERROR && (st->flags & SF_END_QUEUED) != 0) {
        if ((st->flags & SF_END_SENT) != 0) {
            submit_rst(ss, st->ng_id, code);
            stream_detach(ss, st, code, false);
        } else {
            st->flags |= SF_STOP_AFTER;
        }
        return;
    }
    submit_rst(ss, st->ng_id, code);
    stream_detach(ss, st, code, false);
}

static void sess_goaway_notice(struct h2 *h)
{
    struct sess *ss = sess_of(h);

    if (ss->lost || h->role == H2_CLIENT)
        return; /* a client needs none: it just opens no more streams */
    nghttp2_submit_shutdown_notice(ss->ng);
    h2_dirty(h);
}

static uint32_t sess_last_stream_id(const struct h2 *h)
{
    return (uint32_t)nghttp2_session_get_last_proc_stream_id(sess_of(h)->ng);
}

static void sess_goaway(struct h2 *h, uint32_t last_stream_id, uint32_t code, const char *debug)
{
    struct sess *ss = sess_of(h);
    const size_t len = debug != NULL ? strlen(debug) : 0;

    if (ss->lost)
        return;
    nghttp2_submit_goaway(ss->ng, NGHTTP2_FLAG_NONE, (int32_t)last_stream_id, code,
                          (const uint8_t *)debug, len);
    h2_dirty(h);
}

static void sess_ping(struct h2 *h, uint64_t opaque)
{
    struct sess *ss = sess_of(h);
    uint8_t bytes[8];

    if (ss->lost)
        return;
    for (int i = 0; i < 8; i++)
        bytes[i] = (uint8_t)(opaque >> (56 - 8 * i));
    nghttp2_submit_ping(ss->ng, NGHTTP2_FLAG_NONE, bytes);
    h2_dirty(h);
}

static unsigned sess_sweep(struct h2 *h)
{
    struct sess *ss = sess_of(h);
    struct list *next;
    unsigned ended = 0;

    for (struct list *it = ss->streams.next; it != &ss->streams; it = next) {
        struct sstream *st = list_entry(it, struct sstream, node);

        next = it->next; /* stream_detach takes st off this list */
        if (st->out.bytes == 0) {
            st->flags &= ~(unsigned)SF_STILL_TWICE;
        } else if ((st->flags & SF_STILL_TWICE) == SF_STILL_TWICE) {
            submit_rst(ss, st->ng_id, H2_ENHANCE_YOUR_CALM);
            stream_detach(ss, st, H2_ENHANCE_YOUR_CALM, false);
            ended++;
        } else {
            st->flags |= (st->flags & SF_STILL) != 0 ? SF_STILL_TWICE : SF_STILL;
        }
    }
    return ended;
}

const struct h2_engine h2_engine_session = {
    .name = "session",
    .create = sess_create,
    .start = sess_start,
    .destroy = sess_destroy,
    .recv = sess_recv,
    .lost = sess_lost,
    .flush = sess_flush,
    .wants_flush = sess_wants_flush,
    .is_done = sess_is_done,
    .open = sess_open,
    .can_open = sess_can_open,
    .peer_max_streams = sess_peer_max_streams,
    .settings_seen = sess_settings_seen,
    .settings_wait_us = sess_settings_wait_us,
    .send_headers = sess_send_headers,
    .send_data = sess_send_data,
    .queued = sess_queued,
    .consume = sess_consume,
    .reset = sess_reset,
    .goaway_notice = sess_goaway_notice,
    .last_stream_id = sess_last_stream_id,
    .goaway = sess_goaway,
    .ping = sess_ping,
    .sweep = sess_sweep,
};
