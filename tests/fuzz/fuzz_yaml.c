/* tests/fuzz/fuzz_yaml.c - the YAML door: any bytes are documents within the limits, or an error
 * with words; every value can be reached and has a line and a path. */
#include <stdint.h>
#include <string.h>

#include "base/check.h"
#include "conf/yaml_in.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static uint32_t walk(const struct yaml_value *v, unsigned depth)
{
    char path[64];
    uint32_t n = 1;

    check(depth <= YAML_DEPTH_MAX && v->line > 0);
    check(strlen(yaml_path(v, path, sizeof(path))) < sizeof(path));
    check((v->text != NULL) == (v->kind < YAML_LIST));
    for (uint32_t i = 0; i < v->n_items; i++) {
        if (v->kind == YAML_MAP)
            check(yaml_member(v, v->keys[i]) == v->items[i]);
        n += walk(v->items[i], depth + 1);
    }
    check(n == v->n_values);
    return n;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct err err = {0};
    struct yaml_text *const y = yaml_text_parse((const char *)data, size, &err);
    uint64_t n = 0;

    check((y == NULL) == (err.text[0] != '\0'));
    for (size_t i = 0; y != NULL && i < yaml_text_n_docs(y); i++)
        n += walk(yaml_text_doc(y, i), 0);
    check(n <= YAML_VALUES_MAX);
    yaml_text_free(y);
    return 0;
}
