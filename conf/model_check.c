/* conf/model_check.c - what a table row can't say: rules between keys, versions, files. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "conf/nearest.h"
#include "conf/tables.h"

#define CARD_MILLI 1000u

static int find_version(const struct model_conf *m, const char *name)
{
    for (size_t i = 0; i < m->n_versions; i++) {
        if (strcmp(m->versions[i].name, name) == 0)
            return (int)i;
    }
    return -1;
}

static void unknown_version(struct conf_load *l, const struct model_conf *m, const char *key,
                            const char *version)
{
    char shown[CONF_QUOTE_BYTES];
    struct nearest near;

    nearest_init(&near, version);
    for (size_t i = 0; i < m->n_versions; i++) {
        if (strcmp(m->versions[i].name, VERSION_ANY) != 0)
            nearest_offer(&near, m->versions[i].name);
    }
    conf_problem_at(&l->where, key, "%s is not a version of this model%s%s",
                    conf_quote(shown, sizeof(shown), version),
                    near.best == NULL ? "" : "; nearest: ", near.best == NULL ? "" : near.best);
}

static void finish_labels(struct conf_load *l, struct model_raw *raw)
{
    struct model_conf *const m = &raw->conf;
    const size_t mark = conf_where_key(&l->where, "labels");

    m->labels = arena_alloc(l->arena, (raw->n_labels + 1) * sizeof(*m->labels));
    for (size_t i = 0; m->labels != NULL && i < raw->n_labels; i++) {
        const struct conf_pair *const p = &raw->labels[i];
        const int version = find_version(m, p->text);

        if (version < 0) {
            unknown_version(l, m, p->key, p->text);
            continue;
        }
        if (find_version(m, p->key) >= 0 || strspn(p->key, "0123456789") == strlen(p->key))
            conf_problem_at(&l->where, p->key,
                            "a label must not be a number or the name of a version");
        m->labels[m->n_labels++] =
            (struct label_conf){.name = p->key, .version = (uint32_t)version};
    }
    conf_where_up(&l->where, mark);
}

static void finish_traffic(struct conf_load *l, struct model_raw *raw, size_t n_written)
{
    struct model_conf *const m = &raw->conf;
    uint64_t sum = 0;

    m->traffic = arena_alloc(l->arena, (m->n_versions + 1) * sizeof(*m->traffic));
    if (m->traffic == NULL)
        return;
    if (n_written == 0) {
        if (m->n_versions == 1)
            m->traffic[0] = WEIGHT_WHOLE;
        else
            conf_problem_at(&l->where, "traffic",
                            "is missing; with %zu versions it is required: parts of %u",
                            m->n_versions, WEIGHT_WHOLE);
        return;
    }
    const size_t mark = conf_where_key(&l->where, "traffic");
    bool all_known = raw->n_traffic == n_written;

    for (size_t i = 0; i < raw->n_traffic; i++) {
        const int version = find_version(m, raw->traffic[i].key);

        if (version < 0) {
            unknown_version(l, m, raw->traffic[i].key, raw->traffic[i].key);
            all_known = false;
            continue;
        }
        m->traffic[version] = raw->traffic[i].number;
        sum += raw->traffic[i].number;
    }
    if (all_known && sum != WEIGHT_WHOLE)
        conf_problem(&l->where, "the weights sum to %" PRIu64 ", not to %u parts", sum,
                     WEIGHT_WHOLE);
    conf_where_up(&l->where, mark);
}

static void check_gpu(struct conf_load *l, const struct gpu_conf *gpu)
{
    if (gpu->milli > CARD_MILLI && gpu->milli % CARD_MILLI != 0)
        conf_problem_at(&l->where, "milli",
                        "%u is over one card and not whole cards: up to %u, or a multiple of it",
                        gpu->milli, CARD_MILLI);
    if (gpu->milli > 0 && gpu->milli < CARD_MILLI && gpu->memory_mib == 0)
        conf_problem_at(&l->where, "memory_mib",
                        "is missing; a share of a card (gpu.milli %u) needs its memory in MiB",
                        gpu->milli);
    if (gpu->milli == 0 && (gpu->memory_mib > 0 || gpu->n_models > 0))
        conf_problem_at(&l->where, "milli",
                        "0 with gpu.%s: a replica on a card needs 1 to %u thousandths of it",
                        gpu->memory_mib > 0 ? "memory_mib" : "models", CARD_MILLI);
}

/* seen: address -> the version that has it, "" for the model itself. */
static void check_addresses(struct conf_load *l, const char **endpoints, size_t n,
                            const char *version, struct map *seen)
{
    const size_t mark = conf_where_key(&l->where, "endpoints");

    for (size_t i = 0; i < n; i++) {
        char shown[CONF_QUOTE_BYTES];
        const char *const before = map_get(seen, endpoints[i], strlen(endpoints[i]));
        const size_t item = conf_where_index(&l->where, i);

        conf_quote(shown, sizeof(shown), endpoints[i]);
        if (before == version)
            conf_problem(&l->where, "%s is listed twice", shown);
        else if (before != NULL && before[0] != '\0')
            conf_problem(&l->where,
                         "%s serves version %s too; a server that holds several versions goes to "
                         "the model's endpoints",
                         shown, before);
        else
            map_set(seen, endpoints[i], strlen(endpoints[i]), (void *)(uintptr_t)version);
        conf_where_up(&l->where, item);
    }
    conf_where_up(&l->where, mark);
}

