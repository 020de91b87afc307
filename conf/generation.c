#include "conf/generation.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/xalloc.h"
#include "conf/rules.h"
#include "conf/tables.h"

#define GENERATION_BYTES_MAX (256u * 1024 * 1024)
#define MODELS_MAX           4096

/* struct generation shows refs as a plain number: the type is shared with readers that never look
 * at it. Only these two functions do, atomically. */
struct generation *generation_ref(struct generation *g)
{
    __atomic_fetch_add(&g->refs, 1, __ATOMIC_RELAXED);
    return g;
}

void generation_unref(struct generation *g)
{
    if (g == NULL || __atomic_fetch_sub(&g->refs, 1, __ATOMIC_ACQ_REL) != 1)
        return;
    arena_fini(&g->arena);
    free(g);
}

static struct generation *generation_new(void)
{
    struct generation *const g = xcalloc(1, sizeof(*g));

    arena_init(&g->arena, GENERATION_BYTES_MAX);
    g->refs = 1;
    g->author = g->reason = g->source_json = "";
    return g;
}

/* ---- one JSON tree -> generation ---- */

static void load_model(struct generation *g, const char *file, json_t *object,
                       struct conf_problems *problems)
{
    struct conf_load l = {.arena = &g->arena};
    struct model_raw raw = {0};

    conf_where_init(&l.where, problems, file);
    conf_load_object(&l, &conf_model_table, object, &raw);
    if (json_is_object(object))
        model_finish(&l, &raw, object);
    raw.conf.file = file;
    g->models[g->n_models++] = raw.conf;
}

static void load_models(struct generation *g, json_t *models, struct conf_problems *problems)
{
    const size_t n = json_object_size(models);
    const char *name = NULL;
    json_t *object = NULL;

    if (n > MODELS_MAX) {
        conf_problem_file(problems, "models", 0, 0, "%zu files is over the limit of %d", n,
                          MODELS_MAX);
        return;
    }
    g->models = arena_alloc(&g->arena, (n + 1) * sizeof(*g->models));
    check(g->models != NULL); /* MODELS_MAX of them fit */
    json_object_foreach(models, name, object)
    {
        const size_t size = sizeof("models/") + strlen(name);
        char *const file = arena_alloc(&g->arena, size);
        const char *const broken =
            strlen(name) > NAME_MAX ? "is over the limit of 255 bytes" : conf_rule_file(name);

        if (file == NULL || broken != NULL) {
            conf_problem_file(problems, "models", 0, 0, "file name \"%.64s\" %s", name,
                              broken == NULL ? "does not fit" : broken);
            continue;
        }
        snprintf(file, size, "models/%s", name);
        load_model(g, file, object, problems);
    }
    models_check_together(g, problems);
}

static void check_queues(const struct generation *g, struct conf_problems *problems)
{
    struct conf_where w;

    conf_where_init(&w, problems, "queues.json");
    for (size_t i = 0; i < g->n_queues; i++) {
        const struct queue_conf *q = &g->queues[i];
        const size_t mark = conf_where_key(&w, q->name);

        if (q->gpu_milli_cap > 0 && q->gpu_milli_deserved > q->gpu_milli_cap)
            conf_problem_at(&w, "gpu_milli_deserved", "%u is over the queue's gpu_milli_cap of %u",
                            q->gpu_milli_deserved, q->gpu_milli_cap);
        conf_where_up(&w, mark);
    }
}

static void check_cards(struct generation *g, struct conf_problems *problems)
{
    struct conf_where where;

    conf_where_init(&where, problems, "nodes.json");
    for (size_t n = 0; n < g->n_nodes; n++) {
        struct node_conf *const node = &g->nodes[n];

        node->declared = true;
        conf_where_key(&where, node->name);
        conf_where_key(&where, "cards");
        for (size_t i = 0; i < node->n_cards; i++) {
            for (size_t j = 0; j < i; j++) {
                if (node->cards[i].id[0] == '\0' ||
                    strcmp(node->cards[i].id, node->cards[j].id) != 0)
                    continue;
                conf_where_index(&where, i);
                conf_problem_at(&where, "id", "\"%s\" is the id of card %zu too", node->cards[i].id,
                                j);
                break;
            }
        }
        conf_where_up(&where, 0);
    }
}

