/* placer/manifest_pod.c - the pod template of a task: its command, environment and amounts. */
#include <stdio.h>
#include <string.h>

#include "base/quantity.h"
#include "conf/problem.h"
#include "placer/manifest_gpu.h"

#define CPU_MILLI_MAX  1024000u /* as in job files */
#define MEMORY_MIB_MAX 67108864u
#define TEXT_BYTES_MAX 65536u /* one argument with its variables in place; job files say less */

/* ---- command ---- */

/* text with $(NAME) of the environment in place, and $$ as $; what has no value stays as it is.
 * Source: k8s.io/kubernetes/third_party/forked/golang/expansion. */
static const char *expand(const struct manifest_in *in, const struct manifest_role *role,
                          const char *text)
{
    struct buf b;
    const char *done = NULL;

    buf_init(&b, TEXT_BYTES_MAX);
    for (const char *p = text; *p != '\0';) {
        const char *const end = p[0] == '$' && p[1] == '(' ? strchr(p, ')') : NULL;
        const char *value = NULL;

        if (p[0] == '$' && p[1] == '$') {
            buf_append_byte(&b, '$');
            p += 2;
            continue;
        }
        for (size_t i = role->n_env; end != NULL && i-- > 0 && value == NULL;)
            if (strlen(role->env[i].key) == (size_t)(end - p - 2) &&
                memcmp(role->env[i].key, p + 2, (size_t)(end - p - 2)) == 0)
                value = role->env[i].text;
        if (value != NULL) {
            buf_append_str(&b, value);
            p = end + 1;
        } else {
            buf_append(&b, p++, 1);
        }
    }
    if (!b.overflow)
        done = arena_strndup(in->arena, buf_cstr(&b), b.len);
    buf_fini(&b);
    return done;
}

static void read_words(const struct manifest_in *in, struct yaml_value *container, const char *key,
                       struct manifest_role *role)
{
    struct yaml_value *const list = manifest_list(in, container, key);

    for (uint32_t i = 0; list != NULL && i < list->n_items; i++) {
        const char *text = manifest_as_str(in, list->items[i]);

        if (text == NULL)
            continue;
        if (role->n_command == MANIFEST_WORDS_MAX) {
            manifest_problem(in, list, "command and args are over the limit of %d words",
                             MANIFEST_WORDS_MAX);
            return;
        }
        text = expand(in, role, text);
        if (text == NULL)
            manifest_problem(in, list->items[i], "is over the limit of %u bytes with its variables",
                             TEXT_BYTES_MAX);
        else
            role->command[role->n_command++] = text;
    }
}

static void read_env(const struct manifest_in *in, struct yaml_value *container,
                     struct manifest_role *role)
{
    struct yaml_value *const list = manifest_list(in, container, "env");

    for (uint32_t i = 0; list != NULL && i < list->n_items; i++) {
        struct yaml_value *const item = list->items[i];
        const char *const name = manifest_str(in, item, "name", "");
        const char *const value = manifest_str(in, item, "value", "");
        const char *text = NULL;
        size_t same = 0;

        manifest_later(in, item, "valueFrom",
                       "there are no secrets, config maps or pod fields here");
        if (name[0] == '\0') {
            manifest_problem(in, item, "has no name");
            continue;
        }
        text = expand(in, role, value);
        if (text == NULL) {
            manifest_problem(in, item, "is over the limit of %u bytes with its variables",
                             TEXT_BYTES_MAX);
            continue;
        }
        if (text[0] == '\0') {
            manifest_not_done(in, item, "a variable without a value is left out");
            continue;
        }
        while (same < role->n_env && strcmp(role->env[same].key, name) != 0)
            same++; /* the later of two wins */
        if (same == MANIFEST_WORDS_MAX) {
            manifest_problem(in, list, "is over the limit of %d variables", MANIFEST_WORDS_MAX);
            return;
        }
        role->env[same] = (struct conf_pair){.key = name, .text = text};
        role->n_env += same == role->n_env;
    }
    manifest_later(in, container, "envFrom", "there are no secrets and config maps here");
}

/* ---- amounts ---- */

static uint64_t amount(const struct manifest_in *in, const struct yaml_value *v, bool is_cpu)
{
    char shown[CONF_QUOTE_BYTES];
    const uint64_t max = is_cpu ? CPU_MILLI_MAX : MEMORY_MIB_MAX;
    const char *const text = v->text != NULL ? v->text : "";
    uint64_t n = 0;
    struct err err;
    const int r = is_cpu ? quantity_cpu_milli(text, &n, &err) : quantity_memory_mib(text, &n, &err);

    conf_quote(shown, sizeof(shown), text);
    if (r < 0)
        manifest_problem(in, v, "%s: %s", shown, err.text);
    else if (n > max)
        manifest_problem(in, v, "%s is over the limit of %s", shown,
                         is_cpu ? "1024 cores" : "64Ti");
    else
        return n;
    return 0;
}

