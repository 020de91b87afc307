/* loadtest/train_ps.c - the parameter server of penstock-train. */
#include <errno.h>
#include <ev.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/xalloc.h"
#include "loadtest/train_dist.h"
#include "net/grpc_server.h"
#include "proto/grpc.h"
#include "proto/train.pb-c.h"

/* After the last step: so long for workers that have not yet heard that all is done. */
#define GOODBYE_US (10 * US_PER_S)

/* What one worker has handed in for the present step. */
struct part {
    struct srv_call *call; /* waits for the step's end; NULL: none, or the worker went away */
    bool has_come;
    float *gradient;
    double loss;
    uint32_t n_correct;
    bool knows_end; /* got an answer with done */
};

struct ps {
    struct loop loop;
    struct train_conf *conf;
    const struct train_cluster *cluster;
    struct trainer trainer;
    struct fashion_set set; /* HOST only */
    struct grpc_server *server;
    struct part *parts; /* n_workers */
    uint32_t n_come;
    float *sum;
    struct train_progress progress;
    struct timer step_over, goodbye;
    ev_signal term, intr;
    bool is_between; /* a step is done, its answers wait for step_over */
    bool is_done;
    int result;
    struct err err;
};

void train_slice(const struct train_plan *plan, uint32_t worker, uint32_t n_workers,
                 uint32_t *ret_from, uint32_t *ret_to)
{
    *ret_from = (uint32_t)((uint64_t)plan->batch * worker / n_workers);
    *ret_to = (uint32_t)((uint64_t)plan->batch * (worker + 1) / n_workers);
}

static void ps_stop(struct ps *ps, int result)
{
    ps->result = result;
    loop_stop(&ps->loop);
}

/* --- answers --- */

static void send_state(struct ps *ps, struct srv_call *call, bool with_plan)
{
    const struct weights *w = &ps->trainer.weights;
    Penstock__Train__State state = PENSTOCK__TRAIN__STATE__INIT;
    Penstock__Train__Plan plan = PENSTOCK__TRAIN__PLAN__INIT;
    uint32_t widths[NN_MAX_LAYERS + 1];
    struct buf out;

    state.step = w->step;
    state.done = ps->is_done;
    state.parameters.len = w->nn.n_params * sizeof(float);
    state.parameters.data = (uint8_t *)w->nn.params;
    if (with_plan) {
        memcpy(widths, w->plan.shape.widths, sizeof(widths));
        plan.n_widths = w->plan.shape.n_layers + 1;
        plan.widths = widths;
        plan.seed = w->plan.seed;
        plan.epochs = w->plan.epochs;
        plan.batch = w->plan.batch;
        plan.examples = w->plan.n_examples;
        plan.rate = w->plan.rate;
        plan.momentum = w->plan.momentum;
        state.plan = &plan;
    }
    buf_init(&out, TRAIN_MAX_MESSAGE);
    uint8_t *at = buf_reserve(&out, penstock__train__state__get_packed_size(&state));
    check(at != NULL);
    srv_call_send(call, at, penstock__train__state__pack(&state, at));
    srv_call_finish(call, 0, NULL, NULL, 0);
    buf_fini(&out);
}

static void reject(struct srv_call *call, int status, const char *text)
{
    srv_call_finish(call, status, text, NULL, 0);
}

/* --- steps --- */

static void ps_begin_step(struct ps *ps);

/* Everybody who waits gets the new parameters. */
static void ps_answer_all(struct ps *ps)
{
    for (uint32_t i = 0; i < ps->cluster->n_workers; i++) {
        struct part *p = &ps->parts[i];
        struct srv_call *call = p->call;

        p->has_come = false;
        p->call = NULL;
        if (call == NULL)
            continue;
        srv_call_set_user(call, NULL);
        p->knows_end = ps->is_done;
        send_state(ps, call, false);
    }
    ps->n_come = 0;
}

static bool ps_all_know_end(const struct ps *ps)
{
    for (uint32_t i = 0; i < ps->cluster->n_workers; i++) {
        const bool is_me = ps->cluster->role == TRAIN_HOST && i == ps->cluster->worker;

        if (!ps->parts[i].knows_end && !is_me)
            return false;
    }
    return true;
}

