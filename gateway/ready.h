/* gateway/ready.h - can it serve: what health answers, ServerReady and /readyz say.
 *
 * Called by: gateway/local*.c, gateway/status.c.
 * Thread:    any; reads a snapshot.
 */
#ifndef GATEWAY_READY_H
#define GATEWAY_READY_H

#include <stdbool.h>

#include "conf/snapshot.h"

bool ready_version(const struct snap_version *v); /* has a READY endpoint */
bool ready_model(const struct snap_model *m);     /* a version with weight is ready */
bool ready_any(const struct snapshot *s);         /* a model is ready; NULL: false */

#endif
