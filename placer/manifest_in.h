/* placer/manifest_in.h - what the readers of job manifests share: typed fields with their line and
 * path in every message, the pod template, and the job that comes out.
 *
 * A field that is not there, or null, reads as its default; one of a wrong type is a problem and
 * then reads as its default too, so that one reading finds every problem. Reading a field marks it
 * used; what is never read is listed as ignored in the end.
 *
 * Owns:      nothing; strings are the YAML's or the arena's.
 * Called by: placer/manifest*.c only.
 * Thread:    one.
 */
#ifndef PLACER_MANIFEST_IN_H
#define PLACER_MANIFEST_IN_H

#include "base/arena.h"
#include "base/buf.h"
#include "conf/field.h"
#include "conf/generation.h"
#include "conf/yaml_in.h"
#include "placer/plan.h"

#define MANIFEST_ROLES_MAX 64   /* as in job files */
#define MANIFEST_TASKS_MAX 4096 /* as in job files */
#define MANIFEST_WORDS_MAX 256  /* arguments, environment variables: as in job files */

struct manifest_in {
    const char *file;
    struct arena *arena;
    const struct cluster_view *view; /* for shares in percent of a card; NULL: no cards known */
    struct conf_problems *problems;
    struct buf *warnings; /* lines: "job.yaml:12: ignored: spec.plugins.ssh" */
};

/* Adds `file:line: path: text` to the problems; at: the value that is wrong, never NULL. */
void manifest_problem(const struct manifest_in *in, const struct yaml_value *at, const char *fmt,
                      ...) PRINTF_LIKE(3, 4);
/* Adds `file:line: not done yet: path: text` to the warnings. at NULL: nothing. */
void manifest_not_done(const struct manifest_in *in, const struct yaml_value *at, const char *fmt,
                       ...) PRINTF_LIKE(3, 4);
/* Adds `file:line: ignored: path` for what was never read, the outermost of each. */
void manifest_list_ignored(const struct manifest_in *in, const struct yaml_value *doc);

/* Members of a map (NULL: reads as if it were empty). */
struct yaml_value *manifest_any(struct yaml_value *map, const char *key);
struct yaml_value *manifest_map(const struct manifest_in *in, struct yaml_value *map,
                                const char *key);
struct yaml_value *manifest_list(const struct manifest_in *in, struct yaml_value *map,
                                 const char *key);
const char *manifest_str(const struct manifest_in *in, struct yaml_value *map, const char *key,
                         const char *dflt);
uint32_t manifest_uint(const struct manifest_in *in, struct yaml_value *map, const char *key,
                       uint32_t min, uint32_t max, uint32_t dflt);
bool manifest_bool(const struct manifest_in *in, struct yaml_value *map, const char *key,
                   bool dflt);
/* One of words (NULL at the end), or dflt. */
const char *manifest_word(const struct manifest_in *in, struct yaml_value *map, const char *key,
                          const char *const *words, const char *dflt);
/* v itself as a string or a whole number; v NULL: NULL, dflt. */
const char *manifest_as_str(const struct manifest_in *in, struct yaml_value *v);
uint32_t manifest_as_uint(const struct manifest_in *in, struct yaml_value *v, uint32_t min,
                          uint32_t max, uint32_t dflt);
/* A field that is understood and that nothing here does: marked, listed as not done yet. */
void manifest_later(const struct manifest_in *in, struct yaml_value *map, const char *key,
                    const char *why);

struct manifest_role {
    const char *role;
    const struct yaml_value *at;
    uint32_t count;
    uint32_t min; /* 0: see job_spec.min_available */
    bool is_service;
    const char *command[MANIFEST_WORDS_MAX];
    size_t n_command;
    struct conf_pair env[MANIFEST_WORDS_MAX];
    size_t n_env;
    bool has_cpu, has_memory; /* else the defaults of job files */
    uint64_t cpu_milli, memory_mib;
    uint32_t gpu_milli, gpu_memory_mib;
    const char *models[32];
    size_t n_models;
    const char *restart_policy; /* "": not said */
    const char *priority_class; /* "": not said */
};
struct manifest_job {
    const char *name, *queue;
    uint32_t priority, retries, min_available, max_run_s;
    struct manifest_role roles[MANIFEST_ROLES_MAX];
    size_t n_roles;
};

/* metadata: the name, the annotations that are read; spec.schedulerName and the like. */
void manifest_read_metadata(const struct manifest_in *in, struct yaml_value *doc,
                            struct manifest_job *job);
/* The pod template of a role. container: the name of the one that does the work, else the first is.
 * command: taken when it has none (NULL: that is a problem). doc: for the job's annotations. */
void manifest_read_pod(const struct manifest_in *in, struct yaml_value *doc,
                       struct yaml_value *pod_template, const char *container,
                       const char *const *command, struct manifest_role *role);
/* A priority class by its name (or a number); where: the field, for messages. */
uint32_t manifest_priority(const struct manifest_in *in, const struct yaml_value *where,
                           const char *name);

/* The task-topology annotations of Volcano, once the roles are read: names that are no role are a
 * problem; the buckets are counted and not done yet. */
void manifest_read_topology(const struct manifest_in *in, struct yaml_value *doc,
                            const struct manifest_job *job);

/* One per kind. */
void manifest_read_volcano(const struct manifest_in *in, struct yaml_value *doc,
                           struct manifest_job *job);
struct manifest_kubeflow; /* what the kinds differ in */
extern const struct manifest_kubeflow manifest_tfjob, manifest_pytorchjob, manifest_mpijob,
    manifest_mpijob_v2;
void manifest_read_kubeflow(const struct manifest_in *in, struct yaml_value *doc,
                            const struct manifest_kubeflow *kind, struct manifest_job *job);

#endif
