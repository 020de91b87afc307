#include "proto/grpc.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/check.h"
#include "base/rng.h"

/* What a reader says about bytes, as text: "B4 abcd E" for a message of 4 bytes, "z" after the
 * length for a compressed one, "!long" and "!flag" for refusals, "..." when it ends inside a
 * message. Pieces are joined, so that the split does not show. */
static const char *read_all(const uint8_t *bytes, size_t len, size_t first, size_t step,
                            uint32_t limit)
{
    static char text[256];
    struct grpc_reader r;
    size_t n_text = 0;

#define SAY(...) (n_text += (size_t)snprintf(text + n_text, sizeof(text) - n_text, __VA_ARGS__))
    text[0] = '\0';
    grpc_reader_init(&r, limit);
    for (size_t at = 0; at < len;) {
        const size_t n = at == 0 && first > 0 ? first : step < len - at ? step : len - at;
        const uint8_t *p = bytes + at, *piece = NULL;
        size_t left = n, piece_len = 0;
        enum grpc_read event;

        at += n;
        while ((event = grpc_reader_next(&r, &p, &left, &piece, &piece_len)) != GRPC_READ_MORE) {
            switch (event) {
            case GRPC_READ_BEGIN:
                SAY("B%u%s ", r.message_bytes, r.compressed ? "z" : "");
                break;
            case GRPC_READ_BYTES:
                assert_true(piece_len > 0);
                SAY("%.*s", (int)piece_len, piece);
                break;
            case GRPC_READ_END:
                SAY(" E ");
                break;
            default:
                assert_int_equal(grpc_reader_next(&r, &p, &left, &piece, &piece_len), event);
                SAY("%s", event == GRPC_READ_TOO_LONG ? "!long" : "!flag");
                return text;
            }
        }
        assert_int_equal(left, 0);
    }
    if (!grpc_reader_is_between(&r))
        SAY("...");
    return text;
#undef SAY
}

static void the_reader_sees_the_same_messages_however_they_are_split(void **state)
{
    static const struct {
        const char *bytes;
        size_t len;
        const char *events;
    } cases[] = {
#define CASE(text, events) {text, sizeof(text) - 1, events}
        CASE("", ""),
        CASE("\0\0\0\0\0", "B0  E "),
        CASE("\0\0\0\0\4abcd", "B4 abcd E "),
        CASE("\1\0\0\0\4abcd", "B4z abcd E "),
        CASE("\0\0\0\0\1a\0\0\0\0\0\0\0\0\0\2bc", "B1 a E B0  E B2 bc E "),
        CASE("\0\0\0\0\4abc", "B4 abc..."),
        CASE("\0\0\0", "..."),
        CASE("\2\0\0\0\1a", "!flag"),
        CASE("\200\0\0\0\1a", "!flag"), /* a gRPC-Web trailer */
        CASE("\0\0\0\0\1a\0\0\0\0\21", "B1 a E !long"),
        CASE("\0\377\377\377\377", "!long"),
        CASE("\0\0\0\0\20", "B16 ..."),
#undef CASE
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        const uint8_t *bytes = (const uint8_t *)cases[i].bytes;

        assert_string_equal(read_all(bytes, cases[i].len, 0, SIZE_MAX, 16), cases[i].events);
        assert_string_equal(read_all(bytes, cases[i].len, 0, 1, 16), cases[i].events);
        for (size_t split = 1; split < cases[i].len; split++)
            assert_string_equal(read_all(bytes, cases[i].len, split, SIZE_MAX, 16),
                                cases[i].events);
    }
}

static void a_written_prefix_reads_back(void **state)
{
    const uint32_t lens[] = {0, 1, 255, 256, 65536, 0x01020304, UINT32_MAX};

    (void)state;
    for (size_t i = 0; i < 2 * ARRAY_LEN(lens); i++) {
        uint8_t prefix[GRPC_PREFIX_BYTES];
        const uint8_t *p = prefix, *piece;
        size_t left = sizeof(prefix), piece_len;
        struct grpc_reader r;

        grpc_prefix_write(prefix, i % 2 == 1, lens[i / 2]);
        grpc_reader_init(&r, UINT32_MAX);
        assert_int_equal(grpc_reader_next(&r, &p, &left, &piece, &piece_len), GRPC_READ_BEGIN);
        assert_int_equal(r.message_bytes, lens[i / 2]);
        assert_int_equal(r.compressed, i % 2);
    }
}

