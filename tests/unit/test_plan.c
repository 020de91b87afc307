/* Placement: whole cards, shares, gangs, explanations; then random histories against an oracle that
 * knows nothing of the placer's code: it adds up what stands and tries every set of cards. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "base/xalloc.h"
#include "placer/plan.h"

struct fixture {
    struct cluster_view view;
    struct plan plan;
};

static int setup(void **state)
{
    struct fixture *f = xcalloc(1, sizeof(*f));

    cluster_view_init(&f->view);
    plan_init(&f->plan, &f->view);
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;

    plan_fini(&f->plan);
    cluster_view_fini(&f->view);
    free(f);
    return 0;
}

static int add_node(struct fixture *f, const char *name, uint32_t cpu_milli, uint32_t n_cards,
                    const char *model, uint32_t card_mib)
{
    static const char *const ids[] = {"0", "1", "2", "3", "4", "5", "6", "7"};
    struct node_spec spec = {
        .name = name, .cpu_milli = cpu_milli, .memory_mib = 65536, .n_cards = n_cards};
    int index;

    for (uint32_t i = 0; i < n_cards; i++)
        spec.cards[i] = (struct card_spec){ids[i], model, card_mib};
    index = cluster_view_set_node(&f->view, &spec, NULL);
    assert_true(index >= 0);
    return index;
}

static struct plan_request share(uint32_t milli, uint32_t mib)
{
    return (struct plan_request){
        .cpu_milli = 100, .memory_mib = 64, .gpu_milli = milli, .gpu_memory_mib = mib};
}

static void assert_says(const char *text, const char *part)
{
    if (strstr(text, part) == NULL)
        fail_msg("\"%s\" does not say \"%s\"", text, part);
}

static void two_halves_share_one_card(void **state)
{
    struct fixture *f = *state;
    const struct plan_request half = share(500, 1000);

    add_node(f, "a", 8000, 2, "T4", 16384);
    assert_int_equal(plan_task(&f->plan, &half, NULL), PLAN_OK);
    assert_int_equal(plan_task(&f->plan, &half, NULL), PLAN_OK);
    assert_int_equal(f->plan.placements[0].cards[0], f->plan.placements[1].cards[0]);
    assert_int_equal(f->view.nodes[0].cards[0].used_milli, 1000);
    assert_int_equal(f->view.nodes[0].cards[1].used_milli, 0);
}

static void a_whole_card_is_refused_beside_two_halves_and_the_reason_names_both(void **state)
{
    struct fixture *f = *state;
    const struct plan_request whole = share(1000, 0);
    struct plan_placement lower = {.n_cards = 1, .gpu_milli = 500};
    struct plan_placement upper = {.n_cards = 1, .gpu_milli = 500, .cards = {1}};
    struct plan_why why;

    add_node(f, "a", 8000, 2, "T4", 16384);
    assert_true(cluster_view_take(&f->view, &lower));
    assert_true(cluster_view_take(&f->view, &upper));
    assert_int_equal(plan_task(&f->plan, &whole, &why), PLAN_E_NO_ROOM);
    assert_says(why.text, "card 0 (T4) 500 of 1000 milli free");
    assert_says(why.text, "card 1 (T4) 500 of 1000 milli free");
    assert_int_equal(why.counts[PLAN_SHORT_GPU], 1);

    cluster_view_release(&f->view, &upper);
    assert_int_equal(plan_task(&f->plan, &whole, &why), PLAN_OK);
    assert_int_equal(f->plan.placements[0].cards[0], 1);
}

static void a_24_gib_card_takes_12_and_12_and_refuses_a_third(void **state)
{
    struct fixture *f = *state;
    const struct plan_request twelve = share(300, 12 * 1024);
    struct plan_why why;

    add_node(f, "a", 8000, 1, "A10", 24 * 1024);
    assert_int_equal(plan_task(&f->plan, &twelve, NULL), PLAN_OK);
    assert_int_equal(plan_task(&f->plan, &twelve, NULL), PLAN_OK);
    assert_int_equal(plan_task(&f->plan, &twelve, &why), PLAN_E_NO_ROOM);
    assert_int_equal(why.counts[PLAN_SHORT_GPU_MIB], 1);
    assert_says(why.text, "card 0 (A10) 0 of 24576 MiB free");
}

static void a_46068_mib_card_takes_23_times_2000_not_24(void **state)
{
    struct fixture *f = *state;
    const struct plan_request small = share(10, 2000);

    add_node(f, "a", 8000, 1, "L40S", 46068);
    for (int i = 0; i < 23; i++)
        assert_int_equal(plan_task(&f->plan, &small, NULL), PLAN_OK);
    assert_int_equal(plan_task(&f->plan, &small, NULL), PLAN_E_NO_ROOM);
}

static void tasks_of_30_and_50_cores_fit_53_and_31_in_both_orders(void **state)
{
    struct fixture *f = *state;
    const struct plan_request x = {.cpu_milli = 30000}, y = {.cpu_milli = 50000};

    add_node(f, "a", 53000, 0, "", 0);
    add_node(f, "b", 31000, 0, "", 0);
    assert_int_equal(plan_task(&f->plan, &x, NULL), PLAN_OK);
    assert_int_equal(plan_task(&f->plan, &y, NULL), PLAN_OK);
    plan_rewind(&f->plan, (struct plan_mark){0});
    assert_int_equal(plan_task(&f->plan, &y, NULL), PLAN_OK);
    assert_int_equal(plan_task(&f->plan, &x, NULL), PLAN_OK);
}

static void gang_that_does_not_fit_leaves_no_trace(void **state)
{
    struct fixture *f = *state;
    const struct plan_request g[3] = {share(3000, 0), share(3000, 0), share(3000, 0)};
    struct plan_why why;

    add_node(f, "a", 8000, 4, "T4", 16384);
    add_node(f, "b", 8000, 4, "T4", 16384);
    assert_int_equal(plan_gang(&f->plan, g, 3, &why), PLAN_E_NEVER);
    assert_int_equal(f->plan.n, 0);
    for (size_t n = 0; n < f->view.n_nodes; n++) {
        assert_int_equal(f->view.nodes[n].used_cpu_milli, 0);
        for (int c = 0; c < 4; c++) {
            assert_int_equal(f->view.nodes[n].cards[c].used_milli, 0);
            assert_int_equal(f->view.nodes[n].cards[c].n_users, 0);
        }
    }
    assert_says(why.text, "task 3 of 3 (2 placed before it)");
    assert_says(why.text, "3 whole cards");
    assert_int_equal(plan_gang(&f->plan, g, 2, &why), PLAN_OK);
    assert_int_equal(f->plan.n, 2);
}

static void a_gang_after_a_mark_rewinds_to_the_mark_only(void **state)
{
    struct fixture *f = *state;
    const struct plan_request one = share(1000, 0);
    const struct plan_request g[4] = {one, one, one, one};
    struct plan_why why;

    add_node(f, "a", 8000, 4, "T4", 16384);
    assert_int_equal(plan_task(&f->plan, &one, NULL), PLAN_OK);
    assert_int_equal(plan_gang(&f->plan, g, 4, &why), PLAN_E_NO_ROOM);
    assert_int_equal(f->plan.n, 1);
    assert_int_equal(f->view.nodes[0].cards[0].used_milli, 1000);
    assert_int_equal(f->view.nodes[0].cards[1].used_milli, 0);
}

static void hardest_tasks_of_a_gang_go_first_and_keep_their_index(void **state)
{
    struct fixture *f = *state;
    /* In the order given the share would take a card of a, and four whole ones would not fit. */
    const struct plan_request g[2] = {share(500, 0), share(4000, 0)};

    add_node(f, "a", 8000, 4, "T4", 16384);
    add_node(f, "b", 8000, 1, "T4", 16384);
    assert_int_equal(plan_gang(&f->plan, g, 2, NULL), PLAN_OK);
    assert_int_equal(f->plan.placements[0].task, 1);
    assert_int_equal(f->plan.placements[0].node, 0);
    assert_int_equal(f->plan.placements[1].task, 0);
    assert_int_equal(f->plan.placements[1].node, 1);
}

