/* Manifests of other schedulers: what they become, what is refused and where, what is listed. The
 * expectations follow the field tables of their projects' documentation. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "placer/manifest.h"

static struct manifest_jobs *load_with(const char *text, const struct cluster_view *view)
{
    struct conf_problems problems;
    struct manifest_jobs *jobs;

    conf_problems_init(&problems);
    jobs = manifest_load("job.yaml", text, strlen(text), view, &problems);
    if (jobs == NULL)
        fail_msg("%s", buf_cstr(&problems.text));
    conf_problems_fini(&problems);
    return jobs;
}

static struct manifest_jobs *load(const char *text)
{
    return load_with(text, NULL);
}

/* Each of want (NULL at the end) is in what the text is refused with. */
static void refused(const char *text, const char *const *want)
{
    struct conf_problems problems;
    struct manifest_jobs *jobs;

    conf_problems_init(&problems);
    jobs = manifest_load("job.yaml", text, strlen(text), NULL, &problems);
    assert_null(jobs);
    for (; *want != NULL; want++)
        if (strstr(buf_cstr(&problems.text), *want) == NULL)
            fail_msg("no \"%s\" in:\n%s", *want, buf_cstr(&problems.text));
    conf_problems_fini(&problems);
}
#define REFUSED(text, ...) refused(text, (const char *const[]){__VA_ARGS__, NULL})

static void warns(struct manifest_jobs *jobs, const char *line)
{
    if (strstr(buf_cstr(&jobs->entries[0].warnings), line) == NULL)
        fail_msg("no \"%s\" in:\n%s", line, buf_cstr(&jobs->entries[0].warnings));
}

/* ---- Volcano ---- */

static const char advertising[] = "apiVersion: batch.volcano.sh/v1alpha1\n"
                                  "kind: Job\n"
                                  "metadata:\n"
                                  "  name: ads-train\n"
                                  "  labels: {team: ads}\n"
                                  "spec:\n"
                                  "  schedulerName: volcano\n"
                                  "  queue: ads\n"
                                  "  minAvailable: 3\n"
                                  "  priorityClassName: high\n"
                                  "  maxRetry: 5\n"
                                  "  ttlSecondsAfterFinished: 600\n"
                                  "  plugins: {svc: [], ssh: []}\n"
                                  "  policies:\n"
                                  "  - {event: PodEvicted, action: RestartJob}\n"
                                  "  tasks:\n"
                                  "  - name: ps\n"
                                  "    replicas: 1\n"
                                  "    template:\n"
                                  "      spec:\n"
                                  "        containers:\n"
                                  "        - name: ps\n"
                                  "          image: train:7\n"
                                  "          command: [./serve, --port, $(PORT_TEXT)]\n"
                                  "          env: [{name: PORT_TEXT, value: \"22\"}]\n"
                                  "          resources: {limits: {cpu: 4, memory: 16Gi}}\n"
                                  "  - name: worker\n"
                                  "    replicas: 4\n"
                                  "    minAvailable: 2\n"
                                  "    policies:\n"
                                  "    - {event: TaskCompleted, action: CompleteJob}\n"
                                  "    dependsOn: {name: [ps], iteration: any}\n"
                                  "    template:\n"
                                  "      spec:\n"
                                  "        restartPolicy: OnFailure\n"
                                  "        containers:\n"
                                  "        - name: main\n"
                                  "          command: [sh, -c]\n"
                                  "          args: ['echo {print} $$HOME $(UNSET) $(date)']\n"
                                  "          resources:\n"
                                  "            requests: {cpu: 500m, memory: 1G}\n"
                                  "            limits: {cpu: '2', nvidia.com/gpu: 1}\n";

