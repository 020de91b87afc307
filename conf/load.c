#include "conf/load.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "conf/nearest.h"

/* ---- values in messages ---- */

static const char *kind_of(const json_t *v)
{
    static const char *const names[] = {
        [JSON_OBJECT] = "an object", [JSON_ARRAY] = "an array", [JSON_STRING] = "a string",
        [JSON_INTEGER] = "a number", [JSON_REAL] = "a number",  [JSON_TRUE] = "true",
        [JSON_FALSE] = "false",      [JSON_NULL] = "null",
    };
    return names[json_typeof(v)];
}

/* The value as written, cut; objects and arrays only by their kind. */
static const char *show(char *dst, size_t size, const json_t *v)
{
    if (json_is_string(v))
        return conf_quote(dst, size, json_string_value(v));
    if (json_is_integer(v))
        snprintf(dst, size, "%" JSON_INTEGER_FORMAT, json_integer_value(v));
    else if (json_is_real(v))
        snprintf(dst, size, "%.10g", json_real_value(v));
    else
        snprintf(dst, size, "%s", kind_of(v));
    return dst;
}

/* ---- loading ---- */

static void *take(struct conf_load *l, size_t n, size_t size)
{
    void *const p = arena_alloc(l->arena, n * size); /* n and size: within the table's limits */

    if (p == NULL)
        conf_problem(&l->where, "the whole config is over the limit of %zu bytes",
                     l->arena->ceiling_bytes);
    return p;
}

static const char *take_text(struct conf_load *l, const char *text)
{
    const char *const copy = arena_strndup(l->arena, text, strlen(text));

    if (copy == NULL)
        conf_problem(&l->where, "the whole config is over the limit of %zu bytes",
                     l->arena->ceiling_bytes);
    return copy == NULL ? "" : copy;
}

static const char *space_unit(const struct conf_field *f, char dst[32])
{
    snprintf(dst, 32, "%s%s", f->unit == NULL ? "" : " ", f->unit == NULL ? "" : f->unit);
    return dst;
}

static bool load_number(struct conf_load *l, const struct conf_field *f, const json_t *v,
                        uint64_t min, uint64_t max, uint32_t *ret_number)
{
    char shown[CONF_QUOTE_BYTES], unit[32];

    space_unit(f, unit);
    if (!json_is_integer(v)) {
        conf_problem(&l->where, "%s is not a whole number%s%s", show(shown, sizeof(shown), v),
                     f->unit == NULL ? "" : " of ", f->unit == NULL ? "" : f->unit);
        return false;
    }
    const json_int_t n = json_integer_value(v);

    if (n < 0 || (uint64_t)n < min) {
        conf_problem(&l->where, "%" JSON_INTEGER_FORMAT " is under the limit of %" PRIu64 "%s", n,
                     min, unit);
        return false;
    }
    if ((uint64_t)n > max) {
        conf_problem(&l->where, "%" JSON_INTEGER_FORMAT " is over the limit of %" PRIu64 "%s", n,
                     max, unit);
        return false;
    }
    *ret_number = (uint32_t)n;
    return true;
}

static bool load_text(struct conf_load *l, const json_t *v, uint64_t min, uint64_t max,
                      conf_rule_fn rule, const char **ret_text)
{
    char shown[CONF_QUOTE_BYTES];

    if (!json_is_string(v)) {
        conf_problem(&l->where, "%s is not a string", show(shown, sizeof(shown), v));
        return false;
    }
    const size_t len = json_string_length(v);

    if (len < min) {
        conf_problem(&l->where, "%s is shorter than the limit of %" PRIu64 " byte%s",
                     show(shown, sizeof(shown), v), min, min == 1 ? "" : "s");
        return false;
    }
    if (len > max) {
        conf_problem(&l->where, "%s has %zu bytes, over the limit of %" PRIu64 " bytes",
                     show(shown, sizeof(shown), v), len, max);
        return false;
    }
    const char *const broken = rule == NULL ? NULL : rule(json_string_value(v));

    if (broken != NULL) {
        conf_problem(&l->where, "%s %s", show(shown, sizeof(shown), v), broken);
        return false;
    }
    *ret_text = take_text(l, json_string_value(v));
    return true;
}

