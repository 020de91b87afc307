/* loadtest/model_server.h - penstock-model's shell: calls, slots, service time, drain, faults.
 *
 * Owns:      the gRPC server, its calls, the event log; the model belongs to the caller.
 * Called by: model_main.c.
 * Lifetime:  model_server_new .. model_server_free.
 * Thread:    its loop's.
 *
 * A message of a data call becomes a piece of work: the prediction is made when it comes, its
 * answer leaves when the work got a slot and its service time has passed. So a replica that takes 5
 * ms on a GPU can be played by one that needs 10 us of CPU, and the answer is still a real one.
 */
#ifndef LOADTEST_MODEL_SERVER_H
#define LOADTEST_MODEL_SERVER_H

#include "loadtest/fault.h"
#include "loadtest/model.h"
#include "net/grpc_server.h"

struct model_server_conf {
    struct net_addr listen;
    double service_ms; /* mean; 0: at once */
    bool service_is_exponential;
    uint32_t slots; /* works that are served at once; 0: no limit */
    uint64_t start_delay_us;
    uint64_t drain_us;
    uint32_t max_message_bytes;
    uint32_t max_streams;       /* MAX_CONCURRENT_STREAMS; 0: the default */
    uint64_t settings_delay_us; /* how late our SETTINGS come after a connect */
    uint64_t seed;              /* of service times */
    const char *replica;        /* response metadata penstock-replica; NULL: none */
    const char *events;         /* file; NULL: none */
    struct fault_set faults;
};

struct model_server;

/* NULL with err when the address or the events file can't be opened. Prints `listening` and, when
 * the model is ready, `ready`. */
struct model_server *model_server_new(struct loop *l, struct model *m,
                                      const struct model_server_conf *conf, struct err *err);
struct model_server *model_server_free(struct model_server *s);
/* NOT_SERVING, GOAWAY in two steps, running calls go on; loop_stop when none is left or after
 * drain_us. A second call stops at once. */
void model_server_drain(struct model_server *s);

#endif
