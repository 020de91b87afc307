/* conf/json_in.h - read a JSON answer: our own admin interface's, or another system's.
 *
 * Owns:      json_doc: the parsed text; a struct json_at is a place in it.
 * Called by: the verbs that show what the admin interface says, drivers.
 * Lifetime:  json_doc_parse .. json_doc_free; places and strings are valid until then.
 * Thread:    one.
 *
 * Everything takes a NULL place, so that a chain of members needs no checks: what is not there, or
 * of another kind, reads as the given default.
 */
#ifndef CONF_JSON_IN_H
#define CONF_JSON_IN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

struct json_doc;
struct json_at;

/* NULL with err (line and column) when it is not JSON. */
struct json_doc *json_doc_parse(const char *text, size_t len, struct err *err);
struct json_doc *json_doc_free(struct json_doc *d); /* returns NULL */
const struct json_at *json_doc_top(const struct json_doc *d);

/* Members of an object, items of an array. */
const struct json_at *json_at_member(const struct json_at *at, const char *key);
size_t json_at_n(const struct json_at *at); /* items or members; 0 for others */
const struct json_at *json_at_item(const struct json_at *at, size_t i);
/* Calls fn for each member of an object, in its order. */
typedef void (*json_member_fn)(void *arg, const char *key, const struct json_at *value);
void json_at_each(const struct json_at *at, json_member_fn fn, void *arg);

/* The member `key` of at; key NULL: at itself. */
const char *json_at_str(const struct json_at *at, const char *key, const char *dflt);
uint64_t json_at_uint(const struct json_at *at, const char *key, uint64_t dflt);
double json_at_double(const struct json_at *at, const char *key, double dflt);
bool json_at_bool(const struct json_at *at, const char *key, bool dflt);

/* at as indented text, to be freed by the caller; NULL place: "null". */
char *json_at_text(const struct json_at *at);

#endif
