#include "conf/yaml_in.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <yaml.h>

#include "base/arena.h"
#include "base/xalloc.h"

#define ARENA_BYTES (64u * 1024 * 1024) /* 100,000 values of some 100 bytes, and the text twice */
#define TAG_CORE    "tag:yaml.org,2002:"

struct anchor {
    const char *name;
    struct yaml_value *value;
};

struct yaml_text {
    struct arena arena;
    struct yaml_value *docs[YAML_DOCS_MAX];
    size_t n_docs;
};

/* One parse: the open lists and maps, innermost last. */
struct reading {
    struct yaml_text *text;
    yaml_parser_t parser;
    struct err *err;
    struct yaml_value *open[YAML_DEPTH_MAX];
    const char *key[YAML_DEPTH_MAX]; /* of an open map: the key whose value is next */
    size_t depth;
    struct yaml_value *doc; /* the current document, once it has begun */
    struct anchor anchors[YAML_ANCHORS_MAX];
    size_t n_anchors;
    uint64_t n_values;
};

/* ---- scalars ---- */

static bool is_one_of(const char *text, const char *const *words)
{
    for (; *words != NULL; words++)
        if (strcmp(text, *words) == 0)
            return true;
    return false;
}

/* base digits from p to the end of text; false when there is another character, or none. */
static bool is_digits(const char *p, const char *digits)
{
    return *p != '\0' && p[strspn(p, digits)] == '\0';
}

static void set_int(struct yaml_value *v, const char *digits, int base, bool minus)
{
    char *end = NULL;

    v->kind = YAML_INT;
    errno = 0;
    const unsigned long long n = strtoull(digits, &end, base);

    if (errno != 0 || n > (uint64_t)INT64_MAX)
        v->is_big = true;
    else
        v->number = minus ? -(int64_t)n : (int64_t)n;
}

/* [-+]? ( \. [0-9]+ | [0-9]+ ( \. [0-9]* )? ) ( [eE] [-+]? [0-9]+ )? */
static bool is_float(const char *p)
{
    static const char digits[] = "0123456789";
    static const char *const words[] = {".inf",  ".Inf",  ".INF",  "+.inf", "+.Inf",
                                        "+.INF", "-.inf", "-.Inf", "-.INF", ".nan",
                                        ".NaN",  ".NAN",  NULL};
    size_t n = 0;

    if (is_one_of(p, words))
        return true;
    p += *p == '-' || *p == '+';
    n = strspn(p, digits);
    p += n;
    if (*p == '.') {
        const size_t after = strspn(p + 1, digits);

        if (n + after == 0)
            return false;
        p += 1 + after;
    } else if (n == 0) {
        return false;
    }
    if (*p != 'e' && *p != 'E')
        return *p == '\0';
    p++;
    p += *p == '-' || *p == '+';
    return is_digits(p, digits);
}

/* A plain scalar by the core schema. */
static void resolve(struct yaml_value *v)
{
    static const char *const nulls[] = {"", "~", "null", "Null", "NULL", NULL};
    static const char *const yes[] = {"true", "True", "TRUE", NULL};
    static const char *const no[] = {"false", "False", "FALSE", NULL};
    const char *const t = v->text, *const unsign = t + (*t == '-' || *t == '+');

    if (is_one_of(t, nulls)) {
        v->kind = YAML_NULL;
    } else if (is_one_of(t, yes) || is_one_of(t, no)) {
        v->kind = YAML_BOOL;
        v->number = is_one_of(t, yes);
    } else if (is_digits(unsign, "0123456789")) {
        set_int(v, unsign, 10, *t == '-');
    } else if (strncmp(t, "0o", 2) == 0 && is_digits(t + 2, "01234567")) {
        set_int(v, t + 2, 8, false);
    } else if (strncmp(t, "0x", 2) == 0 && is_digits(t + 2, "0123456789abcdefABCDEF")) {
        set_int(v, t + 2, 16, false);
    } else {
        v->kind = is_float(t) ? YAML_FLOAT : YAML_STRING;
    }
}

/* ---- the tree ---- */

static int refuse(const struct reading *r, const yaml_mark_t *at, const char *fmt, ...)
    PRINTF_LIKE(3, 4);
static int refuse(const struct reading *r, const yaml_mark_t *at, const char *fmt, ...)
{
    char text[400];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    return err_set(r->err, -EINVAL, "line %zu column %zu: %s", at->line + 1, at->column + 1, text);
}

static int too_big(const struct reading *r)
{
    return err_set(r->err, -EINVAL, "needs more than %u bytes of memory", ARENA_BYTES);
}

