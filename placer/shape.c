#include "placer/shape.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/xalloc.h"
#include "placer/plan.h"

void shape_table_init(struct shape_table *t)
{
    memset(t, 0, sizeof(*t));
    map_init(&t->by_bytes);
}

void shape_table_fini(struct shape_table *t)
{
    map_fini(&t->by_bytes);
    for (size_t i = 0; i < t->n_models; i++)
        free(t->models[i]);
    free(t->shapes);
    memset(t, 0, sizeof(*t));
}

uint32_t shape_intern(struct shape_table *t, const struct shape *s)
{
    const char *const key = (const char *)s; /* no padding: see the assertion */
    uintptr_t number;

    _Static_assert(sizeof(struct shape) == 4 * sizeof(uint32_t) + sizeof(uint64_t), "padding");
    check(s->n_cards <= PLAN_MAX_CARDS && s->card_milli <= PLAN_CARD_MILLI);
    check((s->n_cards == 0) == (s->card_milli == 0));
    check(s->n_cards <= 1 || s->card_milli == PLAN_CARD_MILLI);
    number = (uintptr_t)map_get(&t->by_bytes, key, sizeof(*s));
    if (number != 0)
        return (uint32_t)(number - 1);
    if (t->n == t->cap) {
        t->cap = t->cap == 0 ? 64 : t->cap * 2;
        t->shapes = xrealloc(t->shapes, t->cap, sizeof(*t->shapes));
    }
    t->shapes[t->n++] = *s;
    map_set(&t->by_bytes, key, sizeof(*s), (void *)t->n);
    return (uint32_t)(t->n - 1);
}

int shape_model(struct shape_table *t, const char *name, size_t len)
{
    for (size_t i = 0; i < t->n_models; i++)
        if (strlen(t->models[i]) == len && memcmp(t->models[i], name, len) == 0)
            return (int)i;
    if (t->n_models == SHAPE_MAX_MODELS)
        return -1;
    t->models[t->n_models] = xstrndup(name, len);
    return (int)t->n_models++;
}
