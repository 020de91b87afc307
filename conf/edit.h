/* conf/edit.h - changes of a generation's text: what rollback, traffic and diff need.
 *
 * Owns:      nothing; texts are freed by the caller.
 * Called by: the controller, on the control loop; `penstock diff`.
 * Thread:    any.
 *
 * Every result goes through generation_load_text before it is used, so nothing is checked here.
 */
#ifndef CONF_EDIT_H
#define CONF_EDIT_H

#include "base/buf.h"
#include "conf/field.h"
#include "conf/generation.h"

const struct model_conf *generation_model(const struct generation *g, const char *name);

/* now with the model as it was in then (also its file name); where then does not have it, without
 * it. */
char *edit_model_from(const struct generation *now, const struct generation *then,
                      const char *model);
/* now with the weights of one model replaced; NULL: now has no such model. */
char *edit_traffic(const struct generation *now, const char *model, const struct conf_pair *weights,
                   size_t n_weights);
/* The model is written alike in both, or missing in both. */
bool edit_same_model(const struct generation *a, const struct generation *b, const char *model);

/* One line per changed value: `models/ctr.json#/traffic/17: 100 -> 1000`, `...: + "x"`,
 * `...: - "x"`. Both are texts of generations; NULL: an empty one. */
void edit_diff(const char *from_json, const char *to_json, struct buf *out);

#endif