/* Who serves it: a command, its own endpoints, or the model's. Looks at what was written, so that a
 * value that the tables refused is not reported as missing too. */
static void check_servers(struct conf_load *l, json_t *object, bool model_has_endpoints)
{
    const bool has_command = json_object_get(object, "command") != NULL;
    const bool has_endpoints = json_object_get(object, "endpoints") != NULL;
    const char *const key = has_command ? "command" : "endpoints";

    if (model_has_endpoints)
        return; /* see check_versions */
    if (!has_command && !has_endpoints)
        conf_problem(&l->where, "has neither command nor endpoints: nobody would serve it");
    else if (has_command && has_endpoints)
        conf_problem_at(&l->where, "endpoints",
                        "it has a command too; penstock starts its replicas or somebody else does");
    else if (json_is_array(json_object_get(object, key)) &&
             json_array_size(json_object_get(object, key)) == 0)
        conf_problem_at(&l->where, key, "is empty");
}

static void check_version(struct conf_load *l, const struct model_conf *m,
                          const struct version_conf *v, struct map *seen)
{
    size_t mark;

    if (m->protocol == PROTOCOL_TENSORFLOW &&
        (strspn(v->name, "0123456789") != strlen(v->name) || strlen(v->name) > 18))
        conf_problem(&l->where, "versions of protocol tensorflow are numbers of at most 18 digits");
    check_addresses(l, v->endpoints, v->n_endpoints, v->name, seen);
    mark = conf_where_key(&l->where, "gpu");
    if (conf_where_is_clean(&l->where))
        check_gpu(l, &v->gpu);
    conf_where_up(&l->where, mark);
}

static void check_versions(struct conf_load *l, const struct model_conf *m, json_t *object)
{
    json_t *const versions = json_object_get(object, "versions");
    const bool model_has_endpoints = json_object_get(object, "endpoints") != NULL;
    const char *served_twice = NULL;
    struct map seen;

    map_init(&seen);
    check_addresses(l, m->endpoints, m->n_endpoints, "", &seen);
    const size_t mark = conf_where_key(&l->where, "versions");

    for (size_t i = 0; i < m->n_versions; i++) {
        const struct version_conf *const v = &m->versions[i];
        json_t *const written = json_object_get(versions, v->name);
        const size_t item = conf_where_key(&l->where, v->name);

        if (json_is_object(written)) {
            check_servers(l, written, model_has_endpoints);
            check_version(l, m, v, &seen);
            if (model_has_endpoints && (json_object_get(written, "command") != NULL ||
                                        json_object_get(written, "endpoints") != NULL))
                served_twice = v->name;
        }
        conf_where_up(&l->where, item);
    }
    conf_where_up(&l->where, mark);
    if (served_twice != NULL)
        conf_problem_at(
            &l->where, "endpoints",
            "these serve every version, but version %s has its own command or endpoints",
            served_twice);
    map_fini(&seen);
}

/* The services that the gateway routes or answers by itself: another model can't have them. */
static const struct {
    const char *service, *why;
} own_services[] = {
    {"inference.GRPCInferenceService", "is routed by model name: protocol kserve"},
    {"tensorflow.serving.PredictionService", "is routed by model name: protocol tensorflow"},
    {"tensorflow.serving.ModelService", "is routed by model name: protocol tensorflow"},
    {"grpc.health.v1.Health", "is answered by the gateway"},
    {"grpc.reflection.v1.ServerReflection", "is answered by the gateway"},
    {"grpc.reflection.v1alpha.ServerReflection", "is answered by the gateway"},
};