static void a_volcano_job_becomes_a_gang(void **state)
{
    struct manifest_jobs *const jobs = load(advertising);
    const struct job_spec *const spec = jobs->entries[0].spec;
    const struct role_spec *const ps = &spec->roles[0], *const worker = &spec->roles[1];

    (void)state;
    assert_int_equal(jobs->n, 1);
    assert_string_equal(spec->name, "ads-train");
    assert_string_equal(spec->queue, "ads");
    assert_true(spec->gang);
    assert_int_equal(spec->retries, 5);
    assert_int_equal(spec->priority, 900);
    assert_int_equal(spec->min_available, 3);
    assert_int_equal(spec->n_roles, 2);
    assert_string_equal(ps->role, "ps");
    assert_int_equal(ps->count, 1);
    assert_true(ps->service); /* the worker's end is the job's */
    assert_int_equal(ps->cpu_milli, 4000);
    assert_int_equal(ps->memory_mib, 16384);
    assert_int_equal(ps->n_command, 3);
    assert_string_equal(ps->command[2], "22");
    assert_string_equal(ps->env[0].key, "PORT_TEXT");
    assert_int_equal(worker->count, 4);
    assert_int_equal(job_role_min(spec, worker), 2);
    assert_false(worker->service);
    assert_int_equal(worker->cpu_milli, 500);  /* the request, not its limit */
    assert_int_equal(worker->memory_mib, 954); /* 10^9 / 2^20 = 953.67 */
    assert_int_equal(worker->gpu.milli, 1000);
    assert_string_equal(worker->command[2], "echo {print} $HOME $(UNSET) $(date)");
    assert_true(worker->literal);
    warns(jobs, "job.yaml:5: ignored: metadata.labels\n");
    warns(jobs, "job.yaml:7: ignored: spec.schedulerName\n");
    warns(jobs, "job.yaml:13: ignored: spec.plugins\n");
    warns(jobs, "job.yaml:23: ignored: spec.tasks[0].template.spec.containers[0].image\n");
    warns(jobs, "job.yaml:12: not done yet: spec.ttlSecondsAfterFinished: ");
    warns(jobs, "job.yaml:32: not done yet: spec.tasks[1].dependsOn: ");
    manifest_jobs_free(jobs);
}

#define HEAD "apiVersion: batch.volcano.sh/v1alpha1\nkind: Job\nmetadata: {name: j}\n"
#define POD  "template: {spec: {containers: [{command: [\"true\"]}]}}"

static void a_short_volcano_job_has_the_documented_defaults(void **state)
{
    struct manifest_jobs *const jobs = load(HEAD "spec:\n  tasks:\n  - " POD "\n  - " POD "\n");
    const struct job_spec *const spec = jobs->entries[0].spec;

    (void)state;
    assert_string_equal(spec->queue, "default");
    assert_int_equal(spec->retries, 3);
    assert_int_equal(spec->priority, 0);
    assert_string_equal(spec->roles[0].role, "default0");
    assert_string_equal(spec->roles[1].role, "default1");
    assert_int_equal(spec->roles[0].count, 1);
    assert_false(job_starts_partly(spec)); /* unset: all of every task */
    assert_false(spec->roles[0].service);
    assert_string_equal(buf_cstr(&jobs->entries[0].warnings), "");
    manifest_jobs_free(jobs);
}

static void minimums_of_tasks_hold_when_the_job_s_covers_them(void **state)
{
    struct manifest_jobs *jobs = load(HEAD "spec:\n  minAvailable: 5\n  tasks:\n"
                                           "  - {name: t1, replicas: 6, minAvailable: 2, " POD "}\n"
                                           "  - {name: t2, replicas: 2, " POD "}\n");
    const struct job_spec *spec = jobs->entries[0].spec;

    (void)state;
    assert_int_equal(spec->min_available, 5); /* over 2 + 2 */
    assert_int_equal(job_role_min(spec, &spec->roles[0]), 2);
    assert_int_equal(job_role_min(spec, &spec->roles[1]), 2);
    manifest_jobs_free(jobs);

    jobs = load(HEAD "spec:\n  minAvailable: 1\n  tasks:\n  - {name: w, replicas: 4, " POD "}\n");
    spec = jobs->entries[0].spec;
    assert_int_equal(spec->min_available, 1); /* under 4: the task says none of its own */
    assert_int_equal(job_role_min(spec, &spec->roles[0]), 0);
    assert_true(job_starts_partly(spec));
    manifest_jobs_free(jobs);
}

