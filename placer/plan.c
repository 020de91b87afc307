#include "placer/plan.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/xalloc.h"

int plan_request_check(const struct plan_request *req, struct err *err)
{
    if (req->gpu_milli > PLAN_CARD_MILLI && req->gpu_milli % PLAN_CARD_MILLI != 0)
        return err_set(err, -EINVAL,
                       "gpu milli %u: over one card only whole cards (a multiple of %d) are given",
                       req->gpu_milli, PLAN_CARD_MILLI);
    if (req->gpu_milli / PLAN_CARD_MILLI > PLAN_MAX_CARDS)
        return err_set(err, -EINVAL, "gpu milli %u: a task gets at most %d cards", req->gpu_milli,
                       PLAN_MAX_CARDS);
    if (req->gpu_milli == 0 && (req->gpu_memory_mib > 0 || req->n_models > 0))
        return err_set(err, -EINVAL,
                       "gpu milli 0 with card memory or models: say how much of a card is asked "
                       "for");
    return 0;
}

static bool request_is_whole(const struct plan_request *req)
{
    return req->gpu_milli >= PLAN_CARD_MILLI;
}

/* Cards that the request takes: 0, 1 for a share, or the whole ones. */
static uint32_t request_n_cards(const struct plan_request *req)
{
    return request_is_whole(req) ? req->gpu_milli / PLAN_CARD_MILLI : req->gpu_milli > 0;
}

/* Position of the model in the request's list (0: best, or any will do), or -1: not acceptable. */
static int model_rank(const struct plan_request *req, const char *model)
{
    for (size_t i = 0; i < req->n_models; i++)
        if (strcmp(req->models[i], model) == 0)
            return (int)i;
    return req->n_models == 0 ? 0 : -1;
}

/* A place for the request on one node, and how good it is: lower keys are better, the first that
 * differs decides. */
enum {
    KEY_MODEL = 0, /* place of the card's model in the list of the request */
    KEY_GPU,     /* share: milli left on its card; whole: idle cards left; none: node's idle GPU */
    KEY_GPU_MIB, /* left on the card */
    KEY_CPU,     /* left on the node */
    KEY_MEMORY,
    N_KEYS
};
struct candidate {
    uint32_t key[N_KEYS];
    uint8_t cards[PLAN_MAX_CARDS];
    uint8_t n_cards;
};

static bool candidate_is_better(const struct candidate *a, const struct candidate *b)
{
    for (int i = 0; i < N_KEYS; i++)
        if (a->key[i] != b->key[i])
            return a->key[i] < b->key[i];
    return false; /* the node that came first */
}

static uint32_t node_free_gpu_milli(const struct plan_node *node)
{
    uint32_t milli = 0;

    for (uint32_t i = 0; i < node->n_cards; i++)
        if (!node->cards[i].down)
            milli += plan_left(PLAN_CARD_MILLI, node->cards[i].used_milli);
    return milli;
}

/* The fullest card that has the share. Returns what is short, or PLAN_N_SHORT when it fits. */
static enum plan_short node_fit_share(const struct plan_node *node, const struct plan_request *req,
                                      struct candidate *ret)
{
    enum plan_short nearest = PLAN_SHORT_MODEL;
    bool found = false;

    for (uint32_t i = 0; i < node->n_cards; i++) {
        const struct plan_card *card = &node->cards[i];
        const int rank = model_rank(req, card->model);
        struct candidate c = {.cards = {(uint8_t)i}, .n_cards = 1};
        enum plan_short miss = PLAN_N_SHORT;

        if (rank < 0 || card->down)
            continue;
        if (card->memory_mib < req->gpu_memory_mib)
            miss = PLAN_SHORT_CARDS;
        else if (plan_left(PLAN_CARD_MILLI, card->used_milli) < req->gpu_milli)
            miss = PLAN_SHORT_GPU;
        else if (plan_left(card->memory_mib, card->used_memory_mib) < req->gpu_memory_mib)
            miss = PLAN_SHORT_GPU_MIB;
        if (miss != PLAN_N_SHORT) {
            nearest = miss > nearest ? miss : nearest;
            continue;
        }
        c.key[KEY_MODEL] = (uint32_t)rank;
        c.key[KEY_GPU] = plan_left(PLAN_CARD_MILLI, card->used_milli) - req->gpu_milli;
        c.key[KEY_GPU_MIB] =
            plan_left(card->memory_mib, card->used_memory_mib) - req->gpu_memory_mib;
        if (!found || candidate_is_better(&c, ret))
            *ret = c;
        found = true;
    }
    return found ? PLAN_N_SHORT : nearest;
}

