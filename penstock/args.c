#include "penstock/args.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>

#include "conf/nearest.h"

#define HELP_COLUMN 30 /* where the help of an option starts */

static void print_usage(const struct args_spec *spec, FILE *to)
{
    fprintf(to, "usage: penstock %s%s%s%s\n", spec->verb,
            spec->options[0].kind == ARG_KIND_END ? "" : " [OPTION...]",
            spec->positional[0] == '\0' ? "" : " ", spec->positional);
}

static void print_help(const struct args_spec *spec)
{
    print_usage(spec, stdout);
    printf("\n%s\n\n", spec->about);
    for (const struct arg *a = spec->options; a->kind != ARG_KIND_END; a++) {
        const int used = printf("  --%s%s%s", a->name, a->value_name == NULL ? "" : " ",
                                a->value_name == NULL ? "" : a->value_name);

        printf("%*s%s%s\n", used < HELP_COLUMN ? HELP_COLUMN - used : 1, "", a->help,
               a->kind == ARG_KIND_LIST ? " (may be repeated)" : "");
    }
    printf("  %-*s%s\n", HELP_COLUMN - 2, "--help", "this text");
}

int args_usage_error(const struct args_spec *spec, const char *fmt, ...)
{
    va_list ap;

    fprintf(stderr, "penstock %s: ", spec->verb);
    va_start(ap, fmt);
    vfprintf(stderr, fmt, ap);
    va_end(ap);
    fputs("\n", stderr);
    print_usage(spec, stderr);
    fprintf(stderr, "`penstock %s --help` explains.\n", spec->verb);
    return EX_USAGE;
}

static const struct arg *find_option(const struct args_spec *spec, const char *name, size_t len)
{
    for (const struct arg *a = spec->options; a->kind != ARG_KIND_END; a++) {
        if (strlen(a->name) == len && memcmp(a->name, name, len) == 0)
            return a;
    }
    return NULL;
}

static int unknown_option(const struct args_spec *spec, const char *name, size_t len)
{
    char word[NEAREST_MAX_LEN + 1];
    struct nearest near;

    snprintf(word, sizeof(word), "%.*s", (int)(len < sizeof(word) ? len : sizeof(word) - 1), name);
    nearest_init(&near, word);
    nearest_offer(&near, "help");
    for (const struct arg *a = spec->options; a->kind != ARG_KIND_END; a++)
        nearest_offer(&near, a->name);
    if (near.best != NULL)
        args_usage_error(spec, "unknown option --%s; nearest: --%s", word, near.best);
    else
        args_usage_error(spec, "unknown option --%s", word);
    return ARGS_E_USAGE;
}

static int set_uint(const struct args_spec *spec, const struct arg *a, const char *value)
{
    char *end = NULL;

    errno = 0;
    const uintmax_t n = strtoumax(value, &end, 10);
    if (value[0] < '0' || value[0] > '9' || *end != '\0' || errno != 0 || n < a->min ||
        n > a->max) {
        args_usage_error(spec, "--%s %s: not a whole number from %" PRIu64 " to %" PRIu64, a->name,
                         value, a->min, a->max);
        return ARGS_E_USAGE;
    }
    *a->to.uint = n;
    return ARGS_OK;
}

static int set_value(const struct args_spec *spec, const struct arg *a, const char *value)
{
    switch (a->kind) {
    case ARG_KIND_STR:
        *a->to.str = value;
        return ARGS_OK;
    case ARG_KIND_UINT:
        return set_uint(spec, a, value);
    case ARG_KIND_LIST:
        if (a->to.list->n == ARGS_LIST_MAX) {
            args_usage_error(spec, "--%s: more than %d of them", a->name, ARGS_LIST_MAX);
            return ARGS_E_USAGE;
        }
        a->to.list->items[a->to.list->n++] = value;
        return ARGS_OK;
    case ARG_KIND_FLAG:
    case ARG_KIND_END:
        break;
    }
    check(false && "an option with a value has one of the kinds above");
    return ARGS_E_USAGE;
}

/* argv[*at] is an option; moves *at to its last word. */
static int take_option(const struct args_spec *spec, int argc, char **argv, int *at)
{
    const char *const name = argv[*at] + 2;
    const char *const equals = strchr(name, '=');
    const size_t len = equals == NULL ? strlen(name) : (size_t)(equals - name);

    if (strcmp(name, "help") == 0) {
        print_help(spec);
        return ARGS_E_HELP;
    }
    const struct arg *const a = find_option(spec, name, len);
    if (a == NULL)
        return unknown_option(spec, name, len);
    if (a->kind == ARG_KIND_FLAG) {
        if (equals != NULL) {
            args_usage_error(spec, "--%s takes no value", a->name);
            return ARGS_E_USAGE;
        }
        *a->to.flag = true;
        return ARGS_OK;
    }
    if (equals != NULL)
        return set_value(spec, a, equals + 1);
    if (*at + 1 == argc) {
        args_usage_error(spec, "--%s needs a value: --%s %s", a->name, a->name, a->value_name);
        return ARGS_E_USAGE;
    }
    (*at)++;
    return set_value(spec, a, argv[*at]);
}

int args_parse(const struct args_spec *spec, int *argc, char **argv)
{
    int n_positional = 0;
    bool options_ended = false;

    for (int i = 1; i < *argc; i++) {
        if (!options_ended && strcmp(argv[i], "--") == 0) {
            options_ended = true;
        } else if (!options_ended && strncmp(argv[i], "--", 2) == 0) {
            const int r = take_option(spec, *argc, argv, &i);

            if (r != ARGS_OK)
                return r;
        } else if (!options_ended && strcmp(argv[i], "-h") == 0) {
            print_help(spec);
            return ARGS_E_HELP;
        } else if (!options_ended && argv[i][0] == '-' && argv[i][1] != '\0') {
            args_usage_error(spec, "unknown option %s; options begin with two dashes", argv[i]);
            return ARGS_E_USAGE;
        } else if (n_positional == spec->max_positional) {
            if (spec->max_positional == 0)
                args_usage_error(spec, "what is \"%s\"? it takes no arguments", argv[i]);
            else
                args_usage_error(spec, "what is \"%s\"? it takes at most %d argument%s", argv[i],
                                 spec->max_positional, spec->max_positional == 1 ? "" : "s");
            return ARGS_E_USAGE;
        } else {
            argv[++n_positional] = argv[i];
        }
    }
    if (n_positional < spec->min_positional) {
        args_usage_error(spec, "too few arguments: %s", spec->positional);
        return ARGS_E_USAGE;
    }
    *argc = 1 + n_positional;
    return ARGS_OK;
}

int args_exit(int result)
{
    return result == ARGS_E_HELP ? EXIT_SUCCESS : EX_USAGE;
}

const char *args_default_admin(void)
{
    const char *const admin = getenv("PENSTOCK_ADMIN");

    return admin != NULL && admin[0] != '\0' ? admin : "127.0.0.1:7080";
}
