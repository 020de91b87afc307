/* conf/field.h - what a config file may say, as tables: one row per key.
 *
 * Owns:      nothing: tables are static const; values go into the caller's struct and arena.
 * Called by: the loader (conf/load.h), --print-config, --print-reference and --print-schema.
 * Thread:    any reader.
 *
 *     static const struct conf_field limits_fields[] = {
 *         CONF_UINT(struct limits_conf, deadline_ms, "deadline_ms", .unit = "ms", .max = 3600000,
 *                   .doc = "for calls that bring no grpc-timeout; 0: none"),
 *         CONF_END,
 *     };
 *
 * Every count, length and value has a limit in its row.
 */
#ifndef CONF_FIELD_H
#define CONF_FIELD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum conf_kind {
    CONF_KIND_END = 0,
    CONF_KIND_BOOL,   /* bool */
    CONF_KIND_UINT,   /* uint32_t */
    CONF_KIND_ENUM,   /* int: index into words */
    CONF_KIND_STR,    /* const char * */
    CONF_KIND_STRS,   /* const char ** and its count */
    CONF_KIND_OBJECT, /* a struct inside the struct */
    CONF_KIND_LIST,   /* array of structs and its count, from a JSON array */
    CONF_KIND_MAP,    /* the same from a JSON object: the key goes to the struct's first member */
    CONF_KIND_PAIRS,  /* struct conf_pair * and its count: a JSON object of scalars */
    CONF_KIND_JSON,   /* const char *: any JSON value, kept as text */
};

/* A member of an object whose keys the operator chooses and whose values are scalars (labels,
 * traffic): which other thing the key or value names is found out later. */
struct conf_pair {
    const char *key;
    const char *text; /* of = CONF_KIND_STR */
    uint32_t number;  /* of = CONF_KIND_UINT */
};

/* A rule for a string: NULL when it holds, else the rule in words ("is not host:port"). */
typedef const char *(*conf_rule_fn)(const char *text);

struct conf_field {
    const char *key;
    const char *doc; /* for the operator, in the reference page */
    const char *why; /* a limit on what clients or replicas may do: the reason for its default;
                        such rows make docs/limits.md */
    const char *unit;
    enum conf_kind kind;
    enum conf_kind of; /* CONF_KIND_PAIRS: CONF_KIND_STR or CONF_KIND_UINT */
    size_t offset;
    size_t count_offset; /* STRS, LIST, MAP, PAIRS */
    bool required;
    bool reload;                    /* penstock.json: taken over without a restart */
    uint64_t min, max;              /* UINT: value; STR: bytes; STRS, LIST, MAP, PAIRS: how many */
    uint64_t max_value;             /* PAIRS of UINT: each value; STRS: bytes of each */
    uint64_t dflt;                  /* BOOL, UINT, ENUM */
    const char *dflt_text;          /* STR; NULL: "" */
    const char *const *words;       /* ENUM: the words, NULL at the end */
    const struct conf_table *table; /* OBJECT, LIST, MAP */
    conf_rule_fn rule;              /* STR, and each of STRS */
    conf_rule_fn key_rule;          /* MAP, PAIRS: each key */
};

/* An object: its rows, the size of its struct, and a sentence about it. */
struct conf_table {
    const char *title; /* heading in the reference page */
    const char *doc;
    size_t size;
    const struct conf_field *fields;
};

#define CONF_BOOL(type, member, name, ...)                                                         \
    {                                                                                              \
        .key = (name), .kind = CONF_KIND_BOOL, .offset = offsetof(type, member), __VA_ARGS__       \
    }
#define CONF_UINT(type, member, name, ...)                                                         \
    {                                                                                              \
        .key = (name), .kind = CONF_KIND_UINT, .offset = offsetof(type, member), __VA_ARGS__       \
    }
#define CONF_ENUM(type, member, name, ...)                                                         \
    {                                                                                              \
        .key = (name), .kind = CONF_KIND_ENUM, .offset = offsetof(type, member), __VA_ARGS__       \
    }
#define CONF_STR(type, member, name, ...)                                                          \
    {                                                                                              \
        .key = (name), .kind = CONF_KIND_STR, .offset = offsetof(type, member), __VA_ARGS__        \
    }
#define CONF_STRS(type, member, name, ...)                                                         \
    {                                                                                              \
        .key = (name), .kind = CONF_KIND_STRS, .offset = offsetof(type, member),                   \
        .count_offset = offsetof(type, n_##member), __VA_ARGS__                                    \
    }
#define CONF_OBJECT(type, member, name, ...)                                                       \
    {                                                                                              \
        .key = (name), .kind = CONF_KIND_OBJECT, .offset = offsetof(type, member), __VA_ARGS__     \
    }
#define CONF_LIST(type, member, name, ...)                                                         \
    {                                                                                              \
        .key = (name), .kind = CONF_KIND_LIST, .offset = offsetof(type, member),                   \
        .count_offset = offsetof(type, n_##member), __VA_ARGS__                                    \
    }
#define CONF_MAP(type, member, name, ...)                                                          \
    {                                                                                              \
        .key = (name), .kind = CONF_KIND_MAP, .offset = offsetof(type, member),                    \
        .count_offset = offsetof(type, n_##member), __VA_ARGS__                                    \
    }
#define CONF_PAIRS(type, member, name, ...)                                                        \
    {                                                                                              \
        .key = (name), .kind = CONF_KIND_PAIRS, .offset = offsetof(type, member),                  \
        .count_offset = offsetof(type, n_##member), __VA_ARGS__                                    \
    }
#define CONF_JSON(type, member, name, ...)                                                         \
    {                                                                                              \
        .key = (name), .kind = CONF_KIND_JSON, .offset = offsetof(type, member), __VA_ARGS__       \
    }
#define CONF_END                                                                                   \
    {                                                                                              \
        .kind = CONF_KIND_END                                                                      \
    }

struct arena;
struct conf_problems;

/* Fill a zeroed struct with its table's defaults. */
void conf_defaults(const struct conf_table *table, void *into);

/* One JSON text into the zeroed struct at `into`; strings and arrays go to the arena. For files
 * that other folders own (jobs). file: its name in messages. 0, or -EINVAL with every problem
 * added. */
int conf_load_text(struct arena *arena, const struct conf_table *table, const char *text,
                   size_t len, const char *file, void *into, struct conf_problems *problems);

extern const struct conf_table conf_gpu_table; /* struct gpu_conf */

#endif
