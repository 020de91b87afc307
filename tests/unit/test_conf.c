#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/arena.h"
#include "conf/edit.h"
#include "conf/field.h"
#include "conf/generation.h"
#include "conf/json_in.h"
#include "conf/nearest.h"
#include "conf/rules.h"

struct part {
    const char *name;
    uint32_t size_mib;
};
struct thing {
    const char *title;
    uint32_t wait_ms;
    bool fast;
    int colour;
    const char **tags;
    size_t n_tags;
    struct part main_part;
    struct part *parts;
    size_t n_parts;
    struct conf_pair *names;
    size_t n_names;
};
static const char *const colours[] = {"red", "green", NULL};
static const struct conf_field part_fields[] = {
    CONF_UINT(struct part, size_mib, "size_mib", .unit = "MiB", .min = 1, .max = 10, .dflt = 3),
    CONF_END,
};
static const struct conf_table part_table = {.size = sizeof(struct part), .fields = part_fields};
static const struct conf_field thing_fields[] = {
    CONF_STR(struct thing, title, "title", .required = true, .max = 8),
    CONF_UINT(struct thing, wait_ms, "wait_ms", .unit = "ms", .max = 60000, .dflt = 300),
    CONF_BOOL(struct thing, fast, "fast", .dflt = true),
    CONF_ENUM(struct thing, colour, "colour", .words = colours, .dflt = 1),
    CONF_STRS(struct thing, tags, "tags", .max = 2, .max_value = 4),
    CONF_OBJECT(struct thing, main_part, "main_part", .table = &part_table),
    CONF_MAP(struct thing, parts, "parts", .max = 2, .table = &part_table,
             .key_rule = conf_rule_name),
    CONF_PAIRS(struct thing, names, "names", .of = CONF_KIND_UINT, .max = 4, .max_value = 100),
    CONF_END,
};
static const struct conf_table thing_table = {.size = sizeof(struct thing), .fields = thing_fields};

struct loaded {
    struct arena arena;
    struct conf_problems problems;
    struct thing thing;
    int result;
};

static int set_up(void **state)
{
    static struct loaded l;

    memset(&l, 0, sizeof(l));
    arena_init(&l.arena, 1 << 20);
    conf_problems_init(&l.problems);
    *state = &l;
    return 0;
}

static int tear_down(void **state)
{
    struct loaded *const l = *state;

    conf_problems_fini(&l->problems);
    arena_fini(&l->arena);
    return 0;
}

static const char *load(struct loaded *l, const char *text)
{
    l->result = conf_load_text(&l->arena, &thing_table, text, strlen(text), "t.json", &l->thing,
                               &l->problems);
    return buf_cstr(&l->problems.text);
}

static void what_is_not_written_has_its_default(void **state)
{
    struct loaded *const l = *state;

    assert_string_equal(load(l, "{\"title\":\"a\"}"), "");
    assert_int_equal(l->result, 0);
    assert_string_equal(l->thing.title, "a");
    assert_int_equal(l->thing.wait_ms, 300);
    assert_true(l->thing.fast);
    assert_int_equal(l->thing.colour, 1);
    assert_int_equal(l->thing.n_tags, 0);
    assert_int_equal(l->thing.main_part.size_mib, 3);
    assert_int_equal(l->thing.n_parts, 0);
}

static void what_is_written_is_taken_at_the_edges_of_its_limits(void **state)
{
    struct loaded *const l = *state;

    assert_string_equal(load(l, "{\"title\":\"12345678\",\"wait_ms\":60000,\"fast\":false,"
                                "\"colour\":\"red\",\"tags\":[\"abcd\",\"e\"],"
                                "\"main_part\":{\"size_mib\":10},\"parts\":{\"x\":{},"
                                "\"y\":{\"size_mib\":1}},\"names\":{\"n\":100},\"x-note\":[{}]}"),
                        "");
    assert_int_equal(l->thing.wait_ms, 60000);
    assert_false(l->thing.fast);
    assert_int_equal(l->thing.colour, 0);
    assert_int_equal(l->thing.n_tags, 2);
    assert_string_equal(l->thing.tags[1], "e");
    assert_int_equal(l->thing.main_part.size_mib, 10);
    assert_int_equal(l->thing.n_parts, 2);
    assert_string_equal(l->thing.parts[0].name, "x");
    assert_int_equal(l->thing.parts[0].size_mib, 3);
    assert_int_equal(l->thing.parts[1].size_mib, 1);
    assert_string_equal(l->thing.names[0].key, "n");
    assert_int_equal(l->thing.names[0].number, 100);
}

