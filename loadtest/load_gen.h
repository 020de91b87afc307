/* loadtest/load_gen.h - one thread of penstock-load: its loop, its connections, its calls.
 *
 * Owns:      channels, calls, its statistics (which the caller reads after the end, and whose
 *            atomics it may read before).
 * Called by: load_main.c.
 * Lifetime:  load_gen_new, load_gen_run (on the generator's own thread), load_gen_free.
 * Thread:    run: its own; new and free: main, before and after.
 *
 * Open loop: a call starts at its moment of the schedule, or as soon after it as max_in_flight
 * allows, and its latency counts from that moment. Closed loop: the next starts when one ends.
 */
#ifndef LOADTEST_LOAD_GEN_H
#define LOADTEST_LOAD_GEN_H

#include "loadtest/load_payload.h"
#include "loadtest/load_schedule.h"
#include "loadtest/load_stats.h"
#include "net/grpc_client.h"

struct load_conf {
    struct net_addr to;
    const struct load_payload *payload; /* shared by all threads */
    bool is_open;
    struct load_schedule schedule; /* open: of all threads together */
    bool is_poisson;
    uint32_t concurrency; /* closed: calls at a time, over all threads */
    uint32_t n_threads;
    uint32_t n_connections;       /* over all threads */
    uint32_t n_streams;           /* over all threads; 0: unary calls */
    uint64_t messages_per_stream; /* then half-close and open another; 0: no limit */
    uint64_t duration_us;         /* of starting calls; UINT64_MAX: until max_calls */
    uint64_t max_calls;           /* over all threads; UINT64_MAX: until duration_us */
    uint64_t deadline_us;         /* of a call; 0: none */
    uint64_t drain_us;            /* wait so long at the end for calls that run */
    uint64_t connect_us;          /* wait so long at the start for the connections */
    uint32_t max_in_flight;       /* open loop, of one thread */
    bool has_request_ids;         /* metadata x-request-id with each call */
    const struct h2_field *metadata;
    size_t n_metadata;
    struct grpc_channel_conf channel;
    uint64_t seed;
    const _Atomic bool *stop; /* set: start no more calls */
};

struct load_gen;

struct load_gen *load_gen_new(const struct load_conf *conf, uint32_t thread);
struct load_gen *load_gen_free(struct load_gen *g);
/* Returns when all its calls have ended (or the drain limit passed): 0, or -ETIMEDOUT with err when
 * no connection came up. */
int load_gen_run(struct load_gen *g, struct err *err);
struct load_stats *load_gen_stats(struct load_gen *g);

#endif
