#include "proto/walker.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/check.h"

/* A message as a literal, with its length: M("\x0a\x01m"). */
struct bytes {
    const char *p;
    size_t len;
};
#define M(text) ((struct bytes){text, sizeof(text) - 1})

/* Feeds a message in two pieces (the first of split bytes; 0: byte by byte) without a commit. */
static enum walker_result walk(struct walker *w, enum walker_kind kind, struct bytes m,
                               size_t split)
{
    const uint8_t *p = (const uint8_t *)m.p;
    enum walker_result r;

    walker_init(w, kind, 0);
    r = walker_begin(w, (uint32_t)m.len);
    if (split > 0) {
        r = walker_feed(w, p, split);
        return split < m.len ? walker_feed(w, p + split, m.len - split) : r;
    }
    for (size_t i = 0; i < m.len; i++)
        r = walker_feed(w, p + i, 1);
    return r;
}

/* "name", "name=version", "name~label" or "refused" */
static const char *verdict(const struct walker *w, enum walker_result r)
{
    static char text[600];

    if (r == WALKER_REFUSED)
        return "refused";
    assert_int_equal(r, WALKER_READY);
    assert_true(walker_is_complete(w));
    snprintf(text, sizeof(text), "%.*s%s%.*s", w->name.len, w->name.bytes,
             w->choice == WALKER_LABEL     ? "~"
             : w->choice == WALKER_VERSION ? "="
                                           : "",
             w->version.len, w->version.bytes);
    return text;
}

static void assert_walks(enum walker_kind kind, struct bytes m, const char *expected)
{
    for (size_t split = 0; split <= m.len; split++) {
        struct walker w;

        if (m.len == 0 && split > 0)
            break;
        assert_string_equal(verdict(&w, walk(&w, kind, m, split)), expected);
    }
}

#define KSERVE(bytes, expected) assert_walks(WALKER_NAME_VERSION, M(bytes), expected)
#define SPEC(bytes, expected)   assert_walks(WALKER_MODEL_SPEC, M(bytes), expected)
#define TASKS(bytes, expected)  assert_walks(WALKER_TASKS, M(bytes), expected)

static void kserve_names_are_found_wherever_they_are(void **state)
{
    (void)state;
    KSERVE("", "");
    KSERVE("\x0a\x01m", "m");
    KSERVE("\x0a\x01m\x12\x01"
           "3",
           "m=3");
    KSERVE("\x0a\x07"
           "ads_ctr\x12\x02"
           "12\x1a\x05"
           "req-1\x2a\x03xyz",
           "ads_ctr=12");
    KSERVE("\x3a\x05tenso\x12\x01"
           "3\x0a\x01m",
           "m=3");                             /* tensor, version, name */
    KSERVE("\x0a\x01m\x12\x00", "m");          /* an empty version is none */
    KSERVE("\x0a\x01m\x3a\x00\x0a\x01n", "n"); /* the last one wins */
    KSERVE("\x0a\x01m\x12\x01"
           "1\x12\x01"
           "2\x12\x00",
           "m");
    KSERVE("\x0a\x04\xf0\x9f\x90\x8d", "\xf0\x9f\x90\x8d");
}

static void odd_encodings_are_read_as_decoders_do(void **state)
{
    (void)state;
    KSERVE("\x8a\x00\x01m", "m");                             /* tag in two bytes */
    KSERVE("\x8a\x80\x80\x80\x00\x81\x80\x80\x80\x00m", "m"); /* tag and length in five */
    KSERVE("\x08\x05\x0a\x01m\x0d"
           "1234\x09"
           "12345678",
           "m"); /* field 1 of other wire types */
    KSERVE("\x18\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01\x0a\x01m", "m"); /* varint of ten bytes */
    KSERVE("\xfa\xff\xff\xff\x0f\x01x\x0a\x01m", "m"); /* the highest field number */
    KSERVE("\x22\x04\x0a\x02xx\x0a\x01m", "m");        /* a name inside another field is no name */
}