static void every_problem_is_told_and_the_rest_is_loaded(void **state)
{
    struct loaded *const l = *state;

    assert_string_equal(
        load(l, "{\"wait_ms\":60001,\"titel\":\"a\",\"colour\":\"gren\",\"tags\":[\"abcde\",7],"
                "\"parts\":{\"a/b~c\":{\"size_mib\":0}},\"fast\":false}"),
        "t.json#/wait_ms: 60001 is over the limit of 60000 ms\n"
        "t.json#/titel: unknown key; nearest: title\n"
        "t.json#/colour: \"gren\" is not one of: red, green; nearest: green\n"
        "t.json#/tags/0: \"abcde\" has 5 bytes, over the limit of 4 bytes\n"
        "t.json#/tags/1: 7 is not a string\n"
        "t.json#/parts/a~1b~0c: \"a/b~c\" has a character that is not a letter, a digit or one of "
        ". _ -\n"
        "t.json#/parts/a~1b~0c/size_mib: 0 is under the limit of 1 MiB\n"
        "t.json#/title: is missing; it is required\n");
    assert_int_equal(l->result, -EINVAL);
    assert_int_equal(l->problems.n, 8);
    assert_int_equal(l->thing.wait_ms, 300); /* what is wrong keeps its default */
    assert_false(l->thing.fast);
}

static void text_cut_anywhere_is_refused_and_nothing_leaks(void **state)
{
    struct loaded *const l = *state;
    static const char text[] =
        "{\"title\":\"a\",\"parts\":{\"x\":{\"size_mib\":1}},\"tags\":[\"b\"]}";

    for (size_t len = 0; len < sizeof(text) - 1; len++) {
        struct thing thing = {0};

        assert_int_equal(
            conf_load_text(&l->arena, &thing_table, text, len, "t.json", &thing, &l->problems),
            -EINVAL);
    }
    assert_int_equal(l->problems.n, sizeof(text) - 1);
}

static void an_arena_that_is_full_is_a_problem_and_no_crash(void **state)
{
    struct loaded *const l = *state;
    char text[2048];

    arena_fini(&l->arena);
    arena_init(&l->arena, 64);
    snprintf(text, sizeof(text),
             "{\"title\":\"12345678\",\"tags\":[\"abcd\",\"abcd\"],\"parts\":{\"%0300d\":{}}}", 1);
    load(l, text);
    assert_int_equal(l->result, -EINVAL);
    assert_non_null(strstr(buf_cstr(&l->problems.text), "over the limit of 64 bytes"));
}

static void more_problems_than_fit_are_counted(void **state)
{
    struct loaded *const l = *state;
    struct buf text;

    buf_init(&text, 1 << 20);
    buf_append_str(&text, "{\"title\":\"a\"");
    for (int i = 0; i < 1500; i++)
        buf_printf(&text, ",\"qqqq%d\":1", i);
    buf_append_str(&text, "}");
    load(l, buf_cstr(&text));
    buf_fini(&text);
    assert_int_equal(l->problems.n, 1500);
    assert_non_null(strstr(buf_cstr(&l->problems.text), "qqqq998: unknown key\n"));
    assert_null(strstr(buf_cstr(&l->problems.text), "qqqq999"));
    assert_non_null(strstr(buf_cstr(&l->problems.text), "and more"));
}

