#include "loadtest/fashion.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "base/xalloc.h"

#define IDX_MAGIC_IMAGES 0x00000803u
#define IDX_MAGIC_LABELS 0x00000801u
/* 784 MB of images: far above the 60,000 of the set, and an allocation that can be refused. */
#define IDX_MAX_ITEMS 1000000u

static uint32_t be32(const uint8_t *p)
{
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

const char *fashion_dir(const char *option)
{
    const char *env = getenv("PENSTOCK_FASHION_MNIST");

    if (option != NULL)
        return option;
    return env != NULL && env[0] != '\0' ? env : "/usr/share/datasets/fashion-mnist";
}

/* Read exactly len bytes of the unpacked file. */
static int idx_read(gzFile f, const char *path, void *dst, size_t len, struct err *err)
{
    size_t got = 0;

    while (got < len) {
        const size_t want = len - got < INT_MAX ? len - got : INT_MAX;
        const int r = gzread(f, (uint8_t *)dst + got, (unsigned)want);

        if (r < 0)
            return err_set(err, -EBADMSG, "%s: not a whole gzip file", path);
        if (r == 0)
            return err_set(err, -EBADMSG, "%s: ends %zu bytes early", path, len - got);
        got += (size_t)r;
    }
    return 0;
}

/* Check the header (n_sizes sizes after the magic) and hand back the body.
 * item_bytes: what one item must hold. */
static int idx_body(gzFile f, const char *path, uint32_t magic, uint32_t n_sizes,
                    uint32_t item_bytes, uint32_t *ret_n, uint8_t **ret_body, struct err *err)
{
    uint8_t head[16];
    int r = idx_read(f, path, head, 4 + 4 * (size_t)n_sizes, err);

    if (r != 0)
        return r;
    if (be32(head) != magic)
        return err_set(err, -EBADMSG, "%s: magic 0x%08x is not 0x%08x", path, be32(head), magic);

    const uint32_t n = be32(head + 4);
    if (n == 0 || n > IDX_MAX_ITEMS)
        return err_set(err, -EBADMSG, "%s: %u items, not in 1..%u", path, n, IDX_MAX_ITEMS);
    if (n_sizes == 3 && (be32(head + 8) != FASHION_SIDE || be32(head + 12) != FASHION_SIDE))
        return err_set(err, -EBADMSG, "%s: images of %u x %u, not 28 x 28", path, be32(head + 8),
                       be32(head + 12));

    uint8_t *body = malloc((size_t)n * item_bytes);
    if (body == NULL)
        return err_set(err, -ENOMEM, "%s: no memory for %u items", path, n);
    r = idx_read(f, path, body, (size_t)n * item_bytes, err);
    if (r != 0) {
        free(body);
        return r;
    }
    *ret_n = n;
    *ret_body = body;
    return 0;
}

static int idx_load(const char *dir, const char *file, uint32_t magic, uint32_t n_sizes,
                    uint32_t item_bytes, uint32_t *ret_n, uint8_t **ret_body, struct err *err)
{
    char *path = xasprintf("%s/%s", dir, file);
    gzFile f = gzopen(path, "rb");
    int r;

    if (f == NULL) {
        r = errno != 0 ? -errno : -ENOMEM;
        err_set(err, r, "%s: %s (Debian package dataset-fashion-mnist)", path, strerror(-r));
        free(path);
        return r;
    }
    gzbuffer(f, 256 * 1024);
    r = idx_body(f, path, magic, n_sizes, item_bytes, ret_n, ret_body, err);
    gzclose(f);
    free(path);
    return r;
}

int fashion_load(struct fashion_set *ret_set, const char *dir, enum fashion_part part,
                 struct err *err)
{
    static const char *const files[][2] = {
        [FASHION_TRAIN] = {"train-images-idx3-ubyte.gz", "train-labels-idx1-ubyte.gz"},
        [FASHION_TEST] = {"t10k-images-idx3-ubyte.gz", "t10k-labels-idx1-ubyte.gz"},
    };
    struct fashion_set set = {0};
    uint32_t n_labels = 0;
    int r;

    r = idx_load(dir, files[part][0], IDX_MAGIC_IMAGES, 3, FASHION_PIXELS, &set.n, &set.images,
                 err);
    if (r != 0)
        return r;
    r = idx_load(dir, files[part][1], IDX_MAGIC_LABELS, 1, 1, &n_labels, &set.labels, err);
    if (r != 0)
        goto free_set;
    if (n_labels != set.n) {
        r = err_set(err, -EBADMSG, "%s/%s: %u labels for %u images", dir, files[part][1], n_labels,
                    set.n);
        goto free_set;
    }
    for (uint32_t i = 0; i < set.n; i++) {
        if (set.labels[i] >= FASHION_CLASSES) {
            r = err_set(err, -EBADMSG, "%s/%s: label %u of item %u is not below %u", dir,
                        files[part][1], set.labels[i], i, FASHION_CLASSES);
            goto free_set;
        }
    }
    *ret_set = set;
    return 0;

free_set:
    fashion_fini(&set);
    return r;
}

void fashion_fini(struct fashion_set *set)
{
    free(set->images);
    free(set->labels);
    *set = (struct fashion_set){0};
}

void fashion_pixels(const struct fashion_set *set, uint32_t i, float *ret_pixels)
{
    const uint8_t *image = set->images + (size_t)i * FASHION_PIXELS;

    for (uint32_t k = 0; k < FASHION_PIXELS; k++)
        ret_pixels[k] = (float)image[k] * (1.0f / 255.0f);
}
