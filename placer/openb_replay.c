/* placer/openb_replay.c - a log of decisions, taken again: was each of them possible? */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/xalloc.h"
#include "placer/openb.h"

enum { LOG_POLICY, LOG_SEED, LOG_ARRIVAL, LOG_TASK, LOG_NODE, LOG_CARDS, LOG_N_COLUMNS };

struct replay {
    const struct openb *o;
    struct csv csv;
    int columns[LOG_N_COLUMNS];
    struct map tasks, nodes; /* name -> index + 1 */
    struct pack pack;
    /* of the run that is being replayed */
    const struct openb_policy *policy; /* NULL: none yet */
    uint64_t seed, n_arrivals;
    struct openb_replayed *counts;
};

static void start_run(struct replay *r, const struct openb_policy *policy, uint64_t seed)
{
    pack_fini(&r->pack);
    pack_init(&r->pack, r->o->nodes, r->o->n_nodes, &r->o->shapes);
    r->policy = policy;
    r->seed = seed;
    r->n_arrivals = 0;
    r->counts->n_runs++;
}

/* The run's log has ended: deciding anew must lead to the same nodes. */
static int end_run(const struct replay *r, struct err *err)
{
    struct openb_result again;

    if (r->policy == NULL)
        return 0;
    openb_run(r->o, r->policy, r->seed, NULL, NULL, &again);
    if (again.n_decisions != r->n_arrivals)
        return err_set(err, -EINVAL,
                       "%s: policy %s, seed %" PRIu64 ": has %" PRIu64
                       " decisions, deciding anew makes %" PRIu64,
                       r->csv.path, r->policy->name, r->seed, r->n_arrivals, again.n_decisions);
    if (again.state_hash != openb_state_hash(&r->pack, NULL))
        return err_set(err, -EINVAL,
                       "%s: policy %s, seed %" PRIu64 ": deciding anew leaves other nodes",
                       r->csv.path, r->policy->name, r->seed);
    return 0;
}

/* "3", "1f": bits in hexadecimal. */
static int read_cards(const struct replay *r, uint16_t *ret_cards, struct err *err)
{
    const char *const text = csv_str(&r->csv, r->columns[LOG_CARDS]);
    const size_t len = strlen(text);

    if (len < 1 || len > 4 || strspn(text, "0123456789abcdef") != len)
        return csv_field_error(&r->csv, r->columns[LOG_CARDS], err,
                               "is not a hexadecimal number from 0 to ffff");
    *ret_cards = (uint16_t)strtoul(text, NULL, 16);
    return 0;
}

static int take_row(struct replay *r, struct err *err)
{
    const struct csv *const csv = &r->csv;
    const char *const task = csv_str(csv, r->columns[LOG_TASK]);
    const char *const node = csv_str(csv, r->columns[LOG_NODE]);
    const uintptr_t task_number = (uintptr_t)map_get(&r->tasks, task, strlen(task));
    const uintptr_t node_number = (uintptr_t)map_get(&r->nodes, node, strlen(node));
    struct pack_spot spot;
    int result = read_cards(r, &spot.cards, err);

    if (result != 0)
        return result;
    if (task_number == 0)
        return csv_field_error(csv, r->columns[LOG_TASK], err, "is no task of %s",
                               r->o->pods_csv.path);
    if (node_number == 0 && node[0] != '\0')
        return csv_field_error(csv, r->columns[LOG_NODE], err, "is no node of %s",
                               r->o->nodes_csv.path);
    if (node[0] == '\0') {
        r->counts->n_dropped++;
        return 0;
    }
    spot.node = (uint32_t)(node_number - 1);

    const struct shape *const s = &r->o->shapes.shapes[r->o->tasks[task_number - 1].shape];

    if (!pack_has_room(&r->pack, s, spot))
        return csv_field_error(csv, r->columns[LOG_CARDS], err, "has no room for %s on %s", task,
                               node);
    pack_take(&r->pack, s, spot);
    r->counts->n_placed++;
    return 0;
}

static int read_row(struct replay *r, struct err *err)
{
    const char *const name = csv_str(&r->csv, r->columns[LOG_POLICY]);
    const struct openb_policy *const policy = openb_policy_find(name, strlen(name));
    uint64_t seed, arrival;
    int result;

    if (policy == NULL)
        return csv_field_error(&r->csv, r->columns[LOG_POLICY], err, "is no policy");
    if ((result = csv_uint(&r->csv, r->columns[LOG_SEED], 0, UINT64_MAX, &seed, err)) != 0)
        return result;
    if (policy != r->policy || seed != r->seed) {
        if ((result = end_run(r, err)) != 0)
            return result;
        start_run(r, policy, seed);
    }
    if ((result = csv_uint(&r->csv, r->columns[LOG_ARRIVAL], r->n_arrivals, r->n_arrivals, &arrival,
                           err)) != 0)
        return result;
    r->n_arrivals++;
    return take_row(r, err);
}

static int read_log(struct replay *r, const char *path, struct err *err)
{
    static const char *const names[LOG_N_COLUMNS] = {"policy", "seed", "arrival",
                                                     "task",   "node", "cards"};
    int result = csv_open(&r->csv, path, err);

    for (size_t i = 0; i < LOG_N_COLUMNS && result == 0; i++) {
        r->columns[i] = csv_need_column(&r->csv, names[i], err);
        result = r->columns[i] < 0 ? r->columns[i] : 0;
    }
    if (result != 0)
        return result;
    while ((result = csv_next(&r->csv, err)) == CSV_ROW)
        if ((result = read_row(r, err)) != 0)
            return result;
    return result == CSV_END ? end_run(r, err) : result;
}

int openb_replay(const struct openb *o, const char *path, struct openb_replayed *ret,
                 struct err *err)
{
    struct replay r = {.o = o, .counts = ret};

    memset(ret, 0, sizeof(*ret));
    map_init(&r.tasks);
    map_init(&r.nodes);
    for (size_t i = 0; i < o->n_tasks; i++)
        map_set(&r.tasks, o->tasks[i].name, strlen(o->tasks[i].name), (void *)(i + 1));
    for (size_t i = 0; i < o->n_nodes; i++)
        map_set(&r.nodes, o->node_names[i], strlen(o->node_names[i]), (void *)(i + 1));

    const int result = read_log(&r, path, err);

    pack_fini(&r.pack);
    map_fini(&r.tasks);
    map_fini(&r.nodes);
    csv_close(&r.csv);
    return result;
}