/* Whole idle cards of one model, lowest numbers first; of several models that would do equally
 * well, the one with the fewest idle cards. */
static enum plan_short node_fit_whole(const struct plan_node *node, const struct plan_request *req,
                                      struct candidate *ret)
{
    const uint32_t want = request_n_cards(req);
    enum plan_short nearest = PLAN_SHORT_MODEL;
    bool found = false;

    for (uint32_t first = 0; first < node->n_cards; first++) {
        const char *model = node->cards[first].model;
        const int rank = model_rank(req, model);
        struct candidate c = {0};
        uint32_t n = 0, n_idle = 0;

        if (rank < 0)
            continue;
        for (uint32_t i = 0; i < node->n_cards; i++) {
            const struct plan_card *card = &node->cards[i];

            if (card->down || card->memory_mib < req->gpu_memory_mib ||
                strcmp(card->model, model) != 0)
                continue;
            n++;
            if (card->n_users > 0)
                continue;
            n_idle++;
            if (c.n_cards < want)
                c.cards[c.n_cards++] = (uint8_t)i;
        }
        if (n_idle < want) {
            const enum plan_short miss = n < want ? PLAN_SHORT_CARDS : PLAN_SHORT_GPU;

            nearest = miss > nearest ? miss : nearest;
            continue;
        }
        c.key[KEY_MODEL] = (uint32_t)rank;
        c.key[KEY_GPU] = n_idle - want;
        if (!found || candidate_is_better(&c, ret))
            *ret = c;
        found = true;
    }
    return found ? PLAN_N_SHORT : nearest;
}

/* Fills ret and returns PLAN_N_SHORT when the request fits on the node; else the first need, in the
 * order of the enum, that is not met: a later one is a nearer miss. */
static enum plan_short node_fit(const struct plan_node *node, const struct plan_request *req,
                                struct candidate *ret)
{
    enum plan_short miss = PLAN_N_SHORT;

    *ret = (struct candidate){0};
    if (node->down)
        return PLAN_SHORT_NODE_DOWN;
    if (req->gpu_milli == 0)
        ret->key[KEY_GPU] = node_free_gpu_milli(node); /* keep cores beside idle cards */
    else if (request_is_whole(req))
        miss = node_fit_whole(node, req, ret);
    else
        miss = node_fit_share(node, req, ret);
    if (miss != PLAN_N_SHORT)
        return miss;
    if (plan_left(node->cpu_milli, node->used_cpu_milli) < req->cpu_milli)
        return PLAN_SHORT_CPU;
    if (plan_left(node->memory_mib, node->used_memory_mib) < req->memory_mib)
        return PLAN_SHORT_MEMORY;
    ret->key[KEY_CPU] = plan_left(node->cpu_milli, node->used_cpu_milli) - req->cpu_milli;
    ret->key[KEY_MEMORY] = plan_left(node->memory_mib, node->used_memory_mib) - req->memory_mib;
    return PLAN_N_SHORT;
}

void plan_init(struct plan *plan, struct cluster_view *view)
{
    *plan = (struct plan){.view = view};
}

void plan_fini(struct plan *plan)
{
    free(plan->placements);
    *plan = (struct plan){0};
}

void plan_rewind(struct plan *plan, struct plan_mark mark)
{
    check(mark.n <= plan->n);
    while (plan->n > mark.n)
        cluster_view_release(plan->view, &plan->placements[--plan->n]);
}

static void plan_append(struct plan *plan, size_t task, size_t node_index,
                        const struct plan_request *req, const struct candidate *c)
{
    const struct plan_node *node = &plan->view->nodes[node_index];
    struct plan_placement *p;

    if (plan->n == plan->cap) {
        plan->cap = plan->cap > 0 ? 2 * plan->cap : 8;
        plan->placements = xrealloc(plan->placements, plan->cap, sizeof(*plan->placements));
    }
    p = &plan->placements[plan->n++];
    *p = (struct plan_placement){.task = task,
                                 .node = (uint32_t)node_index,
                                 .cpu_milli = req->cpu_milli,
                                 .memory_mib = req->memory_mib,
                                 .gpu_milli = req->gpu_milli,
                                 .gpu_memory_mib = req->gpu_memory_mib,
                                 .n_cards = c->n_cards};
    memcpy(p->cards, c->cards, sizeof(p->cards));
    if (request_is_whole(req)) {
        /* All the memory is the task's: of cards that differ, as much as each of them has. */
        p->gpu_milli = PLAN_CARD_MILLI;
        p->gpu_memory_mib = UINT32_MAX;
        for (uint32_t i = 0; i < c->n_cards; i++)
            if (node->cards[c->cards[i]].memory_mib < p->gpu_memory_mib)
                p->gpu_memory_mib = node->cards[c->cards[i]].memory_mib;
    }
    check(cluster_view_take(plan->view, p)); /* it was found to fit */
}