static void timeouts_parse_by_the_rule(void **state)
{
    static const struct {
        const char *text;
        uint64_t us;
    } good[] = {
        {"1H", UINT64_C(3600000000)},
        {"2M", 120000000},
        {"3S", 3000000},
        {"300m", 300000},
        {"7u", 7},
        {"1999n", 1},
        {"0m", 0},
        {"00000001S", 1000000},
        {"99999999H", UINT64_C(359999996400000000)},
    };
    static const char *const bad[] = {"",    "S",   "5",    "123456789m", "1s",  "1 m",
                                      "-1m", "+1m", "1.5S", "1mm",        " 1m", "0x1m"};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(good); i++) {
        uint64_t us = 1;

        assert_true(grpc_timeout_parse(good[i].text, strlen(good[i].text), &us));
        assert_int_equal(us, good[i].us);
    }
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        uint64_t us;

        assert_false(grpc_timeout_parse(bad[i], strlen(bad[i]), &us));
    }
}

static void a_formatted_timeout_is_never_longer_and_loses_little(void **state)
{
    struct rng r;

    (void)state;
    rng_init(&r, 8);
    for (int i = 0; i < 20000; i++) {
        const uint64_t us = rng_next(&r) >> rng_below(&r, 64);
        char text[GRPC_TIMEOUT_SIZE];
        const size_t len = grpc_timeout_format(text, us);
        uint64_t back;

        assert_int_equal(strlen(text), len);
        assert_true(grpc_timeout_parse(text, len, &back));
        assert_true(back <= us);
        if (us < UINT64_C(359999996400000000))
            assert_true(us - back <= us / 1000000 * 3600); /* 8 digits of at worst M after H */
        if (us <= 99999999)
            assert_int_equal(back, us);
    }
    {
        char text[GRPC_TIMEOUT_SIZE];

        grpc_timeout_format(text, 0);
        assert_string_equal(text, "1n"); /* the format has no zero */
        grpc_timeout_format(text, 299999);
        assert_string_equal(text, "299999u");
        grpc_timeout_format(text, 100000000);
        assert_string_equal(text, "100000m");
        grpc_timeout_format(text, UINT64_MAX);
        assert_string_equal(text, "99999999H");
    }
}

/* RFC 9113 8.2.1: a field value that begins or ends with a space is malformed, and nghttp2 resets
 * the stream. */
static void a_message_has_no_space_at_its_ends(void **state)
{
    static const char text[] = " a  b ";
    char encoded[32], decoded[32];

    (void)state;
    assert_int_equal(grpc_message_encode(encoded, sizeof(encoded), text, 6), 10);
    assert_string_equal(encoded, "%20a  b%20");
    assert_int_equal(grpc_message_decode(decoded, sizeof(decoded), encoded, 10), 6);
    assert_memory_equal(decoded, text, 6);
    assert_int_equal(grpc_message_encode(encoded, sizeof(encoded), " ", 1), 3);
    for (size_t size = 1; size < sizeof(encoded); size++) {
        const size_t n = grpc_message_encode(encoded, size, text, 6);

        assert_true(n == 0 || (encoded[0] != ' ' && encoded[n - 1] != ' '));
    }
}

static void messages_are_escaped_and_read_back(void **state)
{
    char text[256], back[256];
    size_t len;

    (void)state;
    grpc_message_encode(text, sizeof(text), "caf\xc3\xa9 100%\n~", 12);
    assert_string_equal(text, "caf%C3%A9 100%25%0A~");
    len = grpc_message_decode(back, sizeof(back), text, strlen(text));
    assert_int_equal(len, 12);
    assert_memory_equal(back, "caf\xc3\xa9 100%\n~", 12);
    for (int c = 0; c < 256; c++) { /* every byte there and back */
        const char byte = (char)c;

        len = grpc_message_encode(text, sizeof(text), &byte, 1);
        assert_true(grpc_metadata_value_is_ok(text, len));
        assert_int_equal(grpc_message_decode(back, sizeof(back), text, len), 1);
        assert_int_equal(back[0], byte);
    }
}

static void a_message_that_does_not_fit_is_cut_between_characters_of_the_wire(void **state)
{
    (void)state;
    for (size_t size = 1; size < 12; size++) {
        char text[12];
        const size_t len = grpc_message_encode(text, size,
                                               "a\x01"
                                               "b\x02",
                                               4); /* a%01b%02 */
        const char *whole = size >= 9   ? "a%01b%02"
                            : size >= 6 ? "a%01b"
                            : size >= 5 ? "a%01"
                            : size >= 2 ? "a"
                                        : "";

        assert_string_equal(text, whole);
        assert_int_equal(len, strlen(whole));
        assert_int_equal(grpc_message_decode(text, size, "%41%42%43%44%45%46%47%48%49%4a%4b", 33),
                         size - 1);
    }
}

