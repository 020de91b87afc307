/* penstock/jobs.c - `penstock jobs submit|list|show|cancel|logs|why`. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/xalloc.h"
#include "penstock/ctl.h"

#define FILE_BYTES_MAX (4u * 1024 * 1024) /* as the loader's own limit */
#define POLL_MS        200                /* --wait */

struct jobs_args {
    struct ctl ctl;
    bool wait;
    bool dry_run;
    uint64_t bytes;
};

static void sleep_ms(long ms)
{
    const struct timespec t = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};

    nanosleep(&t, NULL);
}

/* GET /v1/jobs/NAME/what */
static int get_of_job(const struct ctl *ctl, const char *name, const char *what,
                      struct json_doc **ret_doc)
{
    char *const escaped = ctl_escape(name);
    char *const path = xasprintf("/v1/jobs/%s%s", escaped, what);
    const int r = ctl_get(ctl, path, ret_doc);

    free(path);
    free(escaped);
    return r;
}

/* ---- submit ---- */

static int read_file(const char *file, struct buf *text)
{
    const int fd = strcmp(file, "-") == 0 ? dup(STDIN_FILENO) : open(file, O_RDONLY | O_CLOEXEC);
    char chunk[16384];
    ssize_t n = 0;

    if (fd < 0) {
        fprintf(stderr, "penstock: can't open %s: %s\n", file, strerror(errno));
        return EXIT_FAILURE;
    }
    while ((n = read(fd, chunk, sizeof(chunk))) > 0 && buf_append(text, chunk, (size_t)n))
        ;
    if (n < 0)
        fprintf(stderr, "penstock: can't read %s: %s\n", file, strerror(errno));
    else if (text->overflow)
        fprintf(stderr, "penstock: %s is over the limit of %u bytes\n", file, FILE_BYTES_MAX);
    close(fd);
    return n < 0 || text->overflow ? EXIT_FAILURE : EXIT_SUCCESS;
}

/* Polls until the job has ended; one line for each new state or reason. */
static int wait_for_end(const struct jobs_args *a, const char *name)
{
    char last[1024] = "";

    for (;; sleep_ms(POLL_MS)) {
        struct json_doc *doc = NULL;
        const int r = get_of_job(&a->ctl, name, "", &doc);
        const struct json_at *const job = r == EXIT_SUCCESS ? json_doc_top(doc) : NULL;
        const char *const state = json_at_str(job, "state", "");
        const bool ended = json_at_bool(job, "ended", false);
        const bool succeeded = strcmp(state, "succeeded") == 0;
        char line[sizeof(last)];

        if (r != EXIT_SUCCESS)
            return r;
        snprintf(line, sizeof(line), "job %s %s: %s", name, state, json_at_str(job, "why", ""));
        if (strcmp(line, last) != 0 && !a->ctl.json)
            printf("%s\n", line);
        fflush(stdout);
        memcpy(last, line, sizeof(last));
        if (ended)
            ctl_print_json(&a->ctl, doc);
        json_doc_free(doc);
        if (ended)
            return succeeded ? EXIT_SUCCESS : EXIT_FAILURE;
    }
}

/* What became of one job of the text: a line, and with --dry-run the job file that it is. */
static void print_submitted(const struct jobs_args *a, const struct json_at *job)
{
    const char *const name = json_at_str(job, "job", "");
    const char *const why = json_at_str(job, "why", "");
    const uint64_t ahead = json_at_uint(job, "waiting_ahead", 0);
    char *text = NULL;

    if (!a->dry_run) {
        printf("job %s submitted, number %" PRIu64 ", %s: %s\n", name,
               json_at_uint(job, "number", 0), json_at_str(job, "state", ""), why);
        return;
    }
    if (!json_at_bool(job, "fits", false))
        printf("job %s would wait: %s\n", name, why);
    else if (ahead > 0)
        printf("job %s has room now, behind %" PRIu64 " that wait in queue %s\n", name, ahead,
               json_at_str(job, "queue", ""));
    else
        printf("job %s would start now\n", name);
    text = json_at_text(json_at_member(job, "file"));
    printf("%s\n", text);
    free(text);
}

