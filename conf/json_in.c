#include "conf/json_in.h"

#include <errno.h>
#include <jansson.h>
#include <stdlib.h>

#include "base/xalloc.h"

/* A place is jansson's value under another name, so that the library stays in this folder. */
static json_t *value_of(const struct json_at *at)
{
    return (json_t *)(uintptr_t)at;
}

static const struct json_at *place_of(json_t *v)
{
    return (const struct json_at *)(const void *)v;
}

struct json_doc {
    json_t *root;
};

struct json_doc *json_doc_parse(const char *text, size_t len, struct err *err)
{
    json_error_t error;
    json_t *const root = json_loadb(text, len, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, &error);

    if (root == NULL) {
        err_set(err, -EINVAL, "not JSON: line %d column %d: %s", error.line, error.column,
                error.text);
        return NULL;
    }
    struct json_doc *const d = xcalloc(1, sizeof(*d));

    d->root = root;
    return d;
}

struct json_doc *json_doc_free(struct json_doc *d)
{
    if (d != NULL)
        json_decref(d->root);
    free(d);
    return NULL;
}

const struct json_at *json_doc_top(const struct json_doc *d)
{
    return place_of(d->root);
}

const struct json_at *json_at_member(const struct json_at *at, const char *key)
{
    return place_of(json_object_get(value_of(at), key)); /* NULL in, NULL out */
}

size_t json_at_n(const struct json_at *at)
{
    const json_t *const v = value_of(at);

    return json_is_array(v) ? json_array_size(v) : json_object_size(v);
}

const struct json_at *json_at_item(const struct json_at *at, size_t i)
{
    return place_of(json_array_get(value_of(at), i));
}

void json_at_each(const struct json_at *at, json_member_fn fn, void *arg)
{
    const char *key = NULL;
    json_t *v = NULL;

    json_object_foreach(value_of(at), key, v) fn(arg, key, place_of(v));
}

static const json_t *member_or_self(const struct json_at *at, const char *key)
{
    return key == NULL ? value_of(at) : json_object_get(value_of(at), key);
}

const char *json_at_str(const struct json_at *at, const char *key, const char *dflt)
{
    const json_t *const v = member_or_self(at, key);

    return json_is_string(v) ? json_string_value(v) : dflt;
}

uint64_t json_at_uint(const struct json_at *at, const char *key, uint64_t dflt)
{
    const json_t *const v = member_or_self(at, key);

    return json_is_integer(v) && json_integer_value(v) >= 0 ? (uint64_t)json_integer_value(v)
                                                            : dflt;
}

double json_at_double(const struct json_at *at, const char *key, double dflt)
{
    const json_t *const v = member_or_self(at, key);

    return json_is_number(v) ? json_number_value(v) : dflt;
}

bool json_at_bool(const struct json_at *at, const char *key, bool dflt)
{
    const json_t *const v = member_or_self(at, key);

    return json_is_boolean(v) ? json_is_true(v) : dflt;
}

char *json_at_text(const struct json_at *at)
{
    char *const text =
        at == NULL
            ? xstrdup("null")
            : json_dumps(value_of(at), JSON_INDENT(2) | JSON_ENCODE_ANY | JSON_REAL_PRECISION(15));

    check(text != NULL);
    return text;
}
