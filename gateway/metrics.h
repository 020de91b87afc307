/* gateway/metrics.h - what the workers counted, as Prometheus text.
 *
 * Called by: gateway/status.c, for GET /metrics.
 * Thread:    the control loop's.
 * Source:    Prometheus text format 0.0.4: base units (seconds), counters end in _total.
 */
#ifndef GATEWAY_METRICS_H
#define GATEWAY_METRICS_H

#include "base/buf.h"
#include "gateway/stats.h"

/* The HELP and TYPE lines of penstock_<name>. */
void metrics_head(struct buf *b, const char *name, const char *kind, const char *help);
/* name="value", with what the format wants escaped. first: no comma before it. */
void metrics_label(struct buf *b, bool first, const char *name, const char *value);

/* Appends the page to b; check b->overflow afterwards. */
void metrics_write(struct buf *b, const struct gateway_stats *s, const struct snapshot *snap);

#endif