static void a_generation_keeps_its_text_in_one_form(void **state)
{
    struct loaded *const l = *state;
    static const char one[] = "{\"models\": {\"m.json\": {\"versions\": {\"1\": {\"command\": "
                              "[\"c\"]}},\n \"model\": \"m\"}}}";
    struct generation *const g = generation_load_text(one, sizeof(one) - 1, &l->problems);

    assert_non_null(g);
    assert_string_equal(g->source_json, "{\"models\":{\"m.json\":{\"model\":\"m\",\"versions\":{"
                                        "\"1\":{\"command\":[\"c\"]}}}}}");
    struct generation *const again =
        generation_load_text(g->source_json, strlen(g->source_json), &l->problems);

    assert_string_equal(again->source_json, g->source_json);
    assert_int_equal(again->models[0].traffic[0], WEIGHT_WHOLE);
    assert_string_equal(again->queues[0].name, "default");
    generation_unref(again);
    generation_unref(generation_ref(g));
    generation_unref(g);
}

static void file_names_from_the_network_stay_names(void **state)
{
    struct loaded *const l = *state;
    static const char text[] = "{\"models\":{\"../../etc/x.json\":{\"model\":\"m\"}},\"extra\":{}}";

    assert_null(generation_load_text(text, sizeof(text) - 1, &l->problems));
    assert_non_null(strstr(buf_cstr(&l->problems.text),
                           "models: file name \"../../etc/x.json\" does not begin with a letter"));
    assert_non_null(strstr(buf_cstr(&l->problems.text), "generation: unknown part \"extra\""));
}

/* Rules between keys are judged wherever their own keys are in order, whatever else is wrong. */
static void a_mistake_hides_no_rule_elsewhere_in_its_file(void **state)
{
    static const char text[] =
        "{\"models\":{\"m.json\":{\"model\":\"m\",\"colour\":1,"
        "\"versions\":{\"1\":{\"command\":[\"a\"],\"gpu\":{\"milli\":1500,\"memory_mib\":1}},"
        "\"2\":{\"command\":[\"a\"],\"gpu\":{\"milli\":1500,\"memory_mb\":1}}},"
        "\"traffic\":{\"1\":9000,\"2\":900},"
        "\"scaling\":{\"min\":3,\"max\":2}}}}";
    struct loaded *const l = *state;
    const char *said;

    assert_null(generation_load_text(text, sizeof(text) - 1, &l->problems));
    said = buf_cstr(&l->problems.text);
    assert_non_null(strstr(said, "m.json#/colour: unknown key"));
    assert_non_null(strstr(said, "m.json#/versions/1/gpu/milli: 1500 is over one card"));
    assert_non_null(strstr(said, "m.json#/versions/2/gpu/memory_mb: unknown key; nearest: memory"));
    assert_null(strstr(said, "/versions/2/gpu/memory_mib")); /* said already, as memory_mb */
    assert_non_null(strstr(said, "m.json#/traffic: the weights sum to 9900"));
    assert_non_null(strstr(said, "m.json#/scaling/min: 3 is over scaling.max, which is 2"));
    assert_int_equal(l->problems.n, 5);
}

static void the_nearest_word_is_near(void **state)
{
    static const struct {
        const char *word, *want; /* want NULL: none of them is near */
    } rows[] = {
        {"trafic", "traffic"},
        {"taffic", "traffic"},
        {"deadline", "deadline_ms"},
        {"modle", "model"},
        {"m", NULL},
        {"", NULL},
        {"zzzzzz", NULL},
        {"traffic", "traffic"},
        {"timeout", NULL},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct nearest n;

        nearest_init(&n, rows[i].word);
        nearest_offer(&n, "model");
        nearest_offer(&n, "traffic");
        nearest_offer(&n, "deadline_ms");
        if (rows[i].want == NULL)
            assert_null(n.best);
        else
            assert_string_equal(n.best, rows[i].want);
    }
    assert_int_equal(nearest_distance("ab", "ba"), 1);
    assert_int_equal(nearest_distance("kitten", "sitting"), 3);
    assert_int_equal(nearest_distance("", "abc"), 3);
}

static struct generation *generation_of(struct loaded *l, const char *text)
{
    struct generation *const g = generation_load_text(text, strlen(text), &l->problems);

    assert_string_equal(buf_cstr(&l->problems.text), "");
    return g;
}

#define M(file, weights)                                                                           \
    "\"" file ".json\":{\"model\":\"m\",\"traffic\":" weights                                      \
    ",\"versions\":{\"1\":{\"command\":[\"c\"]},\"2\":{\"command\":[\"c\"]}}}"
