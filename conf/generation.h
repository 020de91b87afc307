/* conf/generation.h - one immutable, numbered, complete config: all models, queues, nodes.
 *
 * Owns:      all its data, in one arena.
 * Called by: loader (makes), controller (numbers, keeps history), snapshot_build (reads).
 * Lifetime:  generation_ref / generation_unref; immutable once loaded.
 * Thread:    any reader; the count is atomic.
 */
#ifndef CONF_GENERATION_H
#define CONF_GENERATION_H

#include "base/arena.h"
#include "base/buf.h"
#include "conf/model.h"

struct card_conf {
    const char *id; /* "0", or a GPU uuid: what CUDA_VISIBLE_DEVICES gets */
    const char *model;
    uint32_t memory_mib;
};

struct node_conf {
    const char *name;
    uint32_t cpu_milli;
    uint32_t memory_mib;
    struct card_conf *cards;
    size_t n_cards;
    bool declared; /* cards come from nodes.json, not from the driver's inventory */
};

/* In which order a queue's jobs of one priority are tried: placer/order.h. */
enum queue_order { QUEUE_ORDER_FIFO = 0, QUEUE_ORDER_SRTF, QUEUE_ORDER_SRSF };

struct queue_conf {
    const char *name;
    enum queue_order order;
    uint32_t weight;
    uint32_t gpu_milli_cap; /* 0: none */
    uint32_t gpu_milli_deserved;
    bool preempt;
    uint32_t max_wait_s; /* 0: none */
    uint32_t min_run_s;  /* its jobs run so long before they are ended for others */
};

struct generation {
    struct arena arena;
    uint32_t refs;
    uint64_t number;           /* 0 until the controller numbers it */
    struct model_conf *models; /* sorted by name */
    size_t n_models;
    struct node_conf *nodes;
    size_t n_nodes;
    struct queue_conf *queues;
    size_t n_queues;
    const char *author, *reason; /* filled by apply */
    uint64_t created_us;         /* wall clock */
    const char *source_json;     /* canonical text (compact, keys sorted) of the whole tree, for
                                    history, diff and rollback */
};

/* Every problem found in one load; printed one per line: `models/ctr.json#/traffic/2: ...`. */
struct conf_problems {
    struct buf text; /* lines */
    size_t n;
};
void conf_problems_init(struct conf_problems *p);
void conf_problems_fini(struct conf_problems *p);

/* Load DIR/models/ *.json, queues.json, nodes.json. NULL when anything is wrong: problems has all
 * of it (also I/O errors). */
struct generation *generation_load_dir(const char *dir, struct conf_problems *problems);
/* The same from one JSON text: {"models": {"ctr.json": {...}}, "queues": {...}, "nodes": {...}},
 * the last two optional = source_json. "models" may be empty here: the gateway then knows no model.
 */
struct generation *generation_load_text(const char *json, size_t len,
                                        struct conf_problems *problems);
/* One catch-all gRPC model over these addresses: `penstock relay`. tls: NULL: cleartext. */
struct generation *generation_for_relay(const char *const *addresses, size_t n,
                                        enum model_policy policy,
                                        const struct upstream_tls_conf *tls,
                                        struct conf_problems *problems);

struct generation *generation_ref(struct generation *g);
void generation_unref(struct generation *g);

#endif
