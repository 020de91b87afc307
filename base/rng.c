#include "base/rng.h"

#include <math.h>

#include "base/check.h"

static uint64_t rotl(uint64_t x, int k)
{
    return (x << k) | (x >> (64 - k));
}

/* The state is filled by splitmix64, as its authors advise, so that near seeds give far streams. */
void rng_init(struct rng *r, uint64_t seed)
{
    for (int i = 0; i < 4; i++) {
        uint64_t z = (seed += UINT64_C(0x9e3779b97f4a7c15));

        z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
        z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
        r->s[i] = z ^ (z >> 31);
    }
}

uint64_t rng_next(struct rng *r)
{
    const uint64_t result = rotl(r->s[1] * 5, 7) * 9;
    const uint64_t t = r->s[1] << 17;

    r->s[2] ^= r->s[0];
    r->s[3] ^= r->s[1];
    r->s[1] ^= r->s[2];
    r->s[0] ^= r->s[3];
    r->s[2] ^= t;
    r->s[3] = rotl(r->s[3], 45);
    return result;
}

/* Values from the uneven top of the range are drawn again, so that none is more likely. */
uint64_t rng_below(struct rng *r, uint64_t n)
{
    uint64_t x;

    check(n > 0);
    do {
        x = rng_next(r);
    } while (x >= UINT64_MAX - UINT64_MAX % n);
    return x % n;
}

double rng_unit(struct rng *r)
{
    return (double)(rng_next(r) >> 11) * 0x1.0p-53;
}

double rng_exponential(struct rng *r, double mean)
{
    return -mean * log(1.0 - rng_unit(r)); /* 1 - [0, 1): never log(0) */
}

/* Box-Muller; the second value is dropped to keep the state four words. */
double rng_normal(struct rng *r)
{
    const double radius = sqrt(-2.0 * log(1.0 - rng_unit(r)));

    return radius * cos(6.283185307179586 * rng_unit(r));
}