static void load_nodes_and_queues(struct generation *g, json_t *tree,
                                  struct conf_problems *problems)
{
    json_t *const nodes = json_object_get(tree, "nodes");
    json_t *const queues = json_object_get(tree, "queues");
    struct conf_load l = {.arena = &g->arena};

    if (nodes != NULL) {
        conf_where_init(&l.where, problems, "nodes.json");
        conf_load_map(&l, &conf_nodes_field, nodes, g);
        check_cards(g, problems);
    }
    if (queues != NULL) {
        conf_where_init(&l.where, problems, "queues.json");
        conf_load_map(&l, &conf_queues_field, queues, g);
        check_queues(g, problems);
        return;
    }
    g->queues = arena_alloc(&g->arena, sizeof(*g->queues));
    check(g->queues != NULL);
    g->queues[0] = (struct queue_conf){.name = "default", .weight = 1};
    g->n_queues = 1;
}

static void check_parts(json_t *tree, struct conf_problems *problems)
{
    const char *key = NULL;
    json_t *part = NULL;

    json_object_foreach(tree, key, part)
    {
        const bool known =
            strcmp(key, "models") == 0 || strcmp(key, "nodes") == 0 || strcmp(key, "queues") == 0;

        if (!known)
            conf_problem_file(problems, "generation", 0, 0,
                              "unknown part \"%.64s\"; known: models, nodes, queues", key);
        else if (!json_is_object(part))
            conf_problem_file(problems, "generation", 0, 0, "part %s is not an object", key);
    }
    if (json_object_get(tree, "models") == NULL)
        conf_problem_file(problems, "generation", 0, 0, "part models is missing");
}

/* problems_before: how many there were when the caller began to read this tree. */
static struct generation *generation_of_tree(json_t *tree, struct conf_problems *problems,
                                             size_t problems_before)
{
    struct generation *const g = generation_new();
    char *text = NULL;

    check_parts(tree, problems);
    load_models(g, json_object_get(tree, "models"), problems);
    load_nodes_and_queues(g, tree, problems);
    if (problems->n == problems_before) {
        text = json_dumps(tree, JSON_COMPACT | JSON_SORT_KEYS);
        check(text != NULL); /* it came out of the parser */
        g->source_json = arena_strndup(&g->arena, text, strlen(text));
        free(text);
        if (g->source_json == NULL)
            conf_problem_file(problems, "generation", 0, 0, "is over the limit of %u bytes",
                              GENERATION_BYTES_MAX);
    }
    if (problems->n != problems_before) {
        generation_unref(g);
        return NULL;
    }
    return g;
}

struct generation *generation_load_text(const char *json, size_t len,
                                        struct conf_problems *problems)
{
    const size_t before = problems->n;
    struct generation *g = NULL;

    json_t *const tree = conf_parse(json, len, CONF_TEXT_BYTES_MAX, "generation", problems);
    if (tree == NULL)
        return NULL;
    if (json_is_object(tree))
        g = generation_of_tree(tree, problems, before);
    else
        conf_problem_file(problems, "generation", 0, 0, "is not an object");
    json_decref(tree);
    return g;
}

/* ---- a folder -> one JSON tree ---- */

static int is_model_file(const struct dirent *e)
{
    const size_t len = strlen(e->d_name);

    return e->d_name[0] != '.' && len > 5 && strcmp(e->d_name + len - 5, ".json") == 0;
}

static bool join(char path[PATH_MAX], const char *dir, const char *rest,
                 struct conf_problems *problems)
{
    if ((size_t)snprintf(path, PATH_MAX, "%s/%s", dir, rest) < PATH_MAX)
        return true;
    conf_problem_file(problems, rest, 0, 0, "the path is over the limit of %d bytes", PATH_MAX - 1);
    return false;
}

