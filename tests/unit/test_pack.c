/* placer/pack.h, typical.h, score.h, picker.h, max_tree.h together. */
#include "placer/pack.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/hash.h"
#include "base/rng.h"
#include "placer/max_tree.h"
#include "placer/picker.h"
#include "placer/score.h"

/* ---- fragmentation of a tiny node, by hand ---- */

/* A node of 10 cores and two cards, T4, of which card 0 has 300 milli free and card 1 all. */
struct tiny {
    struct shape_table shapes;
    struct pack pack;
    uint32_t t4, other;
};

static void tiny_init(struct tiny *t, uint32_t n_nodes)
{
    struct pack_node_spec specs[4];

    shape_table_init(&t->shapes);
    t->t4 = (uint32_t)shape_model(&t->shapes, "T4", 2);
    t->other = (uint32_t)shape_model(&t->shapes, "P100", 4);
    for (uint32_t i = 0; i < n_nodes; i++)
        specs[i] = (struct pack_node_spec){
            .cpu_milli = 10000, .memory_mib = 1000, .n_cards = 2, .max_tasks = 5, .model = t->t4};
    pack_init(&t->pack, specs, n_nodes, &t->shapes);
}

static void tiny_fini(struct tiny *t)
{
    pack_fini(&t->pack);
    shape_table_fini(&t->shapes);
}

static struct shape gpu_shape(uint32_t cpu_milli, uint32_t n_cards, uint32_t card_milli)
{
    return (struct shape){.cpu_milli = cpu_milli,
                          .n_cards = n_cards,
                          .card_milli = card_milli,
                          .models = SHAPE_ANY_MODEL};
}

/* Only this shape is typical; returns the fragmented milli of the pack. */
static int64_t fragmented_for(struct tiny *t, struct shape s)
{
    uint64_t counts[64] = {0};

    counts[shape_intern(&t->shapes, &s)] = 1;
    pack_set_typical(&t->pack, counts, 100);
    assert_int_equal(t->pack.typical.weight, 1);
    return pack_fragmented(&t->pack);
}

static void what_a_typical_task_cannot_use_is_fragmented(void **state)
{
    const struct shape fill = gpu_shape(2000, 1, 700);
    struct shape s;
    struct tiny t;

    (void)state;
    tiny_init(&t, 1);
    shape_intern(&t.shapes, &fill);
    pack_take(&t.pack, &fill, (struct pack_spot){.node = 0, .cards = 1});
    /* 8 cores and 300 + 1000 milli are free */
    assert_int_equal(fragmented_for(&t, gpu_shape(1000, 1, 300)), 0);     /* both cards serve */
    assert_int_equal(fragmented_for(&t, gpu_shape(1000, 1, 301)), 300);   /* card 0 does not */
    assert_int_equal(fragmented_for(&t, gpu_shape(8000, 1, 1000)), 300);  /* whole cards */
    assert_int_equal(fragmented_for(&t, gpu_shape(8001, 1, 300)), 1300);  /* no CPU */
    assert_int_equal(fragmented_for(&t, gpu_shape(1000, 2, 1000)), 1300); /* one whole card only */
    assert_int_equal(fragmented_for(&t, gpu_shape(1000, 0, 0)), 1300);    /* asks for no card */
    s = gpu_shape(1000, 1, 300);
    s.models = UINT64_C(1) << t.other;
    assert_int_equal(fragmented_for(&t, s), 1300); /* another model */
    s.models |= UINT64_C(1) << t.t4;
    assert_int_equal(fragmented_for(&t, s), 0);
    tiny_fini(&t);
}

