/* conf/model_fields.c - the rows of models/NAME.json, queues.json and nodes.json. */
#include "conf/rules.h"
#include "conf/tables.h"

#define NAME_MAX_BYTES 128
#define TEXT_MAX_BYTES 4096
#define HOUR_MS        3600000
#define MILLI_MAX      1024000  /* 1,024 cores or cards in one machine */
#define MEMORY_MIB_MAX 67108864 /* 64 TiB */

static const char *const protocol_words[] = {
    [PROTOCOL_KSERVE] = "kserve",
    [PROTOCOL_TENSORFLOW] = "tensorflow",
    [PROTOCOL_GRPC] = "grpc",
    NULL,
};

static const char *const policy_words[] = {
    [POLICY_P2C] = "p2c",
    [POLICY_LEAST_INFLIGHT] = "least_inflight",
    [POLICY_ROUND_ROBIN] = "round_robin",
    NULL,
};

static const char *const dialect_words[] = {
    [DIALECT_AUTO] = "auto",           [DIALECT_TRITON] = "triton",
    [DIALECT_MLSERVER] = "mlserver",   [DIALECT_KSERVE] = "kserve",
    [DIALECT_TFSERVING] = "tfserving", [DIALECT_PENSTOCK] = "penstock",
    [DIALECT_PLAIN] = "plain",         NULL,
};

static const struct conf_field gpu_fields[] = {
    CONF_UINT(struct gpu_conf, milli, "milli", .unit = "thousandths of a card", .max = MILLI_MAX,
              .doc = "Share of one card, or whole cards (1000, 2000, ...). 0: no card."),
    CONF_UINT(struct gpu_conf, memory_mib, "memory_mib", .unit = "MiB", .max = MEMORY_MIB_MAX,
              .doc = "Memory on each card; a share of a card needs it. 0 with whole cards: all."),
    CONF_STRS(struct gpu_conf, models, "models", .max = 32, .max_value = NAME_MAX_BYTES,
              .doc = "Acceptable card models, best first. Empty: any."),
    CONF_END,
};
const struct conf_table conf_gpu_table = {
    .title = "gpu",
    .doc = "What one replica holds of the cards of its node.",
    .size = sizeof(struct gpu_conf),
    .fields = gpu_fields,
};

static const struct conf_field version_fields[] = {
    CONF_STRS(
        struct version_conf, command, "command", .max = 256, .max_value = TEXT_MAX_BYTES,
        .rule = conf_rule_argument,
        .doc = "Program and arguments of a replica that penstock starts. {address}, {host}, "
               "{port}, {model}, {version}, {replica}, {node} and {cards} are filled in. It runs "
               "in penstock's own folder, with penstock's environment and `PORT`, "
               "`PENSTOCK_ADDRESS`, `PENSTOCK_NODE`, `PENSTOCK_MODEL`, `PENSTOCK_VERSION`, "
               "`PENSTOCK_REPLICA`, `CUDA_VISIBLE_DEVICES` (its cards), and for a share of a "
               "card `CUDA_MPS_ACTIVE_THREAD_PERCENTAGE` and "
               "`CUDA_MPS_PINNED_DEVICE_MEM_LIMIT`."),
    CONF_STRS(struct version_conf, endpoints, "endpoints", .max = 1024,
              .max_value = NAME_MAX_BYTES * 2, .rule = conf_rule_endpoint,
              .doc = "Addresses of replicas that somebody else runs and that serve this version."),
    CONF_STR(struct version_conf, image, "image", .max = 512,
             .doc = "Container image, for drivers that start containers."),
    CONF_UINT(struct version_conf, cpu_milli, "cpu_milli", .unit = "thousandths of a core",
              .max = MILLI_MAX, .dflt = 500,
              .doc = "CPU that the placer sets aside for a replica."),
    CONF_UINT(struct version_conf, memory_mib, "memory_mib", .unit = "MiB", .max = MEMORY_MIB_MAX,
              .dflt = 256, .doc = "Memory that the placer sets aside for a replica."),
    CONF_OBJECT(struct version_conf, gpu, "gpu", .table = &conf_gpu_table,
                .doc = "Share of a card; see `gpu`."),
    CONF_UINT(struct version_conf, slots, "slots", .unit = "calls", .max = 65536,
              .doc =
                  "Calls that one replica works on at once; more wait in the gateway. 0: no limit "
                  "and no queue."),
    CONF_UINT(struct version_conf, start_timeout_ms, "start_timeout_ms", .unit = "ms", .min = 100,
              .max = HOUR_MS, .dflt = 60000,
              .doc = "A replica that is started and not ready this long is started anew."),
    CONF_END,
};
static const struct conf_table version_table = {
    .title = "version",
    .doc =
        "One version of the model. It has a `command` (penstock starts its replicas), `endpoints` "
        "(somebody else does), or neither when the model has `endpoints`.",
    .size = sizeof(struct version_conf),
    .fields = version_fields,
};