static void read_models(const char *dir, json_t *models, struct conf_problems *problems)
{
    char path[PATH_MAX];
    struct dirent **names = NULL;

    if (!join(path, dir, "models", problems))
        return;
    const int n = scandir(path, &names, is_model_file, alphasort);

    if (n < 0) {
        conf_problem_file(problems, "models", 0, 0, "can't read the folder %s: %s", path,
                          strerror(errno));
        return;
    }
    if (n == 0)
        conf_problem_file(problems, "models", 0, 0, "the folder %s has no *.json file", path);
    if (n > MODELS_MAX)
        conf_problem_file(problems, "models", 0, 0, "%d files is over the limit of %d", n,
                          MODELS_MAX);
    for (int i = 0; i < n; i++) {
        char shown[sizeof("models/") + NAME_MAX];

        snprintf(shown, sizeof(shown), "models/%s", names[i]->d_name);
        if (n <= MODELS_MAX && join(path, dir, shown, problems)) {
            json_t *const object = conf_parse_file(path, shown, problems);

            if (object != NULL)
                json_object_set_new(models, names[i]->d_name, object);
        }
        free(names[i]);
    }
    free(names);
}

static void read_part(const char *dir, const char *file, const char *part, json_t *tree,
                      struct conf_problems *problems)
{
    char path[PATH_MAX];

    if (!join(path, dir, file, problems) || access(path, F_OK) != 0)
        return; /* not there: it is optional */
    json_t *const object = conf_parse_file(path, file, problems);

    if (object == NULL)
        return;
    if (json_is_object(object))
        json_object_set(tree, part, object);
    else
        conf_problem_file(problems, file, 0, 0, "is not an object");
    json_decref(object);
}

struct generation *generation_load_dir(const char *dir, struct conf_problems *problems)
{
    const size_t before = problems->n;
    json_t *const tree = json_object();
    json_t *const models = json_object();

    json_object_set_new(tree, "models", models);
    read_models(dir, models, problems);
    read_part(dir, "queues.json", "queues", tree, problems);
    read_part(dir, "nodes.json", "nodes", tree, problems);

    struct generation *const g = generation_of_tree(tree, problems, before);

    json_decref(tree);
    return g;
}

/* ---- relay ---- */

/* No file, so no limits that would change what passes: a relay is transparent. The rest are the
 * defaults of the tables. */
struct generation *generation_for_relay(const char *const *addresses, size_t n,
                                        enum model_policy policy,
                                        const struct upstream_tls_conf *tls,
                                        struct conf_problems *problems)
{
    static const struct upstream_tls_conf none = {
        .mode = UPSTREAM_TLS_OFF, .ca = "", .cert = "", .key = "", .name = ""};
    static const char *const modes[] = {
        [UPSTREAM_TLS_OFF] = "off",
        [UPSTREAM_TLS_VERIFY] = "verify",
        [UPSTREAM_TLS_NO_VERIFY] = "no_verify",
    };
    static const char *const policies[] = {
        [POLICY_P2C] = "p2c",
        [POLICY_LEAST_INFLIGHT] = "least_inflight",
        [POLICY_ROUND_ROBIN] = "round_robin",
    };
    json_t *const endpoints = json_array();
    const size_t before = problems->n;
    struct generation *g = NULL;

    tls = tls != NULL ? tls : &none;

    /* Checked here for messages that name the flag; the model's file is made up. */
    for (size_t i = 0; i < n; i++) {
        char shown[CONF_QUOTE_BYTES];
        const char *const broken = conf_rule_endpoint(addresses[i]);

        if (broken != NULL)
            conf_problem_file(problems, "--to", 0, 0, "%s %s",
                              conf_quote(shown, sizeof(shown), addresses[i]), broken);
        else
            json_array_append_new(endpoints, json_string(addresses[i]));
    }
    json_t *const tree = json_pack(
        "{s:{s:{s:s,s:s,s:s,s:[s],s:o,s:{s:i},s:{s:s,s:s,s:s,s:s,s:s}}}}", "models", "relay.json",
        "model", "relay", "protocol", "grpc", "policy", policies[policy], "services", "*",
        "endpoints", endpoints, "limits", "message_mib", 0, "tls", "mode", modes[tls->mode], "ca",
        tls->ca, "cert", tls->cert, "key", tls->key, "name", tls->name);

    check(tree != NULL);
    if (problems->n == before)
        g = generation_of_tree(tree, problems, before);
    json_decref(tree);
    return g;
}
