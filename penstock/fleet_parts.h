/* penstock/fleet_parts.h - what the fleet's own files share.
 *
 * Called by: penstock/fleet.c (config, events, what others see), penstock/fleet_scale.c (how many),
 *            penstock/fleet_step.c (start, drain, replace).
 * Thread:    the control loop's.
 */
#ifndef PENSTOCK_FLEET_PARTS_H
#define PENSTOCK_FLEET_PARTS_H

#include "penstock/fleet.h"

#define LIVED_US (10 * US_PER_S) /* ready this long: its next end is no failed start */

/* Replicas that are kept for a rollback. */
static inline uint32_t run_warm(const struct run *run, uint64_t now_us)
{
    return now_us < run->warm_until_us ? run->warm_replicas : 0;
}

/* One more start that did not live: recorded as `what`, the next one waits longer. */
void run_start_failed(struct fleet *f, struct run *run, uint64_t now_us, const char *what,
                      const char *why);
/* The driver ends its process; it leaves the snapshots. */
void fleet_stop_replica(struct fleet *f, struct replica *r, uint64_t now_us);
/* Its traffic was taken away: what is ready stays for warm_s. */
void run_keep_warm(struct fleet *f, struct run *run, uint32_t warm_s, uint64_t now_us);
/* Calls in flight that one replica is meant to have. */
uint32_t run_target_inflight(const struct run *run);
/* Bring the weights that the workers get nearer to those of the config. */
void fleet_weigh(struct fleet *f, bool at_once, uint64_t now_us);
void run_free(struct fleet *f, struct run *run); /* it has no replicas; off its list */

#endif
