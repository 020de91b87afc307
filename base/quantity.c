#include "base/quantity.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>

#define DIGITS_MAX   18  /* of the number: 10^18 times the largest unit, 2^60, is under 2^128 */
#define EXPONENT_MAX 999 /* digits of an exponent are read up to this; far past any result */
#define SMALL_E10    30  /* with an exponent under -30 nothing reaches one unit of a result */

__extension__ typedef unsigned __int128 wide_t; /* ISO C has no integer this wide */

/* number x 10^e10 x 1024^k1024 */
struct amount {
    wide_t number;
    int e10;
    int k1024;
};

static const struct unit {
    const char *name;
    int e10, k1024;
} units[] = {
    {"", 0, 0},   {"n", -9, 0}, {"u", -6, 0}, {"m", -3, 0}, {"k", 3, 0},  {"M", 6, 0},
    {"G", 9, 0},  {"T", 12, 0}, {"P", 15, 0}, {"E", 18, 0}, {"Ki", 0, 1}, {"Mi", 0, 2},
    {"Gi", 0, 3}, {"Ti", 0, 4}, {"Pi", 0, 5}, {"Ei", 0, 6},
};
#define KNOWN "known are n u m k M G T P E, Ki Mi Gi Ti Pi Ei, and exponents as in 1e9"

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* "e9", "E-3": true with the exponent added. */
static bool exponent(const char *text, int *e10)
{
    const bool minus = text[0] != '\0' && text[1] == '-';
    const char *p = text + 1;
    int n = 0;

    if (text[0] != 'e' && text[0] != 'E')
        return false;
    p += *p == '-' || *p == '+';
    if (!is_digit(*p))
        return false;
    for (; is_digit(*p); p++)
        n = n < EXPONENT_MAX ? n * 10 + (*p - '0') : n;
    if (*p != '\0')
        return false;
    *e10 += minus ? -n : n;
    return true;
}

static int unknown_unit(const char *unit, struct err *err)
{
    char shown[24];
    size_t n = 0;

    for (; unit[n] != '\0' && n + 1 < sizeof(shown); n++)
        shown[n] = unit[n] > ' ' && unit[n] < 0x7f && unit[n] != '"' ? unit[n] : '?';
    shown[n] = '\0';
    return err_set(err, -EINVAL, "unknown unit \"%s\"; " KNOWN, shown);
}

static int amount_parse(const char *text, struct amount *a, struct err *err)
{
    const char *p = text;
    int n_digits = 0;
    bool dot = false, any = false;

    *a = (struct amount){0};
    if (*p == '-')
        return err_set(err, -EINVAL, "is negative");
    p += *p == '+';
    for (; is_digit(*p) || (*p == '.' && !dot); p++) {
        if (*p == '.') {
            dot = true;
            continue;
        }
        any = true;
        n_digits += n_digits > 0 || *p != '0';
        if (n_digits > DIGITS_MAX)
            return err_set(err, -EINVAL, "has more than %d digits", DIGITS_MAX);
        a->number = a->number * 10 + (unsigned)(*p - '0');
        a->e10 -= dot;
        if (a->e10 < -DIGITS_MAX)
            return err_set(err, -EINVAL, "has more than %d digits after the point", DIGITS_MAX);
    }
    if (!any)
        return err_set(err, -EINVAL, "does not begin with a number");
    for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++) {
        if (strcmp(p, units[i].name) != 0)
            continue;
        a->e10 += units[i].e10;
        a->k1024 = units[i].k1024;
        return 0;
    }
    return exponent(p, &a->e10) ? 0 : unknown_unit(p, err);
}

/* amount x times / divisor, rounded up. False: over 64 bits. */
static bool amount_scale(const struct amount *a, uint64_t times, uint64_t divisor, uint64_t *ret)
{
    wide_t n = a->number, by = divisor;

    *ret = 0;
    if (n == 0)
        return true;
    if (a->e10 < -SMALL_E10) {
        *ret = 1;
        return true;
    }
    if (__builtin_mul_overflow(n, times, &n))
        return false;
    for (int i = 0; i < a->k1024; i++)
        if (__builtin_mul_overflow(n, 1024u, &n))
            return false;
    for (int i = 0; i < a->e10; i++)
        if (__builtin_mul_overflow(n, 10u, &n))
            return false;
    for (int i = 0; i > a->e10; i--)
        by *= 10; /* at most 2^20 x 10^30 */
    n = n / by + (n % by != 0);
    if (n > UINT64_MAX)
        return false;
    *ret = (uint64_t)n;
    return true;
}

static int quantity(const char *text, uint64_t times, uint64_t divisor, uint64_t *ret,
                    struct err *err)
{
    struct amount a;
    const int r = amount_parse(text, &a, err);

    *ret = 0;
    if (r < 0)
        return r;
    if (!amount_scale(&a, times, divisor, ret))
        return err_set(err, -EINVAL, "is too large");
    return 0;
}

int quantity_cpu_milli(const char *text, uint64_t *ret_cpu_milli, struct err *err)
{
    return quantity(text, 1000, 1, ret_cpu_milli, err);
}

int quantity_memory_mib(const char *text, uint64_t *ret_memory_mib, struct err *err)
{
    struct amount a;
    const int r = quantity(text, 1, 1024 * 1024, ret_memory_mib, err);
    uint64_t milli = 0;

    if (r < 0)
        return r;
    if (amount_parse(text, &a, err) == 0 && a.number > 0 && amount_scale(&a, 1000, 1, &milli) &&
        milli < 1000)
        return err_set(err, -EINVAL, "is less than one byte; the unit of MiB is Mi");
    return 0;
}
