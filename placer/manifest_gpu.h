/* placer/manifest_gpu.h - cards in a manifest: resource names and annotations of the schedulers
 * that share cards, as thousandths and MiB of ours.
 *
 * Called by: placer/manifest_pod.c.
 * Thread:    one.
 * Source:    the names as their projects document them: Kubernetes device plugins (nvidia.com/gpu),
 *            Volcano vGPU (volcano.sh/vgpu-*, gpu-*), HAMi (nvidia.com/gpumem, gpucores), KAI
 *            (annotations gpu-fraction, gpu-memory).
 */
#ifndef PLACER_MANIFEST_GPU_H
#define PLACER_MANIFEST_GPU_H

#include "placer/manifest_in.h"

/* What the containers of a pod ask for, before it is made one request. at: the field that said so;
 * NULL: not said. */
struct manifest_gpu {
    const struct yaml_value *at_cards, *at_memory, *at_percent, *at_cores;
    uint32_t n_cards;
    uint32_t memory_mib; /* of each card */
    uint32_t percent;    /* of each card's memory, 1 .. 100 */
    uint32_t cores;      /* percent of each card's compute, 0 .. 100 */
    uint32_t milli;      /* KAI's fraction; 0: not said */
};

/* Takes resources[name] when it is about cards. True: it was. */
bool manifest_gpu_resource(const struct manifest_in *in, struct manifest_gpu *gpu, const char *name,
                           struct yaml_value *value);
/* The annotations of the pod, and of the job for what the pod does not say (both may be NULL). */
void manifest_gpu_annotations(const struct manifest_in *in, struct manifest_gpu *gpu,
                              struct yaml_value *of_pod, struct yaml_value *of_job,
                              struct manifest_role *role);
/* All of it as role->gpu_milli and gpu_memory_mib. */
void manifest_gpu_finish(const struct manifest_in *in, const struct manifest_gpu *gpu,
                         struct manifest_role *role);

#endif
