#include "conf/reference.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "conf/tables.h"

/* ---- Markdown ---- */

static const char *kind_word(const struct conf_field *f)
{
    switch (f->kind) {
    case CONF_KIND_BOOL:
        return "true/false";
    case CONF_KIND_UINT:
        return "number";
    case CONF_KIND_ENUM:
        return "word";
    case CONF_KIND_STR:
        return "string";
    case CONF_KIND_STRS:
        return "strings";
    case CONF_KIND_OBJECT:
        return "object";
    case CONF_KIND_LIST:
        return "list of objects";
    case CONF_KIND_MAP:
        return "objects by name";
    case CONF_KIND_PAIRS:
        return f->of == CONF_KIND_UINT ? "numbers by name" : "strings by name";
    case CONF_KIND_JSON:
        return "any value";
    case CONF_KIND_END:
        break;
    }
    return "";
}

static void print_range(struct buf *out, const struct conf_field *f)
{
    switch (f->kind) {
    case CONF_KIND_UINT:
        buf_printf(out, "%" PRIu64 " to %" PRIu64, f->min, f->max);
        break;
    case CONF_KIND_ENUM:
        for (int i = 0; f->words[i] != NULL; i++)
            buf_printf(out, "%s`%s`", i == 0 ? "" : ", ", f->words[i]);
        break;
    case CONF_KIND_STR:
        buf_printf(out, "up to %" PRIu64 " bytes", f->max);
        break;
    case CONF_KIND_STRS:
        buf_printf(out, "up to %" PRIu64 ", each up to %" PRIu64 " bytes", f->max, f->max_value);
        break;
    case CONF_KIND_PAIRS:
        buf_printf(out, "up to %" PRIu64, f->max);
        if (f->of == CONF_KIND_UINT)
            buf_printf(out, ", each 0 to %" PRIu64, f->max_value);
        break;
    case CONF_KIND_LIST:
    case CONF_KIND_MAP:
        buf_printf(out, "up to %" PRIu64, f->max);
        break;
    case CONF_KIND_BOOL:
    case CONF_KIND_OBJECT:
    case CONF_KIND_JSON:
    case CONF_KIND_END:
        break;
    }
    if (f->unit != NULL)
        buf_printf(out, " %s", f->unit);
}

static void print_default(struct buf *out, const struct conf_field *f)
{
    if (f->required) {
        buf_append_str(out, "**required**");
        return;
    }
    switch (f->kind) {
    case CONF_KIND_BOOL:
        buf_append_str(out, f->dflt != 0 ? "true" : "false");
        break;
    case CONF_KIND_UINT:
        buf_printf(out, "%" PRIu64, f->dflt);
        break;
    case CONF_KIND_ENUM:
        buf_printf(out, "`%s`", f->words[f->dflt]);
        break;
    case CONF_KIND_STR:
        if (f->dflt_text != NULL)
            buf_printf(out, "`%s`", f->dflt_text);
        else
            buf_append_str(out, "empty");
        break;
    case CONF_KIND_STRS:
    case CONF_KIND_LIST:
    case CONF_KIND_MAP:
    case CONF_KIND_PAIRS:
        buf_append_str(out, "empty");
        break;
    case CONF_KIND_OBJECT:
    case CONF_KIND_JSON:
    case CONF_KIND_END:
        break;
    }
}

void conf_print_table(struct buf *out, const struct conf_table *table, int level)
{
    buf_printf(out,
               "%.*s %s\n\n%s\n\n| key | kind | range | default | meaning |\n"
               "| --- | --- | --- | --- | --- |\n",
               level, "####", table->title, table->doc);
    for (const struct conf_field *f = table->fields; f->kind != CONF_KIND_END; f++) {
        buf_printf(out, "| `%s` | %s | ", f->key, kind_word(f));
        print_range(out, f);
        buf_append_str(out, " | ");
        print_default(out, f);
        buf_printf(out, " | %s |\n", f->doc);
    }
    buf_append_str(out, "\n");
    for (const struct conf_field *f = table->fields; f->kind != CONF_KIND_END; f++) {
        if (f->table != NULL)
            conf_print_table(out, f->table, level < 4 ? level + 1 : level);
    }
}

