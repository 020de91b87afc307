/* penstock/simulate.c - the verb simulate: recorded workloads through our own code, without a
 * cluster. */
#include "penstock/simulate.h"

#include <stdio.h>
#include <string.h>

#include "conf/nearest.h"
#include "penstock/verb.h"

static const struct verb subjects[] = {
    {"placer", "placement policies: how many cards of a cluster they give away", simulate_placer},
    {"jobs", "training jobs in a queue: completion times, waits of large gangs", simulate_jobs},
    {NULL, NULL, NULL},
};

static int print_help(FILE *to)
{
    fputs("usage: penstock simulate SUBJECT [OPTION...]\n\n"
          "Recorded workloads through the code that decides in production, without a cluster.\n\n",
          to);
    for (const struct verb *s = subjects; s->name != NULL; s++)
        fprintf(to, "  %-10s %s\n", s->name, s->summary);
    fputs("\n`penstock simulate SUBJECT --help` explains one.\n", to);
    return to == stdout ? EXIT_SUCCESS : EX_USAGE;
}

int verb_simulate(int argc, char **argv)
{
    struct nearest near;

    if (argc < 2)
        return print_help(stderr);
    if (strcmp(argv[1], "--help") == 0)
        return print_help(stdout);
    nearest_init(&near, argv[1]);
    for (const struct verb *s = subjects; s->name != NULL; s++) {
        if (strcmp(argv[1], s->name) == 0)
            return s->run(argc - 1, argv + 1);
        nearest_offer(&near, s->name);
    }
    fprintf(stderr, "penstock simulate: unknown subject \"%s\"%s%s\n", argv[1],
            near.best != NULL ? "; nearest: " : "", near.best != NULL ? near.best : "");
    fputs("`penstock simulate --help` lists them.\n", stderr);
    return EX_USAGE;
}
