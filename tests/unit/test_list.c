#include "base/list.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

struct item {
    int value;
    struct list node;
};

/* The values on the list as one decimal number: 1, 2, 3 is 123. */
static int digits(struct list *l)
{
    int n = 0;

    list_each (l, it)
        n = n * 10 + list_entry(it, struct item, node)->value;
    return n;
}

static void items_stay_in_the_order_they_were_put(void **state)
{
    struct item items[] = {{.value = 1}, {.value = 2}, {.value = 3}, {.value = 4}};
    struct list l;

    (void)state;
    list_init(&l);
    assert_true(list_is_empty(&l));
    assert_null(list_first(&l, struct item, node));
    list_push_back(&l, &items[1].node);
    list_push_back(&l, &items[3].node);
    list_push_front(&l, &items[0].node);
    list_insert_before(&items[3].node, &items[2].node);
    assert_int_equal(digits(&l), 1234);
    assert_ptr_equal(list_first(&l, struct item, node), &items[0]);
    assert_ptr_equal(list_pop_front(&l), &items[0].node);
    assert_false(list_is_linked(&items[0].node));
    list_push_back(&l, &items[0].node);
    assert_int_equal(digits(&l), 2341);
}

static void remove_is_safe_on_what_is_on_no_list(void **state)
{
    struct item item;
    struct list l;

    (void)state;
    memset(&item, 0, sizeof(item));
    list_init(&l);
    list_remove(&item.node);
    assert_false(list_is_linked(&item.node));
    list_push_back(&l, &item.node);
    assert_true(list_is_linked(&item.node));
    list_remove(&item.node);
    list_remove(&item.node);
    assert_true(list_is_empty(&l));
    assert_null(list_pop_front(&l));
}

static void each_may_remove_the_node_it_stands_on(void **state)
{
    struct item items[6];
    struct list l;

    (void)state;
    list_init(&l);
    for (int i = 0; i < 6; i++) {
        items[i].value = i + 1;
        list_push_back(&l, &items[i].node);
    }
    list_each (&l, it) {
        if (list_entry(it, struct item, node)->value % 2 == 1)
            list_remove(it);
    }
    assert_int_equal(digits(&l), 246);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(items_stay_in_the_order_they_were_put),
        cmocka_unit_test(remove_is_safe_on_what_is_on_no_list),
        cmocka_unit_test(each_may_remove_the_node_it_stands_on),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