static void load_word(struct conf_load *l, const struct conf_field *f, const json_t *v, int *into)
{
    char shown[CONF_QUOTE_BYTES], words[256] = "";
    struct nearest near;

    if (!json_is_string(v)) {
        conf_problem(&l->where, "%s is not a string", show(shown, sizeof(shown), v));
        return;
    }
    nearest_init(&near, json_string_value(v));
    for (int i = 0; f->words[i] != NULL; i++) {
        if (strcmp(f->words[i], json_string_value(v)) == 0) {
            *into = i;
            return;
        }
        nearest_offer(&near, f->words[i]);
        strncat(words, i == 0 ? "" : ", ", sizeof(words) - strlen(words) - 1);
        strncat(words, f->words[i], sizeof(words) - strlen(words) - 1);
    }
    conf_problem(&l->where, "%s is not one of: %s%s%s", show(shown, sizeof(shown), v), words,
                 near.best == NULL ? "" : "; nearest: ", near.best == NULL ? "" : near.best);
}

static bool is_container(struct conf_load *l, const json_t *v, bool array)
{
    char shown[CONF_QUOTE_BYTES];

    if (array ? json_is_array(v) : json_is_object(v))
        return true;
    conf_problem(&l->where, "%s is not %s", show(shown, sizeof(shown), v),
                 array ? "an array" : "an object");
    return false;
}

static bool count_is_fine(struct conf_load *l, const struct conf_field *f, size_t n)
{
    if (n < f->min) {
        conf_problem(&l->where, "%zu entries is under the limit of %" PRIu64, n, f->min);
        return false;
    }
    if (n > f->max) {
        conf_problem(&l->where, "%zu entries is over the limit of %" PRIu64, n, f->max);
        return false;
    }
    return true;
}

static void load_strings(struct conf_load *l, const struct conf_field *f, json_t *v, void *into)
{
    const size_t n = json_array_size(v);
    const char **items = NULL;
    json_t *item = NULL;
    size_t i = 0, n_good = 0;

    if (!is_container(l, v, true) || !count_is_fine(l, f, n))
        return;
    items = take(l, n == 0 ? 1 : n, sizeof(*items));
    if (items == NULL)
        return;
    json_array_foreach(v, i, item)
    {
        const size_t mark = conf_where_index(&l->where, i);

        n_good += load_text(l, item, 1, f->max_value, f->rule, &items[n_good]);
        conf_where_up(&l->where, mark);
    }
    *(const char ***)conf_member(into, f->offset) = items;
    *(size_t *)conf_member(into, f->count_offset) = n_good;
}

static void load_list(struct conf_load *l, const struct conf_field *f, json_t *v, void *into)
{
    const size_t n = json_array_size(v);
    char *items = NULL;
    json_t *item = NULL;
    size_t i = 0;

    if (!is_container(l, v, true) || !count_is_fine(l, f, n))
        return;
    items = take(l, n == 0 ? 1 : n, f->table->size);
    if (items == NULL)
        return;
    json_array_foreach(v, i, item)
    {
        const size_t mark = conf_where_index(&l->where, i);

        conf_load_object(l, f->table, item, items + i * f->table->size);
        conf_where_up(&l->where, mark);
    }
    *(void **)conf_member(into, f->offset) = items;
    *(size_t *)conf_member(into, f->count_offset) = n;
}

static void check_key(struct conf_load *l, const struct conf_field *f, const char *key)
{
    char shown[CONF_QUOTE_BYTES];
    const char *const broken = f->key_rule == NULL ? NULL : f->key_rule(key);

    if (broken != NULL)
        conf_problem(&l->where, "%s %s", conf_quote(shown, sizeof(shown), key), broken);
}

void conf_load_map(struct conf_load *l, const struct conf_field *f, json_t *v, void *into)
{
    const size_t n = json_object_size(v);
    char *items = NULL;
    const char *key = NULL;
    json_t *item = NULL;
    size_t i = 0;

    if (!is_container(l, v, false) || !count_is_fine(l, f, n))
        return;
    items = take(l, n == 0 ? 1 : n, f->table->size);
    if (items == NULL)
        return;
    json_object_foreach(v, key, item)
    {
        const size_t mark = conf_where_key(&l->where, key);
        char *const one = items + i++ * f->table->size;

        check_key(l, f, key);
        conf_load_object(l, f->table, item, one);
        *(const char **)(void *)one = take_text(l, key);
        conf_where_up(&l->where, mark);
    }
    *(void **)conf_member(into, f->offset) = items;
    *(size_t *)conf_member(into, f->count_offset) = n;
}

