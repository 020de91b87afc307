/* placer/manifest_kubeflow.c - Kubeflow's TFJob, PyTorchJob and MPIJob as jobs of ours.
 *
 * Source: github.com/kubeflow/training-operator v1, pkg/apis/kubeflow.org/v1 (types and defaults);
 *         github.com/kubeflow/mpi-operator, pkg/apis/kubeflow/v2beta1.
 */
#include <string.h>
#include <strings.h>

#include "placer/manifest_in.h"

#define RETRIES_DFLT 6 /* backoffLimit, as of a Kubernetes Job */
#define RETRIES_MAX  1000
#define RUN_S_MAX    31536000 /* as max_run_s of job files */
#define SECONDS_MAX  0x7fffffffu

/* In the order of ranks: the one that others ask for its address is rank 0. */
enum type { CHIEF = 0, MASTER, LAUNCHER, PS, WORKER, EVALUATOR, N_TYPES };
static const char *const type_names[N_TYPES] = {"Chief", "Master", "Launcher",
                                                "PS",    "Worker", "Evaluator"};
static const char *const role_names[N_TYPES] = {"chief", "master", "launcher",
                                                "ps",    "worker", "evaluator"};
#define T(type) (1u << (type))

struct manifest_kubeflow {
    const char *specs;        /* "tfReplicaSpecs" */
    const char *container;    /* the one that does the work */
    const char *restart;      /* restartPolicy when it is not said */
    unsigned types;           /* that it may have */
    unsigned leads;           /* one of these, when it is there, decides the end alone */
    const char *const *later; /* understood members of spec that nothing here does */
    bool is_mpi, is_torch, is_tf;
};

static const char *const tf_later[] = {"enableDynamicWorker", NULL};
static const char *const torch_later[] = {"nprocPerNode", NULL};
static const char *const mpi_later[] = {"slotsPerWorker",
                                        "mainContainer",
                                        "runLauncherAsWorker",
                                        "sshAuthMountPath",
                                        "launcherCreationPolicy",
                                        "mpiImplementation",
                                        NULL};

const struct manifest_kubeflow manifest_tfjob = {.specs = "tfReplicaSpecs",
                                                 .container = "tensorflow",
                                                 .restart = "Never",
                                                 .types = T(CHIEF) | T(MASTER) | T(PS) | T(WORKER) |
                                                          T(EVALUATOR),
                                                 .leads = T(CHIEF) | T(MASTER),
                                                 .later = tf_later,
                                                 .is_tf = true};
const struct manifest_kubeflow manifest_pytorchjob = {.specs = "pytorchReplicaSpecs",
                                                      .container = "pytorch",
                                                      .restart = "OnFailure",
                                                      .types = T(MASTER) | T(WORKER),
                                                      .leads = T(MASTER),
                                                      .later = torch_later,
                                                      .is_torch = true};
const struct manifest_kubeflow manifest_mpijob = {.specs = "mpiReplicaSpecs",
                                                  .container = "mpi",
                                                  .restart = "Never",
                                                  .types = T(LAUNCHER) | T(WORKER),
                                                  .leads = T(LAUNCHER),
                                                  .later = mpi_later,
                                                  .is_mpi = true};
const struct manifest_kubeflow manifest_mpijob_v2 = {.specs = "mpiReplicaSpecs",
                                                     .container = "mpi",
                                                     .restart = "OnFailure",
                                                     .types = T(LAUNCHER) | T(WORKER),
                                                     .leads = T(LAUNCHER),
                                                     .later = mpi_later,
                                                     .is_mpi = true};

/* ---- roles ---- */

/* The entry of a type, whose name is accepted in any case. */
static struct yaml_value *find_type(const struct manifest_in *in, struct yaml_value *specs,
                                    enum type type)
{
    struct yaml_value *found = NULL;

    for (uint32_t i = 0; i < specs->n_items; i++) {
        if (strcasecmp(specs->keys[i], type_names[type]) != 0)
            continue;
        if (found != NULL)
            manifest_problem(in, specs->items[i], "this type stands here twice");
        found = specs->items[i];
        found->used = true;
    }
    return found != NULL && found->kind == YAML_NULL ? NULL : found;
}

/* MPI workers often say no command: their operators let them wait for the launcher. */
static const char *const wait_command[] = {"sleep", "365d", NULL};