static void bad_escapes_stay_as_they_came(void **state)
{
    static const struct {
        const char *value, *text;
    } cases[] = {
        {"%", "%"},     {"%4", "%4"},     {"%zz", "%zz"},   {"100% sure", "100% sure"},
        {"%4G", "%4G"}, {"%%41", "%A"},   {"a%41%", "aA%"}, {"%e4%F6", "\xe4\xf6"},
        {"", ""},       {"\x80", "\x80"},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        char text[32];

        grpc_message_decode(text, sizeof(text), cases[i].value, strlen(cases[i].value));
        assert_string_equal(text, cases[i].text);
    }
}

static void status_codes_have_names_both_ways_and_parse_strictly(void **state)
{
    static const char *const unknown[] = {"",   "17", "00", "01",  "-1", "+1",
                                          " 1", "1 ", "99", "123", "x"};
    enum grpc_status status;

    (void)state;
    for (unsigned i = 0; i < GRPC_N_STATUS; i++) {
        char text[8];

        assert_true(grpc_status_find(grpc_status_name((enum grpc_status)i), &status));
        assert_int_equal(status, i);
        snprintf(text, sizeof(text), "%u", i);
        assert_int_equal(grpc_status_parse(text, strlen(text)), i);
    }
    assert_string_equal(grpc_status_name(GRPC_UNAUTHENTICATED), "UNAUTHENTICATED");
    assert_string_equal(grpc_status_name((enum grpc_status)99), "UNKNOWN");
    assert_false(grpc_status_find("unavailable", &status));
    for (size_t i = 0; i < ARRAY_LEN(unknown); i++)
        assert_int_equal(grpc_status_parse(unknown[i], strlen(unknown[i])), GRPC_UNKNOWN);
}

static void http_and_h2_codes_map_as_the_protocol_says(void **state)
{
    static const struct {
        int http;
        enum grpc_status status;
    } http[] = {
        {200, GRPC_UNKNOWN},           {400, GRPC_INTERNAL},      {401, GRPC_UNAUTHENTICATED},
        {403, GRPC_PERMISSION_DENIED}, {404, GRPC_UNIMPLEMENTED}, {429, GRPC_UNAVAILABLE},
        {431, GRPC_INTERNAL},          {500, GRPC_UNKNOWN},       {502, GRPC_UNAVAILABLE},
        {503, GRPC_UNAVAILABLE},       {504, GRPC_UNAVAILABLE},   {418, GRPC_UNKNOWN},
    };
    /* by number of RFC 9113 section 7, 0x0 to 0xd */
    static const enum grpc_status h2[] = {
        GRPC_INTERNAL,          GRPC_INTERNAL, GRPC_INTERNAL, GRPC_INTERNAL,
        GRPC_INTERNAL,          GRPC_UNKNOWN,  GRPC_INTERNAL, GRPC_UNAVAILABLE,
        GRPC_CANCELLED,         GRPC_INTERNAL, GRPC_INTERNAL, GRPC_RESOURCE_EXHAUSTED,
        GRPC_PERMISSION_DENIED, GRPC_UNKNOWN,
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(http); i++)
        assert_int_equal(grpc_status_of_http(http[i].http), http[i].status);
    for (uint32_t i = 0; i < ARRAY_LEN(h2); i++)
        assert_int_equal(grpc_status_of_h2(i), h2[i]);
    assert_int_equal(grpc_status_of_h2(0x1234), GRPC_UNKNOWN);
}

static void content_types_of_grpc_are_known(void **state)
{
    static const char *const good[] = {"application/grpc", "application/grpc+proto",
                                       "application/grpc+json", "application/grpc;charset=utf-8",
                                       "Application/GRPC"};
    static const char *const bad[] = {"",
                                      "application/grp",
                                      "application/grpc-web",
                                      "application/grpc-web+proto",
                                      "application/grpcx",
                                      "application/json",
                                      "text/application/grpc"};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(good); i++)
        assert_true(grpc_content_type_is_ok(good[i], strlen(good[i])));
    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        assert_false(grpc_content_type_is_ok(bad[i], strlen(bad[i])));
}

