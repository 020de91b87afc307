/* penstock/check.c - `penstock check DIR`: every problem of a config folder; what the tables say.
 */
#include <inttypes.h>
#include <stdio.h>
#include <sys/stat.h>

#include "base/buf.h"
#include "conf/json_in.h"
#include "conf/process.h"
#include "conf/reference.h"
#include "penstock/args.h"
#include "penstock/verb.h"
#include "placer/job.h"

#define PRINT_CEILING (64u * 1024 * 1024)
#define CHECK_BYTES   (4u * 1024 * 1024) /* of a file, as the loader's own limit */

#define S(n) ((n) == 1 ? "" : "s")

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
        printf("ok: %zu model%s, %zu version%s, %zu node%s, %zu queue%s\n", g->n_models,
               S(g->n_models), n_versions, S(n_versions), g->n_nodes, S(g->n_nodes), g->n_queues,
               S(g->n_queues));
    }
    generation_unref(g);
    return finish(&problems, dir);
}

static int check_process(const char *file)
{
    struct conf_problems problems;
    struct process_conf process;

    conf_problems_init(&problems);
    if (process_conf_load(&process, file, &problems) == 0 && process.catalogue != NULL)
        generation_unref(
            generation_load_text(process.catalogue, strlen(process.catalogue), &problems));
    if (problems.n == 0)
        printf("ok: %zu listener%s, admin %s\n", process.n_listeners, S(process.n_listeners),
               process.admin[0] == '\0' ? "none" : process.admin);
    process_conf_fini(&process);
    return finish(&problems, file);
}

/* The text of a file of at most CHECK_BYTES; false: it can't be read, which the loaders tell. */
static bool read_text(const char *file, struct buf *text)
{
    FILE *const f = fopen(file, "re");
    char chunk[16384];
    size_t n = 0;

    if (f == NULL)
        return false;
    while ((n = fread(chunk, 1, sizeof(chunk), f)) > 0 && buf_append(text, chunk, n))
        ;
    const bool whole = ferror(f) == 0 && !text->overflow;
    fclose(f);
    return whole;
}

static int check_job(const char *file, struct buf *text)
{
    struct conf_problems problems;

    conf_problems_init(&problems);
    struct job_spec *const job = job_file_load(file, buf_cstr(text), text->len, &problems);

    if (job != NULL)
        printf("ok: job %s\n", job->name);
    job_spec_free(job);
    return finish(&problems, file);
}

/* A job file has tasks, a model has a name: penstock.json has neither. */
static int check_file(const char *file, const struct args_spec *spec)
{
    struct buf text;
    int r = EXIT_SUCCESS;

    buf_init(&text, CHECK_BYTES);
    struct json_doc *const doc =
        read_text(file, &text) ? json_doc_parse(buf_cstr(&text), text.len, NULL) : NULL;

    const struct json_at *const top = doc == NULL ? NULL : json_doc_top(doc);

    if (json_at_member(top, "tasks") != NULL)
        r = check_job(file, &text);
    else if (json_at_member(top, "model") != NULL)
        r = args_usage_error(spec, "%s is one model: check the config folder, which holds models/",
                             file);
    else
        r = check_process(file);
    json_doc_free(doc);
    buf_fini(&text);
    return r;
}

int verb_check(int argc, char **argv)
{
    bool print_config = false, print_reference = false, print_limits = false;
    bool print_schema = false;
    struct stat st;
    const struct arg options[] = {
        ARG_FLAG("print-config", &print_config, "print the config with its defaults filled in"),
        ARG_FLAG("print-reference", &print_reference, "print the reference of every file and key"),
        ARG_FLAG("print-limits", &print_limits, "print every limit with its reason"),
        ARG_FLAG("print-schema", &print_schema, "print a JSON Schema of every file"),
        ARG_END,
    };
    const struct args_spec spec = {
        .verb = "check",
        .positional = "DIR|penstock.json|JOBFILE",
        .about =
            "Checks a config folder (models/*.json, nodes.json, queues.json), the config file\n"
            "of a process, or a job file. Prints every problem, one a line, with file, JSON "
            "pointer,\n"
            "value and rule. Exit 0: fine; 78: there is a problem.",
        .options = options,
        .max_positional = 1,
    };
    const int r = args_parse(&spec, &argc, argv);

    if (r != ARGS_OK)
        return args_exit(r);
    if (print_reference)
        return print_docs(print_reference_page);
    if (print_limits)
        return print_docs(conf_print_limits);
    if (print_schema)
        return print_docs(conf_print_schema);
    if (argc < 2)
        return args_usage_error(&spec, "which folder? DIR is missing");
    if (!print_config && stat(argv[1], &st) == 0 && S_ISREG(st.st_mode))
        return check_file(argv[1], &spec);
    return check_dir(argv[1], print_config);
}
