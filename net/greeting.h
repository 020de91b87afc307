/* net/greeting.h - who is there, by the first bytes: the wrong protocol is better named than blamed
 * for the frame error that it makes.
 *
 * Owns:      nothing: plain data.
 * Called by: net/conn.c.
 * Lifetime:  a zeroed struct greeting is at its beginning.
 * Thread:    any.
 * Source:    RFC 9112 2.3 and 3 (HTTP/1), RFC 8446 5.1 (TLS records).
 */
#ifndef NET_GREETING_H
#define NET_GREETING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A client's first read. */
bool greeting_is_http1_request(const uint8_t *p, size_t len);
bool greeting_is_tls_hello(const uint8_t *p, size_t len);

/* What a server said so far, in any pieces. */
struct greeting {
    uint8_t n;
    uint8_t bytes[6];
};
/* NULL: nothing strange (yet); else a sentence about the server. */
const char *greeting_of_server(struct greeting *g, const uint8_t *p, size_t len);

#endif
