/* loadtest/train_cluster.h - who a training process is: read from what a job driver sets.
 *
 * Called by: train_main.c.
 * Thread:    any; no state.
 * Source:    TensorFlow's TF_CONFIG ({"cluster": {"ps": ["host:port"], "worker": [...]}, "task":
 *            {"type": "worker", "index": 0}}; "chief" is the first worker); PyTorch's MASTER_ADDR,
 *            MASTER_PORT, RANK and WORLD_SIZE.
 *
 * TF_CONFIG goes first when both are there. Without a "ps" in it, and with PyTorch's variables
 * alone, the first worker (rank 0) is the parameter server as well.
 */
#ifndef LOADTEST_TRAIN_CLUSTER_H
#define LOADTEST_TRAIN_CLUSTER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

enum train_role {
    TRAIN_ALONE = 0, /* nothing is set, or a world of one */
    TRAIN_PS,        /* keeps the parameters */
    TRAIN_WORKER,    /* computes gradients */
    TRAIN_HOST,      /* both: keeps them, and is worker 0 */
};

struct train_cluster {
    enum train_role role;
    uint32_t worker;    /* of WORKER and HOST */
    uint32_t n_workers; /* 1..TRAIN_MAX_WORKERS */
    char ps[128];       /* address: PS and HOST listen on it, workers dial it */
};

#define TRAIN_MAX_WORKERS 1024u

/* The variables' values; NULL: not set. */
struct train_env {
    const char *tf_config, *master_addr, *master_port, *rank, *world_size;
};
/* 0, or -EINVAL with err that names the variable, its value and the rule. */
int train_cluster_read(const struct train_env *env, struct train_cluster *ret_cluster,
                       struct err *err);

#endif
