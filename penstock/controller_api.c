/* penstock/controller_api.c - the admin routes of the controller.
 *
 *   GET  /v1/config[?generation=N]   the generation in force (or N) with its text
 *   GET  /v1/history[?limit=N]       generations, newest first, with author, reason and diff
 *   GET  /v1/replicas  /v1/nodes  /v1/decisions[?model=M&limit=N]
 *   POST /v1/apply     {"config": {...}, "expected": 7, "author": "...", "reason": "..."}
 *   POST /v1/rollback  {"model": "ctr", "generation": 3, ...}
 *   POST /v1/traffic   {"model": "ctr", "weights": {"16": 9000, "17": 1000}, ...}
 *
 * A change answers 200 {"generation": N, "changed": true, "applied": true, "diff": "..."} when
 * every worker routes by it; 422 with every problem when the config is refused (the old one stays);
 * 409 when another generation is in force than expected; 404 for an unknown model or generation.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/json_out.h"
#include "base/xalloc.h"
#include "conf/generation.h"
#include "penstock/controller_state.h"

#define ANSWER_CEILING   (64u * 1024 * 1024)
#define HISTORY_DFLT     20
#define DECISIONS_DFLT   50
#define EXPECTED_ANY     UINT32_MAX /* not given */
#define REASON_MAX_BYTES 1000

static void reply(struct admin_request *r, unsigned status, struct buf *out)
{
    if (out->overflow)
        admin_reply_error(r, 500, "the answer is over %u bytes", ANSWER_CEILING);
    else
        admin_reply_json(r, status, buf_cstr(out));
    buf_fini(out);
}

static uint64_t query_uint(const struct admin_request *r, const char *name, uint64_t dflt)
{
    const char *const text = admin_request_query(r, name);
    char *end = NULL;

    if (text == NULL || text[0] < '0' || text[0] > '9')
        return dflt;
    const unsigned long long n = strtoull(text, &end, 10);

    return *end == '\0' ? n : dflt;
}

/* ---- reads ---- */

static void put_generation(struct json_out *j, const struct stored_generation *g)
{
    json_out_uint(j, "generation", g->number);
    json_out_uint(j, "created_us", g->created_us);
    json_out_str(j, "author", g->author);
    json_out_str(j, "reason", g->reason);
}

struct config_answer {
    uint64_t wanted; /* 0: the newest */
    struct buf out;
    bool found;
};

static bool put_config(void *arg, const struct stored_generation *g)
{
    struct config_answer *const a = arg;
    struct json_out j;

    if (a->wanted != 0 && g->number != a->wanted)
        return false;
    json_out_init(&j, &a->out);
    json_out_object(&j, NULL);
    put_generation(&j, g);
    json_out_raw(&j, "config", g->source);
    json_out_end_object(&j);
    a->found = true;
    return false;
}

static void get_config(struct admin_request *r, void *arg)
{
    struct controller *const c = arg;
    struct config_answer a = {.wanted = query_uint(r, "generation", 0)};
    struct err err = {0};

    buf_init(&a.out, ANSWER_CEILING);
    if (a.wanted == 0 && controller_generation(c)->number == 0)
        a.found = buf_append_str(&a.out, "{\"generation\":0,\"config\":{\"models\":{}}}");
    else if (store_each(controller_store(c), a.wanted, put_config, &a, &err) < 0) {
        admin_reply_error(r, 500, "%s", err.text);
        buf_fini(&a.out);
        return;
    }
    if (a.found) {
        reply(r, 200, &a.out);
        return;
    }
    admin_reply_error(r, 404, "there is no generation %" PRIu64, a.wanted);
    buf_fini(&a.out);
}

struct history_answer {
    struct json_out j;
    uint64_t left;
};

static bool put_history(void *arg, const struct stored_generation *g)
{
    struct history_answer *const a = arg;

    if (a->left == 0)
        return false;
    a->left--;
    json_out_object(&a->j, NULL);
    put_generation(&a->j, g);
    json_out_str(&a->j, "diff", g->diff);
    json_out_end_object(&a->j);
    return a->left > 0;
}

