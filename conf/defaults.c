/* conf/defaults.c - what a table gives to keys that nobody wrote: in structs, and in JSON for
 * people. */
#include "conf/load.h"

void conf_defaults(const struct conf_table *table, void *into)
{
    for (const struct conf_field *f = table->fields; f->kind != CONF_KIND_END; f++) {
        void *const at = conf_member(into, f->offset);

        switch (f->kind) {
        case CONF_KIND_BOOL:
            *(bool *)at = f->dflt != 0;
            break;
        case CONF_KIND_UINT:
            *(uint32_t *)at = (uint32_t)f->dflt;
            break;
        case CONF_KIND_ENUM:
            *(int *)at = (int)f->dflt;
            break;
        case CONF_KIND_STR:
            *(const char **)at = f->dflt_text == NULL ? "" : f->dflt_text;
            break;
        case CONF_KIND_OBJECT:
            conf_defaults(f->table, at);
            break;
        case CONF_KIND_STRS:
        case CONF_KIND_LIST:
        case CONF_KIND_MAP:
        case CONF_KIND_PAIRS:
        case CONF_KIND_JSON:
        case CONF_KIND_END:
            break; /* empty */
        }
    }
}

static json_t *default_of(const struct conf_field *f)
{
    switch (f->kind) {
    case CONF_KIND_BOOL:
        return json_boolean(f->dflt != 0);
    case CONF_KIND_UINT:
        return json_integer((json_int_t)f->dflt);
    case CONF_KIND_ENUM:
        return json_string(f->words[f->dflt]);
    case CONF_KIND_STR:
        return json_string(f->dflt_text == NULL ? "" : f->dflt_text);
    case CONF_KIND_OBJECT:
        return conf_with_defaults(f->table, NULL);
    case CONF_KIND_STRS:
    case CONF_KIND_LIST:
        return json_array();
    case CONF_KIND_MAP:
    case CONF_KIND_PAIRS:
        return json_object();
    case CONF_KIND_JSON:
    case CONF_KIND_END:
        break;
    }
    return json_null();
}

static json_t *list_with_defaults(const struct conf_field *f, json_t *array)
{
    json_t *const whole = json_array();
    json_t *item = NULL;
    size_t i = 0;

    json_array_foreach(array, i, item)
        json_array_append_new(whole, conf_with_defaults(f->table, item));
    return whole;
}

json_t *conf_map_with_defaults(const struct conf_field *f, json_t *object)
{
    json_t *const whole = json_object();
    const char *key = NULL;
    json_t *item = NULL;

    json_object_foreach(object, key, item)
        json_object_set_new(whole, key, conf_with_defaults(f->table, item));
    return whole;
}

json_t *conf_with_defaults(const struct conf_table *table, json_t *object)
{
    json_t *const whole = json_object();

    for (const struct conf_field *f = table->fields; f->kind != CONF_KIND_END; f++) {
        json_t *const v = json_object_get(object, f->key);

        if (v == NULL)
            json_object_set_new(whole, f->key, default_of(f));
        else if (f->kind == CONF_KIND_OBJECT)
            json_object_set_new(whole, f->key, conf_with_defaults(f->table, v));
        else if (f->kind == CONF_KIND_LIST)
            json_object_set_new(whole, f->key, list_with_defaults(f, v));
        else if (f->kind == CONF_KIND_MAP)
            json_object_set_new(whole, f->key, conf_map_with_defaults(f, v));
        else
            json_object_set(whole, f->key, v);
    }
    return whole;
}