void conf_print_reference(struct buf *out)
{
    buf_append_str(
        out,
        "# Config reference\n\n"
        "Made by `penstock check --print-reference` from the tables that the loader reads; a test "
        "compares.\n\n"
        "A config folder holds `models/*.json`, and may hold `nodes.json` and `queues.json`; "
        "together they are one *generation*, taken over whole or not at all. `penstock.json` "
        "describes one process and is read when it starts.\n\n"
        "- `penstock check DIR` prints every problem as `file#/json/pointer: value, rule` and "
        "exits "
        "78 when there is one.\n"
        "- A key that is not listed here is an error that names the nearest one; a key that is "
        "there twice is an error. Keys that begin with `x-` are your own notes.\n"
        "- Files are at most 4 MiB, at most 4096 models; brackets nest at most 32 deep.\n"
        "- Names of models, versions, labels, nodes and queues begin with a letter or digit and "
        "hold letters, digits, `.`, `_` and `-`.\n"
        "- Addresses are `host:port`, `[ipv6]:port` or `unix:/path`.\n\n"
        "Rules between keys: weights sum to 10000 and name versions of the model; labels too, and "
        "are not numbers; a version has `command` or `endpoints`, not both, and neither when the "
        "model has `endpoints`; versions of protocol `tensorflow` are numbers; `gpu.milli` is at "
        "most 1000 or whole cards, and a share of a card names its memory; `scaling.min` is at "
        "most "
        "`scaling.max`, the burst window at most the stable window; a model name or a service "
        "belongs to one file; the services that the gateway routes by model or answers by itself "
        "can't be claimed.\n\n"
        "Between one generation and the next: a version that has traffic can't leave; give it "
        "weight "
        "0 first.\n\n");
    conf_print_table(out, &conf_model_table, 2);
    conf_print_table(out, conf_nodes_field.table, 2);
    conf_print_table(out, conf_queues_field.table, 2);
    conf_print_table(out, &conf_process_table, 2);
}

/* ---- limits ---- */

static void print_limit_rows(struct buf *out, const char *title, const struct conf_table *table)
{
    buf_printf(out,
               "## %s\n\n| key | default | range | what it bounds | why this default |\n"
               "| --- | --- | --- | --- | --- |\n",
               title);
    for (const struct conf_field *f = table->fields; f->kind != CONF_KIND_END; f++) {
        if (f->why == NULL)
            continue;
        buf_printf(out, "| `%s` | ", f->key);
        print_default(out, f);
        buf_printf(out, "%s%s | ", f->unit != NULL ? " " : "", f->unit != NULL ? f->unit : "");
        print_range(out, f);
        buf_printf(out, " | %s | %s |\n", f->doc, f->why);
    }
    buf_append_str(out, "\n");
}

void conf_print_limits(struct buf *out)
{
    buf_append_str(
        out,
        "# Limits\n\n"
        "Made by `penstock check --print-limits` from the tables that the loader reads; a test "
        "compares.\n\n"
        "Every count, size and time that a peer chooses has a limit. One that a client runs into "
        "ends its call or its connection, never another's: the connection gets GOAWAY "
        "ENHANCE_YOUR_CALM with the reason as debug data, the log a line `ev=session_ended "
        "peer=... reason=...`, and `penstock_sessions_ended_REASON_total` counts it. At 75 % of "
        "`score` or `resets`, and at `calls_per_connection`, the connection is drained first: "
        "GOAWAY NO_ERROR, and what runs goes on.\n\n"
        "`penstock relay` takes each row of the first two tables as `--limit KEY=VALUE`. The admin "
        "interface has limits of its own and works when the data port is at its own.\n\n"
        "The engine `session` stands on nghttp2_session and has the same meter in front. What "
        "nghttp2 alone decides there: a SETTINGS frame that lifts the windows of open streams over "
        "2^31-1 resets these streams (`native`: the connection ends, RFC 9113 6.9.2); header "
        "strings over 64 KiB end the connection with COMPRESSION_ERROR; an :authority with "
        "userinfo "
        "passes. Under attack the good calls beside are slower on it than on `native`.\n\n");
    print_limit_rows(out, "penstock.json", &conf_process_table);
    print_limit_rows(out, "penstock.json, `limits`", &conf_client_limits_table);
    for (const struct conf_field *f = conf_model_table.fields; f->kind != CONF_KIND_END; f++)
        if (strcmp(f->key, "limits") == 0)
            print_limit_rows(out, "models/NAME.json, `limits`", f->table);
}

/* ---- JSON Schema ---- */

static json_t *schema_of_table(const struct conf_table *table);

static json_t *uint_schema(uint64_t min, uint64_t max)
{
    return json_pack("{s:s,s:I,s:I}", "type", "integer", "minimum", (json_int_t)min, "maximum",
                     (json_int_t)max);
}

static json_t *text_schema(uint64_t min, uint64_t max)
{
    return json_pack("{s:s,s:I,s:I}", "type", "string", "minLength", (json_int_t)min, "maxLength",
                     (json_int_t)max);
}