/* The best place for the request; after: only those worse than this one. Returns false when there
 * is none. */
static bool plan_best(const struct cluster_view *view, const struct plan_request *req,
                      const struct candidate *after, struct candidate *ret, size_t *ret_node)
{
    bool found = false;

    check(plan_request_check(req, NULL) == 0);
    for (size_t i = 0; i < view->n_nodes; i++) {
        struct candidate c;

        if (node_fit(&view->nodes[i], req, &c) != PLAN_N_SHORT)
            continue;
        if (after != NULL && !candidate_is_better(after, &c))
            continue;
        if (!found || candidate_is_better(&c, ret)) {
            *ret = c;
            *ret_node = i;
            found = true;
        }
    }
    return found;
}

static bool plan_task_at(struct plan *plan, size_t task, const struct plan_request *req)
{
    struct candidate best;
    size_t node;

    if (!plan_best(plan->view, req, NULL, &best, &node))
        return false;
    plan_append(plan, task, node, req, &best);
    return true;
}

bool plan_node_has_room(const struct plan_node *node, const struct plan_request *req)
{
    struct candidate unused;

    return node_fit(node, req, &unused) == PLAN_N_SHORT;
}

/* How far the node is from having what is short; the unit depends on miss. */
static uint32_t node_deficit(const struct plan_node *node, const struct plan_request *req,
                             enum plan_short miss)
{
    uint32_t most = 0;

    switch (miss) {
    case PLAN_SHORT_CPU:
        return req->cpu_milli - plan_left(node->cpu_milli, node->used_cpu_milli);
    case PLAN_SHORT_MEMORY:
        return req->memory_mib - plan_left(node->memory_mib, node->used_memory_mib);
    case PLAN_SHORT_GPU:
    case PLAN_SHORT_GPU_MIB:
        for (uint32_t i = 0; i < node->n_cards; i++) {
            const struct plan_card *card = &node->cards[i];
            const uint32_t has = miss == PLAN_SHORT_GPU
                                     ? plan_left(PLAN_CARD_MILLI, card->used_milli)
                                     : plan_left(card->memory_mib, card->used_memory_mib);

            if (card->down || model_rank(req, card->model) < 0)
                continue;
            if (request_is_whole(req))
                most += card->n_users == 0 ? PLAN_CARD_MILLI : 0;
            else if (has > most)
                most = has;
        }
        return plan_left(miss == PLAN_SHORT_GPU ? req->gpu_milli : req->gpu_memory_mib, most);
    case PLAN_SHORT_NODE_DOWN:
    case PLAN_SHORT_MODEL:
    case PLAN_SHORT_CARDS:
    case PLAN_N_SHORT:
        break;
    }
    return 0;
}

static void say_request(struct buf *b, const struct plan_request *req)
{
    buf_printf(b, "%u mCPU, %u MiB", req->cpu_milli, req->memory_mib);
    if (req->gpu_milli == 0)
        return;
    if (request_is_whole(req))
        buf_printf(b, ", %u whole card%s", request_n_cards(req),
                   request_n_cards(req) > 1 ? "s" : "");
    else
        buf_printf(b, ", %u milli of a card", req->gpu_milli);
    for (size_t i = 0; i < req->n_models; i++)
        buf_printf(b, "%s%s", i == 0 ? " (" : " or ", req->models[i]);
    if (req->n_models > 0)
        buf_append_str(b, ")");
    if (req->gpu_memory_mib > 0)
        buf_printf(b, " with %u MiB", req->gpu_memory_mib);
}