static void get_history(struct admin_request *r, void *arg)
{
    struct controller *const c = arg;
    struct history_answer a = {.left = query_uint(r, "limit", HISTORY_DFLT)};
    struct err err = {0};
    struct buf out;

    buf_init(&out, ANSWER_CEILING);
    json_out_init(&a.j, &out);
    json_out_object(&a.j, NULL);
    json_out_uint(&a.j, "generation", controller_generation(c)->number);
    json_out_array(&a.j, "history");
    if (store_each(controller_store(c), 0, put_history, &a, &err) < 0) {
        admin_reply_error(r, 500, "%s", err.text);
        buf_fini(&out);
        return;
    }
    json_out_end_array(&a.j);
    json_out_end_object(&a.j);
    reply(r, 200, &out);
}

static void put_replica(struct json_out *j, struct controller *c, const struct replica *rep)
{
    const struct plan_placement *const p = &rep->placement;
    const struct plan_node *const node = &controller_view(c)->nodes[p->node];
    const uint64_t now_us = controller_now_us(c);

    json_out_object(j, NULL);
    json_out_str(j, "replica", rep->id);
    json_out_str(j, "model", rep->run->model);
    json_out_str(j, "version", rep->run->version);
    json_out_str(j, "state", replica_state_name(rep->state));
    json_out_str(j, "address", rep->address);
    json_out_int(j, "pid", rep->pid);
    json_out_uint(j, "in_flight", controller_calls_at(c, rep->address));
    json_out_bool(j, "outdated", rep->spec != rep->run->spec);
    json_out_uint(j, "age_us", now_us - rep->started_us);
    json_out_uint(j, "state_us", now_us - rep->state_us);
    if (rep->ready_us != 0)
        json_out_uint(j, "start_took_us", rep->ready_us - rep->started_us);
    json_out_str(j, "node", node->name);
    json_out_uint(j, "cpu_milli", p->cpu_milli);
    json_out_uint(j, "memory_mib", p->memory_mib);
    json_out_uint(j, "gpu_milli", p->gpu_milli);
    json_out_uint(j, "gpu_memory_mib", p->gpu_memory_mib);
    json_out_array(j, "cards");
    for (size_t i = 0; i < p->n_cards; i++)
        json_out_str(j, NULL, node->cards[p->cards[i]].id);
    json_out_end_array(j);
    json_out_end_object(j);
}

static void put_run(struct json_out *j, struct controller *c, const struct run *run)
{
    const uint64_t now_us = controller_now_us(c);

    json_out_object(j, NULL);
    json_out_str(j, "model", run->model);
    json_out_str(j, "version", run->version);
    json_out_uint(j, "weight", run->weight);
    json_out_uint(j, "serves", run->shown); /* of its weight, until its replicas are ready */
    json_out_bool(j, "configured", run->conf != NULL);
    json_out_uint(j, "desired", run->last.desired);
    for (int s = 0; s < REPLICA_N_STATES; s++)
        json_out_uint(j, replica_state_name((enum replica_state)s),
                      run_count(run, (enum replica_state)s));
    json_out_uint(j, "restarts", run->restarts);
    json_out_uint(j, "warm", now_us < run->warm_until_us ? run->warm_replicas : 0);
    json_out_str(j, "reason", scale_reason_name(run->last.reason));
    json_out_str(j, "text", run->last.text);
    json_out_double(j, "qps", run->last.stable.qps);
    json_out_double(j, "inflight", run->last.stable.inflight);
    json_out_str(j, "no_room", run->no_room[0] == '\0' ? NULL : run->no_room);
    json_out_end_object(j);
}

static void get_replicas(struct admin_request *r, void *arg)
{
    struct controller *const c = arg;
    const struct fleet *const f = controller_fleet(c);
    struct json_out j;
    struct buf out;

    buf_init(&out, ANSWER_CEILING);
    json_out_init(&j, &out);
    json_out_object(&j, NULL);
    json_out_array(&j, "versions");
    list_each (&f->runs, node)
        put_run(&j, c, list_entry(node, struct run, node));
    json_out_end_array(&j);
    json_out_array(&j, "replicas");
    list_each (&f->replicas, node)
        put_replica(&j, c, list_entry(node, struct replica, node));
    json_out_end_array(&j);
    json_out_end_object(&j);
    reply(r, 200, &out);
}