static void what_decoders_reject_or_differ_on_is_refused(void **state)
{
    (void)state;
    KSERVE("\x0b\x0c", "refused");                      /* group of field 1 */
    KSERVE("\x0a\x01m\x0c", "refused");                 /* end of no group */
    KSERVE("\x0e\x00", "refused");                      /* wire type 6 */
    KSERVE("\x0f\x00", "refused");                      /* wire type 7 */
    KSERVE("\x02\x01x", "refused");                     /* field 0 */
    KSERVE("\x8a\x80\x80\x80\x80\x00\x01m", "refused"); /* tag in six bytes */
    KSERVE("\x8a\x80\x80\x80\x10\x01m", "refused");     /* tag past 32 bits */
    KSERVE("\x0a\x81\x80\x80\x80\x80\x00m", "refused"); /* length in six bytes */
    KSERVE("\x0a\x02m", "refused");                     /* longer than the message */
    KSERVE("\x0a\xff\xff\xff\xff\x0fm", "refused");
    KSERVE("\x0a\x01m\x12", "refused");     /* ends after a tag */
    KSERVE("\x0a\x01m\x92", "refused");     /* ends in a tag */
    KSERVE("\x0a\x01m\x18", "refused");     /* ends before a value */
    KSERVE("\x0a\x01m\x18\x80", "refused"); /* ends in a value */
    KSERVE("\x0a\x01m\x1d"
           "123",
           "refused");                                                     /* ends in a fixed32 */
    KSERVE("\x18\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", "refused"); /* eleven bytes */
    KSERVE("\x0a\x02\xc3\x28", "refused");                                 /* not UTF-8 */
    KSERVE("\x0a\x03\xed\xa0\x80", "refused");                             /* a surrogate */
    KSERVE("\x0a\x02\xc0\x80", "refused");                                 /* overlong */
    KSERVE("\x0a\x01m\x12\x01\xff", "refused");
}

static void model_specs_merge(void **state)
{
    (void)state;
    SPEC("", "");
    SPEC("\x0a\x00", "");
    SPEC("\x0a\x06\x0a\x04wide", "wide");
    SPEC("\x0a\x1f\x0a\x04wide\x1a\x0fserving_default\x22\x06stable\x12\x00", "wide~stable");
    SPEC("\x0a\x0a\x0a\x04wide\x12\x02\x08\x07", "wide=7");
    SPEC("\x0a\x08\x0a\x04wide\x12\x00", "wide=0"); /* an empty Int64Value is 0, and is there */
    SPEC("\x0a\x13\x0a\x04wide\x12\x0b\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", "wide=-1");
    SPEC("\x0a\x03\x0a\x01m\x0a\x04\x12\x02\x08\x03", "m=3"); /* name, then a version alone */
    SPEC("\x0a\x03\x0a\x01m\x12\x02xx\x0a\x03\x22\x01L", "m~L");
    SPEC("\x0a\x07\x22\x01L\x12\x02\x08\x03\x0a\x03\x0a\x01m", "m=3"); /* oneof: the later wins */
    SPEC("\x0a\x07\x12\x02\x08\x03\x22\x01L\x0a\x03\x0a\x01m", "m~L");
    SPEC("\x0a\x07\x12\x02\x08\x03\x22\x01L\x0a\x02\x12\x00", "=0"); /* and starts anew */
    SPEC("\x0a\x04\x12\x02\x08\x03\x0a\x02\x12\x00", "=3");          /* the same one merges */
    SPEC("\x0a\x06\x0a\x01m\x12\x01x", "refused");       /* Int64Value cut by its own length */
    SPEC("\x0a\x03\x0a\x02mx", "refused");               /* name longer than the spec */
    SPEC("\x0a\x01\x0a\x01m", "refused");                /* tag at the spec's end */
    SPEC("\x0a\x05\x12\x03\x08\x80\x80\x00", "refused"); /* varint runs out of the Int64Value */
    SPEC("\x0a\x0d\x12\x0b\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02", "refused"); /* 65 bits */
    SPEC("\x0a\x03\x10\x05\x08\x0a\x03\x0a\x01m", "refused"); /* tag 8 at the end lacks its value */
    SPEC("\x0a\x02\x10\x05\x0a\x03\x0a\x01m", "m"); /* version of another wire type: unknown */
    SPEC("\x08\x05\x0a\x03\x0a\x01m", "m");
}

