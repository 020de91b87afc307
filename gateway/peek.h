/* gateway/peek.h - model name and version out of a compressed request message: inflates only the
 * first bytes, and only into the walker.
 *
 * Owns:      a zlib stream (about 40 KiB) and its own walker.
 * Called by: gateway/stream, for calls with grpc-encoding gzip or deflate and no hint.
 * Lifetime:  peek_new .. peek_free; peek_begin per message.
 * Thread:    one.
 * Source:    RFC 1950, 1952; the one file that calls zlib in gateway/.
 *
 * What is inflated is bounded by WALKER_LOOK_BYTES per message, whatever the message claims. What
 * follows the name in a compressed message is not looked at: a second name behind the tensors is
 * the server's to judge, which is why a version is never put into such a message.
 */
#ifndef GATEWAY_PEEK_H
#define GATEWAY_PEEK_H

#include "proto/walker.h"

struct peek;

enum peek_result {
    PEEK_MORE = 0,
    PEEK_READY,   /* see peek_walker */
    PEEK_BLIND,   /* looked as far as allowed: no name */
    PEEK_REFUSED, /* see peek_explain */
};

struct peek *peek_new(enum walker_kind kind);
struct peek *peek_free(struct peek *p); /* NULL is fine; returns NULL */

void peek_begin(struct peek *p);
/* The next compressed bytes of the message; once it was READY, more are ignored. last: the message
 * ends with them. */
enum peek_result peek_feed(struct peek *p, const uint8_t *bytes, size_t len, bool last);
const struct walker *peek_walker(const struct peek *p);
const char *peek_explain(const struct peek *p, char *dst, size_t size);

#endif
