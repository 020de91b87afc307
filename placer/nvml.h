/* placer/nvml.h - the GPUs of this machine, as NVIDIA's management library tells.
 *
 * The library is opened at run time: a machine without it has no cards, which is no fault.
 *
 * Owns:      nothing after the call.
 * Called by: placer/driver_local.c, for nodes whose cards are not declared.
 * Thread:    one.
 * Source:    NVML API reference (nvmlInit_v2, nvmlDeviceGetHandleByIndex_v2, ...).
 */
#ifndef PLACER_NVML_H
#define PLACER_NVML_H

#include <stdint.h>

#include "base/err.h"

#define NVML_TEXT_MAX 96

struct nvml_card {
    char uuid[NVML_TEXT_MAX];  /* "GPU-...": CUDA_VISIBLE_DEVICES takes it whatever the order */
    char model[NVML_TEXT_MAX]; /* "H200": the name without "NVIDIA " or "Tesla " */
    uint32_t memory_mib;
};

/* Fills at most max cards. Returns how many (0: no library or no card), or -EIO when the library is
 * there and does not even count its cards, with err filled. A card that does not answer (it fell
 * off the bus) is left out and counted in ret_n_lost, err then says which: it does not stop the
 * rest. */
int nvml_cards(struct nvml_card *cards, uint32_t max, uint32_t *ret_n_lost, struct err *err);

#endif
