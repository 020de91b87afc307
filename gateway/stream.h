/* gateway/stream.h - one relayed call: the client's stream, its route, its attempts at replicas.
 *
 * Owns:      its arena, the kept request bytes, the current attempt (one at a time).
 * Called by: session (a new request), the h2 events of both sides, lane (a slot is free), timers.
 * Lifetime:  stream_start .. the client's half has closed and the attempt is detached; then it goes
 *            back to the worker's spare list in the reaping of that turn.
 * Thread:    its worker's.
 *
 * In four files: stream.c (states, life), inbound.c (request side), attempt.c (tries), reply.c
 * (response side). Their header, this one, is also for session.c, lane.c and worker.c.
 *
 * Invariants:
 *  - Credit for request bytes goes back to the client when on_sent of the replica's stream reports
 *    them, credit for response bytes to the replica when on_sent of the client's does: what lies
 *    between is bounded by the two stream windows, whatever the message size.
 *  - Bytes that no attempt has seen yet are in body. While `whole` is true, body has the request
 *    from its first byte, and the call may be sent again.
 *  - Nothing reaches the client before the call is committed (state REPLYING or ENDED).
 *  - An upstream stream belongs to its attempt: detached ones have no user and are ignored.
 */
#ifndef GATEWAY_STREAM_H
#define GATEWAY_STREAM_H

#include "balancer/balancer.h"
#include "base/log.h"
#include "gateway/body.h"
#include "gateway/lane.h"
#include "gateway/note.h"
#include "gateway/peek.h"
#include "gateway/request.h"
#include "gateway/route.h"
#include "gateway/session.h"
#include "gateway/worker.h"

enum stream_state {
    STREAM_HEADERS = 0, /* the request has begun; its route is not known yet */
    STREAM_QUEUED,      /* waits for a slot, for a replica, or for the next try's time */
    STREAM_SENT,        /* an attempt runs; the client has seen nothing */
    STREAM_REPLYING,    /* response headers were passed on */
    STREAM_ENDED,       /* the whole answer is queued towards the client */
    STREAM_DONE,        /* the client's half is closed */
    STREAM_N_STATES
};

/* Why a call ended; each has its counter. */
enum stream_end {
    END_RELAYED = 0,
    END_BY_CLIENT,
    END_DEADLINE,
    END_BAD_REQUEST,
    END_NO_ROUTE,
    END_RENAMED,
    END_REFUSED_METHOD,
    END_COMPRESSED,
    END_OVER_MESSAGE,
    END_OVER_MEMORY,
    END_QUEUE_FULL,
    END_NO_REPLICA,
    END_UPSTREAM_LOST,
    END_DRAINING,
    N_STREAM_ENDS
};

struct attempt {
    struct member *member; /* NULL: no attempt */
    struct pool *pool;     /* of member's replica: the usual one, or the bulk one */
    bool bulk;
    struct h2_stream *up; /* NULL: waits for a connection */
    struct pool_waiter waiter;
    uint64_t began_us;
    uint64_t sent_bytes;      /* of the request, in the output of its connection */
    unsigned n_informational; /* 1xx blocks that came */
};

#define STREAM_TRIED_MAX 8

struct stream {
    struct call call; /* first: a struct call * of ours is a struct stream * */

    /* The same for each call, or at rest when one has ended: not cleared for the next. */
    uint32_t magic;
    struct worker *worker;
    struct arena arena;
    struct dead dead;
    struct list spare_node; /* worker.spare_streams */
    struct coarse_timer deadline;
    struct coarse_timer again; /* the next try's time, or the end of waiting for a replica */
    struct list queue_node;    /* lane.queue */
    struct list held_node;     /* worker.held */
    struct list heavy_node;    /* worker.heavy */
    size_t booked_bytes;       /* in worker.call_bytes */
    struct attempt attempt;

    enum stream_state state; /* from here on cleared */
    uint64_t began_us;
    uint64_t deadline_us; /* 0: none */

