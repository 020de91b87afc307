/* placer/manifest.h - what `penstock jobs submit` reads: our job file, or the manifests that other
 * schedulers take (Volcano Job, Kubeflow TFJob, PyTorchJob, MPIJob), each made a job file of ours.
 *
 * A manifest becomes the text of a job file, which then passes the same rules as any other: what is
 * shown of the job later is that text. Fields that nothing here reads, and those that are read and
 * that the job book can't do yet, are listed as warnings.
 *
 * Owns:      manifest_jobs: its specs until one is taken (set it NULL), and the warnings.
 * Called by: the controller (POST /v1/jobs).
 * Lifetime:  manifest_load .. manifest_jobs_free.
 * Thread:    one.
 */
#ifndef PLACER_MANIFEST_H
#define PLACER_MANIFEST_H

#include "placer/job.h"

struct manifest_jobs {
    struct manifest_entry {
        struct job_spec *spec;
        struct buf warnings; /* lines */
    } * entries;             /* one for each document */
    size_t n;
};

/* file: for messages. view: the cards here, for shares in percent; NULL: none known. NULL: problems
 * has all of it. */
struct manifest_jobs *manifest_load(const char *file, const char *text, size_t len,
                                    const struct cluster_view *view,
                                    struct conf_problems *problems);
struct manifest_jobs *manifest_jobs_free(struct manifest_jobs *jobs); /* returns NULL */

#endif
