#include "net/h2.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/xalloc.h"
#include "net/h2_engine.h"
#include "net/h2_stream.h"

static const struct h2_engine *const engines[] = {&h2_engine_native, &h2_engine_session};

static const char *const code_names[] = {
    [H2_NO_ERROR] = "NO_ERROR",
    [H2_PROTOCOL_ERROR] = "PROTOCOL_ERROR",
    [H2_INTERNAL_ERROR] = "INTERNAL_ERROR",
    [H2_FLOW_CONTROL_ERROR] = "FLOW_CONTROL_ERROR",
    [H2_SETTINGS_TIMEOUT] = "SETTINGS_TIMEOUT",
    [H2_STREAM_CLOSED] = "STREAM_CLOSED",
    [H2_FRAME_SIZE_ERROR] = "FRAME_SIZE_ERROR",
    [H2_REFUSED_STREAM] = "REFUSED_STREAM",
    [H2_CANCEL] = "CANCEL",
    [H2_COMPRESSION_ERROR] = "COMPRESSION_ERROR",
    [H2_CONNECT_ERROR] = "CONNECT_ERROR",
    [H2_ENHANCE_YOUR_CALM] = "ENHANCE_YOUR_CALM",
    [H2_INADEQUATE_SECURITY] = "INADEQUATE_SECURITY",
    [H2_HTTP_1_1_REQUIRED] = "HTTP_1_1_REQUIRED",
};

const char *h2_code_name(uint32_t code)
{
    return code < ARRAY_LEN(code_names) ? code_names[code] : "?";
}

void h2_limits_default(struct h2_limits *l)
{
    *l = (struct h2_limits){
        .max_concurrent_streams = 1000,
        .stream_window = 1024 * 1024,            /* 64 KiB costs 18..44 % CPU at 100 KiB bodies */
        .stream_window_most = 16u * 1024 * 1024, /* 1 Gbit/s over 100 ms */
        .conn_window = 1u << 30,  /* credit returns on receipt: it bounds nothing but a flush */
        .max_frame_bytes = 16384, /* larger ones gain nothing and pin larger slabs */
        .max_header_bytes = 16 * 1024,
        .max_header_fields = 128,
        .max_header_frames = 64,
        .max_ids_used = 3u << 28, /* 75 % of 2^30 */
        .score = 1000,
        .score_per_s = 100,
        .resets = 1000,
        .resets_per_s = 250, /* for ever: a client that hedges and cancels 200 calls/s lives on */
        .ping_strikes = 10,
        .ping_interval_ms = 5000,
        .answers_to_stop = 100,
        .answers_to_end = 1000,
    };
}

uint32_t h2_limits_window(const struct h2_limits *l)
{
    return l->stream_window > l->stream_window_most ? l->stream_window : l->stream_window_most;
}

/* name: of an engine, as --engine takes it. */
const struct h2_engine *h2_engine_find(const char *name)
{
    for (size_t i = 0; i < ARRAY_LEN(engines); i++)
        if (strcmp(engines[i]->name, name) == 0)
            return engines[i];
    return NULL;
}

/* engine: NULL: the native engine. events: copied; a NULL event is not told. */
struct h2 *h2_new(const struct h2_engine *engine, enum h2_role role, const struct h2_limits *limits,
                  const struct h2_events *events, void *user, struct slab_pool *pool)
{
    struct h2 *h;

    if (engine == NULL)
        engine = &h2_engine_native;
    h = engine->create(role, limits);
    h->engine = engine;
    h->role = role;
    h->limits = *limits;
    h->events = *events;
    h->user = user;
    h->pool = pool;
    engine->start(h);
    return h;
}

size_t h2_trim(struct slab_pool *pool)
{
    return nstream_shared_trim(pool) + slab_pool_trim(pool);
}

struct h2 *h2_free(struct h2 *h)
{
    if (h == NULL)
        return NULL;
    h->events.on_dirty = NULL;
    h->engine->lost(h, H2_CANCEL, false);
    check(h->n_streams == 0);
    free(h->why);
    h->engine->destroy(h);
    return NULL;
}

void h2_set_clock(struct h2 *h, const uint64_t *now_us)
{
    h->now_us = now_us;
}

int h2_recv(struct h2 *h, struct slab *slab, const uint8_t *p, size_t len, struct err *err)
{
    return h->engine->recv(h, slab, p, len, err);
}

void h2_lost(struct h2 *h)
{
    h->engine->lost(h, H2_CONNECT_ERROR, true);
}

void h2_flush(struct h2 *h, struct outq *out, size_t high_water)
{
    if (out->bytes == 0) { /* all that was put into it has left */
        h->n_answers -= h->n_answers_out;
        h->n_answers_out = 0;
    }
    h->engine->flush(h, out, high_water);
}

bool h2_wants_flush(const struct h2 *h)
{
    return h->engine->wants_flush(h);
}

bool h2_is_done(const struct h2 *h)
{
    return h->engine->is_done(h);
}

void h2_set_why(struct h2 *h, const char *fmt, ...)
{
    char text[256];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    free(h->why);
    h->why = xstrdup(text);
}

