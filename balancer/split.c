#include "balancer/split.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/xalloc.h"
#include "conf/model.h"

void split_init(struct split *s)
{
    *s = (struct split){.n = 0};
}

void split_fini(struct split *s)
{
    free(s->parts);
    split_init(s);
}

/* Whose turn it is, among all or the usable ones; -1: they have no weight. */
static int turn(struct split *s, bool only_usable)
{
    int best = -1;
    int64_t total = 0;

    for (size_t i = 0; i < s->n; i++) {
        struct split_part *const p = &s->parts[i];

        if (p->weight == 0 || (only_usable && !p->usable))
            continue;
        p->owed += p->weight;
        total += p->weight;
        if (best < 0 || p->owed > s->parts[best].owed)
            best = (int)i;
    }
    if (best >= 0)
        s->parts[best].owed -= total;
    return best;
}

void split_set(struct split *s, const uint32_t *weights, size_t n, struct rng *rng)
{
    bool same = n == s->n;

    for (size_t i = 0; same && i < n; i++)
        same = s->parts[i].weight == weights[i];
    if (same)
        return;
    split_fini(s);
    if (n == 0)
        return;
    s->parts = xcalloc(n, sizeof(s->parts[0]));
    s->n = n;
    for (size_t i = 0; i < n; i++) {
        check(weights[i] <= WEIGHT_WHOLE);
        s->parts[i] = (struct split_part){.weight = weights[i], .usable = true};
    }
    /* Another place of the cycle for each worker: a canary's calls come spread, not in step. */
    for (uint64_t skip = rng_below(rng, WEIGHT_WHOLE); skip > 0; skip--)
        turn(s, false);
}

/* A version that left or came back: what it was owed goes to the heaviest that stays, so that sums
 * stay at 0 and nobody gets a burst later. */
static void settle(struct split *s, const bool *usable)
{
    int64_t left_over = 0;
    struct split_part *heaviest = NULL;

    for (size_t i = 0; i < s->n; i++) {
        struct split_part *const p = &s->parts[i];

        p->usable = usable[i];
        if (!p->usable) {
            left_over += p->owed;
            p->owed = 0;
        } else if (p->weight > 0 && (heaviest == NULL || p->weight > heaviest->weight)) {
            heaviest = p;
        }
    }
    if (heaviest != NULL)
        heaviest->owed += left_over;
}

int split_pick(struct split *s, const bool *usable)
{
    bool changed = false;

    for (size_t i = 0; i < s->n; i++)
        changed = changed || s->parts[i].usable != usable[i];
    if (changed)
        settle(s, usable);
    const int i = turn(s, true);
    return i >= 0 ? i : turn(s, false);
}
