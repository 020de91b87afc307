/* loadtest/train_worker.c - a worker of penstock-train: join, then gradient after gradient. */
#include <errno.h>
#include <ev.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/clock.h"
#include "loadtest/train_dist.h"
#include "net/grpc_client.h"
#include "proto/grpc.h"
#include "proto/train.pb-c.h"

#define RETRY_US (300 * US_PER_MS) /* the server is down or not yet up */

struct trainee {
    struct loop loop;
    struct train_conf *conf;
    const struct train_cluster *cluster;
    struct grpc_channel *channel;
    struct grpc_call *call; /* the one that runs, or NULL */
    struct trainer trainer; /* by the server's plan, once joined */
    struct fashion_set set;
    bool has_joined; /* trainer and set are there */
    bool got_state;  /* the running call was answered */
    uint64_t n_steps;
    uint64_t give_up_us; /* no answer from the server until then */
    struct timer retry;
    ev_signal term, intr;
    bool has_ended; /* result is set; the loop ends with this turn */
    int result;
    struct err err;
};

static void trainee_join(struct trainee *w);
static void trainee_push(struct trainee *w);

static void trainee_stop(struct trainee *w, int result)
{
    w->has_ended = true;
    w->result = result;
    loop_stop(&w->loop);
}

/* --- the server's state --- */

static int read_plan(const Penstock__Train__Plan *p, struct train_plan *ret_plan, struct err *err)
{
    const char *rule;

    *ret_plan = (struct train_plan){.seed = p->seed,
                                    .epochs = p->epochs,
                                    .batch = p->batch,
                                    .n_examples = p->examples,
                                    .rate = p->rate,
                                    .momentum = p->momentum};
    if (p->n_widths < 2 || p->n_widths > NN_MAX_LAYERS + 1)
        return err_set(err, -EBADMSG, "the server's plan has %zu widths", p->n_widths);
    ret_plan->shape.n_layers = (uint32_t)p->n_widths - 1;
    memcpy(ret_plan->shape.widths, p->widths, p->n_widths * sizeof(uint32_t));
    rule = train_plan_broken_rule(ret_plan);
    if (rule != NULL)
        return err_set(err, -EBADMSG, "the server's plan breaks a rule: %s", rule);
    return 0;
}

/* The first time: load the data. Later (the server came back): the plan must be the same. */
static int take_plan(struct trainee *w, const Penstock__Train__Plan *p)
{
    struct train_plan plan;
    int r = read_plan(p, &plan, &w->err);

    if (r != 0)
        return r;
    if (w->has_joined) {
        if (train_plans_are_equal(&plan, &w->trainer.weights.plan))
            return 0;
        return err_set(&w->err, -EBADMSG, "the server came back with another plan");
    }
    r = train_load_set(w->conf, &plan, &w->set, &w->err);
    if (r != 0)
        return r;
    trainer_init(&w->trainer, &plan);
    w->has_joined = true;
    printf("joined worker=%u/%u server=%s\n", w->cluster->worker, w->cluster->n_workers,
           w->cluster->ps);
    fflush(stdout);
    return 0;
}

static int take_state(struct trainee *w, const Penstock__Train__State *s)
{
    struct weights *to = &w->trainer.weights;
    int r = 0;

    if (s->plan != NULL)
        r = take_plan(w, s->plan);
    if (r != 0)
        return r;
    if (!w->has_joined)
        return err_set(&w->err, -EBADMSG, "the answer to Join has no plan");
    if (s->parameters.len != to->nn.n_params * sizeof(float) ||
        (!s->done && s->step >= train_plan_steps(&to->plan)))
        return err_set(&w->err, -EBADMSG, "the server's state does not fit its plan");
    memcpy(to->nn.params, s->parameters.data, s->parameters.len);
    to->step = s->step;
    if (s->done)
        return EINTR; /* positive: an outcome; all is done */
    return 0;
}

/* --- calls --- */

static void on_message(void *user, struct grpc_call *c, const uint8_t *p, size_t len,
                       bool compressed)
{
    struct trainee *w = user;
    Penstock__Train__State *s = compressed ? NULL : penstock__train__state__unpack(NULL, len, p);

    (void)c;
    if (s == NULL) {
        trainee_stop(w, err_set(&w->err, -EBADMSG, "the answer is no penstock.train.State"));
        return;
    }
    const int r = take_state(w, s);
    penstock__train__state__free_unpacked(s, NULL);
    if (r == EINTR)
        trainee_stop(w, 0);
    else if (r != 0)
        trainee_stop(w, r);
    w->got_state = r == 0;
}

static bool may_retry(int status)
{
    return status == GRPC_UNAVAILABLE || status == GRPC_CANCELLED || status == GRPC_ABORTED ||
           status == GRPC_DEADLINE_EXCEEDED;
}

