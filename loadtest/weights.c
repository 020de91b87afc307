#include "loadtest/weights.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include "base/buf.h"
#include "base/xalloc.h"

#define MAGIC     "PENSTKW1"
#define MAGIC_LEN 8u
/* Four layers of 4096 x 4096 with velocity, and the header. */
#define MAX_FILE_BYTES (UINT64_C(4) * 4097 * 4096 * 4 * 2 + 256)

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "numbers are copied as they lie");

/* A reader that notes when bytes ran out, so that it is asked once at the end. */
struct reader {
    const uint8_t *p, *end;
    bool short_of;
};

static void take(struct reader *r, void *dst, size_t len)
{
    if ((size_t)(r->end - r->p) < len) {
        memset(dst, 0, len);
        r->short_of = true;
        return;
    }
    memcpy(dst, r->p, len);
    r->p += len;
}

static uint32_t take_u32(struct reader *r)
{
    uint32_t v;

    take(r, &v, sizeof(v));
    return v;
}

static void put_u32(struct buf *b, uint32_t v)
{
    buf_append(b, &v, sizeof(v));
}

static void put_params(struct buf *b, const struct nn_shape *s, const float *params)
{
    for (uint32_t l = 0; l < s->n_layers; l++) {
        const size_t stride = nn_stride(s->widths[l + 1]);
        const float *w = params + nn_weights_at(s, l);

        for (uint32_t i = 0; i <= s->widths[l]; i++) /* the last row is the biases */
            buf_append(b, w + i * stride, s->widths[l + 1] * sizeof(float));
    }
}

static bool take_params(struct reader *r, const struct nn_shape *s, float *ret_params)
{
    bool finite = true;

    for (uint32_t l = 0; l < s->n_layers; l++) {
        const size_t stride = nn_stride(s->widths[l + 1]);

        for (uint32_t i = 0; i <= s->widths[l] && !r->short_of; i++) {
            float *row = ret_params + nn_weights_at(s, l) + i * stride;

            take(r, row, s->widths[l + 1] * sizeof(float));
            for (uint32_t j = 0; j < s->widths[l + 1]; j++)
                finite = finite && isfinite(row[j]);
        }
    }
    return finite;
}

static int decode(struct weights *w, struct reader *r, const char *path, struct err *err)
{
    struct nn_shape s = {.n_layers = take_u32(r)};
    bool finite;

    for (uint32_t l = 0; l <= s.n_layers && s.n_layers <= NN_MAX_LAYERS; l++)
        s.widths[l] = take_u32(r);
    if (r->short_of || !nn_shape_is_valid(&s))
        return err_set(err, -EBADMSG, "%s: not 1..%u layers of 1..%u units", path, NN_MAX_LAYERS,
                       NN_MAX_WIDTH);
    w->plan.shape = s;
    take(r, &w->plan.seed, sizeof(w->plan.seed));
    w->plan.epochs = take_u32(r);
    w->plan.batch = take_u32(r);
    w->plan.n_examples = take_u32(r);
    take(r, &w->plan.rate, sizeof(w->plan.rate));
    take(r, &w->plan.momentum, sizeof(w->plan.momentum));
    take(r, &w->step, sizeof(w->step));
    w->n_tested = take_u32(r);
    w->n_correct = take_u32(r);

    const uint32_t has_velocity = take_u32(r);
    if (has_velocity > 1 || w->n_correct > w->n_tested)
        return err_set(err, -EBADMSG, "%s: header fields out of range", path);
    nn_init(&w->nn, &s);
    finite = take_params(r, &s, w->nn.params);
    if (has_velocity == 1) {
        w->velocity = xcalloc(w->nn.n_params, sizeof(float));
        finite = take_params(r, &s, w->velocity) && finite;
    }
    if (r->short_of || r->p != r->end)
        return err_set(err, -EBADMSG, "%s: length does not match the layers that it names", path);
    if (!finite)
        return err_set(err, -EBADMSG, "%s: holds a weight that is not finite", path);
    return 0;
}

