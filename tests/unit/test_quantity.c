/* Amounts with units; every expectation is worked by hand beside its case. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "base/quantity.h"

struct row {
    const char *text;
    uint64_t want;
};

static void cores_become_thousandths_rounded_up(void **state)
{
    static const struct row rows[] = {
        {"4", 4000},      {"500m", 500},
        {"0.5", 500},     {"1.5", 1500},
        {".25", 250},     {"5.", 5000},
        {"+1", 1000},     {"0", 0},
        {"0m", 0},        {"007", 7000},
        {"100u", 1},                    /* 0.1 m */
        {"1n", 1},        {"1500u", 2}, /* 1.5 m */
        {"2k", 2000000},  {"1M", 1000000000},
        {"1Ki", 1024000}, {"1e2", 100000},
        {"1E2", 100000},  {"2e-3", 2},
        {"1e-40", 1},     {"0e-40", 0},
        {"0.0005", 1},    {"1e16", 10000000000000000000u},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        uint64_t got = 1;
        struct err err = {0};
        const int r = quantity_cpu_milli(rows[i].text, &got, &err);

        if (r != 0 || got != rows[i].want)
            fail_msg("%s: %d %llu %s", rows[i].text, r, (unsigned long long)got, err.text);
    }
}

static void memory_becomes_mib_rounded_up(void **state)
{
    static const struct row rows[] = {
        {"16Gi", 16384},
        {"512Mi", 512},
        {"8000Mi", 8000},
        {"1.5Gi", 1536},
        {"1024Ki", 1},
        {"1025Ki", 2},
        {"1Ti", 1048576},
        {"1Pi", 1073741824},    /* 2^30 */
        {"1Ei", 1099511627776}, /* 2^40 */
        {"1", 1},
        {"0", 0},
        {"1048576", 1},
        {"1048577", 2},
        {"1k", 1},
        {"1M", 1},   /* 0.95 */
        {"3M", 3},   /* 2.86 */
        {"1G", 954}, /* 953.67 */
        {"1e9", 954},
        {"1E9", 954},
        {"1T", 953675},         /* 953674.3 */
        {"1P", 953674317},      /* 953674316.4 */
        {"1E", 953674316407},   /* 953674316406.25 */
        {"128974848000m", 123}, /* 123 x 1048576 = 128974848 */
        {"128974848001m", 124},
        {"4294967296000000u", 4096}, /* 2^32 bytes */
        {"1000000000n", 1},          /* one byte */
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        uint64_t got = 1;
        struct err err = {0};
        const int r = quantity_memory_mib(rows[i].text, &got, &err);

        if (r != 0 || got != rows[i].want)
            fail_msg("%s: %d %llu %s", rows[i].text, r, (unsigned long long)got, err.text);
    }
}

static void what_is_no_amount_is_refused_by_name(void **state)
{
    static const struct {
        const char *text, *want;
    } rows[] = {
        {"2000mb", "unknown unit \"mb\"; known are n u m k M G T P E, Ki Mi Gi Ti Pi Ei, and "
                   "exponents as in 1e9"},
        {"1GB", "unknown unit \"GB\"; "},
        {"1gi", "unknown unit \"gi\"; "},
        {"5KiB", "unknown unit \"KiB\"; "},
        {"1K", "unknown unit \"K\"; "},
        {"1 Gi", "unknown unit \"?Gi\"; "},
        {"1Gi ", "unknown unit \"Gi?\"; "},
        {"0x10", "unknown unit \"x10\"; "},
        {"1.2.3", "unknown unit \".3\"; "},
        {"1e", "unknown unit \"e\"; "},
        {"1e+", "unknown unit \"e+\"; "},
        {"1e3x", "unknown unit \"e3x\"; "},
        {"1mm", "unknown unit \"mm\"; "},
        {"", "does not begin with a number"},
        {"m", "does not begin with a number"},
        {".", "does not begin with a number"},
        {"Gi", "does not begin with a number"},
        {" 1", "does not begin with a number"},
        {"-1", "is negative"},
        {"-0.5Gi", "is negative"},
        {"1234567890123456789", "has more than 18 digits"},
        {"0.0000000000000000001", "has more than 18 digits after the point"},
        {"1e999999999999", "is too large"},
        {"999999999999999999Ei", "is too large"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        uint64_t got = 0;
        struct err err = {0};

        assert_true(quantity_memory_mib(rows[i].text, &got, &err) < 0);
        if (strncmp(err.text, rows[i].want, strlen(rows[i].want)) != 0)
            fail_msg("%s: %s", rows[i].text, err.text);
        assert_true(quantity_cpu_milli(rows[i].text, &got, NULL) < 0);
    }
}

static void a_result_over_64_bits_is_too_large(void **state)
{
    uint64_t got = 0;
    struct err err = {0};

    (void)state;
    assert_true(quantity_cpu_milli("1e17", &got, &err) < 0); /* 10^20 > 1.8 x 10^19 */
    assert_string_equal(err.text, "is too large");
    assert_true(quantity_cpu_milli("1Ei", &got, NULL) < 0);
    assert_int_equal(quantity_memory_mib("16777215Ei", &got, NULL), 0); /* (2^24 - 1) x 2^40 */
    assert_true(got == 18446742974197923840u);
    assert_true(quantity_memory_mib("16777216Ei", &got, NULL) < 0); /* 2^64 */
}

static void memory_of_less_than_a_byte_is_a_slip(void **state)
{
    uint64_t got = 0;
    struct err err = {0};

    (void)state;
    assert_true(quantity_memory_mib("512m", &got, &err) < 0);
    assert_string_equal(err.text, "is less than one byte; the unit of MiB is Mi");
    assert_true(quantity_memory_mib("1n", &got, NULL) < 0);
    assert_int_equal(quantity_memory_mib("1000m", &got, NULL), 0);
    assert_int_equal(quantity_memory_mib("0m", &got, NULL), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cores_become_thousandths_rounded_up),
        cmocka_unit_test(memory_becomes_mib_rounded_up),
        cmocka_unit_test(what_is_no_amount_is_refused_by_name),
        cmocka_unit_test(a_result_over_64_bits_is_too_large),
        cmocka_unit_test(memory_of_less_than_a_byte_is_a_slip),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