static void on_end(void *user, struct grpc_call *c, int status, const char *message,
                   const struct h2_field *trailers, size_t n)
{
    struct trainee *w = user;

    (void)c;
    (void)trailers;
    (void)n;
    w->call = NULL;
    if (w->has_ended)
        return;
    if (status == GRPC_OK && w->got_state) {
        w->give_up_us = clock_mono_us() + w->conf->wait_ms * US_PER_MS;
        trainee_push(w);
    } else if (may_retry(status) && clock_mono_us() < w->give_up_us) {
        timer_start(&w->loop, &w->retry, clock_mono_us() + RETRY_US);
    } else {
        trainee_stop(w, err_set(&w->err, -EIO, "parameter server %s: %s: %s", w->cluster->ps,
                                grpc_status_name((enum grpc_status)status),
                                message != NULL ? message : ""));
    }
}

static const struct grpc_call_ops call_ops = {.on_message = on_message, .on_end = on_end};

static void trainee_call(struct trainee *w, const char *path, const ProtobufCMessage *request)
{
    const struct grpc_call_conf conf = {.path = path, .max_message_bytes = TRAIN_MAX_MESSAGE};
    struct buf out;

    buf_init(&out, TRAIN_MAX_MESSAGE);
    uint8_t *at = buf_reserve(&out, protobuf_c_message_get_packed_size(request));
    check(at != NULL);
    w->got_state = false;
    w->call =
        grpc_call_unary(w->channel, &conf, at, protobuf_c_message_pack(request, at), &call_ops, w);
    buf_fini(&out);
}

static void trainee_join(struct trainee *w)
{
    Penstock__Train__JoinRequest req = PENSTOCK__TRAIN__JOIN_REQUEST__INIT;

    req.worker = w->cluster->worker;
    req.workers = w->cluster->n_workers;
    trainee_call(w, TRAIN_JOIN, &req.base);
}

static void trainee_push(struct trainee *w)
{
    struct trainer *t = &w->trainer;
    Penstock__Train__PushRequest req = PENSTOCK__TRAIN__PUSH_REQUEST__INIT;
    uint32_t from, to;

    train_slice(&t->weights.plan, w->cluster->worker, w->cluster->n_workers, &from, &to);
    trainer_gradient(t, &w->set, t->weights.step, from, to, &req.loss, &req.correct);
    req.worker = w->cluster->worker;
    req.step = t->weights.step;
    req.gradient.len = t->weights.nn.n_params * sizeof(float);
    req.gradient.data = (uint8_t *)t->gradient;
    w->n_steps++;
    trainee_call(w, TRAIN_PUSH, &req.base);
}

static void on_retry(struct timer *t)
{
    trainee_join(container_of(t, struct trainee, retry));
}

static void on_signal(struct ev_loop *ev, ev_signal *s, int revents)
{
    (void)ev;
    (void)revents;
    trainee_stop(s->data, EINTR);
}

int train_work(struct train_conf *conf, const struct train_cluster *cluster)
{
    struct trainee w = {.conf = conf, .cluster = cluster, .retry.fire = on_retry};
    struct grpc_channel_conf channel;
    struct net_addr addr;

    w.result = net_addr_parse(&addr, cluster->ps, &w.err);
    if (w.result != 0)
        return train_exit_status(conf, w.result, 0, &w.err);
    loop_init(&w.loop, NULL);
    ev_signal_init(&w.term, on_signal, SIGTERM);
    ev_signal_init(&w.intr, on_signal, SIGINT);
    w.term.data = w.intr.data = &w;
    ev_signal_start(w.loop.ev, &w.term);
    ev_signal_start(w.loop.ev, &w.intr);
    grpc_channel_conf_default(&channel);
    w.channel = grpc_channel_new(&w.loop, &addr, &channel);
    w.give_up_us = clock_mono_us() + conf->wait_ms * US_PER_MS;
    trainee_join(&w);
    loop_run(&w.loop);

    if (w.call != NULL)
        grpc_call_abandon(w.call);
    grpc_channel_free(w.channel);
    timer_stop(&w.loop, &w.retry);
    ev_signal_stop(w.loop.ev, &w.term);
    ev_signal_stop(w.loop.ev, &w.intr);
    loop_fini(&w.loop);
    if (w.result == 0)
        printf("done worker=%u/%u gradients=%llu\n", cluster->worker, cluster->n_workers,
               (unsigned long long)w.n_steps);

    const uint64_t step = w.trainer.weights.step;
    trainer_fini(&w.trainer);
    fashion_fini(&w.set);
    return train_exit_status(conf, w.result, step, &w.err);
}
