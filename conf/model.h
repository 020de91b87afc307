/* conf/model.h - what an operator wrote about one model: plain data out of models/NAME.json.
 *
 * Owns:      its strings and arrays (one arena per generation, see conf/generation.h).
 * Called by: the loader writes it; snapshot, controller and admin read it.
 * Lifetime:  that of its generation; immutable after the load.
 * Thread:    any reader.
 */
#ifndef CONF_MODEL_H
#define CONF_MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define WEIGHT_WHOLE 10000u /* weights are parts of 10,000 */

#define VERSIONS_MAX 64u /* of one model */

/* The one version of a model that has `endpoints` and names no versions: whatever version a call
 * asks for, or none, passes unchanged and the server decides. */
#define VERSION_ANY "*"

enum model_protocol { PROTOCOL_KSERVE = 0, PROTOCOL_TENSORFLOW, PROTOCOL_GRPC };
enum model_policy { POLICY_P2C = 0, POLICY_LEAST_INFLIGHT, POLICY_ROUND_ROBIN };
/* How a pool's servers speak of health and versions; AUTO probes. */
enum model_dialect {
    DIALECT_AUTO = 0,
    DIALECT_TRITON,
    DIALECT_MLSERVER,
    DIALECT_KSERVE,
    DIALECT_TFSERVING,
    DIALECT_PENSTOCK,
    DIALECT_PLAIN
};

struct gpu_conf {
    uint32_t milli;      /* thousandths of one card (or whole cards: 1000, 2000, ...) */
    uint32_t memory_mib; /* per card */
    const char **models; /* acceptable card models in order of preference; empty: any */
    size_t n_models;
};

struct version_conf {
    const char *name;
    const char **command; /* of a replica; {address}, {port}, {model}, ... are filled in.
                             Empty: not started by us */
    size_t n_command;
    const char **endpoints; /* static replicas that serve this version */
    size_t n_endpoints;
    const char *image;
    uint32_t cpu_milli;
    uint32_t memory_mib;
    struct gpu_conf gpu;
    uint32_t slots;            /* calls that one replica works on at once; 0: no limit, no queue */
    uint32_t start_timeout_ms; /* started and not ready this long: restart */
};

struct label_conf {
    const char *name;
    uint32_t version; /* index into versions */
};

struct scaling_conf {
    uint32_t min, max;        /* replicas per version with traffic */
    uint32_t target_inflight; /* calls per replica to aim for; 0: slots, or 4 */
    uint32_t target_qps;      /* per replica; 0: not used */
    uint32_t stable_window_s; /* KPA-like; default 60 */
    uint32_t burst_window_s;  /* default 6 */
    uint32_t scale_down_delay_s;
    uint32_t warm_s; /* the replicas of a split that was replaced are kept this long */
    uint32_t idle_s; /* min 0: no replica after this long without a call; 0: never none */
};

struct limits_conf {
    uint32_t
        message_mib; /* largest message, either way; RESOURCE_EXHAUSTED names it; 0: no limit */
    uint32_t deadline_ms;  /* for calls that bring none; 0: none */
    bool idempotent;       /* may be started again after it reached a replica */
    uint32_t replay_kib;   /* request bytes kept for a second attempt */
    uint32_t queue_length; /* calls waiting for a slot, per worker; past it RESOURCE_EXHAUSTED */
    uint32_t attempts;     /* at most, in total */
};

enum upstream_tls { UPSTREAM_TLS_OFF = 0, UPSTREAM_TLS_VERIFY, UPSTREAM_TLS_NO_VERIFY };

struct upstream_tls_conf {
    int mode;         /* enum upstream_tls */
    const char *ca;   /* file; empty: the system's */
    const char *cert; /* file; empty: we show none */
    const char *key;  /* file */
    const char *name; /* that the certificate must have; empty: the address's host */
};

struct model_conf {
    const char *name;
    const char *file; /* for messages */
    const char *description;
    enum model_protocol protocol;
    enum model_policy policy;
    enum model_dialect dialect;
    const char **services; /* PROTOCOL_GRPC: full service names, or "*" for every other path */
    size_t n_services;
    const char **endpoints; /* static replicas that serve every version */
    size_t n_endpoints;
    struct version_conf *versions;
    size_t n_versions;
    struct label_conf *labels;
    size_t n_labels;
    uint32_t *traffic; /* n_versions weights that sum to WEIGHT_WHOLE */
    struct scaling_conf scaling;
    struct limits_conf limits;
    struct upstream_tls_conf tls; /* to the endpoints */
};

#endif
