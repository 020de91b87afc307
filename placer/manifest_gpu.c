#include "placer/manifest_gpu.h"

#include <stdlib.h>
#include <string.h>

#include "conf/problem.h"

#define MEMORY_MIB_MAX 67108864u /* as in job files */

enum meaning { GPU_CARDS, GPU_MIB, GPU_PERCENT, GPU_CORES, GPU_REFUSED };

static const struct {
    const char *name;
    enum meaning meaning;
    const char *why; /* REFUSED */
} resources[] = {
    {"nvidia.com/gpu", GPU_CARDS, NULL},
    {"volcano.sh/vgpu-number", GPU_CARDS, NULL},
    {"volcano.sh/gpu-number", GPU_CARDS, NULL},
    {"nvidia.com/gpumem", GPU_MIB, NULL},
    {"volcano.sh/vgpu-memory", GPU_MIB, NULL},
    {"volcano.sh/gpu-memory", GPU_MIB, NULL},
    {"nvidia.com/gpumem-percentage", GPU_PERCENT, NULL},
    {"volcano.sh/vgpu-memory-percentage", GPU_PERCENT, NULL},
    {"nvidia.com/gpucores", GPU_CORES, NULL},
    {"volcano.sh/vgpu-cores", GPU_CORES, NULL},
    {"aliyun.com/gpu-mem", GPU_REFUSED,
     "is GiB or MiB by a setting of its cluster: say nvidia.com/gpumem, which is MiB"},
};
#define MIG_PREFIX "nvidia.com/mig-"

/* A whole number, also as a string, as device plugins take it. */
static uint32_t count(const struct manifest_in *in, const struct yaml_value *v, uint32_t max)
{
    char shown[CONF_QUOTE_BYTES];
    const char *const text = v->text != NULL ? v->text : "";
    uint64_t n = 0;
    const char *p = text;

    for (; *p >= '0' && *p <= '9' && n <= max; p++)
        n = n * 10 + (uint64_t)(*p - '0');
    if (p > text && *p == '\0' && n <= max && v->kind < YAML_LIST)
        return (uint32_t)n;
    manifest_problem(in, v, "%s is not a whole number from 0 to %u",
                     conf_quote(shown, sizeof(shown), text), max);
    return 0;
}

bool manifest_gpu_resource(const struct manifest_in *in, struct manifest_gpu *gpu, const char *name,
                           struct yaml_value *value)
{
    if (strncmp(name, MIG_PREFIX, strlen(MIG_PREFIX)) == 0) {
        manifest_problem(in, value,
                         "slices of a card (MIG) are not placed here: ask for nvidia.com/gpu, or a "
                         "share by nvidia.com/gpumem and nvidia.com/gpucores");
        return true;
    }
    for (size_t i = 0; i < sizeof(resources) / sizeof(resources[0]); i++) {
        if (strcmp(resources[i].name, name) != 0)
            continue;
        switch (resources[i].meaning) {
        case GPU_CARDS:
            gpu->n_cards += count(in, value, PLAN_MAX_CARDS);
            gpu->at_cards = value;
            break;
        case GPU_MIB:
            gpu->memory_mib = count(in, value, MEMORY_MIB_MAX);
            gpu->at_memory = value;
            break;
        case GPU_PERCENT:
            gpu->percent = count(in, value, 100);
            gpu->at_percent = value;
            break;
        case GPU_CORES:
            gpu->cores = count(in, value, 100);
            gpu->at_cores = value;
            break;
        case GPU_REFUSED:
            manifest_problem(in, value, "%s", resources[i].why);
            break;
        }
        return true;
    }
    return false;
}

/* ---- annotations ---- */

/* The pod's, else the job's. Annotations are strings. */
static struct yaml_value *annotation(const struct manifest_in *in, struct yaml_value *of_pod,
                                     struct yaml_value *of_job, const char *key)
{
    struct yaml_value *v = manifest_any(of_pod, key);

    if (v == NULL)
        v = manifest_any(of_job, key);
    return v != NULL && manifest_as_str(in, v) != NULL ? v : NULL;
}

/* "0.5" as 500: up to three digits after the point, over 0, at most 1. 0: it is none. */
static uint32_t fraction_milli(const char *text)
{
    uint32_t milli = 0, worth = 100;

    if ((text[0] != '0' && text[0] != '1') || text[1] != '.' || text[2] == '\0')
        return strcmp(text, "1") == 0 ? PLAN_CARD_MILLI : 0;
    milli = (uint32_t)(text[0] - '0') * PLAN_CARD_MILLI;
    for (const char *p = text + 2; *p != '\0'; p++, worth /= 10) {
        if (*p < '0' || *p > '9' || (worth == 0 && *p != '0'))
            return 0;
        milli += (uint32_t)(*p - '0') * worth;
    }
    return milli <= PLAN_CARD_MILLI ? milli : 0;
}

static void read_models(const struct manifest_in *in, struct yaml_value *v,
                        struct manifest_role *role)
{
    const size_t max = sizeof(role->models) / sizeof(role->models[0]);

    for (const char *p = v->text; *p != '\0';) {
        const size_t len = strcspn(p, ",");
        const size_t skip = strspn(p, " ");

        if (len > skip) {
            if (role->n_models == max) {
                manifest_problem(in, v, "names more than %zu models", max);
                return;
            }
            role->models[role->n_models] = arena_strndup(in->arena, p + skip, len - skip);
            if (role->models[role->n_models] == NULL) {
                manifest_problem(in, v, "has no room left in memory");
                return;
            }
            role->n_models++;
        }
        p += len + (p[len] == ',');
    }
}

