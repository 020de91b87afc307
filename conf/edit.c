#include "conf/edit.h"

#include <stdlib.h>
#include <string.h>

#include "conf/load.h"

const struct model_conf *generation_model(const struct generation *g, const char *name)
{
    size_t low = 0, high = g->n_models;

    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        const int order = strcmp(g->models[middle].name, name);

        if (order == 0)
            return &g->models[middle];
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return NULL;
}

static json_t *tree_of(const char *json)
{
    json_t *const tree = json_loads(json, 0, NULL);

    check(tree != NULL); /* the text of a generation that was loaded */
    return tree;
}

static char *text_of(json_t *tree)
{
    char *const text = json_dumps(tree, JSON_COMPACT | JSON_SORT_KEYS);

    check(text != NULL);
    json_decref(tree);
    return text;
}

/* "models/ctr.json" -> "ctr.json": the key in the tree. */
static const char *file_key(const struct model_conf *m)
{
    return m->file + strlen("models/");
}

static json_t *model_object(json_t *tree, const struct model_conf *m)
{
    return json_object_get(json_object_get(tree, "models"), file_key(m));
}

char *edit_model_from(const struct generation *now, const struct generation *then,
                      const char *model)
{
    const struct model_conf *const m_now = generation_model(now, model);
    const struct model_conf *const m_then = generation_model(then, model);
    json_t *const tree = tree_of(now->source_json);
    json_t *const models = json_object_get(tree, "models");

    if (m_now != NULL)
        json_object_del(models, file_key(m_now));
    if (m_then != NULL) {
        json_t *const old = tree_of(then->source_json);

        json_object_set(models, file_key(m_then), model_object(old, m_then));
        json_decref(old);
    }
    return text_of(tree);
}

char *edit_traffic(const struct generation *now, const char *model, const struct conf_pair *weights,
                   size_t n_weights)
{
    const struct model_conf *const m = generation_model(now, model);

    if (m == NULL)
        return NULL;
    json_t *const tree = tree_of(now->source_json);
    json_t *const traffic = json_object();

    for (size_t i = 0; i < n_weights; i++)
        json_object_set_new(traffic, weights[i].key, json_integer(weights[i].number));
    json_object_set_new(model_object(tree, m), "traffic", traffic);
    return text_of(tree);
}

bool edit_same_model(const struct generation *a, const struct generation *b, const char *model)
{
    const struct model_conf *const m_a = generation_model(a, model);
    const struct model_conf *const m_b = generation_model(b, model);

    if (m_a == NULL || m_b == NULL)
        return m_a == m_b;
    json_t *const t_a = tree_of(a->source_json);
    json_t *const t_b = tree_of(b->source_json);
    const bool same = json_equal(model_object(t_a, m_a), model_object(t_b, m_b)) == 1;

    json_decref(t_a);
    json_decref(t_b);
    return same;
}

/* ---- diff ---- */

struct diff {
    struct conf_where where; /* only its pointer is used */
    struct buf *out;
};

static void put_value(struct buf *out, const json_t *v)
{
    char *const text = json_dumps(v, JSON_COMPACT | JSON_ENCODE_ANY | JSON_SORT_KEYS);

    check(text != NULL);
    buf_append_str(out, text);
    free(text);
}

static void put_place(struct diff *d)
{
    buf_printf(d->out, "%s#%s: ", d->where.file, d->where.pointer);
}

static void diff_values(struct diff *d, json_t *from, json_t *to);

static void diff_objects(struct diff *d, json_t *from, json_t *to)
{
    const char *key = NULL;
    json_t *v = NULL;

    json_object_foreach(from, key, v)
    {
        const size_t mark = conf_where_key(&d->where, key);

        diff_values(d, v, json_object_get(to, key));
        conf_where_up(&d->where, mark);
    }
    json_object_foreach(to, key, v)
    {
        const size_t mark = conf_where_key(&d->where, key);

        if (json_object_get(from, key) == NULL)
            diff_values(d, NULL, v);
        conf_where_up(&d->where, mark);
    }
}

/* The depth is bounded: both came through the parser's limit. */
static void diff_values(struct diff *d, json_t *from, json_t *to)
{
    if (from != NULL && to != NULL && json_equal(from, to))
        return;
    if (json_is_object(from) && json_is_object(to)) {
        diff_objects(d, from, to);
        return;
    }
    put_place(d);
    if (from == NULL) {
        buf_append_str(d->out, "+ ");
        put_value(d->out, to);
    } else if (to == NULL) {
        buf_append_str(d->out, "- ");
        put_value(d->out, from);
    } else {
        put_value(d->out, from);
        buf_append_str(d->out, " -> ");
        put_value(d->out, to);
    }
    buf_append_str(d->out, "\n");
}

static void diff_file(const char *file, json_t *from, json_t *to, struct buf *out)
{
    struct diff d = {.out = out};

    conf_where_init(&d.where, NULL, file);
    if (from != NULL || to != NULL)
        diff_values(&d, from, to);
}

void edit_diff(const char *from_json, const char *to_json, struct buf *out)
{
    json_t *const from = from_json == NULL ? json_object() : tree_of(from_json);
    json_t *const to = to_json == NULL ? json_object() : tree_of(to_json);
    json_t *const from_models = json_object_get(from, "models");
    json_t *const to_models = json_object_get(to, "models");
    const char *key = NULL;
    json_t *v = NULL;
    struct buf file;

    buf_init(&file, 512);
    json_object_foreach(from_models, key, v)
    {
        buf_reset(&file);
        buf_printf(&file, "models/%s", key);
        diff_file(buf_cstr(&file), v, json_object_get(to_models, key), out);
    }
    json_object_foreach(to_models, key, v)
    {
        buf_reset(&file);
        buf_printf(&file, "models/%s", key);
        if (json_object_get(from_models, key) == NULL)
            diff_file(buf_cstr(&file), NULL, v, out);
    }
    buf_fini(&file);
    diff_file("nodes.json", json_object_get(from, "nodes"), json_object_get(to, "nodes"), out);
    diff_file("queues.json", json_object_get(from, "queues"), json_object_get(to, "queues"), out);
    json_decref(from);
    json_decref(to);
}
