#include "placer/manifest_in.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/xalloc.h"
#include "conf/problem.h"
#include "placer/task_topology.h"

#define PATH_BYTES 256

/* ---- messages ---- */

void manifest_problem(const struct manifest_in *in, const struct yaml_value *at, const char *fmt,
                      ...)
{
    char place[512], path[PATH_BYTES], text[640];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    yaml_path(at, path, sizeof(path));
    snprintf(place, sizeof(place), "%.400s:%u", in->file, at->line);
    conf_problem_file(in->problems, place, 0, 0, "%s%s%s", path, path[0] != '\0' ? ": " : "", text);
}

void manifest_not_done(const struct manifest_in *in, const struct yaml_value *at, const char *fmt,
                       ...)
{
    char path[PATH_BYTES], text[640];
    va_list ap;

    if (at == NULL)
        return;
    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    buf_printf(in->warnings, "%s:%u: not done yet: %s: %s\n", in->file, at->line,
               yaml_path(at, path, sizeof(path)), text);
}

void manifest_list_ignored(const struct manifest_in *in, const struct yaml_value *doc)
{
    char path[PATH_BYTES];

    for (uint32_t i = 0; i < doc->n_items; i++) {
        const struct yaml_value *const v = doc->items[i];

        if (v->used || doc->kind == YAML_LIST)
            manifest_list_ignored(in, v);
        else
            buf_printf(in->warnings, "%s:%u: ignored: %s\n", in->file, v->line,
                       yaml_path(v, path, sizeof(path)));
    }
}

/* ---- fields ---- */

struct yaml_value *manifest_any(struct yaml_value *map, const char *key)
{
    struct yaml_value *const v = yaml_member(map, key);

    if (v == NULL)
        return NULL;
    v->used = true;
    return v->kind == YAML_NULL ? NULL : v;
}

/* v as a message shows it. */
static const char *show(char *dst, size_t size, const struct yaml_value *v)
{
    if (v->kind == YAML_STRING)
        return conf_quote(dst, size, v->text);
    snprintf(dst, size, "%.60s", v->text != NULL ? v->text : yaml_kind_name(v->kind));
    return dst;
}

static struct yaml_value *of_kind(const struct manifest_in *in, struct yaml_value *v,
                                  enum yaml_kind kind)
{
    char shown[CONF_QUOTE_BYTES];

    if (v == NULL || v->kind == kind)
        return v;
    manifest_problem(in, v, "%s is not %s", show(shown, sizeof(shown), v), yaml_kind_name(kind));
    return NULL;
}

struct yaml_value *manifest_map(const struct manifest_in *in, struct yaml_value *map,
                                const char *key)
{
    return of_kind(in, manifest_any(map, key), YAML_MAP);
}

struct yaml_value *manifest_list(const struct manifest_in *in, struct yaml_value *map,
                                 const char *key)
{
    return of_kind(in, manifest_any(map, key), YAML_LIST);
}

const char *manifest_as_str(const struct manifest_in *in, struct yaml_value *v)
{
    v = of_kind(in, v, YAML_STRING);
    return v == NULL ? NULL : v->text;
}

const char *manifest_str(const struct manifest_in *in, struct yaml_value *map, const char *key,
                         const char *dflt)
{
    const char *const text = manifest_as_str(in, manifest_any(map, key));

    return text == NULL ? dflt : text;
}

uint32_t manifest_as_uint(const struct manifest_in *in, struct yaml_value *v, uint32_t min,
                          uint32_t max, uint32_t dflt)
{
    char shown[CONF_QUOTE_BYTES];

    if (v == NULL)
        return dflt;
    if (v->kind == YAML_INT && !v->is_big && v->number >= (int64_t)min && v->number <= (int64_t)max)
        return (uint32_t)v->number;
    manifest_problem(in, v, "%s is not a whole number from %u to %u", show(shown, sizeof(shown), v),
                     min, max);
    return dflt;
}

uint32_t manifest_uint(const struct manifest_in *in, struct yaml_value *map, const char *key,
                       uint32_t min, uint32_t max, uint32_t dflt)
{
    return manifest_as_uint(in, manifest_any(map, key), min, max, dflt);
}

bool manifest_bool(const struct manifest_in *in, struct yaml_value *map, const char *key, bool dflt)
{
    const struct yaml_value *const v = of_kind(in, manifest_any(map, key), YAML_BOOL);

    return v == NULL ? dflt : v->number != 0;
}

