#include "placer/openb.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/xalloc.h"

/* ---- the files ---- */

#define FIRST_ROWS 1024 /* of an array that grows as rows are read */

static int read_nodes(struct openb *o, struct err *err)
{
    static const char *const names[] = {"sn", "cpu_milli", "memory_mib", "gpu", "model"};
    struct csv *const csv = &o->nodes_csv;
    int columns[ARRAY_LEN(names)], r;
    size_t cap = 0;

    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        columns[i] = csv_need_column(csv, names[i], err);
        if (columns[i] < 0)
            return columns[i];
    }
    while ((r = csv_next(csv, err)) == CSV_ROW) {
        uint64_t cpu_milli, memory_mib, n_cards;

        if ((r = csv_uint(csv, columns[1], 0, UINT32_MAX, &cpu_milli, err)) != 0 ||
            (r = csv_uint(csv, columns[2], 0, UINT32_MAX, &memory_mib, err)) != 0 ||
            (r = csv_uint(csv, columns[3], 0, PLAN_MAX_CARDS, &n_cards, err)) != 0)
            return r;
        const char *const model_name = csv_str(csv, columns[4]);
        int model = 0;

        if (n_cards > 0 && model_name[0] == '\0')
            return csv_field_error(csv, columns[4], err, "must name the model of the node's cards");
        if (n_cards > 0)
            model = shape_model(&o->shapes, model_name, strlen(model_name));
        if (model < 0)
            return csv_field_error(csv, columns[4], err, "is over the limit of %d card models",
                                   SHAPE_MAX_MODELS);
        if (o->n_nodes == OPENB_MAX_NODES)
            return csv_field_error(csv, columns[0], err, "is over the limit of %d nodes",
                                   OPENB_MAX_NODES);
        if (o->n_nodes == cap) {
            cap = cap == 0 ? FIRST_ROWS : cap * 2;
            o->nodes = xrealloc(o->nodes, cap, sizeof(*o->nodes));
            o->node_names = xrealloc(o->node_names, cap, sizeof(*o->node_names));
        }
        o->node_names[o->n_nodes] = csv_str(csv, columns[0]);
        o->nodes[o->n_nodes++] = (struct pack_node_spec){.cpu_milli = (uint32_t)cpu_milli,
                                                         .memory_mib = (uint32_t)memory_mib,
                                                         .n_cards = (uint32_t)n_cards,
                                                         .max_tasks = OPENB_NODE_TASKS,
                                                         .model = (uint32_t)model};
        o->capacity_milli += n_cards * PLAN_CARD_MILLI;
    }
    if (r < 0)
        return r;
    if (o->capacity_milli == 0)
        return err_set(err, -EINVAL, "%s: has no node with a card: at least one is wanted",
                       csv->path);
    return 0;
}

/* "G2|T4|T4": the models' bits; "": any. */
static int read_models(struct openb *o, int column, uint64_t *ret_models, struct err *err)
{
    const char *const text = column < 0 ? "" : csv_str(&o->pods_csv, column);

    *ret_models = text[0] == '\0' ? SHAPE_ANY_MODEL : 0;
    for (const char *p = text; *p != '\0';) {
        const size_t len = strcspn(p, "|");
        const int model = len == 0 ? -1 : shape_model(&o->shapes, p, len);

        if (len == 0)
            return csv_field_error(&o->pods_csv, column, err, "has an empty name between the |");
        if (model < 0)
            return csv_field_error(&o->pods_csv, column, err, "is over the limit of %d card models",
                                   SHAPE_MAX_MODELS);
        *ret_models |= UINT64_C(1) << model;
        p += len;
        if (*p == '|' && *++p == '\0')
            return csv_field_error(&o->pods_csv, column, err, "ends with a |");
    }
    return 0;
}

enum { POD_NAME, POD_CPU, POD_MEMORY, POD_CARDS, POD_MILLI, POD_N_COLUMNS };

static int read_shape(struct openb *o, const int *columns, int spec_column, struct shape *ret,
                      struct err *err)
{
    const struct csv *const csv = &o->pods_csv;
    uint64_t cpu_milli, memory_mib, n_cards, card_milli, models;
    int r;