static int append(struct reading *r, struct yaml_value *to, struct yaml_value *v, const char *key)
{
    if (to->n_items == to->cap_items) {
        const uint32_t cap = to->cap_items == 0 ? 4 : to->cap_items * 2;
        struct arena *const a = &r->text->arena;
        struct yaml_value **const items = arena_alloc(a, cap * sizeof(*items));
        const char **const keys = arena_alloc(a, cap * sizeof(*keys));

        if (items == NULL || keys == NULL)
            return too_big(r);
        if (to->n_items > 0) {
            memcpy(items, to->items, to->n_items * sizeof(struct yaml_value *));
            memcpy(keys, to->keys, to->n_items * sizeof(const char *));
        }
        to->items = items;
        to->keys = keys;
        to->cap_items = cap;
    }
    to->items[to->n_items] = v;
    to->keys[to->n_items++] = key;
    return 0;
}

/* Puts a value that is complete, or about to be filled, where it belongs. is_alias: it stands
 * elsewhere too. */
static int put(struct reading *r, struct yaml_value *v, const yaml_mark_t *at, bool is_alias)
{
    struct yaml_value *const top = r->depth > 0 ? r->open[r->depth - 1] : NULL;
    int rc = 0;

    r->n_values += is_alias ? v->n_values : 1;
    if (r->n_values > YAML_VALUES_MAX)
        return refuse(r, at, "more than %u values", YAML_VALUES_MAX);
    if (top == NULL) {
        r->doc = v;
        return 0;
    }
    if (!is_alias) {
        v->parent = top;
        v->index = top->n_items;
    }
    if (top->kind == YAML_LIST)
        return append(r, top, v, NULL);
    if (top->n_items >= YAML_MEMBERS_MAX)
        return refuse(r, at, "more than %u members in one map", YAML_MEMBERS_MAX);
    if (!is_alias)
        v->key = r->key[r->depth - 1];
    rc = append(r, top, v, r->key[r->depth - 1]);
    r->key[r->depth - 1] = NULL;
    return rc;
}

/* The next scalar is a key. */
static bool wants_key(const struct reading *r)
{
    return r->depth > 0 && r->open[r->depth - 1]->kind == YAML_MAP && r->key[r->depth - 1] == NULL;
}

static int add_anchor(struct reading *r, const yaml_char_t *name, struct yaml_value *v,
                      const yaml_mark_t *at)
{
    const char *copy;
    size_t i = 0;

    if (name == NULL)
        return 0;
    while (i < r->n_anchors && strcmp(r->anchors[i].name, (const char *)name) != 0)
        i++;
    if (i == YAML_ANCHORS_MAX)
        return refuse(r, at, "more than %u anchors", YAML_ANCHORS_MAX);
    copy = arena_strndup(&r->text->arena, (const char *)name, strlen((const char *)name));
    if (copy == NULL)
        return too_big(r);
    r->anchors[i] = (struct anchor){copy, v};
    r->n_anchors += i == r->n_anchors;
    return 0;
}

static struct yaml_value *new_value(struct reading *r, enum yaml_kind kind, const yaml_mark_t *at)
{
    struct yaml_value *const v = arena_alloc(&r->text->arena, sizeof(*v));

    if (v == NULL)
        return NULL;
    v->kind = kind;
    v->line = (uint32_t)at->line + 1; /* a line has a byte: under 4 Mi */
    v->n_values = 1;
    return v;
}

static int set_key(struct reading *r, const char *key, bool is_plain, const yaml_mark_t *at)
{
    const struct yaml_value *const map = r->open[r->depth - 1];

    if (is_plain && strcmp(key, "<<") == 0)
        return refuse(r, at, "a merge key (<<): write the members out");
    for (uint32_t i = 0; i < map->n_items; i++)
        if (strcmp(map->keys[i], key) == 0)
            return refuse(r, at, "the key \"%.100s\" stands in this map twice", key);
    r->key[r->depth - 1] = key;
    return 0;
}

/* A tag of the core schema that says what the scalar is anyway, or !!str. */
static int apply_tag(const struct reading *r, struct yaml_value *v, const char *tag,
                     const yaml_mark_t *at)
{
    static const char *const names[] = {
        [YAML_NULL] = TAG_CORE "null",  [YAML_BOOL] = TAG_CORE "bool",
        [YAML_INT] = TAG_CORE "int",    [YAML_FLOAT] = TAG_CORE "float",
        [YAML_STRING] = TAG_CORE "str", [YAML_LIST] = TAG_CORE "seq",
        [YAML_MAP] = TAG_CORE "map"};

    if (tag == NULL || strcmp(tag, names[v->kind]) == 0)
        return 0;
    if (v->kind < YAML_LIST && (strcmp(tag, TAG_CORE "str") == 0 || strcmp(tag, "!") == 0)) {
        v->kind = YAML_STRING;
        v->number = 0;
        v->is_big = false;
        return 0;
    }
    return refuse(r, at, "the tag %.100s is not read here", tag);
}

