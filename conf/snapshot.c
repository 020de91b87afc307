#include "conf/snapshot.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/check.h"
#include "base/hash.h"
#include "base/xalloc.h"
#include "conf/generation.h"

#define WEIGHT_STATIC 1000u /* of an endpoint that the config names: one whole card */

/* What callers see comes first; the rest serves the lookups and the end. */
struct snapshot_whole {
    struct snapshot shown;
    atomic_uint refs;
    struct arena arena;
    struct generation *generation;
    struct map by_name;    /* every model */
    struct map by_service; /* "package.Service" -> the plain gRPC model that claims it */
    const struct snap_model *every_service; /* the model that claims "*" */
};

static struct snapshot_whole *whole_of(struct snapshot *s)
{
    return container_of(s, struct snapshot_whole, shown);
}

struct snapshot *snapshot_ref(struct snapshot *s)
{
    atomic_fetch_add_explicit(&whole_of(s)->refs, 1, memory_order_relaxed);
    return s;
}

void snapshot_unref(struct snapshot *s)
{
    if (s == NULL)
        return;

    struct snapshot_whole *const w = whole_of(s);

    /* acq_rel: whoever frees sees every reader's last look. */
    if (atomic_fetch_sub_explicit(&w->refs, 1, memory_order_acq_rel) != 1)
        return;
    map_fini(&w->by_name);
    map_fini(&w->by_service);
    arena_fini(&w->arena);
    generation_unref(w->generation);
    free(w);
}

const struct snap_model *snapshot_model(const struct snapshot *s, enum model_protocol protocol,
                                        const char *name, size_t name_len)
{
    const struct snapshot_whole *const w = container_of(s, const struct snapshot_whole, shown);
    const struct snap_model *const m = map_get(&w->by_name, name, name_len);

    return m != NULL && m->conf->protocol == protocol ? m : NULL;
}

const struct snap_model *snapshot_service(const struct snapshot *s, const char *service,
                                          size_t service_len)
{
    const struct snapshot_whole *const w = container_of(s, const struct snapshot_whole, shown);
    const struct snap_model *const m = map_get(&w->by_service, service, service_len);

    return m != NULL ? m : w->every_service;
}

static bool text_equals(const char *text, const char *name, size_t name_len)
{
    return strncmp(text, name, name_len) == 0 && text[name_len] == '\0';
}

static int version_index(const struct model_conf *conf, const char *name, size_t name_len)
{
    for (size_t i = 0; i < conf->n_versions; i++) {
        if (text_equals(conf->versions[i].name, name, name_len))
            return (int)i;
    }
    return -1;
}

int snap_model_version(const struct snap_model *m, const char *name, size_t name_len)
{
    const struct model_conf *const conf = m->conf;
    const int i = version_index(conf, name, name_len);

    if (i >= 0)
        return i;
    for (size_t l = 0; l < conf->n_labels; l++) {
        if (text_equals(conf->labels[l].name, name, name_len))
            return (int)conf->labels[l].version;
    }
    return conf->n_versions == 1 && strcmp(conf->versions[0].name, VERSION_ANY) == 0 ? 0 : -1;
}

/* The config's limits bound what a snapshot holds, so its arena has no ceiling of its own; running
 * out of memory ends the process, as for every long-lived object. */
static void *take(struct snapshot_whole *w, size_t n, size_t size)
{
    size_t bytes = 0;

    check(!__builtin_mul_overflow(n, size, &bytes));
    void *const p = arena_alloc(&w->arena, bytes == 0 ? 1 : bytes);

    check(p != NULL);
    return p;
}

static const char *take_text(struct snapshot_whole *w, const char *text)
{
    char *const copy = arena_strndup(&w->arena, text, strlen(text));

    check(copy != NULL);
    return copy;
}

struct build {
    struct snapshot_whole *w;
    endpoint_state_fn static_state;
    void *arg;
};

static const struct snap_endpoint *static_endpoint(const struct build *b,
                                                   const struct snap_model *m,
                                                   const struct snap_version *v,
                                                   const char *address)
{
    struct snap_endpoint *const e = take(b->w, 1, sizeof(*e));

    e->address = address; /* the generation's; it outlives the snapshot */
    e->replica = address;
    e->state = b->static_state == NULL
                   ? ENDPOINT_READY
                   : b->static_state(b->arg, m->conf->name, v->conf->name, address);
    e->weight = WEIGHT_STATIC;
    return e;
}

static const struct snap_endpoint *input_endpoint(const struct build *b,
                                                  const struct endpoint_input *in)
{
    struct snap_endpoint *const e = take(b->w, 1, sizeof(*e));

    e->address = take_text(b->w, in->address);
    e->replica = in->replica == NULL ? e->address : take_text(b->w, in->replica);
    e->state = in->state;
    e->weight = in->weight == 0 ? 1 : in->weight;
    return e;
}

static void version_add(struct snap_version *v, const struct snap_endpoint *e)
{
    v->endpoints[v->n_endpoints++] = e;
}

/* Both lists are without repeats, so only one against the other is compared: a replica that we
 * started and that the config names too is the one that we know more about. */
