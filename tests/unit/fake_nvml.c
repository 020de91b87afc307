#include "tests/unit/fake_nvml.h"

#include <stdio.h>

static struct {
    const struct fake_card *cards;
    unsigned n_cards;
    int init_error, count_error, sessions;
} fake;

struct nvml_memory {
    unsigned long long total, free, used;
};

int nvmlInit_v2(void);
int nvmlShutdown(void);
int nvmlDeviceGetCount_v2(unsigned *n);
int nvmlDeviceGetHandleByIndex_v2(unsigned index, const void **ret);
int nvmlDeviceGetUUID(const void *device, char *text, unsigned size);
int nvmlDeviceGetName(const void *device, char *text, unsigned size);
int nvmlDeviceGetMemoryInfo(const void *device, struct nvml_memory *ret);

void fake_nvml_set(const struct fake_card *cards, unsigned n_cards, int init_error, int count_error)
{
    fake.cards = cards;
    fake.n_cards = n_cards;
    fake.init_error = init_error;
    fake.count_error = count_error;
}

int fake_nvml_open_sessions(void)
{
    return fake.sessions;
}

int nvmlInit_v2(void)
{
    fake.sessions += fake.init_error == 0;
    return fake.init_error;
}

int nvmlShutdown(void)
{
    fake.sessions--;
    return 0;
}

int nvmlDeviceGetCount_v2(unsigned *n)
{
    *n = fake.n_cards;
    return fake.count_error;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, const void **ret)
{
    *ret = &fake.cards[index];
    return index < fake.n_cards ? 0 : 2; /* NVML_ERROR_INVALID_ARGUMENT */
}

int nvmlDeviceGetUUID(const void *device, char *text, unsigned size)
{
    snprintf(text, size, "%s", ((const struct fake_card *)device)->uuid);
    return 0;
}

int nvmlDeviceGetName(const void *device, char *text, unsigned size)
{
    const char *name = ((const struct fake_card *)device)->name;

    if (name == NULL)
        return 15; /* NVML_ERROR_GPU_IS_LOST */
    snprintf(text, size, "%s", name);
    return 0;
}

int nvmlDeviceGetMemoryInfo(const void *device, struct nvml_memory *ret)
{
    *ret = (struct nvml_memory){.total = ((const struct fake_card *)device)->memory_bytes};
    return 0;
}
