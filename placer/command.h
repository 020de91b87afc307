/* placer/command.h - the {words} of a command that an operator wrote.
 *
 * Only {word} of small letters, digits and '_', a letter first, is a blank: braces of JSON, of
 * awk's { print }, of a pattern's {2} and of a shell's ${word} are the command's own.
 *
 * Owns:      nothing.
 * Called by: the job file's rules (command_knows), the drivers (command_fill).
 * Thread:    any.
 */
#ifndef PLACER_COMMAND_H
#define PLACER_COMMAND_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"

struct env_pair {
    const char *name, *value;
};

/* True when every {word} of text is one of words (NULL at the end). */
bool command_knows(const char *text, const char *const *words);

/* Appends text to dst with its blanks filled; a word that is not in blanks stays as it is. False:
 * over dst's ceiling. */
bool command_fill(struct buf *dst, const char *text, const struct env_pair *blanks,
                  size_t n_blanks);

#endif
