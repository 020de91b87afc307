#include "base/arena.h"

#include <setjmp.h>
#include <stdalign.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static void memory_is_zeroed_aligned_and_apart(void **state)
{
    struct arena a;
    uint8_t *got[200];

    (void)state;
    arena_init(&a, 1 << 20);
    for (size_t i = 0; i < 200; i++) {
        got[i] = arena_alloc(&a, i);
        assert_non_null(got[i]);
        assert_int_equal((uintptr_t)got[i] % alignof(max_align_t), 0);
        for (size_t k = 0; k < i; k++)
            assert_int_equal(got[i][k], 0);
        memset(got[i], (int)i, i);
    }
    for (size_t i = 0; i < 200; i++)
        for (size_t k = 0; k < i; k++)
            assert_int_equal(got[i][k], (uint8_t)i);
    arena_fini(&a);
}

static void past_the_ceiling_comes_null_and_what_was_given_stays(void **state)
{
    struct arena a;
    char *first;

    (void)state;
    arena_init(&a, 64);
    first = arena_strndup(&a, "hello world", 5);
    assert_string_equal(first, "hello");
    assert_null(arena_alloc(&a, 64));
    assert_null(arena_alloc(&a, SIZE_MAX));
    assert_null(arena_strndup(&a, "x", SIZE_MAX));
    assert_non_null(arena_alloc(&a, 48));
    assert_null(arena_alloc(&a, 1));
    assert_string_equal(first, "hello");
    assert_true(a.used_bytes <= 64);
    arena_fini(&a);
}

static void a_reset_arena_gives_its_whole_ceiling_again(void **state)
{
    struct arena a;

    (void)state;
    arena_init(&a, 100000);
    for (int round = 0; round < 5; round++) {
        uint8_t *small = arena_alloc(&a, 100), *big = arena_alloc(&a, 90000);

        assert_non_null(small);
        assert_non_null(big);
        assert_int_equal(small[99] | big[89999], 0);
        memset(small, 0xff, 100);
        memset(big, 0xff, 90000);
        assert_null(arena_alloc(&a, 10000));
        arena_reset(&a);
    }
    arena_fini(&a);
}

static void fini_works_on_a_zeroed_arena_and_twice(void **state)
{
    struct arena a;

    (void)state;
    memset(&a, 0, sizeof(a));
    arena_fini(&a);
    arena_init(&a, 10000);
    assert_memory_equal(arena_dup(&a, "abc", 3), "abc", 3);
    assert_non_null(arena_dup(&a, NULL, 0));
    arena_fini(&a);
    arena_fini(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_is_zeroed_aligned_and_apart),
        cmocka_unit_test(past_the_ceiling_comes_null_and_what_was_given_stays),
        cmocka_unit_test(a_reset_arena_gives_its_whole_ceiling_again),
        cmocka_unit_test(fini_works_on_a_zeroed_arena_and_twice),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
