#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <cmocka.h>

#include "loadtest/weights.h"

struct fixture {
    char dir[64];
    char path[128];
    struct weights w;
};

static int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof(*f));

    strcpy(f->dir, "/tmp/penstock-weights-XXXXXX");
    if (mkdtemp(f->dir) == NULL)
        return -1;
    snprintf(f->path, sizeof(f->path), "%s/w", f->dir);
    train_plan_default(&f->w.plan);
    f->w.plan.shape = (struct nn_shape){.n_layers = 2, .widths = {3, 2, 9}};
    f->w.step = 7;
    f->w.n_tested = 10;
    f->w.n_correct = 4;
    nn_init(&f->w.nn, &f->w.plan.shape);
    nn_seed(&f->w.nn, 1);
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;

    unlink(f->path);
    if (rmdir(f->dir) != 0)
        return -1; /* a temporary file was left behind */
    weights_fini(&f->w);
    free(f);
    return 0;
}

static size_t read_file(const char *path, uint8_t *data, size_t cap)
{
    const int fd = open(path, O_RDONLY);
    const ssize_t n = read(fd, data, cap);

    close(fd);
    assert_true(n > 0);
    return (size_t)n;
}

static void write_file(const char *path, const uint8_t *data, size_t len)
{
    const int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0644);

    assert_int_equal(write(fd, data, len), len);
    close(fd);
}

static void what_is_saved_is_what_is_loaded(void **state)
{
    struct fixture *f = *state;
    struct weights got;
    struct err err;

    f->w.velocity = calloc(f->w.nn.n_params, sizeof(float));
    f->w.velocity[0] = 0.25f;
    assert_int_equal(weights_save(&f->w, f->path, &err), 0);
    assert_int_equal(weights_load(&got, f->path, &err), 0);
    assert_memory_equal(&got.nn.shape, &f->w.nn.shape, sizeof(got.nn.shape));
    assert_memory_equal(got.nn.params, f->w.nn.params, got.nn.n_params * sizeof(float));
    assert_memory_equal(got.velocity, f->w.velocity, got.nn.n_params * sizeof(float));
    assert_int_equal(got.step, 7);
    assert_int_equal(got.n_tested, 10);
    assert_int_equal(got.n_correct, 4);
    assert_int_equal(got.plan.batch, 32);
    assert_true(got.plan.momentum == f->w.plan.momentum);
    weights_fini(&got);
}

static void the_file_has_the_layout_that_the_header_says(void **state)
{
    struct fixture *f = *state;
    uint8_t data[1024];
    struct err err;
    uint32_t u;
    float v;

    assert_int_equal(weights_save(&f->w, f->path, &err), 0);
    /* magic, n_layers, 3 widths, plan, step, tested, correct, has_velocity */
    const size_t head = 8 + 4 + 12 + (8 + 4 * 5) + 8 + 4 + 4 + 4;
    const size_t n_floats = 3 * 2 + 2 + 2 * 9 + 9;
    assert_int_equal(read_file(f->path, data, sizeof(data)), head + n_floats * 4 + 4);
    assert_memory_equal(data, "PENSTKW1", 8);
    memcpy(&u, data + 12 + 8, 4);
    assert_int_equal(u, 9);
    memcpy(&v, data + head + 4, 4); /* input 0 to unit 1 */
    assert_true(v == f->w.nn.params[1]);
    memcpy(&v, data + head + 8, 4); /* input 1 to unit 0: no padding in the file */
    assert_true(v == f->w.nn.params[nn_stride(2)]);
    memcpy(&u, data + head + n_floats * 4, 4);
    assert_int_equal(u, crc32(0, data, (unsigned)(head + n_floats * 4)));
}

