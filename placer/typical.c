#include "placer/typical.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/xalloc.h"

static bool same_task(const struct typical_task *a, const struct shape *s)
{
    return a->cpu_milli == s->cpu_milli && a->n_cards == s->n_cards &&
           a->card_milli == s->card_milli && a->models == s->models;
}

#define COMPARE(x, y) ((x) < (y) ? -1 : (x) > (y))

/* Most frequent first; then any fixed order, so that the cut does not depend on the input's. */
static int by_count(const void *left, const void *right)
{
    const struct typical_task *const a = left, *const b = right;

    if (a->count != b->count)
        return COMPARE(b->count, a->count);
    if (a->cpu_milli != b->cpu_milli)
        return COMPARE(a->cpu_milli, b->cpu_milli);
    if (a->n_cards != b->n_cards)
        return COMPARE(a->n_cards, b->n_cards);
    if (a->card_milli != b->card_milli)
        return COMPARE(a->card_milli, b->card_milli);
    return COMPARE(a->models, b->models);
}

static int by_number(const void *left, const void *right)
{
    const uint32_t a = *(const uint32_t *)left, b = *(const uint32_t *)right;

    return COMPARE(a, b);
}

/* Sort and drop what is there twice; returns how many stay. */
static size_t distinct(uint32_t *numbers, size_t n)
{
    size_t kept = 0;

    qsort(numbers, n, sizeof(*numbers), by_number);
    for (size_t i = 0; i < n; i++)
        if (kept == 0 || numbers[kept - 1] != numbers[i])
            numbers[kept++] = numbers[i];
    return kept;
}

static void choose_tasks(struct typical *t, const struct shape *shapes, const uint64_t *counts,
                         size_t n, uint32_t coverage_pct)
{
    struct typical_task *const all = xcalloc(n + 1, sizeof(*all));
    size_t n_all = 0;
    uint64_t total = 0;

    for (size_t i = 0; i < n; i++) {
        size_t j = 0;

        while (j < n_all && !same_task(&all[j], &shapes[i]))
            j++;
        if (j == n_all) {
            all[n_all++] = (struct typical_task){.cpu_milli = shapes[i].cpu_milli,
                                                 .n_cards = shapes[i].n_cards,
                                                 .card_milli = shapes[i].card_milli,
                                                 .models = shapes[i].models};
        }
        all[j].count += counts[i];
        total += counts[i];
    }
    qsort(all, n_all, sizeof(*all), by_count);
    for (size_t i = 0; i < n_all && i < TYPICAL_MAX_TASKS; i++) {
        if ((uint64_t)t->weight * 100 >= total * coverage_pct)
            break;
        t->tasks[t->n++] = all[i];
        t->weight += (int64_t)all[i].count;
    }
    free(all);
}

/* The weight of one task goes into every row whose nodes can host it. */
static void add_task(struct typical *t, const struct typical_task *task)
{
    for (size_t model = 0; model < t->n_models; model++) {
        if ((task->models >> model & 1) == 0)
            continue;
        for (size_t class = 0; class < t->n_classes; class ++) {
            int64_t *const row = t->rows + (model * t->n_classes + class) * t->row_len;
            int64_t *const whole = row + t->n_grades + 1;

            if (class == 0 || t->class_cpu_milli[class - 1] < task->cpu_milli)
                continue; /* class 0 has less CPU than any */
            if (task->card_milli == PLAN_CARD_MILLI) {
                for (uint32_t k = task->n_cards; k <= PLAN_MAX_CARDS; k++)
                    whole[k] += (int64_t)task->count;
            } else {
                for (size_t g = t->grade_of[task->card_milli]; g <= t->n_grades; g++)
                    row[g] += (int64_t)task->count;
            }
        }
    }
}

void typical_init(struct typical *t, const struct shape *shapes, const uint64_t *counts, size_t n,
                  size_t n_models, uint32_t coverage_pct)
{
    uint32_t grades[TYPICAL_MAX_TASKS];
    size_t n_cpus = 0, n_grades = 0;

    memset(t, 0, sizeof(*t));
    choose_tasks(t, shapes, counts, n, coverage_pct);
    for (size_t i = 0; i < t->n; i++) {
        const struct typical_task *const task = &t->tasks[i];

        if (task->n_cards == 0)
            continue; /* useful to no card */
        t->class_cpu_milli[n_cpus++] = task->cpu_milli;
        if (task->card_milli < PLAN_CARD_MILLI)
            grades[n_grades++] = task->card_milli;
    }
    t->n_models = n_models > 0 ? n_models : 1; /* nodes without a card have model 0 */
    t->n_classes = distinct(t->class_cpu_milli, n_cpus) + 1;
    t->n_grades = distinct(grades, n_grades);
    check(t->n_grades <= UINT8_MAX);
    t->row_len = t->n_grades + 1 + PLAN_MAX_CARDS + 1;
    for (uint32_t free_milli = 0, g = 0; free_milli <= PLAN_CARD_MILLI; free_milli++) {
        while (g < t->n_grades && grades[g] <= free_milli)
            g++;
        t->grade_of[free_milli] = (uint8_t)g;
    }
    t->rows = xcalloc(t->n_models * t->n_classes * t->row_len, sizeof(*t->rows));
    for (size_t i = 0; i < t->n; i++)
        if (t->tasks[i].n_cards > 0)
            add_task(t, &t->tasks[i]);
    for (int score = 1; score <= 99; score++)
        t->at_least[score] =
            (int64_t)ceil(log(score / (100.0 - score)) * PLAN_CARD_MILLI * (double)t->weight);
}

void typical_fini(struct typical *t)
{
    free(t->rows);
    memset(t, 0, sizeof(*t));
}

const int64_t *typical_row(const struct typical *t, uint32_t model, uint32_t free_cpu_milli)
{
    size_t low = 0, high = t->n_classes - 1; /* the class is in low .. high */

    while (low < high) {
        const size_t middle = (low + high + 1) / 2;

        if (t->class_cpu_milli[middle - 1] <= free_cpu_milli)
            low = middle;
        else
            high = middle - 1;
    }
    return t->rows + (model * t->n_classes + low) * t->row_len;
}

/* at_least[s] is the smallest gain that scores s, so no exp() a call. */
int32_t typical_sigmoid(const struct typical *t, int64_t gain)
{
    int32_t low = 0, high = 99;

    while (low < high) {
        const int32_t middle = (low + high + 1) / 2;

        if (gain >= t->at_least[middle])
            low = middle;
        else
            high = middle - 1;
    }
    return low;
}
