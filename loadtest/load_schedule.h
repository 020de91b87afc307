/* loadtest/load_schedule.h - when the calls of an open loop are to start, whatever becomes of them.
 *
 * A pure function of rates and seed; latency is counted from these moments, so that a server that
 * stalls can't make the generator skip the calls that would have shown it (coordinated omission).
 *
 * Owns:      its steps.
 * Called by: load_gen.c; one schedule per thread, each a share of the whole.
 * Thread:    one.
 */
#ifndef LOADTEST_LOAD_SCHEDULE_H
#define LOADTEST_LOAD_SCHEDULE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/rng.h"

#define LOAD_MAX_RATE  1e6 /* calls per second */
#define LOAD_MAX_STEPS 1000000u

struct load_step {
    double from_s;
    double rate; /* calls per second from then on */
};

struct load_schedule {
    struct load_step *steps; /* ascending, the first at 0 */
    size_t n_steps;
    bool ends;       /* the last step's rate is 0: it is the end */
    double share;    /* of the rates that this thread makes, 0..1 */
    bool is_poisson; /* exponential gaps, else even ones */
    struct rng rng;
    double now_s; /* of the last call given out */
    size_t at;    /* step of now_s */
};

void load_schedule_constant(struct load_schedule *s, double rate);
/* A trace: lines "SECONDS RATE", '#' comments; a last line with rate 0 is the end.
 * 0 or -errno with err that names file and line. */
int load_schedule_read(struct load_schedule *s, const char *path, struct err *err);
/* Thread k of n takes its share; even gaps of the threads interleave. */
void load_schedule_split(struct load_schedule *s, const struct load_schedule *whole, uint32_t k,
                         uint32_t n, bool is_poisson, uint64_t seed);
void load_schedule_fini(struct load_schedule *s); /* works on a zeroed one */

/* Microseconds from the start to the next call, never falling; UINT64_MAX: no more. */
uint64_t load_schedule_next(struct load_schedule *s);
/* The rate asked for at that time, calls per second over all threads. */
double load_schedule_rate(const struct load_schedule *s, double at_s);

#endif