/* Shares 500 400 300 300 250 250 are two whole cards, but only as 500+250+250 and 400+300+300: the
 * fullest card that fits takes 500+400 first and has no room for the last 250. */
static void a_gang_backs_up_when_its_first_choices_leave_no_room(void **state)
{
    struct fixture *f = *state;
    const struct plan_request tasks[] = {share(250, 0), share(500, 0), share(300, 0),
                                         share(400, 0), share(250, 0), share(300, 0)};
    struct plan_why why;

    add_node(f, "a", 8000, 1, "T4", 16384);
    add_node(f, "b", 8000, 1, "T4", 16384);
    assert_int_equal(plan_gang(&f->plan, tasks, 6, &why), PLAN_OK);
    assert_int_equal(f->plan.n, 6);
    assert_int_equal(f->view.nodes[0].cards[0].used_milli, 1000);
    assert_int_equal(f->view.nodes[1].cards[0].used_milli, 1000);
}

static void the_first_model_is_preferred_and_the_second_taken_when_it_is_full(void **state)
{
    struct fixture *f = *state;
    static const char *const models[] = {"A10", "T4"};
    struct plan_request r = share(1000, 0);

    r.models = models;
    r.n_models = 2;
    add_node(f, "t4", 8000, 1, "T4", 16384);
    add_node(f, "a10", 8000, 1, "A10", 24576);
    add_node(f, "h200", 8000, 8, "H200", 141312);
    assert_int_equal(plan_task(&f->plan, &r, NULL), PLAN_OK);
    assert_string_equal(f->view.nodes[f->plan.placements[0].node].name, "a10");
    assert_int_equal(plan_task(&f->plan, &r, NULL), PLAN_OK);
    assert_string_equal(f->view.nodes[f->plan.placements[1].node].name, "t4");
    assert_int_equal(plan_task(&f->plan, &r, NULL), PLAN_E_NO_ROOM);
}

