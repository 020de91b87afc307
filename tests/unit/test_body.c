#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "gateway/body.h"

struct fixture {
    struct slab_pool slabs;
    struct arena arena;
    struct body body;
};

static int setup(void **state)
{
    static struct fixture f;

    slab_pool_init(&f.slabs);
    arena_init(&f.arena, 65536);
    body_init(&f.body, &f.slabs);
    *state = &f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;

    body_fini(&f->body);
    arena_fini(&f->arena);
    slab_pool_fini(&f->slabs); /* checks that every slab is back */
    return 0;
}

static void assert_holds(const struct body *b, const uint8_t *expected, size_t len)
{
    size_t at = 0;

    assert_int_equal(b->bytes, len);
    for (uint32_t i = 0; i < b->n; i++) {
        assert_true(at + b->segs[i].len <= len);
        assert_memory_equal(b->segs[i].p, expected + at, b->segs[i].len);
        at += b->segs[i].len;
    }
    assert_int_equal(at, len);
}

static void single_bytes_join_into_few_segments(void **state)
{
    struct fixture *f = *state;
    uint8_t bytes[40000];

    for (size_t i = 0; i < sizeof(bytes); i++) {
        bytes[i] = (uint8_t)(i * 7);
        body_append(&f->body, &f->arena, NULL, &bytes[i], 1);
    }
    assert_holds(&f->body, bytes, sizeof(bytes));
    assert_true(f->body.n < 10);
    assert_true(f->arena.used_bytes < 4096); /* the rest lies in slabs */
}

static void long_pieces_are_referenced_and_short_ones_copied(void **state)
{
    struct fixture *f = *state;
    struct slab *slab = slab_get(&f->slabs, 16384);
    uint8_t expected[8192];

    memset(slab->data, 'x', slab->cap);
    memset(expected, 'x', sizeof(expected));
    body_append(&f->body, &f->arena, slab, slab->data, 100);
    assert_int_equal(slab->refs, 1);
    body_append(&f->body, &f->arena, slab, slab->data + 100, 8092);
    assert_int_equal(slab->refs, 2);
    assert_ptr_equal(f->body.segs[1].p, slab->data + 100);
    assert_holds(&f->body, expected, sizeof(expected));
    body_drop(&f->body);
    assert_int_equal(slab->refs, 1);
    assert_int_equal(f->body.bytes, 0);
    slab_unref(slab);
}

static void a_prefix_that_came_byte_by_byte_can_be_mended(void **state)
{
    struct fixture *f = *state;
    struct slab *slab = slab_get(&f->slabs, 16384);
    const uint8_t prefix[5] = {0, 0, 0, 16, 0};

    for (size_t i = 0; i < sizeof(prefix); i++)
        body_append(&f->body, &f->arena, NULL, &prefix[i], 1);
    memset(slab->data, 'y', slab->cap);
    body_append(&f->body, &f->arena, slab, slab->data, 4096);
    body_head(&f->body, 5)[4] = 3;
    assert_int_equal(f->body.segs[0].p[4], 3);
    assert_int_equal(f->body.bytes, 5 + 4096);
    slab_unref(slab);
}

static void many_long_pieces_fit(void **state)
{
    struct fixture *f = *state;
    struct slab *slab = slab_get(&f->slabs, 16384);

    for (int i = 0; i < 100; i++)
        body_append(&f->body, &f->arena, slab, slab->data, 2048);
    assert_int_equal(f->body.n, 100);
    assert_int_equal(slab->refs, 101);
    slab_unref(slab);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(single_bytes_join_into_few_segments, setup, teardown),
        cmocka_unit_test_setup_teardown(long_pieces_are_referenced_and_short_ones_copied, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(a_prefix_that_came_byte_by_byte_can_be_mended, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(many_long_pieces_fit, setup, teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
