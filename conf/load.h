/* conf/load.h - JSON text into structs, by the tables of conf/field.h.
 *
 * Owns:      nothing: strings and arrays go to the caller's arena, messages to its problems.
 * Called by: the loaders of generations and of penstock.json. Inside conf/ only: jansson's types
 *            end here.
 * Thread:    one.
 */
#ifndef CONF_LOAD_H
#define CONF_LOAD_H

#include <jansson.h>

#include "base/arena.h"
#include "conf/field.h"
#include "conf/problem.h"

#define CONF_FILE_BYTES_MAX (4u * 1024 * 1024)
#define CONF_TEXT_BYTES_MAX (16u * 1024 * 1024) /* of one text from the network */
#define CONF_DEPTH_MAX      32                  /* of brackets; the deepest table has 6 */

/* Parse: duplicate keys, depth, syntax (line and column). NULL with problems filled. */
json_t *conf_parse(const char *text, size_t len, size_t max_bytes, const char *file,
                   struct conf_problems *problems);

/* Read a whole file of at most CONF_FILE_BYTES_MAX; shown: its name in messages. */
json_t *conf_parse_file(const char *path, const char *shown, struct conf_problems *problems);

struct conf_load {
    struct arena *arena;
    struct conf_where where;
};

/* Every key of the table into the struct at `into` (zeroed; defaults are set first). Goes on after
 * a problem, so that all of them are found; what is wrong keeps its default. */
void conf_load_object(struct conf_load *l, const struct conf_table *table, json_t *object,
                      void *into);
/* The members of a JSON object as an array of the table's structs; see CONF_KIND_MAP. */
void conf_load_map(struct conf_load *l, const struct conf_field *field, json_t *object, void *into);

/* Where a row's value lies in its struct. */
static inline void *conf_member(void *into, size_t offset)
{
    return (char *)into + offset;
}

/* The file again with the defaults of its tables filled in, for --print-config. */
json_t *conf_with_defaults(const struct conf_table *table, json_t *object);
json_t *conf_map_with_defaults(const struct conf_field *field, json_t *object);

#endif
