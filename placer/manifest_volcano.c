/* placer/manifest_volcano.c - a Volcano Job (batch.volcano.sh/v1alpha1) as a job of ours.
 *
 * Source: volcano.sh/apis/pkg/apis/batch/v1alpha1/job.go, and the defaults of its webhook.
 */
#include <stdio.h>
#include <string.h>

#include "placer/manifest_in.h"

#define RETRIES_DFLT 3 /* maxRetry */
#define RETRIES_MAX  1000
#define SECONDS_MAX  0x7fffffffu

static const char *const event_words[] = {
    "*",          "PodFailed",     "PodEvicted",    "PodPending",
    "PodRunning", "Unknown",       "TaskCompleted", "TaskFailed",
    "OutOfSync",  "CommandIssued", "JobUpdated",    NULL};
static const char *const action_words[] = {"AbortJob",    "RestartJob",       "RestartTask",
                                           "RestartPod",  "RestartPartition", "TerminateJob",
                                           "CompleteJob", "ResumeJob",        NULL};

/* What the policies of a job or a task come to. */
struct policies {
    bool restart;  /* a failure starts the job again */
    bool give_up;  /* a failure ends the job */
    bool complete; /* the job is done when this task is */
};

static bool is(const char *a, const char *b)
{
    return strcmp(a, b) == 0;
}

/* One event and its action. */
static void add_policy(const struct manifest_in *in, const struct yaml_value *at, const char *event,
                       const char *action, struct policies *p)
{
    const bool fails = is(event, "PodFailed") || is(event, "TaskFailed") || is(event, "*");

    if (fails && is(action, "RestartJob"))
        p->restart = true;
    else if (fails && (is(action, "AbortJob") || is(action, "TerminateJob")))
        p->give_up = true;
    else if (is(event, "TaskCompleted") && is(action, "CompleteJob"))
        p->complete = true;
    else if (fails && strncmp(action, "Restart", 7) == 0) {
        p->restart = true;
        manifest_not_done(in, at, "%s on %s: the whole job starts again", action, event);
    } else if (!(is(event, "PodEvicted") && is(action, "RestartJob")))
        manifest_not_done(in, at, "%s on %s", action, event); /* nothing of a job is evicted */
}

static void read_policy(const struct manifest_in *in, struct yaml_value *policy, struct policies *p)
{
    const char *const event = manifest_word(in, policy, "event", event_words, "");
    const char *const action = manifest_word(in, policy, "action", action_words, "");
    struct yaml_value *const events = manifest_list(in, policy, "events");
    struct yaml_value *const code = manifest_any(policy, "exitCode");

    if (policy->kind != YAML_MAP) {
        manifest_problem(in, policy, "is not a map");
        return;
    }
    manifest_later(in, policy, "timeout", "the action is taken at once");
    if (code != NULL) {
        if (event[0] != '\0' || events != NULL)
            manifest_problem(in, policy, "has an exitCode and an event: it is one or the other");
        if (code->kind == YAML_INT && !code->is_big && code->number == 0)
            manifest_problem(in, code, "0 is the end of a task that succeeded");
        (void)manifest_as_uint(in, code, 0, 255, 0);
        manifest_not_done(in, code, "exit statuses are not told apart");
        return;
    }
    if (event[0] == '\0' && events == NULL && manifest_any(policy, "event") == NULL) {
        manifest_problem(in, policy, "names no event and no exitCode");
        return;
    }
    if (action[0] == '\0') {
        if (manifest_any(policy, "action") == NULL)
            manifest_problem(in, policy, "has no action");
        return;
    }
    if (event[0] != '\0')
        add_policy(in, policy, event, action, p);
    for (uint32_t i = 0; events != NULL && i < events->n_items; i++) {
        const char *const text = manifest_as_str(in, events->items[i]);
        const char *const *w = event_words;

        while (text != NULL && *w != NULL && !is(*w, text))
            w++;
        if (text != NULL && *w == NULL)
            manifest_problem(in, events->items[i], "\"%.60s\" is not an event", text);
        else if (text != NULL)
            add_policy(in, policy, text, action, p);
    }
}

