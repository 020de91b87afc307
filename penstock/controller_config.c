/* penstock/controller_config.c - generations: numbered, kept with author, reason and diff, put in
 * force whole or not at all. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "conf/edit.h"
#include "conf/problem.h"
#include "penstock/controller_state.h"

#define LOOK_BACK 10000 /* generations that a rollback searches */

static struct generation *load_stored(const struct stored_generation *s,
                                      struct conf_problems *problems)
{
    struct generation *const g = generation_load_text(s->source, strlen(s->source), problems);

    if (g != NULL) {
        g->number = s->number;
        g->created_us = s->created_us;
        g->author = arena_strndup(&g->arena, s->author, strlen(s->author));
        g->reason = arena_strndup(&g->arena, s->reason, strlen(s->reason));
        check(g->author != NULL && g->reason != NULL); /* both are short */
    }
    return g;
}

/* Writes g to the state folder under the next number, then puts it in force. */
static int put_in_force(struct controller *c, struct generation *g, const struct apply_by *by,
                        struct err *err)
{
    struct stored_generation s = {
        .number = store_newest(c->store) + 1,
        .created_us = clock_wall_us(),
        .author = by->author,
        .reason = by->reason,
        .source = g->source_json,
    };

    buf_reset(&c->last_diff);
    edit_diff(c->generation == NULL ? NULL : c->generation->source_json, g->source_json,
              &c->last_diff);
    s.diff = buf_cstr(&c->last_diff);
    const int r = store_add(c->store, &s, err);

    if (r < 0)
        return r;
    g->number = s.number;
    g->created_us = s.created_us;
    g->author = arena_strndup(&g->arena, by->author, strlen(by->author));
    g->reason = arena_strndup(&g->arena, by->reason, strlen(by->reason));
    check(g->author != NULL && g->reason != NULL);

    struct generation *const before = c->generation;

    c->generation = generation_ref(g);
    if (c->gateway != NULL)
        controller_take_generation(c, by->back);
    generation_unref(before); /* last: the fleet pointed into it until now */
    decisions_add(c->decisions, "apply", "", "", "generation %" PRIu64 " by %s%s%s", g->number,
                  by->author, by->reason[0] == '\0' ? "" : ": ", by->reason);
    return APPLY_OK;
}

static void log_refused(const struct controller *c, const struct conf_problems *problems)
{
    log_warn("config_refused", "problems=%zu msg=\"generation %" PRIu64 " stays in force\"",
             problems->n, c->generation->number);
}

static bool has_version(const struct model_conf *m, const char *version)
{
    for (size_t i = 0; i < m->n_versions; i++) {
        if (strcmp(m->versions[i].name, version) == 0)
            return true;
    }
    return false;
}

/* A version that has traffic can't leave: it goes on serving while the others get ready. True when
 * that is so. */
static bool may_follow(const struct controller *c, const struct generation *next,
                       struct conf_problems *problems)
{
    const struct generation *const now = c->generation;
    const size_t before = problems->n;
    struct conf_where where;

    for (size_t i = 0; i < now->n_models; i++) {
        const struct model_conf *const m = &now->models[i];
        const struct model_conf *const then = generation_model(next, m->name);

        for (size_t v = 0; then != NULL && v < m->n_versions; v++) {
            if (m->traffic[v] == 0 || has_version(then, m->versions[v].name))
                continue;
            conf_where_init(&where, problems, then->file);
            conf_where_key(&where, "versions");
            conf_problem_at(&where, m->versions[v].name,
                            "is gone, but has %u parts of the traffic in generation %" PRIu64
                            ": keep it with weight 0, and remove it in a later generation",
                            m->traffic[v], now->number);
        }
    }
    return problems->n == before;
}

int controller_apply(struct controller *c, const char *text, size_t len, const struct apply_by *by,
                     struct conf_problems *problems, struct err *err)
{
    int r = APPLY_OK;

    if (by->expected != APPLY_ANY && by->expected != c->generation->number)
        return APPLY_E_STALE;
    struct generation *const g = generation_load_text(text, len, problems);

    if (g == NULL || (!by->back && !may_follow(c, g, problems))) {
        log_refused(c, problems);
        generation_unref(g);
        return APPLY_E_INVALID;
    }
    if (strcmp(g->source_json, c->generation->source_json) == 0) {
        buf_reset(&c->last_diff);
        r = APPLY_SAME;
    } else {
        r = put_in_force(c, g, by, err);
    }
    generation_unref(g);
    return r;
}

/* ---- rollback, traffic ---- */

struct search {
    const struct controller *c;
    const char *model;
    uint64_t number; /* 0: the newest that differs from now */
    uint32_t n;
    struct generation *found;
};