static uint32_t retries_of(const char *more, const char *restart)
{
    char text[1024];
    struct manifest_jobs *jobs;
    uint32_t retries;

    snprintf(text, sizeof(text),
             HEAD "spec:\n  maxRetry: 7\n%s  tasks:\n  - template: {spec: {restartPolicy: %s, "
                  "containers: [{command: [\"true\"]}]}}\n",
             more, restart);
    jobs = load(text);
    retries = jobs->entries[0].spec->retries;
    manifest_jobs_free(jobs);
    return retries;
}

static void retries_follow_policies_and_restart_policy(void **state)
{
    (void)state;
    assert_int_equal(retries_of("", "OnFailure"), 7);
    assert_int_equal(retries_of("", "Never"), 0);
    assert_int_equal(retries_of("  policies: [{event: PodFailed, action: RestartJob}]\n", "Never"),
                     7);
    assert_int_equal(
        retries_of("  policies: [{events: [PodFailed], action: AbortJob}]\n", "OnFailure"), 0);
}

static void wrong_types_are_refused_with_line_and_path(void **state)
{
    (void)state;
    REFUSED(HEAD "spec:\n  queue: 7\n  minAvailable: '2'\n  tasks:\n  - name: a\n    replicas: x\n"
                 "    template: []\n  - {replicas: 0, " POD "}\n",
            "job.yaml:5: spec.queue: 7 is not a string\n",
            "job.yaml:6: spec.minAvailable: \"2\" is not a whole number from 0 to 4096\n",
            "job.yaml:9: spec.tasks[0].replicas: \"x\" is not a whole number from 1 to 4096\n",
            "job.yaml:10: spec.tasks[0].template: a list is not a map\n",
            "job.yaml:8: spec.tasks[0]: its pod template has no container\n",
            "job.yaml:11: spec.tasks[1].replicas: 0 is not a whole number from 1 to 4096\n");
    REFUSED(HEAD "spec:\n  tasks: {}\n", "job.yaml:5: spec.tasks: a map is not a list\n",
            "job.yaml:5: spec: has no tasks");
    REFUSED("apiVersion: batch.volcano.sh/v1alpha1\nkind: Job\nmetadata: {}\nspec: {tasks: [{" POD
            "}]}\n",
            "job.yaml:3: metadata: has no name\n");
    REFUSED(HEAD "spec:\n  minAvailable: 3\n  tasks: [{replicas: 2, minAvailable: 3, " POD "}]\n",
            "job.yaml:5: spec.minAvailable: 3 is over the 2 tasks of the job\n",
            "job.yaml:6: spec.tasks[0]: minAvailable 3 is over replicas 2\n");
    REFUSED(HEAD "spec:\n  policies:\n  - {event: PodBroke, action: RestartJob}\n"
                 "  - {exitCode: 3, event: PodFailed, action: AbortJob}\n  - {action: AbortJob}\n"
                 "  - {exitCode: 0, action: AbortJob}\n  tasks: [{" POD "}]\n",
            "job.yaml:6: spec.policies[0].event: \"PodBroke\" is not one of: * PodFailed",
            "job.yaml:7: spec.policies[1]: has an exitCode and an event",
            "job.yaml:8: spec.policies[2]: names no event",
            "job.yaml:9: spec.policies[3].exitCode: 0 is the end of a task that succeeded\n");
    REFUSED(HEAD "spec: {tasks: [{template: {spec: {containers: [{image: x}]}}}]}\n",
            "spec.tasks[0].template.spec.containers[0]: has no command");
    REFUSED("apiVersion: v1\nkind: Pod\n",
            "job.yaml:1: apiVersion \"v1\" kind \"Pod\" is not read");
    REFUSED("# nothing\n", "job.yaml: has no document\n");
    REFUSED("a: [\n", "job.yaml: line 2 column 1: ");
}

