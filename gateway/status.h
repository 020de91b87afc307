/* gateway/status.h - the read-only admin pages of every gateway process.
 *
 *   GET /healthz    the control loop turns
 *   GET /readyz     200 when at least one route can serve, else 503
 *   GET /metrics    Prometheus text
 *   GET /v1/status  models, versions, weights, endpoints, generation, epoch, workers
 *
 * Owns:      nothing but a reference on the snapshot shown.
 * Called by: the verbs.
 * Lifetime:  status_new .. status_free.
 * Thread:    the control loop's.
 */
#ifndef GATEWAY_STATUS_H
#define GATEWAY_STATUS_H

#include "conf/snapshot.h"

struct admin;
struct gateway;
struct status;

struct status *status_new(struct admin *a, struct gateway *g, const char *verb);
struct status *status_free(struct status *s); /* before admin_free; returns NULL */
void status_set_snapshot(struct status *s, struct snapshot *snap); /* takes its own reference */

#endif
