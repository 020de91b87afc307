/* loadtest/args.h - command-line options from one table: parsing, limits and --help.
 *
 * Owns:      nothing; strings point into argv. arg_list: its array.
 * Called by: the mains of penstock-load, penstock-model and penstock-train.
 * Thread:    main.
 */
#ifndef LOADTEST_ARGS_H
#define LOADTEST_ARGS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

struct arg_list {
    const char **items;
    size_t n;
};

enum arg_kind {
    ARG_GROUP = 0, /* a heading of --help: name is its text */
    ARG_FLAG,      /* bool: --name */
    ARG_STR,       /* const char * */
    ARG_UINT,      /* uint64_t in min..max */
    ARG_NUM,       /* double in min..max */
    ARG_LIST,      /* struct arg_list: may be repeated */
};

/* A table ends with a row whose name is NULL. */
struct arg {
    enum arg_kind kind;
    const char *name;  /* without the dashes */
    const char *value; /* what it is called in --help: "ADDR" */
    void *dst;
    double min, max;  /* of UINT and NUM */
    const char *help; /* may hold newlines */
};

enum { ARGS_OK = 0, ARGS_HELP, ARGS_WRONG };

/* --name value and --name=value. Returns ARGS_HELP after --help was printed on standard output
 * (usage first), ARGS_WRONG after the broken rule was printed on standard error. */
int args_parse(const struct arg *table, const char *usage, int argc, char **argv);

/* "NAME=VALUE" -> length of NAME, or 0 when there is no '=' or no name. */
size_t args_name_len(const char *pair);

#define EXIT_USAGE 64 /* sysexits.h: EX_USAGE */

#endif
