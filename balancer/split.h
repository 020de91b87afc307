/* balancer/split.h - which version takes the next call: exact shares in parts of 10,000.
 *
 * Smooth weighted round robin: in any WEIGHT_WHOLE calls in a row every version gets exactly its
 * weight, evenly spread; weight 0 gets none. Versions without a ready replica are passed over and
 * their share goes to the others in proportion.
 *
 * Owns:      its array.
 * Called by: balancer_apply (weights), gateway/route.c (pick).
 * Lifetime:  split_init .. split_fini.
 * Thread:    one worker's; each worker starts at another place of the cycle.
 * Source:    nginx 1.3.1 round robin (I. Sysoev), "smooth" weighted selection.
 */
#ifndef BALANCER_SPLIT_H
#define BALANCER_SPLIT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/rng.h"

struct split_part {
    uint32_t weight;
    bool usable;
    int64_t owed; /* rises by weight a call, falls by the total when picked */
};

struct split {
    struct split_part *parts;
    size_t n;
};

void split_init(struct split *s);
void split_fini(struct split *s);
/* New weights (n of them). The cycle goes on where it is when nothing changed. */
void split_set(struct split *s, const uint32_t *weights, size_t n, struct rng *rng);
/* usable[i]: version i has a ready replica. Returns the index of a version with weight > 0; when
 * none of these is usable, the one whose turn it is; -1 when all weights are 0. */
int split_pick(struct split *s, const bool *usable);

#endif
