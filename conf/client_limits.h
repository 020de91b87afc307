/* conf/client_limits.h - what a client may do: `limits` of penstock.json, and `relay --limit`.
 *
 * Owns:      nothing: plain numbers.
 * Called by: conf/process.c, the relay verb, gateway/worker.c (which makes limits of net/ of them).
 * Thread:    main fills it; read-only after.
 */
#ifndef CONF_CLIENT_LIMITS_H
#define CONF_CLIENT_LIMITS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

struct client_limits {
    uint32_t header_kib, header_fields, header_frames;
    uint32_t block_s, stall_s, settings_ack_s, idle_s, request_s;
    uint32_t score, score_per_s;
    uint32_t resets, resets_per_s;
    uint32_t pings, ping_interval_ms;
    uint32_t answers_stop, answers_max;
    uint32_t calls_per_connection;
    uint32_t address_connections, address_resets, address_resets_per_s;
    bool count_loopback;
    uint32_t memory_shrink_percent, memory_refuse_percent, memory_close_percent;
};

struct process_conf;

/* "name=value" of a row of docs/limits.md that stands in penstock.json. -EINVAL with err that names
 * the rule. */
int client_limits_set(struct process_conf *c, const char *text, struct err *err);

#endif
