#include "proto/descriptors.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "descriptors_table.h"

size_t descriptors_count(void)
{
    return ARRAY_LEN(files);
}

const struct descriptor_file *descriptors_at(size_t i)
{
    check(i < ARRAY_LEN(files));
    return &files[i];
}

const struct descriptor_file *descriptors_by_file(const char *name)
{
    for (size_t i = 0; i < ARRAY_LEN(files); i++)
        if (strcmp(files[i].name, name) == 0)
            return &files[i];
    return NULL;
}

static int compare_symbol(const void *key, const void *row)
{
    return strcmp(key, *(const char *const *)row); /* name is the row's first member */
}

const struct descriptor_file *descriptors_by_symbol(const char *symbol)
{
    const void *row =
        bsearch(symbol, symbols, ARRAY_LEN(symbols), sizeof(symbols[0]), compare_symbol);

    if (row == NULL)
        return NULL;
    return &files[symbols[(size_t)((const char *)row - (const char *)symbols) / sizeof(symbols[0])]
                      .file];
}