static const struct conf_field scaling_fields[] = {
    CONF_UINT(struct scaling_conf, min, "min", .unit = "replicas", .max = 1000, .dflt = 1,
              .doc = "Replicas of each version with traffic, at least."),
    CONF_UINT(struct scaling_conf, max, "max", .unit = "replicas", .min = 1, .max = 1000, .dflt = 4,
              .doc = "Replicas of each version with traffic, at most."),
    CONF_UINT(struct scaling_conf, target_inflight, "target_inflight", .unit = "calls",
              .max = 1000000,
              .doc = "Calls in flight for each replica to aim for. 0: the version's slots, or 4."),
    CONF_UINT(struct scaling_conf, target_qps, "target_qps", .unit = "calls/s", .max = 10000000,
              .doc = "Calls per second for each replica to aim for. 0: not used."),
    CONF_UINT(struct scaling_conf, stable_window_s, "stable_window_s", .unit = "s", .min = 6,
              .max = 600, .dflt = 60, .doc = "Load is averaged over this window."),
    CONF_UINT(struct scaling_conf, burst_window_s, "burst_window_s", .unit = "s", .min = 1,
              .max = 600, .dflt = 6,
              .doc = "A shorter window that takes over when load at least doubles."),
    CONF_UINT(struct scaling_conf, scale_down_delay_s, "scale_down_delay_s", .unit = "s",
              .max = 86400, .dflt = 60, .doc = "Fewer replicas only after this long of less load."),
    CONF_UINT(struct scaling_conf, warm_s, "warm_s", .unit = "s", .max = 86400, .dflt = 300,
              .doc = "When a change takes traffic from a version, its replicas are kept this long, "
                     "ready for a rollback."),
    CONF_UINT(struct scaling_conf, idle_s, "idle_s", .unit = "s", .max = 86400,
              .doc = "With min 0: no replica after this long without a call. 0: never none."),
    CONF_END,
};
static const struct conf_table scaling_table = {
    .title = "scaling",
    .doc = "How many replicas a version gets.",
    .size = sizeof(struct scaling_conf),
    .fields = scaling_fields,
};

static const struct conf_field limits_fields[] = {
    CONF_UINT(struct limits_conf, message_mib, "message_mib", .unit = "MiB", .max = 4095,
              .dflt = 64, .doc = "Largest message, either way. 0: no limit.",
              .why = "gRPC's 4 MiB is too small for tensors of images; a message is passed on as "
                     "it comes and not held whole."),
    CONF_UINT(struct limits_conf, deadline_ms, "deadline_ms", .unit = "ms", .max = HOUR_MS,
              .doc = "Deadline of calls that bring no grpc-timeout. 0: none.",
              .why = "Streaming calls run for hours; give one where calls are short."),
    CONF_BOOL(struct limits_conf, idempotent, "idempotent",
              .doc = "A call may be started again after it reached a replica."),
    CONF_UINT(struct limits_conf, replay_kib, "replay_kib", .unit = "KiB", .max = 65536, .dflt = 64,
              .doc = "Bytes of a request that are kept for a second attempt."),
    CONF_UINT(struct limits_conf, queue_length, "queue_length", .unit = "calls", .min = 1,
              .max = 1000000, .dflt = 1000,
              .doc = "Calls that wait for a slot, per gateway worker; past it RESOURCE_EXHAUSTED."),
    CONF_UINT(struct limits_conf, attempts, "attempts", .min = 1, .max = 10, .dflt = 3,
              .doc = "Attempts of one call in total."),
    CONF_END,
};
static const struct conf_table limits_table = {
    .title = "limits",
    .doc = "What a call may use.",
    .size = sizeof(struct limits_conf),
    .fields = limits_fields,
};

