/* conf/yaml_in.h - read YAML (and JSON, which is YAML too) that somebody else wrote: job manifests.
 *
 * Scalars are those of the core schema of YAML 1.2: `yes` and `on` are strings, 0o17 is 15, 017 is
 * 17, a quoted scalar is always a string. Keys are strings, each once. Anchors and aliases are
 * read, counted as often as they are used; merge keys (<<) and tags other than the core ones are
 * refused.
 *
 * Owns:      yaml_text: its documents; everything in one arena.
 * Called by: placer/manifest.c.
 * Lifetime:  yaml_text_parse .. yaml_text_free; values and strings are valid until then.
 * Thread:    one.
 * Source:    YAML 1.2.2, section 10.3 (core schema); RFC 8259.
 */
#ifndef CONF_YAML_IN_H
#define CONF_YAML_IN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

#define YAML_TEXT_BYTES_MAX (4u * 1024 * 1024)
#define YAML_VALUES_MAX     100000u /* of a text, aliases counted as often as they are used */
#define YAML_MEMBERS_MAX    1000u   /* of one map: each key is compared with those before it */
#define YAML_ANCHORS_MAX    100u
#define YAML_DEPTH_MAX      64u
#define YAML_DOCS_MAX       100u

enum yaml_kind { YAML_NULL = 0, YAML_BOOL, YAML_INT, YAML_FLOAT, YAML_STRING, YAML_LIST, YAML_MAP };

struct yaml_value {
    enum yaml_kind kind;
    uint32_t line;             /* 1 .. */
    uint32_t n_values;         /* itself and all below it */
    uint32_t height;           /* maps and lists on the way down from it, itself counted */
    const char *text;          /* a scalar as it was written, without quotes and escapes */
    int64_t number;            /* BOOL: 0 or 1; INT: its value */
    bool is_big;               /* INT outside of int64_t: number is 0, text has it */
    bool used;                 /* the reader's mark: a key that it knows */
    const char *key;           /* as a member */
    struct yaml_value *parent; /* NULL: the document. Of an alias: where its anchor stands */
    struct yaml_value **items; /* LIST: items, MAP: the values of its members, in their order */
    const char **keys;         /* MAP: of the members */
    uint32_t n_items, cap_items;
    uint32_t index; /* in its list */
};

struct yaml_text;

/* The documents of text; an empty one is left out. NULL with err (line and column, or the limit
 * that it passes) when it is none. */
struct yaml_text *yaml_text_parse(const char *text, size_t len, struct err *err);
struct yaml_text *yaml_text_free(struct yaml_text *y); /* returns NULL */
size_t yaml_text_n_docs(const struct yaml_text *y);
struct yaml_value *yaml_text_doc(const struct yaml_text *y, size_t i);

/* The member of a map; NULL: none, or map is NULL or no map. */
struct yaml_value *yaml_member(const struct yaml_value *map, const char *key);
/* Where it stands: "spec.tasks[0].replicas", `metadata.annotations["a/b"]`; "" is the document.
 * Cut to size. Returns dst. */
const char *yaml_path(const struct yaml_value *v, char *dst, size_t size);
const char *yaml_kind_name(enum yaml_kind kind); /* "a string", "a list" */

#endif
