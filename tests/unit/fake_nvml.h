/* tests/unit/fake_nvml.h - a management library whose cards the test chooses.
 *
 * Built as libnvidia-ml.so.1 and linked to its test, so that the dlopen in placer/nvml.c finds it
 * by its soname instead of a real one.
 */
#ifndef TESTS_UNIT_FAKE_NVML_H
#define TESTS_UNIT_FAKE_NVML_H

struct fake_card {
    const char *uuid;
    const char *name; /* NULL: the card is lost */
    unsigned long long memory_bytes;
};

/* Each *_error: what that call returns, 0 is success. cards: kept by the caller. */
void fake_nvml_set(const struct fake_card *cards, unsigned n_cards, int init_error,
                   int count_error);
int fake_nvml_open_sessions(void); /* nvmlInit_v2 without its nvmlShutdown */

#endif