static void say_miss(struct buf *b, const struct plan_node *node, enum plan_short miss)
{
    buf_printf(b, "node %s: ", node->name);
    switch (miss) {
    case PLAN_SHORT_NODE_DOWN:
        buf_append_str(b, "is down");
        return;
    case PLAN_SHORT_CPU:
        buf_printf(b, "%u of %u mCPU free", plan_left(node->cpu_milli, node->used_cpu_milli),
                   node->cpu_milli);
        return;
    case PLAN_SHORT_MEMORY:
        buf_printf(b, "%u of %u MiB free", plan_left(node->memory_mib, node->used_memory_mib),
                   node->memory_mib);
        return;
    case PLAN_SHORT_MODEL:
    case PLAN_SHORT_CARDS:
    case PLAN_SHORT_GPU:
    case PLAN_SHORT_GPU_MIB:
    case PLAN_N_SHORT:
        break;
    }
    if (node->n_cards == 0)
        buf_append_str(b, "no cards");
    for (uint32_t i = 0; i < node->n_cards; i++) {
        const struct plan_card *card = &node->cards[i];

        buf_printf(b, "%scard %s%s%s%s ", i > 0 ? ", " : "", card->id, card->model[0] ? " (" : "",
                   card->model, card->model[0] ? ")" : "");
        if (card->down)
            buf_append_str(b, "is down");
        else if (miss == PLAN_SHORT_GPU)
            buf_printf(b, "%u of %d milli free", plan_left(PLAN_CARD_MILLI, card->used_milli),
                       PLAN_CARD_MILLI);
        else
            buf_printf(b, "%u of %u MiB free", plan_left(card->memory_mib, card->used_memory_mib),
                       card->memory_mib);
    }
}

static const char *const short_words[PLAN_N_SHORT] = {
    [PLAN_SHORT_NODE_DOWN] = "down",
    [PLAN_SHORT_MODEL] = "without a card of that model",
    [PLAN_SHORT_CARDS] = "with too few or too small cards",
    [PLAN_SHORT_GPU] = "short of GPU",
    [PLAN_SHORT_GPU_MIB] = "short of card memory",
    [PLAN_SHORT_CPU] = "short of CPU",
    [PLAN_SHORT_MEMORY] = "short of memory",
};

/* Count what is short where and put the nearest miss into words. The view is as it was when the
 * task found no place: earlier tasks of its gang stand in it. */
static void plan_explain(struct plan_why *why, const struct cluster_view *view,
                         const struct plan_request *req, size_t task, size_t n_tasks,
                         size_t n_placed)
{
    enum plan_short nearest = PLAN_SHORT_NODE_DOWN;
    const struct plan_node *nearest_node = NULL;
    uint32_t nearest_deficit = 0;
    struct buf b;

    *why = (struct plan_why){.task = task, .n_tasks = n_tasks};
    for (size_t i = 0; i < view->n_nodes; i++) {
        const struct plan_node *node = &view->nodes[i];
        struct candidate unused;
        const enum plan_short miss = node_fit(node, req, &unused);
        uint32_t deficit;

        if (miss == PLAN_N_SHORT)
            continue;
        deficit = node_deficit(node, req, miss);
        why->counts[miss]++;
        if (nearest_node == NULL || miss > nearest ||
            (miss == nearest && deficit < nearest_deficit)) {
            nearest = miss;
            nearest_node = node;
            nearest_deficit = deficit;
        }
    }

    buf_init(&b, 8192);
    if (n_tasks > 1)
        buf_printf(&b, "task %zu of %zu (%zu placed before it) ", task + 1, n_tasks, n_placed);
    buf_append_str(&b, "asks for ");
    say_request(&b, req);
    if (nearest_node == NULL) {
        buf_append_str(&b, "; there is no node");
    } else {
        buf_append_str(&b, "; nearest is ");
        say_miss(&b, nearest_node, nearest);
        buf_append_str(&b, ";");
    }
    for (int i = 0; i < PLAN_N_SHORT; i++)
        if (why->counts[i] > 0)
            buf_printf(&b, " %u node%s %s,", why->counts[i], why->counts[i] > 1 ? "s" : "",
                       short_words[i]);
    if (b.len > 0 && b.data[b.len - 1] == ',')
        b.len--;
    snprintf(why->text, sizeof(why->text), "%s", buf_cstr(&b));
    buf_fini(&b);
}

/* True when it is certain that the tasks fit in no state of this cluster: one of them fits on no
 * empty node, or together they ask for more than there is. Nodes and cards that are down count:
 * they may come back. */