static void typical_tasks_weigh_by_how_often_they_come(void **state)
{
    const struct shape fill = gpu_shape(2000, 1, 700), whole = gpu_shape(1000, 1, 1000);
    const struct shape share = gpu_shape(1000, 1, 300), no_card = gpu_shape(1000, 0, 0);
    struct shape share_with_memory = share;
    uint64_t counts[8] = {0};
    struct tiny t;

    (void)state;
    share_with_memory.memory_mib = 5;
    tiny_init(&t, 1);
    shape_intern(&t.shapes, &fill);
    pack_take(&t.pack, &fill, (struct pack_spot){.node = 0, .cards = 1});
    counts[shape_intern(&t.shapes, &whole)] = 60;
    counts[shape_intern(&t.shapes, &share)] = 20;
    counts[shape_intern(&t.shapes, &share_with_memory)] = 5; /* memory makes no other task */
    counts[shape_intern(&t.shapes, &no_card)] = 15;
    pack_set_typical(&t.pack, counts, 100);
    assert_int_equal(t.pack.typical.n, 3);
    /* 60 x 300 + 25 x 0 + 15 x 1300 */
    assert_int_equal(pack_fragmented(&t.pack), 18000 + 19500);
    /* 60 + 25 reach 85 %: the rest is no longer typical */
    pack_set_typical(&t.pack, counts, 85);
    assert_int_equal(t.pack.typical.n, 2);
    assert_int_equal(t.pack.typical.weight, 85);
    assert_int_equal(pack_fragmented(&t.pack), 18000);
    tiny_fini(&t);
}

/* ---- scores, by hand ---- */

static void a_share_goes_where_it_adds_least_fragmentation(void **state)
{
    const struct shape fill = gpu_shape(2000, 1, 700), whole = gpu_shape(1000, 1, 1000);
    const struct shape share = gpu_shape(1000, 1, 300);
    uint64_t counts[8] = {0};
    struct tiny t;
    uint32_t card = 9;

    (void)state;
    tiny_init(&t, 1);
    shape_intern(&t.shapes, &fill);
    pack_take(&t.pack, &fill, (struct pack_spot){.node = 0, .cards = 1});
    counts[shape_intern(&t.shapes, &whole)] = 1;
    pack_set_typical(&t.pack, counts, 100);
    /* F is 300. With the share on card 0: 0, a gain of 300; on card 1: 300 + 700, a loss of 700. */
    assert_int_equal(score_fgd.score(&t.pack, &t.pack.nodes[0], &share, &card), 57);
    assert_int_equal(card, 0); /* 100 / (1 + exp(-0.3)) = 57.44 */
    card = 9;
    /* 300 / 40 = 7.5 steps; the node is in use */
    assert_int_equal(score_penstock.score(&t.pack, &t.pack.nodes[0], &share, &card), 2 * 7 + 1);
    assert_int_equal(card, 0);
    /* A whole card: F stays 300 (nothing that was useless was taken): 100 / 2. */
    assert_int_equal(score_fgd.score(&t.pack, &t.pack.nodes[0], &whole, &card), 50);
    /* 8 - 1 cores and 1300 - 300 milli left: 100 (1 - 7000 / 256000 - 1000 / 16000) = 91.02 */
    card = 9;
    assert_int_equal(score_bestfit.score(&t.pack, &t.pack.nodes[0], &share, &card), 91);
    assert_int_equal(card, 0); /* the fullest that fits */
    tiny_fini(&t);
}

static void a_loss_is_rounded_down_too(void **state)
{
    const struct shape share = gpu_shape(1000, 1, 10), whole = gpu_shape(1000, 1, 1000);
    uint64_t counts[8] = {0};
    struct tiny t;
    uint32_t card;

    (void)state;
    tiny_init(&t, 1);
    counts[shape_intern(&t.shapes, &whole)] = 1;
    pack_set_typical(&t.pack, counts, 100);
    /* Two whole cards become one and 990 useless milli: -990 / 40 = -24.75; the node is not in use;
     * 100 / (1 + exp(0.99)) = 27.09 */
    assert_int_equal(score_penstock.score(&t.pack, &t.pack.nodes[0], &share, &card), 2 * -25);
    assert_int_equal(score_fgd.score(&t.pack, &t.pack.nodes[0], &share, &card), 27);
    tiny_fini(&t);
}

