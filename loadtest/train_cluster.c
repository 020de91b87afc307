#include "loadtest/train_cluster.h"

#include <errno.h>
#include <jansson.h> /* loadtest/ may not include conf/, where JSON is read otherwise */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A number of 0..max, or false. */
static bool read_number(const char *text, uint32_t max, uint32_t *ret)
{
    char *end;

    errno = 0;
    const unsigned long v = text != NULL ? strtoul(text, &end, 10) : 0;
    if (text == NULL || text[0] < '0' || text[0] > '9' || *end != '\0' || errno != 0 || v > max)
        return false;
    *ret = (uint32_t)v;
    return true;
}

static int read_torch(const struct train_env *env, struct train_cluster *c, struct err *err)
{
    uint32_t rank, world, port;
    const char *addr = env->master_addr;

    if (!read_number(env->world_size, TRAIN_MAX_WORKERS, &world) || world == 0)
        return err_set(err, -EINVAL, "WORLD_SIZE=%s: not a number from 1 to %u", env->world_size,
                       TRAIN_MAX_WORKERS);
    if (world == 1)
        return 0;
    if (!read_number(env->rank, world - 1, &rank))
        return err_set(err, -EINVAL, "RANK=%s: not a number from 0 to %u (WORLD_SIZE - 1)",
                       env->rank != NULL ? env->rank : "", world - 1);
    if (!read_number(env->master_port, 65535, &port) || port == 0)
        return err_set(err, -EINVAL, "MASTER_PORT=%s: not a number from 1 to 65535",
                       env->master_port != NULL ? env->master_port : "");
    if (addr == NULL || addr[0] == '\0' || strlen(addr) + 9 > sizeof(c->ps))
        return err_set(err, -EINVAL, "MASTER_ADDR=%.64s: not a host of 1 to 119 characters",
                       addr != NULL ? addr : "");
    c->role = rank == 0 ? TRAIN_HOST : TRAIN_WORKER;
    c->worker = rank;
    c->n_workers = world;
    /* a bare IPv6 address has colons: "[::1]:80" */
    snprintf(c->ps, sizeof(c->ps), strchr(addr, ':') != NULL ? "[%.119s]:%u" : "%.119s:%u", addr,
             port);
    return 0;
}

/* How many addresses the cluster has of a kind; *ret_first: the first one, or NULL. */
static size_t members(json_t *cluster, const char *type, const char **ret_first)
{
    json_t *list = json_object_get(cluster, type);

    *ret_first = json_string_value(json_array_get(list, 0));
    return json_array_size(list);
}

static int read_task(json_t *root, struct train_cluster *c, struct err *err)
{
    json_t *cluster = json_object_get(root, "cluster");
    json_t *task = json_object_get(root, "task");
    const char *type = json_string_value(json_object_get(task, "type"));
    const json_t *index_json = json_object_get(task, "index");
    const char *ps, *chief, *worker;
    const size_t n_ps = members(cluster, "ps", &ps);
    const size_t n_chief = members(cluster, "chief", &chief);
    const size_t n_workers = n_chief + members(cluster, "worker", &worker);
    const json_int_t index = json_integer_value(index_json);

    if (type == NULL || !json_is_integer(index_json) || index < 0)
        return err_set(err, -EINVAL, "TF_CONFIG: task needs a type and an index");
    if (n_ps > 1 || n_chief > 1)
        return err_set(err, -EINVAL, "TF_CONFIG: %zu ps and %zu chief: at most one of each", n_ps,
                       n_chief);
    if (n_workers == 0 || n_workers > TRAIN_MAX_WORKERS)
        return err_set(err, -EINVAL, "TF_CONFIG: %zu workers, not 1 to %u", n_workers,
                       TRAIN_MAX_WORKERS);
    c->n_workers = (uint32_t)n_workers;
    if (strcmp(type, "ps") == 0 && index < (json_int_t)n_ps) {
        c->role = TRAIN_PS;
    } else if (strcmp(type, "chief") == 0 && index < (json_int_t)n_chief) {
        c->role = TRAIN_WORKER;
    } else if (strcmp(type, "worker") == 0 && index < (json_int_t)(n_workers - n_chief)) {
        c->role = TRAIN_WORKER;
        c->worker = (uint32_t)((size_t)index + n_chief);
    } else {
        return err_set(err, -EINVAL, "TF_CONFIG: task %.32s %lld is not in the cluster", type,
                       (long long)index);
    }
    if (n_ps == 0 && n_workers == 1) {
        *c = (struct train_cluster){.role = TRAIN_ALONE};
        return 0;
    }
    if (n_ps == 0 && c->worker == 0)
        c->role = TRAIN_HOST;

    const char *address = n_ps > 0 ? ps : n_chief > 0 ? chief : worker;
    if (address == NULL || strlen(address) >= sizeof(c->ps))
        return err_set(err, -EINVAL,
                       "TF_CONFIG: the first %s has no address of up to %zu characters",
                       n_ps > 0 ? "ps" : "worker", sizeof(c->ps) - 1);
    memcpy(c->ps, address, strlen(address) + 1);
    return 0;
}

int train_cluster_read(const struct train_env *env, struct train_cluster *ret_cluster,
                       struct err *err)
{
    json_error_t where;

    *ret_cluster = (struct train_cluster){.role = TRAIN_ALONE};
    if (env->tf_config == NULL || env->tf_config[0] == '\0')
        return env->world_size != NULL ? read_torch(env, ret_cluster, err) : 0;

    json_t *root = json_loads(env->tf_config, JSON_REJECT_DUPLICATES, &where);
    if (root == NULL)
        return err_set(err, -EINVAL, "TF_CONFIG: no JSON: %s at character %d", where.text,
                       where.position);
    const int r = read_task(root, ret_cluster, err);
    json_decref(root);
    return r;
}
