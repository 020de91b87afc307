#include "base/rng.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* First outputs of xoshiro256** from the state {1, 2, 3, 4}, as published with the reference code
 * (also in the tests of rand_xoshiro). */
static void numbers_are_those_of_the_reference_code(void **state)
{
    const uint64_t expected[] = {11520,
                                 0,
                                 1509978240,
                                 1215971899390074240,
                                 1216172134540287360,
                                 607988272756665600,
                                 UINT64_C(16172922978634559625),
                                 UINT64_C(8476171486693032832),
                                 UINT64_C(10595114339597558777),
                                 2904607092377533576};
    struct rng r = {{1, 2, 3, 4}};

    (void)state;
    for (int i = 0; i < 10; i++)
        assert_int_equal(rng_next(&r), expected[i]);
}

static void one_seed_gives_one_run_and_another_seed_another(void **state)
{
    struct rng a, b, c;
    int same = 0;

    (void)state;
    rng_init(&a, 42);
    rng_init(&b, 42);
    rng_init(&c, 43);
    for (int i = 0; i < 1000; i++) {
        const uint64_t x = rng_next(&a);

        assert_int_equal(x, rng_next(&b));
        same += x == rng_next(&c);
    }
    assert_int_equal(same, 0);
}

static void below_is_even_and_in_range(void **state)
{
    unsigned seen[7] = {0};
    struct rng r;

    (void)state;
    rng_init(&r, 4);
    for (int i = 0; i < 70000; i++)
        seen[rng_below(&r, 7)]++;
    for (int i = 0; i < 7; i++)
        assert_in_range(seen[i], 9600, 10400); /* 10000 +- 4 deviations */
    assert_int_equal(rng_below(&r, 1), 0);
    for (int i = 0; i < 100; i++)
        assert_true(rng_below(&r, UINT64_MAX) < UINT64_MAX);
}

static void the_distributions_have_their_moments(void **state)
{
    double unit = 0, expo = 0, normal = 0, squares = 0;
    const int n = 100000;
    struct rng r;

    (void)state;
    rng_init(&r, 5);
    for (int i = 0; i < n; i++) {
        const double u = rng_unit(&r), z = rng_normal(&r), e = rng_exponential(&r, 3);

        assert_true(u >= 0 && u < 1 && e >= 0 && isfinite(e) && isfinite(z));
        unit += u;
        expo += e;
        normal += z;
        squares += z * z;
    }
    assert_true(fabs(unit / n - 0.5) < 0.005);
    assert_true(fabs(expo / n - 3) < 0.05);
    assert_true(fabs(normal / n) < 0.02);
    assert_true(fabs(squares / n - 1) < 0.03);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_are_those_of_the_reference_code),
        cmocka_unit_test(one_seed_gives_one_run_and_another_seed_another),
        cmocka_unit_test(below_is_even_and_in_range),
        cmocka_unit_test(the_distributions_have_their_moments),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
