/* penstock/main.c - finds the verb and runs it. */
#include <stdio.h>
#include <string.h>

#include "conf/nearest.h"
#include "penstock/verb.h"

static const struct verb verbs[] = {
#define VERB(verb_name, verb_summary) {#verb_name, verb_summary, verb_##verb_name},
#include "penstock/verbs.tbl"
#undef VERB
    {NULL, NULL, NULL},
};

static int print_help(FILE *to)
{
    fputs("usage: penstock VERB [OPTION...]\n\n"
          "A gateway for gRPC inference with its own controller: routes, balances, scales and "
          "places\n"
          "model replicas.\n\n",
          to);
    for (const struct verb *v = verbs; v->name != NULL; v++)
        fprintf(to, "  %-10s %s\n", v->name, v->summary);
    fputs("\n`penstock VERB --help` explains a verb; `penstock --version` prints the version.\n",
          to);
    return to == stdout ? EXIT_SUCCESS : EX_USAGE;
}

static int unknown_verb(const char *word)
{
    struct nearest near;

    nearest_init(&near, word);
    for (const struct verb *v = verbs; v->name != NULL; v++)
        nearest_offer(&near, v->name);
    if (near.best != NULL)
        fprintf(stderr, "penstock: unknown verb \"%s\"; nearest: %s\n", word, near.best);
    else
        fprintf(stderr, "penstock: unknown verb \"%s\"\n", word);
    fputs("`penstock --help` lists the verbs.\n", stderr);
    return EX_USAGE;
}

int main(int argc, char **argv)
{
    if (argc < 2)
        return print_help(stderr);
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 ||
        strcmp(argv[1], "help") == 0)
        return print_help(stdout);
    if (strcmp(argv[1], "--version") == 0) {
        puts("penstock " PENSTOCK_VERSION);
        return EXIT_SUCCESS;
    }
    for (const struct verb *v = verbs; v->name != NULL; v++) {
        if (strcmp(argv[1], v->name) == 0)
            return v->run(argc - 1, argv + 1);
    }
    return unknown_verb(argv[1]);
}
