/* gateway/session.h - one client connection, and what its calls have in common.
 *
 * Owns:      its conn; the calls on it end with it.
 * Called by: door (accepted ones), worker (drain, close), stream and answer (their half).
 * Lifetime:  session_accept .. on_closed of its conn, after every call's on_close.
 * Thread:    its worker's.
 */
#ifndef GATEWAY_SESSION_H
#define GATEWAY_SESSION_H

#include "gateway/request.h"
#include "net/conn.h"
#include "proto/grpc.h"

struct worker;
struct call;

struct session {
    struct worker *worker;
    struct conn *conn;
    struct list node;        /* worker.sessions */
    struct address *address; /* gateway/addresses.h; NULL: none that counts */
    struct list of_address;
    struct list handshake; /* worker.handshakes, while its TLS handshake is under way */
    uint64_t accepted_us;
    bool spoke; /* while its handshake is under way: its client is known to have sent something */
    const struct tenant_conf *tenant; /* by its certificate; NULL: none */
    bool closing; /* by us: calls that end with it did not end by the client's wish */
};

/* The client's half of one call: h2 events of its stream go to ops. First member of struct stream
 * (relayed) and struct answer (answered by the gateway). */
#define CALL_MAGIC 0x6c6c6163u

struct call_ops {
    void (*on_data)(struct call *c, struct slab *slab, const uint8_t *p, size_t len, bool end);
    void (*on_trailers)(struct call *c, const struct h2_field *fields, size_t n);
    void (*on_sent)(struct call *c, size_t bytes);
    void (*on_close)(struct call *c, uint32_t code); /* the last one: down is gone after it */
};

struct call {
    uint32_t magic;
    const struct call_ops *ops;
    struct session *session;
    struct h2_stream *down; /* NULL once closed */
};

/* Attach c to the stream that the client opened; events come from the next on. */
void call_attach(struct call *c, const struct call_ops *ops, struct session *session,
                 struct h2_stream *down);
/* An answer has the content-type of its request, or a client may not read it (one that speaks
 * +json). type: the request's; NULL: plain gRPC. */
struct h2_field call_content_type(const struct h2_field *type);
/* End the client's half with a status: trailers-only, or as trailers when response headers were
 * sent. text: plain; "penstock: " goes before it, then it is percent-encoded. NULL: no message. */
void call_send_status(struct call *c, const struct h2_field *type, bool headers_sent,
                      enum grpc_status status, const char *text);
/* Answer a request whose header fields can't be served: by an HTTP status alone where it is not
 * gRPC, else trailers-only. head: as request_read left it. Returns the grpc-status, for counts. */
enum grpc_status call_refuse(struct call *c, enum request_fault fault,
                             const struct request_head *head);
/* The whole answer is queued: let an upload that still runs stop. */
void call_stop_upload(struct call *c);

/* false: refused, and fd is closed. */
bool session_accept(struct worker *w, int fd, const struct net_addr *peer,
                    const struct conn_conf *conf);
/* Close one that has no call (GOAWAY first: its client may come again). false: found none. */
bool session_make_room(struct worker *w);
void session_drain(struct session *s);
void session_close(struct session *s, const char *why);

#endif
