#include "placer/order.h"

#include <string.h>

static const struct order_ops *const orders[] = {&order_fifo, &order_srtf, &order_srsf,
                                                 &order_levels, NULL};

const struct order_ops *order_at(size_t i)
{
    return i < sizeof(orders) / sizeof(orders[0]) ? orders[i] : NULL;
}

const struct order_ops *order_find(const char *name)
{
    for (size_t i = 0; orders[i] != NULL; i++)
        if (strcmp(orders[i]->name, name) == 0)
            return orders[i];
    return NULL;
}
