#include "loadtest/load_schedule.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/xalloc.h"

void load_schedule_constant(struct load_schedule *s, double rate)
{
    *s = (struct load_schedule){.n_steps = 1, .share = 1.0};
    s->steps = xcalloc(1, sizeof(*s->steps));
    s->steps[0].rate = rate;
}

static int add_line(struct load_schedule *s, const char *path, unsigned number, const char *line,
                    struct err *err)
{
    struct load_step step;
    char rest;

    if (sscanf(line, "%lf %lf %c", &step.from_s, &step.rate, &rest) != 2)
        return err_set(err, -EINVAL, "%s:%u: not \"SECONDS RATE\"", path, number);
    if (!(step.rate >= 0.0 && step.rate <= LOAD_MAX_RATE))
        return err_set(err, -EINVAL, "%s:%u: rate %g is not in 0..%g calls/s", path, number,
                       step.rate, LOAD_MAX_RATE);
    if (s->n_steps == 0 ? step.from_s != 0.0 : !(step.from_s > s->steps[s->n_steps - 1].from_s))
        return err_set(err, -EINVAL, "%s:%u: time %g: the first is 0, each later than the last",
                       path, number, step.from_s);
    if (s->n_steps == LOAD_MAX_STEPS)
        return err_set(err, -EINVAL, "%s:%u: over %u lines", path, number, LOAD_MAX_STEPS);
    if ((s->n_steps & (s->n_steps - 1)) == 0) /* room doubles */
        s->steps = xrealloc(s->steps, s->n_steps > 0 ? s->n_steps * 2 : 1, sizeof(*s->steps));
    s->steps[s->n_steps++] = step;
    return 0;
}

int load_schedule_read(struct load_schedule *s, const char *path, struct err *err)
{
    FILE *f = fopen(path, "re");
    char line[256];
    int r = 0;

    *s = (struct load_schedule){.share = 1.0};
    if (f == NULL)
        return err_set(err, -errno, "%s: %s", path, strerror(errno));
    for (unsigned number = 1; r == 0 && fgets(line, sizeof(line), f) != NULL; number++) {
        if (line[strspn(line, " \t\n")] != '\0' && line[0] != '#')
            r = add_line(s, path, number, line, err);
    }
    fclose(f);
    if (r == 0 && s->n_steps == 0)
        r = err_set(err, -EINVAL, "%s: no line \"SECONDS RATE\"", path);
    if (r != 0) {
        load_schedule_fini(s);
        return r;
    }
    s->ends = s->n_steps > 1 && s->steps[s->n_steps - 1].rate <= 0.0;
    return 0;
}

void load_schedule_split(struct load_schedule *s, const struct load_schedule *whole, uint32_t k,
                         uint32_t n, bool is_poisson, uint64_t seed)
{
    *s = *whole;
    s->steps = xcalloc(whole->n_steps, sizeof(*s->steps));
    memcpy(s->steps, whole->steps, whole->n_steps * sizeof(*s->steps));
    s->share = 1.0 / n;
    s->is_poisson = is_poisson;
    rng_init(&s->rng, seed + k);
    if (whole->steps[0].rate > 0.0 && !is_poisson)
        s->now_s = ((double)k - (double)n) / whole->steps[0].rate; /* call k is at k / rate */
}

void load_schedule_fini(struct load_schedule *s)
{
    free(s->steps);
    *s = (struct load_schedule){0};
}

/* Walks over the steps until the area under rate * share has grown by one gap. */
uint64_t load_schedule_next(struct load_schedule *s)
{
    double gap = s->is_poisson ? rng_exponential(&s->rng, 1.0) : 1.0;

    for (;;) {
        const double rate = s->steps[s->at].rate * s->share;
        const bool is_last = s->at + 1 == s->n_steps;
        const double left_s = is_last ? 0.0 : s->steps[s->at + 1].from_s - s->now_s;

        if (rate > 0.0 && (is_last || gap <= left_s * rate)) {
            s->now_s += gap / rate;
            return (uint64_t)(s->now_s * 1e6 + 0.5);
        }
        if (is_last)
            return UINT64_MAX;
        gap -= left_s * rate;
        s->now_s = s->steps[++s->at].from_s;
    }
}

double load_schedule_rate(const struct load_schedule *s, double at_s)
{
    double rate = 0.0;

    for (size_t i = 0; i < s->n_steps && s->steps[i].from_s <= at_s; i++)
        rate = s->steps[i].rate;
    return rate;
}