static void put_card(struct json_out *j, const struct plan_card *card)
{
    json_out_object(j, NULL);
    json_out_str(j, "id", card->id);
    json_out_str(j, "model", card->model);
    json_out_uint(j, "used_milli", card->used_milli);
    json_out_uint(j, "memory_mib", card->memory_mib);
    json_out_uint(j, "used_memory_mib", card->used_memory_mib);
    json_out_uint(j, "users", card->n_users);
    json_out_bool(j, "down", card->down);
    json_out_end_object(j);
}

static bool is_declared(const struct generation *g, const char *node)
{
    for (size_t i = 0; i < g->n_nodes; i++) {
        if (strcmp(g->nodes[i].name, node) == 0)
            return true;
    }
    return false;
}

static void get_nodes(struct admin_request *r, void *arg)
{
    struct controller *const c = arg;
    const struct cluster_view *const view = controller_view(c);
    struct json_out j;
    struct buf out;

    buf_init(&out, ANSWER_CEILING);
    json_out_init(&j, &out);
    json_out_object(&j, NULL);
    json_out_array(&j, "nodes");
    for (size_t i = 0; i < view->n_nodes; i++) {
        const struct plan_node *const n = &view->nodes[i];

        json_out_object(&j, NULL);
        json_out_str(&j, "node", n->name);
        json_out_bool(&j, "down", n->down);
        json_out_bool(&j, "declared", is_declared(controller_generation(c), n->name));
        json_out_uint(&j, "cpu_milli", n->cpu_milli);
        json_out_uint(&j, "used_cpu_milli", n->used_cpu_milli);
        json_out_uint(&j, "memory_mib", n->memory_mib);
        json_out_uint(&j, "used_memory_mib", n->used_memory_mib);
        json_out_array(&j, "cards");
        for (uint32_t k = 0; k < n->n_cards; k++)
            put_card(&j, &n->cards[k]);
        json_out_end_array(&j);
        json_out_end_object(&j);
    }
    json_out_end_array(&j);
    json_out_end_object(&j);
    reply(r, 200, &out);
}

static void get_decisions(struct admin_request *r, void *arg)
{
    struct controller *const c = arg;
    const char *const model = admin_request_query(r, "model");
    uint64_t left = query_uint(r, "limit", DECISIONS_DFLT);
    const struct decision_record *d = NULL;
    struct json_out j;
    struct buf out;

    buf_init(&out, ANSWER_CEILING);
    json_out_init(&j, &out);
    json_out_object(&j, NULL);
    json_out_array(&j, "decisions"); /* newest first */
    for (size_t i = 0; left > 0 && (d = decisions_at(controller_decisions(c), i)) != NULL; i++) {
        if (model != NULL && d->model[0] != '\0' && strcmp(d->model, model) != 0)
            continue; /* what concerns no model in particular concerns each */
        json_out_object(&j, NULL);
        json_out_uint(&j, "at_us", d->at_us);
        json_out_str(&j, "what", d->what);
        json_out_str(&j, "model", d->model);
        json_out_str(&j, "version", d->version);
        json_out_str(&j, "text", d->text);
        json_out_end_object(&j);
        left--;
    }
    json_out_end_array(&j);
    json_out_end_object(&j);
    reply(r, 200, &out);
}

/* ---- changes ---- */

struct change_request {
    const char *config; /* apply */
    const char *model;  /* rollback, traffic */
    uint32_t generation;
    struct conf_pair *weights;
    size_t n_weights;
    uint32_t expected;
    const char *author, *reason;
};

#define CHANGE_BY                                                                                  \
    CONF_UINT(struct change_request, expected, "expected", .max = UINT32_MAX,                      \
              .dflt = EXPECTED_ANY, .doc = "number that must be in force"),                        \
        CONF_STR(struct change_request, author, "author", .max = 256, .dflt_text = "unknown",      \
                 .doc = "who"),                                                                    \
        CONF_STR(struct change_request, reason, "reason", .max = REASON_MAX_BYTES, .doc = "why")

static const struct conf_field apply_fields[] = {
    CHANGE_BY,
    CONF_JSON(struct change_request, config, "config", .required = true,
              .doc = "the whole config: {\"models\": {FILE: {...}}, \"nodes\": ..., ...}"),
    CONF_END,
};
static const struct conf_table apply_table = {
    .title = "apply", .size = sizeof(struct change_request), .fields = apply_fields};

