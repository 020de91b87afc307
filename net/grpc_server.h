/* net/grpc_server.h - a small gRPC server on one loop: unary and streaming both ways.
 *
 * Owns:      its listener, its connections, its calls.
 * Called by: penstock-model, penstock-train's parameter server, test peers. The gateway's listener
 *            does not use it: it relays streams as they are.
 * Lifetime:  grpc_server_new .. grpc_server_free; a srv_call is valid from on_start until its
 *            on_done returned.
 * Thread:    its loop's. One server per worker thread with reuse_port for more.
 * Source:    gRPC over HTTP/2 (PROTOCOL-HTTP2.md).
 */
#ifndef NET_GRPC_SERVER_H
#define NET_GRPC_SERVER_H

#include "net/conn.h"

struct grpc_server;
struct srv_call;

/* What a method does. Any but on_start may be NULL. arg: of the method table's row. */
struct srv_ops {
    /* Request metadata is here; may finish the call at once. */
    void (*on_start)(void *arg, struct srv_call *c);
    /* One whole message; p is valid until the event returns. */
    void (*on_message)(struct srv_call *c, const uint8_t *p, size_t len, bool compressed);
    void (*on_half_close)(struct srv_call *c); /* the client has sent its last message */
    void (*on_writable)(struct srv_call *c); /* srv_call_queued fell under half of SRV_SEND_HIGH */
    /* The last event, exactly once, also after srv_call_finish. cancelled: it ended before the
     * finish left (client's reset, deadline, broken connection). Free the call's user here. */
    void (*on_done)(struct srv_call *c, bool cancelled);
};

#define SRV_SEND_HIGH (256u * 1024)

struct srv_method {
    const char *path; /* "/package.Service/Method"; NULL in the last row: any other path */
    const struct srv_ops *ops;
    void *arg;
};

struct grpc_server_conf {
    struct conn_conf conn;
    uint32_t max_message_bytes; /* past it: RESOURCE_EXHAUSTED */
    bool reuse_port;
    bool no_deadline;         /* do not end calls by their grpc-timeout (a scripted bad replica) */
    uint32_t max_connections; /* more are closed at once; 0: no limit */
    uint64_t accept_delay_us; /* SETTINGS come so much later (a scripted bad replica) */
};
void grpc_server_conf_default(struct grpc_server_conf *c);

/* methods: table, copied; paths that it lacks get UNIMPLEMENTED. NULL with err when the address
 * can't be bound. */
struct grpc_server *grpc_server_new(struct loop *l, const struct net_addr *addr,
                                    const struct grpc_server_conf *conf,
                                    const struct srv_method *methods, size_t n_methods,
                                    struct err *err);
struct grpc_server *grpc_server_free(struct grpc_server *s); /* calls end with on_done(cancelled) */
const struct net_addr *grpc_server_addr(const struct grpc_server *s); /* port filled in */
/* Stop listening, GOAWAY in two steps, running calls go on; drained from the loop when none is
 * left. */
void grpc_server_drain(struct grpc_server *s, void (*drained)(void *arg), void *arg);
uint32_t grpc_server_n_calls(const struct grpc_server *s);
uint32_t grpc_server_n_connections(const struct grpc_server *s);

void srv_call_set_user(struct srv_call *c, void *user);
void *srv_call_user(const struct srv_call *c);
void *srv_call_arg(const struct srv_call *c); /* of the method's row */
struct loop *srv_call_loop(const struct srv_call *c);
struct h2_stream *srv_call_stream(struct srv_call *c); /* for scripted misbehaviour: raw resets */
struct conn *srv_call_conn(struct srv_call *c);
const char *srv_call_path(const struct srv_call *c);
const char *srv_call_peer(const struct srv_call *c);
uint64_t srv_call_deadline_us(const struct srv_call *c); /* on the loop's clock; 0: none */
/* The first request field of that name, NUL-terminated; NULL: none. Valid for the call's life. */
const char *srv_call_metadata(const struct srv_call *c, const char *name);
size_t srv_call_n_metadata(const struct srv_call *c);
struct h2_field srv_call_metadata_at(const struct srv_call *c, size_t i);

/* Initial metadata beyond :status and content-type; at most once, before the first message. */
void srv_call_send_headers(struct srv_call *c, const struct h2_field *fields, size_t n);
void srv_call_send(struct srv_call *c, const void *message,
                   size_t len); /* copied; prefix is added */
void srv_call_send_slab(struct srv_call *c, struct slab *slab, const uint8_t *p, size_t len);
size_t srv_call_queued(const struct srv_call *c);
/* Trailers (Trailers-Only when nothing was sent). message: UTF-8, NULL: none; percent-encoded here.
 * When the client has not half-closed, RST_STREAM(NO_ERROR) follows. on_done comes later. */
void srv_call_finish(struct srv_call *c, int status, const char *message,
                     const struct h2_field *trailers, size_t n);
void srv_call_pause(struct srv_call *c); /* stop reading: the client is held by its window */
void srv_call_resume(struct srv_call *c);

#endif
