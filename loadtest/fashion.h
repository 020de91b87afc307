/* loadtest/fashion.h - Fashion-MNIST from Debian's dataset-fashion-mnist: 28 x 28 grey images.
 *
 * Owns:      fashion_set: its images and labels.
 * Called by: the trainer, the load generator (what it sends and what it holds answers against).
 * Lifetime:  fashion_load .. fashion_fini.
 * Thread:    any; a loaded set is read-only.
 * Source:    the IDX layout of yann.lecun.com/exdb/mnist (big-endian magic 0x00000803 for images,
 *            0x00000801 for labels, then the sizes, then bytes), each file compressed by gzip.
 */
#ifndef LOADTEST_FASHION_H
#define LOADTEST_FASHION_H

#include <stdint.h>

#include "base/err.h"

#define FASHION_SIDE    28u
#define FASHION_PIXELS  784u /* FASHION_SIDE squared */
#define FASHION_CLASSES 10u

enum fashion_part { FASHION_TRAIN = 0, FASHION_TEST };

struct fashion_set {
    uint32_t n;
    uint8_t *images; /* n x FASHION_PIXELS, 0 = background */
    uint8_t *labels; /* n, each below FASHION_CLASSES */
};

/* Where the files lie: option if not NULL, else $PENSTOCK_FASHION_MNIST, else Debian's folder. */
const char *fashion_dir(const char *option);

/* Read one part (60,000 training or 10,000 test images in the original).
 * Returns 0, or -ENOENT (a file is missing), -EBADMSG (not IDX, sizes that disagree, a label out of
 * range) or -EIO, with err that names the file. */
int fashion_load(struct fashion_set *ret_set, const char *dir, enum fashion_part part,
                 struct err *err);
void fashion_fini(struct fashion_set *set); /* works on a zeroed set */

/* One image as the networks take it: FASHION_PIXELS values in 0..1. */
void fashion_pixels(const struct fashion_set *set, uint32_t i, float *ret_pixels);

#endif