static void all_tasks_must_agree_and_the_first_counts(void **state)
{
    (void)state;
    TASKS("", "");
    TASKS("\x0a\x05\x0a\x03\x0a\x01m", "m");
    TASKS("\x0a\x05\x0a\x03\x0a\x01m\x0a\x05\x0a\x03\x0a\x01m", "m");
    TASKS("\x0a\x05\x0a\x03\x0a\x01m\x0a\x05\x0a\x03\x0a\x01n", "refused");
    TASKS("\x0a\x05\x0a\x03\x0a\x01m\x0a\x00", "refused"); /* names no model */
    TASKS("\x0a\x09\x0a\x07\x0a\x01m\x12\x02\x08\x02\x0a\x05\x0a\x03\x0a\x01m", "m=2");
    TASKS("\x0a\x09\x0a\x07\x0a\x01m\x12\x02\x08\x02\x0a\x09\x0a\x07\x0a\x01m\x12\x02\x08\x02",
          "m=2");
    TASKS("\x0a\x09\x0a\x07\x0a\x01m\x12\x02\x08\x02\x0a\x09\x0a\x07\x0a\x01m\x12\x02\x08\x03",
          "refused");
    TASKS("\x0a\x05\x0a\x03\x0a\x01m\x0a\x09\x0a\x07\x0a\x01m\x12\x02\x08\x03", "refused");
    TASKS("\x0a\x0a\x0a\x03\x0a\x01m\x0a\x03\x0a\x01n", "n"); /* two specs in one task merge */
}

static void names_have_a_limit(void **state)
{
    char bytes[600] = {0x0a, (char)0xff, 0x01}; /* field 1, 255 bytes */
    char text[200];
    struct walker w;

    (void)state;
    memset(bytes + 3, 'x', 255);
    assert_int_equal(walk(&w, WALKER_NAME_VERSION, (struct bytes){bytes, 258}, 7), WALKER_READY);
    assert_int_equal(w.name.len, 255);
    bytes[1] = (char)0x80; /* 256 */
    bytes[2] = 0x02;
    assert_int_equal(walk(&w, WALKER_NAME_VERSION, (struct bytes){bytes, 259}, 7), WALKER_REFUSED);
    assert_string_equal(walker_explain(&w, text, sizeof(text)),
                        "the model name has 256 bytes, over the limit of 255");
}

/* Feeds byte by byte and returns after how many bytes the result was first `want`. */
static size_t first_at(struct walker *w, struct bytes m, enum walker_result want)
{
    for (size_t i = 0; i < m.len; i++)
        if (walker_feed(w, (const uint8_t *)m.p + i, 1) == want)
            return i + 1;
    return SIZE_MAX;
}

static void ready_comes_with_the_first_field_behind_name_and_version(void **state)
{
    const struct bytes kserve = M("\x0a\x01m\x12\x01"
                                  "3\x2a\x7f");
    const struct bytes spec = M("\x0a\x03\x0a\x01m\x12\x7f");
    const struct bytes late = M("\x3a\x01x\x0a\x01m\x12\x01"
                                "3\x2a\x7f");
    struct walker w;

    (void)state;
    walker_init(&w, WALKER_NAME_VERSION, 0);
    walker_begin(&w, 1 << 20);
    assert_int_equal(first_at(&w, kserve, WALKER_READY), 7); /* the tag 2a */
    walker_init(&w, WALKER_MODEL_SPEC, 0);
    walker_begin(&w, 1 << 20);
    assert_int_equal(first_at(&w, spec, WALKER_READY), 6);
    /* A field before the name says nothing: the version may still follow. */
    walker_init(&w, WALKER_NAME_VERSION, 0);
    walker_begin(&w, 1 << 20);
    assert_int_equal(first_at(&w, late, WALKER_READY), 10);
    assert_int_equal(w.version.len, 1);
    walker_init(&w, WALKER_NAME_VERSION, 0);
    assert_int_equal(walker_begin(&w, 0), WALKER_READY); /* complete, without a name */
}