static const struct conf_field rollback_fields[] = {
    CHANGE_BY,
    CONF_STR(struct change_request, model, "model", .required = true, .min = 1, .max = 128,
             .doc = "name"),
    CONF_UINT(struct change_request, generation, "generation", .max = UINT32_MAX,
              .doc = "take the model from this one; 0: from the newest that differs"),
    CONF_END,
};
static const struct conf_table rollback_table = {
    .title = "rollback", .size = sizeof(struct change_request), .fields = rollback_fields};

static const struct conf_field traffic_fields[] = {
    CHANGE_BY,
    CONF_STR(struct change_request, model, "model", .required = true, .min = 1, .max = 128,
             .doc = "name"),
    CONF_PAIRS(struct change_request, weights, "weights", .required = true, .of = CONF_KIND_UINT,
               .max = 64, .max_value = WEIGHT_WHOLE, .doc = "parts of 10000 by version"),
    CONF_END,
};
static const struct conf_table traffic_table = {
    .title = "traffic", .size = sizeof(struct change_request), .fields = traffic_fields};

static void put_problems(struct json_out *j, struct conf_problems *problems)
{
    char *line = (char *)(uintptr_t)buf_cstr(&problems->text);

    json_out_array(j, "problems");
    for (char *end = strchr(line, '\n'); end != NULL; line = end + 1, end = strchr(line, '\n')) {
        *end = '\0';
        json_out_str(j, NULL, line);
    }
    json_out_end_array(j);
}

static void reply_refused(struct admin_request *r, const struct controller *c,
                          struct conf_problems *problems)
{
    char text[128];
    struct json_out j;
    struct buf out;

    snprintf(text, sizeof(text), "%zu problem%s; generation %" PRIu64 " stays in force",
             problems->n, problems->n == 1 ? "" : "s", controller_generation(c)->number);
    buf_init(&out, ANSWER_CEILING);
    json_out_init(&j, &out);
    json_out_object(&j, NULL);
    json_out_str(&j, "error", text);
    put_problems(&j, problems);
    json_out_end_object(&j);
    reply(r, 422, &out);
}

/* A change is answered when every worker routes by it (they report each 250 ms), so that whoever
 * called `rollback` knows that it is over; or after a while without. */
struct waiting {
    struct list node;
    struct admin_request *request;
    uint64_t epoch; /* of the snapshot that carries the change */
    uint64_t generation;
    char *diff;
    bool changed;
    uint64_t began_us;
};

#define APPLIED_LIMIT_US (2 * US_PER_S)

/* Versions that do not have all of their traffic yet. */
static void put_held(struct json_out *j, const struct fleet *f)
{
    json_out_array(j, "held");
    list_each (&f->runs, node) {
        const struct run *const run = list_entry(node, struct run, node);

        if (!run->held)
            continue;
        json_out_object(j, NULL);
        json_out_str(j, "model", run->model);
        json_out_str(j, "version", run->version);
        json_out_uint(j, "weight", run->weight);
        json_out_uint(j, "serves", run->shown);
        json_out_end_object(j);
    }
    json_out_end_array(j);
}

static void reply_changed(const struct controller *c, struct waiting *w, bool applied)
{
    struct json_out j;
    struct buf out;

    buf_init(&out, ANSWER_CEILING);
    json_out_init(&j, &out);
    json_out_object(&j, NULL);
    json_out_uint(&j, "generation", w->generation);
    json_out_bool(&j, "changed", w->changed);
    json_out_bool(&j, "applied", applied); /* by every worker */
    json_out_str(&j, "diff", w->diff);
    put_held(&j, &c->fleet);
    json_out_uint(&j, "took_us", clock_mono_us() - w->began_us);
    json_out_end_object(&j);
    reply(w->request, 200, &out);
}

static void waiting_free(struct waiting *w)
{
    list_remove(&w->node);
    free(w->diff);
    free(w);
}

void api_step(struct controller *c)
{
    list_each (&c->waiting, node) {
        struct waiting *const w = list_entry(node, struct waiting, node);
        const bool applied = controller_workers_have(c, w->epoch);

        if (!applied && clock_mono_us() - w->began_us < APPLIED_LIMIT_US)
            continue;
        reply_changed(c, w, applied);
        waiting_free(w);
    }
}

