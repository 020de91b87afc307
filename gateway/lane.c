#include "gateway/lane.h"

#include <stdlib.h>

#include "base/xalloc.h"
#include "gateway/stream.h"
#include "gateway/worker.h"

#define PUMPED_A_TURN 256 /* then the other objects of the loop have their turn */

static void lane_pump(struct dirty *d)
{
    struct lane *l = container_of(d, struct lane, pump);
    int n = 0;

    /* A call that starts may end, and let go of the lane, at once. */
    lane_hold(l);
    while (n < PUMPED_A_TURN && attempt_of_queue(l))
        n++;
    if (n == PUMPED_A_TURN)
        lane_has_room(l);
    lane_release(l);
}

struct lane *lane_new(struct worker *w, struct cluster *c)
{
    struct lane *l = xcalloc(1, sizeof(*l));

    l->worker = w;
    l->cluster = c;
    l->model = xstrdup(c->model);
    l->version = xstrdup(c->version);
    l->pump.flush = lane_pump;
    l->busy_since_us = w->loop.now_us;
    list_init(&l->queue);
    retry_budget_init(&l->budget);
    list_push_back(&w->lanes, &l->node);
    return l;
}

void lane_hold(struct lane *l)
{
    l->n_holders++;
}

void lane_release(struct lane *l)
{
    check(l->n_holders > 0);
    l->n_holders--;
}

void lane_cluster_removed(struct lane *l)
{
    l->cluster = NULL;
    lane_has_room(l);
}

void lane_has_room(struct lane *l)
{
    if (!list_is_empty(&l->queue))
        loop_mark_dirty(&l->worker->loop, &l->pump);
}

void lane_account_busy(struct lane *l)
{
    const uint64_t now_us = l->worker->loop.now_us;

    l->counts.busy_us += (uint64_t)(l->in_flight + l->n_queued) * (now_us - l->busy_since_us);
    l->busy_since_us = now_us;
}

bool status_is_failure(uint32_t grpc_status)
{
    switch (grpc_status) {
    case GRPC_UNKNOWN:
    case GRPC_DEADLINE_EXCEEDED:
    case GRPC_RESOURCE_EXHAUSTED:
    case GRPC_INTERNAL:
    case GRPC_UNAVAILABLE:
    case GRPC_DATA_LOSS:
        return true;
    default:
        return false;
    }
}

void lane_count_end(struct lane *l, uint32_t grpc_status, uint64_t took_us)
{
    l->counts.finished++;
    l->counts.failed += status_is_failure(grpc_status);
    l->counts.codes[grpc_status < N_GRPC_CODES ? grpc_status : GRPC_UNKNOWN]++;
    l->counts.latency_sum_us += took_us;
    if (l->latency_us == NULL) {
        l->latency_us = xcalloc(1, sizeof(*l->latency_us));
        histogram_init(l->latency_us);
    }
    histogram_add(l->latency_us, took_us, 1);
    if (grpc_status == GRPC_OK)
        retry_budget_credit(&l->budget);
}

bool lane_reap(struct lane *l)
{
    if (l->cluster != NULL || l->n_holders > 0)
        return false;
    list_remove(&l->node);
    list_remove(&l->pump.node);
    free(l->latency_us);
    free(l->model);
    free(l->version);
    free(l);
    return true;
}