static void whole_cards_of_one_task_are_of_one_model(void **state)
{
    struct fixture *f = *state;
    const struct plan_request two = share(2000, 0);
    struct node_spec mixed = {
        .name = "m",
        .cpu_milli = 8000,
        .memory_mib = 4096,
        .cards = {{"0", "T4", 16384}, {"1", "A10", 24576}, {"2", "T4", 16384}},
        .n_cards = 3};

    assert_int_equal(cluster_view_set_node(&f->view, &mixed, NULL), 0);
    assert_int_equal(plan_task(&f->plan, &two, NULL), PLAN_OK);
    assert_int_equal(f->plan.placements[0].cards[0], 0);
    assert_int_equal(f->plan.placements[0].cards[1], 2);
    assert_int_equal(f->plan.placements[0].gpu_memory_mib, 16384);
    assert_int_equal(plan_task(&f->plan, &two, NULL), PLAN_E_NO_ROOM);
}

static void a_lost_card_gets_nothing_new_and_the_rest_goes_on(void **state)
{
    struct fixture *f = *state;
    const struct plan_request one = share(1000, 0);
    struct node_spec less = {.name = "a",
                             .cpu_milli = 8000,
                             .memory_mib = 65536,
                             .cards = {{"1", "T4", 16384}, {"2", "T4", 16384}},
                             .n_cards = 2};
    struct plan_placement held;

    add_node(f, "a", 8000, 3, "T4", 16384);
    assert_int_equal(plan_task(&f->plan, &one, NULL), PLAN_OK); /* card 0 */
    held = f->plan.placements[0];
    assert_int_equal(cluster_view_set_node(&f->view, &less, NULL), 0);
    assert_true(f->view.nodes[0].cards[0].down);
    assert_int_equal(plan_task(&f->plan, &one, NULL), PLAN_OK);
    assert_int_equal(plan_task(&f->plan, &one, NULL), PLAN_OK);
    assert_int_equal(plan_task(&f->plan, &one, NULL), PLAN_E_NO_ROOM);
    cluster_view_release(&f->view, &held); /* the dead card is given back, and not given out */
    assert_int_equal(plan_task(&f->plan, &one, NULL), PLAN_E_NO_ROOM);
}

