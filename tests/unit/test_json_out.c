#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include <math.h>

#include "base/json_out.h"

static void nesting_puts_commas_where_they_belong(void **state)
{
    struct buf b;
    struct json_out j;

    (void)state;
    buf_init(&b, 4096);
    json_out_init(&j, &b);
    json_out_object(&j, NULL);
    json_out_array(&j, "empty");
    json_out_end_array(&j);
    json_out_array(&j, "list");
    json_out_uint(&j, NULL, 1);
    json_out_object(&j, NULL);
    json_out_end_object(&j);
    json_out_bool(&j, NULL, false);
    json_out_end_array(&j);
    json_out_uint(&j, "max", UINT64_MAX);
    json_out_int(&j, "min", INT64_MIN);
    json_out_double(&j, "half", 0.5);
    json_out_double(&j, "nan", NAN);
    json_out_str(&j, "none", NULL);
    json_out_raw(&j, "raw", "[1]");
    json_out_end_object(&j);
    assert_string_equal(buf_cstr(&b),
                        "{\"empty\":[],\"list\":[1,{},false],\"max\":18446744073709551615,"
                        "\"min\":-9223372036854775808,\"half\":0.5,\"nan\":null,\"none\":null,"
                        "\"raw\":[1]}");
    buf_fini(&b);
}

static void bytes_of_any_kind_become_text_to_their_end(void **state)
{
    struct buf b;
    struct json_out j;

    (void)state;
    buf_init(&b, 4096);
    json_out_init(&j, &b);
    json_out_bytes(&j, NULL, "a\0b\xff\0", 5);
    assert_string_equal(buf_cstr(&b), "\"a\\ufffdb\\ufffd\\ufffd\"");
    buf_reset(&b);
    json_out_init(&j, &b);
    json_out_bytes(&j, NULL, NULL, 0);
    assert_string_equal(buf_cstr(&b), "\"\"");
    buf_fini(&b);
}

static void strings_are_escaped_and_never_leave_utf8(void **state)
{
    static const struct {
        const char *in, *out;
    } cases[] = {
        {"plain", "\"plain\""},
        {"a\"b\\c", "\"a\\\"b\\\\c\""},
        {"\n\x01\x7f", "\"\\u000a\\u0001\\u007f\""},
        {"\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80", "\"\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80\""},
        {"\xff", "\"\\ufffd\""},
        {"\xc0\x80", "\"\\ufffd\\ufffd\""},                       /* overlong */
        {"\xed\xa0\x80", "\"\\ufffd\\ufffd\\ufffd\""},            /* surrogate */
        {"\xf4\x90\x80\x80", "\"\\ufffd\\ufffd\\ufffd\\ufffd\""}, /* over U+10FFFF */
        {"\xe2\x82", "\"\\ufffd\\ufffd\""},                       /* cut */
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct buf b;
        struct json_out j;

        buf_init(&b, 4096);
        json_out_init(&j, &b);
        json_out_str(&j, NULL, cases[i].in);
        assert_string_equal(buf_cstr(&b), cases[i].out);
        buf_fini(&b);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nesting_puts_commas_where_they_belong),
        cmocka_unit_test(bytes_of_any_kind_become_text_to_their_end),
        cmocka_unit_test(strings_are_escaped_and_never_leave_utf8),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
