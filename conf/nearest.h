/* conf/nearest.h - the known word that a mistyped one most likely meant.
 *
 * Owns:      nothing.
 * Called by: the config loader (keys, words), the verb table, the option tables.
 * Thread:    any.
 * Source:    optimal string alignment distance (Damerau, 1964, restricted).
 */
#ifndef CONF_NEAREST_H
#define CONF_NEAREST_H

#include <stddef.h>
#include <stdint.h>

#define NEAREST_MAX_LEN 63 /* longer words are compared by their first 63 bytes */

/* Inserts, deletes, changes and swaps of neighbours that lead from a to b. */
size_t nearest_distance(const char *a, const char *b);

/* Fed with candidates one by one; best is NULL while none is near enough: at most a third of the
 * longer word's length, and at least one edit, may differ. Words that contain each other at the
 * front ("timeout" for "timeout_ms") are near too. */
struct nearest {
    const char *word;
    const char *best;
    size_t distance;
};
void nearest_init(struct nearest *n, const char *word);
void nearest_offer(struct nearest *n, const char *candidate);

#endif
