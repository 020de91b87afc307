/* gateway/shapes: what a row says of a message is what a walk of that message says. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/rng.h"
#include "gateway/shapes.h"

#define NAME  "\x0a\x05model"
#define BYTES 600

/* The walk without memory, as inbound.c makes it: false when the message is not relayed. */
static bool walk_of(struct walker *w, enum walker_kind kind, const uint8_t *m, uint32_t len)
{
    size_t taken = 0;
    enum walker_result r;

    walker_init(w, kind, 0);
    r = walker_begin(w, len);
    if (len > 0)
        r = walker_feed_to_ready(w, m, len, &taken);
    if (r != WALKER_READY || w->name.len == 0)
        return false;
    walker_commit(w);
    return taken == len || walker_feed(w, m + taken, len - taken) != WALKER_REFUSED;
}

static void learn(struct shapes *t, enum walker_kind kind, const uint8_t *m, uint32_t len)
{
    const struct route route = {.model = 7, .version = 3};

    for (int i = 0; i < 3 && shapes_find(t, kind, m, len) == NULL; i++)
        shapes_learn(t, kind, m, len, &route);
}

static uint32_t message_of(uint8_t *m, const char *head, size_t head_len, uint32_t tensor_bytes)
{
    uint32_t n = (uint32_t)head_len;

    memcpy(m, head, head_len);
    m[n++] = 0x3a; /* raw_input_contents, skipped */
    m[n++] = (uint8_t)(0x80 | (tensor_bytes & 0x7f));
    m[n++] = (uint8_t)(tensor_bytes >> 7);
    memset(m + n, 0x55, tensor_bytes);
    return n + tensor_bytes;
}

static void a_message_with_another_tensor_is_known(void **state)
{
    struct shapes t;
    uint8_t m[BYTES];
    const uint32_t len = message_of(m, NAME, sizeof(NAME) - 1, 300);
    const struct shape_row *row;

    (void)state;
    shapes_init(&t);
    learn(&t, WALKER_NAME_VERSION, m, len);
    memset(m + len - 300, 0x0a, 300);
    row = shapes_find(&t, WALKER_NAME_VERSION, m, len);
    assert_non_null(row);
    assert_int_equal(row->route.model, 7);
    assert_int_equal(row->walked.name.len, 5);
    assert_memory_equal(row->walked.name.bytes, "model", 5);
    m[3] = 'M';
    assert_null(shapes_find(&t, WALKER_NAME_VERSION, m, len));
    m[3] = 'o';
    assert_null(shapes_find(&t, WALKER_MODEL_SPEC, m, len));
    assert_null(shapes_find(&t, WALKER_NAME_VERSION, m, len - 1));
    shapes_fini(&t);
}

static void after_a_reset_nothing_is_known(void **state)
{
    struct shapes t;
    uint8_t m[BYTES];
    const uint32_t len = message_of(m, NAME, sizeof(NAME) - 1, 20);

    (void)state;
    shapes_init(&t);
    learn(&t, WALKER_NAME_VERSION, m, len);
    assert_non_null(shapes_find(&t, WALKER_NAME_VERSION, m, len));
    shapes_reset(&t);
    assert_null(shapes_find(&t, WALKER_NAME_VERSION, m, len));
    shapes_fini(&t);
}

static void a_message_that_is_refused_or_has_no_name_is_never_learnt(void **state)
{
    static const char twice[] = NAME "\x0a\x05other";
    static const char renamed[] = NAME "\x12\x01"
                                       "1\x3a\x01x\x12\x01"
                                       "2";
    static const char nameless[] = "\x3a\x03xyz";
    struct shapes t;
    struct walker w;

    (void)state;
    shapes_init(&t);
    learn(&t, WALKER_NAME_VERSION, (const uint8_t *)renamed, sizeof(renamed) - 1);
    assert_null(
        shapes_find(&t, WALKER_NAME_VERSION, (const uint8_t *)renamed, sizeof(renamed) - 1));
    learn(&t, WALKER_NAME_VERSION, (const uint8_t *)nameless, sizeof(nameless) - 1);
    assert_null(
        shapes_find(&t, WALKER_NAME_VERSION, (const uint8_t *)nameless, sizeof(nameless) - 1));
    /* Before the commit the last name wins, as in a decoder. */
    learn(&t, WALKER_NAME_VERSION, (const uint8_t *)twice, sizeof(twice) - 1);
    assert_true(walk_of(&w, WALKER_NAME_VERSION, (const uint8_t *)twice, sizeof(twice) - 1));
    assert_memory_equal(w.name.bytes, "other", 5);
    assert_memory_equal(
        shapes_find(&t, WALKER_NAME_VERSION, (const uint8_t *)twice, sizeof(twice) - 1)
            ->walked.name.bytes,
        "other", 5);
    shapes_fini(&t);
}

/* A thousand messages of random fields, each then changed at random: whenever a row fits, a walk
 * without memory relays the message and finds the same name and version. */