#define OTHER(id) "\"o.json\":{\"model\":\"o\",\"endpoints\":[\"a:" id "\"]}"

static void one_model_goes_back_and_the_others_stay(void **state)
{
    struct loaded *const l = *state;
    struct generation *const old =
        generation_of(l, "{\"models\":{" M("m", "{\"1\":10000}") "," OTHER("1") "}}");
    struct generation *const now =
        generation_of(l, "{\"models\":{" M("m2", "{\"2\":10000}") "," OTHER("2") "}}");
    char *const text = edit_model_from(now, old, "m");
    struct generation *const back = generation_of(l, text);

    assert_true(edit_same_model(back, old, "m"));
    assert_false(edit_same_model(now, old, "m"));
    assert_true(edit_same_model(back, now, "o"));
    assert_true(edit_same_model(back, now, "neither"));
    assert_string_equal(back->models[0].file, "models/m.json");
    assert_int_equal(back->n_models, 2);
    free(text);
    generation_unref(old);
    generation_unref(now);
    generation_unref(back);
}

static void traffic_is_replaced_and_the_diff_says_so(void **state)
{
    struct loaded *const l = *state;
    const struct conf_pair weights[] = {{.key = "1", .number = 9000}, {.key = "2", .number = 1000}};
    struct generation *const now =
        generation_of(l, "{\"models\":{" M("m", "{\"1\":10000}") "," OTHER("1") "}}");
    char *const text = edit_traffic(now, "m", weights, 2);
    struct buf diff;

    buf_init(&diff, 4096);
    edit_diff(now->source_json, text, &diff);
    assert_string_equal(buf_cstr(&diff), "models/m.json#/traffic/1: 10000 -> 9000\n"
                                         "models/m.json#/traffic/2: + 1000\n");
    buf_reset(&diff);
    edit_diff(NULL, "{\"models\":{\"o.json\":{}}}", &diff);
    assert_string_equal(buf_cstr(&diff), "models/o.json#: + {}\n");
    assert_null(edit_traffic(now, "x", weights, 2));
    buf_fini(&diff);
    free(text);
    generation_unref(now);
}

static void what_an_answer_lacks_reads_as_its_default(void **state)
{
    static const char text[] = "{\"a\":{\"n\":3,\"s\":\"x\",\"list\":[true,-1]}}";
    struct json_doc *const d = json_doc_parse(text, sizeof(text) - 1, NULL);
    const struct json_at *const a = json_at_member(json_doc_top(d), "a");

    (void)state;
    assert_int_equal(json_at_uint(a, "n", 9), 3);
    assert_int_equal(json_at_uint(a, "s", 9), 9);
    assert_string_equal(json_at_str(a, "s", "-"), "x");
    assert_string_equal(json_at_str(json_at_member(a, "none"), "s", "-"), "-");
    assert_int_equal(json_at_n(json_at_member(a, "list")), 2);
    assert_true(json_at_bool(json_at_item(json_at_member(a, "list"), 0), NULL, false));
    assert_int_equal(json_at_uint(json_at_item(json_at_member(a, "list"), 1), NULL, 7), 7);
    json_doc_free(d);

    struct err err;

    assert_null(json_doc_parse("{", 1, &err));
    assert_non_null(strstr(err.text, "not JSON: line 1"));
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(what_is_not_written_has_its_default),
        TEST(what_is_written_is_taken_at_the_edges_of_its_limits),
        TEST(every_problem_is_told_and_the_rest_is_loaded),
        TEST(text_cut_anywhere_is_refused_and_nothing_leaks),
        TEST(an_arena_that_is_full_is_a_problem_and_no_crash),
        TEST(more_problems_than_fit_are_counted),
        TEST(a_mistake_hides_no_rule_elsewhere_in_its_file),
        TEST(a_generation_keeps_its_text_in_one_form),
        TEST(file_names_from_the_network_stay_names),
        TEST(the_nearest_word_is_near),
        TEST(one_model_goes_back_and_the_others_stay),
        TEST(traffic_is_replaced_and_the_diff_says_so),
        TEST(what_an_answer_lacks_reads_as_its_default),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
