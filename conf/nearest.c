#include "conf/nearest.h"

#include <string.h>

#include "base/check.h"

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

size_t nearest_distance(const char *a, const char *b)
{
    size_t rows[3][NEAREST_MAX_LEN + 1];
    size_t *before = rows[0], *prev = rows[1], *now = rows[2];
    const size_t n_a = strnlen(a, NEAREST_MAX_LEN);
    const size_t n_b = strnlen(b, NEAREST_MAX_LEN);

    for (size_t j = 0; j <= n_b; j++)
        prev[j] = j;
    for (size_t i = 1; i <= n_a; i++) {
        now[0] = i;
        for (size_t j = 1; j <= n_b; j++) {
            const size_t cost = a[i - 1] == b[j - 1] ? 0 : 1;

            now[j] = least(least(prev[j] + 1, now[j - 1] + 1), prev[j - 1] + cost);
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                now[j] = least(now[j], before[j - 2] + 1);
        }
        size_t *const spare = before;

        before = prev;
        prev = now;
        now = spare;
    }
    return prev[n_b];
}

void nearest_init(struct nearest *n, const char *word)
{
    n->word = word;
    n->best = NULL;
    n->distance = SIZE_MAX;
}

void nearest_offer(struct nearest *n, const char *candidate)
{
    const size_t n_word = strnlen(n->word, NEAREST_MAX_LEN);
    const size_t n_candidate = strnlen(candidate, NEAREST_MAX_LEN);
    const size_t shorter = least(n_word, n_candidate);
    const size_t longer = n_word + n_candidate - shorter;
    size_t distance = nearest_distance(n->word, candidate);
    size_t allowed = longer / 3;

    if (allowed < 1)
        allowed = 1;
    if (shorter >= 3 && strncmp(n->word, candidate, shorter) == 0)
        distance = least(distance, allowed);
    if (distance <= allowed && distance < longer && distance < n->distance) {
        n->best = candidate;
        n->distance = distance;
    }
}
