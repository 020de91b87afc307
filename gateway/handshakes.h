/* gateway/handshakes.h - TLS handshakes under way at one worker, and their cap.
 *
 * Owns:      nothing: sessions link themselves in.
 * Called by: session.c (begin, end), listener.c (is there room?).
 * Lifetime:  handshakes_init .. handshakes_fini.
 * Thread:    its worker's.
 *
 * What a burst of handshakes leaves in the heap outweighs all that idle connections hold, so their
 * number is capped: at the cap TLS listeners accept nothing and the kernel's queue holds who comes.
 * Slow clients must not hold the places for ever: when others wait, one is closed that has said
 * nothing for a second, or not ended in five, oldest first; and each has a deadline of its own
 * (net/conn.c).
 */
#ifndef GATEWAY_HANDSHAKES_H
#define GATEWAY_HANDSHAKES_H

#include <stdbool.h>
#include <stdint.h>

#include "net/loop.h"

struct session;
struct worker;

struct handshakes {
    struct worker *worker;
    struct list under_way; /* struct session.handshake, oldest first */
    uint32_t n, max;
    bool waited_for; /* a listener has stopped accepting */
    struct timer make_room;
};

void handshakes_init(struct handshakes *h, struct worker *w, uint32_t max);
void handshakes_fini(struct handshakes *h);

void handshakes_begin(struct handshakes *h, struct session *s);
void handshakes_end(struct handshakes *h, struct session *s); /* safe when it is not in */
/* True: accept now. False: don't; listeners_resume (worker.h) follows when there is room. */
bool handshakes_has_room(struct handshakes *h);

#endif