    if ((r = csv_uint(csv, columns[POD_CPU], 0, UINT32_MAX, &cpu_milli, err)) != 0 ||
        (r = csv_uint(csv, columns[POD_MEMORY], 0, UINT32_MAX, &memory_mib, err)) != 0 ||
        (r = csv_uint(csv, columns[POD_CARDS], 0, PLAN_MAX_CARDS, &n_cards, err)) != 0 ||
        (r = csv_uint(csv, columns[POD_MILLI], 0, PLAN_CARD_MILLI, &card_milli, err)) != 0 ||
        (r = read_models(o, spec_column, &models, err)) != 0)
        return r;
    if (n_cards == 0 && card_milli != 0)
        return csv_field_error(csv, columns[POD_MILLI], err, "must be 0 where num_gpu is 0");
    if (n_cards > 0 && card_milli == 0)
        return csv_field_error(csv, columns[POD_MILLI], err,
                               "must be from 1 to 1000 where num_gpu is not 0");
    if (n_cards > 1 && card_milli != PLAN_CARD_MILLI)
        return csv_field_error(csv, columns[POD_MILLI], err,
                               "must be 1000 where num_gpu is over 1: a share is of one card");
    *ret = (struct shape){.cpu_milli = (uint32_t)cpu_milli,
                          .memory_mib = (uint32_t)memory_mib,
                          .n_cards = (uint32_t)n_cards,
                          .card_milli = (uint32_t)card_milli,
                          .models = n_cards == 0 ? SHAPE_ANY_MODEL : models};
    return 0;
}

static int by_name(const void *left, const void *right)
{
    const struct openb_task *const a = left, *const b = right;
    const int names = strcmp(a->name, b->name);

    return names != 0 ? names : (a->shape > b->shape) - (a->shape < b->shape);
}

static int read_tasks(struct openb *o, struct err *err)
{
    static const char *const names[POD_N_COLUMNS] = {"name", "cpu_milli", "memory_mib", "num_gpu",
                                                     "gpu_milli"};
    struct csv *const csv = &o->pods_csv;
    const int spec_column = csv_column(csv, "gpu_spec"); /* some files have none */
    int columns[POD_N_COLUMNS], r;
    size_t cap = 0;

    for (size_t i = 0; i < POD_N_COLUMNS; i++) {
        columns[i] = csv_need_column(csv, names[i], err);
        if (columns[i] < 0)
            return columns[i];
    }
    while ((r = csv_next(csv, err)) == CSV_ROW) {
        struct shape s;

        if ((r = read_shape(o, columns, spec_column, &s, err)) != 0)
            return r;
        if (o->n_tasks == OPENB_MAX_TASKS)
            return csv_field_error(csv, columns[POD_NAME], err, "is over the limit of %d tasks",
                                   OPENB_MAX_TASKS);
        if (o->n_tasks == cap) {
            cap = cap == 0 ? FIRST_ROWS : cap * 2;
            o->tasks = xrealloc(o->tasks, cap, sizeof(*o->tasks));
        }
        o->tasks[o->n_tasks++] = (struct openb_task){.name = csv_str(csv, columns[POD_NAME]),
                                                     .shape = shape_intern(&o->shapes, &s)};
    }
    if (r < 0)
        return r;
    for (size_t i = 0; i < o->n_tasks; i++) {
        if (o->shapes.shapes[o->tasks[i].shape].n_cards > 0) {
            qsort(o->tasks, o->n_tasks, sizeof(*o->tasks), by_name);
            return 0;
        }
    }
    return err_set(err, -EINVAL, "%s: has no task with a card: at least one is wanted", csv->path);
}

int openb_load(struct openb *o, const char *nodes_path, const char *pods_path, struct err *err)
{
    int r;

    memset(o, 0, sizeof(*o));
    shape_table_init(&o->shapes);
    if ((r = csv_open(&o->nodes_csv, nodes_path, err)) != 0 || (r = read_nodes(o, err)) != 0 ||
        (r = csv_open(&o->pods_csv, pods_path, err)) != 0)
        return r;
    return read_tasks(o, err);
}

void openb_free(struct openb *o)
{
    csv_close(&o->nodes_csv);
    csv_close(&o->pods_csv);
    shape_table_fini(&o->shapes);
    free(o->nodes);
    free(o->node_names);
    free(o->tasks);
    memset(o, 0, sizeof(*o));
}
