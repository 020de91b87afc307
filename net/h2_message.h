/* net/h2_message.h - is a decoded header block a well-formed HTTP message?
 *
 * Owns:      nothing: a check is plain data, so the answer for the first fields of a block can be
 *            kept and gone on with (net/h2_hpack.c does).
 * Called by: net/h2_hpack.c per field, net/h2_native_recv.c per block.
 * Source:    RFC 9113 8.1 to 8.3, RFC 9110 5.5 and 5.6.2.
 */
#ifndef NET_H2_MESSAGE_H
#define NET_H2_MESSAGE_H

#include <stdbool.h>
#include <stdint.h>

#include "net/h2.h"

enum message_part { MESSAGE_REQUEST = 0, MESSAGE_RESPONSE, MESSAGE_TRAILERS };

struct message {
    enum message_part part;
    uint16_t seen;          /* bits of h2_message.c */
    uint16_t status;        /* of a response */
    int64_t content_length; /* -1: not named */
    const char *wrong;      /* the first rule broken; NULL: none */
};

void message_begin(struct message *m, enum message_part part);
void message_field(struct message *m, const struct h2_field *f);
/* All fields were given: what is missing counts too. end: END_STREAM was on the block. */
bool message_is_ok(struct message *m, bool end);
bool message_is_informational(const struct message *m);
/* The payload that must follow: -1 any, else exactly so many bytes. head: the request was HEAD. */
int64_t message_body_bytes(const struct message *m, bool head);
bool message_is_head(const struct message *m); /* a request with method HEAD */

#endif