static void it_looks_only_so_far_for_a_name(void **state)
{
    static uint8_t zeros[100];
    const uint8_t tensor[] = {0x3a, 0x80, 0x08}, name[] = {0x0a, 0x01, 'm'};
    struct walker w;

    (void)state;
    walker_init(&w, WALKER_NAME_VERSION, 100);
    walker_begin(&w, 2000);
    assert_int_equal(walker_feed(&w, tensor, 3), WALKER_MORE);
    assert_int_equal(walker_feed(&w, zeros, 96), WALKER_MORE);
    assert_int_equal(walker_feed(&w, zeros, 1), WALKER_BLIND);

    walker_init(&w, WALKER_NAME_VERSION, 100);
    walker_begin(&w, 2000);
    assert_int_equal(walker_feed(&w, name, 3), WALKER_MORE);
    assert_int_equal(walker_feed(&w, (const uint8_t *)"\x12\x7f", 2), WALKER_MORE);
    assert_int_equal(walker_feed(&w, zeros, 95),
                     WALKER_READY); /* inside the version: as far as known */
    assert_int_equal(w.choice, WALKER_ANY);
    walker_commit(&w);
    assert_int_equal(walker_feed(&w, zeros, 32), WALKER_REFUSED); /* and then it comes */
}

/* Commits after the first piece; the rest is fed at once, then byte by byte. */
static void assert_after_commit(enum walker_kind kind, struct bytes first, struct bytes rest,
                                const char *refusal)
{
    for (int whole = 0; whole < 2; whole++) {
        enum walker_result r = WALKER_MORE;
        struct walker w;
        char text[400];

        walker_init(&w, kind, 0);
        walker_begin(&w, (uint32_t)(first.len + rest.len));
        walker_feed(&w, (const uint8_t *)first.p, first.len);
        walker_commit(&w);
        if (whole == 1)
            r = walker_feed(&w, (const uint8_t *)rest.p, rest.len);
        for (size_t i = 0; i < rest.len && whole == 0; i++)
            r = walker_feed(&w, (const uint8_t *)rest.p + i, 1);
        assert_int_equal(r, *refusal == '\0' ? WALKER_MORE : WALKER_REFUSED);
        assert_string_equal(walker_explain(&w, text, sizeof(text)), refusal);
    }
}

