#include "autoscaler/window.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/xalloc.h"

#define N_BUCKETS ARRAY_LEN(((struct window *)0)->buckets)

/* A report that claims to stand for more than this is cut: a worker that was stopped for a minute
 * says nothing about each second of it. */
#define INTERVAL_MAX_US (10 * US_PER_S)

void window_init(struct window *w)
{
    *w = (struct window){0};
}

static struct window_bucket *window_bucket_at(struct window *w, uint64_t second, uint32_t n_sources)
{
    struct window_bucket *b = &w->buckets[second % N_BUCKETS];

    if (b->second != second)
        *b = (struct window_bucket){.second = second};
    if (n_sources > b->n_sources)
        b->n_sources = n_sources;
    return b;
}

bool window_add(struct window *w, uint64_t now_us, uint64_t interval_us, double inflight_s,
                double started, uint32_t n_sources)
{
    uint64_t from_us;
    double whole_s;

    if (!isfinite(inflight_s) || !isfinite(started) || inflight_s < 0 || started < 0)
        return false;
    if (interval_us == 0 || n_sources == 0)
        return false;
    if (interval_us > INTERVAL_MAX_US) {
        inflight_s *= (double)INTERVAL_MAX_US / (double)interval_us;
        started *= (double)INTERVAL_MAX_US / (double)interval_us;
        interval_us = INTERVAL_MAX_US;
    }
    if (interval_us > now_us)
        interval_us = now_us > 0 ? now_us : 1;
    from_us = now_us - interval_us;
    whole_s = (double)interval_us / (double)US_PER_S;

    /* Spread evenly over the seconds that the interval touches. */
    for (uint64_t at_us = from_us; at_us < now_us;) {
        const uint64_t second = at_us / US_PER_S;
        const uint64_t edge_us = (second + 1) * US_PER_S;
        const uint64_t end_us = edge_us < now_us ? edge_us : now_us;
        const double part_s = (double)(end_us - at_us) / (double)US_PER_S;
        struct window_bucket *b = window_bucket_at(w, second, n_sources);

        b->covered_s += part_s;
        b->inflight_s += inflight_s * part_s / whole_s;
        b->started += started * part_s / whole_s;
        at_us = end_us;
    }
    if (w->first_us == 0)
        w->first_us = from_us > 0 ? from_us : 1;
    w->last_us = now_us;
    return true;
}

struct window_mean window_over(const struct window *w, uint64_t now_us, uint32_t span_s)
{
    const uint64_t this_second = now_us / US_PER_S;
    struct window_mean m = {0};
    const double running_s = (double)(now_us % US_PER_S) / (double)US_PER_S;
    double inflight_s = 0, started = 0, covered_s = 0, expected_s = span_s;

    check(span_s >= 1 && span_s <= WINDOW_MAX_S);
    /* The running second, span_s - 1 whole ones, and the rest of the span from the oldest. */
    for (uint32_t back = 0; back <= span_s && back <= this_second; back++) {
        const uint64_t second = this_second - back;
        const struct window_bucket *b = &w->buckets[second % N_BUCKETS];
        const double weight = back < span_s ? 1 : 1 - running_s;

        if (b->second != second || b->n_sources == 0)
            continue;
        inflight_s += b->inflight_s * weight;
        started += b->started * weight;
        covered_s += b->covered_s / b->n_sources * weight;
    }
    if (covered_s <= 0)
        return m;

    if (now_us > w->first_us && (double)(now_us - w->first_us) / (double)US_PER_S < expected_s)
        expected_s = (double)(now_us - w->first_us) / (double)US_PER_S;
    m.inflight = inflight_s / covered_s;
    m.qps = started / covered_s;
    m.span_s = covered_s;
    m.missing = expected_s > covered_s ? 1 - covered_s / expected_s : 0;
    return m;
}

void sources_init(struct sources *s)
{
    *s = (struct sources){0};
}

void sources_fini(struct sources *s)
{
    free(s->list);
    *s = (struct sources){0};
}

bool sources_heard(struct sources *s, const char *gateway, uint32_t worker, uint64_t sequence,
                   uint64_t now_us)
{
    struct source *found = NULL;
    char name[sizeof(found->name)];

    /* A long name is cut before the worker's number, so that workers stay apart. */
    snprintf(name, sizeof(name), "%.60s/%u", gateway, worker);
    for (uint32_t i = 0; i < s->n && found == NULL; i++)
        if (strcmp(s->list[i].name, name) == 0)
            found = &s->list[i];
    if (found == NULL) {
        if (s->n == SOURCES_MAX)
            return false;
        if (s->n == s->cap) {
            s->cap = s->cap > 0 ? 2 * s->cap : 8;
            s->list = xrealloc(s->list, s->cap, sizeof(*s->list));
        }
        found = &s->list[s->n++];
        *found = (struct source){0};
        memcpy(found->name, name, sizeof(name));
    } else if (sequence == found->sequence) {
        return false;
    }
    found->sequence = sequence;
    found->last_us = now_us;
    return true;
}

uint32_t sources_count(struct sources *s, uint64_t now_us, uint64_t stale_us, uint64_t forget_us,
                       uint32_t *ret_stale)
{
    uint32_t stale = 0;

    for (uint32_t i = 0; i < s->n;) {
        const uint64_t age_us = now_us > s->list[i].last_us ? now_us - s->list[i].last_us : 0;

        if (age_us > forget_us) {
            s->list[i] = s->list[--s->n];
            continue;
        }
        stale += age_us > stale_us;
        i++;
    }
    *ret_stale = stale;
    return s->n;
}
