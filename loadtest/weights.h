/* loadtest/weights.h - a trained network in a file; the same file is the trainer's checkpoint.
 *
 * Owns:      weights: the network and, in a checkpoint, the optimizer's velocity.
 * Called by: the trainer (save, resume), the model server (load).
 * Lifetime:  weights_load (or zeroed and filled) .. weights_fini.
 * Thread:    one.
 *
 * Layout, little-endian, no padding:
 *     8  "PENSTKW1"
 *     4  n_layers                       1..4
 *     4  each: n_layers + 1 widths      inputs first, classes last; 1..4096
 *     8  seed   4 epochs   4 batch   4 n_examples   4 rate (float)   4 momentum (float)
 *     8  step                           steps done; all of them in a finished one
 *     4  n_tested   4 n_correct         on the test images; 0 0: not tested
 *     4  has_velocity                   0 or 1
 *     4  each: for each layer n_in x n_out weights (float, row = input), then n_out biases
 *     4  each: the velocity, if any, in the same order
 *     4  CRC-32 (zlib's) of all bytes before
 */
#ifndef LOADTEST_WEIGHTS_H
#define LOADTEST_WEIGHTS_H

#include "base/err.h"
#include "loadtest/nn.h"
#include "loadtest/train_plan.h"

struct weights {
    struct nn nn;
    struct train_plan plan; /* how it came about */
    uint64_t step;
    uint32_t n_tested, n_correct;
    float *velocity; /* nn.n_params values, or NULL */
};

/* Returns 0, -EBADMSG (not such a file, cut, changed, sizes out of range, values that are not
 * finite) or the errno of reading, with err that names the file. */
int weights_load(struct weights *ret_weights, const char *path, struct err *err);
/* Written beside path, synced, renamed over it: a reader sees the old file or the whole new one. */
int weights_save(const struct weights *w, const char *path, struct err *err);
void weights_fini(struct weights *w); /* works on a zeroed one */

#endif