static void after_the_commit_only_the_same_may_come(void **state)
{
    (void)state;
    assert_after_commit(WALKER_NAME_VERSION, M("\x0a\x01m\x3a"), M("\x01x\x0a\x01m"), "");
    assert_after_commit(WALKER_NAME_VERSION, M("\x0a\x01m\x3a"), M("\x01x\x0a\x01n"),
                        "the request names model \"m\" and then \"n\": one call, one model");
    assert_after_commit(WALKER_NAME_VERSION, M("\x0a\x01m\x3a"),
                        M("\x01x\x12\x01"
                          "3"),
                        "the request for model \"m\" names version \"3\" after \"\"");
    assert_after_commit(WALKER_NAME_VERSION,
                        M("\x0a\x01m\x12\x01"
                          "3\x3a"),
                        M("\x01x\x12\x01"
                          "3"),
                        "");
    assert_after_commit(WALKER_NAME_VERSION, M("\x0a\x01m\x3a"), M("\x01x\x12\x00"), "");
    assert_after_commit(
        WALKER_NAME_VERSION, M("\x0a\x01m\x3a"), M("\x01x\x0b"),
        "the request message has a group (wire type 3 or 4), which is not supported");
    assert_after_commit(WALKER_MODEL_SPEC, M("\x0a\x07\x0a\x01m\x12\x02\x08\x03\x12"),
                        M("\x00\x0a\x02\x12\x00"), ""); /* merges: still 3 */
    assert_after_commit(WALKER_MODEL_SPEC, M("\x0a\x07\x0a\x01m\x12\x02\x08\x03\x12"),
                        M("\x00\x0a\x02\x22\x00"),
                        "the request for model \"m\" names label \"\" after \"3\"");
    assert_after_commit(WALKER_MODEL_SPEC, M("\x0a\x06\x0a\x01m\x22\x01L\x12"),
                        M("\x00\x0a\x04\x12\x02\x08\x00"),
                        "the request for model \"m\" names version \"0\" after \"L\"");
    assert_after_commit(WALKER_MODEL_SPEC, M("\x0a\x03\x0a\x01m\x12"), M("\x00\x0a\x00\x08\x01"),
                        "");
}

static void every_message_of_a_stream_must_name_the_same_model(void **state)
{
    static const struct {
        struct bytes m;
        enum walker_result result;
    } later[] = {
        {{"\x0a\x01m\x12\x01"
          "3",
          6},
         WALKER_MORE},
        {{"\x12\x01"
          "3\x0a\x01m",
          6},
         WALKER_MORE},
        {{"\x0a\x01m", 3}, WALKER_REFUSED}, /* no version: the server's latest */
        {{"\x12\x01"
          "3",
          3},
         WALKER_REFUSED}, /* no name */
        {{"", 0}, WALKER_REFUSED},
        {{"\x0a\x01n\x12\x01"
          "3",
          6},
         WALKER_REFUSED},
        {{"\x0a\x01m\x12\x01"
          "4",
          6},
         WALKER_REFUSED},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(later); i++) {
        const uint8_t *p = (const uint8_t *)later[i].m.p;
        struct walker w;
        enum walker_result r;

        walk(&w, WALKER_NAME_VERSION,
             M("\x0a\x01m\x12\x01"
               "3"),
             0);
        walker_commit(&w);
        for (int good = 0; good < 2; good++) {
            assert_int_equal(walker_begin(&w, 6), WALKER_MORE);
            assert_int_equal(walker_feed(&w,
                                         (const uint8_t *)"\x0a\x01m\x12\x01"
                                                          "3",
                                         6),
                             WALKER_MORE);
        }
        r = walker_begin(&w, (uint32_t)later[i].m.len);
        for (size_t k = 0; k < later[i].m.len; k++)
            r = walker_feed(&w, p + k, 1);
        assert_int_equal(r, later[i].result);
    }
}

static void a_hint_stands_for_a_name_that_comes_late(void **state)
{
    static uint8_t zeros[64];
    struct walker w;
    char text[200];

    (void)state;
    for (int i = 0; i < 4; i++) {
        walker_init(&w, WALKER_NAME_VERSION, 32);
        walker_begin(&w, 3 + 2 + 64 + 3);
        walker_feed(&w,
                    (const uint8_t *)"\x12\x01"
                                     "3\x3a\x40",
                    5);
        assert_int_equal(walker_feed(&w, zeros, 64), WALKER_BLIND);
        switch (i) {
        case 0:
            assert_int_equal(walker_commit_hint(&w, "m", 1, WALKER_VERSION, "3", 1), WALKER_MORE);
            assert_int_equal(walker_feed(&w, (const uint8_t *)"\x0a\x01m", 3), WALKER_MORE);
            break;
        case 1:
            assert_int_equal(walker_commit_hint(&w, "m", 1, WALKER_VERSION, "3", 1), WALKER_MORE);
            assert_int_equal(walker_feed(&w, (const uint8_t *)"\x0a\x01n", 3), WALKER_REFUSED);
            break;
        case 2: /* the message said 3 already */
            assert_int_equal(walker_commit_hint(&w, "m", 1, WALKER_VERSION, "4", 1),
                             WALKER_REFUSED);
            assert_string_equal(walker_explain(&w, text, sizeof(text)),
                                "the request for model \"m\" names version \"3\" after \"4\"");
            break;
        default: /* the name never comes */
            assert_int_equal(walker_commit_hint(&w, "m", 1, WALKER_VERSION, "3", 1), WALKER_MORE);
            assert_int_equal(walker_feed(&w, (const uint8_t *)"\x3a\x01x", 3), WALKER_REFUSED);
        }
    }
}

