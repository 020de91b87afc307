/* tests/bench/placer_bench.c - how many placement decisions a second one core makes.
 *
 * usage: placer_bench [--seconds S] [NODES...]      1000 10000 100000 unless said otherwise
 *
 * A made-up cluster like the large ones of today: ten cards a node in the mean (three of four nodes
 * have 8, one has 16), four models, 12 cores a card. 150 distinct requests, of which the five most
 * frequent are 41 % of all tasks, as in the openb trace: CPU only, shares, one card, two to eight.
 * It is filled to 90 % of its cards; then each task that comes sends as many away as keep it there.
 * Timed, in CPU time of one core: picking a spot and taking it. Giving back is in the rate, not in
 * the quantiles.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/check.h"
#include "base/histogram.h"
#include "base/rng.h"
#include "base/xalloc.h"
#include "placer/picker.h"

#define N_SHAPES    150
#define FULL_PCT    90
#define MAX_PLACES  (16u * 1024 * 1024)
#define MODEL_NAMES "abcd"

struct bench {
    struct shape_table shapes;
    struct pack pack;
    struct rng rng;
    uint64_t counts[N_SHAPES];
    double cumulative[N_SHAPES]; /* chance of a shape up to this one */
    uint32_t *shape_of;          /* tasks that stand */
    struct pack_spot *spot_of;
    size_t n_standing, cap_standing;
};

/* CPU time of this thread: what others do on the machine is in no figure but by their cache misses.
 */
static uint64_t now_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static struct shape random_shape(struct rng *rng, size_t rank)
{
    static const uint32_t gpu_cores[] = {4, 6, 8, 10, 12};
    const uint64_t kind = rng_below(rng, 100);
    struct shape s = {.models = SHAPE_ANY_MODEL};
    uint32_t cores;

    if (kind < 13) {
        cores = 1 + (uint32_t)rng_below(rng, 16);
    } else if (kind < 51) {
        s.n_cards = 1;
        s.card_milli = 50 + 10 * (uint32_t)rng_below(rng, 77);
        cores = 1 + (uint32_t)rng_below(rng, 1 + s.card_milli / 100);
    } else {
        s.n_cards = kind < 94 || rank < 20 ? 1 : 2u << rng_below(rng, 3);
        s.card_milli = PLAN_CARD_MILLI;
        cores = s.n_cards * gpu_cores[rng_below(rng, ARRAY_LEN(gpu_cores))];
    }
    if (s.n_cards > 0 && rng_below(rng, 5) == 0)
        s.models = UINT64_C(1) << rng_below(rng, strlen(MODEL_NAMES));
    s.cpu_milli = cores * 1000;
    s.memory_mib = cores * 1024 * (1u << rng_below(rng, 3));
    return s;
}

static void bench_init(struct bench *b, uint32_t n_nodes)
{
    struct pack_node_spec *const specs = xcalloc(n_nodes, sizeof(*specs));
    double sum = 0;

    memset(b, 0, sizeof(*b));
    rng_init(&b->rng, 42);
    shape_table_init(&b->shapes);
    for (const char *m = MODEL_NAMES; *m != '\0'; m++)
        shape_model(&b->shapes, m, 1);
    while (b->shapes.n < N_SHAPES) {
        const struct shape s = random_shape(&b->rng, b->shapes.n);

        shape_intern(&b->shapes, &s);
    }
    for (size_t i = 0; i < N_SHAPES; i++) { /* Zipf: the first five of 150 have 41 % */
        b->counts[i] = 1000000 / (i + 1);
        sum += (double)b->counts[i];
        b->cumulative[i] = sum;
    }
    for (size_t i = 0; i < N_SHAPES; i++)
        b->cumulative[i] /= sum;
    for (uint32_t i = 0; i < n_nodes; i++)
        specs[i] = (struct pack_node_spec){.cpu_milli = i % 4 == 3 ? 192000 : 96000,
                                           .memory_mib = i % 4 == 3 ? 2048 * 1024 : 1024 * 1024,
                                           .n_cards = i % 4 == 3 ? 16 : 8,
                                           .max_tasks = 1000,
                                           .model = (uint32_t)rng_below(&b->rng, 4)};
    pack_init(&b->pack, specs, n_nodes, &b->shapes);
    pack_set_typical(&b->pack, b->counts, 95);
    free(specs);
}

static void bench_fini(struct bench *b)
{
    pack_fini(&b->pack);
    shape_table_fini(&b->shapes);
    free(b->shape_of);
    free(b->spot_of);
}