static void ps_on_drained(void *arg)
{
    struct ps *ps = arg;

    ps_stop(ps, 0);
}

static void ps_on_goodbye(struct timer *t)
{
    struct ps *ps = container_of(t, struct ps, goodbye);

    ps_stop(ps, 0); /* who has not asked by now is gone; the result is on disk */
}

static void ps_leave_when_all_know(struct ps *ps)
{
    if (ps_all_know_end(ps))
        grpc_server_drain(ps->server, ps_on_drained, ps); /* the last answers leave first */
}

static void ps_on_step_over(struct timer *t)
{
    struct ps *ps = container_of(t, struct ps, step_over);

    ps->is_between = false;
    if (trainer_is_done(&ps->trainer)) {
        const int r = train_finish(ps->conf, &ps->trainer, &ps->err);

        if (r != 0) { /* the workers are left without an answer: the job has failed */
            ps_stop(ps, r);
            return;
        }
        ps->is_done = true;
        ps_answer_all(ps);
        timer_start(&ps->loop, &ps->goodbye, ps->loop.now_us + GOODBYE_US);
        ps_leave_when_all_know(ps);
        return;
    }
    ps_answer_all(ps);
    ps_begin_step(ps);
}

/* All gradients are here: one step, in the order of workers, so that a run repeats. */
static void ps_finish_step(struct ps *ps)
{
    const struct weights *w = &ps->trainer.weights;
    double loss = 0.0;
    uint32_t n_correct = 0;

    memset(ps->sum, 0, w->nn.n_params * sizeof(float));
    for (uint32_t i = 0; i < ps->cluster->n_workers; i++) {
        const struct part *p = &ps->parts[i];

        for (size_t k = 0; k < w->nn.n_params; k++)
            ps->sum[k] += p->gradient[k];
        loss += p->loss;
        n_correct += p->n_correct;
    }
    trainer_apply(&ps->trainer, ps->sum);
    train_progress_add(&ps->progress, ps->conf, &ps->trainer, loss, n_correct);
    if (w->step % ps->conf->checkpoint_every == 0) {
        const int r = train_save_checkpoint(ps->conf, &ps->trainer, &ps->err);

        if (r != 0) {
            ps_stop(ps, r);
            return;
        }
    }
    ps->is_between = true;
    timer_start(&ps->loop, &ps->step_over, clock_mono_us() + ps->conf->step_delay_ms * US_PER_MS);
}

static void ps_take_part(struct ps *ps, struct part *p)
{
    if (!p->has_come) {
        p->has_come = true;
        ps->n_come++;
    }
    if (ps->n_come == ps->cluster->n_workers)
        ps_finish_step(ps);
}

/* A host is a worker too: its own part is computed at once. */
static void ps_begin_step(struct ps *ps)
{
    struct trainer *t = &ps->trainer;
    struct part *p = &ps->parts[ps->cluster->worker];
    uint32_t from, to;

    if (ps->cluster->role != TRAIN_HOST)
        return;
    train_slice(&t->weights.plan, ps->cluster->worker, ps->cluster->n_workers, &from, &to);
    trainer_gradient(t, &ps->set, t->weights.step, from, to, &p->loss, &p->n_correct);
    memcpy(p->gradient, t->gradient, t->weights.nn.n_params * sizeof(float));
    ps_take_part(ps, p);
}

/* --- calls --- */

static void on_start(void *arg, struct srv_call *call)
{
    (void)arg;
    srv_call_set_user(call, NULL);
}

/* The worker that a call names, or NULL after the call was rejected. */
static struct part *find_part(struct ps *ps, struct srv_call *call, uint32_t worker)
{
    const bool is_me = ps->cluster->role == TRAIN_HOST && worker == ps->cluster->worker;
    char text[96];

