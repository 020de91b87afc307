#include "balancer/endpoint.h"

#include "balancer/balancer.h"
#include "base/check.h"
#include "base/clock.h"

/* A replica that answers UNAVAILABLE or loses its connection so often in a row is left alone. */
#define FAILURES_IN_ROW 5
/* A dying connection fails every call on it at once: one event, not many. */
#define SAME_EVENT_US (20 * US_PER_MS)

static const char *const out_names[] = {
    [MEMBER_IN] = "",
    [MEMBER_EJECTED] = "ejected",
    [MEMBER_STOPPING] = "stopping",
    [MEMBER_QUARANTINED] = "quarantined",
};

/* What an outcome does. first_us doubles with each time in a row, up to max_us. */
static const struct rule {
    bool is_failure;     /* counts in endpoint.failed */
    bool proves_alive;   /* ends a trial */
    bool whole_endpoint; /* every member of the server, not only the model version asked */
    uint32_t in_row;     /* so many in a row put it out; 0: never */
    enum member_out out;
    uint64_t first_us, max_us;
} rules[OUTCOME_N] = {
    [OUTCOME_OK] = {.proves_alive = true},
    /* INTERNAL and UNKNOWN are also what MLServer and KServe say to a wrong tensor shape: one bad
     * client must not take replicas out. */
    [OUTCOME_SERVER_ERROR] = {.is_failure = true, .proves_alive = true},
    [OUTCOME_FULL] = {.proves_alive = true},
    [OUTCOME_REFUSED] = {.in_row = 0},
    [OUTCOME_CANCELLED] = {.in_row = 0},
    /* Short at first: a restarted replica should be found soon, and a refused connect is cheap. */
    [OUTCOME_CONNECT_FAILED] = {.is_failure = true,
                                .whole_endpoint = true,
                                .in_row = 1,
                                .out = MEMBER_EJECTED,
                                .first_us = 100 * US_PER_MS,
                                .max_us = 5 * US_PER_S},
    [OUTCOME_LOST] = {.is_failure = true,
                      .whole_endpoint = true,
                      .in_row = FAILURES_IN_ROW,
                      .out = MEMBER_EJECTED,
                      .first_us = 500 * US_PER_MS,
                      .max_us = 10 * US_PER_S},
    [OUTCOME_RESET] = {.is_failure = true,
                       .whole_endpoint = true,
                       .in_row = FAILURES_IN_ROW,
                       .out = MEMBER_EJECTED,
                       .first_us = 500 * US_PER_MS,
                       .max_us = 10 * US_PER_S},
    [OUTCOME_UNAVAILABLE] = {.is_failure = true,
                             .in_row = FAILURES_IN_ROW,
                             .out = MEMBER_EJECTED,
                             .first_us = US_PER_S,
                             .max_us = 10 * US_PER_S},
    /* A Triton that stops answers so for two to three seconds before it says GOAWAY. */
    [OUTCOME_STOPPING] = {.is_failure = true,
                          .whole_endpoint = true,
                          .in_row = 1,
                          .out = MEMBER_STOPPING,
                          .first_us = US_PER_S,
                          .max_us = 10 * US_PER_S},
    /* A Triton loads a model in 1.4 to 2.7 s. */
    [OUTCOME_NOT_READY] = {.is_failure = true,
                           .in_row = 1,
                           .out = MEMBER_QUARANTINED,
                           .first_us = 500 * US_PER_MS,
                           .max_us = 10 * US_PER_S},
    [OUTCOME_UNKNOWN_MODEL] = {.is_failure = true,
                               .in_row = 1,
                               .out = MEMBER_QUARANTINED,
                               .first_us = US_PER_S,
                               .max_us = 30 * US_PER_S},
};

bool member_is_usable(const struct member *m, uint64_t now_us)
{
    return !m->left && m->state == ENDPOINT_READY &&
           (m->out == MEMBER_IN || now_us >= m->out_until_us);
}

const char *member_out_name(const struct member *m)
{
    return out_names[m->out];
}

void member_reset_health(struct member *m)
{
    m->out = MEMBER_IN;
    m->out_until_us = 0;
    m->n_outs = 0;
    m->failures_in_row = 0;
    m->on_trial = false;
    m->cluster->stale = true;
}

static void tell_moved(const struct member *m, enum outcome why, uint64_t for_us)
{
    void *arg;
    const struct balancer_hooks *const hooks = balancer_hooks(m->cluster->balancer, &arg);

    if (hooks->member_moved != NULL)
        hooks->member_moved(arg, m, why, for_us);
}

static void put_out(struct member *m, const struct rule *rule, enum outcome how, uint64_t now_us)
{
    uint64_t for_us = rule->first_us;

    if (m->out != MEMBER_IN && now_us < m->out_until_us)
        return; /* calls that were on their way when it went out */
    if (!cluster_has_other(m->cluster, m, now_us))
        return; /* the last one: a bad replica is better than none */
    for (uint32_t i = 0; i < m->n_outs && for_us < rule->max_us; i++)
        for_us *= 2;
    if (for_us > rule->max_us)
        for_us = rule->max_us;
    m->n_outs++;
    m->out = rule->out;
    m->out_why = how;
    m->out_until_us = now_us + for_us;
    m->on_trial = false;
    m->cluster->stale = true;
    tell_moved(m, how, for_us);
}

static void end_trial(struct member *m, enum outcome how)
{
    if (!m->on_trial)
        return;
    m->on_trial = false;
    m->n_outs = 0;
    m->cluster->stale = true;
    tell_moved(m, how, 0);
}

static void judge(struct member *m, enum outcome how, uint64_t now_us)
{
    const struct rule *const rule = &rules[how];

    if (rule->proves_alive) {
        m->failures_in_row = 0;
        end_trial(m, how);
        return;
    }
    if (rule->in_row == 0)
        return;
    if ((how == OUTCOME_LOST || how == OUTCOME_RESET) && m->failures_in_row > 0 &&
        now_us - m->last_failure_us < SAME_EVENT_US)
        return;
    m->failures_in_row++;
    m->last_failure_us = now_us;
    if (m->failures_in_row < rule->in_row && !m->on_trial)
        return;
    if (!rule->whole_endpoint) {
        put_out(m, rule, how, now_us);
        return;
    }
    list_each (&m->endpoint->members, it)
        put_out(list_entry(it, struct member, of_endpoint), rule, how, now_us);
}

void endpoint_connected(struct endpoint *ep, uint64_t now_us)
{
    list_each (&ep->members, it) {
        struct member *const m = list_entry(it, struct member, of_endpoint);

        if (m->out != MEMBER_EJECTED || m->out_why != OUTCOME_CONNECT_FAILED ||
            m->out_until_us <= now_us)
            continue;
        m->out_until_us = now_us;
        m->cluster->stale = true;
        balancer_tell_room(m->cluster);
    }
}

void member_done(struct member *m, enum outcome how, uint64_t now_us)
{
    struct endpoint *const ep = m->endpoint;
    struct cluster *const c = m->cluster;

    check((unsigned)how < OUTCOME_N);
    check(m->in_flight > 0 && ep->in_flight > 0 && c->in_flight > 0);
    m->in_flight--;
    ep->in_flight--;
    c->in_flight--;
    if (rules[how].is_failure)
        ep->failed++;
    if (m->left) {
        balancer_release(m);
        return;
    }
    judge(m, how, now_us);
    balancer_tell_room(c);
}