static void a_node_that_shrank_under_its_load_takes_nothing_until_that_ended(void **state)
{
    struct fixture *f = *state;
    const struct plan_request r = {.cpu_milli = 3000};
    struct plan_placement first, second;

    add_node(f, "a", 8000, 0, "", 0);
    assert_int_equal(plan_task(&f->plan, &r, NULL), PLAN_OK);
    assert_int_equal(plan_task(&f->plan, &r, NULL), PLAN_OK);
    first = f->plan.placements[0];
    second = f->plan.placements[1];
    add_node(f, "a", 4000, 0, "", 0);
    assert_int_equal(f->view.n_nodes, 1);
    assert_int_equal(plan_task(&f->plan, &r, NULL), PLAN_E_NO_ROOM);
    cluster_view_release(&f->view, &first);
    assert_int_equal(plan_task(&f->plan, &r, NULL), PLAN_E_NO_ROOM); /* 1000 free */
    cluster_view_release(&f->view, &second);
    assert_int_equal(plan_task(&f->plan, &r, NULL), PLAN_OK);
}

static void requests_that_make_no_sense_are_refused_with_the_rule(void **state)
{
    static const char *const models[] = {"T4"};
    const struct plan_request bad[] = {
        {.gpu_milli = 1500},
        {.gpu_milli = 17000},
        {.gpu_memory_mib = 100},
        {.models = models, .n_models = 1},
    };
    const struct plan_request good[] = {{0}, {.gpu_milli = 1}, {.gpu_milli = 16000}};
    struct err err;

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        assert_int_equal(plan_request_check(&bad[i], &err), -EINVAL);
    for (size_t i = 0; i < ARRAY_LEN(good); i++)
        assert_int_equal(plan_request_check(&good[i], &err), 0);
    plan_request_check(&bad[0], &err);
    assert_says(err.text, "1500");
    assert_says(err.text, "multiple of 1000");
}

static void a_task_larger_than_every_node_never_fits_and_says_so(void **state)
{
    struct fixture *f = *state;
    static const char *const models[] = {"H100"};
    struct plan_request r = {.cpu_milli = 9000};
    struct plan_why why;

    assert_int_equal(plan_task(&f->plan, &r, &why), PLAN_E_NEVER);
    assert_says(why.text, "there is no node");
    add_node(f, "a", 8000, 2, "T4", 16384);
    assert_int_equal(plan_task(&f->plan, &r, &why), PLAN_E_NEVER);
    assert_says(why.text, "node a: 8000 of 8000 mCPU free");
    r = share(1000, 0);
    r.models = models;
    r.n_models = 1;
    assert_int_equal(plan_task(&f->plan, &r, &why), PLAN_E_NEVER);
    assert_int_equal(why.counts[PLAN_SHORT_MODEL], 1);
    assert_says(why.text, "H100");
}

static void inventories_with_errors_are_refused(void **state)
{
    struct fixture *f = *state;
    const struct node_spec nameless = {.name = ""};
    const struct node_spec twice = {
        .name = "a", .cards = {{"0", "T4", 1}, {"0", "T4", 1}}, .n_cards = 2};
    const struct node_spec many = {.name = "a", .n_cards = PLAN_MAX_CARDS + 1};
    struct err err;

    assert_int_equal(cluster_view_set_node(&f->view, &nameless, &err), -EINVAL);
    assert_int_equal(cluster_view_set_node(&f->view, &twice, &err), -EINVAL);
    assert_says(err.text, "card 0 is there twice");
    assert_int_equal(cluster_view_set_node(&f->view, &many, &err), -EINVAL);
    assert_int_equal(f->view.n_nodes, 0);
}

/* ---- random histories ---- */

static const char *const random_models[] = {"T4", "A10", "H200"};

