/* penstock/show.c - the verbs that show a running penstock: status, replicas, nodes, history, why.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "penstock/ctl.h"

#define DIFF_COLUMNS    160 /* of a line of `history`; --json has all of it */
#define NOT_READY_SHOWN 10  /* replicas of a version below `status`; --json has all of them */

/* Options, request and --json, which all of them share. NULL: *ret_status is the exit status. */
static struct json_doc *ask(const struct args_spec *spec, struct ctl *ctl, const char *path,
                            int *argc, char **argv, int *ret_status)
{
    struct json_doc *doc = NULL;
    const int r = args_parse(spec, argc, argv);

    *ret_status = r == ARGS_OK ? ctl_get(ctl, path, &doc) : args_exit(r);
    if (doc != NULL && ctl_print_json(ctl, doc))
        doc = json_doc_free(doc);
    return doc;
}

typedef void (*row_fn)(struct ctl_table *t, const struct json_at *item);

/* The verb that prints the list `member` of the answer, one call of row for each. Returns the exit
 * status. */
static int show_rows(const struct args_spec *spec, struct ctl *ctl, const char *path,
                     const char *member, const char *const *heads, size_t n_heads, row_fn row,
                     int argc, char **argv)
{
    struct ctl_table t;
    int status = 0;

    ctl_init(ctl);
    struct json_doc *const doc = ask(spec, ctl, path, &argc, argv, &status);

    if (doc == NULL)
        return status;
    const struct json_at *const items = json_at_member(json_doc_top(doc), member);

    ctl_table_init(&t, n_heads);
    for (size_t i = 0; i < n_heads; i++)
        ctl_table_cell(&t, "%s", heads[i]);
    for (size_t i = 0; i < json_at_n(items); i++)
        row(&t, json_at_item(items, i));
    ctl_table_print(&t);
    json_doc_free(doc);
    return status;
}

static void format_time(char dst[32], uint64_t wall_us)
{
    const time_t s = (time_t)(wall_us / US_PER_S);
    struct tm tm;

    strftime(dst, 32, "%Y-%m-%d %H:%M:%S", localtime_r(&s, &tm));
}

/* ---- status ---- */

static void status_version(struct ctl_table *t, const struct json_at *m, const struct json_at *v)
{
    const struct json_at *const endpoints = json_at_member(v, "endpoints");
    size_t n_ready = 0;

    for (size_t i = 0; i < json_at_n(endpoints); i++)
        n_ready += strcmp(json_at_str(json_at_item(endpoints, i), "state", ""), "ready") == 0;
    ctl_table_cell(t, "%s", json_at_str(m, "model", "?"));
    ctl_table_cell(t, "%s", json_at_str(v, "version", "?"));
    ctl_table_cell(t, "%.2f %%", (double)json_at_uint(v, "weight", 0) / 100);
    ctl_table_cell(t, "%zu/%zu", n_ready, json_at_n(endpoints));
    ctl_table_cell(t, "%" PRIu64, json_at_uint(v, "in_flight", 0));
    ctl_table_cell(t, "%" PRIu64, json_at_uint(v, "queued", 0));
    ctl_table_cell(t, "%" PRIu64, json_at_uint(v, "finished", 0));
    ctl_table_cell(t, "%" PRIu64, json_at_uint(v, "failed", 0));
    for (size_t i = 0; i < 2; i++) {
        if (json_at_uint(v, "finished", 0) == 0)
            ctl_table_cell(t, "-");
        else
            ctl_table_cell(t, "%.1f", json_at_double(v, i == 0 ? "p50_ms" : "p99_ms", 0));
    }
}

/* Which replicas the READY column misses, and what they are instead. */
static void status_not_ready(const struct json_at *m, const struct json_at *v)
{
    const struct json_at *const endpoints = json_at_member(v, "endpoints");
    size_t n_more = 0, n = 0;

    for (size_t i = 0; i < json_at_n(endpoints); i++) {
        const struct json_at *const e = json_at_item(endpoints, i);
        const char *const state = json_at_str(e, "state", "");

        if (strcmp(state, "ready") == 0)
            continue;
        if (n++ < NOT_READY_SHOWN)
            printf("%s/%s: %s is %s\n", json_at_str(m, "model", "?"),
                   json_at_str(v, "version", "?"), json_at_str(e, "replica", "?"), state);
        else
            n_more++;
    }
    if (n_more > 0)
        printf("%s/%s: %zu more\n", json_at_str(m, "model", "?"), json_at_str(v, "version", "?"),
               n_more);
}

