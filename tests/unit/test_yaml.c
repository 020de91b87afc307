/* The YAML door: core schema of YAML 1.2.2 (tables of its section 10.3.2), places, limits. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "conf/yaml_in.h"

static struct yaml_text *parse(const char *text)
{
    struct err err = {0};
    struct yaml_text *const y = yaml_text_parse(text, strlen(text), &err);

    if (y == NULL)
        fail_msg("%s: %s", text, err.text);
    return y;
}

static void refused(const char *text, const char *want)
{
    struct err err = {0};
    struct yaml_text *const y = yaml_text_parse(text, strlen(text), &err);

    if (y != NULL || strstr(err.text, want) == NULL)
        fail_msg("%.80s: \"%s\", not \"%s\"", text, y != NULL ? "read" : err.text, want);
}

static void scalars_are_those_of_the_core_schema(void **state)
{
    static const struct {
        const char *text;
        enum yaml_kind kind;
        int64_t number;
    } rows[] = {
        {"null", YAML_NULL, 0},
        {"Null", YAML_NULL, 0},
        {"~", YAML_NULL, 0},
        {"nULL", YAML_STRING, 0},
        {"true", YAML_BOOL, 1},
        {"False", YAML_BOOL, 0},
        {"yes", YAML_STRING, 0},
        {"no", YAML_STRING, 0},
        {"on", YAML_STRING, 0},
        {"y", YAML_STRING, 0},
        {"0", YAML_INT, 0},
        {"-19", YAML_INT, -19},
        {"+12", YAML_INT, 12},
        {"0o7", YAML_INT, 7},
        {"0o17", YAML_INT, 15},
        {"0x3A", YAML_INT, 58},
        {"0777", YAML_INT, 777},
        {"0o8", YAML_STRING, 0},
        {"-0x3A", YAML_STRING, 0},
        {"1_000", YAML_STRING, 0},
        {"12:30:45", YAML_STRING, 0},
        {"2001-12-14", YAML_STRING, 0},
        {"9223372036854775807", YAML_INT, INT64_MAX},
        {"-9223372036854775807", YAML_INT, -INT64_MAX},
        {"0.", YAML_FLOAT, 0},
        {"-0.0", YAML_FLOAT, 0},
        {".5", YAML_FLOAT, 0},
        {"+12e03", YAML_FLOAT, 0},
        {"-2E+05", YAML_FLOAT, 0},
        {".inf", YAML_FLOAT, 0},
        {"-.Inf", YAML_FLOAT, 0},
        {".NAN", YAML_FLOAT, 0},
        {".", YAML_STRING, 0},
        {"1e", YAML_STRING, 0},
        {"1.2.3", YAML_STRING, 0},
        {"16Gi", YAML_STRING, 0},
        {"'12'", YAML_STRING, 0},
        {"\"true\"", YAML_STRING, 0},
        {"''", YAML_STRING, 0},
        {"!!str 12", YAML_STRING, 0},
        {"! 12", YAML_STRING, 0},
        {"!!int 12", YAML_INT, 12},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char text[64];

        snprintf(text, sizeof(text), "a: %s\n", rows[i].text);
        struct yaml_text *const y = parse(text);
        const struct yaml_value *const v = yaml_member(yaml_text_doc(y, 0), "a");

        if (v->kind != rows[i].kind || v->number != rows[i].number || v->is_big)
            fail_msg("%s: kind %d number %lld", rows[i].text, (int)v->kind, (long long)v->number);
        yaml_text_free(y);
    }
}

static void a_number_over_64_bits_keeps_its_text(void **state)
{
    struct yaml_text *const y = parse("[9223372036854775808, 0xfffffffffffffffff]");
    struct yaml_value *const *const items = yaml_text_doc(y, 0)->items;

    (void)state;
    assert_int_equal(items[0]->kind, YAML_INT);
    assert_true(items[0]->is_big && items[1]->is_big);
    assert_string_equal(items[0]->text, "9223372036854775808");
    yaml_text_free(y);
}

static void every_value_knows_its_line_and_path(void **state)
{
    struct yaml_text *const y = parse("# a comment\n"
                                      "spec:\n"
                                      "  tasks:\n"
                                      "  - name: ps\n"
                                      "    replicas: 2   # two\n"
                                      "  - {name: worker, replicas: 4}\n"
                                      "metadata:\n"
                                      "  annotations:\n"
                                      "    a/b: |\n"
                                      "      one\n"
                                      "      two\n");
    const struct yaml_value *const top = yaml_text_doc(y, 0);
    const struct yaml_value *const tasks = yaml_member(yaml_member(top, "spec"), "tasks");
    const struct yaml_value *const n0 = yaml_member(tasks->items[0], "replicas");
    const struct yaml_value *const n1 = yaml_member(tasks->items[1], "replicas");
    const struct yaml_value *const note =
        yaml_member(yaml_member(yaml_member(top, "metadata"), "annotations"), "a/b");
    char path[128];

    (void)state;
    assert_int_equal(n0->line, 5);
    assert_string_equal(yaml_path(n0, path, sizeof(path)), "spec.tasks[0].replicas");
    assert_int_equal(n1->line, 6);
    assert_string_equal(yaml_path(n1, path, sizeof(path)), "spec.tasks[1].replicas");
    assert_string_equal(note->text, "one\ntwo\n");
    assert_string_equal(yaml_path(note, path, sizeof(path)), "metadata.annotations[\"a/b\"]");
    assert_string_equal(yaml_path(top, path, sizeof(path)), "");
    assert_string_equal(yaml_path(n0, path, 10), "spec.task");
    assert_null(yaml_member(top, "kind"));
    assert_null(yaml_member(n0, "kind"));
    yaml_text_free(y);
}

static void documents_are_separate_and_empty_ones_are_left_out(void **state)
{
    struct yaml_text *y = parse("---\n---\na: 1\n---\n# nothing\n---\nb: 2\n...\n");

    (void)state;
    assert_int_equal(yaml_text_n_docs(y), 2);
    assert_int_equal(yaml_member(yaml_text_doc(y, 1), "b")->line, 7);
    yaml_text_free(y);
    y = parse("");
    assert_int_equal(yaml_text_n_docs(y), 0);
    yaml_text_free(y);
}

static void json_is_yaml(void **state)
{
    struct yaml_text *const y =
        parse("{\n\t\"a\": [1, -2.5e3, true, null, \"\\u00e9\\/\\n\"],\n\t\"b\":{\"c\":\"yes\"}}");
    struct yaml_value *const *const a = yaml_member(yaml_text_doc(y, 0), "a")->items;

    (void)state;
    assert_int_equal(a[0]->number, 1);
    assert_int_equal(a[1]->kind, YAML_FLOAT);
    assert_int_equal(a[2]->kind, YAML_BOOL);
    assert_int_equal(a[3]->kind, YAML_NULL);
    assert_string_equal(a[4]->text, "\xc3\xa9/\n");
    assert_int_equal(yaml_member(yaml_member(yaml_text_doc(y, 0), "b"), "c")->line, 3);
    yaml_text_free(y);
}

static void an_alias_is_its_anchor_s_value(void **state)
{
    struct yaml_text *const y = parse("a: &x {n: 1}\nb: *x\nc: &x 7\nd: *x\n");
    const struct yaml_value *const top = yaml_text_doc(y, 0);

    (void)state;
    assert_ptr_equal(yaml_member(top, "b"), yaml_member(top, "a"));
    assert_int_equal(yaml_member(top, "d")->number, 7);
    yaml_text_free(y);
}

static void a_billion_laughs_are_not_read(void **state)
{
    struct buf b;

    (void)state;
    buf_init(&b, 65536);
    buf_append_str(&b, "a0: &a0 [lol,lol,lol,lol,lol,lol,lol,lol,lol,lol]\n");
    for (int i = 1; i < 9; i++) {
        buf_printf(&b, "a%d: &a%d [", i, i);
        for (int k = 0; k < 10; k++)
            buf_printf(&b, "%s*a%d", k > 0 ? "," : "", i - 1);
        buf_append_str(&b, "]\n");
    }
    refused(buf_cstr(&b), "more than 100000 values");
    buf_fini(&b);
    refused("a: &a [[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]\n"
            "b: [[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[*a]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]\n",
            "line 2 column 39: nested deeper than 64");
    refused("a: &x [*x]\n", "*x holds itself");
    refused("a: *x\n", "*x has no anchor before it");
}

static void what_could_be_read_in_two_ways_is_refused(void **state)
{
    (void)state;
    refused("a: 1\nb: 2\na: 3\n", "line 3 column 1: the key \"a\" stands in this map twice");
    refused("{\"a\": 1, \"a\": 1}", "the key \"a\" stands in this map twice");
    refused("x: &x {a: 1}\ny:\n  <<: *x\n", "line 3 column 3: a merge key (<<)");
    refused("? [a]\n: 1\n", "a key that is not a string");
    refused("a: !!binary aGk=\n", "the tag tag:yaml.org,2002:binary is not read here");
    refused("a: !thing {}\n", "the tag !thing is not read here");
    refused("a: !!int x\n", "the tag tag:yaml.org,2002:int is not read here");
    refused("a: \"b\\0c\"\n", "a string with a zero byte in it");
    refused("a: [1\n", "line ");
    refused("a: b: c\n", "line 1 column 5: ");
    refused("a: \xff\n", "byte 3: ");
    refused("a: '\x01'\n", "byte 4: ");
}

static void sizes_have_limits(void **state)
{
    struct buf b;

    (void)state;
    buf_init(&b, 8u * 1024 * 1024);
    for (unsigned i = 0; i < YAML_DEPTH_MAX; i++)
        buf_append_byte(&b, '[');
    for (unsigned i = 0; i < YAML_DEPTH_MAX; i++)
        buf_append_byte(&b, ']');
    yaml_text_free(parse(buf_cstr(&b)));
    buf_reset(&b);
    for (unsigned i = 0; i <= YAML_DEPTH_MAX; i++)
        buf_append_byte(&b, '[');
    refused(buf_cstr(&b), "nested deeper than 64");
    buf_reset(&b);
    for (unsigned i = 0; i < 3u * 1024 * 1024; i++)
        buf_append_byte(&b, '[');
    refused(buf_cstr(&b), "nested deeper than 64");
    buf_reset(&b);
    for (unsigned i = 0; i <= YAML_MEMBERS_MAX; i++)
        buf_printf(&b, "k%u: 1\n", i);
    refused(buf_cstr(&b), "more than 1000 members in one map");
    buf_reset(&b);
    for (unsigned i = 0; i < YAML_VALUES_MAX; i++)
        buf_append_str(&b, "- 1\n");
    refused(buf_cstr(&b), "more than 100000 values");
    buf_reset(&b);
    for (unsigned i = 0; i <= YAML_DOCS_MAX; i++)
        buf_append_str(&b, "--- 1\n");
    refused(buf_cstr(&b), "more than 100 documents");
    buf_reset(&b);
    for (unsigned i = 0; i <= YAML_ANCHORS_MAX; i++)
        buf_printf(&b, "- &a%u 1\n", i);
    refused(buf_cstr(&b), "more than 100 anchors");
    buf_reset(&b);
    while (b.len <= YAML_TEXT_BYTES_MAX)
        buf_append_str(&b, "# xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\n");
    refused(buf_cstr(&b), "is over the limit of 4194304 bytes");
    buf_fini(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(scalars_are_those_of_the_core_schema),
        cmocka_unit_test(a_number_over_64_bits_keeps_its_text),
        cmocka_unit_test(every_value_knows_its_line_and_path),
        cmocka_unit_test(documents_are_separate_and_empty_ones_are_left_out),
        cmocka_unit_test(json_is_yaml),
        cmocka_unit_test(an_alias_is_its_anchor_s_value),
        cmocka_unit_test(a_billion_laughs_are_not_read),
        cmocka_unit_test(what_could_be_read_in_two_ways_is_refused),
        cmocka_unit_test(sizes_have_limits),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
