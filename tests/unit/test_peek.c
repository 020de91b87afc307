#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <zlib.h>

#include "gateway/peek.h"

/* windowBits as zlib.h has them. */
#define AS_ZLIB 15
#define AS_GZIP (15 + 16)

static size_t pack(uint8_t *dst, size_t size, const void *plain, size_t len, int window_bits)
{
    z_stream z = {0};

    assert_int_equal(deflateInit2(&z, 6, Z_DEFLATED, window_bits, 8, Z_DEFAULT_STRATEGY), Z_OK);
    z.next_in = (Bytef *)(uintptr_t)plain;
    z.avail_in = (uInt)len;
    z.next_out = dst;
    z.avail_out = (uInt)size;
    assert_int_equal(deflate(&z, Z_FINISH), Z_STREAM_END);
    deflateEnd(&z);
    return size - z.avail_out;
}

/* model_name "ads", version "12", id "r". */
static const char infer[] = "\x0a\x03"
                            "ads\x12\x02"
                            "12\x1a\x01r";

static void assert_saw_ads_12(const struct peek *p)
{
    const struct walker *w = peek_walker(p);

    assert_int_equal(w->name.len, 3);
    assert_memory_equal(w->name.bytes, "ads", 3);
    assert_int_equal(w->choice, WALKER_VERSION);
    assert_int_equal(w->version.len, 2);
    assert_memory_equal(w->version.bytes, "12", 2);
}

static void gzip_and_zlib_data_show_their_name_however_they_are_cut(void **state)
{
    const int formats[] = {AS_ZLIB, AS_GZIP};
    uint8_t packed[256];

    (void)state;
    for (size_t f = 0; f < 2; f++) {
        const size_t n = pack(packed, sizeof(packed), infer, sizeof(infer) - 1, formats[f]);
        struct peek *p = peek_new(WALKER_NAME_VERSION);

        for (size_t cut = 0; cut <= n; cut++) {
            enum peek_result r;

            peek_begin(p);
            r = peek_feed(p, packed, cut, false);
            if (r == PEEK_MORE)
                r = peek_feed(p, packed + cut, n - cut, true);
            assert_int_equal(r, PEEK_READY);
            assert_saw_ads_12(p);
        }
        peek_free(p);
    }
}

static void a_message_of_a_name_alone_is_ready_at_its_end(void **state)
{
    uint8_t packed[256];
    const size_t n = pack(packed, sizeof(packed),
                          "\x0a\x03"
                          "ads",
                          5, AS_GZIP);
    struct peek *p = peek_new(WALKER_NAME_VERSION);

    (void)state;
    peek_begin(p);
    assert_int_equal(peek_feed(p, packed, n, true), PEEK_READY);
    assert_int_equal(peek_walker(p)->name.len, 3);
    assert_int_equal(peek_walker(p)->choice, WALKER_ANY);
    peek_free(p);
}

static void a_bomb_before_the_name_is_looked_at_only_so_far(void **state)
{
    const size_t bomb_bytes = 64u << 20;
    uint8_t *bomb = calloc(1, bomb_bytes), *packed = malloc(1u << 20);
    struct peek *p = peek_new(WALKER_NAME_VERSION);
    size_t n;

    (void)state;
    memcpy(bomb, "\x3a\xf0\xff\xff\x1f", 5); /* field 7, 64 MiB - 16 bytes of zeros */
    n = pack(packed, 1u << 20, bomb, bomb_bytes, AS_GZIP);
    peek_begin(p);
    assert_int_equal(peek_feed(p, packed, n, true), PEEK_BLIND);
    peek_free(p);
    free(bomb);
    free(packed);
}

static void data_that_is_not_compressed_or_cut_short_is_refused_with_a_reason(void **state)
{
    uint8_t packed[256];
    const size_t n = pack(packed, sizeof(packed),
                          "\x0a\x03"
                          "ads",
                          5, AS_GZIP);
    struct peek *p = peek_new(WALKER_NAME_VERSION);
    char why[200];

    (void)state;
    peek_begin(p);
    assert_int_equal(peek_feed(p, (const uint8_t *)infer, sizeof(infer) - 1, true), PEEK_REFUSED);
    assert_non_null(strstr(peek_explain(p, why, sizeof(why)), "neither gzip nor deflate"));
    peek_begin(p); /* it may be used again */
    assert_int_equal(peek_feed(p, packed, n - 12, true), PEEK_REFUSED);
    assert_non_null(strstr(peek_explain(p, why, sizeof(why)), "ends before its data"));
    peek_free(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gzip_and_zlib_data_show_their_name_however_they_are_cut),
        cmocka_unit_test(a_message_of_a_name_alone_is_ready_at_its_end),
        cmocka_unit_test(a_bomb_before_the_name_is_looked_at_only_so_far),
        cmocka_unit_test(data_that_is_not_compressed_or_cut_short_is_refused_with_a_reason),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