static void random_cluster(struct fixture *f, struct rng *rng)
{
    const size_t n_nodes = 1 + rng_below(rng, 5);

    for (size_t i = 0; i < n_nodes; i++) {
        char name[16], ids[PLAN_MAX_CARDS][12];
        struct node_spec spec = {.name = name,
                                 .cpu_milli = (uint32_t)(500 * (1 + rng_below(rng, 16))),
                                 .memory_mib = (uint32_t)(256 * (1 + rng_below(rng, 16))),
                                 .n_cards = (uint32_t)rng_below(rng, 5)};

        snprintf(name, sizeof(name), "n%u", (unsigned)i);
        for (uint32_t c = 0; c < spec.n_cards; c++) {
            snprintf(ids[c], sizeof(ids[c]), "g%u", c);
            spec.cards[c] = (struct card_spec){ids[c], random_models[rng_below(rng, 2)],
                                               (uint32_t)(8192 * (1 + rng_below(rng, 3)))};
        }
        assert_true(cluster_view_set_node(&f->view, &spec, NULL) >= 0);
    }
}

static struct plan_request random_request(struct rng *rng, const char **models)
{
    struct plan_request r = {.cpu_milli = (uint32_t)(250 * rng_below(rng, 9)),
                             .memory_mib = (uint32_t)(128 * rng_below(rng, 9))};
    const uint64_t kind = rng_below(rng, 4);

    if (kind == 0)
        return r;
    r.gpu_milli =
        (uint32_t)(kind == 1 ? 1000 * (1 + rng_below(rng, 3)) : 100 * (1 + rng_below(rng, 9)));
    r.gpu_memory_mib = (uint32_t)(2048 * rng_below(rng, 7));
    if (rng_below(rng, 2) == 0) {
        r.n_models = 1 + rng_below(rng, 2);
        models[0] = random_models[rng_below(rng, 3)];
        models[1] = random_models[rng_below(rng, 3)];
        r.models = models;
    }
    return r;
}

/* What stands, added up from the placements alone. */
struct sums {
    uint64_t cpu[8], memory[8], milli[8][PLAN_MAX_CARDS], mib[8][PLAN_MAX_CARDS];
    uint32_t users[8][PLAN_MAX_CARDS];
};

static void sums_of(struct sums *s, const struct plan_placement *list, size_t n)
{
    memset(s, 0, sizeof(*s));
    for (size_t i = 0; i < n; i++) {
        s->cpu[list[i].node] += list[i].cpu_milli;
        s->memory[list[i].node] += list[i].memory_mib;
        for (uint32_t c = 0; c < list[i].n_cards; c++) {
            s->milli[list[i].node][list[i].cards[c]] += list[i].gpu_milli;
            s->mib[list[i].node][list[i].cards[c]] += list[i].gpu_memory_mib;
            s->users[list[i].node][list[i].cards[c]]++;
        }
    }
}

static void assert_within_capacity(const struct cluster_view *view, const struct sums *s)
{
    for (size_t n = 0; n < view->n_nodes; n++) {
        const struct plan_node *node = &view->nodes[n];

        assert_true(s->cpu[n] <= node->cpu_milli && s->memory[n] <= node->memory_mib);
        assert_int_equal(s->cpu[n], node->used_cpu_milli);
        assert_int_equal(s->memory[n], node->used_memory_mib);
        for (uint32_t c = 0; c < node->n_cards; c++) {
            assert_true(s->milli[n][c] <= 1000 && s->mib[n][c] <= node->cards[c].memory_mib);
            assert_int_equal(s->milli[n][c], node->cards[c].used_milli);
            assert_int_equal(s->mib[n][c], node->cards[c].used_memory_mib);
        }
    }
}

static int rank_of(const struct plan_request *r, const char *model)
{
    if (r->n_models == 0)
        return 0;
    for (size_t i = 0; i < r->n_models; i++)
        if (strcmp(r->models[i], model) == 0)
            return (int)i;
    return -1;
}

/* Tries every set of cards of every node. Returns whether one will do; ret_rank: the best model
 * rank, ret_milli_left: for a share, the least that any card of that rank keeps. */
