/* base/json_out.h - JSON text into a buf: commas, quotes and nesting are its business.
 *
 * Owns:      nothing; the buf is the caller's. Past the buf's ceiling its overflow flag is set.
 * Called by: the admin pages, the controller's answers.
 * Lifetime:  json_out_init; nothing to end.
 * Thread:    one.
 * Source:    RFC 8259. Bytes that are not UTF-8 leave as U+FFFD.
 *
 * name: the member's name inside an object, NULL inside an array and at the top.
 */
#ifndef BASE_JSON_OUT_H
#define BASE_JSON_OUT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"

#define JSON_OUT_DEPTH 16

struct json_out {
    struct buf *buf;
    uint32_t depth;
    bool has_items[JSON_OUT_DEPTH];
};

void json_out_init(struct json_out *j, struct buf *buf);
void json_out_object(struct json_out *j, const char *name); /* { */
void json_out_array(struct json_out *j, const char *name);  /* [ */
void json_out_end_object(struct json_out *j);
void json_out_end_array(struct json_out *j);
void json_out_str(struct json_out *j, const char *name, const char *value); /* NULL value: null */
/* Bytes of any kind: what is no UTF-8 text, NUL among it, becomes U+FFFD. */
void json_out_bytes(struct json_out *j, const char *name, const void *value, size_t len);
void json_out_uint(struct json_out *j, const char *name, uint64_t value);
void json_out_int(struct json_out *j, const char *name, int64_t value);
void json_out_double(struct json_out *j, const char *name, double value); /* not finite: null */
void json_out_bool(struct json_out *j, const char *name, bool value);
/* text: one JSON value that is already valid. */
void json_out_raw(struct json_out *j, const char *name, const char *text);

#endif
