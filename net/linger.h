/* net/linger.h - the end of a socket whose last bytes must arrive.
 *
 * A close while bytes of the peer lie unread, or come later, sends RST; and RST makes the peer's
 * kernel forget what it has not read yet: our GOAWAY, the last trailers. So the sending side is
 * shut down, what comes is read and dropped until the peer ends, and a limit keeps that short.
 *
 * Owns:      the sockets given to it, until each is closed.
 * Called by: net/conn.c at a connection's end; net/loop.c at the loop's.
 * Thread:    the loop's.
 * Source:    RFC 9112 section 9.6 (the same trap in HTTP/1).
 */
#ifndef NET_LINGER_H
#define NET_LINGER_H

struct loop;

/* fd: non-blocking, everything has been written to it; owned from here. */
void linger_take(struct loop *l, int fd);
/* The loop ends: give those that are left a moment, then close them. Blocks for LINGER_LAST_MS. */
void linger_finish(struct loop *l);

#endif