static const struct conf_field model_fields[] = {
    CONF_STR(struct model_raw, conf.name, "model", .required = true, .min = 1,
             .max = NAME_MAX_BYTES, .rule = conf_rule_name,
             .doc = "Name of the model, as calls give it."),
    CONF_ENUM(struct model_raw, conf.protocol, "protocol", .words = protocol_words,
              .dflt = PROTOCOL_KSERVE,
              .doc = "`kserve` and `tensorflow` calls are routed by the model name in their first "
                     "message, `grpc` calls by their service."),
    CONF_STR(struct model_raw, conf.description, "description", .max = TEXT_MAX_BYTES,
             .doc = "For people."),
    CONF_ENUM(struct model_raw, conf.policy, "policy", .words = policy_words, .dflt = POLICY_P2C,
              .doc = "How a replica is picked."),
    CONF_ENUM(struct model_raw, conf.dialect, "dialect", .words = dialect_words,
              .dflt = DIALECT_AUTO,
              .doc = "How the replicas speak of health and versions; `auto` probes."),
    {.key = "services",
     .kind = CONF_KIND_STRS,
     .offset = offsetof(struct model_raw, conf.services),
     .count_offset = offsetof(struct model_raw, conf.n_services),
     .max = 256,
     .max_value = 512,
     .rule = conf_rule_service,
     .doc = "Protocol `grpc`: full names of the services, or \"*\" for every other path."},
    {.key = "endpoints",
     .kind = CONF_KIND_STRS,
     .offset = offsetof(struct model_raw, conf.endpoints),
     .count_offset = offsetof(struct model_raw, conf.n_endpoints),
     .max = 1024,
     .max_value = NAME_MAX_BYTES * 2,
     .rule = conf_rule_endpoint,
     .doc = "Addresses of replicas that hold every version (Triton, TF-Serving): the gateway tells "
            "them the version that it chose."},
    {.key = "versions",
     .kind = CONF_KIND_MAP,
     .offset = offsetof(struct model_raw, conf.versions),
     .count_offset = offsetof(struct model_raw, conf.n_versions),
     .max = VERSIONS_MAX,
     .table = &version_table,
     .key_rule = conf_rule_name,
     .doc = "Versions by name; see `version`. May be left out when the model has `endpoints`: then "
            "the servers choose."},
    CONF_PAIRS(struct model_raw, labels, "labels", .of = CONF_KIND_STR, .max = 64,
               .max_value = NAME_MAX_BYTES, .key_rule = conf_rule_name,
               .doc = "Names for versions (`stable`, `canary`) that calls may give instead."),
    CONF_PAIRS(struct model_raw, traffic, "traffic", .of = CONF_KIND_UINT, .max = 64,
               .max_value = WEIGHT_WHOLE, .unit = "parts of 10000",
               .doc =
                   "Weight of each version for calls that name none; they sum to 10000. A version "
                   "that is not listed gets none. May be left out with one version."),
    CONF_OBJECT(struct model_raw, conf.scaling, "scaling", .table = &scaling_table,
                .doc = "See `scaling`."),
    CONF_OBJECT(struct model_raw, conf.limits, "limits", .table = &limits_table,
                .doc = "See `limits`."),
    CONF_OBJECT(struct model_raw, conf.tls, "tls", .table = &conf_upstream_tls_table,
                .doc = "To the endpoints; see `tls`."),
    CONF_END,
};
const struct conf_table conf_model_table = {
    .title = "models/NAME.json",
    .doc = "One model: its versions, how calls are split over them, how it scales.",
    .size = sizeof(struct model_raw),
    .fields = model_fields,
};

static const struct conf_field card_fields[] = {
    CONF_STR(struct card_conf, id, "id", .required = true, .min = 1, .max = NAME_MAX_BYTES,
             .rule = conf_rule_name,
             .doc = "What CUDA_VISIBLE_DEVICES gets: an index or the UUID of the card."),
    CONF_STR(struct card_conf, model, "model", .max = NAME_MAX_BYTES,
             .doc = "Model of the card, as `gpu.models` names it."),
    CONF_UINT(struct card_conf, memory_mib, "memory_mib", .required = true, .unit = "MiB", .min = 1,
              .max = MEMORY_MIB_MAX, .doc = "Memory of the card."),
    CONF_END,
};
static const struct conf_table card_table = {
    .title = "card",
    .doc = "One GPU of a node.",
    .size = sizeof(struct card_conf),
    .fields = card_fields,
};

