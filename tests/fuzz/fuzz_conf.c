/* tests/fuzz/fuzz_conf.c - the bytes of POST /v1/apply: any text is a generation or a list of
 * problems, and what is a generation stays the same one when its own text is loaded again. */
#include <stdint.h>
#include <string.h>

#include "base/check.h"
#include "conf/edit.h"
#include "conf/generation.h"
#include "conf/snapshot.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void again(const struct generation *g)
{
    struct conf_problems problems;

    conf_problems_init(&problems);
    struct generation *const same =
        generation_load_text(g->source_json, strlen(g->source_json), &problems);

    check(same != NULL && problems.n == 0);
    check(strcmp(same->source_json, g->source_json) == 0);
    check(same->n_models == g->n_models);
    for (size_t i = 0; i < g->n_models; i++) {
        uint32_t sum = 0;

        check(edit_same_model(g, same, g->models[i].name));
        for (size_t v = 0; v < g->models[i].n_versions; v++)
            sum += g->models[i].traffic[v];
        check(sum == WEIGHT_WHOLE);
    }
    snapshot_unref(snapshot_build(same, 1, NULL, 0, NULL, NULL));
    generation_unref(same);
    conf_problems_fini(&problems);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct conf_problems problems;

    conf_problems_init(&problems);
    struct generation *const g = generation_load_text((const char *)data, size, &problems);

    check((g == NULL) == (problems.n > 0));
    if (g != NULL)
        again(g);
    generation_unref(g);
    conf_problems_fini(&problems);
    return 0;
}
