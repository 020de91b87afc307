#include "gateway/paths.h"

#include <string.h>

/* Method names differ in length and at their ends. */
static size_t paths_place(const char *path, size_t len)
{
    const size_t tail = len >= 4 ? (size_t)(unsigned char)path[len - 4] * 5 : 0;

    return (len * 7 + tail + (unsigned char)path[len - 1]) % PATHS_ROWS;
}

static void path_row_fill(struct path_row *row, const struct paths_rules *rules, const char *path,
                          size_t len)
{
    row->local = local_find(rules->local, path, len);
    row->route = route_of_path(path, len, rules->has_kserve, rules->has_tensorflow);
}

const struct path_row *paths_find(struct paths *p, const struct paths_rules *rules,
                                  const char *path, size_t len)
{
    struct path_row *row = &p->last;

    if (len > 0 && len <= PATHS_TEXT_MAX) {
        row = &p->rows[paths_place(path, len)];
        if (row->len == len && memcmp(row->text, path, len) == 0) {
            if (row->route.service != NULL)
                row->route.service = path + 1;
            return row;
        }
        memcpy(row->text, path, len);
        row->len = (uint32_t)len;
    }
    path_row_fill(row, rules, path, len);
    return row;
}

void paths_reset(struct paths *p)
{
    for (size_t i = 0; i < PATHS_ROWS; i++)
        p->rows[i].len = 0;
}
