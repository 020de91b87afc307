/* placer/job_file.c - job files: the rows of their keys, and the rules that involve several. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/xalloc.h"
#include "conf/problem.h"
#include "conf/rules.h"
#include "placer/command.h"
#include "placer/job.h"

#define JOB_ARENA_BYTES (16u * 1024 * 1024) /* file, arguments and environment of 64 roles */
#define NAME_MAX_BYTES  64                  /* of a job or role: they become file names */
#define ROLES_MAX       64
#define TASKS_MAX       4096 /* of one job */
#define MILLI_MAX       1024000
#define MEMORY_MIB_MAX  67108864
#define TEXT_MAX_BYTES  4096
#define HOUR_MS         3600000

/* service is a word, not a yes or no: what it is by default depends on the role. */
enum { SERVICE_BY_ROLE = 0, SERVICE_YES, SERVICE_NO };
static const char *const service_words[] = {"auto", "yes", "no", NULL};

struct role_raw {
    struct role_spec spec;
    int service;
};
struct job_raw {
    struct job_spec spec;
    struct role_raw *tasks;
    size_t n_tasks;
};

/* Each argument of a command, unless it is literal. */
static const char *rule_argument(const char *text)
{
    static const char *const words[] = {"job",        "task",        "role",        "index", "rank",
                                        "world_size", "address",     "host",        "port",  "node",
                                        "cards",      "master_addr", "master_port", NULL};

    return command_knows(text, words)
               ? NULL
               : "has a {word} that is not one of {job} {task} {role} {index} {rank} {world_size} "
                 "{address} {host} {port} {master_addr} {master_port} {node} {cards}";
}

static const char *rule_env_name(const char *text)
{
    if (text[0] == '\0' || (text[0] >= '0' && text[0] <= '9'))
        return "is not a name of an environment variable";
    for (const char *p = text; *p != '\0'; p++)
        if (!((*p >= 'A' && *p <= 'Z') || (*p >= 'a' && *p <= 'z') || (*p >= '0' && *p <= '9') ||
              *p == '_'))
            return "is not a name of an environment variable";
    return NULL;
}

static const struct conf_field role_fields[] = {
    CONF_STR(struct role_raw, spec.role, "role", .required = true, .min = 1, .max = NAME_MAX_BYTES,
             .rule = conf_rule_name,
             .doc = "What the task is to the others: worker, ps, ... Unique in the job."),
    CONF_UINT(struct role_raw, spec.count, "count", .unit = "tasks", .min = 1, .max = TASKS_MAX,
              .dflt = 1, .doc = "Tasks alike."),
    CONF_UINT(struct role_raw, spec.min, "min", .unit = "tasks", .max = TASKS_MAX,
              .doc = "Of a gang: how many of them it starts with at least. 0: all; with "
                     "`min_available`, none in particular."),
    {.key = "command",
     .kind = CONF_KIND_STRS,
     .offset = offsetof(struct role_raw, spec.command),
     .count_offset = offsetof(struct role_raw, spec.n_command),
     .required = true,
     .min = 1,
     .max = 256,
     .max_value = TEXT_MAX_BYTES,
     .doc =
         "Program and arguments. {job}, {task}, {role}, {index}, {rank}, {world_size}, "
         "{address}, {host}, {port}, {master_addr}, {master_port}, {node} and {cards} are filled "
         "in; ${word} is the shell's."},
    CONF_BOOL(struct role_raw, spec.literal, "literal",
              .doc = "The command is taken as it stands: nothing is filled in."),
    {.key = "env",
     .kind = CONF_KIND_PAIRS,
     .of = CONF_KIND_STR,
     .offset = offsetof(struct role_raw, spec.env),
     .count_offset = offsetof(struct role_raw, spec.n_env),
     .max = 256,
     .max_value = TEXT_MAX_BYTES,
     .key_rule = rule_env_name,
     .doc = "Environment variables beside those that penstock sets."},
    CONF_UINT(struct role_raw, spec.cpu_milli, "cpu_milli", .unit = "thousandths of a core",
              .max = MILLI_MAX, .dflt = 500,
              .doc = "CPU that the placer sets aside for each task."),
    CONF_UINT(struct role_raw, spec.memory_mib, "memory_mib", .unit = "MiB", .max = MEMORY_MIB_MAX,
              .dflt = 256, .doc = "Memory that the placer sets aside for each task."),
    CONF_OBJECT(struct role_raw, spec.gpu, "gpu", .table = &conf_gpu_table,
                .doc = "Cards of each task."),
    CONF_ENUM(struct role_raw, service, "service", .words = service_words, .dflt = SERVICE_BY_ROLE,
              .doc = "A service does not end by itself: it is stopped when the other tasks have "
                     "succeeded. `auto`: a role named ps is one."),
    CONF_END,
};
static const struct conf_table role_table = {
    .title = "tasks",
    .doc =
        "One kind of task of a job. Each task gets the environment of penstock, and `PORT`, "
        "`PENSTOCK_ADDRESS`, `PENSTOCK_NODE`, `PENSTOCK_JOB`, `PENSTOCK_TASK`, `PENSTOCK_ROLE`, "
        "`PENSTOCK_INDEX`, `PENSTOCK_TRY`, `RANK`, `LOCAL_RANK`, `WORLD_SIZE`, `MASTER_ADDR`, "
        "`MASTER_PORT`, `TF_CONFIG`, `CUDA_VISIBLE_DEVICES` (its cards), and for a share of a card "
        "`CUDA_MPS_ACTIVE_THREAD_PERCENTAGE` and `CUDA_MPS_PINNED_DEVICE_MEM_LIMIT`.",
    .size = sizeof(struct role_raw),
    .fields = role_fields,
};