    if (worker < ps->cluster->n_workers && !is_me)
        return &ps->parts[worker];
    snprintf(text, sizeof(text), "worker %u: this run has 0..%u%s", worker,
             ps->cluster->n_workers - 1, is_me ? ", and that one is the server itself" : "");
    reject(call, GRPC_INVALID_ARGUMENT, text);
    return NULL;
}

static void on_join(struct srv_call *call, const uint8_t *p, size_t len, bool compressed)
{
    struct ps *ps = srv_call_arg(call);
    Penstock__Train__JoinRequest *req =
        compressed ? NULL : penstock__train__join_request__unpack(NULL, len, p);
    char text[96];

    if (req == NULL) {
        reject(call, GRPC_INVALID_ARGUMENT, "the message is no penstock.train.JoinRequest");
        return;
    }
    struct part *part = find_part(ps, call, req->worker);
    if (part != NULL && req->workers != ps->cluster->n_workers) {
        snprintf(text, sizeof(text), "a worker of %u joins a run of %u", req->workers,
                 ps->cluster->n_workers);
        reject(call, GRPC_FAILED_PRECONDITION, text);
    } else if (part != NULL) {
        printf("joined worker=%u/%u step=%llu\n", req->worker, ps->cluster->n_workers,
               (unsigned long long)ps->trainer.weights.step);
        fflush(stdout);
        part->knows_end = ps->is_done;
        send_state(ps, call, true);
        if (ps->is_done)
            ps_leave_when_all_know(ps);
    }
    penstock__train__join_request__free_unpacked(req, NULL);
}

static bool is_finite(const float *v, size_t n)
{
    float zero = 0.0f;

    for (size_t i = 0; i < n; i++)
        zero += v[i] * 0.0f; /* NaN once one is not */
    return zero == 0.0f;
}

static void take_push(struct ps *ps, struct srv_call *call, const Penstock__Train__PushRequest *req)
{
    const struct weights *w = &ps->trainer.weights;
    struct part *part = find_part(ps, call, req->worker);

    if (part == NULL)
        return;
    if (ps->is_done || req->step != w->step || ps->is_between) {
        /* late, early (we came back from a checkpoint) or once more: here is where we are */
        part->knows_end = ps->is_done;
        send_state(ps, call, false);
        if (ps->is_done)
            ps_leave_when_all_know(ps);
        return;
    }
    if (req->gradient.len != w->nn.n_params * sizeof(float)) {
        reject(call, GRPC_INVALID_ARGUMENT, "gradient: not one float for each parameter");
        return;
    }
    memcpy(part->gradient, req->gradient.data, req->gradient.len);
    if (!is_finite(part->gradient, w->nn.n_params) || !isfinite(req->loss)) {
        reject(call, GRPC_INVALID_ARGUMENT, "gradient: holds a value that is not finite");
        return;
    }
    if (part->call != NULL) { /* the worker was started again while we held its call */
        srv_call_set_user(part->call, NULL);
        reject(part->call, GRPC_ABORTED, "the same worker has pushed again");
    }
    part->call = call;
    srv_call_set_user(call, part);
    part->loss = req->loss;
    part->n_correct = req->correct;
    ps_take_part(ps, part);
}

static void on_push(struct srv_call *call, const uint8_t *p, size_t len, bool compressed)
{
    struct ps *ps = srv_call_arg(call);
    Penstock__Train__PushRequest *req =
        compressed ? NULL : penstock__train__push_request__unpack(NULL, len, p);

    if (req == NULL) {
        reject(call, GRPC_INVALID_ARGUMENT, "the message is no penstock.train.PushRequest");
        return;
    }
    take_push(ps, call, req);
    penstock__train__push_request__free_unpacked(req, NULL);
}

static void on_done(struct srv_call *call, bool cancelled)
{
    struct part *part = srv_call_user(call);

    (void)cancelled;
    if (part != NULL)
        part->call = NULL; /* its gradient stays: it is right whoever computed it */
}

static const struct srv_ops join_ops = {
    .on_start = on_start, .on_message = on_join, .on_done = on_done};
static const struct srv_ops push_ops = {
    .on_start = on_start, .on_message = on_push, .on_done = on_done};

/* --- start and end --- */

