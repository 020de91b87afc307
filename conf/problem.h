/* conf/problem.h - one message about a config: where (file, JSON pointer), the value, the rule.
 *
 * Owns:      conf_where: the pointer's text while the loader walks down and up.
 * Called by: the loader and the cross checks.
 * Thread:    one.
 * Source:    RFC 6901 (JSON pointer, ~ and / escaped).
 */
#ifndef CONF_PROBLEM_H
#define CONF_PROBLEM_H

#include "base/check.h"
#include "conf/generation.h"

#define CONF_PROBLEMS_MAX 1000 /* more are counted, not printed */

struct conf_where {
    struct conf_problems *problems;
    const char *file;
    char pointer[512]; /* "/traffic/2"; a longer one is cut */
    size_t len;
};

void conf_where_init(struct conf_where *w, struct conf_problems *problems, const char *file);
/* Down to a member; returns what conf_where_up needs. */
size_t conf_where_key(struct conf_where *w, const char *key);
size_t conf_where_index(struct conf_where *w, size_t index);
void conf_where_up(struct conf_where *w, size_t mark);
/* Has nothing been said of this place, nor of what lies below it? Then rules between its members
 * can be judged by their loaded values. */
bool conf_where_is_clean(const struct conf_where *w);

/* Adds the line `file#pointer: text`. */
void conf_problem(struct conf_where *w, const char *fmt, ...) PRINTF_LIKE(2, 3);
/* The same one member further down. */
void conf_problem_at(struct conf_where *w, const char *key, const char *fmt, ...) PRINTF_LIKE(3, 4);
/* Adds a line about the file as a whole, or about a place in it (line 0: none). */
void conf_problem_file(struct conf_problems *p, const char *file, int line, int column,
                       const char *fmt, ...) PRINTF_LIKE(5, 6);

/* text in double quotes for a message: control characters escaped, cut to fit dst with "...". */
#define CONF_QUOTE_BYTES 96
const char *conf_quote(char *dst, size_t size, const char *text);

#endif
