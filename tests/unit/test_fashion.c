#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

#include <cmocka.h>

#include "loadtest/fashion.h"

static char dir[] = "/tmp/penstock-fashion-XXXXXX"; /* made by main */

static void write_gz(const char *name, const uint8_t *head, size_t head_len, const uint8_t *body,
                     size_t body_len)
{
    char path[128];

    snprintf(path, sizeof(path), "%s/%s", dir, name);
    gzFile f = gzopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(gzwrite(f, head, (unsigned)head_len), head_len);
    assert_int_equal(gzwrite(f, body, (unsigned)body_len), body_len);
    assert_int_equal(gzclose(f), Z_OK);
}

/* Two images, the second's first pixel white; labels 3 and 9. */
static void write_good(void)
{
    uint8_t pixels[2 * 784] = {0};

    pixels[784] = 255;
    write_gz("t10k-images-idx3-ubyte.gz",
             (const uint8_t[]){0, 0, 8, 3, 0, 0, 0, 2, 0, 0, 0, 28, 0, 0, 0, 28}, 16, pixels,
             sizeof(pixels));
    write_gz("t10k-labels-idx1-ubyte.gz", (const uint8_t[]){0, 0, 8, 1, 0, 0, 0, 2}, 8,
             (const uint8_t[]){3, 9}, 2);
}

static void images_and_labels_are_read(void **state)
{
    struct fashion_set set;
    struct err err;
    float pixels[FASHION_PIXELS];

    (void)state;
    write_good();
    assert_int_equal(fashion_load(&set, dir, FASHION_TEST, &err), 0);
    assert_int_equal(set.n, 2);
    assert_int_equal(set.labels[0], 3);
    assert_int_equal(set.labels[1], 9);
    fashion_pixels(&set, 1, pixels);
    assert_true(pixels[0] == 1.0f && pixels[1] == 0.0f);
    fashion_fini(&set);
}

static void expect_refusal(const char *word)
{
    struct fashion_set set;
    struct err err;

    assert_int_equal(fashion_load(&set, dir, FASHION_TEST, &err), -EBADMSG);
    if (strstr(err.text, word) == NULL)
        fail_msg("%s does not say %s", err.text, word);
    write_good();
}

static void files_that_break_a_rule_are_refused_by_name(void **state)
{
    const uint8_t body[784] = {0};

    (void)state;
    write_good();
    write_gz("t10k-labels-idx1-ubyte.gz", (const uint8_t[]){0, 0, 8, 1, 0, 0, 0, 2}, 8,
             (const uint8_t[]){3, 10}, 2);
    expect_refusal("label 10 of item 1");
    write_gz("t10k-labels-idx1-ubyte.gz", (const uint8_t[]){0, 0, 8, 1, 0, 0, 0, 1}, 8,
             (const uint8_t[]){3}, 1);
    expect_refusal("1 labels for 2 images");
    write_gz("t10k-images-idx3-ubyte.gz",
             (const uint8_t[]){0, 0, 8, 1, 0, 0, 0, 1, 0, 0, 0, 28, 0, 0, 0, 28}, 16, body, 784);
    expect_refusal("magic 0x00000801");
    write_gz("t10k-images-idx3-ubyte.gz",
             (const uint8_t[]){0, 0, 8, 3, 0, 0, 0, 1, 0, 0, 0, 32, 0, 0, 0, 28}, 16, body, 784);
    expect_refusal("32 x 28");
    write_gz("t10k-images-idx3-ubyte.gz",
             (const uint8_t[]){0, 0, 8, 3, 0, 0, 0, 2, 0, 0, 0, 28, 0, 0, 0, 28}, 16, body, 784);
    expect_refusal("ends 784 bytes early");
    write_gz("t10k-images-idx3-ubyte.gz",
             (const uint8_t[]){0, 0, 8, 3, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 28, 0, 0, 0, 28}, 16,
             body, 784);
    expect_refusal("4294967295 items");
}

static void a_missing_file_names_the_package(void **state)
{
    struct fashion_set set;
    struct err err;

    (void)state;
    assert_int_equal(fashion_load(&set, dir, FASHION_TRAIN, &err), -ENOENT);
    assert_non_null(strstr(err.text, "dataset-fashion-mnist"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(images_and_labels_are_read),
        cmocka_unit_test(files_that_break_a_rule_are_refused_by_name),
        cmocka_unit_test(a_missing_file_names_the_package),
    };
    char path[128];

    if (mkdtemp(dir) == NULL)
        return 1;
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    snprintf(path, sizeof(path), "%s/t10k-images-idx3-ubyte.gz", dir);
    unlink(path);
    snprintf(path, sizeof(path), "%s/t10k-labels-idx1-ubyte.gz", dir);
    unlink(path);
    rmdir(dir);
    return failed;
}
