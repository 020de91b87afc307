/* gateway/note.h - what follows from a header set (struct h2_set), worked out once and kept on it.
 *
 * Owns:      a note and the set that is sent in the place of the one that came.
 * Called by: session and stream (requests), reply (answers).
 * Lifetime:  hung on the set at its first use; freed with it.
 * Thread:    its worker's, as the set's.
 *
 * What a note says follows from the set's fields alone, but for the path's row: that is of one
 * snapshot, known by the worker's epoch, and looked up anew when another is in force. What is
 * chosen per call (version by the split, replica) is never kept.
 */
#ifndef GATEWAY_NOTE_H
#define GATEWAY_NOTE_H

#include "balancer/outcome.h"
#include "gateway/paths.h"
#include "gateway/request.h"
#include "proto/grpc.h"

struct worker;

/* Of a request. */
struct request_note {
    struct request_head head; /* its fields lie in the set */
    enum request_fault fault;
    uint64_t epoch; /* of row and route; 0: none yet */
    const struct local_method *local;
    struct route_path path;
    struct route route; /* of ROUTE_BY_SERVICE, when routed */
    bool routed;
    struct h2_set *of;         /* the set that holds this note */
    struct h2_set *forward[2]; /* [https]: what a first attempt sends, without grpc-timeout; NULL:
                                  not made yet. A reference, but to `of` */
};

/* NULL: the set is NULL, or an answer's. w: its epoch and paths. */
struct request_note *request_note_of(struct worker *w, struct h2_set *set);
/* Borrowed for this turn. What is sent on may be the very set that came (two gateways in a row): a
 * set that held itself, or two each other, would never go. */
struct h2_set *request_note_forward(struct request_note *note, struct slab_pool *slabs, bool https);

/* Of an answer: headers or trailers. */
struct reply_note {
    int http_status; /* 0: none, or not a number */
    bool is_grpc;    /* 200 with content-type application/grpc */
    bool passes;     /* no field ends here */
    bool has_status;
    bool status_is_plain; /* one field, with a code that gRPC has: passed on as it came */
    bool pushed_back;     /* grpc-retry-pushback-ms */
    enum grpc_status status;
    enum outcome outcome; /* of the status, on a connection without GOAWAY */
    enum outcome outcome_at_goaway;
};

/* What the fields say: of the set when it has all of them (then kept), else in *dst. */
const struct reply_note *reply_note_of(struct h2_set *set, const struct h2_field *fields, size_t n,
                                       struct reply_note *dst);

/* Does a field of a replica's answer reach the client? Not hop-by-hop ones, and no content-length:
 * what follows may be ours. */
bool reply_field_stays(const struct h2_field *f);

#endif