static bool version_has_input(const struct snap_version *v, size_t n_inputs, const char *address)
{
    for (size_t i = 0; i < n_inputs; i++) {
        if (strcmp(v->endpoints[i]->address, address) == 0)
            return true;
    }
    return false;
}

static void version_add_static(const struct build *b, const struct snap_model *m,
                               struct snap_version *v, const char **addresses, size_t n)
{
    const size_t n_inputs = v->n_endpoints;

    for (size_t i = 0; i < n; i++) {
        if (!version_has_input(v, n_inputs, addresses[i]))
            version_add(v, static_endpoint(b, m, v, addresses[i]));
    }
}

/* Where an input belongs: calls fn for each version that it serves. Inputs of models or versions
 * that this generation does not know are left out: they get no calls and end when drained. */
static void input_each_version(const struct snapshot_whole *w, const struct endpoint_input *in,
                               void (*fn)(struct snap_version *v, const struct snap_endpoint *e),
                               const struct snap_endpoint *e)
{
    struct snap_model *const m = map_get(&w->by_name, in->model, strlen(in->model));

    if (m == NULL)
        return;
    if (in->version == NULL) {
        for (size_t v = 0; v < m->n_versions; v++)
            fn(&m->versions[v], e);
        return;
    }
    const int v = version_index(m->conf, in->version, strlen(in->version));

    if (v >= 0)
        fn(&m->versions[v], e);
}

static void version_count(struct snap_version *v, const struct snap_endpoint *e)
{
    (void)e;
    v->n_endpoints++;
}

static void build_model(const struct build *b, struct snap_model *m, const struct model_conf *conf)
{
    struct snapshot_whole *const w = b->w;

    m->conf = conf;
    m->n_versions = conf->n_versions;
    m->versions = take(w, conf->n_versions, sizeof(*m->versions));
    for (size_t v = 0; v < conf->n_versions; v++) {
        m->versions[v].conf = &conf->versions[v];
        m->versions[v].weight = conf->traffic[v];
        m->versions[v].shared_endpoints =
            conf->n_endpoints > 0 && strcmp(conf->versions[v].name, VERSION_ANY) != 0;
    }
    map_set(&w->by_name, conf->name, strlen(conf->name), m);
    if (conf->protocol != PROTOCOL_GRPC)
        return;
    for (size_t i = 0; i < conf->n_services; i++) {
        const char *const service = conf->services[i];

        if (strcmp(service, "*") == 0)
            w->every_service = m;
        else
            map_set(&w->by_service, service, strlen(service), m);
    }
}

static void build_static_endpoints(const struct build *b, struct snap_model *m)
{
    const struct model_conf *const conf = m->conf;

    for (size_t i = 0; i < m->n_versions; i++) {
        struct snap_version *const v = &m->versions[i];

        /* The loader lets only one of them be there. */
        version_add_static(b, m, v, conf->endpoints, conf->n_endpoints);
        version_add_static(b, m, v, v->conf->endpoints, v->conf->n_endpoints);
    }
}

struct snapshot *snapshot_build(struct generation *gen, uint64_t epoch,
                                const struct endpoint_input *inputs, size_t n_inputs,
                                endpoint_state_fn static_state, void *arg)
{
    struct snapshot_whole *const w = xcalloc(1, sizeof(*w));
    const struct build b = {.w = w, .static_state = static_state, .arg = arg};

    atomic_init(&w->refs, 1);
    arena_init(&w->arena, SIZE_MAX);
    map_init(&w->by_name);
    map_init(&w->by_service);
    w->generation = generation_ref(gen);
    w->shown.generation = gen->number;
    w->shown.epoch = epoch;
    w->shown.n_models = gen->n_models;
    w->shown.models = take(w, gen->n_models, sizeof(*w->shown.models));
    for (size_t i = 0; i < gen->n_models; i++)
        build_model(&b, &w->shown.models[i], &gen->models[i]);

    for (size_t i = 0; i < n_inputs; i++)
        input_each_version(w, &inputs[i], version_count, NULL);
    for (size_t i = 0; i < gen->n_models; i++) {
        struct snap_model *const m = &w->shown.models[i];

        for (size_t v = 0; v < m->n_versions; v++) {
            struct snap_version *const sv = &m->versions[v];
            const size_t most = sv->n_endpoints + sv->conf->n_endpoints + m->conf->n_endpoints;

            sv->endpoints = take(w, most, sizeof(struct snap_endpoint *));
            sv->n_endpoints = 0;
        }
    }
    for (size_t i = 0; i < n_inputs; i++)
        input_each_version(w, &inputs[i], version_add, input_endpoint(&b, &inputs[i]));
    for (size_t i = 0; i < gen->n_models; i++)
        build_static_endpoints(&b, &w->shown.models[i]);
    return &w->shown;
}

void snapshot_set_weight(struct snapshot *s, const char *model, const char *version,
                         uint32_t weight)
{
    const struct snap_model *const m = map_get(&whole_of(s)->by_name, model, strlen(model));
    const int i = m == NULL ? -1 : version_index(m->conf, version, strlen(version));

    if (i >= 0)
        m->versions[i].weight = weight;
}
