#include "balancer/balancer.h"

#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/check.h"
#include "base/hash.h"
#include "base/xalloc.h"

struct balancer {
    uint32_t n_workers;
    struct rng rng;
    struct balancer_hooks hooks;
    void *arg;
    struct map models;    /* name -> struct model_state */
    struct map clusters;  /* key_of(model, version) -> struct cluster */
    struct map endpoints; /* address -> struct endpoint */
    struct list endpoint_list;
    struct list cluster_list; /* those that left too, until their last call ended */
    struct model_state **current;
    size_t n_current;
    uint64_t mark; /* rises with each apply: objects not marked anew have left */
    uint64_t last_id;
};

static const char *text_or_empty(const char *s)
{
    return s != NULL ? s : "";
}

/* "model\0version": neither can hold a NUL. */
static void key_of(struct buf *key, const char *model, const char *version)
{
    buf_init(key, SIZE_MAX);
    buf_append(key, model, strlen(model) + 1);
    buf_append_str(key, version);
}

struct balancer *balancer_new(uint32_t n_workers, uint64_t seed, const struct balancer_hooks *hooks,
                              void *arg)
{
    struct balancer *const b = xcalloc(1, sizeof(*b));

    check(n_workers > 0);
    b->n_workers = n_workers;
    rng_init(&b->rng, seed);
    b->hooks = *hooks;
    b->arg = arg;
    map_init(&b->models);
    map_init(&b->clusters);
    map_init(&b->endpoints);
    list_init(&b->endpoint_list);
    list_init(&b->cluster_list);
    return b;
}

const struct balancer_hooks *balancer_hooks(const struct balancer *b, void **ret_arg)
{
    *ret_arg = b->arg;
    return &b->hooks;
}

void balancer_tell_room(struct cluster *c)
{
    struct balancer *const b = c->balancer;

    if (!c->wants_room || c->left || c->in_hook || b->hooks.cluster_has_room == NULL)
        return;
    c->wants_room = false;
    c->in_hook = true;
    b->hooks.cluster_has_room(b->arg, c);
    c->in_hook = false;
}

/* Frees what has left and has no call any more. */

static void release_endpoint(struct endpoint *ep)
{
    struct balancer *const b = ep->balancer;

    if (!ep->left || !list_is_empty(&ep->members))
        return;
    check(ep->in_flight == 0);
    if (b->hooks.endpoint_removed != NULL)
        b->hooks.endpoint_removed(b->arg, ep);
    list_remove(&ep->node);
    free(ep->address);
    free(ep);
}

static void release_cluster(struct cluster *c)
{
    struct balancer *const b = c->balancer;

    if (!c->left || c->in_flight > 0)
        return;
    check(c->n_members == 0);
    if (b->hooks.cluster_removed != NULL)
        b->hooks.cluster_removed(b->arg, c);
    list_remove(&c->node);
    free(c->model);
    free(c->version);
    free(c->members);
    free(c->usable);
    free(c->weight_sums);
    free(c);
}

void balancer_release(struct member *m)
{
    struct endpoint *const ep = m->endpoint;
    struct cluster *const c = m->cluster;

    if (!m->left || m->in_flight > 0)
        return;
    list_remove(&m->of_endpoint);
    free(m->replica);
    free(m);
    release_endpoint(ep);
    release_cluster(c);
}

/* Takes m out of its cluster's list; m itself lives until its last call has ended. */
static void member_leave(struct member *m)
{
    struct cluster *const c = m->cluster;

    for (size_t i = 0; i < c->n_members; i++) {
        if (c->members[i] == m) {
            memmove(&c->members[i], &c->members[i + 1],
                    (c->n_members - i - 1) * sizeof(struct member *));
            c->n_members--;
            break;
        }
    }
    c->stale = true;
    m->left = true;
    balancer_release(m);
}

static void endpoint_leave(struct endpoint *ep)
{
    struct balancer *const b = ep->balancer;

    ep->left = true;
    map_del(&b->endpoints, ep->address, strlen(ep->address));
    if (b->hooks.endpoint_left != NULL)
        b->hooks.endpoint_left(b->arg, ep);
    release_endpoint(ep);
}

static void cluster_leave(struct cluster *c)
{
    struct balancer *const b = c->balancer;
    struct buf key;

    c->left = true;
    key_of(&key, c->model, c->version);
    map_del(&b->clusters, (const char *)key.data, key.len);
    buf_fini(&key);
    if (b->hooks.cluster_left != NULL)
        b->hooks.cluster_left(b->arg, c);
    release_cluster(c);
}