static void the_sigmoid_has_its_published_steps(void **state)
{
    const struct shape whole = gpu_shape(1000, 1, 1000);
    /* 100 / (1 + exp(-x / 1000)): 51 from x = 1000 ln(51 / 49) = 40.005 on, 49 below 0 */
    static const struct {
        int64_t gain;
        int32_t score;
    } rows[] = {{0, 50}, {40, 50}, {41, 51}, {-1, 49}, {-40, 49}, {-41, 48}, {100000, 99}};
    uint64_t counts[8] = {0};
    struct tiny t;

    (void)state;
    tiny_init(&t, 1);
    counts[shape_intern(&t.shapes, &whole)] = 7;
    pack_set_typical(&t.pack, counts, 100);
    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        assert_int_equal(typical_sigmoid(&t.pack.typical, 7 * rows[i].gain), rows[i].score);
    assert_int_equal(typical_sigmoid(&t.pack.typical, -1000000), 0);
    tiny_fini(&t);
}

/* ---- room ---- */

static void a_task_needs_room_of_every_kind(void **state)
{
    struct shape s = gpu_shape(10000, 2, 1000);
    struct tiny t;

    (void)state;
    tiny_init(&t, 1);

    const struct pack_node *const n = &t.pack.nodes[0];

    assert_true(pack_fits(n, &s));
    s.cpu_milli++;
    assert_false(pack_fits(n, &s));
    s = gpu_shape(0, 3, 1000);
    assert_false(pack_fits(n, &s));
    s = gpu_shape(0, 1, 500);
    s.memory_mib = 1001;
    assert_false(pack_fits(n, &s));
    s.memory_mib = 1000;
    assert_true(pack_fits(n, &s));
    s.models = UINT64_C(1) << t.other;
    assert_false(pack_fits(n, &s));
    s = gpu_shape(0, 1, 600);
    pack_take(&t.pack, &s, (struct pack_spot){.node = 0, .cards = 1});
    pack_take(&t.pack, &s, (struct pack_spot){.node = 0, .cards = 2});
    assert_false(pack_fits(n, &s)); /* 400 + 400 are no 600 */
    s = gpu_shape(0, 1, 400);
    assert_true(pack_fits(n, &s));
    s = gpu_shape(0, 0, 0);
    for (int i = 0; i < 3; i++) /* five tasks are the most */
        pack_take(&t.pack, &s, (struct pack_spot){.node = 0, .cards = 0});
    assert_false(pack_fits(n, &s));
    pack_release(&t.pack, &s, (struct pack_spot){.node = 0, .cards = 0});
    assert_true(pack_fits(n, &s));
    tiny_fini(&t);
}

static void equal_scores_go_to_the_first_node_and_whole_tasks_to_the_lowest_cards(void **state)
{
    const struct shape whole = gpu_shape(0, 1, 1000);
    struct pack_spot spot = {0};
    struct tiny t;

    (void)state;
    tiny_init(&t, 3);

    const uint32_t shape = shape_intern(&t.shapes, &whole);
    struct picker *const k = picker_new(&t.pack, &score_penstock);

    for (uint32_t i = 0; i < 6; i++) {
        assert_true(picker_pick(k, shape, &spot));
        assert_int_equal(spot.node, i / 2);
        assert_int_equal(spot.cards, 1u << i % 2);
        pack_take(&t.pack, &whole, spot);
    }
    assert_false(picker_pick(k, shape, &spot));
    picker_free(k);
    tiny_fini(&t);
}

/* ---- the trees give what scoring every node gives ---- */

#define N_NODES  300
#define N_SHAPES 40
#define N_TASKS  6000

struct random_cluster {
    struct shape_table shapes;
    struct pack pack;
    struct rng rng;
};