static int on_scalar(struct reading *r, const yaml_event_t *ev)
{
    const char *const text = (const char *)ev->data.scalar.value;
    const size_t len = ev->data.scalar.length;
    const bool is_plain = ev->data.scalar.style == YAML_PLAIN_SCALAR_STYLE;
    struct yaml_value *const v = new_value(r, YAML_STRING, &ev->start_mark);
    int rc = 0;

    if (memchr(text, '\0', len) != NULL)
        return refuse(r, &ev->start_mark, "a string with a zero byte in it");
    if (v == NULL || (v->text = arena_strndup(&r->text->arena, text, len)) == NULL)
        return too_big(r);
    if (wants_key(r))
        return ev->data.scalar.anchor != NULL ? refuse(r, &ev->start_mark, "an anchor on a key")
                                              : set_key(r, v->text, is_plain, &ev->start_mark);
    if (is_plain)
        resolve(v);
    rc = apply_tag(r, v, (const char *)ev->data.scalar.tag, &ev->start_mark);
    if (rc == 0)
        rc = put(r, v, &ev->start_mark, false);
    return rc < 0 ? rc : add_anchor(r, ev->data.scalar.anchor, v, &ev->start_mark);
}

static int on_open(struct reading *r, enum yaml_kind kind, const yaml_char_t *tag,
                   const yaml_char_t *anchor, const yaml_mark_t *at)
{
    struct yaml_value *v = NULL;
    int rc = 0;

    if (wants_key(r))
        return refuse(r, at, "a key that is not a string");
    if (r->depth == YAML_DEPTH_MAX)
        return refuse(r, at, "nested deeper than %u", YAML_DEPTH_MAX);
    v = new_value(r, kind, at);
    if (v == NULL)
        return too_big(r);
    rc = apply_tag(r, v, (const char *)tag, at);
    if (rc == 0)
        rc = put(r, v, at, false);
    if (rc == 0)
        rc = add_anchor(r, anchor, v, at);
    v->n_values = 0; /* open: an alias to it would be a loop */
    r->key[r->depth] = NULL;
    r->open[r->depth++] = v;
    return rc;
}

static void on_close(struct reading *r)
{
    struct yaml_value *const v = r->open[--r->depth];

    v->n_values = v->height = 1;
    for (uint32_t i = 0; i < v->n_items; i++) {
        v->n_values += v->items[i]->n_values; /* each is at most YAML_VALUES_MAX */
        if (v->height <= v->items[i]->height)
            v->height = v->items[i]->height + 1;
    }
}

static int on_alias(struct reading *r, const yaml_event_t *ev)
{
    const char *const name = (const char *)ev->data.alias.anchor;

    if (wants_key(r))
        return refuse(r, &ev->start_mark, "an alias as a key");
    for (size_t i = 0; i < r->n_anchors; i++) {
        if (strcmp(r->anchors[i].name, name) != 0)
            continue;
        if (r->anchors[i].value->n_values == 0)
            return refuse(r, &ev->start_mark, "*%.100s holds itself", name);
        if (r->depth + r->anchors[i].value->height > YAML_DEPTH_MAX)
            return refuse(r, &ev->start_mark, "nested deeper than %u", YAML_DEPTH_MAX);
        return put(r, r->anchors[i].value, &ev->start_mark, true);
    }
    return refuse(r, &ev->start_mark, "*%.100s has no anchor before it", name);
}

static int on_doc_end(struct reading *r, const yaml_event_t *ev)
{
    if (r->doc != NULL && r->doc->kind == YAML_NULL && r->doc->text[0] == '\0')
        return 0; /* nothing between two --- */
    if (r->text->n_docs == YAML_DOCS_MAX)
        return refuse(r, &ev->start_mark, "more than %u documents", YAML_DOCS_MAX);
    r->text->docs[r->text->n_docs++] = r->doc;
    return 0;
}

