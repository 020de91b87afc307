/* conf/snapshot.h - a generation compiled for routing + the endpoints known now: what workers read.
 *
 * Owns:      everything in it, in one arena; holds a reference on its generation.
 * Called by: built on the control thread (conf/snapshot.c); read by balancer/ and gateway/.
 * Lifetime:  snapshot_ref / snapshot_unref; immutable once built; the last unref frees, any thread.
 * Thread:    any reader; the reference count is atomic, and touched per snapshot, not per call.
 */
#ifndef CONF_SNAPSHOT_H
#define CONF_SNAPSHOT_H

#include "conf/model.h"

struct generation; /* conf/generation.h */

enum endpoint_state {
    ENDPOINT_STARTING = 0, /* known, not ready yet: no calls */
    ENDPOINT_READY,
    ENDPOINT_UNHEALTHY, /* the prober says no: calls only when nobody is ready */
    ENDPOINT_DRAINING,  /* no new calls, running ones end */
};

struct snap_endpoint {
    const char *address; /* identity: "127.0.0.1:9001" */
    const char *replica; /* name for messages: "digits/2#3"; the address for static ones */
    enum endpoint_state state;
    uint32_t weight; /* relative capacity, >= 1; 1000 = one whole card or an unweighted one */
};

struct snap_version {
    const struct version_conf *conf;
    uint32_t weight; /* of WEIGHT_WHOLE */
    const struct snap_endpoint **endpoints;
    size_t n_endpoints;
    bool shared_endpoints; /* the server holds several versions: tell it which (append the field) */
};

struct snap_model {
    const struct model_conf *conf;
    struct snap_version *versions; /* same order as conf->versions */
    size_t n_versions;
};

struct snapshot {
    uint64_t generation; /* number of the config; 0: relay without files */
    uint64_t epoch;      /* rises with every snapshot: config or endpoint change */
    struct snap_model *models;
    size_t n_models;
};

struct snapshot *snapshot_ref(struct snapshot *s);
void snapshot_unref(struct snapshot *s);

/* NULL: no such model / service. KServe and TF-Serving models by name; plain services by path. */
const struct snap_model *snapshot_model(const struct snapshot *s, enum model_protocol protocol,
                                        const char *name, size_t name_len);
/* service: "package.Service"; falls back to the model that has "*". */
const struct snap_model *snapshot_service(const struct snapshot *s, const char *service,
                                          size_t service_len);
/* Index of a version by its name or by a label; -1: unknown. */
int snap_model_version(const struct snap_model *m, const char *name, size_t name_len);

/* What is known now about replicas, each (version, address) once; the builder copies it. */
struct endpoint_input {
    const char *model;
    const char *version; /* NULL: serves every version of model */
    const char *address;
    const char *replica;
    enum endpoint_state state;
    uint32_t weight;
};
/* Another weight than the config's, while a version takes over. Before the snapshot is shared. */
void snapshot_set_weight(struct snapshot *s, const char *model, const char *version,
                         uint32_t weight);
/* Static endpoints of the config are added by the builder, in the state that this says; NULL:
 * ready. Per version, since one server may be ready for one version and not for another. */
typedef enum endpoint_state (*endpoint_state_fn)(void *arg, const char *model, const char *version,
                                                 const char *address);
struct snapshot *snapshot_build(struct generation *gen, uint64_t epoch,
                                const struct endpoint_input *inputs, size_t n_inputs,
                                endpoint_state_fn static_state, void *arg);

#endif
