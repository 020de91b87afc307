/* net/grpc_message.h - whole messages out of DATA, and copies of header fields: what the gRPC
 * client and the gRPC server share.
 *
 * Owns:      inbox: the message that is coming, when it came in more than one piece.
 * Called by: net/grpc_client.c, net/grpc_server.c.
 * Lifetime:  grpc_inbox_init .. grpc_inbox_fini.
 * Thread:    one.
 */
#ifndef NET_GRPC_MESSAGE_H
#define NET_GRPC_MESSAGE_H

#include "base/buf.h"
#include "net/h2.h"
#include "proto/grpc.h"

struct grpc_inbox {
    struct grpc_reader reader;
    struct buf partial;
    struct buf held; /* bytes that came while the call was paused: at most the stream's window */
    const uint8_t *whole;
};

enum inbox_event { INBOX_MORE = 0, INBOX_MESSAGE, INBOX_TOO_LONG, INBOX_BAD_FLAG };

void grpc_inbox_init(struct grpc_inbox *b, uint32_t max_message_bytes, size_t held_bytes);
void grpc_inbox_fini(struct grpc_inbox *b);

/* Takes bytes from the front of [*p, *p + *len) up to the end of one message. With INBOX_MESSAGE:
 * the message, valid until the next call. Call until INBOX_MORE. */
enum inbox_event grpc_inbox_next(struct grpc_inbox *b, const uint8_t **p, size_t *len,
                                 const uint8_t **ret_message, size_t *ret_len,
                                 bool *ret_compressed);

/* One block, NUL after each name and value; free() it. NULL for n = 0. */
struct h2_field *fields_dup(const struct h2_field *fields, size_t n);
const struct h2_field *fields_find(const struct h2_field *fields, size_t n, const char *name);
/* The number of :status; 0: it is missing, or not three digits. */
int fields_http_status(const struct h2_field *fields, size_t n);

/* Prefix and message into the stream; slab NULL: copied. */
void grpc_send_message(struct h2_stream *s, struct slab *slab, const uint8_t *p, size_t len,
                       bool end);

#endif