int verb_status(int argc, char **argv)
{
    static const char *const heads[] = {"MODEL",  "VERSION", "TRAFFIC", "READY",  "IN FLIGHT",
                                        "QUEUED", "ENDED",   "FAILED",  "P50 MS", "P99 MS"};
    struct ctl ctl;
    struct ctl_table t;
    const struct arg options[] = {CTL_OPTIONS(&ctl), ARG_END};
    const struct args_spec spec = {
        .verb = "status",
        .positional = "",
        .about = "Models and versions: traffic, replicas, calls.",
        .options = options,
    };
    int status = 0;

    ctl_init(&ctl);
    struct json_doc *const doc = ask(&spec, &ctl, "/v1/status", &argc, argv, &status);

    if (doc == NULL)
        return status;
    const struct json_at *const top = json_doc_top(doc);
    const struct json_at *const models = json_at_member(top, "models");

    printf("penstock %s, generation %" PRIu64 ", %zu workers, %s\n", json_at_str(top, "verb", "?"),
           json_at_uint(top, "generation", 0), json_at_n(json_at_member(top, "workers")),
           json_at_bool(top, "ready", false) ? "ready" : "not ready");
    ctl_table_init(&t, ARRAY_LEN(heads));
    for (size_t i = 0; i < ARRAY_LEN(heads); i++)
        ctl_table_cell(&t, "%s", heads[i]);
    for (size_t m = 0; m < json_at_n(models); m++) {
        const struct json_at *const model = json_at_item(models, m);
        const struct json_at *const versions = json_at_member(model, "versions");

        for (size_t v = 0; v < json_at_n(versions); v++)
            status_version(&t, model, json_at_item(versions, v));
    }
    ctl_table_print(&t);
    for (size_t m = 0; m < json_at_n(models); m++) {
        const struct json_at *const model = json_at_item(models, m);
        const struct json_at *const versions = json_at_member(model, "versions");

        for (size_t v = 0; v < json_at_n(versions); v++)
            status_not_ready(model, json_at_item(versions, v));
    }
    json_doc_free(doc);
    return status;
}

/* ---- replicas ---- */

static void replica_row(struct ctl_table *t, const struct json_at *r)
{
    const struct json_at *const cards = json_at_member(r, "cards");
    char age[32], share[160] = "-";
    size_t n = 0;

    ctl_print_age(age, sizeof(age), json_at_uint(r, "age_us", 0));
    if (json_at_n(cards) > 0)
        n = (size_t)snprintf(share, sizeof(share), "card ");
    for (size_t i = 0; i < json_at_n(cards) && n < sizeof(share); i++)
        n += (size_t)snprintf(share + n, sizeof(share) - n, "%s%s", i == 0 ? "" : "+",
                              json_at_str(json_at_item(cards, i), NULL, "?"));
    if (json_at_n(cards) > 0 && n < sizeof(share))
        snprintf(share + n, sizeof(share) - n, ": %" PRIu64 "/1000, %" PRIu64 " MiB",
                 json_at_uint(r, "gpu_milli", 0), json_at_uint(r, "gpu_memory_mib", 0));
    ctl_table_cell(t, "%s", json_at_str(r, "replica", "?"));
    ctl_table_cell(t, "%s%s", json_at_str(r, "state", "?"),
                   json_at_bool(r, "outdated", false) ? " (outdated)" : "");
    ctl_table_cell(t, "%s", json_at_str(r, "address", "?"));
    ctl_table_cell(t, "%s", json_at_str(r, "node", "?"));
    ctl_table_cell(t, "%s", share);
    ctl_table_cell(t, "%" PRIu64, json_at_uint(r, "in_flight", 0));
    ctl_table_cell(t, "%s", age);
}

static void print_versions(const struct json_at *versions)
{
    for (size_t i = 0; i < json_at_n(versions); i++) {
        const struct json_at *const v = json_at_item(versions, i);
        const char *const no_room = json_at_str(v, "no_room", NULL);

        printf("%s/%s wants %" PRIu64 " (%s): %s%s%s\n", json_at_str(v, "model", "?"),
               json_at_str(v, "version", "?"), json_at_uint(v, "desired", 0),
               json_at_str(v, "reason", "?"), json_at_str(v, "text", ""),
               no_room == NULL ? "" : "; no room: ", no_room == NULL ? "" : no_room);
    }
}

