/* tests/unit/balancer_fixture.h - a snapshot written by hand, and a balancer over it. */
#ifndef TESTS_BALANCER_FIXTURE_H
#define TESTS_BALANCER_FIXTURE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "balancer/balancer.h"

#define FIX_MODELS    2
#define FIX_VERSIONS  3
#define FIX_ENDPOINTS 8

struct fix_snapshot {
    struct snapshot snap;
    struct snap_model models[FIX_MODELS];
    struct model_conf model_confs[FIX_MODELS];
    struct snap_version versions[FIX_MODELS][FIX_VERSIONS];
    struct version_conf version_confs[FIX_MODELS][FIX_VERSIONS];
    struct snap_endpoint endpoints[FIX_MODELS][FIX_VERSIONS][FIX_ENDPOINTS];
    const struct snap_endpoint *pointers[FIX_MODELS][FIX_VERSIONS][FIX_ENDPOINTS];
};

static inline void fix_init(struct fix_snapshot *f)
{
    memset(f, 0, sizeof(*f));
    f->snap.models = f->models;
}

static inline size_t fix_model(struct fix_snapshot *f, const char *name)
{
    const size_t i = f->snap.n_models++;

    assert_true(i < FIX_MODELS);
    f->model_confs[i].name = name;
    f->models[i].conf = &f->model_confs[i];
    f->models[i].versions = f->versions[i];
    return i;
}

static inline size_t fix_version(struct fix_snapshot *f, size_t model, const char *name,
                                 uint32_t weight, uint32_t slots)
{
    const size_t i = f->models[model].n_versions++;

    assert_true(i < FIX_VERSIONS);
    f->version_confs[model][i] = (struct version_conf){.name = name, .slots = slots};
    f->versions[model][i] = (struct snap_version){
        .conf = &f->version_confs[model][i], .weight = weight, .endpoints = f->pointers[model][i]};
    return i;
}

static inline struct snap_endpoint *fix_endpoint(struct fix_snapshot *f, size_t model,
                                                 size_t version, const char *address,
                                                 enum endpoint_state state, uint32_t weight)
{
    struct snap_version *const v = &f->versions[model][version];
    struct snap_endpoint *const e = &f->endpoints[model][version][v->n_endpoints];

    assert_true(v->n_endpoints < FIX_ENDPOINTS);
    *e = (struct snap_endpoint){
        .address = address, .replica = address, .state = state, .weight = weight};
    v->endpoints[v->n_endpoints++] = e;
    return e;
}

/* One model "m", one version "1", n READY replicas "r0" .. with these weights (NULL: equal). */
static inline void fix_replicas(struct fix_snapshot *f, size_t n, const uint32_t *weights,
                                uint32_t slots)
{
    static const char *const names[FIX_ENDPOINTS] = {"r0", "r1", "r2", "r3",
                                                     "r4", "r5", "r6", "r7"};

    fix_init(f);
    fix_model(f, "m");
    fix_version(f, 0, "1", WEIGHT_WHOLE, slots);
    for (size_t i = 0; i < n; i++)
        fix_endpoint(f, 0, 0, names[i], ENDPOINT_READY, weights == NULL ? 1000 : weights[i]);
}

static inline struct cluster *fix_cluster(struct balancer *b, size_t model, size_t version)
{
    return balancer_model(b, model)->clusters[version];
}

static inline struct member *fix_member(struct cluster *c, const char *address)
{
    for (size_t i = 0; i < c->n_members; i++) {
        if (strcmp(c->members[i]->endpoint->address, address) == 0)
            return c->members[i];
    }
    fail_msg("no member %s", address);
    return NULL;
}

#endif
