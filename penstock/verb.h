/* penstock/verb.h - the verbs of the program, and their exit statuses.
 *
 * Called by: main, which finds the verb and runs its function.
 * Thread:    main.
 *
 * To add a verb: a row in verbs.tbl, a file with `int verb_NAME(int argc, char **argv)`, the file's
 * name in meson.build. Options and --help come from a table too: penstock/args.h.
 *
 * Exit statuses are those of sysexits.h: 0, EXIT_FAILURE (1), EX_USAGE (64), EX_UNAVAILABLE (69:
 * the admin address does not answer), EX_CONFIG (78).
 */
#ifndef PENSTOCK_VERB_H
#define PENSTOCK_VERB_H

#include <stdlib.h>
#include <sysexits.h>

struct verb {
    const char *name;
    const char *summary; /* one line, for `penstock --help` */
    int (*run)(int argc, char **argv);
};

#define VERB(verb_name, verb_summary) int verb_##verb_name(int argc, char **argv);
#include "penstock/verbs.tbl"
#undef VERB

#endif