/* A limit stands in for a request that is missing; over its request it is not enforced. */
static void read_amount(const struct manifest_in *in, struct yaml_value *requests,
                        struct yaml_value *limits, bool is_cpu, struct manifest_role *role)
{
    const char *const name = is_cpu ? "cpu" : "memory";
    const struct yaml_value *const request = manifest_any(requests, name);
    const struct yaml_value *const limit = manifest_any(limits, name);
    const uint64_t limited = limit != NULL ? amount(in, limit, is_cpu) : 0;
    const uint64_t wanted = request != NULL ? amount(in, request, is_cpu) : limited;

    if (request == NULL && limit == NULL)
        return;
    *(is_cpu ? &role->cpu_milli : &role->memory_mib) += wanted;
    *(is_cpu ? &role->has_cpu : &role->has_memory) = true;
}

static void read_resources(const struct manifest_in *in, struct yaml_value *container,
                           struct manifest_gpu *gpu, struct manifest_role *role)
{
    struct yaml_value *const resources = manifest_map(in, container, "resources");
    struct yaml_value *const requests = manifest_map(in, resources, "requests");
    struct yaml_value *const limits = manifest_map(in, resources, "limits");

    read_amount(in, requests, limits, true, role);
    read_amount(in, requests, limits, false, role);
    for (uint32_t i = 0; limits != NULL && i < limits->n_items; i++)
        if (manifest_gpu_resource(in, gpu, limits->keys[i], limits->items[i]))
            limits->items[i]->used = true;
    for (uint32_t i = 0; requests != NULL && i < requests->n_items; i++) {
        struct yaml_value *const of_limit = yaml_member(limits, requests->keys[i]);

        if (of_limit != NULL && of_limit->used && !requests->items[i]->used) {
            requests->items[i]->used = true; /* cards: request and limit are one */
            if (of_limit->text == NULL || requests->items[i]->text == NULL ||
                strcmp(of_limit->text, requests->items[i]->text) != 0)
                manifest_problem(in, requests->items[i], "is not the same as its limit");
        } else if (of_limit == NULL &&
                   manifest_gpu_resource(in, gpu, requests->keys[i], requests->items[i])) {
            requests->items[i]->used = true;
        }
    }
}

/* ---- the pod ---- */

static struct yaml_value *main_container(struct yaml_value *containers, const char *name)
{
    for (uint32_t i = 0; name != NULL && i < containers->n_items; i++) {
        const struct yaml_value *const own = yaml_member(containers->items[i], "name");

        if (own != NULL && own->kind == YAML_STRING && strcmp(own->text, name) == 0)
            return containers->items[i];
    }
    return containers->items[0];
}

void manifest_read_pod(const struct manifest_in *in, struct yaml_value *doc,
                       struct yaml_value *pod_template, const char *container,
                       const char *const *command, struct manifest_role *role)
{
    static const char *const restart_words[] = {"Always", "OnFailure", "Never", NULL};
    struct yaml_value *const pod = manifest_map(in, pod_template, "spec");
    struct yaml_value *const containers = manifest_list(in, pod, "containers");
    struct yaml_value *const of_pod =
        manifest_map(in, manifest_map(in, pod_template, "metadata"), "annotations");
    struct yaml_value *const of_job =
        manifest_map(in, manifest_map(in, doc, "metadata"), "annotations");
    struct manifest_gpu gpu = {0};
    struct yaml_value *does;

    role->restart_policy = manifest_word(in, pod, "restartPolicy", restart_words, "");
    role->priority_class = manifest_str(in, pod, "priorityClassName", "");
    if (containers == NULL || containers->n_items == 0) {
        manifest_problem(in, role->at, "its pod template has no container");
        return;
    }
    does = main_container(containers, container);
    for (uint32_t i = 0; i < containers->n_items; i++) {
        struct yaml_value *const c = containers->items[i];

        if (c->kind != YAML_MAP) {
            manifest_problem(in, c, "is not a map");
            return;
        }
        manifest_str(in, c, "name", "");
        read_resources(in, c, &gpu, role);
        if (c != does)
            manifest_not_done(in, c,
                              "one command is run for a task; the amounts of this container "
                              "are set aside");
    }
    manifest_gpu_annotations(in, &gpu, of_pod, of_job, role);
    manifest_gpu_finish(in, &gpu, role);
    if (role->cpu_milli > CPU_MILLI_MAX || role->memory_mib > MEMORY_MIB_MAX)
        manifest_problem(in, containers, "asks for over 1024 cores or 64Ti of memory together");
    read_env(in, does, role);
    read_words(in, does, "command", role);
    if (role->n_command == 0 && command == NULL)
        manifest_problem(in, does,
                         "has no command: images are not run here, so what the image "
                         "would run has to be said");
    for (; role->n_command == 0 && command != NULL && *command != NULL; command++)
        role->command[role->n_command++] = *command;
    read_words(in, does, "args", role);
}