static void read_role(const struct manifest_in *in, struct yaml_value *doc,
                      const struct manifest_kubeflow *kind, struct yaml_value *spec, enum type type,
                      struct manifest_role *role)
{
    static const char *const words[] = {"Always", "OnFailure", "Never", "ExitCode", NULL};
    const bool is_mpi_worker = kind->is_mpi && type == WORKER;
    const char *const dflt = is_mpi_worker ? "Never" : kind->restart;
    const char *restart;

    role->at = spec;
    role->role = role_names[type];
    role->count = manifest_uint(in, spec, "replicas", type == LAUNCHER ? 1 : 0,
                                type == LAUNCHER ? 1 : MANIFEST_TASKS_MAX, is_mpi_worker ? 0 : 1);
    restart = manifest_word(in, spec, "restartPolicy", words, dflt);
    if (strcmp(restart, "ExitCode") == 0)
        manifest_not_done(in, yaml_member(spec, "restartPolicy"),
                          "exit statuses are not told apart: every failure is tried again");
    if (role->count > 0)
        manifest_read_pod(in, doc, manifest_map(in, spec, "template"), kind->container,
                          is_mpi_worker ? wait_command : NULL, role);
    role->restart_policy = restart; /* the operators write it over the pod's */
}

static void read_roles(const struct manifest_in *in, struct yaml_value *doc,
                       const struct manifest_kubeflow *kind, struct yaml_value *specs,
                       struct manifest_job *job, unsigned *ret_types)
{
    for (uint32_t i = 0; i < specs->n_items; i++) {
        bool known = false;

        for (enum type t = 0; t < N_TYPES; t++)
            known =
                known || ((kind->types & T(t)) && strcasecmp(specs->keys[i], type_names[t]) == 0);
        if (!known)
            manifest_problem(in, specs->items[i], "is not a type of this kind of job");
    }
    for (enum type t = 0; t < N_TYPES; t++) {
        struct yaml_value *const spec = (kind->types & T(t)) ? find_type(in, specs, t) : NULL;
        struct manifest_role *const role = &job->roles[job->n_roles];

        if (spec == NULL)
            continue;
        if (spec->kind != YAML_MAP) {
            manifest_problem(in, spec, "is not a map");
            continue;
        }
        read_role(in, doc, kind, spec, t, role);
        if (role->count == 0) {
            memset(role, 0, sizeof(*role));
            continue;
        }
        *ret_types |= T(t);
        job->n_roles++;
    }
    if (job->n_roles == 0)
        manifest_problem(in, specs, "has no replicas");
}

/* Who decides the end: the chief, master or launcher, where there is one; else the workers. */
static void mark_services(const struct manifest_in *in, const struct manifest_kubeflow *kind,
                          struct yaml_value *spec, unsigned types, struct manifest_job *job)
{
    static const char *const success_words[] = {"AllWorkers", NULL};
    const bool all_workers =
        kind->is_tf && manifest_word(in, spec, "successPolicy", success_words, "")[0] != '\0';
    const bool has_lead = (types & kind->leads) != 0;
    size_t n_services = 0;

    for (size_t i = 0; i < job->n_roles; i++) {
        struct manifest_role *const role = &job->roles[i];
        const bool is_worker = strcmp(role->role, "worker") == 0;
        const bool helps = strcmp(role->role, "ps") == 0 || strcmp(role->role, "evaluator") == 0;

        role->is_service = helps || (is_worker && has_lead && !all_workers);
        n_services += role->is_service;
        if (is_worker && !has_lead && kind->is_tf && !all_workers && role->count > 1)
            manifest_not_done(in, role->at,
                              "worker 0 does not end the job alone: it ends when "
                              "every worker has succeeded");
    }
    if (n_services == job->n_roles && job->n_roles > 0) /* nothing but ps: they decide */
        for (size_t i = 0; i < job->n_roles; i++)
            job->roles[i].is_service = false;
}

/* ---- the policies of the whole ---- */

static void read_elastic(const struct manifest_in *in, struct yaml_value *spec,
                         struct manifest_job *job)
{
    struct yaml_value *const elastic = manifest_map(in, spec, "elasticPolicy");
    struct manifest_role *worker = NULL;
    uint32_t min = 0, max = 0;

    if (elastic == NULL)
        return;
    for (size_t i = 0; i < job->n_roles; i++)
        if (strcmp(job->roles[i].role, "worker") == 0)
            worker = &job->roles[i];
    min = manifest_uint(in, elastic, "minReplicas", 1, MANIFEST_TASKS_MAX, 0);
    max = manifest_uint(in, elastic, "maxReplicas", 1, MANIFEST_TASKS_MAX, 0);
    if (min > 0 && max > 0 && min > max)
        manifest_problem(in, elastic, "minReplicas %u is over maxReplicas %u", min, max);
    if (worker != NULL && min > 0 && min <= worker->count)
        worker->min = min;
    if (worker != NULL && max > worker->count)
        manifest_not_done(in, yaml_member(elastic, "maxReplicas"),
                          "a job does not grow over its replicas");
}

