/* penstock/args.h - the options of a verb as a table, so that every --help and error looks alike.
 *
 * Owns:      nothing: values point into argv; args_list is the caller's.
 * Called by: every verb, first thing.
 * Thread:    main.
 *
 *     const char *listen = NULL, *admin = args_default_admin();
 *     uint64_t workers = 0;
 *     const struct arg options[] = {
 *         ARG_STR("listen", "ADDR", &listen, "where clients connect"),
 *         ARG_UINT("workers", "N", &workers, 0, 256, "event loops; default one per core"),
 *         ARG_END,
 *     };
 *     const struct args_spec spec = {.verb = "relay", .positional = "", .options = options,
 *                                    .about = "A per-call gRPC balancer ..."};
 *     const int r = args_parse(&spec, &argc, argv);
 *     if (r != ARGS_OK)
 *         return args_exit(r);
 *
 * Both `--name value` and `--name=value`; `--` ends the options; options and positionals may mix.
 */
#ifndef PENSTOCK_ARGS_H
#define PENSTOCK_ARGS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/check.h"

enum arg_kind { ARG_KIND_END = 0, ARG_KIND_FLAG, ARG_KIND_STR, ARG_KIND_UINT, ARG_KIND_LIST };

#define ARGS_LIST_MAX 64

struct args_list { /* an option that may be given several times */
    const char *items[ARGS_LIST_MAX];
    size_t n;
};

struct arg {
    const char *name; /* without the dashes */
    const char *value_name;
    const char *help;
    enum arg_kind kind;
    union {
        bool *flag;
        const char **str;
        uint64_t *uint;
        struct args_list *list;
    } to;
    uint64_t min, max;
};

#define ARG_FLAG(n, dest, text)                                                                    \
    {                                                                                              \
        .name = (n), .kind = ARG_KIND_FLAG, .to.flag = (dest), .help = (text)                      \
    }
#define ARG_STR(n, value, dest, text)                                                              \
    {                                                                                              \
        .name = (n), .value_name = (value), .kind = ARG_KIND_STR, .to.str = (dest), .help = (text) \
    }
#define ARG_UINT(n, value, dest, low, high, text)                                                  \
    {                                                                                              \
        .name = (n), .value_name = (value), .kind = ARG_KIND_UINT, .to.uint = (dest),              \
        .min = (low), .max = (high), .help = (text)                                                \
    }
#define ARG_LIST(n, value, dest, text)                                                             \
    {                                                                                              \
        .name = (n), .value_name = (value), .kind = ARG_KIND_LIST, .to.list = (dest),              \
        .help = (text)                                                                             \
    }
#define ARG_END                                                                                    \
    {                                                                                              \
        .kind = ARG_KIND_END                                                                       \
    }

struct args_spec {
    const char *verb;
    const char *positional; /* for the usage line: "DIR", "MODEL [GENERATION]"; "" for none */
    const char *about;      /* a paragraph for --help */
    const struct arg *options;
    int min_positional, max_positional; /* both 0: none are taken */
};

enum { ARGS_OK = 0, ARGS_E_HELP, ARGS_E_USAGE };

/* Fills what the options point to. Afterwards argv[1] .. argv[*argc - 1] are the positionals.
 * ARGS_E_HELP: --help was asked for and printed; ARGS_E_USAGE: the error is on standard error. */
int args_parse(const struct args_spec *spec, int *argc, char **argv);
int args_exit(int result); /* the exit status for a result that is not ARGS_OK */

/* An error found after parsing ("--key without --cert"): prints it as args_parse does and returns
 * EX_USAGE. */
int args_usage_error(const struct args_spec *spec, const char *fmt, ...) PRINTF_LIKE(2, 3);

/* $PENSTOCK_ADMIN, or 127.0.0.1:7080: the default of every verb's --admin. */
const char *args_default_admin(void);

#endif