static void an_override_wins_over_whatever_the_message_says(void **state)
{
    static const struct {
        enum walker_kind kind;
        struct bytes m;
        const char *version, *expected;
    } cases[] = {
        {WALKER_NAME_VERSION, {"\x0a\x01m", 3}, "2", "m=2"},
        {WALKER_NAME_VERSION, {"\x0a\x01m\x12\x06stable\x3a\x01x", 14}, "17", "m=17"},
        {WALKER_NAME_VERSION,
         {"\x0a\x01m\x12\x01"
          "3",
          6},
         "",
         "m"},
        {WALKER_MODEL_SPEC, {"\x0a\x03\x0a\x01m\x12\x00", 7}, "2", "m=2"},
        {WALKER_MODEL_SPEC, {"\x0a\x06\x0a\x01m\x22\x01L", 8}, "0", "m=0"},
        {WALKER_MODEL_SPEC, {"\x0a\x07\x0a\x01m\x12\x02\x08\x05", 9}, "0", "m=0"},
        {WALKER_MODEL_SPEC,
         {"\x0a\x07\x0a\x01m\x12\x02\x08\x05", 9},
         "-9223372036854775808",
         "m=-9223372036854775808"},
    };
    static const char *const not_numbers[] = {"", "stable", "1x", "-", " 1", "9223372036854775808"};
    uint8_t bytes[WALKER_OVERRIDE_MAX];

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        char joined[400];
        size_t n;

        memcpy(joined, cases[i].m.p, cases[i].m.len);
        n = walker_override(cases[i].kind, cases[i].version, strlen(cases[i].version), bytes);
        assert_true(n > 0);
        memcpy(joined + cases[i].m.len, bytes, n);
        assert_walks(cases[i].kind, (struct bytes){joined, cases[i].m.len + n}, cases[i].expected);
    }
    for (size_t i = 0; i < ARRAY_LEN(not_numbers); i++)
        assert_int_equal(
            walker_override(WALKER_MODEL_SPEC, not_numbers[i], strlen(not_numbers[i]), bytes), 0);
    assert_int_equal(walker_override(WALKER_TASKS, "1", 1, bytes), 0);
    assert_int_equal(walker_override(WALKER_NAME_VERSION, "1", 256, bytes), 0);
}

static void a_refusal_stays(void **state)
{
    struct walker w;

    (void)state;
    walk(&w, WALKER_NAME_VERSION, M("\x0b"), 0);
    assert_int_equal(walker_feed(&w, (const uint8_t *)"\x0a\x01m", 3), WALKER_REFUSED);
    assert_int_equal(walker_begin(&w, 3), WALKER_REFUSED);
    assert_false(walker_is_complete(&w));
}