static void check_services(struct conf_load *l, const struct model_conf *m, bool written)
{
    if (m->protocol == PROTOCOL_GRPC && !written)
        conf_problem_at(&l->where, "services", "is missing; protocol grpc is routed by service");
    if (m->protocol != PROTOCOL_GRPC && written)
        conf_problem_at(&l->where, "services", "only protocol grpc is routed by service");
    const size_t mark = conf_where_key(&l->where, "services");

    for (size_t i = 0; i < m->n_services; i++) {
        for (size_t o = 0; o < ARRAY_LEN(own_services); o++) {
            char shown[CONF_QUOTE_BYTES];

            if (strcmp(m->services[i], own_services[o].service) != 0)
                continue;
            const size_t item = conf_where_index(&l->where, i);

            conf_problem(&l->where, "%s %s", conf_quote(shown, sizeof(shown), m->services[i]),
                         own_services[o].why);
            conf_where_up(&l->where, item);
        }
    }
    conf_where_up(&l->where, mark);
}

static void check_scaling(struct conf_load *l, const struct scaling_conf *s)
{
    if (s->min > s->max)
        conf_problem_at(&l->where, "min", "%u is over scaling.max, which is %u replicas", s->min,
                        s->max);
    if (s->burst_window_s > s->stable_window_s)
        conf_problem_at(&l->where, "burst_window_s",
                        "%u is over scaling.stable_window_s, which is %u s", s->burst_window_s,
                        s->stable_window_s);
}

/* A model with endpoints and no versions has the one version "*". */
static void add_version_any(struct conf_load *l, struct model_conf *m)
{
    m->versions = arena_alloc(l->arena, sizeof(*m->versions));
    if (m->versions == NULL)
        return;
    m->versions[0].name = VERSION_ANY;
    m->versions[0].image = "";
    m->n_versions = 1;
}

static bool is_empty_list(json_t *v)
{
    return json_is_array(v) && json_array_size(v) == 0;
}

static void check_tls(struct conf_load *l, const struct upstream_tls_conf *t)
{
    const size_t mark = conf_where_key(&l->where, "tls");

    conf_check_upstream_tls(&l->where, t);
    conf_where_up(&l->where, mark);
}

void model_finish(struct conf_load *l, struct model_raw *raw, json_t *object)
{
    struct model_conf *const m = &raw->conf;
    json_t *const versions = json_object_get(object, "versions");
    json_t *const endpoints = json_object_get(object, "endpoints");
    size_t mark;

    check_versions(l, m, object);
    if (is_empty_list(endpoints))
        conf_problem_at(&l->where, "endpoints", "is empty");
    check_services(l, m, json_object_get(object, "services") != NULL);
    check_tls(l, &m->tls);
    mark = conf_where_key(&l->where, "scaling");
    if (conf_where_is_clean(&l->where))
        check_scaling(l, &m->scaling);
    conf_where_up(&l->where, mark);
    if (versions != NULL && !json_is_object(versions))
        return; /* what would name them can't be judged */
    if (json_object_size(versions) == 0) {
        if (endpoints == NULL)
            conf_problem_at(&l->where, "versions",
                            "is missing or empty; a model has versions, or endpoints");
        add_version_any(l, m);
    }
    finish_labels(l, raw);
    finish_traffic(l, raw, json_object_size(json_object_get(object, "traffic")));
}

static int by_name(const void *a, const void *b)
{
    const struct model_conf *const m = a, *const n = b;
    const int order = strcmp(m->name, n->name);

    return order != 0 ? order : strcmp(m->file, n->file);
}

void models_check_together(struct generation *g, struct conf_problems *problems)
{
    struct map services;
    struct conf_where where;

    map_init(&services);
    qsort(g->models, g->n_models, sizeof(*g->models), by_name);
    for (size_t i = 0; i < g->n_models; i++) {
        const struct model_conf *const m = &g->models[i];

        conf_where_init(&where, problems, m->file);
        if (i > 0 && m->name[0] != '\0' && strcmp(g->models[i - 1].name, m->name) == 0)
            conf_problem_at(&where, "model", "\"%s\" is the model of %s too", m->name,
                            g->models[i - 1].file);
        for (size_t s = 0; s < m->n_services; s++) {
            const struct model_conf *const before =
                map_set(&services, m->services[s], strlen(m->services[s]), (void *)(uintptr_t)m);

            if (before == NULL)
                continue;
            conf_where_key(&where, "services");
            conf_where_index(&where, s);
            if (before == m)
                conf_problem(&where, "\"%s\" is listed twice", m->services[s]);
            else
                conf_problem(&where, "\"%s\" belongs to model %s (%s) too", m->services[s],
                             before->name, before->file);
            conf_where_up(&where, 0);
        }
    }
    map_fini(&services);
}
