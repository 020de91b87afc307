/* gateway/answer.h - one call that the gateway answers itself: framing and trailers around
 * gateway/local.h.
 *
 * Owns:      the call's half of gateway/local, the message that is being put together.
 * Called by: session (a new request that local_find knows).
 * Lifetime:  answer_start .. the client's half has closed; freed in the reaping of that turn.
 * Thread:    its worker's.
 */
#ifndef GATEWAY_ANSWER_H
#define GATEWAY_ANSWER_H

#include "gateway/session.h"

struct local_method;

void answer_start(struct session *session, struct h2_stream *down,
                  const struct local_method *method, const struct h2_field *fields, size_t n,
                  bool end);

#endif