static void task_topology_is_read_and_listed(void **state)
{
#define TOPOLOGY(affinity)                                                                         \
    "apiVersion: batch.volcano.sh/v1alpha1\nkind: Job\nmetadata:\n  name: j\n  annotations:\n"     \
    "    volcano.sh/task-topology-affinity: '" affinity "'\n"                                      \
    "    volcano.sh/task-topology-anti-affinity: ps\n"                                             \
    "spec:\n  tasks:\n  - {name: ps, replicas: 2, " POD "}\n  - {name: worker, replicas: 4, " POD  \
    "}\n"
    struct manifest_jobs *const jobs = load(TOPOLOGY("ps,worker"));

    (void)state;
    warns(jobs, "job.yaml:6: not done yet: metadata.annotations: its 2 buckets of tasks");
    manifest_jobs_free(jobs);
    REFUSED(TOPOLOGY("ps,boss"),
            "job.yaml:6: metadata.annotations: task topology: \"boss\" is not a task of this job");
#undef TOPOLOGY
}

/* ---- amounts and cards ---- */

static struct manifest_jobs *with_resources(const char *limits, const char *annotations,
                                            const struct cluster_view *view)
{
    char text[1024];

    snprintf(text, sizeof(text),
             HEAD "spec:\n  tasks:\n  - template:\n      metadata: {annotations: {%s}}\n"
                  "      spec: {containers: [{command: [\"true\"], resources: {limits: {%s}}}]}\n",
             annotations, limits);
    return load_with(text, view);
}

static void cards(const char *limits, const char *annotations, uint32_t milli, uint32_t memory_mib)
{
    struct cluster_view view;
    const struct node_spec node = {.name = "n",
                                   .cpu_milli = 1000,
                                   .memory_mib = 1000,
                                   .cards = {{"0", "A10", 24576}, {"1", "A10", 24576}},
                                   .n_cards = 2};
    struct manifest_jobs *jobs;

    cluster_view_init(&view);
    assert_int_equal(cluster_view_set_node(&view, &node, NULL), 0);
    jobs = with_resources(limits, annotations, &view);
    if (jobs->entries[0].spec->roles[0].gpu.milli != milli ||
        jobs->entries[0].spec->roles[0].gpu.memory_mib != memory_mib)
        fail_msg("%s %s: %u milli %u MiB", limits, annotations,
                 jobs->entries[0].spec->roles[0].gpu.milli,
                 jobs->entries[0].spec->roles[0].gpu.memory_mib);
    manifest_jobs_free(jobs);
    cluster_view_fini(&view);
}

static void cards_of_every_scheduler_are_read(void **state)
{
    (void)state;
    cards("nvidia.com/gpu: 2", "", 2000, 0);
    cards("nvidia.com/gpu: '2'", "", 2000, 0);
    cards("cpu: 1", "", 0, 0);
    cards("nvidia.com/gpu: 0", "", 0, 0);
    cards("nvidia.com/gpu: 1, nvidia.com/gpumem: 2000, nvidia.com/gpucores: 30", "", 300, 2000);
    cards("nvidia.com/gpu: 1, nvidia.com/gpumem: 2000", "", 1, 2000);
    cards("nvidia.com/gpu: 1, nvidia.com/gpumem-percentage: 50, nvidia.com/gpucores: 25", "", 250,
          12288); /* half of 24576 */
    cards("nvidia.com/gpu: 1, nvidia.com/gpucores: 25", "", 250, 24576);
    cards("nvidia.com/gpu: 2, nvidia.com/gpucores: 100, nvidia.com/gpumem: 2000", "", 2000, 2000);
    cards("volcano.sh/vgpu-number: 1, volcano.sh/vgpu-memory: 3000, volcano.sh/vgpu-cores: 50", "",
          500, 3000);
    cards("volcano.sh/gpu-memory: 1024", "", 1, 1024);
    cards("volcano.sh/gpu-number: 1", "", 1000, 0);
    cards("cpu: 1", "gpu-fraction: '0.5'", 500, 12288);
    cards("cpu: 1", "gpu-fraction: '0.125'", 125, 3072);
    cards("cpu: 1", "gpu-memory: '2000'", 1, 2000);
    cards("cpu: 1", "gpu-fraction: '1'", 1000, 0);
}

