#include "conf/client_limits.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "conf/process.h"
#include "conf/tables.h"

#define HOUR_S 3600

static const struct conf_field limits_fields[] = {
    CONF_UINT(struct client_limits, header_kib, "header_kib", .unit = "KiB", .min = 1, .max = 64,
              .dflt = 16,
              .doc = "Header fields of a call, decoded: name, value and 32 bytes each. Over it the "
                     "call ends with RESOURCE_EXHAUSTED; at 16 times as much the connection does.",
              .why = "gRPC's own default is 16 KiB; what a call stores is bounded by it."),
    CONF_UINT(struct client_limits, header_fields, "header_fields", .unit = "fields", .min = 16,
              .max = 1000, .dflt = 128,
              .doc = "Header fields of a call, likewise; over 1000 the connection ends.",
              .why = "HAProxy has 101, Envoy 100; metadata of traced calls is some 30."),
    CONF_UINT(struct client_limits, header_frames, "header_frames", .unit = "frames", .min = 8,
              .max = 4096, .dflt = 64,
              .doc = "CONTINUATION frames of a header block that is over 4 KiB; a shorter one may "
                     "have 32 times as many; four of them may be empty.",
              .why = "CVE-2024-28182. A client that fills its frames needs 4, one that cuts them "
                     "in single bytes must pass."),
    CONF_UINT(struct client_limits, block_s, "block_s", .unit = "s", .max = HOUR_S, .dflt = 10,
              .doc = "From the first byte of a frame (but DATA) or header block to its last. 0: no "
                     "limit.",
              .why = "Slowloris; 16 KiB in 10 s is slower than any network in use."),
    CONF_UINT(struct client_limits, request_s, "request_s", .unit = "s", .max = HOUR_S, .dflt = 60,
              .doc = "From the headers of a call that is routed by its message until the message "
                     "has named the model: DEADLINE_EXCEEDED. 0: no limit.",
              .why = "Such a call belongs to no model yet, so no deadline_ms holds for it."),
    CONF_UINT(struct client_limits, stall_s, "stall_s", .unit = "s", .max = HOUR_S, .dflt = 60,
              .doc = "An answer that the client does not take, because its window or its socket is "
                     "full, is reset after this long (or half as long again); a connection that "
                     "takes nothing at all ends. 0: no limit.",
              .why = "CVE-2019-9517 and slow readers: each holds up to a window of memory."),
    CONF_UINT(struct client_limits, settings_ack_s, "settings_ack_s", .unit = "s", .max = HOUR_S,
              .dflt = 60,
              .doc =
                  "From our SETTINGS to the client's acknowledgement (looked at each half of it): "
                  "then SETTINGS_TIMEOUT. 0: no limit.",
              .why = "RFC 9113 6.5.3. Until it comes our limits do not bind the client; a network "
                     "that takes a minute for one round trip serves no calls."),
    CONF_UINT(struct client_limits, idle_s, "idle_s", .unit = "s", .max = 7 * 24 * HOUR_S,
              .dflt = HOUR_S,
              .doc = "A connection without a call that sends nothing for so long is drained. 0: no "
                     "limit.",
              .why = "An idle connection costs 4 KiB and a descriptor; gRPC clients dial anew."),
    CONF_UINT(struct client_limits, score, "score", .unit = "points", .min = 100, .max = 10000000,
              .dflt = 1000,
              .doc = "Frames that carry nothing: 1 point for PRIORITY, empty DATA, WINDOW_UPDATE, "
                     "GOAWAY and unknown ones, 5 for PING, 10 for SETTINGS. A DATA frame to the "
                     "client takes 4 back, a completed call 20. At 75 % the connection is drained, "
                     "over it closed.",
              .why = "CVE-2019-9512 to 9518. HAProxy advises hundreds to thousands."),
    CONF_UINT(struct client_limits, score_per_s, "score_per_s", .unit = "points/s", .max = 1000000,
              .dflt = 100, .doc = "What each second takes back.",
              .why = "20 PINGs or 10 SETTINGS a second for ever: BDP probes and keep-alives are "
                     "far below."),
    CONF_UINT(struct client_limits, resets, "resets", .unit = "calls", .min = 100, .max = 10000000,
              .dflt = 1000,
              .doc = "Calls of a connection that end early by its doing: cancelled, or reset by us "
                     "for its fault. A completed call takes one back. At 75 % the connection is "
                     "drained, over it closed.",
              .why = "CVE-2023-44487 and CVE-2025-8671: a connection costs at most so many "
                     "useless calls."),
    CONF_UINT(struct client_limits, resets_per_s, "resets_per_s", .unit = "calls/s", .max = 1000000,
              .dflt = 250, .doc = "What each second takes back.",
              .why = "A client that hedges cancels 200 calls/s and must live for ever; nghttp2's "
                     "33 cuts it off after seconds."),
    CONF_UINT(struct client_limits, pings, "pings", .unit = "PINGs", .min = 2, .max = 1000000,
              .dflt = 10,
              .doc = "PINGs without a call, each sooner than ping_interval_ms after the one "
                     "before: then GOAWAY too_many_pings. A completed call takes all back.",
              .why = "gRPC servers strike at 2; a client at one a second gets 10 s."),
    CONF_UINT(struct client_limits, ping_interval_ms, "ping_interval_ms", .unit = "ms",
              .max = 3600000, .dflt = 5000, .doc = "See pings. 0: they are not counted.",
              .why = "gRPC's least keep-alive is 10 s; half of it leaves room for jitter."),
    CONF_UINT(struct client_limits, answers_stop, "answers_stop", .unit = "frames", .min = 10,
              .max = 1000000, .dflt = 100,
              .doc = "PING and SETTINGS acks and resets that the client's socket does not take: "
                     "from here on it is not read.",
              .why = "grpc-go's figure. What the client does not read it may not ask for."),
    CONF_UINT(struct client_limits, answers_max, "answers_max", .unit = "frames", .min = 10,
              .max = 1000000, .dflt = 1000, .doc = "The same: the connection ends.",
              .why = "One read may bring thousands of PINGs before the socket can be asked."),
    CONF_UINT(struct client_limits, calls_per_connection, "calls_per_connection", .unit = "calls",
              .min = 1, .max = 1u << 30, .dflt = 3u << 28,
              .doc = "Stream ids that a client may use up, then the connection is drained.",
              .why = "75 % of the ids that there are: nobody meets the end of them. Less makes "
                     "clients spread anew over gateways."),
    CONF_UINT(struct client_limits, address_connections, "address_connections",
              .unit = "connections", .max = 10000000, .dflt = 1000,
              .doc = "Connections of one client address; over it the oldest of them without a call "
                     "makes room, else the new one is closed. 0: no limit.",
              .why = "One host must not take all of max_connections. Raise it where all clients "
                     "come through one balancer."),
    CONF_UINT(struct client_limits, address_resets, "address_resets", .unit = "calls",
              .max = 10000000, .dflt = 10000,
              .doc = "As resets, over all connections of one address: the connection that resets, "
                     "or makes us, is closed. 0: no limit.",
              .why = "A thousand connections that each stay under resets."),
    CONF_UINT(struct client_limits, address_resets_per_s, "address_resets_per_s", .unit = "calls/s",
              .max = 10000000, .dflt = 2000, .doc = "What each second takes back.",
              .why = "Ten connections of an aggregator that cancels 200 calls/s on each."),
    CONF_BOOL(struct client_limits, count_loopback, "count_loopback",
              .doc = "Count 127.0.0.0/8 and ::1 as an address, too. UNIX sockets have none.",
              .why = "On loopback every local process shares one address: sidecars, tests."),
    CONF_UINT(struct client_limits, memory_shrink_percent, "memory_shrink_percent", .unit = "%",
              .min = 1, .max = 100, .dflt = 80,
              .doc = "Of memory_mib in use: every upload gets a window of 64 KiB, until less than "
                     "three quarters of this are in use.",
              .why = "Envoy's first step, before anything is refused."),
    CONF_UINT(struct client_limits, memory_refuse_percent, "memory_refuse_percent", .unit = "%",
              .min = 1, .max = 100, .dflt = 90,
              .doc = "Of memory_mib in use: new calls are refused with REFUSED_STREAM, which "
                     "clients may repeat elsewhere.",
              .why = "What runs is worth more than what begins."),
    CONF_UINT(struct client_limits, memory_close_percent, "memory_close_percent", .unit = "%",
              .min = 1, .max = 100, .dflt = 95,
              .doc = "Of memory_mib in use: the calls whose bytes wait longest are ended.",
              .why = "Room for what the kernel and the heap take beside."),
    CONF_END,
};
const struct conf_table conf_client_limits_table = {
    .title = "limits of clients",
    .doc = "What a client may do on its connections; why: docs/limits.md. Also `relay --limit`.",
    .size = sizeof(struct client_limits),
    .fields = limits_fields,
};