static const struct conf_field job_fields[] = {
    CONF_STR(struct job_raw, spec.name, "job", .required = true, .min = 1, .max = NAME_MAX_BYTES,
             .rule = conf_rule_name,
             .doc = "Name of the job, unique among those that have not ended."),
    CONF_STR(struct job_raw, spec.queue, "queue", .min = 1, .max = NAME_MAX_BYTES,
             .rule = conf_rule_name, .dflt_text = "default", .doc = "Queue that it waits in."),
    CONF_UINT(struct job_raw, spec.priority, "priority", .max = 1000,
              .doc = "Higher goes first in its queue."),
    CONF_BOOL(struct job_raw, spec.gang, "gang",
              .doc = "Its tasks start together or not at all, and are tried again together."),
    CONF_UINT(struct job_raw, spec.min_available, "min_available", .unit = "tasks",
              .max = TASKS_MAX,
              .doc = "Of a gang: how many tasks it starts with at least, beside the `min` of each. "
                     "The rest start when they have room. 0: by `min` alone."),
    CONF_UINT(struct job_raw, spec.retries, "retries", .max = 1000,
              .doc = "Failures of tasks that it may have and be tried again."),
    CONF_UINT(struct job_raw, spec.backoff_ms, "backoff_ms", .unit = "ms", .min = 1, .max = HOUR_MS,
              .dflt = 1000,
              .doc = "Wait before the first retry; doubles with each, up to a minute."),
    CONF_UINT(struct job_raw, spec.grace_ms, "grace_ms", .unit = "ms", .max = HOUR_MS,
              .dflt = 10000, .doc = "From SIGTERM to SIGKILL when a task is stopped."),
    CONF_BOOL(struct job_raw, spec.preemptible, "preemptible", .dflt = true,
              .doc = "Its gang may be ended for another: see `preempt` and `gpu_milli_deserved` of "
                     "queues.json. It waits again, and starts anew."),
    CONF_UINT(struct job_raw, spec.max_run_s, "max_run_s", .unit = "s", .max = 31536000,
              .doc = "A start of it that lasts longer is stopped, and the job has failed. 0: no "
                     "limit."),
    CONF_UINT(struct job_raw, spec.estimate_s, "estimate_s", .unit = "s", .max = 31536000,
              .doc = "How long it runs, about. A gang with an estimate may start before one that "
                     "waits, when by 1.5 times the estimate it has ended in time. 0: not known."),
    CONF_UINT(struct job_raw, spec.checkpoint_s, "checkpoint_s", .unit = "s", .max = 604800,
              .doc =
                  "It saves its work so often, from its start on: what was done since is what an "
                  "end costs, and gangs that lose least end first. 0: never, all is lost."),
    CONF_LIST(struct job_raw, tasks, "tasks", .required = true, .min = 1, .max = ROLES_MAX,
              .table = &role_table, .doc = "The kinds of tasks; see `tasks`."),
    CONF_END,
};
const struct conf_table job_file_table = {
    .title = "Job file",
    .doc = "A batch job, for `penstock jobs submit FILE`. It succeeds when every task that is no "
           "service has ended with status 0.",
    .size = sizeof(struct job_raw),
    .fields = job_fields,
};

static void check_command(struct conf_where *w, const struct role_spec *role)
{
    const size_t command = conf_where_key(w, "command");
    const bool is_clean = conf_where_is_clean(w); /* else indices are not those of the file */

    for (size_t i = 0; i < role->n_command && is_clean && !role->literal; i++) {
        const char *const broken = rule_argument(role->command[i]);
        const size_t mark = conf_where_index(w, i);
        char shown[CONF_QUOTE_BYTES];

        if (broken != NULL)
            conf_problem(w, "%s %s", conf_quote(shown, sizeof(shown), role->command[i]), broken);
        conf_where_up(w, mark);
    }
    conf_where_up(w, command);
}