static void model_state_free(struct balancer *b, struct model_state *m)
{
    map_del(&b->models, m->name, strlen(m->name));
    split_fini(&m->split);
    free(m->name);
    free(m->clusters);
    free(m->ready);
    free(m);
}

/* Finds or makes. */

static struct endpoint *take_endpoint(struct balancer *b, const char *address)
{
    struct endpoint *ep = map_get(&b->endpoints, address, strlen(address));

    if (ep == NULL) {
        ep = xcalloc(1, sizeof(*ep));
        ep->balancer = b;
        ep->address = xstrdup(address);
        ep->id = ++b->last_id;
        list_init(&ep->members);
        list_push_back(&b->endpoint_list, &ep->node);
        map_set(&b->endpoints, address, strlen(address), ep);
        if (b->hooks.endpoint_added != NULL)
            b->hooks.endpoint_added(b->arg, ep);
    }
    ep->mark = b->mark;
    return ep;
}

static struct member *find_member(const struct endpoint *ep, const struct cluster *c)
{
    list_each (&ep->members, it) {
        struct member *const m = list_entry(it, struct member, of_endpoint);

        if (m->cluster == c && !m->left)
            return m;
    }
    return NULL;
}

static struct member *add_member(struct balancer *b, struct cluster *c, struct endpoint *ep,
                                 const struct snap_endpoint *se)
{
    struct member *const m = xcalloc(1, sizeof(*m));

    m->endpoint = ep;
    m->cluster = c;
    m->replica = xstrdup(text_or_empty(se->replica));
    m->state = ENDPOINT_STARTING;
    m->weight = 1;
    m->picks = c->fair_picks; /* its lead is 0 */
    m->rr_current = (int64_t)rng_below(&b->rng, se->weight > 0 ? se->weight : 1);
    list_push_back(&ep->members, &m->of_endpoint);
    c->members = xrealloc(c->members, c->n_members + 1, sizeof(struct member *));
    c->members[c->n_members++] = m;
    return m;
}

static void apply_endpoint(struct balancer *b, struct cluster *c, const struct snap_version *sv,
                           const struct snap_endpoint *se)
{
    struct endpoint *const ep = take_endpoint(b, se->address);
    struct member *m = find_member(ep, c);
    const uint32_t weight = se->weight > 0 ? se->weight : 1;

    if (m == NULL) {
        m = add_member(b, c, ep, se);
    } else if (m->mark == b->mark) {
        return; /* named twice in one version: once is enough */
    } else if (strcmp(m->replica, text_or_empty(se->replica)) != 0) {
        free(m->replica); /* another process at the old address */
        m->replica = xstrdup(text_or_empty(se->replica));
        member_reset_health(m);
    }
    if (se->state == ENDPOINT_READY && m->state != ENDPOINT_READY) {
        member_reset_health(m); /* the prober has just talked to it */
        if (b->hooks.endpoint_ready != NULL)
            b->hooks.endpoint_ready(b->arg, ep);
    }
    m->picks += c->fair_picks * ((double)weight - m->weight); /* keeps its lead */
    m->weight = weight;
    m->state = se->state;
    m->slots = (sv->conf->slots + b->n_workers - 1) / b->n_workers;
    m->mark = b->mark;
}

static struct cluster *take_cluster(struct balancer *b, const char *model, const char *version)
{
    struct buf key;

    key_of(&key, model, version);
    struct cluster *c = map_get(&b->clusters, (const char *)key.data, key.len);
    if (c == NULL) {
        c = xcalloc(1, sizeof(*c));
        c->balancer = b;
        c->model = xstrdup(model);
        c->version = xstrdup(version);
        list_push_back(&b->cluster_list, &c->node);
        map_set(&b->clusters, (const char *)key.data, key.len, c);
        if (b->hooks.cluster_added != NULL)
            b->hooks.cluster_added(b->arg, c);
    }
    buf_fini(&key);
    c->mark = b->mark;
    c->stale = true;
    return c;
}

static struct model_state *take_model(struct balancer *b, const struct snap_model *sm)
{
    const char *const name = sm->conf->name;
    struct model_state *m = map_get(&b->models, name, strlen(name));

    if (m == NULL) {
        m = xcalloc(1, sizeof(*m));
        m->name = xstrdup(name);
        split_init(&m->split);
        map_set(&b->models, name, strlen(name), m);
    }
    m->mark = b->mark;
    m->n = sm->n_versions;
    free(m->clusters);
    free(m->ready);
    m->clusters = xcalloc(m->n + 1, sizeof(struct cluster *));
    m->ready = xcalloc(m->n + 1, sizeof(bool));
    return m;
}