static void on_signal(struct ev_loop *ev, ev_signal *w, int revents)
{
    struct ps *ps = w->data;

    (void)ev;
    (void)revents;
    if (ps->is_done) {
        ps_stop(ps, 0);
        return;
    }
    /* between two steps, always: events do not interrupt one */
    const int r = train_save_checkpoint(ps->conf, &ps->trainer, &ps->err);
    ps_stop(ps, r != 0 ? r : EINTR);
}

static int ps_listen(struct ps *ps, struct err *err)
{
    struct srv_method methods[] = {{TRAIN_JOIN, &join_ops, ps}, {TRAIN_PUSH, &push_ops, ps}};
    struct grpc_server_conf conf;
    struct net_addr addr;
    const int r = net_addr_parse(&addr, ps->cluster->ps, err);

    if (r != 0)
        return r;
    grpc_server_conf_default(&conf);
    conf.max_message_bytes = TRAIN_MAX_MESSAGE;
    ps->server = grpc_server_new(&ps->loop, &addr, &conf, methods, ARRAY_LEN(methods), err);
    if (ps->server == NULL)
        return err->code;
    printf("listening grpc %s\nready\n", grpc_server_addr(ps->server)->text);
    fflush(stdout);
    return 0;
}

static int ps_load(struct ps *ps, struct err *err)
{
    const struct train_plan *plan = &ps->conf->plan;
    int r;

    if (ps->cluster->n_workers > plan->batch)
        return err_set(err, -EINVAL, "%u workers for a batch of %u examples: some had none",
                       ps->cluster->n_workers, plan->batch);
    if (ps->cluster->role == TRAIN_HOST) {
        r = train_load_set(ps->conf, plan, &ps->set, err);
        if (r != 0)
            return r;
    }
    r = train_begin(ps->conf, &ps->trainer, err);
    if (r != 0)
        return r;

    const size_t n_params = ps->trainer.weights.nn.n_params;
    ps->parts = xcalloc(ps->cluster->n_workers, sizeof(*ps->parts));
    ps->sum = xcalloc(n_params, sizeof(float));
    for (uint32_t i = 0; i < ps->cluster->n_workers; i++)
        ps->parts[i].gradient = xcalloc(n_params, sizeof(float));
    return 0;
}

static void ps_run(struct ps *ps)
{
    ps->step_over.fire = ps_on_step_over;
    ps->goodbye.fire = ps_on_goodbye;
    ev_signal_init(&ps->term, on_signal, SIGTERM);
    ev_signal_init(&ps->intr, on_signal, SIGINT);
    ps->term.data = ps->intr.data = ps;
    ev_signal_start(ps->loop.ev, &ps->term);
    ev_signal_start(ps->loop.ev, &ps->intr);
    if (trainer_is_done(&ps->trainer)) /* the checkpoint was taken after the last step */
        timer_start(&ps->loop, &ps->step_over, clock_mono_us());
    else
        ps_begin_step(ps);
    loop_run(&ps->loop);
    ev_signal_stop(ps->loop.ev, &ps->term);
    ev_signal_stop(ps->loop.ev, &ps->intr);
    timer_stop(&ps->loop, &ps->step_over);
    timer_stop(&ps->loop, &ps->goodbye);
}

int train_serve(struct train_conf *conf, const struct train_cluster *cluster)
{
    struct ps ps = {.conf = conf, .cluster = cluster};

    loop_init(&ps.loop, NULL);
    ps.result = ps_load(&ps, &ps.err);
    if (ps.result == 0)
        ps.result = ps_listen(&ps, &ps.err);
    if (ps.result == 0)
        ps_run(&ps);
    ps.server = grpc_server_free(ps.server);
    loop_fini(&ps.loop);
    for (uint32_t i = 0; ps.parts != NULL && i < cluster->n_workers; i++)
        free(ps.parts[i].gradient);
    free(ps.parts);
    free(ps.sum);

    const uint64_t step = ps.trainer.weights.step;
    trainer_fini(&ps.trainer);
    fashion_fini(&ps.set);
    return train_exit_status(conf, ps.result, step, &ps.err);
}