static void whatever_fits_walks_alike(void **state)
{
    static const uint8_t tags[] = {0x0a, 0x12, 0x1a, 0x22, 0x2a, 0x3a, 0x08, 0x10, 0x0d};
    struct shapes t;
    struct rng rng;
    uint32_t fitted = 0, changed = 0;

    (void)state;
    rng_init(&rng, 4);
    shapes_init(&t);
    for (int i = 0; i < 1000; i++) {
        const enum walker_kind kind = 1 + (enum walker_kind)rng_below(&rng, 3);
        uint8_t m[BYTES];
        uint32_t len = 0;
        struct walker w;

        shapes_reset(&t);
        for (uint64_t n = 1 + rng_below(&rng, 6); n > 0; n--) {
            const uint32_t inner = (uint32_t)rng_below(&rng, 12);

            m[len] = len == 0 ? 0x0a : tags[rng_below(&rng, ARRAY_LEN(tags))];
            len++;
            m[len++] = (uint8_t)inner;
            for (uint32_t k = 0; k < inner; k++)
                m[len++] = (uint8_t)(rng_below(&rng, 2) ? 'a' + rng_below(&rng, 3) : 0x0a);
        }
        learn(&t, kind, m, len);
        for (int change = 0; change < 40; change++) {
            uint8_t other[BYTES];
            const struct shape_row *row;

            memcpy(other, m, len);
            if (change > 0)
                other[rng_below(&rng, len)] = (uint8_t)rng_next(&rng);
            row = shapes_find(&t, kind, other, len);
            if (row == NULL)
                continue;
            fitted++;
            changed += memcmp(other, m, len) != 0;
            assert_true(walk_of(&w, kind, other, len));
            assert_int_equal(row->walked.choice, w.choice);
            assert_int_equal(row->walked.name.len, w.name.len);
            assert_memory_equal(row->walked.name.bytes, w.name.bytes, w.name.len);
            assert_int_equal(row->walked.version.len, w.version.len);
            assert_memory_equal(row->walked.version.bytes, w.version.bytes, w.version.len);
        }
    }
    assert_true(fitted > 500 && changed > 100);
    shapes_fini(&t);
}

/* A later message of the call is held against the first, walked or only recognised. */
static void a_resumed_walker_holds_later_messages_against_the_first(void **state)
{
    static const struct {
        const char *bytes;
        size_t len;
        enum walker_result want;
    } later[] = {
        {NAME, sizeof(NAME) - 1, WALKER_MORE},
        {"\x0a\x05other", 7, WALKER_REFUSED},
        {NAME "\x12\x01"
              "9",
         sizeof(NAME) + 2, WALKER_REFUSED},
        {"\x3a\x01x", 3, WALKER_REFUSED},
    };
    uint8_t m[BYTES];
    const uint32_t len = message_of(m, NAME, sizeof(NAME) - 1, 20);
    struct walker_shape shape;
    struct walker walked, w;

    (void)state;
    assert_true(walker_take_shape(&shape, &walked, WALKER_NAME_VERSION, m, len));
    for (size_t i = 0; i < ARRAY_LEN(later); i++) {
        memset(&w, 0xa5, sizeof(w)); /* as a call before has left it */
        walker_resume(&w, &walked);
        walker_begin(&w, (uint32_t)later[i].len);
        assert_int_equal(walker_feed(&w, (const uint8_t *)later[i].bytes, later[i].len),
                         later[i].want);
    }
}

/* Two that share a row do not push each other out in turn, and a new one does get in. */
static void one_in_use_stays_and_one_out_of_use_goes(void **state)
{
    struct shapes t;
    uint8_t a[BYTES], b[BYTES];
    const uint32_t len = message_of(a, NAME, sizeof(NAME) - 1, 20);
    const struct route route = {.model = 1};

    (void)state;
    message_of(b, "\x0a\x05madel", 7, 20);
    shapes_init(&t);
    learn(&t, WALKER_NAME_VERSION, a, len);
    for (int i = 0; i < 10; i++) {
        assert_non_null(shapes_find(&t, WALKER_NAME_VERSION, a, len));
        if (shapes_find(&t, WALKER_NAME_VERSION, b, len) == NULL)
            shapes_learn(&t, WALKER_NAME_VERSION, b, len, &route);
    }
    learn(&t, WALKER_NAME_VERSION, b, len);
    assert_non_null(shapes_find(&t, WALKER_NAME_VERSION, b, len));
    shapes_fini(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_message_with_another_tensor_is_known),
        cmocka_unit_test(after_a_reset_nothing_is_known),
        cmocka_unit_test(a_message_that_is_refused_or_has_no_name_is_never_learnt),
        cmocka_unit_test(whatever_fits_walks_alike),
        cmocka_unit_test(a_resumed_walker_holds_later_messages_against_the_first),
        cmocka_unit_test(one_in_use_stays_and_one_out_of_use_goes),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