static bool gang_never_fits(const struct cluster_view *view, const struct plan_request *tasks,
                            size_t n_tasks)
{
    uint64_t cpu = 0, memory = 0, gpu = 0;
    uint64_t want_cpu = 0, want_memory = 0, want_gpu = 0;
    struct cluster_view empty;
    bool fits = true;

    cluster_view_copy(&empty, view);
    for (size_t i = 0; i < empty.n_nodes; i++) {
        struct plan_node *node = &empty.nodes[i];

        node->used_cpu_milli = node->used_memory_mib = 0;
        node->down = false;
        for (uint32_t c = 0; c < node->n_cards; c++) {
            struct plan_card *card = &node->cards[c];

            card->used_milli = card->used_memory_mib = card->n_users = 0;
            card->down = false;
        }
        cpu += node->cpu_milli;
        memory += node->memory_mib;
        gpu += (uint64_t)node->n_cards * PLAN_CARD_MILLI;
    }
    for (size_t t = 0; t < n_tasks && fits; t++) {
        struct candidate unused;

        fits = false;
        for (size_t i = 0; i < empty.n_nodes && !fits; i++)
            fits = node_fit(&empty.nodes[i], &tasks[t], &unused) == PLAN_N_SHORT;
        want_cpu += tasks[t].cpu_milli;
        want_memory += tasks[t].memory_mib;
        want_gpu += tasks[t].gpu_milli;
    }
    cluster_view_fini(&empty);
    return !fits || want_cpu > cpu || want_memory > memory || want_gpu > gpu;
}

enum plan_outcome plan_task(struct plan *plan, const struct plan_request *req, struct plan_why *why)
{
    if (plan_task_at(plan, 0, req))
        return PLAN_OK;
    if (why == NULL)
        return PLAN_E_NO_ROOM;
    plan_explain(why, plan->view, req, 0, 1, 0);
    return gang_never_fits(plan->view, req, 1) ? PLAN_E_NEVER : PLAN_E_NO_ROOM;
}

struct ranked_task {
    const struct plan_request *req;
    size_t index;
    struct candidate at; /* where it was put */
};

/* Hardest first: what has the fewest places. Many cards before shares, bound to a model before any
 * model, then by size; equal ones in the order given. */
static int ranked_task_cmp(const void *pa, const void *pb)
{
    const struct ranked_task *ta = pa, *tb = pb;
    const struct plan_request *a = ta->req, *b = tb->req;

    if (a->gpu_milli != b->gpu_milli)
        return a->gpu_milli > b->gpu_milli ? -1 : 1;
    if ((a->n_models > 0) != (b->n_models > 0))
        return a->n_models > 0 ? -1 : 1;
    if (a->gpu_memory_mib != b->gpu_memory_mib)
        return a->gpu_memory_mib > b->gpu_memory_mib ? -1 : 1;
    if (a->cpu_milli != b->cpu_milli)
        return a->cpu_milli > b->cpu_milli ? -1 : 1;
    if (a->memory_mib != b->memory_mib)
        return a->memory_mib > b->memory_mib ? -1 : 1;
    return ta->index < tb->index ? -1 : 1;
}

enum plan_outcome plan_gang(struct plan *plan, const struct plan_request *tasks, size_t n_tasks,
                            struct plan_why *why)
{
    const struct plan_mark mark = plan_mark(plan);
    struct ranked_task *order = xcalloc(n_tasks > 0 ? n_tasks : 1, sizeof(*order));
    enum plan_outcome r = PLAN_OK;
    unsigned n_backs = 0;
    size_t i = 0;
    bool elsewhere = false; /* task i stood somewhere already: the next best place */

    for (size_t t = 0; t < n_tasks; t++)
        order[t] = (struct ranked_task){.req = &tasks[t], .index = t};
    qsort(order, n_tasks, sizeof(*order), ranked_task_cmp);
    while (i < n_tasks) {
        struct candidate c;
        size_t node;

        if (plan_best(plan->view, order[i].req, elsewhere ? &order[i].at : NULL, &c, &node)) {
            order[i].at = c;
            plan_append(plan, order[i].index, node, order[i].req, &c);
            i++;
            elsewhere = false;
            continue;
        }
        if (n_backs == 0 && why != NULL)
            plan_explain(why, plan->view, order[i].req, order[i].index, n_tasks, i);
        if (i == 0 || n_backs++ == PLAN_MAX_BACKS) {
            r = PLAN_E_NO_ROOM;
            break;
        }
        i--;
        plan_rewind(plan, (struct plan_mark){mark.n + i});
        elsewhere = true;
    }
    free(order);
    if (r == PLAN_OK)
        return r;
    plan_rewind(plan, mark);
    return why != NULL && gang_never_fits(plan->view, tasks, n_tasks) ? PLAN_E_NEVER : r;
}
