#include "placer/plan.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/xalloc.h"

/* placer/view.c: the ledger half of plan.h - nodes, cards and what is used of them. */

void cluster_view_init(struct cluster_view *view)
{
    *view = (struct cluster_view){0};
}

static void node_fini(struct plan_node *node)
{
    for (uint32_t i = 0; i < node->n_cards; i++) {
        free((char *)node->cards[i].id);
        free((char *)node->cards[i].model);
    }
    free((char *)node->name);
}

void cluster_view_fini(struct cluster_view *view)
{
    for (size_t i = 0; i < view->n_nodes; i++)
        node_fini(&view->nodes[i]);
    free(view->nodes);
    *view = (struct cluster_view){0};
}

void cluster_view_copy(struct cluster_view *dst, const struct cluster_view *src)
{
    cluster_view_init(dst);
    dst->nodes = xcalloc(src->n_nodes > 0 ? src->n_nodes : 1, sizeof(*dst->nodes));
    dst->n_nodes = dst->cap_nodes = src->n_nodes;
    for (size_t i = 0; i < src->n_nodes; i++) {
        struct plan_node *node = &dst->nodes[i];

        *node = src->nodes[i];
        node->name = xstrdup(node->name);
        for (uint32_t c = 0; c < node->n_cards; c++) {
            node->cards[c].id = xstrdup(node->cards[c].id);
            node->cards[c].model = xstrdup(node->cards[c].model);
        }
    }
}

int cluster_view_find(const struct cluster_view *view, const char *name)
{
    for (size_t i = 0; i < view->n_nodes; i++)
        if (strcmp(view->nodes[i].name, name) == 0)
            return (int)i;
    return -1;
}

static int node_spec_check(const struct node_spec *spec, struct err *err)
{
    if (spec->name == NULL || spec->name[0] == '\0')
        return err_set(err, -EINVAL, "a node has no name");
    if (spec->n_cards > PLAN_MAX_CARDS)
        return err_set(err, -EINVAL, "node %s: %u cards, at most %d", spec->name, spec->n_cards,
                       PLAN_MAX_CARDS);
    for (uint32_t i = 0; i < spec->n_cards; i++)
        for (uint32_t j = 0; j < i; j++)
            if (strcmp(spec->cards[i].id, spec->cards[j].id) == 0)
                return err_set(err, -EINVAL, "node %s: card %s is there twice", spec->name,
                               spec->cards[i].id);
    return 0;
}

/* The card of this id; else a new slot, or that of a card that is gone and unused; NULL: full. */
static struct plan_card *node_card_slot(struct plan_node *node, const char *id)
{
    for (uint32_t i = 0; i < node->n_cards; i++)
        if (strcmp(node->cards[i].id, id) == 0)
            return &node->cards[i];
    if (node->n_cards < PLAN_MAX_CARDS) {
        struct plan_card *card = &node->cards[node->n_cards++];

        card->id = xstrdup(id);
        return card;
    }
    for (uint32_t i = 0; i < node->n_cards; i++) {
        struct plan_card *card = &node->cards[i];

        if (card->down && card->n_users == 0) {
            free((char *)card->id);
            card->id = xstrdup(id);
            return card;
        }
    }
    return NULL;
}

int cluster_view_set_node(struct cluster_view *view, const struct node_spec *spec, struct err *err)
{
    int r = node_spec_check(spec, err);
    int index = r < 0 ? -1 : cluster_view_find(view, spec->name);
    struct plan_node *node;

    if (r < 0)
        return r;
    if (index < 0) {
        if (view->n_nodes == view->cap_nodes) {
            view->cap_nodes = view->cap_nodes > 0 ? 2 * view->cap_nodes : 8;
            view->nodes = xrealloc(view->nodes, view->cap_nodes, sizeof(*view->nodes));
        }
        index = (int)view->n_nodes++;
        view->nodes[index] = (struct plan_node){.name = xstrdup(spec->name)};
    }
    node = &view->nodes[index];
    node->cpu_milli = spec->cpu_milli;
    node->memory_mib = spec->memory_mib;
    node->down = false;
    for (uint32_t i = 0; i < node->n_cards; i++)
        node->cards[i].down = true;
    for (uint32_t i = 0; i < spec->n_cards; i++) {
        struct plan_card *card = node_card_slot(node, spec->cards[i].id);

        if (card == NULL)
            return err_set(err, -EINVAL, "node %s: card %s finds no slot, lost cards are in use",
                           spec->name, spec->cards[i].id);
        free((char *)card->model);
        card->model = xstrdup(spec->cards[i].model != NULL ? spec->cards[i].model : "");
        card->memory_mib = spec->cards[i].memory_mib;
        card->down = false;
    }
    return index;
}

static void placement_take(struct cluster_view *view, const struct plan_placement *p)
{
    struct plan_node *node = &view->nodes[p->node];

    node->used_cpu_milli += p->cpu_milli;
    node->used_memory_mib += p->memory_mib;
    for (uint32_t i = 0; i < p->n_cards; i++) {
        struct plan_card *card = &node->cards[p->cards[i]];

        card->used_milli += p->gpu_milli;
        card->used_memory_mib += p->gpu_memory_mib;
        card->n_users++;
    }
}

void cluster_view_release(struct cluster_view *view, const struct plan_placement *p)
{
    struct plan_node *node;

    check(p->node < view->n_nodes);
    node = &view->nodes[p->node];
    check(node->used_cpu_milli >= p->cpu_milli && node->used_memory_mib >= p->memory_mib);
    node->used_cpu_milli -= p->cpu_milli;
    node->used_memory_mib -= p->memory_mib;
    for (uint32_t i = 0; i < p->n_cards; i++) {
        struct plan_card *card = node->cards;

        check(p->cards[i] < node->n_cards);
        card += p->cards[i];
        check(card->n_users > 0);
        check(card->used_milli >= p->gpu_milli && card->used_memory_mib >= p->gpu_memory_mib);
        card->used_milli -= p->gpu_milli;
        card->used_memory_mib -= p->gpu_memory_mib;
        card->n_users--;
    }
}

bool cluster_view_take(struct cluster_view *view, const struct plan_placement *p)
{
    const struct plan_node *node;

    if (p->node >= view->n_nodes)
        return false;
    node = &view->nodes[p->node];
    if (node->down || plan_left(node->cpu_milli, node->used_cpu_milli) < p->cpu_milli ||
        plan_left(node->memory_mib, node->used_memory_mib) < p->memory_mib)
        return false;
    for (uint32_t i = 0; i < p->n_cards; i++) {
        const struct plan_card *card = node->cards;

        if (p->cards[i] >= node->n_cards)
            return false;
        card += p->cards[i];
        if (card->down || plan_left(PLAN_CARD_MILLI, card->used_milli) < p->gpu_milli ||
            plan_left(card->memory_mib, card->used_memory_mib) < p->gpu_memory_mib)
            return false;
    }
    placement_take(view, p);
    return true;
}