static bool oracle_fits(const struct cluster_view *view, const struct sums *s,
                        const struct plan_request *r, int *ret_rank, uint64_t *ret_milli_left)
{
    const uint32_t want = r->gpu_milli >= 1000 ? r->gpu_milli / 1000 : (r->gpu_milli > 0);
    const uint64_t each = r->gpu_milli >= 1000 ? 1000 : r->gpu_milli;
    bool fits = false;

    *ret_rank = 1000;
    *ret_milli_left = UINT64_MAX;
    for (size_t n = 0; n < view->n_nodes; n++) {
        const struct plan_node *node = &view->nodes[n];

        if (s->cpu[n] + r->cpu_milli > node->cpu_milli ||
            s->memory[n] + r->memory_mib > node->memory_mib)
            continue;
        for (uint32_t set = 0; set < 1u << node->n_cards; set++) {
            const char *model = NULL;
            uint64_t milli_left = 0;
            bool good = (uint32_t)__builtin_popcount(set) == want;

            for (uint32_t c = 0; c < node->n_cards && good; c++) {
                const struct plan_card *card = &node->cards[c];

                if ((set & 1u << c) == 0)
                    continue;
                good = rank_of(r, card->model) >= 0 && s->milli[n][c] + each <= 1000 &&
                       s->mib[n][c] + r->gpu_memory_mib <= card->memory_mib &&
                       (each < 1000 || s->users[n][c] == 0) &&
                       (model == NULL || strcmp(model, card->model) == 0);
                model = card->model;
                milli_left = 1000 - s->milli[n][c] - each;
            }
            if (!good)
                continue;
            fits = true;
            if (model != NULL && rank_of(r, model) <= *ret_rank) {
                if (rank_of(r, model) < *ret_rank || milli_left < *ret_milli_left)
                    *ret_milli_left = milli_left;
                *ret_rank = rank_of(r, model);
            }
        }
    }
    return fits;
}

static void one_leaves(struct fixture *f, struct rng *rng)
{
    const size_t i = rng_below(rng, f->plan.n);

    cluster_view_release(&f->view, &f->plan.placements[i]);
    f->plan.placements[i] = f->plan.placements[--f->plan.n];
}

static void step_against_oracle(struct fixture *f, struct rng *rng)
{
    const char *models[2];
    const struct plan_request r = random_request(rng, models);
    struct plan_why why;
    struct sums before, after;
    uint64_t milli_left, unused;
    int rank, any_rank;
    bool fits;
    enum plan_outcome got;

    if (f->plan.n > 0 && rng_below(rng, 4) == 0)
        one_leaves(f, rng);
    sums_of(&before, f->plan.placements, f->plan.n);
    fits = oracle_fits(&f->view, &before, &r, &rank, &milli_left);
    got = plan_task(&f->plan, &r, &why);
    assert_int_equal(got == PLAN_OK, fits);
    sums_of(&after, f->plan.placements, f->plan.n);
    assert_within_capacity(&f->view, &after);
    if (got == PLAN_OK && r.gpu_milli > 0 && r.gpu_milli < 1000) {
        const struct plan_placement *p = &f->plan.placements[f->plan.n - 1];

        assert_int_equal(rank_of(&r, f->view.nodes[p->node].cards[p->cards[0]].model), rank);
        assert_int_equal(1000 - after.milli[p->node][p->cards[0]], milli_left);
    }
    if (got != PLAN_OK) {
        const struct sums none = {0};
        uint32_t n = 0;

        for (int k = 0; k < PLAN_N_SHORT; k++)
            n += why.counts[k];
        assert_int_equal(n, f->view.n_nodes); /* each node has its reason */
        assert_int_equal(got == PLAN_E_NEVER,
                         !oracle_fits(&f->view, &none, &r, &any_rank, &unused));
    }
}

static void single_tasks_fit_as_the_oracle_says_and_go_to_the_fullest_card(void **state)
{
    struct rng rng;

    (void)state;
    rng_init(&rng, 20240601);
    for (int round = 0; round < 400; round++) {
        void *f;

        setup(&f);
        random_cluster(f, &rng);
        for (int step = 0; step < 60; step++)
            step_against_oracle(f, &rng);
        teardown(&f);
    }
}