static void load_pairs(struct conf_load *l, const struct conf_field *f, json_t *v, void *into)
{
    const size_t n = json_object_size(v);
    struct conf_pair *pairs = NULL;
    const char *key = NULL;
    json_t *item = NULL;
    size_t n_good = 0;

    if (!is_container(l, v, false) || !count_is_fine(l, f, n))
        return;
    pairs = take(l, n == 0 ? 1 : n, sizeof(*pairs));
    if (pairs == NULL)
        return;
    json_object_foreach(v, key, item)
    {
        const size_t mark = conf_where_key(&l->where, key);
        struct conf_pair *const p = &pairs[n_good];

        check_key(l, f, key);
        p->key = take_text(l, key);
        if (f->of == CONF_KIND_UINT)
            n_good += load_number(l, f, item, 0, f->max_value, &p->number);
        else
            n_good += load_text(l, item, 1, f->max_value, f->rule, &p->text);
        conf_where_up(&l->where, mark);
    }
    *(struct conf_pair **)conf_member(into, f->offset) = pairs;
    *(size_t *)conf_member(into, f->count_offset) = n_good;
}

static void load_json(struct conf_load *l, const json_t *v, const char **into)
{
    char *const text = json_dumps(v, JSON_COMPACT | JSON_ENCODE_ANY | JSON_SORT_KEYS);

    check(text != NULL); /* it came out of the parser */
    *into = take_text(l, text);
    free(text);
}

static void load_field(struct conf_load *l, const struct conf_field *f, json_t *v, void *into)
{
    void *const at = conf_member(into, f->offset);
    char shown[CONF_QUOTE_BYTES];

    switch (f->kind) {
    case CONF_KIND_BOOL:
        if (json_is_boolean(v))
            *(bool *)at = json_is_true(v);
        else
            conf_problem(&l->where, "%s is neither true nor false", show(shown, sizeof(shown), v));
        break;
    case CONF_KIND_UINT:
        load_number(l, f, v, f->min, f->max, at);
        break;
    case CONF_KIND_ENUM:
        load_word(l, f, v, at);
        break;
    case CONF_KIND_STR:
        load_text(l, v, f->min, f->max, f->rule, at);
        break;
    case CONF_KIND_STRS:
        load_strings(l, f, v, into);
        break;
    case CONF_KIND_OBJECT:
        conf_load_object(l, f->table, v, at);
        break;
    case CONF_KIND_LIST:
        load_list(l, f, v, into);
        break;
    case CONF_KIND_MAP:
        conf_load_map(l, f, v, into);
        break;
    case CONF_KIND_PAIRS:
        load_pairs(l, f, v, into);
        break;
    case CONF_KIND_JSON:
        load_json(l, v, at);
        break;
    case CONF_KIND_END:
        check(false && "a row has a kind");
    }
}

static const struct conf_field *find_field(const struct conf_table *table, const char *key)
{
    for (const struct conf_field *f = table->fields; f->kind != CONF_KIND_END; f++) {
        if (strcmp(f->key, key) == 0)
            return f;
    }
    return NULL;
}

static void unknown_key(struct conf_load *l, const struct conf_table *table, const char *key)
{
    struct nearest near;

    nearest_init(&near, key);
    for (const struct conf_field *f = table->fields; f->kind != CONF_KIND_END; f++)
        nearest_offer(&near, f->key);
    if (near.best != NULL)
        conf_problem_at(&l->where, key, "unknown key; nearest: %s", near.best);
    else
        conf_problem_at(&l->where, key, "unknown key");
}

void conf_load_object(struct conf_load *l, const struct conf_table *table, json_t *object,
                      void *into)
{
    const char *key = NULL;
    json_t *value = NULL;

    conf_defaults(table, into);
    if (!is_container(l, object, false))
        return;
    json_object_foreach(object, key, value)
    {
        const struct conf_field *const f = find_field(table, key);

        if (f != NULL) {
            const size_t mark = conf_where_key(&l->where, key);

            load_field(l, f, value, into);
            conf_where_up(&l->where, mark);
        } else if (strncmp(key, "x-", 2) != 0) { /* x-...: the operator's own notes */
            unknown_key(l, table, key);
        }
    }
    for (const struct conf_field *f = table->fields; f->kind != CONF_KIND_END; f++) {
        if (f->required && json_object_get(object, f->key) == NULL)
            conf_problem_at(&l->where, f->key, "is missing; it is required");
    }
}

int conf_load_text(struct arena *arena, const struct conf_table *table, const char *text,
                   size_t len, const char *file, void *into, struct conf_problems *problems)
{
    struct conf_load l = {.arena = arena};
    const size_t before = problems->n;
    json_t *const object = conf_parse(text, len, CONF_TEXT_BYTES_MAX, file, problems);

    conf_defaults(table, into);
    if (object != NULL) {
        conf_where_init(&l.where, problems, file);
        conf_load_object(&l, table, object, into);
        json_decref(object);
    }
    return problems->n == before ? 0 : -EINVAL;
}