static void print_warnings(const struct json_at *job)
{
    const struct json_at *const warnings = json_at_member(job, "warnings");

    for (size_t i = 0; i < json_at_n(warnings); i++)
        fprintf(stderr, "penstock: %s\n", json_at_str(json_at_item(warnings, i), NULL, ""));
}

static int post_file(const struct jobs_args *a, const char *file, struct json_doc **ret_doc)
{
    struct buf text;
    int r;

    buf_init(&text, FILE_BYTES_MAX);
    r = read_file(file, &text);
    if (r == EXIT_SUCCESS) {
        char *const escaped = ctl_escape(file);
        char *const path = xasprintf("/v1/jobs?file=%s%s", escaped, a->dry_run ? "&dry_run=1" : "");

        r = ctl_post(&a->ctl, path, buf_cstr(&text), text.len, ret_doc);
        free(path);
        free(escaped);
    }
    buf_fini(&text);
    return r;
}

static int jobs_submit(const struct jobs_args *a, const char *file)
{
    struct json_doc *doc = NULL;
    int r = post_file(a, file, &doc);

    if (r != EXIT_SUCCESS)
        return r;

    const struct json_at *const top = json_doc_top(doc);
    const struct json_at *const several = json_at_member(top, "jobs");
    const size_t n = several != NULL ? json_at_n(several) : 1;
    const bool waits = a->wait && !a->dry_run;
    const bool is_printed = !waits && ctl_print_json(&a->ctl, doc);

    for (size_t i = 0; i < n; i++) {
        const struct json_at *const job = several != NULL ? json_at_item(several, i) : top;

        print_warnings(job);
        if (!waits && !is_printed)
            print_submitted(a, job);
    }
    for (size_t i = 0; i < n && waits; i++) {
        const struct json_at *const job = several != NULL ? json_at_item(several, i) : top;
        const int one = wait_for_end(a, json_at_str(job, "job", ""));

        r = one != EXIT_SUCCESS ? one : r;
    }
    json_doc_free(doc);
    return r;
}

/* ---- list, show, why ---- */

static int jobs_list(const struct jobs_args *a)
{
    struct json_doc *doc = NULL;
    const int r = ctl_get(&a->ctl, "/v1/jobs", &doc);
    struct ctl_table table;

    if (r != EXIT_SUCCESS || ctl_print_json(&a->ctl, doc)) {
        json_doc_free(doc);
        return r;
    }

    const struct json_at *const jobs = json_at_member(json_doc_top(doc), "jobs");
    static const char *const titles[] = {"JOB",     "STATE", "QUEUE", "PRIORITY",
                                         "RUNNING", "AGE",   "WHY"};

    ctl_table_init(&table, ARRAY_LEN(titles));
    for (size_t i = 0; i < ARRAY_LEN(titles); i++)
        ctl_table_cell(&table, "%s", titles[i]);
    for (size_t i = 0; i < json_at_n(jobs); i++) {
        const struct json_at *const job = json_at_item(jobs, i);
        char age[32];

        ctl_print_age(age, sizeof(age), json_at_uint(job, "age_us", 0));
        ctl_table_cell(&table, "%s", json_at_str(job, "job", ""));
        ctl_table_cell(&table, "%s", json_at_str(job, "state", ""));
        ctl_table_cell(&table, "%s", json_at_str(job, "queue", ""));
        ctl_table_cell(&table, "%" PRIu64, json_at_uint(job, "priority", 0));
        ctl_table_cell(&table, "%" PRIu64 "/%" PRIu64, json_at_uint(job, "tasks_running", 0),
                       json_at_uint(job, "tasks_total", 0));
        ctl_table_cell(&table, "%s", age);
        ctl_table_cell(&table, "%s", json_at_str(job, "why", ""));
    }
    ctl_table_print(&table);
    json_doc_free(doc);
    return EXIT_SUCCESS;
}

