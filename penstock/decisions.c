#include "penstock/decisions.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/xalloc.h"

struct decisions {
    size_t n; /* ever added */
    struct decision_record ring[DECISIONS_KEPT];
};

struct decisions *decisions_new(void)
{
    return xcalloc(1, sizeof(struct decisions));
}

struct decisions *decisions_free(struct decisions *d)
{
    free(d);
    return NULL;
}

void decisions_add(struct decisions *d, const char *what, const char *model, const char *version,
                   const char *fmt, ...)
{
    struct decision_record *const r = &d->ring[d->n++ % DECISIONS_KEPT];
    char quoted[sizeof(r->text) * 2];
    va_list ap;

    r->at_us = clock_wall_us();
    snprintf(r->what, sizeof(r->what), "%s", what);
    snprintf(r->model, sizeof(r->model), "%s", model);
    snprintf(r->version, sizeof(r->version), "%s", version);
    va_start(ap, fmt);
    vsnprintf(r->text, sizeof(r->text), fmt, ap);
    va_end(ap);
    log_quote(quoted, sizeof(quoted), r->text);
    if (model[0] == '\0')
        log_info(what, "msg=%s", quoted);
    else if (version[0] == '\0')
        log_info(what, "model=%s msg=%s", model, quoted);
    else
        log_info(what, "model=%s version=%s msg=%s", model, version, quoted);
}

const struct decision_record *decisions_at(const struct decisions *d, size_t i)
{
    const size_t kept = d->n < DECISIONS_KEPT ? d->n : DECISIONS_KEPT;

    return i < kept ? &d->ring[(d->n - 1 - i) % DECISIONS_KEPT] : NULL;
}