static uint32_t draw_shape(struct bench *b)
{
    const double x = rng_unit(&b->rng);
    uint32_t low = 0, high = N_SHAPES - 1;

    while (low < high) {
        const uint32_t middle = (low + high) / 2;

        if (b->cumulative[middle] < x)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static void keep(struct bench *b, uint32_t shape, struct pack_spot spot)
{
    if (b->n_standing == b->cap_standing) {
        b->cap_standing = b->cap_standing == 0 ? 4096 : b->cap_standing * 2;
        check(b->cap_standing <= MAX_PLACES);
        b->shape_of = xrealloc(b->shape_of, b->cap_standing, sizeof(*b->shape_of));
        b->spot_of = xrealloc(b->spot_of, b->cap_standing, sizeof(*b->spot_of));
    }
    b->shape_of[b->n_standing] = shape;
    b->spot_of[b->n_standing++] = spot;
}

static bool is_over_full(const struct bench *b)
{
    return b->pack.idle_milli * 100 < b->pack.capacity_milli * (100 - FULL_PCT);
}

static void send_one_away(struct bench *b)
{
    const size_t i = rng_below(&b->rng, b->n_standing);

    pack_release(&b->pack, &b->shapes.shapes[b->shape_of[i]], b->spot_of[i]);
    b->shape_of[i] = b->shape_of[--b->n_standing];
    b->spot_of[i] = b->spot_of[b->n_standing];
}

/* Returns whether there was room. */
static bool decide(struct bench *b, struct picker *k, uint32_t shape)
{
    struct pack_spot spot;

    if (!picker_pick(k, shape, &spot))
        return false;
    pack_take(&b->pack, &b->shapes.shapes[shape], spot);
    keep(b, shape, spot);
    return true;
}

static void measure(const struct score_ops *score, uint32_t n_nodes, double seconds)
{
    struct bench b;
    struct histogram took_ns;
    uint64_t n = 0, n_dropped = 0, departed = 0, from, until, last;

    bench_init(&b, n_nodes);

    struct picker *const k = picker_new(&b.pack, score);

    histogram_init(&took_ns);
    while (!is_over_full(&b))
        decide(&b, k, draw_shape(&b));
    for (uint32_t i = 0; i < 4 * n_nodes; i++) { /* so that every shape has its tree */
        decide(&b, k, draw_shape(&b));
        while (is_over_full(&b))
            send_one_away(&b);
    }

    const uint64_t scored_before = picker_n_scored(k);

    from = last = now_ns();
    until = from + (uint64_t)(seconds * 1e9);
    while (last < until) {
        const uint32_t shape = draw_shape(&b);
        const uint64_t began = now_ns();

        n_dropped += !decide(&b, k, shape);
        last = now_ns();
        histogram_add(&took_ns, last - began, 1);
        n++;
        for (; is_over_full(&b); departed++)
            send_one_away(&b);
    }
    printf("%-9s %8u %9lld %12.0f %9.1f %9.1f %9.1f %8.1f %7.2f %8.2f\n", score->name, n_nodes,
           (long long)(b.pack.capacity_milli / PLAN_CARD_MILLI),
           (double)n * 1e9 / (double)(last - from), (double)histogram_quantile(&took_ns, 0.5) / 1e3,
           (double)histogram_quantile(&took_ns, 0.99) / 1e3,
           (double)histogram_quantile(&took_ns, 0.999) / 1e3,
           (double)(picker_n_scored(k) - scored_before) / (double)n, (double)departed / (double)n,
           100.0 * (double)n_dropped / (double)n);
    fflush(stdout);
    picker_free(k);
    bench_fini(&b);
}

int main(int argc, char **argv)
{
    static const struct score_ops *const scores[] = {&score_bestfit, &score_fgd, &score_penstock};
    static const char *const default_sizes[] = {"1000", "10000", "100000"};
    double seconds = 3;
    int first = 1;

    if (argc > 2 && strcmp(argv[1], "--seconds") == 0) {
        seconds = strtod(argv[2], NULL);
        first = 3;
    }

    const int n_sizes = argc > first ? argc - first : (int)ARRAY_LEN(default_sizes);

    printf("%-9s %8s %9s %12s %9s %9s %9s %8s %7s %8s\n", "score", "nodes", "cards", "decisions/s",
           "p50 us", "p99 us", "p99.9 us", "rescored", "gone", "no room");
    printf("%-9s %8s %9s %12s %9s %9s %9s %8s %7s %8s\n", "", "", "", "one core", "", "", "",
           "nodes", "tasks", "%");
    for (int i = 0; i < n_sizes; i++) {
        const char *const size = argc > first ? argv[first + i] : default_sizes[i];
        const unsigned long n = strtoul(size, NULL, 10);

        if (n < 1 || n > 1000000) {
            fprintf(stderr, "placer_bench: %s: not a number of nodes from 1 to 1000000\n", size);
            return 64;
        }
        for (size_t s = 0; s < ARRAY_LEN(scores); s++)
            measure(scores[s], (uint32_t)n, seconds);
    }
    return 0;
}