static void print_cards(struct ctl_table *table, const struct json_at *task)
{
    const struct json_at *const cards = json_at_member(task, "cards");
    struct buf b;

    buf_init(&b, 4096);
    for (size_t i = 0; i < json_at_n(cards); i++)
        buf_printf(&b, "%s%s", i > 0 ? "," : "", json_at_str(json_at_item(cards, i), NULL, ""));
    ctl_table_cell(table, "%s", b.len > 0 ? buf_cstr(&b) : "-");
    buf_fini(&b);
}

static void print_tasks(const struct json_at *tasks)
{
    static const char *const titles[] = {"TASK",  "STATE",   "TRY", "NODE",
                                         "CARDS", "ADDRESS", "PID", "LAST END"};
    struct ctl_table table;

    ctl_table_init(&table, ARRAY_LEN(titles));
    for (size_t i = 0; i < ARRAY_LEN(titles); i++)
        ctl_table_cell(&table, "%s", titles[i]);
    for (size_t i = 0; i < json_at_n(tasks); i++) {
        const struct json_at *const task = json_at_item(tasks, i);

        const char *const text = json_at_str(task, "text", "");

        ctl_table_cell(&table, "%s", json_at_str(task, "task", ""));
        ctl_table_cell(&table, "%s", json_at_str(task, "state", ""));
        ctl_table_cell(&table, "%" PRIu64, json_at_uint(task, "tries", 0));
        ctl_table_cell(&table, "%s", json_at_str(task, "node", "-"));
        print_cards(&table, task);
        ctl_table_cell(&table, "%s", json_at_str(task, "address", "-"));
        if (json_at_uint(task, "pid", 0) == 0)
            ctl_table_cell(&table, "-");
        else
            ctl_table_cell(&table, "%" PRIu64, json_at_uint(task, "pid", 0));
        ctl_table_cell(&table, "%s", text[0] == '\0' ? "-" : text);
    }
    ctl_table_print(&table);
}

static void print_why(const struct json_at *job)
{
    printf("job %s %s: %s\n", json_at_str(job, "job", ""), json_at_str(job, "state", ""),
           json_at_str(job, "why", ""));
    if (json_at_member(job, "expected_in_us") != NULL) {
        char in[32];

        ctl_print_age(in, sizeof(in), json_at_uint(job, "expected_in_us", 0));
        printf("expected to start in %s, by the estimates of what runs\n", in);
    }
}

static void print_job(const struct json_at *job)
{
    char age[32], waited[32], ran[32];

    ctl_print_age(age, sizeof(age), json_at_uint(job, "age_us", 0));
    ctl_print_age(waited, sizeof(waited), json_at_uint(job, "waited_us", 0));
    ctl_print_age(ran, sizeof(ran), json_at_uint(job, "ran_us", 0));
    print_why(job);
    printf("number %" PRIu64 ", queue %s, priority %" PRIu64 ", %s, %" PRIu64 " failed, %" PRIu64
           " retries allowed\nsubmitted %s ago, waited %s, ran %s\n\n",
           json_at_uint(job, "number", 0), json_at_str(job, "queue", ""),
           json_at_uint(job, "priority", 0),
           json_at_bool(job, "gang", false) ? "gang" : "tasks one by one",
           json_at_uint(job, "failures", 0), json_at_uint(job, "retries", 0), age, waited, ran);
    print_tasks(json_at_member(job, "tasks"));
}

static int jobs_show(const struct jobs_args *a, const char *name, bool only_why)
{
    struct json_doc *doc = NULL;
    const int r = get_of_job(&a->ctl, name, "", &doc);

    if (r == EXIT_SUCCESS && !ctl_print_json(&a->ctl, doc)) {
        if (only_why)
            print_why(json_doc_top(doc));
        else
            print_job(json_doc_top(doc));
    }
    json_doc_free(doc);
    return r;
}

/* what: cancel, suspend, resume. */
static int jobs_post(const struct jobs_args *a, const char *name, const char *what)
{
    struct json_doc *doc = NULL;
    char *const escaped = ctl_escape(name);
    char *const path = xasprintf("/v1/jobs/%s/%s", escaped, what);
    int r = ctl_post(&a->ctl, path, "", 0, &doc);

    free(path);
    free(escaped);
    if (r == EXIT_SUCCESS && !ctl_print_json(&a->ctl, doc))
        print_why(json_doc_top(doc));
    json_doc_free(doc);
    return r;
}