static json_t *words_schema(const char *const *words)
{
    json_t *const list = json_array();

    for (int i = 0; words[i] != NULL; i++)
        json_array_append_new(list, json_string(words[i]));
    return json_pack("{s:o}", "enum", list);
}

static json_t *schema_of_field(const struct conf_field *f)
{
    const json_int_t max = (json_int_t)f->max;

    switch (f->kind) {
    case CONF_KIND_BOOL:
        return json_pack("{s:s}", "type", "boolean");
    case CONF_KIND_UINT:
        return uint_schema(f->min, f->max);
    case CONF_KIND_ENUM:
        return words_schema(f->words);
    case CONF_KIND_STR:
        return text_schema(f->min, f->max);
    case CONF_KIND_STRS:
        return json_pack("{s:s,s:I,s:o}", "type", "array", "maxItems", max, "items",
                         text_schema(1, f->max_value));
    case CONF_KIND_OBJECT:
        return schema_of_table(f->table);
    case CONF_KIND_LIST:
        return json_pack("{s:s,s:I,s:o}", "type", "array", "maxItems", max, "items",
                         schema_of_table(f->table));
    case CONF_KIND_MAP:
        return json_pack("{s:s,s:I,s:o}", "type", "object", "maxProperties", max,
                         "additionalProperties", schema_of_table(f->table));
    case CONF_KIND_PAIRS:
        return json_pack(
            "{s:s,s:I,s:o}", "type", "object", "maxProperties", max, "additionalProperties",
            f->of == CONF_KIND_UINT ? uint_schema(0, f->max_value) : text_schema(1, f->max_value));
    case CONF_KIND_JSON:
    case CONF_KIND_END:
        break;
    }
    return json_object(); /* anything */
}

static json_t *default_schema(const struct conf_field *f)
{
    switch (f->kind) {
    case CONF_KIND_BOOL:
        return json_boolean(f->dflt != 0);
    case CONF_KIND_UINT:
        return json_integer((json_int_t)f->dflt);
    case CONF_KIND_ENUM:
        return json_string(f->words[f->dflt]);
    case CONF_KIND_STR:
        return json_string(f->dflt_text == NULL ? "" : f->dflt_text);
    default:
        return NULL;
    }
}

static json_t *schema_of_table(const struct conf_table *table)
{
    json_t *const properties = json_object();
    json_t *const required = json_array();

    for (const struct conf_field *f = table->fields; f->kind != CONF_KIND_END; f++) {
        json_t *const s = schema_of_field(f);

        json_object_set_new(s, "description", json_string(f->doc));
        if (f->required)
            json_array_append_new(required, json_string(f->key));
        else
            json_object_set_new(s, "default", default_schema(f)); /* NULL: nothing is set */
        json_object_set_new(properties, f->key, s);
    }
    return json_pack("{s:s,s:s,s:o,s:o,s:{s:{}},s:b}", "type", "object", "description", table->doc,
                     "properties", properties, "required", required, "patternProperties", "^x-",
                     "additionalProperties", 0);
}

static void print_json(struct buf *out, json_t *tree)
{
    char *const text = json_dumps(tree, JSON_INDENT(2));

    check(text != NULL);
    buf_append_str(out, text);
    buf_append_str(out, "\n");
    free(text);
    json_decref(tree);
}

void conf_print_schema(struct buf *out)
{
    print_json(out, json_pack("{s:s,s:s,s:{s:o,s:o,s:o,s:o}}", "$schema",
                              "https://json-schema.org/draft/2020-12/schema", "title",
                              "penstock config files", "$defs", "model",
                              schema_of_table(&conf_model_table), "nodes",
                              schema_of_field(&conf_nodes_field), "queues",
                              schema_of_field(&conf_queues_field), "process",
                              schema_of_table(&conf_process_table)));
}

/* ---- the config with its defaults ---- */

void conf_print_config(struct buf *out, const struct generation *g)
{
    json_t *const tree = json_loads(g->source_json, 0, NULL);
    json_t *const models = json_object();
    const char *file = NULL;
    json_t *object = NULL;

    check(tree != NULL); /* our own text */
    json_object_foreach(json_object_get(tree, "models"), file, object)
        json_object_set_new(models, file, conf_with_defaults(&conf_model_table, object));
    print_json(
        out,
        json_pack("{s:o,s:o,s:o}", "models", models, "nodes",
                  conf_map_with_defaults(&conf_nodes_field, json_object_get(tree, "nodes")),
                  "queues",
                  conf_map_with_defaults(&conf_queues_field, json_object_get(tree, "queues"))));
    json_decref(tree);
}