    /* request */
    const struct request_head *head; /* own_head, or the note's */
    struct h2_set *set;              /* that the request's fields are, without extra; held */
    struct request_note *note;       /* of set; NULL: the fields are copies */
    const struct h2_field *extra;    /* what came with set and is sent on as well */
    size_t n_extra;
    struct peek *peek; /* NULL until a compressed message has to be read */
    bool whole;
    bool routed;
    bool opaque_message; /* this one is compressed: the walker does not see it */
    bool client_ended;   /* END_STREAM came, and every byte before it was taken */
    bool reads_on;       /* refused before its client had ended: it may end on its own */
    const struct h2_field *request_trailers; /* NULL: none */
    size_t n_request_trailers;
    uint64_t content_bytes;  /* announced by content-length; 0: not */
    uint64_t request_bytes;  /* taken from the client */
    uint64_t credited_bytes; /* of these, given back as flow-control credit */
    size_t override_len;     /* of override */

    /* route */
    struct lane *lane; /* held; NULL: no route yet */
    bool may_come;     /* the version can have replicas, though none may be there now */
    bool by_split;     /* the traffic split chose the version */

    /* tries */
    uint32_t n_tried;
    uint32_t n_counted, n_free; /* attempts that count against limits.attempts, and that do not */
    bool backing_off;           /* QUEUED for a time, not for a slot */
    uint32_t n_rounds;          /* times that every replica had been tried */

    /* response */
    struct h2_field *held;   /* response headers not passed on yet; NULL: none, or in held_set */
    struct h2_set *held_set; /* the same as a set */
    size_t n_held;
    int not_grpc;           /* HTTP status of response headers that are no gRPC and wait; 0: none */
    uint64_t replied_bytes; /* taken from the replica */
    size_t reply_bytes;     /* given to the client's half, not in its output yet */
    uint64_t held_until_us;

    /* From here on not cleared either: long, and each written before it is read. */
    struct request_head own_head;
    struct route_path path;
    struct grpc_reader request_reader, response_reader;
    struct limits_conf limits; /* once it is routed */
    struct body body;
    uint64_t tried[STREAM_TRIED_MAX]; /* endpoint ids; the newest overwrite the oldest */
    enum outcome last_how;
    char last_failure[160]; /* of the attempt before, for the message when nothing is left */
    uint8_t override[WALKER_OVERRIDE_MAX]; /* appended to every message */
    struct walker walker;                  /* of ROUTE_BY_MESSAGE */
    struct route route;                    /* once it was found */
};
#define STREAM_MAGIC 0x6d727473u

/* stream.c */
/* note: of the set that the fields begin with; NULL: none. path: of their :path; NULL: they have
 * none. */
void stream_start(struct session *session, struct h2_stream *down, struct request_note *note,
                  const struct route_path *path, const struct h2_field *fields, size_t n, bool end);
/* Free a part of the spare streams that a busier time has left. */
void stream_trim_spares(struct worker *w);
enum stream_gauge { GAUGE_NONE = 0, GAUGE_QUEUED, GAUGE_AT_REPLICA }; /* of the lane */
extern const struct stream_state_row {
    const char *name;
    unsigned next;           /* bits of states that may follow */
    enum stream_gauge gauge; /* which one counts a call of this state */
} stream_states[STREAM_N_STATES];
void stream_log_state(const struct stream *s, enum stream_state to);
void stream_move_gauge(struct stream *s, enum stream_state to);
static inline void stream_set_state(struct stream *s, enum stream_state to)
{
    check(stream_states[s->state].next & (1u << to));
    if (log_is_on(LOG_DEBUG))
        stream_log_state(s, to);
    if (stream_states[s->state].gauge != stream_states[to].gauge || to == STREAM_QUEUED)
        stream_move_gauge(s, to);
    else
        s->state = to;
}
/* End the call with a status made here: the client gets "penstock: " and the text, in trailers-only
 * form while it has seen nothing. Cancels the attempt. */
void stream_fail(struct stream *s, enum stream_end why, enum grpc_status status, const char *fmt,
                 ...) PRINTF_LIKE(4, 5);
/* More bytes came: is the worker within its memory budget, after stream_relieve? If not, calls that
 * hold bytes with no replica to take them end first, those on their way at twice the budget. false:
 * the call has ended. */