static void models_come_from_the_annotation(void **state)
{
    struct manifest_jobs *const jobs =
        with_resources("nvidia.com/gpu: 1",
                       "nvidia.com/use-gputype: 'A100, V100', nvidia.com/nouse-gputype: T4", NULL);
    const struct gpu_conf *const gpu = &jobs->entries[0].spec->roles[0].gpu;

    (void)state;
    assert_int_equal(gpu->n_models, 2);
    assert_string_equal(gpu->models[0], "A100");
    assert_string_equal(gpu->models[1], "V100");
    warns(jobs, "not done yet: "
                "spec.tasks[0].template.metadata.annotations[\"nvidia.com/nouse-gputype\"]: ");
    manifest_jobs_free(jobs);
}

static void amounts_that_are_none_are_refused(void **state)
{
#define LIMITS(text)                                                                               \
    HEAD "spec: {tasks: [{template: {spec: {containers: [{command: [\"true\"], resources: "        \
         "{limits: {" text "}}}]}}}]}\n"
#define AT "job.yaml:4: spec.tasks[0].template.spec.containers[0].resources.limits"

    (void)state;
    REFUSED(LIMITS("memory: 2000mb"), AT ".memory: \"2000mb\": unknown unit \"mb\"; known are n u");
    REFUSED(LIMITS("cpu: -1"), AT ".cpu: \"-1\": is negative\n");
    REFUSED(LIMITS("cpu: 1025"), AT ".cpu: \"1025\" is over the limit of 1024 cores\n");
    REFUSED(LIMITS("memory: 65Ti"), AT ".memory: \"65Ti\" is over the limit of 64Ti\n");
    REFUSED(LIMITS("memory: [1]"), AT ".memory: \"\": does not begin with a number\n");
    REFUSED(LIMITS("nvidia.com/gpu: 0.5"),
            AT "[\"nvidia.com/gpu\"]: \"0.5\" is not a whole number");
    REFUSED(LIMITS("nvidia.com/gpu: 17"), AT "[\"nvidia.com/gpu\"]: \"17\" is not a whole number");
    REFUSED(LIMITS("nvidia.com/mig-1g.10gb: 1"), "slices of a card (MIG) are not placed here");
    REFUSED(LIMITS("aliyun.com/gpu-mem: 3"), "is GiB or MiB by a setting of its cluster");
    REFUSED(LIMITS("nvidia.com/gpu: 2, nvidia.com/gpucores: 30"),
            "a share of each of 2 cards is not placed here");
#undef LIMITS
#undef AT
}

/* ---- Kubeflow ---- */

static void a_tfjob_has_its_ps_as_services(void **state)
{
    struct manifest_jobs *const jobs =
        load("apiVersion: kubeflow.org/v1\n"
             "kind: TFJob\n"
             "metadata: {name: dist}\n"
             "spec:\n"
             "  runPolicy:\n"
             "    cleanPodPolicy: Running\n"
             "    backoffLimit: 4\n"
             "    activeDeadlineSeconds: 86400\n"
             "    suspend: false\n"
             "    schedulingPolicy: {queue: ads, minAvailable: 5, priorityClass: '42'}\n"
             "  tfReplicaSpecs:\n"
             "    Worker:\n"
             "      replicas: 4\n"
             "      restartPolicy: OnFailure\n"
             "      template:\n"
             "        spec:\n"
             "          containers:\n"
             "          - {name: sidecar, command: [tail]}\n"
             "          - name: tensorflow\n"
             "            command: [python, train.py]\n"
             "            args: [--steps, '10']\n"
             "            resources: {limits: {nvidia.com/gpu: 1}}\n"
             "    ps:\n"
             "      replicas: 2\n"
             "      template: {spec: {containers: [{name: tensorflow, command: [python]}]}}\n");
    const struct job_spec *const spec = jobs->entries[0].spec;

    (void)state;
    assert_string_equal(spec->queue, "ads");
    assert_int_equal(spec->priority, 42);
    assert_int_equal(spec->retries, 4);
    assert_int_equal(spec->min_available, 5);
    assert_string_equal(spec->roles[0].role, "ps"); /* whatever the order and case */
    assert_int_equal(spec->roles[0].count, 2);
    assert_true(spec->roles[0].service);
    assert_string_equal(spec->roles[1].role, "worker");
    assert_false(spec->roles[1].service);
    assert_int_equal(spec->roles[1].n_command, 4);
    assert_string_equal(spec->roles[1].command[1], "train.py");
    assert_int_equal(spec->roles[1].gpu.milli, 1000);
    assert_int_equal(spec->max_run_s, 86400);
    warns(jobs, "not done yet: spec.tfReplicaSpecs.Worker: worker 0 does not end the job alone");
    warns(jobs, "job.yaml:18: not done yet: "
                "spec.tfReplicaSpecs.Worker.template.spec.containers[0]: one command");
    manifest_jobs_free(jobs);
}

