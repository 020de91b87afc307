/* tests/fuzz/fuzz_manifest.c - the bytes of POST /v1/jobs: any text is jobs that hold the rules of
 * job files, or a list of problems; a job's own text loads to the same. */
#include <stdint.h>
#include <string.h>

#include "base/check.h"
#include "placer/manifest.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void again(const struct job_spec *spec)
{
    struct conf_problems problems;

    conf_problems_init(&problems);
    struct job_spec *const same = job_file_load("again", spec->json, strlen(spec->json), &problems);

    check(same != NULL && problems.n == 0);
    check(strcmp(same->name, spec->name) == 0 && same->n_roles == spec->n_roles);
    check(same->min_available == spec->min_available && same->retries == spec->retries);
    job_spec_free(same);
    conf_problems_fini(&problems);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct conf_problems problems;
    struct cluster_view view;
    const struct node_spec node = {.name = "n",
                                   .cpu_milli = 8000,
                                   .memory_mib = 8192,
                                   .cards = {{"0", "T4", 16384}},
                                   .n_cards = 1};

    cluster_view_init(&view);
    check(cluster_view_set_node(&view, &node, NULL) == 0);
    conf_problems_init(&problems);
    struct manifest_jobs *const jobs =
        manifest_load("fuzz", (const char *)data, size, &view, &problems);

    check((jobs == NULL) == (problems.n > 0));
    for (size_t i = 0; jobs != NULL && i < jobs->n; i++)
        again(jobs->entries[i].spec);
    manifest_jobs_free(jobs);
    conf_problems_fini(&problems);
    cluster_view_fini(&view);
    return 0;
}