static void paths_split_into_service_and_method(void **state)
{
    static const char *const bad[] = {"",        "/",      "//",     "/a",     "/a/",    "//b",
                                      "a/b",     "x",      "/a/b#c", "/a/b?c", "/a/b;c", "/a/%62",
                                      "/../a/b", "/a/./b", "/a//b",  "/a/b c", "/a/..."};
    const char *service, *method;
    size_t service_len, method_len;

    (void)state;
    assert_true(
        grpc_path_split("/pkg.Service/Method", 19, &service, &service_len, &method, &method_len));
    assert_int_equal(service_len, 11);
    assert_memory_equal(service, "pkg.Service", 11);
    assert_int_equal(method_len, 6);
    assert_memory_equal(method, "Method", 6);
    assert_true(grpc_path_split("/a/b/c", 6, &service, &service_len, &method, &method_len));
    assert_memory_equal(service, "a/b", service_len);
    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        assert_false(
            grpc_path_split(bad[i], strlen(bad[i]), &service, &service_len, &method, &method_len));
}

static void metadata_names_and_values_follow_the_rules(void **state)
{
    (void)state;
    assert_true(grpc_metadata_name_is_ok("x-user_id.2", 11));
    assert_false(grpc_metadata_name_is_ok("", 0));
    assert_false(grpc_metadata_name_is_ok("X-User", 6));
    assert_false(grpc_metadata_name_is_ok(":path", 5));
    assert_false(grpc_metadata_name_is_ok("a b", 3));
    assert_true(grpc_metadata_is_binary("trace-bin", 9));
    assert_false(grpc_metadata_is_binary("bin", 3));
    assert_true(grpc_metadata_is_reserved("grpc-timeout", 12));
    assert_false(grpc_metadata_is_reserved("grpc", 4));
    assert_true(grpc_metadata_value_is_ok(" ~", 2));
    assert_false(grpc_metadata_value_is_ok("a\tb", 3));
    assert_false(grpc_metadata_value_is_ok("\x7f", 1));
    assert_false(grpc_metadata_value_is_ok("\xc3\xa9", 2));
}

/* RFC 4648 section 10, and both alphabets' ends. */
static void binary_values_are_base64_padded_or_not(void **state)
{
    static const struct {
        const char *bytes, *text, *padded;
    } cases[] = {
        {"", "", ""},
        {"f", "Zg", "Zg=="},
        {"fo", "Zm8", "Zm8="},
        {"foo", "Zm9v", "Zm9v"},
        {"foob", "Zm9vYg", "Zm9vYg=="},
        {"fooba", "Zm9vYmE", "Zm9vYmE="},
        {"foobar", "Zm9vYmFy", "Zm9vYmFy"},
        {"\xfb\xff\xbf", "+/+/", "+/+/"},
    };
    static const char *const bad[] = {
        "Z", "Zg=", "Zh", "Zm9", "Zm9vY", "Z===", "====", "Zg==Zg==", "Zm 9v", "Zm-_", "=", "Zg=a"};
    uint8_t bytes[32];
    char text[32];
    size_t len;

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        const size_t n = strlen(cases[i].bytes);

        assert_int_equal(grpc_bin_encode(text, (const uint8_t *)cases[i].bytes, n),
                         strlen(cases[i].text));
        assert_string_equal(text, cases[i].text);
        assert_true(strlen(cases[i].text) < GRPC_BIN_TEXT_SIZE(n));
        assert_true(grpc_bin_decode(bytes, cases[i].text, strlen(cases[i].text), &len));
        assert_int_equal(len, n);
        assert_memory_equal(bytes, cases[i].bytes, n);
        assert_true(grpc_bin_decode(bytes, cases[i].padded, strlen(cases[i].padded), &len));
        assert_int_equal(len, n);
    }
    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        assert_false(grpc_bin_decode(bytes, bad[i], strlen(bad[i]), &len));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_message_has_no_space_at_its_ends),
        cmocka_unit_test(the_reader_sees_the_same_messages_however_they_are_split),
        cmocka_unit_test(a_written_prefix_reads_back),
        cmocka_unit_test(timeouts_parse_by_the_rule),
        cmocka_unit_test(a_formatted_timeout_is_never_longer_and_loses_little),
        cmocka_unit_test(messages_are_escaped_and_read_back),
        cmocka_unit_test(a_message_that_does_not_fit_is_cut_between_characters_of_the_wire),
        cmocka_unit_test(bad_escapes_stay_as_they_came),
        cmocka_unit_test(status_codes_have_names_both_ways_and_parse_strictly),
        cmocka_unit_test(http_and_h2_codes_map_as_the_protocol_says),
        cmocka_unit_test(content_types_of_grpc_are_known),
        cmocka_unit_test(paths_split_into_service_and_method),
        cmocka_unit_test(metadata_names_and_values_follow_the_rules),
        cmocka_unit_test(binary_values_are_base64_padded_or_not),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