bool stream_make_room(struct stream *s); /* when over */
static inline bool stream_check_memory(struct stream *s)
{
    return !worker_is_over_memory(s->worker, s->worker->memory_bytes) || stream_make_room(s);
}
/* The answer is complete: count it, stop timers, let the client's upload stop. */
void stream_end(struct stream *s, enum stream_end why, enum grpc_status status);
void stream_start_deadline(struct stream *s, uint64_t timeout_us); /* from the call's beginning */
const char *stream_model(const struct stream *s); /* "" before the route is known */
uint64_t stream_now(const struct stream *s);
void stream_set_lane(struct stream *s, struct lane *l); /* lets go of the one before */
#define STREAM_HEAVY_BYTES OUTQ_COPY_BELOW /* less is copied: it pins no slab of its own */
static inline size_t stream_held_bytes(const struct stream *s)
{
    const uint64_t request = s->state < STREAM_ENDED ? s->request_bytes - s->credited_bytes : 0;

    return (size_t)request + (s->call.down != NULL ? s->reply_bytes : 0);
}
/* Bytes came or went: book what it holds, and whether that is much. */
void stream_weigh_heavy(struct stream *s);
static inline void stream_weigh(struct stream *s)
{
    if (s->booked_bytes != s->arena.used_bytes + CALL_BYTES && s->booked_bytes > 0)
        worker_book_call(s->worker, &s->booked_bytes, s->arena.used_bytes);
    if (s->state < STREAM_SENT || list_is_linked(&s->heavy_node) ||
        stream_held_bytes(s) > STREAM_HEAVY_BYTES)
        stream_weigh_heavy(s);
}
/* The same when bytes only went. */
static inline void stream_lighten(struct stream *s)
{
    if (list_is_linked(&s->heavy_node))
        stream_weigh_heavy(s);
}
/* While the worker is over its memory budget, end those calls that have held bytes longest. */
void stream_relieve(struct worker *w, size_t budget_bytes);
/* End the calls that for too long have not said where they want to go. */
void stream_end_undecided(struct worker *w);
void stream_spare_free(struct stream *s); /* one of worker.spare_streams, at the worker's end */

/* inbound.c */
void inbound_on_data(struct call *c, struct slab *slab, const uint8_t *p, size_t len, bool end);
void inbound_on_trailers(struct call *c, const struct h2_field *fields, size_t n);
void inbound_half_close(struct stream *s); /* END_STREAM came, all before it was taken */
/* Everything that decides the route is known. false: the call has ended. */
bool inbound_route(struct stream *s, const struct route_want *want);
/* The same when the route was found before, in this snapshot. */
bool inbound_go(struct stream *s, const struct route *route);
/* Is the message that r has begun within limits.message_mib? false: the call has ended. what: "a
 * response". */
bool inbound_check_cap(struct stream *s, const char *what, const struct grpc_reader *r);

/* attempt.c */
void attempt_begin(struct stream *s); /* routed: try a replica, or wait */
/* Let the oldest call of the lane's queue go on, if it can. */
bool attempt_of_queue(struct lane *l);
/* The attempt is over: cancel what runs upstream, end the call at the balancer. */
void attempt_detach(struct stream *s, enum outcome how, uint32_t cancel_code);
/* It failed without an answer of the replica: try again, or end the call. */
void attempt_failed(struct stream *s, enum outcome how, enum grpc_status status, const char *why);
/* It was answered by a status that allows another try: true when one has begun. */
bool attempt_retry_answered(struct stream *s, enum outcome how, bool pushed_back);
void attempt_forward(struct stream *s, struct slab *slab, const uint8_t *p, size_t len, bool end);
/* The replica's connection took bytes of the request: credit for the client. */
void attempt_on_sent(struct stream *s, size_t bytes);
void attempt_on_wake(struct pool_waiter *waiter, bool ok, const char *why);
void attempt_on_again(struct coarse_timer *t); /* stream.again */

/* reply.c */
extern const struct h2_events upstream_events; /* for net/pool; streams' users are struct stream */
void reply_commit(struct stream *s);           /* pass held headers on */
void reply_drop_held(struct stream *s);
void stream_deadline_passed(struct stream *s); /* ends it with DEADLINE_EXCEEDED */
void reply_on_held_timer(struct timer *t);     /* worker.held_timer */
/* The client's output took bytes of the response. */
void reply_credit(struct stream *s, size_t bytes);

#endif
