/* net/h2_engine.h - what stands behind net/h2.h: the ops table of an engine and the two bases.
 *
 * Owns:      nothing.
 * Called by: net/h2.c (dispatch), net/h2_*.c (the engines). Nobody else includes this.
 *
 * An engine embeds struct h2 and struct h2_stream as first members of its own structs.
 */
#ifndef NET_H2_ENGINE_H
#define NET_H2_ENGINE_H

#include "net/h2_budget.h"

struct h2 {
    const struct h2_engine *engine;
    enum h2_role role;
    struct h2_limits limits;
    struct h2_events events;
    void *user;
    struct slab_pool *pool;
    const uint64_t *now_us; /* h2_set_clock; NULL: none */
    uint32_t n_streams;     /* between open and on_close */
    bool saw_goaway;
    bool strained;          /* h2_is_strained */
    enum h2_fault fault;    /* of the peer, if one ended it */
    uint32_t n_answers;     /* h2_answers_waiting */
    uint32_t n_answers_out; /* of those: moved to the output */
    uint64_t unfinished_us; /* h2_unfinished_us */
    struct budget budget;
    char *why; /* h2_why_done; NULL: "" */
};

struct h2_stream {
    struct h2 *h2;
    void *user;
    uint32_t id;        /* 0: a client's HEADERS have not left */
    struct h2_set *set; /* h2_block_set, during on_headers */
};

/* Each as the function of the same name in net/h2.h says. */
struct h2_engine {
    const char *name;
    struct h2 *(*create)(enum h2_role role, const struct h2_limits *limits); /* then h2_new fills */
    void (*start)(struct h2 *h); /* base is filled: queue SETTINGS */
    void (*destroy)(struct h2 *h);
    int (*recv)(struct h2 *h, struct slab *slab, const uint8_t *p, size_t len, struct err *err);
    void (*lost)(struct h2 *h, uint32_t code, bool by_peer); /* ends every stream with these */
    void (*flush)(struct h2 *h, struct outq *out, size_t high_water);
    bool (*wants_flush)(const struct h2 *h);
    bool (*is_done)(const struct h2 *h);
    struct h2_stream *(*open)(struct h2 *h, const struct h2_field *fields, size_t n, bool end,
                              void *user);
    struct h2_stream *(*open_set)(struct h2 *h, struct h2_set *set, const struct h2_field *extra,
                                  size_t n_extra, bool end, void *user); /* NULL: h2.c joins them */
    bool (*can_open)(const struct h2 *h);
    uint32_t (*peer_max_streams)(const struct h2 *h);
    bool (*settings_seen)(const struct h2 *h);
    void (*send_headers)(struct h2_stream *s, enum h2_block kind, const struct h2_field *fields,
                         size_t n, bool end);
    void (*send_set)(struct h2_stream *s, enum h2_block kind, struct h2_set *set,
                     const struct h2_field *extra, size_t n_extra, bool end); /* NULL: as above */
    void (*send_data)(struct h2_stream *s, struct slab *slab, const uint8_t *p, size_t len,
                      bool end);
    size_t (*queued)(const struct h2_stream *s);
    void (*consume)(struct h2_stream *s, size_t bytes);
    void (*reset)(struct h2_stream *s, uint32_t code);
    void (*goaway_notice)(struct h2 *h);
    uint32_t (*last_stream_id)(const struct h2 *h); /* the peer's highest that we took */
    void (*goaway)(struct h2 *h, uint32_t last_stream_id, uint32_t code, const char *debug);
    void (*ping)(struct h2 *h, uint64_t opaque);
    void (*stream_window)(struct h2 *h, uint32_t bytes); /* NULL: it stays */
    uint64_t (*settings_wait_us)(const struct h2 *h);    /* NULL: unknown */
    unsigned (*sweep)(struct h2 *h);
};

static inline uint64_t h2_now(const struct h2 *h)
{
    return h->now_us != NULL ? *h->now_us : 0;
}

/* Has the peer spent its budget? */
static inline bool h2_is_spent(struct h2 *h, enum budget_verdict v)
{
    if (v == BUDGET_STRAINED)
        h->strained = true;
    return v == BUDGET_SPENT;
}

/* At the end of each recv. whole: something that is taken as a whole came to its end in it;
 * begun: the bytes end inside of such a thing. */
static inline void h2_note_unfinished(struct h2 *h, bool whole, bool begun)
{
    if (!begun)
        h->unfinished_us = 0;
    else if (whole || h->unfinished_us == 0)
        h->unfinished_us = h2_now(h);
}

/* In place of what was said before. */
void h2_set_why(struct h2 *h, const char *fmt, ...) PRINTF_LIKE(2, 3);

/* We reset a stream for the peer's fault. */
static inline void h2_tell_made_reset(struct h2 *h)
{
    if (h->events.on_made_reset != NULL)
        h->events.on_made_reset(h->user);
}

static inline void h2_dirty(struct h2 *h)
{
    if (h->events.on_dirty != NULL)
        h->events.on_dirty(h->user);
}

#endif