static void random_cluster_init(struct random_cluster *c, uint64_t seed)
{
    static const uint32_t n_cards[] = {0, 1, 2, 4, 8, 16};
    struct pack_node_spec specs[N_NODES];

    rng_init(&c->rng, seed);
    shape_table_init(&c->shapes);
    shape_model(&c->shapes, "a", 1);
    shape_model(&c->shapes, "b", 1);
    shape_model(&c->shapes, "c", 1);
    for (size_t i = 0; i < N_NODES; i++) {
        specs[i].cpu_milli = (uint32_t)rng_below(&c->rng, 100) * 1000;
        specs[i].memory_mib = 100000;
        specs[i].n_cards = n_cards[rng_below(&c->rng, ARRAY_LEN(n_cards))];
        specs[i].max_tasks = 20;
        specs[i].model = specs[i].n_cards == 0 ? 0 : (uint32_t)rng_below(&c->rng, 3);
    }
    while (c->shapes.n < N_SHAPES) {
        struct shape s = {.cpu_milli = (uint32_t)rng_below(&c->rng, 10) * 1000,
                          .memory_mib = (uint32_t)rng_below(&c->rng, 3) * 1000,
                          .n_cards = n_cards[rng_below(&c->rng, 5)],
                          .models = SHAPE_ANY_MODEL};

        if (s.n_cards > 0) {
            s.card_milli = s.n_cards > 1 ? 1000 : 100 * (1 + (uint32_t)rng_below(&c->rng, 10));
            if (rng_below(&c->rng, 4) == 0)
                s.models = 1 + rng_below(&c->rng, 7);
        }
        shape_intern(&c->shapes, &s);
    }
    pack_init(&c->pack, specs, N_NODES, &c->shapes);
}

static void random_typical(struct random_cluster *c)
{
    uint64_t counts[N_SHAPES];

    for (size_t i = 0; i < N_SHAPES; i++)
        counts[i] = rng_below(&c->rng, 100);
    pack_set_typical(&c->pack, counts, 95);
}

/* F of the whole pack from the definition: task by task, card by card. */
static int64_t fragmented_by_definition(const struct pack *p)
{
    int64_t sum = 0;

    for (uint32_t i = 0; i < p->n_nodes; i++) {
        const struct pack_node *const n = &p->nodes[i];

        for (size_t m = 0; m < p->typical.n; m++) {
            const struct typical_task *const task = &p->typical.tasks[m];
            uint32_t n_serving = 0, idle = 0, serving = 0;

            for (uint32_t c = 0; c < n->n_cards; c++) {
                idle += n->free_milli[c];
                if (n->free_milli[c] >= task->card_milli) {
                    n_serving++;
                    serving += n->free_milli[c];
                }
            }
            if (task->n_cards == 0 || (task->models >> n->model & 1) == 0 ||
                n->free_cpu_milli < task->cpu_milli || n_serving < task->n_cards)
                serving = 0;
            sum += (int64_t)task->count * (idle - serving);
        }
    }
    return sum;
}

struct standing {
    uint32_t shape;
    struct pack_spot spot;
};

/* Arrivals and departures at random, to the brim and back; every now and then other typical tasks.
 * scan: score every node instead. Returns a hash of all decisions. */
static uint64_t decide_at_random(uint64_t seed, const struct score_ops *score, bool scan)
{
    static struct standing standing[N_TASKS];
    size_t n_standing = 0;
    struct random_cluster c;
    uint64_t hash = 0;

    random_cluster_init(&c, seed);

    struct picker *const k = picker_new(&c.pack, score);

    for (size_t i = 0; i < N_TASKS; i++) {
        struct standing new = {.shape = (uint32_t)rng_below(&c.rng, N_SHAPES)};
        const bool placed =
            scan ? picker_scan(k, new.shape, &new.spot) : picker_pick(k, new.shape, &new.spot);

        hash = hash_bytes(&placed, sizeof(placed), hash);
        if (placed) {
            hash = hash_bytes(&new.spot.node, sizeof(new.spot.node), hash);
            hash = hash_bytes(&new.spot.cards, sizeof(new.spot.cards), hash);
            pack_take(&c.pack, &c.shapes.shapes[new.shape], new.spot);
            standing[n_standing++] = new;
        }
        if (i % 1000 == 100)
            random_typical(&c);
        if (i % 500 == 0)
            assert_int_equal(pack_fragmented(&c.pack), fragmented_by_definition(&c.pack));
        /* as many leave as come, once it has filled up; now and then many at once */
        for (uint64_t n = i < N_TASKS / 3 ? 0
                          : i % 700 == 0  ? 400
                                          : rng_below(&c.rng, 3);
             n > 0 && n_standing > 0; n--) {
            const size_t j = rng_below(&c.rng, n_standing);

            pack_release(&c.pack, &c.shapes.shapes[standing[j].shape], standing[j].spot);
            standing[j] = standing[--n_standing];
        }
    }
    picker_free(k);
    while (n_standing-- > 0)
        pack_release(&c.pack, &c.shapes.shapes[standing[n_standing].shape],
                     standing[n_standing].spot);
    assert_int_equal(c.pack.idle_milli, c.pack.capacity_milli); /* all came back */
    pack_fini(&c.pack);
    shape_table_fini(&c.shapes);
    return hash;
}