#define KPOD(name) "template: {spec: {containers: [{name: " name ", command: [\"true\"]}]}}"

static void a_master_or_a_launcher_leads(void **state)
{
    struct manifest_jobs *jobs =
        load("apiVersion: kubeflow.org/v1\nkind: PyTorchJob\nmetadata: {name: t}\nspec:\n"
             "  elasticPolicy: {minReplicas: 2, maxReplicas: 9}\n"
             "  pytorchReplicaSpecs:\n"
             "    Worker: {replicas: 3, " KPOD("pytorch") "}\n"
                                                          "    Master: {" KPOD("pytorch") "}\n");
    const struct job_spec *spec = jobs->entries[0].spec;

    (void)state;
    assert_string_equal(spec->roles[0].role, "master"); /* rank 0 */
    assert_int_equal(spec->roles[0].count, 1);
    assert_false(spec->roles[0].service);
    assert_true(spec->roles[1].service);
    assert_int_equal(job_role_min(spec, &spec->roles[1]), 2);
    assert_int_equal(spec->retries, 6); /* OnFailure where nothing is said */
    assert_string_equal(spec->queue, "default");
    warns(jobs, "spec.elasticPolicy.maxReplicas: ");
    manifest_jobs_free(jobs);

    jobs = load(
        "apiVersion: kubeflow.org/v1\nkind: MPIJob\nmetadata: {name: m}\nspec:\n"
        "  slotsPerWorker: 1\n  cleanPodPolicy: Running\n"
        "  mpiReplicaSpecs:\n"
        "    Launcher: {" KPOD(
            "mpi") "}\n"
                   "    Worker: {replicas: 2, template: {spec: {containers: [{name: mpi}]}}}\n");
    spec = jobs->entries[0].spec;
    assert_string_equal(spec->roles[0].role, "launcher");
    assert_int_equal(spec->retries, 0); /* Never */
    assert_true(spec->roles[1].service);
    assert_string_equal(spec->roles[1].command[0], "sleep");
    warns(jobs, "not done yet: spec.slotsPerWorker: ");
    manifest_jobs_free(jobs);

    jobs = load("apiVersion: kubeflow.org/v2beta1\nkind: MPIJob\nmetadata: {name: m}\nspec:\n"
                "  mpiReplicaSpecs: {Launcher: {" KPOD("mpi") "}, Worker: {" KPOD("mpi") "}}\n");
    spec = jobs->entries[0].spec;
    assert_int_equal(spec->n_roles, 1); /* Worker: 0 where nothing is said */
    assert_int_equal(spec->retries, 6); /* the launcher: OnFailure */
    manifest_jobs_free(jobs);
}