static void assert_same_use(const struct cluster_view *a, const struct cluster_view *b)
{
    assert_int_equal(a->n_nodes, b->n_nodes);
    for (size_t n = 0; n < a->n_nodes; n++) {
        assert_int_equal(a->nodes[n].used_cpu_milli, b->nodes[n].used_cpu_milli);
        assert_int_equal(a->nodes[n].used_memory_mib, b->nodes[n].used_memory_mib);
        for (uint32_t c = 0; c < a->nodes[n].n_cards; c++) {
            const struct plan_card *ca = &a->nodes[n].cards[c], *cb = &b->nodes[n].cards[c];

            assert_int_equal(ca->used_milli, cb->used_milli);
            assert_int_equal(ca->used_memory_mib, cb->used_memory_mib);
            assert_int_equal(ca->n_users, cb->n_users);
        }
    }
}

/* Returns true when the gang found its place. */
static bool random_gang(struct fixture *f, struct rng *rng)
{
    const char *models[8][2];
    struct plan_request tasks[8];
    const size_t n_tasks = 1 + rng_below(rng, 8), n_before = f->plan.n;
    struct cluster_view before;
    struct sums after;
    bool seen[8] = {false}, placed;

    for (size_t i = 0; i < n_tasks; i++)
        tasks[i] = random_request(rng, models[i]);
    cluster_view_copy(&before, &f->view);
    placed = plan_gang(&f->plan, tasks, n_tasks, NULL) == PLAN_OK;
    assert_int_equal(f->plan.n, placed ? n_before + n_tasks : n_before);
    for (size_t i = n_before; i < f->plan.n; i++) {
        const struct plan_placement *p = &f->plan.placements[i];

        assert_false(seen[p->task]);
        seen[p->task] = true;
        assert_int_equal(p->cpu_milli, tasks[p->task].cpu_milli);
    }
    if (!placed)
        assert_same_use(&f->view, &before);
    cluster_view_fini(&before);
    sums_of(&after, f->plan.placements, f->plan.n);
    assert_within_capacity(&f->view, &after);
    return placed;
}

static void random_gangs_are_placed_whole_or_change_nothing(void **state)
{
    struct rng rng;
    int placed = 0, refused = 0;

    (void)state;
    rng_init(&rng, 7);
    for (int round = 0; round < 300; round++) {
        struct cluster_view empty;
        struct fixture *f;
        void *p;

        setup(&p);
        f = p;
        random_cluster(f, &rng);
        cluster_view_copy(&empty, &f->view);
        for (int step = 0; step < 20; step++) {
            if (random_gang(f, &rng))
                placed++;
            else
                refused++;
        }
        plan_rewind(&f->plan, (struct plan_mark){0});
        assert_same_use(&f->view, &empty);
        cluster_view_fini(&empty);
        teardown(&p);
    }
    assert_true(placed > 300 && refused > 300); /* both sides were exercised */
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(two_halves_share_one_card),
        TEST(a_whole_card_is_refused_beside_two_halves_and_the_reason_names_both),
        TEST(a_24_gib_card_takes_12_and_12_and_refuses_a_third),
        TEST(a_46068_mib_card_takes_23_times_2000_not_24),
        TEST(tasks_of_30_and_50_cores_fit_53_and_31_in_both_orders),
        TEST(gang_that_does_not_fit_leaves_no_trace),
        TEST(a_gang_after_a_mark_rewinds_to_the_mark_only),
        TEST(hardest_tasks_of_a_gang_go_first_and_keep_their_index),
        TEST(a_gang_backs_up_when_its_first_choices_leave_no_room),
        TEST(the_first_model_is_preferred_and_the_second_taken_when_it_is_full),
        TEST(whole_cards_of_one_task_are_of_one_model),
        TEST(a_lost_card_gets_nothing_new_and_the_rest_goes_on),
        TEST(a_node_that_shrank_under_its_load_takes_nothing_until_that_ended),
        TEST(requests_that_make_no_sense_are_refused_with_the_rule),
        TEST(a_task_larger_than_every_node_never_fits_and_says_so),
        TEST(inventories_with_errors_are_refused),
        TEST(single_tasks_fit_as_the_oracle_says_and_go_to_the_fullest_card),
        TEST(random_gangs_are_placed_whole_or_change_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