static int on_event(struct reading *r, const yaml_event_t *ev)
{
    switch (ev->type) {
    case YAML_DOCUMENT_START_EVENT:
        r->doc = NULL;
        r->n_anchors = 0;
        return 0;
    case YAML_DOCUMENT_END_EVENT:
        return on_doc_end(r, ev);
    case YAML_SCALAR_EVENT:
        return on_scalar(r, ev);
    case YAML_ALIAS_EVENT:
        return on_alias(r, ev);
    case YAML_SEQUENCE_START_EVENT:
        return on_open(r, YAML_LIST, ev->data.sequence_start.tag, ev->data.sequence_start.anchor,
                       &ev->start_mark);
    case YAML_MAPPING_START_EVENT:
        return on_open(r, YAML_MAP, ev->data.mapping_start.tag, ev->data.mapping_start.anchor,
                       &ev->start_mark);
    case YAML_SEQUENCE_END_EVENT:
    case YAML_MAPPING_END_EVENT:
        on_close(r);
        return 0;
    case YAML_NO_EVENT:
    case YAML_STREAM_START_EVENT:
    case YAML_STREAM_END_EVENT:
        return 0;
    }
    return 0;
}

/* What the library has to say of the text. */
static int refuse_syntax(const struct reading *r)
{
    const yaml_parser_t *const p = &r->parser;
    const char *const problem = p->problem != NULL ? p->problem : "out of memory";

    if (p->error == YAML_READER_ERROR)
        return err_set(r->err, -EINVAL, "byte %zu: %s", p->problem_offset, problem);
    return refuse(r, &p->problem_mark, "%s%s%s", problem, p->context != NULL ? ", " : "",
                  p->context != NULL ? p->context : "");
}

struct yaml_text *yaml_text_parse(const char *text, size_t len, struct err *err)
{
    struct yaml_text *y = NULL;
    struct reading *r = NULL;
    bool ended = false;
    int rc = 0;

    if (len > YAML_TEXT_BYTES_MAX) {
        err_set(err, -EINVAL, "is over the limit of %u bytes", YAML_TEXT_BYTES_MAX);
        return NULL;
    }
    y = xcalloc(1, sizeof(*y));
    r = xcalloc(1, sizeof(*r));
    arena_init(&y->arena, ARENA_BYTES);
    r->text = y;
    r->err = err;
    check(yaml_parser_initialize(&r->parser));
    yaml_parser_set_encoding(&r->parser, YAML_UTF8_ENCODING);
    yaml_parser_set_input_string(&r->parser, (const unsigned char *)text, len);
    while (rc == 0 && !ended) {
        yaml_event_t ev;

        if (!yaml_parser_parse(&r->parser, &ev)) {
            rc = refuse_syntax(r);
            break;
        }
        ended = ev.type == YAML_STREAM_END_EVENT;
        rc = on_event(r, &ev);
        yaml_event_delete(&ev);
    }
    yaml_parser_delete(&r->parser);
    free(r);
    return rc == 0 ? y : yaml_text_free(y);
}

struct yaml_text *yaml_text_free(struct yaml_text *y)
{
    if (y != NULL)
        arena_fini(&y->arena);
    free(y);
    return NULL;
}

size_t yaml_text_n_docs(const struct yaml_text *y)
{
    return y->n_docs;
}

struct yaml_value *yaml_text_doc(const struct yaml_text *y, size_t i)
{
    check(i < y->n_docs);
    return y->docs[i];
}

/* ---- reading it ---- */

struct yaml_value *yaml_member(const struct yaml_value *map, const char *key)
{
    if (map == NULL || map->kind != YAML_MAP)
        return NULL;
    for (uint32_t i = 0; i < map->n_items; i++)
        if (strcmp(map->keys[i], key) == 0)
            return map->items[i];
    return NULL;
}

const char *yaml_path(const struct yaml_value *v, char *dst, size_t size)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-";
    const struct yaml_value *up[YAML_DEPTH_MAX];
    size_t n = 0, len = 0;

    check(size > 0);
    dst[0] = '\0';
    for (; v->parent != NULL && n < YAML_DEPTH_MAX; v = v->parent)
        up[n++] = v;
    while (n-- > 0 && len < size) {
        const char *const key = up[n]->key;
        int wrote;

        if (key == NULL)
            wrote = snprintf(dst + len, size - len, "[%" PRIu32 "]", up[n]->index);
        else if (key[0] != '\0' && key[strspn(key, plain)] == '\0')
            wrote = snprintf(dst + len, size - len, "%s%s", len > 0 ? "." : "", key);
        else
            wrote = snprintf(dst + len, size - len, "[\"%s\"]", key);
        len += (size_t)wrote;
    }
    return dst;
}

const char *yaml_kind_name(enum yaml_kind kind)
{
    static const char *const names[] = {"nothing",  "true or false", "a whole number", "a number",
                                        "a string", "a list",        "a map"};

    check((size_t)kind < sizeof(names) / sizeof(names[0]));
    return names[kind];
}