int verb_replicas(int argc, char **argv)
{
    static const char *const heads[] = {"REPLICA", "STATE",     "ADDRESS", "NODE",
                                        "SHARE",   "IN FLIGHT", "AGE"};
    struct ctl ctl;
    struct ctl_table t;
    const struct arg options[] = {CTL_OPTIONS(&ctl), ARG_END};
    const struct args_spec spec = {
        .verb = "replicas",
        .positional = "",
        .about = "The replicas that penstock runs, and how many of each version it wants and why.",
        .options = options,
    };
    int status = 0;

    ctl_init(&ctl);
    struct json_doc *const doc = ask(&spec, &ctl, "/v1/replicas", &argc, argv, &status);

    if (doc == NULL)
        return status;
    const struct json_at *const replicas = json_at_member(json_doc_top(doc), "replicas");

    ctl_table_init(&t, ARRAY_LEN(heads));
    for (size_t i = 0; i < ARRAY_LEN(heads); i++)
        ctl_table_cell(&t, "%s", heads[i]);
    for (size_t i = 0; i < json_at_n(replicas); i++)
        replica_row(&t, json_at_item(replicas, i));
    ctl_table_print(&t);
    print_versions(json_at_member(json_doc_top(doc), "versions"));
    json_doc_free(doc);
    return status;
}

/* ---- nodes ---- */

static void node_rows(struct ctl_table *t, const struct json_at *n)
{
    const struct json_at *const cards = json_at_member(n, "cards");

    ctl_table_cell(t, "%s%s", json_at_str(n, "node", "?"),
                   json_at_bool(n, "down", false) ? " (down)" : "");
    ctl_table_cell(t, "%s", json_at_bool(n, "declared", false) ? "nodes.json" : "found");
    ctl_table_cell(t, "cpu");
    ctl_table_cell(t, "%" PRIu64 "/%" PRIu64 " milli", json_at_uint(n, "used_cpu_milli", 0),
                   json_at_uint(n, "cpu_milli", 0));
    ctl_table_cell(t, "%" PRIu64 "/%" PRIu64 " MiB", json_at_uint(n, "used_memory_mib", 0),
                   json_at_uint(n, "memory_mib", 0));
    for (size_t i = 0; i < json_at_n(cards); i++) {
        const struct json_at *const c = json_at_item(cards, i);

        ctl_table_cell(t, "%s", "");
        ctl_table_cell(t, "%s", "");
        ctl_table_cell(t, "card %s %s%s", json_at_str(c, "id", "?"), json_at_str(c, "model", ""),
                       json_at_bool(c, "down", false) ? " (down)" : "");
        ctl_table_cell(t, "%" PRIu64 "/1000", json_at_uint(c, "used_milli", 0));
        ctl_table_cell(t, "%" PRIu64 "/%" PRIu64 " MiB", json_at_uint(c, "used_memory_mib", 0),
                       json_at_uint(c, "memory_mib", 0));
    }
}

int verb_nodes(int argc, char **argv)
{
    static const char *const heads[] = {"NODE", "FROM", "WHAT", "USED", "MEMORY USED"};
    struct ctl ctl;
    const struct arg options[] = {CTL_OPTIONS(&ctl), ARG_END};
    const struct args_spec spec = {
        .verb = "nodes",
        .positional = "",
        .about = "Nodes and cards, and how much of each is set aside.",
        .options = options,
    };

    return show_rows(&spec, &ctl, "/v1/nodes", "nodes", heads, ARRAY_LEN(heads), node_rows, argc,
                     argv);
}

/* ---- queues ---- */

/* Thousandths of cards as cards; "-" for none. */
static void cards_cell(struct ctl_table *t, uint64_t milli)
{
    if (milli == 0)
        ctl_table_cell(t, "-");
    else
        ctl_table_cell(t, "%" PRIu64 ".%03" PRIu64, milli / 1000, milli % 1000);
}

static void queue_row(struct ctl_table *t, const struct json_at *q)
{
    char wait[32];

    ctl_print_age(wait, sizeof(wait), json_at_uint(q, "oldest_wait_us", 0));
    ctl_table_cell(t, "%s", json_at_str(q, "queue", "?"));
    ctl_table_cell(t, "%" PRIu64, json_at_uint(q, "weight", 0));
    cards_cell(t, json_at_uint(q, "used_gpu_milli", 0));
    cards_cell(t, json_at_uint(q, "gpu_milli_deserved", 0));
    cards_cell(t, json_at_uint(q, "gpu_milli_cap", 0));
    ctl_table_cell(t, "%" PRIu64, json_at_uint(q, "jobs_running", 0));
    ctl_table_cell(t, "%" PRIu64, json_at_uint(q, "jobs_waiting", 0));
    ctl_table_cell(t, "%" PRIu64, json_at_uint(q, "jobs_suspended", 0));
    ctl_table_cell(t, "%s", json_at_uint(q, "jobs_waiting", 0) > 0 ? wait : "-");
}