static struct policies read_policies(const struct manifest_in *in, struct yaml_value *map)
{
    struct yaml_value *const list = manifest_list(in, map, "policies");
    struct policies p = {0};

    for (uint32_t i = 0; list != NULL && i < list->n_items; i++)
        read_policy(in, list->items[i], &p);
    return p;
}

/* ---- tasks ---- */

/* partitionPolicy: returns the minimum that follows from it, 0: none. */
static uint32_t read_partitions(const struct manifest_in *in, struct yaml_value *task,
                                uint32_t replicas)
{
    struct yaml_value *const p = manifest_map(in, task, "partitionPolicy");
    const uint32_t total = manifest_uint(in, p, "totalPartitions", 1, MANIFEST_TASKS_MAX, 1);
    const uint32_t size = manifest_uint(in, p, "partitionSize", 1, MANIFEST_TASKS_MAX, 1);
    const uint32_t min = manifest_uint(in, p, "minPartitions", 0, MANIFEST_TASKS_MAX, 0);

    if (p == NULL)
        return 0;
    if (total * size != replicas)
        manifest_problem(in, p, "totalPartitions %u x partitionSize %u is not replicas %u", total,
                         size, replicas);
    if (min > total)
        manifest_problem(in, p, "minPartitions %u is over totalPartitions %u", min, total);
    manifest_later(in, p, "networkTopology", "the network between nodes is not known here");
    manifest_not_done(in, p, "a partition is not placed as one");
    return min * size;
}

static void read_task(const struct manifest_in *in, struct yaml_value *doc, struct yaml_value *task,
                      uint32_t index, struct manifest_role *role)
{
    static const char *const topology_words[] = {"none", "best-effort", "restricted",
                                                 "single-numa-node", NULL};
    static const char *const iteration_words[] = {"any", "all", NULL};
    struct yaml_value *const depends = manifest_map(in, task, "dependsOn");
    char dflt[32];
    uint32_t min = 0;

    role->at = task;
    snprintf(dflt, sizeof(dflt), "default%u", index);
    role->role = manifest_str(in, task, "name", "");
    if (role->role[0] == '\0')
        role->role = arena_strndup(in->arena, dflt, strlen(dflt));
    role->count = manifest_uint(in, task, "replicas", 1, MANIFEST_TASKS_MAX, 1);
    min = read_partitions(in, task, role->count);
    role->min = manifest_uint(in, task, "minAvailable", 0, MANIFEST_TASKS_MAX, min);
    if (role->min > role->count)
        manifest_problem(in, task, "minAvailable %u is over replicas %u", role->min, role->count);
    (void)manifest_uint(in, task, "maxRetry", 0, RETRIES_MAX, 0);
    manifest_later(in, task, "maxRetry", "retries are counted for the whole job");
    if (!is(manifest_word(in, task, "topologyPolicy", topology_words, "none"), "none"))
        manifest_later(in, task, "topologyPolicy", "NUMA nodes are not known here");
    if (depends != NULL) {
        (void)manifest_list(in, depends, "name");
        (void)manifest_word(in, depends, "iteration", iteration_words, "any");
        manifest_not_done(in, depends, "the tasks of a job start together");
    }
    manifest_read_pod(in, doc, manifest_map(in, task, "template"), NULL, NULL, role);
}

/* Services are what the others are when one task alone decides the end. */
static void mark_services(const struct manifest_in *in, struct manifest_job *job,
                          const bool *completes)
{
    size_t n = 0;

    for (size_t i = 0; i < job->n_roles; i++)
        n += completes[i];
    for (size_t i = 0; i < job->n_roles; i++) {
        if (n == 1)
            job->roles[i].is_service = !completes[i];
        else if (n > 1 && completes[i])
            manifest_not_done(in, job->roles[i].at,
                              "CompleteJob on TaskCompleted of several tasks: the job ends when "
                              "all of them have succeeded");
        if (n > 1)
            job->roles[i].is_service = !completes[i];
    }
}

/* spec.minAvailable and the minimum of each task. As Volcano has it: where the job's is less than
 * those of the tasks together, tasks that don't say one have none of their own. */
