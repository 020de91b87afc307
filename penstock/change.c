/* penstock/change.c - the verbs that change the config of a running penstock, and `diff`. */
#include <inttypes.h>
#include <limits.h>
#include <pwd.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/json_out.h"
#include "conf/edit.h"
#include "penstock/ctl.h"

#define BODY_CEILING (16u * 1024 * 1024)
#define NUMBER_NONE  UINT64_MAX

struct change {
    struct ctl ctl;
    const char *reason, *author;
    uint64_t expected;
};

#define CHANGE_OPTIONS(c)                                                                          \
    ARG_STR("reason", "TEXT", &(c)->reason, "why, for the history"),                               \
        ARG_STR("author", "NAME", &(c)->author, "who, for the history; default: user@host"),       \
        ARG_UINT("expect", "N", &(c)->expected, 0, UINT32_MAX - 1,                                 \
                 "refuse unless generation N is in force"),                                        \
        CTL_OPTIONS(&(c)->ctl)

static void change_init(struct change *c)
{
    ctl_init(&c->ctl);
    c->reason = c->author = NULL;
    c->expected = NUMBER_NONE;
}

static void put_by(struct json_out *j, const struct change *c)
{
    char host[HOST_NAME_MAX + 1] = "", who[256];
    const struct passwd *const user = getpwuid(getuid());

    gethostname(host, sizeof(host) - 1);
    snprintf(who, sizeof(who), "%.100s@%.100s", user == NULL ? "?" : user->pw_name, host);
    json_out_str(j, "author", c->author == NULL ? who : c->author);
    json_out_str(j, "reason", c->reason == NULL ? "" : c->reason);
    if (c->expected != NUMBER_NONE)
        json_out_uint(j, "expected", c->expected);
}

static void print_held(const struct json_at *held)
{
    for (size_t i = 0; i < json_at_n(held); i++) {
        const struct json_at *const h = json_at_item(held, i);

        printf("%s/%s has %" PRIu64 " of its %" PRIu64 " parts until its replicas are ready\n",
               json_at_str(h, "model", "?"), json_at_str(h, "version", "?"),
               json_at_uint(h, "serves", 0), json_at_uint(h, "weight", 0));
    }
}

/* Posts what is in body, prints what became of it. Frees body. */
static int post(const struct change *c, const char *path, struct buf *body)
{
    struct json_doc *doc = NULL;
    int r = EXIT_FAILURE;

    if (body->overflow)
        fprintf(stderr, "penstock: the config is over the limit of %u bytes\n", BODY_CEILING);
    else
        r = ctl_post(&c->ctl, path, (const char *)body->data, body->len, &doc);
    buf_fini(body);
    if (doc == NULL)
        return r;
    if (!ctl_print_json(&c->ctl, doc)) {
        const struct json_at *const top = json_doc_top(doc);
        const uint64_t number = json_at_uint(top, "generation", 0);

        fputs(json_at_str(top, "diff", ""), stdout);
        if (!json_at_bool(top, "changed", true))
            printf("unchanged: generation %" PRIu64 " is in force\n", number);
        else if (json_at_bool(top, "applied", false))
            printf("generation %" PRIu64 " is in force, %.0f ms\n", number,
                   (double)json_at_uint(top, "took_us", 0) / 1000);
        else
            printf("generation %" PRIu64 " is accepted; a worker is late to take it over\n",
                   number);
        print_held(json_at_member(top, "held"));
    }
    json_doc_free(doc);
    return r;
}

static int refuse_folder(struct conf_problems *problems, const char *dir)
{
    fwrite(problems->text.data, 1, problems->text.len, stderr);
    fprintf(stderr, "penstock: %zu problem%s in %s: nothing was sent\n", problems->n,
            problems->n == 1 ? "" : "s", dir);
    return EX_CONFIG;
}

int verb_apply(int argc, char **argv)
{
    struct change c;
    struct conf_problems problems;
    const struct arg options[] = {CHANGE_OPTIONS(&c), ARG_END};
    const struct args_spec spec = {
        .verb = "apply",
        .positional = "DIR",
        .about =
            "Checks a config folder and puts it in force as the next generation: whole, or not\n"
            "at all. Running calls go on. Returns when every worker routes by it.",
        .options = options,
        .min_positional = 1,
        .max_positional = 1,
    };
    struct json_out j;
    struct buf body;

    change_init(&c);
    const int r = args_parse(&spec, &argc, argv);

    if (r != ARGS_OK)
        return args_exit(r);
    conf_problems_init(&problems);
    struct generation *const g = generation_load_dir(argv[1], &problems);
    const int refused = g == NULL ? refuse_folder(&problems, argv[1]) : EXIT_SUCCESS;

    conf_problems_fini(&problems);
    if (g == NULL)
        return refused;
    buf_init(&body, BODY_CEILING);
    json_out_init(&j, &body);
    json_out_object(&j, NULL);
    put_by(&j, &c);
    json_out_raw(&j, "config", g->source_json);
    json_out_end_object(&j);
    generation_unref(g);
    return post(&c, "/v1/apply", &body);
}