static const struct conf_field *find(const struct conf_table *t, const char *key, size_t len)
{
    for (const struct conf_field *f = t->fields; f->kind != CONF_KIND_END; f++)
        if (f->why != NULL && strlen(f->key) == len && memcmp(f->key, key, len) == 0)
            return f;
    return NULL;
}

static int out_of_range(const struct conf_field *f, const char *value, struct err *err)
{
    if (f->kind == CONF_KIND_BOOL)
        return err_set(err, -EINVAL, "%s=%s: not true or false", f->key, value);
    return err_set(err, -EINVAL, "%s=%s: not a number from %" PRIu64 " to %" PRIu64 " %s", f->key,
                   value, f->min, f->max, f->unit);
}

int client_limits_set(struct process_conf *c, const char *text, struct err *err)
{
    const size_t len = strcspn(text, "=");
    const struct conf_field *f = find(&conf_client_limits_table, text, len);
    const char *const value = text[len] == '=' ? text + len + 1 : "";
    char *base = (char *)&c->limits, *end = NULL;
    uint64_t n;

    if (f == NULL) {
        f = find(&conf_process_table, text, len);
        base = (char *)c;
    }
    if (f == NULL)
        return err_set(err, -EINVAL, "\"%.*s\" is no limit; docs/limits.md lists them", (int)len,
                       text);
    if (f->kind == CONF_KIND_BOOL && (strcmp(value, "true") == 0 || strcmp(value, "false") == 0)) {
        *(bool *)(base + f->offset) = value[0] == 't';
        return 0;
    }
    errno = 0;
    n = strtoull(value, &end, 10);
    if (f->kind != CONF_KIND_UINT || value[0] < '0' || value[0] > '9' || *end != '\0' ||
        errno != 0 || n < f->min || n > f->max)
        return out_of_range(f, value, err);
    *(uint32_t *)(void *)(base + f->offset) = (uint32_t)n;
    return 0;
}
