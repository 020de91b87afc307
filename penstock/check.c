/* penstock/check.c - `penstock check DIR`: every problem of a config folder; what the tables say.
 */
#include <inttypes.h>
#include <stdio.h>
#include <sys/stat.h>

#include "base/buf.h"
#include "conf/process.h"
#include "conf/reference.h"
#include "penstock/args.h"
#include "penstock/verb.h"
#include "placer/job.h"

#define PRINT_CEILING (64u * 1024 * 1024)

static int print_and_free(struct buf *out)
{
    const bool whole =
        !out->overflow && fwrite(out->data, 1, out->len, stdout) == out->len && fflush(stdout) == 0;

    buf_fini(out);
    return whole ? EXIT_SUCCESS : EXIT_FAILURE;
}

static int print_docs(void (*print)(struct buf *out))
{
    struct buf out;

    buf_init(&out, PRINT_CEILING);
    print(&out);
    return print_and_free(&out);
}

/* The config folder and the process, then the files that other folders read. */
static void print_reference_page(struct buf *out)
{
    conf_print_reference(out);
    conf_print_table(out, &job_file_table, 2);
}

static int finish(struct conf_problems *problems, const char *what)
{
    const size_t n = problems->n;

    if (n > 0) {
        fwrite(problems->text.data, 1, problems->text.len, stdout);
        printf("%zu problem%s in %s\n", n, n == 1 ? "" : "s", what);
    }
    conf_problems_fini(problems);
    return n > 0 ? EX_CONFIG : EXIT_SUCCESS;
}

static int check_dir(const char *dir, bool print_config)
{
    struct conf_problems problems;

    conf_problems_init(&problems);
    struct generation *const g = generation_load_dir(dir, &problems);

    if (g != NULL && print_config) {
        struct buf out;

        buf_init(&out, PRINT_CEILING);
        conf_print_config(&out, g);
        generation_unref(g);
        conf_problems_fini(&problems);
        return print_and_free(&out);
    }
    if (g != NULL) {
        size_t n_versions = 0;

        for (size_t i = 0; i < g->n_models; i++)
            n_versions += g->models[i].n_versions;
        printf("ok: %zu models, %zu versions, %zu nodes, %zu queues\n", g->n_models, n_versions,
               g->n_nodes, g->n_queues);
    }
    generation_unref(g);
    return finish(&problems, dir);
}

static int check_process(const char *file)
{
    struct conf_problems problems;
    struct process_conf process;

    conf_problems_init(&problems);
    if (process_conf_load(&process, file, &problems) == 0)
        printf("ok: %zu listeners, admin %s\n", process.n_listeners,
               process.admin[0] == '\0' ? "none" : process.admin);
    process_conf_fini(&process);
    return finish(&problems, file);
}

int verb_check(int argc, char **argv)
{
    bool print_config = false, print_reference = false, print_schema = false;
    struct stat st;
    const struct arg options[] = {
        ARG_FLAG("print-config", &print_config, "print the config with its defaults filled in"),
        ARG_FLAG("print-reference", &print_reference, "print the reference of every file and key"),
        ARG_FLAG("print-schema", &print_schema, "print a JSON Schema of every file"),
        ARG_END,
    };
    const struct args_spec spec = {
        .verb = "check",
        .positional = "DIR|penstock.json",
        .about = "Checks a config folder (models/*.json, nodes.json, queues.json), or the config\n"
                 "file of a process. Prints every problem, one a line, with file, JSON pointer,\n"
                 "value and rule. Exit 0: fine; 78: there is a problem.",
        .options = options,
        .max_positional = 1,
    };
    const int r = args_parse(&spec, &argc, argv);

    if (r != ARGS_OK)
        return args_exit(r);
    if (print_reference)
        return print_docs(print_reference_page);
    if (print_schema)
        return print_docs(conf_print_schema);
    if (argc < 2)
        return args_usage_error(&spec, "which folder? DIR is missing");
    if (!print_config && stat(argv[1], &st) == 0 && S_ISREG(st.st_mode))
        return check_process(argv[1]);
    return check_dir(argv[1], print_config);
}
