#include "placer/manifest.h"

#include <stdlib.h>
#include <string.h>

#include "base/json_out.h"
#include "base/xalloc.h"
#include "conf/json_in.h"
#include "conf/problem.h"
#include "placer/manifest_in.h"

#define ARENA_BYTES    (32u * 1024 * 1024) /* commands of all roles with their variables in place */
#define JOB_FILE_BYTES (4u * 1024 * 1024)  /* as the loader's own limit */
#define WARNING_BYTES  (256u * 1024)       /* more are cut */

static void read_tfjob(const struct manifest_in *in, struct yaml_value *doc,
                       struct manifest_job *job)
{
    manifest_read_kubeflow(in, doc, &manifest_tfjob, job);
}
static void read_pytorchjob(const struct manifest_in *in, struct yaml_value *doc,
                            struct manifest_job *job)
{
    manifest_read_kubeflow(in, doc, &manifest_pytorchjob, job);
}
static void read_mpijob(const struct manifest_in *in, struct yaml_value *doc,
                        struct manifest_job *job)
{
    manifest_read_kubeflow(in, doc, &manifest_mpijob, job);
}
static void read_mpijob_v2(const struct manifest_in *in, struct yaml_value *doc,
                           struct manifest_job *job)
{
    manifest_read_kubeflow(in, doc, &manifest_mpijob_v2, job);
}

static const struct reader {
    const char *version, *kind;
    void (*read)(const struct manifest_in *in, struct yaml_value *doc, struct manifest_job *job);
} readers[] = {
    {"batch.volcano.sh/v1alpha1", "Job", manifest_read_volcano},
    {"kubeflow.org/v1", "TFJob", read_tfjob},
    {"kubeflow.org/v1", "PyTorchJob", read_pytorchjob},
    {"kubeflow.org/v1", "MPIJob", read_mpijob},
    {"kubeflow.org/v2beta1", "MPIJob", read_mpijob_v2},
};
#define KNOWN                                                                                      \
    "known are batch.volcano.sh/v1alpha1 Job, kubeflow.org/v1 TFJob, PyTorchJob, MPIJob, and "     \
    "kubeflow.org/v2beta1 MPIJob"

/* ---- the job file ---- */

static void put_gpu(struct json_out *o, const struct manifest_role *role)
{
    json_out_object(o, "gpu");
    json_out_uint(o, "milli", role->gpu_milli);
    json_out_uint(o, "memory_mib", role->gpu_memory_mib);
    json_out_array(o, "models");
    for (size_t i = 0; i < role->n_models; i++)
        json_out_str(o, NULL, role->models[i]);
    json_out_end_array(o);
    json_out_end_object(o);
}

static void put_role(struct json_out *o, const struct manifest_role *role)
{
    json_out_object(o, NULL);
    json_out_str(o, "role", role->role);
    json_out_uint(o, "count", role->count);
    if (role->min > 0)
        json_out_uint(o, "min", role->min);
    json_out_array(o, "command");
    for (size_t i = 0; i < role->n_command; i++)
        json_out_str(o, NULL, role->command[i]);
    json_out_end_array(o);
    json_out_bool(o, "literal", true);
    json_out_object(o, "env");
    for (size_t i = 0; i < role->n_env; i++)
        json_out_str(o, role->env[i].key, role->env[i].text);
    json_out_end_object(o);
    if (role->has_cpu)
        json_out_uint(o, "cpu_milli", role->cpu_milli);
    if (role->has_memory)
        json_out_uint(o, "memory_mib", role->memory_mib);
    if (role->gpu_milli > 0)
        put_gpu(o, role);
    json_out_str(o, "service", role->is_service ? "yes" : "no");
    json_out_end_object(o);
}

static void put_job(struct json_out *o, const struct manifest_job *job)
{
    json_out_object(o, NULL);
    json_out_str(o, "job", job->name);
    json_out_str(o, "queue", job->queue);
    json_out_uint(o, "priority", job->priority);
    json_out_bool(o, "gang", true);
    if (job->min_available > 0)
        json_out_uint(o, "min_available", job->min_available);
    json_out_uint(o, "retries", job->retries);
    if (job->max_run_s > 0)
        json_out_uint(o, "max_run_s", job->max_run_s);
    json_out_array(o, "tasks");
    for (size_t i = 0; i < job->n_roles; i++)
        put_role(o, &job->roles[i]);
    json_out_end_array(o);
    json_out_end_object(o);
}

/* The text of the job passes the rules of job files. */
static struct job_spec *spec_of(const struct manifest_in *in, const struct manifest_job *job)
{
    struct job_spec *spec = NULL;
    struct json_out o;
    struct buf text;