static bool look_at(void *arg, const struct stored_generation *s)
{
    struct search *const search = arg;
    struct conf_problems ignored;

    if (search->number != 0 && s->number != search->number)
        return false; /* there is none of that number */
    conf_problems_init(&ignored);
    struct generation *const g = load_stored(s, &ignored);

    conf_problems_fini(&ignored);
    if (g != NULL && generation_model(g, search->model) != NULL &&
        (search->number != 0 || !edit_same_model(g, search->c->generation, search->model))) {
        search->found = g;
        return false;
    }
    generation_unref(g);
    return search->number == 0 && ++search->n < LOOK_BACK;
}

int controller_rollback(struct controller *c, const char *model, uint64_t number,
                        const struct apply_by *by, struct conf_problems *problems, struct err *err)
{
    struct search search = {.c = c, .model = model, .number = number};
    int r = 0;

    if (by->expected != APPLY_ANY && by->expected != c->generation->number)
        return APPLY_E_STALE;
    r = store_each(c->store, number, look_at, &search, err);
    if (r < 0)
        return r;
    if (search.found == NULL) {
        if (number == 0)
            err_set(err, -ENOENT, "no earlier generation has another config of model %s", model);
        else
            err_set(err, -ENOENT, "there is no generation %" PRIu64 " with model %s", number,
                    model);
        return APPLY_E_NOT_FOUND;
    }
    char *const text = edit_model_from(c->generation, search.found, model);
    struct apply_by back = *by;

    back.back = true;
    r = controller_apply(c, text, strlen(text), &back, problems, err);
    free(text);
    generation_unref(search.found);
    return r;
}

int controller_set_traffic(struct controller *c, const char *model, const struct conf_pair *weights,
                           size_t n_weights, const struct apply_by *by,
                           struct conf_problems *problems, struct err *err)
{
    char *const text = edit_traffic(c->generation, model, weights, n_weights);

    if (text == NULL) {
        err_set(err, -ENOENT, "there is no model %s", model);
        return APPLY_E_NOT_FOUND;
    }
    const int r = controller_apply(c, text, strlen(text), by, problems, err);

    free(text);
    return r;
}

/* ---- the first generation ---- */

struct newest {
    struct generation *found;
    struct conf_problems *problems;
};

static bool take_newest(void *arg, const struct stored_generation *s)
{
    struct newest *const newest = arg;

    newest->found = load_stored(s, newest->problems);
    return false;
}

static int take_folder(struct controller *c, const struct apply_by *by,
                       struct conf_problems *problems, struct err *err)
{
    struct generation *const g = generation_load_dir(c->process->models, problems);
    int r = APPLY_SAME;

    if (g == NULL || (c->gateway != NULL && !may_follow(c, g, problems))) {
        generation_unref(g);
        return APPLY_E_INVALID;
    }
    if (c->generation == NULL || strcmp(c->generation->source_json, g->source_json) != 0)
        r = put_in_force(c, g, by, err);
    generation_unref(g);
    return r;
}

static void log_problems(struct conf_problems *problems)
{
    char *line = (char *)(uintptr_t)buf_cstr(&problems->text);
    char quoted[2048];

    for (char *end = strchr(line, '\n'); end != NULL; line = end + 1, end = strchr(line, '\n')) {
        *end = '\0';
        log_warn("config_problem", "msg=%s", log_quote(quoted, sizeof(quoted), line));
    }
}

void controller_reload(struct controller *c)
{
    const struct apply_by by = {.author = "penstock up", .reason = "SIGHUP"};
    struct conf_problems problems;
    struct err err = {0};
    char quoted[sizeof(err.text) * 2];

    if (c->process->models[0] == '\0') {
        log_warn("config_refused", "problems=0 msg=\"no config folder was given at the start\"");
        return;
    }
    conf_problems_init(&problems);
    const int r = take_folder(c, &by, &problems, &err);

    if (r == APPLY_E_INVALID) {
        log_problems(&problems);
        log_refused(c, &problems);
    } else if (r < 0) {
        log_error("config_refused", "msg=%s", log_quote(quoted, sizeof(quoted), err.text));
    }
    conf_problems_fini(&problems);
}

int config_begin(struct controller *c, struct conf_problems *problems, struct err *err)
{
    static const char empty[] = "{\"models\":{}}";
    const char *const models = c->process->models;
    const struct apply_by by = {.author = "penstock up", .reason = models};
    struct newest newest = {.problems = problems};
    int r = store_each(c->store, 0, take_newest, &newest, err);

    if (r < 0)
        return r;
    c->generation = newest.found;
    if (c->generation == NULL && store_newest(c->store) != 0 && models[0] == '\0')
        return -EINVAL; /* an older program wrote it, and this one's rules are stricter */
    if (models[0] != '\0') {
        r = take_folder(c, &by, problems, err);
        return r == APPLY_E_INVALID ? -EINVAL : r == APPLY_SAME ? 0 : r;
    }
    if (c->generation == NULL)
        c->generation = generation_load_text(empty, sizeof(empty) - 1, problems);
    check(c->generation != NULL);
    return 0;
}
