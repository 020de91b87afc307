#include "placer/nvml.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

/* The few declarations of nvml.h that are used; its ABI is stable by version suffix. */
typedef struct nvmlDevice_st *nvml_device;
struct nvml_memory {
    unsigned long long total, free, used; /* bytes */
};
#define NVML_SUCCESS 0

struct nvml {
    void *so;
    int (*init)(void);
    int (*shutdown)(void);
    int (*count)(unsigned *n);
    int (*handle)(unsigned index, nvml_device *ret);
    int (*uuid)(nvml_device d, char *text, unsigned size);
    int (*name)(nvml_device d, char *text, unsigned size);
    int (*memory)(nvml_device d, struct nvml_memory *ret);
};

static void *nvml_symbol(struct nvml *n, const char *name, struct err *err)
{
    void *const p = dlsym(n->so, name);

    if (p == NULL)
        err_set(err, -EIO, "libnvidia-ml.so.1 has no %s", name);
    return p;
}

/* POSIX lets a void * of dlsym become a function pointer; ISO C only by way of its bytes. */
#define NVML_LOAD(n, member, name, err)                                                            \
    do {                                                                                           \
        void *const symbol = nvml_symbol((n), (name), (err));                                      \
        memcpy(&(n)->member, &symbol, sizeof(symbol));                                             \
    } while (0)

/* 1: open; 0: no such library here; -EIO. */
static int nvml_open(struct nvml *n, struct err *err)
{
    n->so = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    if (n->so == NULL)
        return 0;
    NVML_LOAD(n, init, "nvmlInit_v2", err);
    NVML_LOAD(n, shutdown, "nvmlShutdown", err);
    NVML_LOAD(n, count, "nvmlDeviceGetCount_v2", err);
    NVML_LOAD(n, handle, "nvmlDeviceGetHandleByIndex_v2", err);
    NVML_LOAD(n, uuid, "nvmlDeviceGetUUID", err);
    NVML_LOAD(n, name, "nvmlDeviceGetName", err);
    NVML_LOAD(n, memory, "nvmlDeviceGetMemoryInfo", err);
    if (n->init == NULL || n->shutdown == NULL || n->count == NULL || n->handle == NULL ||
        n->uuid == NULL || n->name == NULL || n->memory == NULL) {
        dlclose(n->so);
        return -EIO;
    }
    return 1;
}

static void model_of(char dst[NVML_TEXT_MAX], const char *name)
{
    static const char *const prefixes[] = {"NVIDIA ", "Tesla "};

    for (size_t i = 0; i < ARRAY_LEN(prefixes); i++)
        if (strncmp(name, prefixes[i], strlen(prefixes[i])) == 0)
            name += strlen(prefixes[i]);
    snprintf(dst, NVML_TEXT_MAX, "%s", name);
}

static int nvml_read_card(const struct nvml *n, unsigned index, struct nvml_card *card,
                          struct err *err)
{
    char name[NVML_TEXT_MAX] = "";
    struct nvml_memory memory = {0};
    nvml_device d = NULL;
    int r = n->handle(index, &d);

    if (r == NVML_SUCCESS)
        r = n->uuid(d, card->uuid, sizeof(card->uuid));
    if (r == NVML_SUCCESS)
        r = n->name(d, name, sizeof(name));
    if (r == NVML_SUCCESS)
        r = n->memory(d, &memory);
    if (r != NVML_SUCCESS)
        return err_set(err, -EIO, "NVML does not describe card %u: error %d", index, r);
    model_of(card->model, name);
    card->memory_mib = (uint32_t)(memory.total >> 20);
    return 0;
}

int nvml_cards(struct nvml_card *cards, uint32_t max, uint32_t *ret_n_lost, struct err *err)
{
    struct nvml n = {0};
    unsigned count = 0, n_good = 0;
    int r = nvml_open(&n, err);

    *ret_n_lost = 0;
    if (r <= 0)
        return r;
    r = n.init();
    if (r !=
        NVML_SUCCESS) { /* a library without its driver: an image for GPUs on a plain machine */
        dlclose(n.so);
        return 0;
    }
    r = n.count(&count);
    if (r != NVML_SUCCESS) {
        count = 0;
        r = err_set(err, -EIO, "NVML does not count its cards: error %d", r);
    }
    for (unsigned i = 0; i < count && n_good < max; i++) {
        if (nvml_read_card(&n, i, &cards[n_good], err) == 0)
            n_good++;
        else
            ++*ret_n_lost;
    }
    n.shutdown();
    dlclose(n.so);
    return r < 0 ? r : (int)n_good;
}
