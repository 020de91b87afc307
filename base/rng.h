/* base/rng.h - seeded pseudo-random numbers: the same seed gives the same run.
 *
 * Thread:    one struct per thread.
 * Source:    xoshiro256** and splitmix64, Blackman and Vigna, 2018.
 */
#ifndef BASE_RNG_H
#define BASE_RNG_H

#include <stdint.h>

struct rng {
    uint64_t s[4];
};

void rng_init(struct rng *r, uint64_t seed);
uint64_t rng_next(struct rng *r);
uint64_t rng_below(struct rng *r, uint64_t n); /* uniform in [0, n), n > 0 */
double rng_unit(struct rng *r);                /* uniform in [0, 1) */
double rng_exponential(struct rng *r, double mean);
double rng_normal(struct rng *r); /* mean 0, deviation 1 */

#endif
