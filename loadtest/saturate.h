/* loadtest/saturate.h - penstock-load --saturate: more calls than any proxy can take, at about 1 us
 * of our own time each.
 *
 * The same call again and again: its header block and its message are encoded once, what a read
 * brought is answered by one write. A call starts where another ended, so streams calls are always
 * in flight on each connection. Every answer's status is read, from its trailers or trailers-only
 * headers, and its bytes must be one message, as long as its prefix says.
 *
 * Owns:      its connections, for the run.
 * Called by: load_main.c.
 * Thread:    one; blocks.
 */
#ifndef LOADTEST_SATURATE_H
#define LOADTEST_SATURATE_H

#include <stdatomic.h>
#include <stdio.h>
#include <sys/types.h>

#include "base/histogram.h"
#include "net/conn.h"
#include "proto/grpc.h"

struct saturate_conf {
    struct net_addr to;
    const struct h2_field *fields; /* of the request, pseudo-header fields first */
    size_t n_fields;
    bool has_request_ids;   /* and an x-request-id that no other call has */
    const uint8_t *message; /* gRPC-framed */
    size_t message_bytes;
    uint32_t n_connections;
    uint32_t n_streams;   /* of each connection; fewer where the peer allows fewer */
    uint64_t calls_each;  /* of a connection; 0: no such limit */
    uint64_t hold_us;     /* keep the connections so long after the last call; 0: close at once */
    struct tls_ctx *tls;  /* NULL: cleartext */
    const char *tls_host; /* what the certificate must name */
    uint64_t max_calls;   /* UINT64_MAX: until duration_us */
    uint64_t duration_us; /* of what is counted; UINT64_MAX: until max_calls */
    uint64_t warm_up_us;  /* before it: not counted */
    const pid_t *pids;    /* whose CPU time counts */
    size_t n_pids;
    const _Atomic bool *stop;
};

struct saturate_result {
    uint64_t n_ok;
    uint64_t n_empty;     /* status OK, but not one whole message */
    uint64_t n_no_status; /* ended without grpc-status, or HTTP status other than 200 */
    uint64_t n_reset;     /* by RST_STREAM */
    uint64_t n_lost;      /* open when their connection ended */
    uint64_t n_unfinished;
    uint64_t by_status[GRPC_N_STATUS]; /* OK: without n_empty */
    uint64_t bytes_received;           /* of DATA */
    uint32_t n_connections_lost;
    char why_lost[128];
    double elapsed_s;
    double own_cpu_us, pids_cpu_us; /* in all */
    uint64_t n_reads, n_writes;     /* ours */
    struct histogram latency_us;    /* of OK calls, to the turn of the loop */
};

/* 0, or -errno with err: nothing could be measured. */
int saturate_run(const struct saturate_conf *conf, struct saturate_result *ret, struct err *err);
void saturate_print(const struct saturate_result *r, const struct saturate_conf *conf, bool json,
                    FILE *to);
bool saturate_is_good(const struct saturate_result *r); /* all calls were OK, with data */

#endif
