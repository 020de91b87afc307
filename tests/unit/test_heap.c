#include "base/heap.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/rng.h"

#define N_NODES 200

/* Oracle: the smallest key by looking at every node. */
static void the_minimum_is_right_under_random_pushes_and_removals(void **state)
{
    struct heap_node nodes[N_NODES];
    struct heap h = {0};
    struct rng r;

    (void)state;
    memset(nodes, 0, sizeof(nodes));
    rng_init(&r, 2);
    for (int step = 0; step < 20000; step++) {
        struct heap_node *node = &nodes[rng_below(&r, N_NODES)];
        const struct heap_node *min = heap_min(&h);
        uint64_t expected = UINT64_MAX;

        for (size_t i = 0; i < N_NODES; i++)
            if (heap_node_is_linked(&nodes[i]) && nodes[i].key < expected)
                expected = nodes[i].key;
        if (expected == UINT64_MAX)
            assert_null(min);
        else
            assert_int_equal(min->key, expected);
        if (heap_node_is_linked(node))
            heap_remove(&h, node);
        else
            heap_push(&h, node, rng_below(&r, 100)); /* many equal keys */
    }
    heap_fini(&h);
    for (size_t i = 0; i < N_NODES; i++)
        assert_false(heap_node_is_linked(&nodes[i]));
}

static void taking_the_minimum_again_and_again_sorts(void **state)
{
    struct heap_node nodes[N_NODES];
    struct heap h = {0};
    uint64_t last = 0;
    struct rng r;

    (void)state;
    memset(nodes, 0, sizeof(nodes));
    rng_init(&r, 3);
    heap_remove(&h, &nodes[0]); /* on no heap: nothing happens */
    for (size_t i = 0; i < N_NODES; i++)
        heap_push(&h, &nodes[i], rng_next(&r));
    for (size_t i = 0; i < N_NODES; i++) {
        struct heap_node *min = heap_min(&h);

        assert_true(min->key >= last);
        last = min->key;
        heap_remove(&h, min);
    }
    assert_null(heap_min(&h));
    heap_fini(&h);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_minimum_is_right_under_random_pushes_and_removals),
        cmocka_unit_test(taking_the_minimum_again_and_again_sorts),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