static void set_minimums(const struct manifest_in *in, struct yaml_value *spec,
                         struct manifest_job *job)
{
    const uint32_t min = manifest_uint(in, spec, "minAvailable", 0, MANIFEST_TASKS_MAX, 0);
    uint32_t all = 0, minimums = 0;

    for (size_t i = 0; i < job->n_roles; i++) {
        all += job->roles[i].count;
        minimums += job->roles[i].min > 0 ? job->roles[i].min : job->roles[i].count;
    }
    if (min > all) {
        manifest_problem(in, yaml_member(spec, "minAvailable"),
                         "%u is over the %u tasks of the job", min, all);
        return;
    }
    job->min_available = min;
    for (size_t i = 0; i < job->n_roles && min > 0 && minimums <= min; i++)
        if (job->roles[i].min == 0) /* without a min_available that is what it means anyway */
            job->roles[i].min = job->roles[i].count;
}

/* How often the job may fail: by its policies, else as often as its pods would be started again. */
static uint32_t retries(const struct manifest_job *job, struct policies p, uint32_t max_retry)
{
    bool in_place = false; /* a pod's own restartPolicy, Always where it is not said */

    for (size_t i = 0; i < job->n_roles; i++)
        in_place = in_place || !is(job->roles[i].restart_policy, "Never");
    if (p.give_up)
        return 0;
    return p.restart || in_place ? max_retry : 0;
}

static void read_later(const struct manifest_in *in, struct yaml_value *spec)
{
    (void)manifest_uint(in, spec, "ttlSecondsAfterFinished", 0, SECONDS_MAX, 0);
    manifest_later(in, spec, "ttlSecondsAfterFinished", "the last 200 jobs that ended are kept");
    (void)manifest_uint(in, spec, "minSuccess", 1, MANIFEST_TASKS_MAX, 1);
    manifest_later(in, spec, "minSuccess", "every task has to succeed");
    manifest_later(in, spec, "runningEstimate", "the order does not look at how long a job takes");
    manifest_later(in, spec, "networkTopology", "the network between nodes is not known here");
}

void manifest_read_volcano(const struct manifest_in *in, struct yaml_value *doc,
                           struct manifest_job *job)
{
    struct yaml_value *const spec = manifest_map(in, doc, "spec");
    struct yaml_value *const tasks = manifest_list(in, spec, "tasks");
    bool completes[MANIFEST_ROLES_MAX] = {false};
    struct policies p;
    uint32_t max_retry = 0;

    manifest_read_metadata(in, doc, job);
    job->queue = manifest_str(in, spec, "queue", "default");
    job->priority = manifest_priority(in, yaml_member(spec, "priorityClassName"),
                                      manifest_str(in, spec, "priorityClassName", ""));
    max_retry = manifest_uint(in, spec, "maxRetry", 0, RETRIES_MAX, RETRIES_DFLT);
    p = read_policies(in, spec);
    read_later(in, spec);
    if (tasks == NULL || tasks->n_items == 0 || tasks->n_items > MANIFEST_ROLES_MAX) {
        manifest_problem(in,
                         tasks != NULL  ? tasks
                         : spec != NULL ? spec
                                        : doc,
                         "has no tasks, or more than %d kinds of them", MANIFEST_ROLES_MAX);
        return;
    }
    for (uint32_t i = 0; i < tasks->n_items; i++) {
        struct manifest_role *const role = &job->roles[job->n_roles];
        struct policies own;

        if (tasks->items[i]->kind != YAML_MAP) {
            manifest_problem(in, tasks->items[i], "is not a map");
            continue;
        }
        read_task(in, doc, tasks->items[i], i, role);
        own = read_policies(in, tasks->items[i]);
        completes[job->n_roles++] = own.complete;
        p.restart = p.restart || own.restart;
        p.give_up = p.give_up || own.give_up;
    }
    if (p.complete)
        manifest_not_done(in, yaml_member(spec, "policies"),
                          "CompleteJob on TaskCompleted for the whole job: it ends when every task "
                          "has succeeded");
    mark_services(in, job, completes);
    manifest_read_topology(in, doc, job);
    set_minimums(in, spec, job);
    job->retries = retries(job, p, max_retry);
}