static void apply_model(struct balancer *b, struct model_state *m, const struct snap_model *sm)
{
    uint32_t *const weights = xcalloc(sm->n_versions + 1, sizeof(uint32_t));

    for (size_t i = 0; i < sm->n_versions; i++) {
        const struct snap_version *const sv = &sm->versions[i];
        struct cluster *const c = take_cluster(b, sm->conf->name, text_or_empty(sv->conf->name));

        c->policy = lb_of_policy(sm->conf->policy);
        for (size_t k = 0; k < sv->n_endpoints; k++)
            apply_endpoint(b, c, sv, sv->endpoints[k]);
        m->clusters[i] = c;
        weights[i] = sv->weight;
    }
    split_set(&m->split, weights, sm->n_versions, &b->rng);
    free(weights);
}

/* Models that left. */
struct gone {
    struct model_state **items;
    size_t n;
    uint64_t mark;
};

static void collect_gone(void *arg, const char *key, size_t key_len, void *value)
{
    struct gone *const gone = arg;
    struct model_state *const m = value;

    (void)key;
    (void)key_len;
    if (m->mark != gone->mark)
        gone->items[gone->n++] = m;
}

static void sweep_models(struct balancer *b)
{
    struct gone gone = {.items = xcalloc(b->models.n + 1, sizeof(struct model_state *)),
                        .mark = b->mark};

    map_each(&b->models, collect_gone, &gone);
    for (size_t i = 0; i < gone.n; i++)
        model_state_free(b, gone.items[i]);
    free(gone.items);
}

/* Members first: the endpoints and clusters that they leave empty can then go too. Hooks may pick
 * and end calls, so each loop starts anew after one that ran them. */
static void sweep(struct balancer *b)
{
    bool again = true;

    list_each (&b->cluster_list, it) {
        struct cluster *const c = list_entry(it, struct cluster, node);

        for (size_t i = c->n_members; i-- > 0;) {
            if (c->members[i]->mark != b->mark)
                member_leave(c->members[i]);
        }
    }
    while (again) {
        again = false;
        list_each (&b->cluster_list, it) {
            struct cluster *const c = list_entry(it, struct cluster, node);

            if (!c->left && c->mark != b->mark) {
                cluster_leave(c);
                again = true;
                break;
            }
        }
    }
    list_each (&b->endpoint_list, it) {
        struct endpoint *const ep = list_entry(it, struct endpoint, node);

        if (!ep->left && ep->mark != b->mark)
            endpoint_leave(ep);
    }
    sweep_models(b);
}

static void tell_all_room(struct balancer *b, uint64_t now_us)
{
    for (size_t i = 0; i < b->n_current; i++) {
        for (size_t k = 0; k < b->current[i]->n; k++) {
            struct cluster *const c = b->current[i]->clusters[k];

            if (cluster_is_ready(c, now_us))
                balancer_tell_room(c);
        }
    }
}

void balancer_apply(struct balancer *b, const struct snapshot *s, uint64_t now_us)
{
    b->mark++;
    free(b->current);
    b->n_current = s->n_models;
    b->current = xcalloc(s->n_models + 1, sizeof(struct model_state *));
    for (size_t i = 0; i < s->n_models; i++) {
        b->current[i] = take_model(b, &s->models[i]);
        apply_model(b, b->current[i], &s->models[i]);
    }
    sweep(b);
    tell_all_room(b, now_us);
}

struct balancer *balancer_free(struct balancer *b)
{
    const struct snapshot nothing = {.n_models = 0};

    if (b == NULL)
        return NULL;
    balancer_apply(b, &nothing, 0);
    check(list_is_empty(&b->endpoint_list) && list_is_empty(&b->cluster_list));
    map_fini(&b->models);
    map_fini(&b->clusters);
    map_fini(&b->endpoints);
    free(b->current);
    free(b);
    return NULL;
}

struct model_state *balancer_model(struct balancer *b, size_t index)
{
    check(index < b->n_current);
    return b->current[index];
}

int model_pick_version(struct model_state *m, uint64_t now_us)
{
    if (m->n == 1)
        return m->split.parts[0].weight > 0 ? 0 : -1;
    for (size_t i = 0; i < m->n; i++)
        m->ready[i] = cluster_is_ready(m->clusters[i], now_us);
    return split_pick(&m->split, m->ready);
}

void balancer_each_endpoint(const struct balancer *b, balancer_endpoint_fn fn, void *arg)
{
    list_each (&b->endpoint_list, it)
        fn(arg, list_entry(it, struct endpoint, node));
}

void balancer_each_cluster(struct balancer *b, balancer_cluster_fn fn, void *arg)
{
    list_each (&b->cluster_list, it)
        fn(arg, list_entry(it, struct cluster, node));
}