static void every_cut_and_every_changed_byte_is_refused(void **state)
{
    struct fixture *f = *state;
    uint8_t data[1024], changed[1024];
    struct weights got;
    struct err err;

    assert_int_equal(weights_save(&f->w, f->path, &err), 0);
    const size_t len = read_file(f->path, data, sizeof(data));
    for (size_t i = 0; i < len; i++) {
        write_file(f->path, data, i);
        assert_int_equal(weights_load(&got, f->path, &err), -EBADMSG);
        memcpy(changed, data, len);
        changed[i] ^= 0x10;
        write_file(f->path, changed, len);
        assert_int_equal(weights_load(&got, f->path, &err), -EBADMSG);
        assert_non_null(strstr(err.text, f->path));
    }
}

/* Change four bytes and mend the checksum: what a hostile or buggy writer would make. */
static int load_patched(struct fixture *f, size_t at, const void *value)
{
    uint8_t data[1024];
    struct weights got;
    struct err err;

    assert_int_equal(weights_save(&f->w, f->path, &err), 0);
    const size_t len = read_file(f->path, data, sizeof(data));
    memcpy(data + at, value, 4);
    const uint32_t crc = (uint32_t)crc32(0, data, (unsigned)(len - 4));
    memcpy(data + len - 4, &crc, 4);
    write_file(f->path, data, len);
    const int r = weights_load(&got, f->path, &err);
    if (r == 0)
        weights_fini(&got);
    return r;
}

static void sizes_and_values_out_of_range_are_refused_though_the_checksum_fits(void **state)
{
    struct fixture *f = *state;
    const uint32_t same = 2, zero = 0, huge = 0xffffffffu, five = 5, two = 2;
    const float nan = NAN;
    const size_t head = 8 + 4 + 12 + 28 + 8 + 12;

    assert_int_equal(load_patched(f, 8, &same), 0);
    assert_int_equal(load_patched(f, 8, &zero), -EBADMSG); /* no layers */
    assert_int_equal(load_patched(f, 8, &five), -EBADMSG); /* five layers */
    assert_int_equal(load_patched(f, 8, &huge), -EBADMSG);
    assert_int_equal(load_patched(f, 12, &huge), -EBADMSG);      /* width */
    assert_int_equal(load_patched(f, 16, &five), -EBADMSG);      /* width and length disagree */
    assert_int_equal(load_patched(f, head - 4, &two), -EBADMSG); /* has_velocity */
    assert_int_equal(load_patched(f, head, &nan), -EBADMSG);
}

static void a_missing_file_and_a_folder_are_named(void **state)
{
    struct fixture *f = *state;
    struct weights got;
    struct err err;

    assert_int_equal(weights_load(&got, f->path, &err), -ENOENT);
    assert_non_null(strstr(err.text, f->path));
    assert_int_equal(weights_load(&got, f->dir, &err), -EBADMSG);
    assert_int_equal(weights_save(&f->w, "/nonexistent/w", &err), -ENOENT);
}

static void a_save_that_fails_leaves_the_old_file(void **state)
{
    struct fixture *f = *state;
    struct weights got;
    struct err err;

    assert_int_equal(mkdir(f->path, 0700), 0); /* the rename over a folder can't succeed */
    assert_int_not_equal(weights_save(&f->w, f->path, &err), 0);
    assert_int_equal(rmdir(f->path), 0);
    assert_int_equal(weights_save(&f->w, f->path, &err), 0);
    assert_int_equal(weights_load(&got, f->path, &err), 0);
    weights_fini(&got); /* teardown's rmdir finds no temporary file */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(what_is_saved_is_what_is_loaded, setup, teardown),
        cmocka_unit_test_setup_teardown(the_file_has_the_layout_that_the_header_says, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(every_cut_and_every_changed_byte_is_refused, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(
            sizes_and_values_out_of_range_are_refused_though_the_checksum_fits, setup, teardown),
        cmocka_unit_test_setup_teardown(a_missing_file_and_a_folder_are_named, setup, teardown),
        cmocka_unit_test_setup_teardown(a_save_that_fails_leaves_the_old_file, setup, teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