/* The {words} of every command; also of a file with other problems. */
static void check_commands(const char *file, const struct job_raw *raw,
                           struct conf_problems *problems)
{
    struct conf_where w;

    conf_where_init(&w, problems, file);
    conf_where_key(&w, "tasks");
    for (size_t i = 0; i < raw->n_tasks; i++) {
        const size_t mark = conf_where_index(&w, i);

        check_command(&w, &raw->tasks[i].spec);
        conf_where_up(&w, mark);
    }
}

/* Rules that involve more than one key; only for files whose keys are all in order. */
static void job_check(const char *file, const struct job_raw *raw, struct conf_problems *problems)
{
    struct conf_where w;
    uint64_t n_tasks = 0;
    size_t n_services = 0;

    conf_where_init(&w, problems, file);
    conf_where_key(&w, "tasks");
    for (size_t i = 0; i < raw->n_tasks; i++) {
        const struct role_spec *role = &raw->tasks[i].spec;
        const struct plan_request req = {.gpu_milli = role->gpu.milli,
                                         .gpu_memory_mib = role->gpu.memory_mib,
                                         .models = role->gpu.models,
                                         .n_models = role->gpu.n_models};
        const size_t mark = conf_where_index(&w, i);
        struct err err;

        n_tasks += role->count;
        n_services += role->service;
        if (role->min > role->count)
            conf_problem_at(&w, "min", "%u is over the count of %u", role->min, role->count);
        if (role->min > 0 && !raw->spec.gang)
            conf_problem_at(&w, "min", "is for gangs: the tasks of this job start one by one");
        for (size_t j = 0; j < i; j++)
            if (strcmp(raw->tasks[j].spec.role, role->role) == 0)
                conf_problem_at(&w, "role", "\"%s\" is the role of tasks/%zu too", role->role, j);
        if (plan_request_check(&req, &err) < 0)
            conf_problem_at(&w, "gpu", "%s", err.text);
        conf_where_up(&w, mark);
    }
    if (n_tasks > TASKS_MAX)
        conf_problem(&w, "%" PRIu64 " tasks together is over the limit of %d", n_tasks, TASKS_MAX);
    if (n_services == raw->n_tasks)
        conf_problem(&w, "every role is a service: the job would never end");
    conf_where_up(&w, 0);
    if (raw->spec.min_available > n_tasks)
        conf_problem_at(&w, "min_available", "%u is over the %" PRIu64 " tasks of the job",
                        raw->spec.min_available, n_tasks);
    if (raw->spec.min_available > 0 && !raw->spec.gang)
        conf_problem_at(&w, "min_available",
                        "is for gangs: the tasks of this job start one by one");
}

struct job_spec *job_file_load(const char *file, const char *json, size_t len,
                               struct conf_problems *problems)
{
    struct job_spec *spec = xcalloc(1, sizeof(*spec));
    const size_t before = problems->n;
    struct job_raw raw = {0};

    arena_init(&spec->arena, JOB_ARENA_BYTES);
    (void)conf_load_text(&spec->arena, &job_file_table, json, len, file, &raw, problems);
    check_commands(file, &raw, problems);
    if (problems->n != before)
        goto refused;
    raw.spec.arena = spec->arena;
    *spec = raw.spec;
    spec->n_roles = raw.n_tasks;
    spec->roles = arena_alloc(&spec->arena, raw.n_tasks * sizeof(*spec->roles));
    spec->json = arena_strndup(&spec->arena, json, len);
    if (spec->roles == NULL || spec->json == NULL) {
        conf_problem_file(problems, file, 0, 0, "is over the limit of %u bytes", JOB_ARENA_BYTES);
        goto refused;
    }
    for (size_t i = 0; i < raw.n_tasks; i++) {
        struct role_raw *role = &raw.tasks[i];

        role->spec.service = role->service == SERVICE_YES || (role->service == SERVICE_BY_ROLE &&
                                                              strcmp(role->spec.role, "ps") == 0);
        spec->roles[i] = role->spec;
    }
    job_check(file, &raw, problems);
    if (problems->n == before)
        return spec;

refused:
    return job_spec_free(spec);
}

uint32_t job_role_min(const struct job_spec *spec, const struct role_spec *role)
{
    if (role->min > 0)
        return role->min;
    return spec->min_available > 0 ? 0 : role->count;
}

bool job_starts_partly(const struct job_spec *spec)
{
    uint32_t n_tasks = 0, n_min = 0;

    for (size_t i = 0; i < spec->n_roles; i++) {
        n_tasks += spec->roles[i].count;
        n_min += job_role_min(spec, &spec->roles[i]);
    }
    return spec->gang && n_min < n_tasks && spec->min_available < n_tasks;
}

struct job_spec *job_spec_free(struct job_spec *spec)
{
    if (spec == NULL)
        return NULL;
    arena_fini(&spec->arena);
    free(spec);
    return NULL;
}