int verb_queues(int argc, char **argv)
{
    static const char *const heads[] = {"QUEUE",   "WEIGHT",  "CARDS",     "DESERVED",    "CAP",
                                        "RUNNING", "WAITING", "SUSPENDED", "LONGEST WAIT"};
    struct ctl ctl;
    const struct arg options[] = {CTL_OPTIONS(&ctl), ARG_END};
    const struct args_spec spec = {
        .verb = "queues",
        .positional = "",
        .about =
            "Queues of batch jobs: cards that each holds, deserves and may hold, and its jobs.",
        .options = options,
    };

    return show_rows(&spec, &ctl, "/v1/queues", "queues", heads, ARRAY_LEN(heads), queue_row, argc,
                     argv);
}

/* ---- history ---- */

static void print_generation(const struct json_at *g, bool in_force)
{
    const char *line = json_at_str(g, "diff", "");
    char when[32];

    format_time(when, json_at_uint(g, "created_us", 0));
    const char *const reason = json_at_str(g, "reason", "");

    printf("generation %" PRIu64 "%s  %s  %s%s%s\n", json_at_uint(g, "generation", 0),
           in_force ? " (in force)" : "", when, json_at_str(g, "author", "?"),
           reason[0] == '\0' ? "" : "  ", reason);
    while (*line != '\0') {
        const char *const end = strchrnul(line, '\n');

        const int len = end - line > DIFF_COLUMNS ? DIFF_COLUMNS : (int)(end - line);

        printf("    %.*s%s\n", len, line, line + len < end ? "..." : "");
        line = *end == '\0' ? end : end + 1;
    }
}

int verb_history(int argc, char **argv)
{
    struct ctl ctl;
    uint64_t limit = 20;
    char path[64];
    const struct arg options[] = {
        ARG_UINT("limit", "N", &limit, 1, 100000, "newest generations to show; default 20"),
        CTL_OPTIONS(&ctl), ARG_END};
    const struct args_spec spec = {
        .verb = "history",
        .positional = "",
        .about = "Generations, newest first: when, who, why, and what changed.",
        .options = options,
    };
    struct json_doc *doc = NULL;

    ctl_init(&ctl);
    int r = args_parse(&spec, &argc, argv);

    if (r != ARGS_OK)
        return args_exit(r);
    snprintf(path, sizeof(path), "/v1/history?limit=%" PRIu64, limit);
    r = ctl_get(&ctl, path, &doc);
    if (doc == NULL)
        return r;
    const uint64_t in_force = json_at_uint(json_doc_top(doc), "generation", 0);
    const struct json_at *const history = json_at_member(json_doc_top(doc), "history");

    if (!ctl_print_json(&ctl, doc)) {
        for (size_t i = 0; i < json_at_n(history); i++) {
            const struct json_at *const g = json_at_item(history, i);

            print_generation(g, json_at_uint(g, "generation", 0) == in_force);
        }
    }
    json_doc_free(doc);
    return r;
}

/* ---- why ---- */

int verb_why(int argc, char **argv)
{
    struct ctl ctl;
    struct ctl_table t;
    uint64_t limit = 50;
    char path[512];
    const struct arg options[] = {
        ARG_UINT("limit", "N", &limit, 1, 2000, "newest decisions to show; default 50"),
        CTL_OPTIONS(&ctl), ARG_END};
    const struct args_spec spec = {
        .verb = "why",
        .positional = "[MODEL]",
        .about = "What the controller decided, with its reasons, newest first.",
        .options = options,
        .max_positional = 1,
    };
    struct json_doc *doc = NULL;

    ctl_init(&ctl);
    int r = args_parse(&spec, &argc, argv);

    if (r != ARGS_OK)
        return args_exit(r);
    char *const model = ctl_escape(argc == 2 ? argv[1] : "");

    snprintf(path, sizeof(path), "/v1/decisions?limit=%" PRIu64 "%s%.300s", limit,
             argc == 2 ? "&model=" : "", model);
    free(model);
    r = ctl_get(&ctl, path, &doc);
    if (doc == NULL)
        return r;
    const struct json_at *const decisions = json_at_member(json_doc_top(doc), "decisions");

    if (!ctl_print_json(&ctl, doc)) {
        ctl_table_init(&t, 4);
        for (size_t i = 0; i < json_at_n(decisions); i++) {
            const struct json_at *const d = json_at_item(decisions, i);
            const char *const version = json_at_str(d, "version", "");
            char when[32];

            format_time(when, json_at_uint(d, "at_us", 0));
            ctl_table_cell(&t, "%s", when);
            ctl_table_cell(&t, "%s%s%s", json_at_str(d, "model", ""), version[0] == '\0' ? "" : "/",
                           version);
            ctl_table_cell(&t, "%s", json_at_str(d, "what", ""));
            ctl_table_cell(&t, "%s", json_at_str(d, "text", ""));
        }
        ctl_table_print(&t);
    }
    json_doc_free(doc);
    return r;
}