void h2_note_why(struct h2 *h, const char *why)
{
    if (h->why == NULL)
        h2_set_why(h, "%s", why);
}

const char *h2_why_done(const struct h2 *h)
{
    return h->why != NULL ? h->why : "";
}

enum h2_fault h2_fault(const struct h2 *h)
{
    return h->fault;
}

bool h2_is_strained(const struct h2 *h)
{
    return h->strained;
}

uint64_t h2_unfinished_us(const struct h2 *h)
{
    return h->unfinished_us;
}

uint32_t h2_answers_waiting(const struct h2 *h)
{
    return h->n_answers;
}

unsigned h2_sweep_stalled(struct h2 *h)
{
    return h->engine->sweep(h);
}

struct h2_stream *h2_open(struct h2 *h, const struct h2_field *fields, size_t n, bool end,
                          void *user)
{
    check(h->role == H2_CLIENT);
    return h->engine->can_open(h) ? h->engine->open(h, fields, n, end, user) : NULL;
}

/* Set and extra behind each other, as literals where they are extra; the caller frees it. */
static struct h2_field *join(const struct h2_set *set, const struct h2_field *extra, size_t n_extra)
{
    struct h2_field *all = xrealloc(NULL, set->n + n_extra + 1, sizeof(*all));

    memcpy(all, set->fields, set->n * sizeof(*all));
    for (size_t i = 0; i < n_extra; i++) {
        all[set->n + i] = extra[i];
        all[set->n + i].flags |= H2_FIELD_NO_INDEX;
    }
    return all;
}

struct h2_stream *h2_open_set(struct h2 *h, struct h2_set *set, const struct h2_field *extra,
                              size_t n_extra, bool end, void *user)
{
    struct h2_field *all;
    struct h2_stream *s;

    check(h->role == H2_CLIENT);
    if (!h->engine->can_open(h))
        return NULL;
    if (h->engine->open_set != NULL)
        return h->engine->open_set(h, set, extra, n_extra, end, user);
    all = join(set, extra, n_extra);
    s = h->engine->open(h, all, set->n + n_extra, end, user);
    free(all);
    return s;
}

bool h2_can_open(const struct h2 *h)
{
    return h->engine->can_open(h);
}

uint32_t h2_peer_max_streams(const struct h2 *h)
{
    return h->engine->peer_max_streams(h);
}

bool h2_settings_seen(const struct h2 *h)
{
    return h->engine->settings_seen(h);
}

uint32_t h2_n_streams(const struct h2 *h)
{
    return h->n_streams;
}

void h2_send_headers(struct h2_stream *s, enum h2_block kind, const struct h2_field *fields,
                     size_t n, bool end)
{
    s->h2->engine->send_headers(s, kind, fields, n, end);
}

void h2_send_set(struct h2_stream *s, enum h2_block kind, struct h2_set *set,
                 const struct h2_field *extra, size_t n_extra, bool end)
{
    struct h2_field *all;

    if (s->h2->engine->send_set != NULL) {
        s->h2->engine->send_set(s, kind, set, extra, n_extra, end);
        return;
    }
    all = join(set, extra, n_extra);
    s->h2->engine->send_headers(s, kind, all, set->n + n_extra, end);
    free(all);
}

struct h2_set *h2_block_set(const struct h2_stream *s)
{
    return s->set;
}

void h2_send_data(struct h2_stream *s, struct slab *slab, const uint8_t *p, size_t len, bool end)
{
    s->h2->engine->send_data(s, slab, p, len, end);
}

size_t h2_stream_queued(const struct h2_stream *s)
{
    return s->h2->engine->queued(s);
}

void h2_consume(struct h2_stream *s, size_t bytes)
{
    s->h2->engine->consume(s, bytes);
}

void h2_set_stream_window(struct h2 *h, uint32_t bytes)
{
    if (h->engine->stream_window != NULL)
        h->engine->stream_window(h, bytes);
}

uint64_t h2_settings_wait_us(const struct h2 *h)
{
    return h->engine->settings_wait_us != NULL ? h->engine->settings_wait_us(h) : 0;
}

void h2_reset(struct h2_stream *s, uint32_t code)
{
    s->h2->engine->reset(s, code);
}

uint32_t h2_stream_id(const struct h2_stream *s)
{
    return s->id;
}

void *h2_stream_user(const struct h2_stream *s)
{
    return s->user;
}

void h2_stream_set_user(struct h2_stream *s, void *user)
{
    s->user = user;
}

struct h2 *h2_stream_h2(const struct h2_stream *s)
{
    return s->h2;
}

void h2_goaway_notice(struct h2 *h)
{
    h->engine->goaway_notice(h);
}

void h2_goaway(struct h2 *h, uint32_t code, const char *debug)
{
    h->engine->goaway(h, h->engine->last_stream_id(h), code, debug);
}

void h2_goaway_last(struct h2 *h, uint32_t last_stream_id, uint32_t code, const char *debug)
{
    h->engine->goaway(h, last_stream_id, code, debug);
}

bool h2_saw_goaway(const struct h2 *h)
{
    return h->saw_goaway;
}

void h2_ping(struct h2 *h, uint64_t opaque)
{
    h->engine->ping(h, opaque);
}