static void read_scheduling(const struct manifest_in *in, struct yaml_value *doc,
                            struct yaml_value *policy, struct manifest_job *job)
{
    struct yaml_value *const scheduling = manifest_map(in, policy, "schedulingPolicy");
    struct yaml_value *const annotations =
        manifest_map(in, manifest_map(in, doc, "metadata"), "annotations");
    const char *const annotated =
        manifest_str(in, annotations, "scheduling.volcano.sh/queue-name", "default");
    const char *const class = manifest_str(in, scheduling, "priorityClass", "");
    uint32_t n_tasks = 0;

    job->queue = manifest_str(in, scheduling, "queue", annotated);
    if (job->queue[0] == '\0')
        job->queue = annotated;
    job->min_available = manifest_uint(in, scheduling, "minAvailable", 1, MANIFEST_TASKS_MAX, 0);
    for (size_t i = 0; i < job->n_roles; i++)
        n_tasks += job->roles[i].count;
    if (job->min_available > n_tasks)
        manifest_problem(in, yaml_member(scheduling, "minAvailable"),
                         "%u is over the %u replicas of the job", job->min_available, n_tasks);
    job->priority = manifest_priority(in, yaml_member(scheduling, "priorityClass"), class);
    for (size_t i = 0; i < job->n_roles && class[0] == '\0' && job->priority == 0; i++)
        job->priority = manifest_priority(in, job->roles[i].at, job->roles[i].priority_class);
    manifest_later(in, scheduling, "minResources", "a gang's minimum is counted in tasks");
    (void)manifest_uint(in, scheduling, "scheduleTimeoutSeconds", 0, SECONDS_MAX, 0);
    manifest_later(in, scheduling, "scheduleTimeoutSeconds", "a gang waits until it has room");
}

static void read_policy(const struct manifest_in *in, struct yaml_value *doc,
                        struct yaml_value *spec, struct manifest_job *job)
{
    static const char *const clean_words[] = {"All", "Running", "None", NULL};
    struct yaml_value *const policy = manifest_map(in, spec, "runPolicy");
    const uint32_t backoff =
        manifest_uint(in, policy, "backoffLimit", 0, RETRIES_MAX, RETRIES_DFLT);

    for (size_t i = 0; i < job->n_roles; i++)
        if (strcmp(job->roles[i].restart_policy, "Never") != 0)
            job->retries = backoff;
    (void)manifest_word(in, policy, "cleanPodPolicy", clean_words, "None");
    (void)manifest_word(in, spec, "cleanPodPolicy", clean_words, "None");
    if (manifest_bool(in, policy, "suspend", false))
        manifest_problem(in, yaml_member(policy, "suspend"),
                         "a job can't be submitted suspended: submit it when it may start");
    job->max_run_s = manifest_uint(in, policy, "activeDeadlineSeconds", 1, RUN_S_MAX, 0);
    (void)manifest_uint(in, policy, "ttlSecondsAfterFinished", 0, SECONDS_MAX, 0);
    manifest_later(in, policy, "ttlSecondsAfterFinished", "the last 200 jobs that ended are kept");
    read_scheduling(in, doc, policy, job);
}

void manifest_read_kubeflow(const struct manifest_in *in, struct yaml_value *doc,
                            const struct manifest_kubeflow *kind, struct manifest_job *job)
{
    struct yaml_value *const spec = manifest_map(in, doc, "spec");
    struct yaml_value *const specs = manifest_map(in, spec, kind->specs);
    unsigned types = 0;

    manifest_read_metadata(in, doc, job);
    if (specs == NULL) {
        manifest_problem(in, spec != NULL ? spec : doc, "has no %s", kind->specs);
        return;
    }
    read_roles(in, doc, kind, specs, job, &types);
    mark_services(in, kind, spec, types, job);
    manifest_read_topology(in, doc, job);
    if (kind->is_torch)
        read_elastic(in, spec, job);
    read_policy(in, doc, spec, job);
    for (const char *const *key = kind->later; *key != NULL; key++)
        manifest_later(in, spec, *key,
                       kind->is_mpi
                           ? "mpirun's host file, ssh and slots are not set up here"
                           : "processes and workers are as the manifest's command starts them");
}