static int print_diff(const struct ctl *ctl, const struct json_at *config,
                      const struct generation *g)
{
    char *const now = json_at_text(config);
    struct buf out;

    buf_init(&out, BODY_CEILING * 4);
    edit_diff(now, g->source_json, &out);
    free(now);
    if (ctl->json) {
        struct json_out j;
        struct buf text;

        buf_init(&text, BODY_CEILING * 8);
        json_out_init(&j, &text);
        json_out_object(&j, NULL);
        json_out_bool(&j, "changed", out.len > 0);
        json_out_str(&j, "diff", buf_cstr(&out));
        json_out_end_object(&j);
        puts(buf_cstr(&text));
        buf_fini(&text);
    } else {
        fputs(out.len > 0 ? buf_cstr(&out) : "unchanged: apply would do nothing\n", stdout);
    }
    buf_fini(&out);
    return EXIT_SUCCESS;
}

int verb_diff(int argc, char **argv)
{
    struct ctl ctl;
    struct conf_problems problems;
    struct json_doc *doc = NULL;
    const struct arg options[] = {CTL_OPTIONS(&ctl), ARG_END};
    const struct args_spec spec = {
        .verb = "diff",
        .positional = "DIR",
        .about = "What `penstock apply DIR` would change, one value a line.",
        .options = options,
        .min_positional = 1,
        .max_positional = 1,
    };

    ctl_init(&ctl);
    int r = args_parse(&spec, &argc, argv);

    if (r != ARGS_OK)
        return args_exit(r);
    conf_problems_init(&problems);
    struct generation *const g = generation_load_dir(argv[1], &problems);

    r = g == NULL ? refuse_folder(&problems, argv[1]) : ctl_get(&ctl, "/v1/config", &doc);
    conf_problems_fini(&problems);
    if (r == EXIT_SUCCESS)
        r = print_diff(&ctl, json_at_member(json_doc_top(doc), "config"), g);
    json_doc_free(doc);
    generation_unref(g);
    return r;
}

/* A whole number in an argument; false, with the error printed. */
static bool parse_number(const struct args_spec *spec, const char *text, uint64_t max,
                         uint64_t *ret_number)
{
    char *end = NULL;
    const unsigned long long n =
        text[0] >= '0' && text[0] <= '9' ? strtoull(text, &end, 10) : UINT64_MAX;

    if (end == NULL || *end != '\0' || n > max) {
        args_usage_error(spec, "\"%s\" is not a whole number from 0 to %" PRIu64, text, max);
        return false;
    }
    *ret_number = n;
    return true;
}

int verb_rollback(int argc, char **argv)
{
    struct change c;
    uint64_t number = 0;
    const struct arg options[] = {CHANGE_OPTIONS(&c), ARG_END};
    const struct args_spec spec = {
        .verb = "rollback",
        .positional = "MODEL [GENERATION]",
        .about =
            "Puts one model back to what it was in GENERATION, or in the newest generation that\n"
            "differs from now; the other models stay. Its replicas were kept warm.",
        .options = options,
        .min_positional = 1,
        .max_positional = 2,
    };
    struct json_out j;
    struct buf body;

    change_init(&c);
    const int r = args_parse(&spec, &argc, argv);

    if (r != ARGS_OK)
        return args_exit(r);
    if (argc == 3 && !parse_number(&spec, argv[2], UINT32_MAX - 1, &number))
        return EX_USAGE;
    buf_init(&body, BODY_CEILING);
    json_out_init(&j, &body);
    json_out_object(&j, NULL);
    put_by(&j, &c);
    json_out_str(&j, "model", argv[1]);
    json_out_uint(&j, "generation", number);
    json_out_end_object(&j);
    return post(&c, "/v1/rollback", &body);
}

/* "1=9000,2=1000" as members; false, with the error printed. */
static bool put_weights(const struct args_spec *spec, struct json_out *j, char *text)
{
    char *rest = NULL;

    for (char *part = strtok_r(text, ",", &rest); part != NULL; part = strtok_r(NULL, ",", &rest)) {
        char *const equals = strrchr(part, '=');
        uint64_t weight = 0;

        if (equals == NULL || equals == part) {
            args_usage_error(spec, "\"%s\" is not VERSION=WEIGHT", part);
            return false;
        }
        *equals = '\0';
        if (!parse_number(spec, equals + 1, WEIGHT_WHOLE, &weight))
            return false;
        json_out_uint(j, part, weight);
    }
    return true;
}

int verb_traffic(int argc, char **argv)
{
    struct change c;
    const struct arg options[] = {CHANGE_OPTIONS(&c), ARG_END};
    const struct args_spec spec = {
        .verb = "traffic",
        .positional = "MODEL VERSION=WEIGHT[,VERSION=WEIGHT...]",
        .about =
            "Splits the calls of a model over its versions, in parts of 10000 that sum to it.\n"
            "A version that is not named gets none; its replicas stay warm for a while.",
        .options = options,
        .min_positional = 2,
        .max_positional = 2,
    };
    struct json_out j;
    struct buf body;

    change_init(&c);
    const int r = args_parse(&spec, &argc, argv);

    if (r != ARGS_OK)
        return args_exit(r);
    buf_init(&body, BODY_CEILING);
    json_out_init(&j, &body);
    json_out_object(&j, NULL);
    put_by(&j, &c);
    json_out_str(&j, "model", argv[1]);
    json_out_object(&j, "weights");
    if (!put_weights(&spec, &j, argv[2])) {
        buf_fini(&body);
        return EX_USAGE;
    }
    json_out_end_object(&j);
    json_out_end_object(&j);
    return post(&c, "/v1/traffic", &body);
}