static void trees_decide_as_scoring_every_node_does(void **state)
{
    static const struct score_ops *const scores[] = {&score_bestfit, &score_fgd, &score_penstock};

    (void)state;
    for (size_t s = 0; s < ARRAY_LEN(scores); s++)
        for (uint64_t seed = 1; seed <= 2; seed++)
            assert_true(decide_at_random(seed, scores[s], false) ==
                        decide_at_random(seed, scores[s], true));
    assert_true(decide_at_random(1, &score_fgd, false) !=
                decide_at_random(1, &score_bestfit, false)); /* the hash says something */
}

/* ---- max_tree ---- */

static void the_first_of_the_largest_is_found_at_every_size(void **state)
{
    static const size_t sizes[] = {1, 2, 15, 16, 17, 255, 256, 257, 5000};
    struct rng r;

    (void)state;
    rng_init(&r, 5);
    for (size_t s = 0; s < ARRAY_LEN(sizes); s++) {
        int32_t *const plain = calloc(sizes[s], sizeof(*plain));
        struct max_tree t;

        max_tree_init(&t, sizes[s]);
        assert_int_equal(max_tree_first(&t), -1);
        for (size_t i = 0; i < sizes[s]; i++)
            max_tree_numbers(&t)[i] = plain[i] = (int32_t)rng_below(&r, 1000) - 500;
        max_tree_build(&t);
        for (int step = 0; step < 300; step++) {
            const size_t i = rng_below(&r, sizes[s]);
            size_t first = 0;

            for (size_t j = 1; j < sizes[s]; j++)
                first = plain[j] > plain[first] ? j : first;
            assert_int_equal(max_tree_first(&t), first);
            plain[step % 2 == 0 ? first : i] = (int32_t)rng_below(&r, 1000) - 500;
            max_tree_set(&t, step % 2 == 0 ? first : i, plain[step % 2 == 0 ? first : i]);
        }
        max_tree_fini(&t);
        free(plain);
    }
}

static void equal_requests_are_one_shape(void **state)
{
    struct shape a = gpu_shape(1000, 1, 500), b = a;
    struct shape_table t;

    (void)state;
    shape_table_init(&t);
    assert_int_equal(shape_intern(&t, &a), 0);
    b.memory_mib = 1;
    assert_int_equal(shape_intern(&t, &b), 1);
    b.memory_mib = 0;
    assert_int_equal(shape_intern(&t, &b), 0);
    for (int i = 0; i < SHAPE_MAX_MODELS; i++) {
        const char name[2] = {(char)('0' + i), '\0'};

        assert_int_equal(shape_model(&t, name, 1), i);
        assert_int_equal(shape_model(&t, name, 1), i);
    }
    assert_int_equal(shape_model(&t, "one too many", 12), -1);
    shape_table_fini(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_a_typical_task_cannot_use_is_fragmented),
        cmocka_unit_test(typical_tasks_weigh_by_how_often_they_come),
        cmocka_unit_test(a_share_goes_where_it_adds_least_fragmentation),
        cmocka_unit_test(a_loss_is_rounded_down_too),
        cmocka_unit_test(the_sigmoid_has_its_published_steps),
        cmocka_unit_test(a_task_needs_room_of_every_kind),
        cmocka_unit_test(equal_scores_go_to_the_first_node_and_whole_tasks_to_the_lowest_cards),
        cmocka_unit_test(trees_decide_as_scoring_every_node_does),
        cmocka_unit_test(the_first_of_the_largest_is_found_at_every_size),
        cmocka_unit_test(equal_requests_are_one_shape),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
