/* conf/reference.h - what the field tables say, for people and editors.
 *
 * Called by: `penstock check --print-reference | --print-schema | --print-config`.
 * Thread:    main.
 */
#ifndef CONF_REFERENCE_H
#define CONF_REFERENCE_H

#include "base/buf.h"
#include "conf/field.h"
#include "conf/generation.h"

/* docs/config.md: every file, every key, its kind, limits, default and meaning, as Markdown. */
void conf_print_reference(struct buf *out);
/* One table and those inside it, under a heading of this level: for files of other folders. */
void conf_print_table(struct buf *out, const struct conf_table *table, int level);
/* docs/limits.md: the rows that have a reason. */
void conf_print_limits(struct buf *out);
/* JSON Schema (draft 2020-12), one definition per file. */
void conf_print_schema(struct buf *out);
/* The generation as the program sees it: every key, defaults filled in. */
void conf_print_config(struct buf *out, const struct generation *g);

#endif