static void a_wrong_kubeflow_job_is_refused(void **state)
{
    (void)state;
    REFUSED("apiVersion: kubeflow.org/v1\nkind: TFJob\nmetadata: {name: t}\nspec:\n"
            "  runPolicy: {suspend: true, backoffLimit: many}\n"
            "  tfReplicaSpecs:\n"
            "    Boss: {" KPOD("tensorflow") "}\n"
                                             "    PS: {" KPOD("tensorflow") "}\n"
                                                                            "    ps: {" KPOD(
                                                                                "tensorflow") "}\n",
            "job.yaml:5: spec.runPolicy.suspend: a job can't be submitted suspended",
            "job.yaml:5: spec.runPolicy.backoffLimit: \"many\" is not a whole number",
            "job.yaml:7: spec.tfReplicaSpecs.Boss: is not a type of this kind of job\n",
            "job.yaml:9: spec.tfReplicaSpecs.ps: this type stands here twice\n");
    REFUSED("apiVersion: kubeflow.org/v1\nkind: MPIJob\nmetadata: {name: t}\nspec:\n"
            "  mpiReplicaSpecs: {Launcher: {replicas: 2, " KPOD("mpi") "}}\n",
            "spec.mpiReplicaSpecs.Launcher.replicas: 2 is not a whole number from 1 to 1\n");
    REFUSED("apiVersion: kubeflow.org/v1\nkind: PyTorchJob\nmetadata: {name: t}\nspec: {}\n",
            "job.yaml:4: spec: has no pytorchReplicaSpecs\n");
}

/* ---- what a text holds ---- */

/* No byte after its end is read: under ASan an array without a zero byte tells. */
static void a_text_ends_where_its_length_says(void **state)
{
    static const char blanks[4] = {' ', '\n', ' ', ' '};
    struct conf_problems problems;

    (void)state;
    conf_problems_init(&problems);
    assert_null(manifest_load("job.yaml", blanks, sizeof(blanks), NULL, &problems));
    assert_int_equal(problems.n, 1);
    conf_problems_fini(&problems);
}

static void documents_and_our_own_files_are_told_apart(void **state)
{
    struct manifest_jobs *jobs = load("---\n" HEAD "spec: {tasks: [{" POD "}]}\n---\n"
                                      "apiVersion: kubeflow.org/v1\nkind: TFJob\n"
                                      "metadata: {name: k}\nspec:\n  tfReplicaSpecs:\n"
                                      "    Worker: {" KPOD("tensorflow") "}\n");

    (void)state;
    assert_int_equal(jobs->n, 2);
    assert_string_equal(jobs->entries[0].spec->name, "j");
    assert_string_equal(jobs->entries[1].spec->name, "k");
    manifest_jobs_free(jobs);

    jobs = load("{\"job\": \"own\", \"tasks\": [{\"role\": \"w\", \"command\": [\"true\"]}]}");
    assert_int_equal(jobs->n, 1);
    assert_false(jobs->entries[0].spec->gang);
    manifest_jobs_free(jobs);

    jobs = load("{\"apiVersion\": \"batch.volcano.sh/v1alpha1\", \"kind\": \"Job\",\n"
                " \"metadata\": {\"name\": \"in-json\"},\n"
                " \"spec\": {\"tasks\": [{\"template\": {\"spec\": {\"containers\": "
                "[{\"command\": [\"true\"]}]}}}]}}\n");
    assert_string_equal(jobs->entries[0].spec->name, "in-json");
    manifest_jobs_free(jobs);

    REFUSED("{\"job\": \"own\", \"tasks\": []}", "job.yaml#/tasks");
    REFUSED("{\"job\": ", "job.yaml:1:");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_volcano_job_becomes_a_gang),
        cmocka_unit_test(a_short_volcano_job_has_the_documented_defaults),
        cmocka_unit_test(minimums_of_tasks_hold_when_the_job_s_covers_them),
        cmocka_unit_test(retries_follow_policies_and_restart_policy),
        cmocka_unit_test(wrong_types_are_refused_with_line_and_path),
        cmocka_unit_test(task_topology_is_read_and_listed),
        cmocka_unit_test(cards_of_every_scheduler_are_read),
        cmocka_unit_test(models_come_from_the_annotation),
        cmocka_unit_test(amounts_that_are_none_are_refused),
        cmocka_unit_test(a_tfjob_has_its_ps_as_services),
        cmocka_unit_test(a_master_or_a_launcher_leads),
        cmocka_unit_test(a_wrong_kubeflow_job_is_refused),
        cmocka_unit_test(a_text_ends_where_its_length_says),
        cmocka_unit_test(documents_and_our_own_files_are_told_apart),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
