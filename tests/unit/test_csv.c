#include "base/csv.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define PATH_SIZE 64

/* A file with this text; path: PATH_SIZE bytes, filled with where it is. */
static void make_file(char *path, const char *text, size_t len)
{
    strcpy(path, "/tmp/test_csv.XXXXXX");

    const int fd = mkstemp(path);

    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, len), (ssize_t)len);
    close(fd);
}

static void columns_are_found_by_the_names_of_the_header(void **state)
{
    const char text[] =
        "b,a,\"c d\"\r\n1,x,\"q \"\"uoted\"\", yes\"\r\n,,0.5"; /* no newline at the end */
    char path[PATH_SIZE];
    struct csv csv;
    struct err err;
    uint64_t n = 0;
    double d = 0;

    (void)state;
    make_file(path, text, sizeof(text) - 1);
    assert_int_equal(csv_open(&csv, path, &err), 0);
    assert_int_equal(csv_column(&csv, "a"), 1);
    assert_int_equal(csv_column(&csv, "c d"), 2);
    assert_int_equal(csv_column(&csv, "nothing"), -1);
    assert_int_equal(csv_need_column(&csv, "nothing", &err), -EINVAL);
    assert_non_null(strstr(err.text, ":1: column \"nothing\": is missing"));
    assert_int_equal(csv_next(&csv, &err), CSV_ROW);
    assert_int_equal(csv_uint(&csv, 0, 0, 1, &n, &err), 0);
    assert_int_equal(n, 1);
    assert_string_equal(csv_str(&csv, 1), "x");
    assert_string_equal(csv_str(&csv, 2), "q \"uoted\", yes");
    assert_int_equal(csv_next(&csv, &err), CSV_ROW);
    assert_string_equal(csv_str(&csv, 0), "");
    assert_int_equal(csv_double(&csv, 2, 0, 1, &d, &err), 0);
    assert_true(d == 0.5);
    assert_int_equal(csv_next(&csv, &err), CSV_END);
    csv_close(&csv);
    unlink(path);
}

static void a_bad_number_is_named_with_file_line_column_value_and_rule(void **state)
{
    static const char *const bad[] = {
        "", "-1", "+1", "1.5", "0x10", " 1", "8", "1 ", "١", "nan", "18446744073709551617"};
    char path[PATH_SIZE], text[100], wanted[200];
    struct csv csv;
    struct err err;

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        uint64_t n = 77;

        snprintf(text, sizeof(text), "name,gpus\nfirst,7\nsecond,%s\n", bad[i]);
        make_file(path, text, strlen(text));
        assert_int_equal(csv_open(&csv, path, &err), 0);
        assert_int_equal(csv_next(&csv, &err), CSV_ROW);
        assert_int_equal(csv_uint(&csv, 1, 0, 7, &n, &err), 0);
        assert_int_equal(csv_next(&csv, &err), CSV_ROW);
        assert_int_equal(csv_uint(&csv, 1, 0, 7, &n, &err), -EINVAL);
        assert_int_equal(n, 7);
        snprintf(wanted, sizeof(wanted),
                 "%s:3: column \"gpus\": \"%s\" is not a whole number from 0 to 7", path, bad[i]);
        assert_string_equal(err.text, wanted);
        csv_close(&csv);
        unlink(path);
    }
}

static void a_decimal_number_is_plain_and_in_its_range(void **state)
{
    static const struct {
        const char *text;
        int result;
    } rows[] = {{"1", 0},         {"2.5e-1", 0},    {"0", 0},           {"nan", -EINVAL},
                {"inf", -EINVAL}, {"0x1", -EINVAL}, {"1.0.0", -EINVAL}, {"", -EINVAL},
                {"3", -EINVAL},   {"-1", -EINVAL},  {"1e999", -EINVAL}, {"e", -EINVAL}};
    char path[PATH_SIZE], text[100];
    struct csv csv;

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        double d;

        snprintf(text, sizeof(text), "a,b\n%s,1\n", rows[i].text);
        make_file(path, text, strlen(text));
        assert_int_equal(csv_open(&csv, path, NULL), 0);
        assert_int_equal(csv_next(&csv, NULL), CSV_ROW);
        assert_int_equal(csv_double(&csv, 0, 0, 2, &d, NULL), rows[i].result);
        csv_close(&csv);
        unlink(path);
    }
}

static void what_is_no_table_is_refused(void **state)
{
    static const struct {
        const char *text;
        size_t len;
        const char *message; /* part of it */
    } rows[] = {
        {"", 0, "is empty"},
        {"a,b,a\n", 6, ":1: column \"a\": is there twice"},
        {"a,b\n1\n", 6, ":2: has 1 fields, its header 2"},
        {"a,b\n1,2\n\n", 9, ":3: has 1 fields, its header 2"},
        {"a,b\n1,2,3\n", 10, ":2: has 3 fields, its header 2"},
        {"a,b\n\"1,2\n", 9, ":2: field 1: a quote"},
        {"a,b\n\"1\"x,2\n", 11, ":2: field 1: a quote"},
        {"a,b\n1,x\"y\"\n", 11, ":2: field 2: a quote"},
        {"a,b\n1,\0\n", 8, "holds a NUL byte"},
    };
    char path[PATH_SIZE];

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct csv csv;
        struct err err = {0};
        int r;

        make_file(path, rows[i].text, rows[i].len);
        r = csv_open(&csv, path, &err);
        while (r >= 0 && (r = csv_next(&csv, &err)) == CSV_ROW) {
        }
        assert_int_equal(r, -EINVAL);
        assert_non_null(strstr(err.text, rows[i].message));
        assert_non_null(strstr(err.text, path));
        csv_close(&csv);
        unlink(path);
    }
}

static void more_columns_than_the_limit_are_refused(void **state)
{
    char path[PATH_SIZE], text[2 * CSV_MAX_COLUMNS + 20];
    size_t len = 0;
    struct csv csv;
    struct err err;

    (void)state;
    for (int i = 0; i <= CSV_MAX_COLUMNS; i++)
        text[len++] = ',';
    make_file(path, text, len);
    assert_int_equal(csv_open(&csv, path, &err), -EINVAL);
    assert_non_null(strstr(err.text, "over the limit of 64 columns"));
    csv_close(&csv);
    unlink(path);
}

static void a_file_that_is_not_there_is_named(void **state)
{
    struct csv csv;
    struct err err;

    (void)state;
    assert_int_equal(csv_open(&csv, "/nowhere/pods.csv", &err), -ENOENT);
    assert_string_equal(err.text, "/nowhere/pods.csv: No such file or directory");
    csv_close(&csv);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(columns_are_found_by_the_names_of_the_header),
        cmocka_unit_test(a_bad_number_is_named_with_file_line_column_value_and_rule),
        cmocka_unit_test(a_decimal_number_is_plain_and_in_its_range),
        cmocka_unit_test(what_is_no_table_is_refused),
        cmocka_unit_test(more_columns_than_the_limit_are_refused),
        cmocka_unit_test(a_file_that_is_not_there_is_named),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