/* ---- logs ---- */

static int jobs_logs(const struct jobs_args *a, const char *name, const char *task)
{
    struct json_doc *doc = NULL;
    char *const escaped = task != NULL ? ctl_escape(task) : NULL;
    char *const what = xasprintf("/logs?bytes=%" PRIu64 "%s%s", a->bytes,
                                 task != NULL ? "&task=" : "", task != NULL ? escaped : "");
    const int r = get_of_job(&a->ctl, name, what, &doc);

    free(what);
    free(escaped);
    if (r == EXIT_SUCCESS && !ctl_print_json(&a->ctl, doc)) {
        const struct json_at *const logs = json_at_member(json_doc_top(doc), "logs");

        for (size_t i = 0; i < json_at_n(logs); i++) {
            const struct json_at *const log = json_at_item(logs, i);

            if (json_at_n(logs) > 1)
                printf("%s==> %s <==\n", i > 0 ? "\n" : "", json_at_str(log, "task", ""));
            fputs(json_at_str(log, "text", ""), stdout);
        }
    }
    json_doc_free(doc);
    return r;
}

/* ---- the verb ---- */

/* sub is unknown, or has a word too few or too many. */
static int bad_words(const struct args_spec *spec, const char *sub, bool has_more)
{
    static const char *const subs[] = {"submit", "list",    "show",   "why",
                                       "cancel", "suspend", "resume", "logs"};

    for (size_t i = 0; i < ARRAY_LEN(subs); i++) {
        if (strcmp(sub, subs[i]) != 0)
            continue;
        if (has_more)
            return args_usage_error(spec, "too many words after %s", sub);
        return args_usage_error(spec, "%s needs a %s", sub, i == 0 ? "FILE" : "JOB");
    }
    return args_usage_error(spec, "unknown word \"%s\"", sub);
}

int verb_jobs(int argc, char **argv)
{
    struct jobs_args a = {.bytes = 64 * 1024};

    ctl_init(&a.ctl);
    const struct arg options[] = {
        CTL_OPTIONS(&a.ctl),
        ARG_FLAG("wait", &a.wait,
                 "submit: until the job has ended; exit status 1 when it did not succeed"),
        ARG_FLAG("dry-run", &a.dry_run,
                 "submit: say what it would be and whether it has room now, start nothing"),
        ARG_UINT("bytes", "N", &a.bytes, 1, 8 * 1024 * 1024,
                 "logs: at most the newest N of a task"),
        ARG_END,
    };
    const struct args_spec spec = {
        .verb = "jobs",
        .positional = "submit FILE | list | show JOB | why JOB | cancel JOB | "
                      "suspend JOB | resume JOB | logs JOB [TASK]",
        .about = "Batch jobs: tasks that run to their end on the same nodes and cards as the "
                 "replicas.\nFILE is a job file, or a manifest of Volcano or Kubeflow in YAML "
                 "(docs/jobs.md); - reads standard input. They end with `penstock up`.",
        .options = options,
        .min_positional = 1,
        .max_positional = 3,
    };
    const int parsed = args_parse(&spec, &argc, argv);

    if (parsed != ARGS_OK)
        return args_exit(parsed);

    const char *const sub = argv[1];
    const char *const name = argc > 2 ? argv[2] : NULL;

    if (strcmp(sub, "list") == 0 && argc == 2)
        return jobs_list(&a);
    if (strcmp(sub, "logs") == 0 && argc >= 3)
        return jobs_logs(&a, name, argc > 3 ? argv[3] : NULL);
    if (argc == 3 && strcmp(sub, "submit") == 0)
        return jobs_submit(&a, name);
    if (argc == 3 && (strcmp(sub, "show") == 0 || strcmp(sub, "why") == 0))
        return jobs_show(&a, name, strcmp(sub, "why") == 0);
    if (argc == 3 &&
        (strcmp(sub, "cancel") == 0 || strcmp(sub, "suspend") == 0 || strcmp(sub, "resume") == 0))
        return jobs_post(&a, name, sub);
    return bad_words(&spec, sub, argc > 2);
}
