#include "base/hash.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/rng.h"

#define N_KEYS 500

static void count_entry(void *arg, const char *key, size_t key_len, void *value)
{
    size_t *n = arg;

    assert_int_equal(strlen(key), key_len);
    assert_non_null(value);
    (*n)++;
}

/* Oracle: an array of what is in. Few keys, so that the table fills, shrinks and wraps around. */
static void a_map_under_random_use_agrees_with_an_array(void **state)
{
    static int values[N_KEYS];
    int *expected[N_KEYS] = {NULL};
    struct rng r;
    struct map m;
    size_t n = 0, seen = 0;

    (void)state;
    rng_init(&r, 1);
    map_init(&m);
    for (int step = 0; step < 20000; step++) {
        const size_t k = rng_below(&r, N_KEYS);
        char key[32];
        const size_t len = (size_t)snprintf(key, sizeof(key), "key-%zu", k);
        int *value = &values[rng_below(&r, N_KEYS)];

        switch (rng_below(&r, 3)) {
        case 0:
            assert_ptr_equal(map_set(&m, key, len, value), expected[k]);
            n += expected[k] == NULL;
            expected[k] = value;
            break;
        case 1:
            assert_ptr_equal(map_del(&m, key, len), expected[k]);
            n -= expected[k] != NULL;
            expected[k] = NULL;
            break;
        default:
            assert_ptr_equal(map_get(&m, key, len), expected[k]);
        }
        assert_int_equal(m.n, n);
    }
    for (size_t k = 0; k < N_KEYS; k++) {
        char key[32];

        assert_ptr_equal(map_get(&m, key, (size_t)snprintf(key, sizeof(key), "key-%zu", k)),
                         expected[k]);
    }
    map_each(&m, count_entry, &seen);
    assert_int_equal(seen, n);
    map_fini(&m);
}

static void keys_are_bytes_of_their_length_not_strings(void **state)
{
    struct map m = {0};
    int a, b, c;

    (void)state;
    assert_null(map_get(&m, "a", 1));
    assert_null(map_del(&m, "a", 1));
    map_set(&m, "a\0b", 3, &a);
    map_set(&m, "a", 1, &b);
    map_set(&m, "", 0, &c);
    assert_ptr_equal(map_get(&m, "a\0b", 3), &a);
    assert_ptr_equal(map_get(&m, "abc", 1), &b);
    assert_ptr_equal(map_get(&m, "abc", 0), &c);
    assert_null(map_get(&m, "a\0c", 3));
    map_fini(&m);
}

static void hash_spreads_near_keys_over_low_and_high_bits(void **state)
{
    unsigned low[16] = {0}, high[16] = {0};

    (void)state;
    for (uint32_t i = 0; i < 16000; i++) {
        const uint64_t h = hash_bytes(&i, sizeof(i), 7);

        low[h & 15]++;
        high[h >> 60]++;
    }
    for (int i = 0; i < 16; i++) { /* 1000 +- 4 deviations */
        assert_in_range(low[i], 870, 1130);
        assert_in_range(high[i], 870, 1130);
    }
    assert_true(hash_bytes("x", 1, 1) != hash_bytes("x", 1, 2));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_map_under_random_use_agrees_with_an_array),
        cmocka_unit_test(keys_are_bytes_of_their_length_not_strings),
        cmocka_unit_test(hash_spreads_near_keys_over_low_and_high_bits),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