void api_fini(struct controller *c) /* the admin listener has answered 503 to them */
{
    list_each (&c->waiting, node)
        waiting_free(list_entry(node, struct waiting, node));
}

static void reply_when_applied(struct admin_request *r, struct controller *c, bool changed,
                               uint64_t began_us)
{
    struct waiting *const w = xcalloc(1, sizeof(*w));

    w->request = r;
    w->epoch = c->epoch;
    w->generation = c->generation->number;
    w->diff = xstrdup(changed ? controller_last_diff(c) : "");
    w->changed = changed;
    w->began_us = began_us;
    list_push_back(&c->waiting, &w->node);
    api_step(c);
}

static void reply_outcome(struct admin_request *r, struct controller *c, int outcome,
                          struct conf_problems *problems, const struct err *err, uint64_t began_us)
{
    switch (outcome) {
    case APPLY_OK:
    case APPLY_SAME:
        reply_when_applied(r, c, outcome == APPLY_OK, began_us);
        break;
    case APPLY_E_INVALID:
        reply_refused(r, c, problems);
        break;
    case APPLY_E_STALE:
        admin_reply_error(r, 409,
                          "generation %" PRIu64 " is in force, not the expected one: look at it, "
                          "then try again",
                          controller_generation(c)->number);
        break;
    case APPLY_E_NOT_FOUND:
        admin_reply_error(r, 404, "%s", err->text);
        break;
    default:
        admin_reply_error(r, 500, "%s", err->text);
    }
}

typedef int (*change_fn)(struct controller *c, const struct change_request *q,
                         const struct apply_by *by, struct conf_problems *problems,
                         struct err *err);

static int do_apply(struct controller *c, const struct change_request *q, const struct apply_by *by,
                    struct conf_problems *problems, struct err *err)
{
    return controller_apply(c, q->config, strlen(q->config), by, problems, err);
}

static int do_rollback(struct controller *c, const struct change_request *q,
                       const struct apply_by *by, struct conf_problems *problems, struct err *err)
{
    return controller_rollback(c, q->model, q->generation, by, problems, err);
}

static int do_traffic(struct controller *c, const struct change_request *q,
                      const struct apply_by *by, struct conf_problems *problems, struct err *err)
{
    return controller_set_traffic(c, q->model, q->weights, q->n_weights, by, problems, err);
}

static void change(struct admin_request *r, struct controller *c, const struct conf_table *table,
                   change_fn fn)
{
    const uint64_t began_us = clock_mono_us();
    struct change_request q = {0};
    struct conf_problems problems;
    struct err err = {0};
    struct arena arena;
    size_t len = 0;
    const char *const body = admin_request_body(r, &len);
    int outcome = APPLY_E_INVALID;

    arena_init(&arena, 2 * ADMIN_BODY_BYTES);
    conf_problems_init(&problems);
    if (conf_load_text(&arena, table, body, len, "request", &q, &problems) == 0) {
        const struct apply_by by = {
            .author = q.author,
            .reason = q.reason,
            .expected = q.expected == EXPECTED_ANY ? APPLY_ANY : q.expected,
        };

        outcome = fn(c, &q, &by, &problems, &err);
    }
    reply_outcome(r, c, outcome, &problems, &err, began_us);
    conf_problems_fini(&problems);
    arena_fini(&arena);
}

static void post_apply(struct admin_request *r, void *arg)
{
    change(r, arg, &apply_table, do_apply);
}

static void post_rollback(struct admin_request *r, void *arg)
{
    change(r, arg, &rollback_table, do_rollback);
}

static void post_traffic(struct admin_request *r, void *arg)
{
    change(r, arg, &traffic_table, do_traffic);
}

void controller_add_routes(struct controller *c, struct admin *a)
{
    admin_route(a, "GET", "/v1/config", get_config, c);
    admin_route(a, "GET", "/v1/history", get_history, c);
    admin_route(a, "GET", "/v1/replicas", get_replicas, c);
    admin_route(a, "GET", "/v1/nodes", get_nodes, c);
    admin_route(a, "GET", "/v1/decisions", get_decisions, c);
    admin_route(a, "POST", "/v1/apply", post_apply, c);
    admin_route(a, "POST", "/v1/rollback", post_rollback, c);
    admin_route(a, "POST", "/v1/traffic", post_traffic, c);
    controller_jobs_add_routes(controller_batch(c), a);
}
