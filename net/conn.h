/* net/conn.h - an HTTP/2 connection over TCP, UNIX socket or TLS: socket, engine, output queue.
 *
 * Owns:      the socket, its struct h2, the output queue.
 * Called by: gateway/session (accepted ones), net/pool (dialled ones), gRPC client and server.
 * Lifetime:  conn_accept / conn_dial .. on_closed; the conn frees itself after on_closed returned
 *            (in this turn's reaping). conn_close asks for that.
 * Thread:    its loop's.
 */
#ifndef NET_CONN_H
#define NET_CONN_H

#include <netinet/in.h>
#include <stdbool.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "net/h2.h"
#include "net/loop.h"

/* "127.0.0.1:80", "[::1]:80", "host:80", "unix:/path" */
struct net_addr {
    struct sockaddr_storage sa;
    socklen_t sa_len;
    char text[128];
};
/* Resolves names (blocking: never on a worker). -EINVAL with err that names the rule. */
int net_addr_parse(struct net_addr *ret_addr, const char *text, struct err *err);
/* Bound, listening, non-blocking socket or -errno. reuse_port: one of several listeners. */
int net_listen(const struct net_addr *addr, bool reuse_port, struct err *err);
/* What every connection's socket needs; those that a listening socket accepts have it from there.
 */
void net_tune_socket(int fd, int family);
/* The host part of the text, without brackets; "" for a UNIX socket. */
void net_addr_host(const struct net_addr *addr, char *dst, size_t size);
void net_addr_of_socket(int fd, struct net_addr *ret_addr); /* getsockname, for port 0 */
void net_addr_of_peer(int fd, struct net_addr *ret_addr);   /* getpeername */
/* A connection of listening socket fd, non-blocking, and who it is with; -1: errno says why. */
int net_accept(int fd, struct net_addr *ret_peer);

struct tls_ctx; /* net/tls.h */
struct conn;

/* How a connection ended, for those who count; the words of on_closed say more. */
enum conn_end {
    CONN_END_PEER = 0, /* closed, broken or reset by the peer, or never reached */
    CONN_END_US,       /* drained, or conn_close */
    CONN_END_SETUP,    /* no connection, handshake, preface or SETTINGS in time */
    CONN_END_BLOCK,    /* a frame or header block that did not end in time */
    CONN_END_IDLE,     /* said nothing for too long, without a call */
    CONN_END_STALLED,  /* took no byte of what waited for too long */
    CONN_END_SILENT,   /* no answer to PING */
    CONN_END_STRANGER, /* speaks something else than the port does */
    CONN_END_TLS,
    CONN_END_PROTOCOL, /* the rest as enum h2_fault */
    CONN_END_FRAMES,
    CONN_END_RESETS,
    CONN_END_PINGS,
    CONN_END_HEADERS,
    CONN_END_ANSWERS,
    CONN_END_SETTINGS, /* did not acknowledge ours in time */
    N_CONN_ENDS,
};

struct conn_ops {
    struct h2_events
        h2; /* user of every event is the conn's user; on_dirty is conn's own: leave NULL */
    void (*on_ready)(void *user);   /* connected (TLS done): may open streams */
    void (*on_secured)(void *user); /* accepted with TLS: the handshake is done; NULL: don't care */
    void (*on_closed)(void *user,
                      const char *why); /* exactly once, after every stream's on_close */
};

struct conn_conf {
    const struct h2_engine *engine; /* NULL: h2_engine_native */
    struct h2_limits limits;
    struct tls_ctx *tls;  /* NULL: cleartext, prior knowledge; lives as long as any conn */
    const char *tls_host; /* dial: what the certificate must name; NULL: the address's host */
    uint64_t connect_timeout_us;  /* dial; accepted ones: until the peer's SETTINGS */
    uint64_t settings_timeout_us; /* dialled: then for TLS and SETTINGS; 0: within the above */
    uint64_t ping_after_us;       /* open streams and silence this long: PING; 0: never */
    uint64_t ping_timeout_us;     /* no answer to it: the connection is dead */
    /* each 0: never */
    uint64_t block_timeout_us; /* from the first byte of a frame or header block to its last */
    uint64_t stall_timeout_us; /* output that does not move: its stream is reset; when the socket
                                  takes nothing at all, the connection ends */
    uint64_t settings_ack_us; /* SETTINGS of ours that the peer does not acknowledge: the connection
                                 ends with SETTINGS_TIMEOUT (RFC 9113 6.5.3), at most half as long
                                 again later */
    uint64_t idle_timeout_us; /* without a stream and a byte from the peer: drained */
};
void conn_conf_default(struct conn_conf *c);

/* fd: accepted, non-blocking; owned from here. peer: as net_accept gave it; NULL: the kernel is
 * asked. */
struct conn *conn_accept(struct loop *l, int fd, const struct net_addr *peer,
                         const struct conn_conf *conf, const struct conn_ops *ops, void *user);
struct conn *conn_dial(struct loop *l, const struct net_addr *addr, const struct conn_conf *conf,
                       const struct conn_ops *ops, void *user);
struct h2 *conn_h2(struct conn *c);
bool conn_is_ready(const struct conn *c);
bool conn_has_spoken(const struct conn *c);  /* the peer sent something, read or not */
const char *conn_peer(const struct conn *c); /* address text */
/* Graceful: GOAWAY notice, one PING round trip (or 1 s), GOAWAY, then closed when the last stream
 * ends. */
void conn_drain(struct conn *c);
void conn_close(struct conn *c, const char *why); /* now; on_closed follows in this turn */
/* The same for a peer that went over a limit of the caller's: ENHANCE_YOUR_CALM. */
void conn_expel(struct conn *c, enum conn_end how, const char *why);
const char *conn_peer_name(struct conn *c);          /* of its verified certificate; "": none */
const void *conn_identity(const struct conn *c);     /* tls_identity; NULL also without TLS */
bool conn_was_resumed(const struct conn *c);         /* its TLS session */
size_t conn_out_bytes(const struct conn *c);         /* waiting for the socket */
enum conn_end conn_how_ended(const struct conn *c);  /* in on_closed */
uint64_t conn_streams_stalled(const struct conn *c); /* reset for stall_timeout_us, so far */

#endif