/* The whole file in one allocation. */
static int slurp(const char *path, uint8_t **ret_data, size_t *ret_len, struct err *err)
{
    struct stat st;
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    size_t got = 0;
    int r = 0;

    if (fd < 0)
        return err_set(err, -errno, "%s: %s", path, strerror(errno));
    if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode) || (uint64_t)st.st_size > MAX_FILE_BYTES) {
        close(fd);
        return err_set(err, -EBADMSG, "%s: not a regular file of at most %llu bytes", path,
                       (unsigned long long)MAX_FILE_BYTES);
    }

    const size_t len = (size_t)st.st_size;
    uint8_t *data = xcalloc(len + 1, 1);
    while (got < len) {
        const ssize_t n = read(fd, data + got, len - got);

        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0) {
            r = err_set(err, n < 0 ? -errno : -EBADMSG, "%s: can't be read to its end", path);
            break;
        }
        got += (size_t)n;
    }
    close(fd);
    if (r != 0) {
        free(data);
        return r;
    }
    *ret_data = data;
    *ret_len = len;
    return 0;
}

int weights_load(struct weights *ret_weights, const char *path, struct err *err)
{
    struct weights w = {0};
    uint8_t *data = NULL;
    size_t len = 0;
    uint32_t crc;
    int r = slurp(path, &data, &len, err);

    if (r != 0)
        return r;
    if (len < MAGIC_LEN + sizeof(crc) || memcmp(data, MAGIC, MAGIC_LEN) != 0) {
        r = err_set(err, -EBADMSG, "%s: not a weights file (no " MAGIC " at its start)", path);
        goto free_data;
    }
    memcpy(&crc, data + len - sizeof(crc), sizeof(crc));
    if (crc32(0, data, (unsigned)(len - sizeof(crc))) != crc) {
        r = err_set(err, -EBADMSG, "%s: checksum does not match: cut or changed", path);
        goto free_data;
    }

    struct reader reader = {.p = data + MAGIC_LEN, .end = data + len - sizeof(crc)};
    r = decode(&w, &reader, path, err);
    if (r != 0)
        weights_fini(&w);
    else
        *ret_weights = w;

free_data:
    free(data);
    return r;
}

static int write_all(int fd, const uint8_t *p, size_t len)
{
    while (len > 0) {
        const ssize_t n = write(fd, p, len);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -errno;
        p += n;
        len -= (size_t)n;
    }
    return 0;
}

/* Content first, then the name, then the folder: what a crash leaves is the old file or the new. */
static int replace_file(const char *path, const uint8_t *data, size_t len, struct err *err)
{
    char *tmp = xasprintf("%s.tmp.%ld", path, (long)getpid());
    char *copy = xstrdup(path);
    int r = 0;
    const int fd = open(tmp, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

    if (fd < 0) {
        r = err_set(err, -errno, "%s: %s", tmp, strerror(errno));
        goto free_names;
    }
    r = write_all(fd, data, len);
    if (r == 0 && fsync(fd) != 0)
        r = -errno;
    close(fd);
    if (r == 0 && rename(tmp, path) != 0)
        r = -errno;
    if (r != 0) {
        err_set(err, r, "%s: %s", path, strerror(-r));
        unlink(tmp);
        goto free_names;
    }

    const int dir = open(dirname(copy), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (dir >= 0) {
        fsync(dir); /* some file systems can't; the file itself is safe */
        close(dir);
    }

free_names:
    free(copy);
    free(tmp);
    return r;
}

int weights_save(const struct weights *w, const char *path, struct err *err)
{
    const struct nn_shape *s = &w->nn.shape;
    struct buf b;

    buf_init(&b, MAX_FILE_BYTES);
    buf_append(&b, MAGIC, MAGIC_LEN);
    put_u32(&b, s->n_layers);
    for (uint32_t l = 0; l <= s->n_layers; l++)
        put_u32(&b, s->widths[l]);
    buf_append(&b, &w->plan.seed, sizeof(w->plan.seed));
    put_u32(&b, w->plan.epochs);
    put_u32(&b, w->plan.batch);
    put_u32(&b, w->plan.n_examples);
    buf_append(&b, &w->plan.rate, sizeof(w->plan.rate));
    buf_append(&b, &w->plan.momentum, sizeof(w->plan.momentum));
    buf_append(&b, &w->step, sizeof(w->step));
    put_u32(&b, w->n_tested);
    put_u32(&b, w->n_correct);
    put_u32(&b, w->velocity != NULL);
    put_params(&b, s, w->nn.params);
    if (w->velocity != NULL)
        put_params(&b, s, w->velocity);
    check(!b.overflow);
    put_u32(&b, (uint32_t)crc32(0, b.data, (unsigned)b.len));

    const int r = replace_file(path, b.data, b.len, err);
    buf_fini(&b);
    return r;
}

void weights_fini(struct weights *w)
{
    nn_fini(&w->nn);
    free(w->velocity);
    *w = (struct weights){0};
}
