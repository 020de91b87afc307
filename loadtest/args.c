#include "loadtest/args.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/xalloc.h"

static void print_help(const struct arg *table, const char *usage)
{
    printf("%s", usage);
    for (const struct arg *a = table; a->name != NULL; a++) {
        char left[64];

        if (a->kind == ARG_GROUP) {
            printf("\n%s\n", a->name);
            continue;
        }
        snprintf(left, sizeof(left), "  --%s %s", a->name, a->value != NULL ? a->value : "");
        printf("%-27s", left);
        for (const char *line = a->help; line != NULL;) {
            const char *nl = strchr(line, '\n');

            printf("%s%.*s\n", line == a->help ? " " : "                            ",
                   nl != NULL ? (int)(nl - line) : (int)strlen(line), line);
            line = nl != NULL ? nl + 1 : NULL;
        }
    }
    printf("  --help                    this text\n");
}

static int wrong(const char *program, const struct arg *a, const char *value, const char *rule)
{
    fprintf(stderr, "%s: --%s %s: %s\n", program, a->name, value, rule);
    return ARGS_WRONG;
}

static int store_number(const char *program, const struct arg *a, const char *value)
{
    char rule[96];
    char *end;
    bool ok = value[0] >= '0' && value[0] <= '9';

    errno = 0;
    if (a->kind == ARG_UINT) {
        const unsigned long long v = strtoull(value, &end, 10);

        ok = ok && errno == 0 && *end == '\0' && (double)v >= a->min && (double)v <= a->max;
        if (ok)
            *(uint64_t *)a->dst = v;
    } else {
        const double v = strtod(value, &end);

        ok = ok && *end == '\0' && v >= a->min && v <= a->max;
        if (ok)
            *(double *)a->dst = v;
    }
    if (ok)
        return ARGS_OK;
    snprintf(rule, sizeof(rule), "not a%s number from %.15g to %.15g",
             a->kind == ARG_UINT ? " whole" : "", a->min, a->max);
    return wrong(program, a, value, rule);
}

static int store(const char *program, const struct arg *a, const char *value)
{
    struct arg_list *list = a->dst;

    switch (a->kind) {
    case ARG_STR:
        *(const char **)a->dst = value;
        return ARGS_OK;
    case ARG_LIST:
        list->items = xrealloc(list->items, list->n + 1, sizeof(*list->items));
        list->items[list->n++] = value;
        return ARGS_OK;
    case ARG_UINT:
    case ARG_NUM:
        return store_number(program, a, value);
    case ARG_FLAG:
    case ARG_GROUP:
        break;
    }
    check(false);
    return ARGS_WRONG;
}

static const struct arg *find(const struct arg *table, const char *name, size_t len)
{
    for (const struct arg *a = table; a->name != NULL; a++) {
        if (a->kind != ARG_GROUP && strlen(a->name) == len && memcmp(a->name, name, len) == 0)
            return a;
    }
    return NULL;
}

int args_parse(const struct arg *table, const char *usage, int argc, char **argv)
{
    const char *slash = strrchr(argv[0], '/');
    const char *program = slash != NULL ? slash + 1 : argv[0];

    for (int i = 1; i < argc; i++) {
        const char *word = argv[i];
        const size_t len = strcspn(word, "=");

        if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0) {
            print_help(table, usage);
            return ARGS_HELP;
        }

        const struct arg *a =
            strncmp(word, "--", 2) == 0 && len > 2 ? find(table, word + 2, len - 2) : NULL;
        if (a == NULL) {
            fprintf(stderr, "%s: %.*s: no such option; --help lists them\n", program, (int)len,
                    word);
            return ARGS_WRONG;
        }
        if (a->kind == ARG_FLAG) {
            if (word[len] == '=')
                return wrong(program, a, word + len, "takes no value");
            *(bool *)a->dst = true;
            continue;
        }

        const char *value = word[len] == '=' ? word + len + 1 : NULL;
        if (value == NULL && ++i < argc)
            value = argv[i];
        if (value == NULL)
            return wrong(program, a, a->value, "the value is missing");
        if (store(program, a, value) != ARGS_OK)
            return ARGS_WRONG;
    }
    return ARGS_OK;
}

size_t args_name_len(const char *pair)
{
    const size_t len = strcspn(pair, "=");

    return pair[len] == '=' ? len : 0;
}