    buf_init(&text, JOB_FILE_BYTES);
    json_out_init(&o, &text);
    put_job(&o, job);
    if (text.overflow)
        conf_problem_file(in->problems, in->file, 0, 0,
                          "as a job file is over the limit of %u bytes", JOB_FILE_BYTES);
    else
        spec = job_file_load(in->file, buf_cstr(&text), text.len, in->problems);
    buf_fini(&text);
    return spec;
}

/* ---- one document ---- */

static struct job_spec *load_doc(struct manifest_in *in, struct yaml_value *doc)
{
    const char *const version = manifest_str(in, doc, "apiVersion", "");
    const char *const kind = manifest_str(in, doc, "kind", "");
    const size_t before = in->problems->n;
    struct manifest_job *const job = xcalloc(1, sizeof(*job));
    struct job_spec *spec = NULL;
    const struct reader *reader = NULL;

    for (size_t i = 0; i < sizeof(readers) / sizeof(readers[0]); i++)
        if (strcmp(readers[i].version, version) == 0 && strcmp(readers[i].kind, kind) == 0)
            reader = &readers[i];
    if (reader == NULL) {
        manifest_problem(in, doc, "apiVersion \"%.60s\" kind \"%.60s\" is not read here; " KNOWN,
                         version, kind);
    } else {
        reader->read(in, doc, job);
        manifest_list_ignored(in, doc);
        if (in->problems->n == before)
            spec = spec_of(in, job);
    }
    free(job);
    return spec;
}

static struct manifest_jobs *jobs_new(size_t n)
{
    struct manifest_jobs *const jobs = xcalloc(1, sizeof(*jobs));

    jobs->entries = xcalloc(n > 0 ? n : 1, sizeof(*jobs->entries));
    jobs->n = n;
    for (size_t i = 0; i < n; i++)
        buf_init(&jobs->entries[i].warnings, WARNING_BYTES);
    return jobs;
}

struct manifest_jobs *manifest_jobs_free(struct manifest_jobs *jobs)
{
    if (jobs == NULL)
        return NULL;
    for (size_t i = 0; i < jobs->n; i++) {
        job_spec_free(jobs->entries[i].spec);
        buf_fini(&jobs->entries[i].warnings);
    }
    free(jobs->entries);
    free(jobs);
    return NULL;
}

/* Our own: JSON that does not say a kind, and text that begins as JSON and is none. */
static bool is_job_file(const char *text, size_t len)
{
    size_t blank = 0;
    struct json_doc *doc = NULL;
    bool is_ours = false;

    while (blank < len && memchr(" \t\r\n", text[blank], 4) != NULL)
        blank++;
    if (blank < len && text[blank] != '{' && text[blank] != '[')
        return false;
    doc = json_doc_parse(text, len, NULL);
    is_ours = doc == NULL || (json_at_member(json_doc_top(doc), "apiVersion") == NULL &&
                              json_at_member(json_doc_top(doc), "kind") == NULL);
    json_doc_free(doc);
    return is_ours;
}

static struct manifest_jobs *load_docs(const char *file, const struct yaml_text *yaml,
                                       const struct cluster_view *view,
                                       struct conf_problems *problems)
{
    struct manifest_jobs *const jobs = jobs_new(yaml_text_n_docs(yaml));
    const size_t before = problems->n;
    struct arena arena;

    if (jobs->n == 0)
        conf_problem_file(problems, file, 0, 0, "has no document");
    arena_init(&arena, ARENA_BYTES);
    for (size_t i = 0; i < jobs->n; i++) {
        struct manifest_in in = {.file = file,
                                 .arena = &arena,
                                 .view = view,
                                 .problems = problems,
                                 .warnings = &jobs->entries[i].warnings};

        jobs->entries[i].spec = load_doc(&in, yaml_text_doc(yaml, i));
    }
    arena_fini(&arena);
    return problems->n == before ? jobs : manifest_jobs_free(jobs);
}

struct manifest_jobs *manifest_load(const char *file, const char *text, size_t len,
                                    const struct cluster_view *view, struct conf_problems *problems)
{
    struct manifest_jobs *jobs = NULL;
    struct yaml_text *yaml = NULL;
    struct err err = {0};

    if (is_job_file(text, len)) {
        jobs = jobs_new(1);
        jobs->entries[0].spec = job_file_load(file, text, len, problems);
        return jobs->entries[0].spec != NULL ? jobs : manifest_jobs_free(jobs);
    }
    yaml = yaml_text_parse(text, len, &err);
    if (yaml == NULL) {
        conf_problem_file(problems, file, 0, 0, "%s", err.text);
        return NULL;
    }
    jobs = load_docs(file, yaml, view, problems);
    yaml_text_free(yaml);
    return jobs;
}