const char *manifest_word(const struct manifest_in *in, struct yaml_value *map, const char *key,
                          const char *const *words, const char *dflt)
{
    struct yaml_value *const v = of_kind(in, manifest_any(map, key), YAML_STRING);
    char shown[CONF_QUOTE_BYTES], known[320] = "";
    size_t len = 0;

    if (v == NULL || v->text[0] == '\0')
        return dflt;
    for (const char *const *w = words; *w != NULL; w++) {
        if (strcmp(*w, v->text) == 0)
            return *w;
        if (len < sizeof(known))
            len += (size_t)snprintf(known + len, sizeof(known) - len, " %s", *w);
    }
    manifest_problem(in, v, "%s is not one of:%s", show(shown, sizeof(shown), v), known);
    return dflt;
}

static void mark_all(struct yaml_value *v)
{
    v->used = true;
    for (uint32_t i = 0; i < v->n_items; i++)
        mark_all(v->items[i]);
}

void manifest_later(const struct manifest_in *in, struct yaml_value *map, const char *key,
                    const char *why)
{
    struct yaml_value *const v = manifest_any(map, key);

    if (v == NULL)
        return;
    mark_all(v);
    manifest_not_done(in, v, "%s", why);
}

/* ---- what all kinds have ---- */

void manifest_read_metadata(const struct manifest_in *in, struct yaml_value *doc,
                            struct manifest_job *job)
{
    struct yaml_value *const metadata = manifest_map(in, doc, "metadata");

    job->name = manifest_str(in, metadata, "name", "");
    if (job->name[0] == '\0')
        manifest_problem(in, metadata != NULL ? metadata : doc, "has no name");
    manifest_any(doc, "apiVersion");
    manifest_any(doc, "kind");
}

void manifest_read_topology(const struct manifest_in *in, struct yaml_value *doc,
                            const struct manifest_job *job)
{
    struct yaml_value *const annotations =
        manifest_map(in, manifest_map(in, doc, "metadata"), "annotations");
    const char *const affinity =
        manifest_str(in, annotations, "volcano.sh/task-topology-affinity", "");
    const char *const anti =
        manifest_str(in, annotations, "volcano.sh/task-topology-anti-affinity", "");
    const char *const order =
        manifest_str(in, annotations, "volcano.sh/task-topology-task-order", "");
    struct task_topology_role roles[MANIFEST_ROLES_MAX];
    struct task_topology topology;
    uint32_t *buckets = NULL;
    size_t n_tasks = 0;
    struct err err;

    if (affinity[0] == '\0' && anti[0] == '\0' && order[0] == '\0')
        return;
    for (size_t i = 0; i < job->n_roles; i++) {
        const struct manifest_role *const role = &job->roles[i];

        if (role->role == NULL)
            return;
        roles[i] = (struct task_topology_role){
            role->role, role->count, role->gpu_milli > 0 ? role->gpu_milli : role->cpu_milli};
        n_tasks += role->count;
    }
    if (task_topology_parse(&topology, roles, job->n_roles, affinity, anti, order, &err) < 0) {
        manifest_problem(in, annotations, "task topology: %s", err.text);
        return;
    }
    if (n_tasks > MANIFEST_TASKS_MAX)
        return; /* refused as a job file */
    buckets = xcalloc(n_tasks + 1, sizeof(*buckets));
    manifest_not_done(in, annotations,
                      "its %zu buckets of tasks that want to be together are not kept together",
                      task_topology_buckets(&topology, roles, buckets));
    free(buckets);
}

uint32_t manifest_priority(const struct manifest_in *in, const struct yaml_value *where,
                           const char *name)
{
    /* Over 0, which is that of a job without a class; the rest of the range is for numbers. */
    static const struct {
        const char *name;
        uint32_t priority;
    } classes[] = {
        {"low", 100},
        {"low-priority", 100},
        {"medium", 500},
        {"normal", 500},
        {"default", 500},
        {"medium-priority", 500},
        {"high", 900},
        {"high-priority", 900},
        {"system-cluster-critical", 999},
        {"system-node-critical", 1000},
    };
    uint32_t n = 0;

    if (name[0] == '\0')
        return 0;
    for (size_t i = 0; i < sizeof(classes) / sizeof(classes[0]); i++)
        if (strcmp(classes[i].name, name) == 0)
            return classes[i].priority;
    for (const char *p = name; *p >= '0' && *p <= '9' && n <= 1000; p++) {
        n = n * 10 + (uint32_t)(*p - '0');
        if (p[1] == '\0' && n <= 1000)
            return n;
    }
    manifest_not_done(in, where,
                      "the priority of this class is not known here: 0 is taken (known are low, "
                      "medium, high, system-cluster-critical, system-node-critical, and numbers "
                      "from 0 to 1000)");
    return 0;
}