static const struct conf_field node_fields[] = {
    CONF_UINT(struct node_conf, cpu_milli, "cpu_milli", .required = true,
              .unit = "thousandths of a core", .min = 1, .max = MILLI_MAX,
              .doc = "CPU that may be set aside for replicas and tasks."),
    CONF_UINT(struct node_conf, memory_mib, "memory_mib", .required = true, .unit = "MiB", .min = 1,
              .max = MEMORY_MIB_MAX, .doc = "Memory, likewise."),
    CONF_LIST(struct node_conf, cards, "cards", .max = 16, .table = &card_table,
              .doc = "Its GPUs; see `card`."),
    CONF_END,
};
static const struct conf_table node_table = {
    .title = "nodes.json",
    .doc = "Static inventory for the local driver, by the name of the node. Without this file the "
           "driver looks for itself.",
    .size = sizeof(struct node_conf),
    .fields = node_fields,
};
const struct conf_field conf_nodes_field = {
    .key = "nodes.json",
    .kind = CONF_KIND_MAP,
    .offset = offsetof(struct generation, nodes),
    .count_offset = offsetof(struct generation, n_nodes),
    .max = 4096,
    .table = &node_table,
    .key_rule = conf_rule_name,
    .doc = "Nodes by name.",
};

static const char *const queue_order_words[] = {
    [QUEUE_ORDER_FIFO] = "fifo",
    [QUEUE_ORDER_SRTF] = "srtf",
    [QUEUE_ORDER_SRSF] = "srsf",
    NULL,
};

static const struct conf_field queue_fields[] = {
    CONF_UINT(struct queue_conf, weight, "weight", .min = 1, .max = 1000000, .dflt = 1,
              .doc = "Share of the cluster, against the other queues."),
    CONF_ENUM(
        struct queue_conf, order, "order", .words = queue_order_words, .dflt = QUEUE_ORDER_FIFO,
        .doc = "Of waiting jobs of one priority goes first: the oldest (`fifo`), the one with "
               "the least `estimate_s` (`srtf`), with the least `estimate_s` times cards "
               "(`srsf`). Those without an estimate come last, by age. What runs stays. Other "
               "than `fifo`, set max_wait_s too, or long jobs may wait for ever."),
    CONF_UINT(struct queue_conf, gpu_milli_cap, "gpu_milli_cap", .unit = "thousandths of a card",
              .max = 1024000000, .doc = "Cards that its jobs may hold together. 0: no cap."),
    CONF_UINT(struct queue_conf, gpu_milli_deserved, "gpu_milli_deserved",
              .unit = "thousandths of a card", .max = 1024000000,
              .doc =
                  "Cards that are its own. A gang of it that waits while it holds fewer ends gangs "
                  "of queues that keep what they deserve without them. 0: it takes nothing back, "
                  "and all that it holds can be taken back. At most gpu_milli_cap."),
    CONF_BOOL(struct queue_conf, preempt, "preempt",
              .doc =
                  "A gang that waits ends gangs of strictly lower priority of this queue when that "
                  "makes room for it. They wait again, and start anew; that is no failure."),
    CONF_UINT(struct queue_conf, max_wait_s, "max_wait_s", .unit = "s", .max = 31536000,
              .doc =
                  "A job that has waited so long goes before all others, of every queue, and they "
                  "start only where they leave it its room. 0: other queues never wait for it."),
    CONF_UINT(struct queue_conf, min_run_s, "min_run_s", .unit = "s", .max = 604800, .dflt = 60,
              .doc = "A gang of this queue runs at least so long before it is ended for another."),
    CONF_END,
};
static const struct conf_table queue_table = {
    .title = "queues.json",
    .doc = "Accounts for batch jobs, by name. Without this file there is one: `default`.",
    .size = sizeof(struct queue_conf),
    .fields = queue_fields,
};
const struct conf_field conf_queues_field = {
    .key = "queues.json",
    .kind = CONF_KIND_MAP,
    .offset = offsetof(struct generation, queues),
    .count_offset = offsetof(struct generation, n_queues),
    .max = 1024,
    .table = &queue_table,
    .key_rule = conf_rule_name,
    .doc = "Queues by name.",
};
