/* gateway/status.h - the read-only admin pages of every gateway process.
 *
 *   GET /healthz    the control loop turns
 *   GET /readyz     200 when at least one route can serve, else 503
 *   GET /metrics    Prometheus text (gateway/metrics.c)
 *   GET /v1/status  models, versions, weights, endpoints, generation, epoch, workers
 *
 * Owns:      a few words for its handlers.
 * Called by: the verbs.
 * Lifetime:  status_new .. status_free, after the admin's end.
 * Thread:    the control loop's.
 */
#ifndef GATEWAY_STATUS_H
#define GATEWAY_STATUS_H

struct admin;
struct gateway;
struct status;

/* Adds the pages to a. g outlives a. verb: shown ("up", "relay", "gateway"); a constant. */
struct status *status_new(struct admin *a, struct gateway *g, const char *verb);
void status_set_draining(struct status *s);   /* /readyz says 503 from now on */
struct status *status_free(struct status *s); /* returns NULL */

#endif