void manifest_gpu_annotations(const struct manifest_in *in, struct manifest_gpu *gpu,
                              struct yaml_value *of_pod, struct yaml_value *of_job,
                              struct manifest_role *role)
{
    static const char *const later[] = {
        "nvidia.com/nouse-gputype",       "nvidia.com/use-gpuuuid",
        "nvidia.com/nouse-gpuuuid",       "volcano.sh/vgpu-use-gpuuuid",
        "volcano.sh/vgpu-nouse-gpuuuid",  "volcano.sh/vgpu-mode",
        "volcano.sh/numa-topology-policy"};
    struct yaml_value *v;

    if ((v = annotation(in, of_pod, of_job, "nvidia.com/use-gputype")) != NULL)
        read_models(in, v, role);
    if ((v = annotation(in, of_pod, NULL, "gpu-fraction")) != NULL) {
        gpu->milli = fraction_milli(v->text);
        gpu->at_cores = v;
        if (gpu->milli == 0)
            manifest_problem(in, v,
                             "\"%.40s\" is not a share of a card, such as 0.5: thousandths "
                             "from 0.001 to 1",
                             v->text);
    }
    if ((v = annotation(in, of_pod, NULL, "gpu-memory")) != NULL) {
        gpu->memory_mib = count(in, v, MEMORY_MIB_MAX);
        gpu->at_memory = v;
    }
    if ((v = annotation(in, of_pod, NULL, "gpu-fraction-num-devices")) != NULL) {
        gpu->n_cards += count(in, v, PLAN_MAX_CARDS);
        gpu->at_cards = v;
    }
    for (size_t i = 0; i < sizeof(later) / sizeof(later[0]); i++) {
        manifest_later(in, of_pod, later[i], "cards are chosen by their model alone");
        manifest_later(in, of_job, later[i], "cards are chosen by their model alone");
    }
}

/* ---- the sum ---- */

/* The memory of the cards that the role may get, when all of them have the same; else 0. */
static uint32_t card_memory_mib(const struct cluster_view *view, const struct manifest_role *role)
{
    uint32_t mib = 0;

    for (size_t n = 0; view != NULL && n < view->n_nodes; n++) {
        for (uint32_t c = 0; c < view->nodes[n].n_cards; c++) {
            const struct plan_card *const card = &view->nodes[n].cards[c];
            bool wanted = role->n_models == 0;

            for (size_t m = 0; m < role->n_models && !wanted; m++)
                wanted = strcmp(role->models[m], card->model) == 0;
            if (wanted && mib != 0 && mib != card->memory_mib)
                return 0;
            if (wanted)
                mib = card->memory_mib;
        }
    }
    return mib;
}

/* Of a share: the memory that was said, or its part of a card's. part: thousandths. */
static uint32_t share_memory_mib(const struct manifest_in *in, const struct manifest_gpu *gpu,
                                 const struct manifest_role *role, const struct yaml_value *at,
                                 uint32_t part)
{
    const uint32_t whole = card_memory_mib(in->view, role);

    if (gpu->at_memory != NULL)
        return gpu->memory_mib;
    if (whole == 0)
        manifest_not_done(in, at,
                          "the cards that it may get are not alike in memory, or none is "
                          "known: none is set aside for this share; say it in MiB");
    return (uint32_t)(((uint64_t)whole * part + PLAN_CARD_MILLI - 1) / PLAN_CARD_MILLI);
}

void manifest_gpu_finish(const struct manifest_in *in, const struct manifest_gpu *gpu,
                         struct manifest_role *role)
{
    const bool has_share = gpu->at_memory != NULL || gpu->at_percent != NULL ||
                           gpu->at_cores != NULL || gpu->milli > 0;
    const uint32_t n_cards = gpu->at_cards != NULL ? gpu->n_cards : has_share;
    const struct yaml_value *const at = gpu->at_cores != NULL     ? gpu->at_cores
                                        : gpu->at_memory != NULL  ? gpu->at_memory
                                        : gpu->at_percent != NULL ? gpu->at_percent
                                                                  : gpu->at_cards;
    uint32_t milli = gpu->milli > 0 ? gpu->milli : gpu->cores * 10;

    if (n_cards == 0) {
        role->n_models = 0; /* the annotation of a job stands on roles without cards too */
        return;
    }
    if (n_cards > PLAN_MAX_CARDS) {
        manifest_problem(in, at, "%u cards is over the limit of %d", n_cards, PLAN_MAX_CARDS);
        return;
    }
    if (milli == PLAN_CARD_MILLI || !has_share) {
        role->gpu_milli = n_cards * PLAN_CARD_MILLI;
        role->gpu_memory_mib = gpu->memory_mib;
        return;
    }
    if (n_cards > 1) {
        manifest_problem(in, at,
                         "a share of each of %u cards is not placed here: ask for whole "
                         "cards, or for a share of one",
                         n_cards);
        return;
    }
    role->gpu_memory_mib =
        share_memory_mib(in, gpu, role, at,
                         gpu->at_percent != NULL ? gpu->percent * 10
                         : gpu->milli > 0        ? gpu->milli
                                                 : PLAN_CARD_MILLI /* cores alone: all of it */);
    if (milli == 0) {
        milli = 1;
        manifest_not_done(in, at,
                          "no share of compute is said: 1 thousandth is set aside; say "
                          "nvidia.com/gpucores (percent)");
    }
    role->gpu_milli = milli;
}