static void paths_say_where_the_model_is(void **state)
{
    static const struct {
        const char *path;
        enum walker_kind kind;
    } cases[] = {
        {"/inference.GRPCInferenceService/ModelInfer", WALKER_NAME_VERSION},
        {"/inference.GRPCInferenceService/ModelStreamInfer", WALKER_NAME_VERSION},
        {"/inference.GRPCInferenceService/ServerLive", WALKER_NONE},
        {"/inference.GRPCInferenceService/ModelInferX", WALKER_NONE},
        {"/inference.GRPCInferenceService/modelinfer", WALKER_NONE},
        {"/tensorflow.serving.PredictionService/Predict", WALKER_MODEL_SPEC},
        {"/tensorflow.serving.PredictionService/MultiInference", WALKER_TASKS},
        {"/tensorflow.serving.ModelService/GetModelStatus", WALKER_MODEL_SPEC},
        {"/tensorflow.serving.ModelService/HandleReloadConfigRequest", WALKER_NONE},
        {"", WALKER_NONE},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++)
        assert_int_equal(walker_kind_of_path(cases[i].path, strlen(cases[i].path)), cases[i].kind);
}

/* As the relay does: to the place where the route may be taken, commit, and on. */
static enum walker_result walk_and_commit(struct walker *w, const uint8_t *p, size_t len)
{
    enum walker_result r = WALKER_MORE;

    while (len > 0 && r != WALKER_REFUSED) {
        size_t taken;

        r = walker_feed_to_ready(w, p, len, &taken);
        if (r == WALKER_READY)
            walker_commit(w);
        p += taken;
        len -= taken;
    }
    return r;
}

static void a_name_behind_the_route_is_refused_however_it_is_cut(void **state)
{
    static const struct {
        struct bytes m;
        enum walker_result expected;
    } rows[] = {
        {{"\x0a\x01m\x1a\x01i\x0a\x01n", sizeof("\x0a\x01m\x1a\x01i\x0a\x01n") - 1},
         WALKER_REFUSED},
        {{"\x0a\x01m\x1a\x01i\x12\x01\x31", sizeof("\x0a\x01m\x1a\x01i\x12\x01\x31") - 1},
         WALKER_REFUSED}, /* a version where none was */
        {{"\x0a\x01m\x1a\x01i\x0a\x01m", sizeof("\x0a\x01m\x1a\x01i\x0a\x01m") - 1}, WALKER_MORE},
        {{"\x0a\x01m\x0a\x01n\x1a\x01i", sizeof("\x0a\x01m\x0a\x01n\x1a\x01i") - 1},
         WALKER_MORE}, /* before it: the last one counts */
    };

    (void)state;
    for (size_t row = 0; row < ARRAY_LEN(rows); row++) {
        const struct bytes m = rows[row].m;
        const uint8_t *p = (const uint8_t *)m.p;

        for (size_t split = 0; split <= m.len; split++) {
            struct walker w;
            enum walker_result r;

            walker_init(&w, WALKER_NAME_VERSION, 0);
            walker_begin(&w, (uint32_t)m.len);
            r = walk_and_commit(&w, p, split);
            if (r != WALKER_REFUSED && split < m.len)
                r = walk_and_commit(&w, p + split, m.len - split);
            if (r == WALKER_READY) /* committed at its last byte */
                r = WALKER_MORE;
            assert_int_equal(r, rows[row].expected);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(kserve_names_are_found_wherever_they_are),
        cmocka_unit_test(odd_encodings_are_read_as_decoders_do),
        cmocka_unit_test(what_decoders_reject_or_differ_on_is_refused),
        cmocka_unit_test(model_specs_merge),
        cmocka_unit_test(all_tasks_must_agree_and_the_first_counts),
        cmocka_unit_test(names_have_a_limit),
        cmocka_unit_test(ready_comes_with_the_first_field_behind_name_and_version),
        cmocka_unit_test(it_looks_only_so_far_for_a_name),
        cmocka_unit_test(after_the_commit_only_the_same_may_come),
        cmocka_unit_test(every_message_of_a_stream_must_name_the_same_model),
        cmocka_unit_test(a_hint_stands_for_a_name_that_comes_late),
        cmocka_unit_test(an_override_wins_over_whatever_the_message_says),
        cmocka_unit_test(a_name_behind_the_route_is_refused_however_it_is_cut),
        cmocka_unit_test(a_refusal_stays),
        cmocka_unit_test(paths_say_where_the_model_is),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
