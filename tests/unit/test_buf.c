#include "base/buf.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static void appends_add_up_in_order(void **state)
{
    struct buf b;

    (void)state;
    buf_init(&b, 1 << 16);
    for (int i = 0; i < 1000; i++)
        assert_true(buf_printf(&b, "%d,", i));
    assert_true(buf_append_str(&b, "end"));
    assert_true(buf_append_byte(&b, '.'));
    assert_true(buf_append(&b, NULL, 0));
    assert_memory_equal(b.data, "0,1,2,3,", 8);
    assert_memory_equal(b.data + b.len - 8, "999,end.", 8);
    assert_int_equal(b.len, 10 * 2 + 90 * 3 + 900 * 4 + 4);
    assert_int_equal(strlen(buf_cstr(&b)), b.len);
    buf_fini(&b);
}

static void an_append_past_the_ceiling_changes_nothing_and_is_remembered(void **state)
{
    struct buf b;

    (void)state;
    buf_init(&b, 10);
    assert_true(buf_append_str(&b, "12345678"));
    assert_false(buf_append_str(&b, "abc"));
    assert_false(buf_printf(&b, "%d", 123));
    assert_null(buf_reserve(&b, SIZE_MAX));
    assert_true(b.overflow);
    assert_string_equal(buf_cstr(&b), "12345678");
    assert_true(buf_append_str(&b, "90"));
    assert_string_equal(buf_cstr(&b), "1234567890"); /* the NUL is not counted */
    assert_true(b.overflow);
    buf_reset(&b);
    assert_false(b.overflow);
    assert_int_equal(b.len, 0);
    buf_fini(&b);
}

static void reserve_gives_room_that_counts_once_len_is_added(void **state)
{
    struct buf b;

    (void)state;
    buf_init(&b, 5000);
    memset(buf_reserve(&b, 5000), 'x', 5000);
    b.len += 5000;
    assert_null(buf_reserve(&b, 1));
    assert_non_null(buf_reserve(&b, 0));
    buf_fini(&b);
}

static void consume_drops_at_the_front(void **state)
{
    struct buf b;

    (void)state;
    buf_init(&b, 100);
    buf_consume(&b, 0);
    buf_append_str(&b, "hello world");
    buf_consume(&b, 6);
    assert_string_equal(buf_cstr(&b), "world");
    buf_consume(&b, 5);
    assert_string_equal(buf_cstr(&b), "");
    buf_fini(&b);
    memset(&b, 0, sizeof(b));
    buf_fini(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(appends_add_up_in_order),
        cmocka_unit_test(an_append_past_the_ceiling_changes_nothing_and_is_remembered),
        cmocka_unit_test(reserve_gives_room_that_counts_once_len_is_added),
        cmocka_unit_test(consume_drops_at_the_front),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
