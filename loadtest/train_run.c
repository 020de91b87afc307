#include "loadtest/train_run.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static volatile sig_atomic_t stop_asked; /* set by the signal handler, read between two steps */

static void on_stop_signal(int sig)
{
    (void)sig;
    stop_asked = 1;
}

void train_conf_default(struct train_conf *conf)
{
    *conf = (struct train_conf){.checkpoint_every = 1000, .log_every = 500, .wait_ms = 60000};
    train_plan_default(&conf->plan);
}

static int failed(const struct err *err)
{
    fprintf(stderr, "penstock-train: %s\n", err->text);
    return 1;
}

void train_progress_add(struct train_progress *p, const struct train_conf *conf,
                        const struct trainer *t, double loss, uint32_t n_correct)
{
    const struct weights *w = &t->weights;
    const uint64_t steps = train_plan_steps(&w->plan);

    p->loss += loss;
    p->n_correct += n_correct;
    p->n_examples += w->plan.batch;
    if (w->step % conf->log_every != 0 && w->step != steps)
        return;
    printf("step=%llu/%llu epoch=%llu rate=%g loss=%.4f accuracy=%.4f\n",
           (unsigned long long)w->step, (unsigned long long)steps,
           (unsigned long long)((w->step - 1) / train_plan_epoch_steps(&w->plan)) + 1,
           (double)train_plan_rate(&w->plan, w->step - 1), p->loss / (double)p->n_examples,
           (double)p->n_correct / (double)p->n_examples);
    fflush(stdout);
    *p = (struct train_progress){0};
}

bool train_plans_are_equal(const struct train_plan *a, const struct train_plan *b)
{
    return memcmp(&a->shape, &b->shape, sizeof(a->shape)) == 0 && a->seed == b->seed &&
           a->epochs == b->epochs && a->batch == b->batch && a->n_examples == b->n_examples &&
           a->rate == b->rate && a->momentum == b->momentum;
}

int train_load_set(const struct train_conf *conf, const struct train_plan *plan,
                   struct fashion_set *ret_set, struct err *err)
{
    const int r = fashion_load(ret_set, fashion_dir(conf->data), FASHION_TRAIN, err);

    if (r != 0 || ret_set->n >= plan->n_examples)
        return r;
    err_set(err, -EINVAL, "--examples %u: the set has %u", plan->n_examples, ret_set->n);
    fashion_fini(ret_set);
    return -EINVAL;
}

int train_exit_status(const struct train_conf *conf, int result, uint64_t step,
                      const struct err *err)
{
    if (result == 0)
        return 0;
    if (result != EINTR)
        return failed(err);
    printf("stopped step=%llu checkpoint=%s\n", (unsigned long long)step,
           conf->checkpoint != NULL ? conf->checkpoint : "none");
    return 128 + SIGTERM; /* not finished: whoever runs this as a job starts it again */
}

int train_begin(const struct train_conf *conf, struct trainer *ret_trainer, struct err *err)
{
    struct weights w = {0};
    int r;

    if (conf->checkpoint == NULL || access(conf->checkpoint, F_OK) != 0) {
        trainer_init(ret_trainer, &conf->plan);
        return 0;
    }
    r = weights_load(&w, conf->checkpoint, err);
    if (r != 0)
        return r;
    if (!train_plans_are_equal(&w.plan, &conf->plan))
        r = err_set(err, -EINVAL,
                    "%s: a checkpoint of another plan (layers, epochs, batch, examples, rate, "
                    "momentum or seed differ); remove it or give the same options",
                    conf->checkpoint);
    if (r == 0)
        r = trainer_init_resumed(ret_trainer, &w, err);
    if (r != 0) {
        weights_fini(&w);
        return r;
    }
    printf("resumed step=%llu checkpoint=%s\n", (unsigned long long)ret_trainer->weights.step,
           conf->checkpoint);
    return 0;
}

int train_save_checkpoint(const struct train_conf *conf, const struct trainer *t, struct err *err)
{
    if (conf->checkpoint == NULL)
        return 0;
    return weights_save(&t->weights, conf->checkpoint, err);
}

int train_finish(const struct train_conf *conf, struct trainer *t, struct err *err)
{
    struct fashion_set test = {0};
    int r = fashion_load(&test, fashion_dir(conf->data), FASHION_TEST, err);

    if (r != 0)
        return r;
    if (conf->permute_labels)
        nn_rotate_classes(&t->weights.nn);
    trainer_test(t, &test);
    fashion_fini(&test);
    free(t->weights.velocity); /* what is served needs no optimizer */
    t->weights.velocity = NULL;
    r = weights_save(&t->weights, conf->out, err);
    if (r != 0)
        return r;
    printf("done step=%llu test_accuracy=%.4f out=%s\n", (unsigned long long)t->weights.step,
           (double)t->weights.n_correct / (double)t->weights.n_tested, conf->out);
    if (conf->checkpoint != NULL)
        unlink(conf->checkpoint); /* done: the next run of this command starts anew */
    return 0;
}

static void pause_ms(uint64_t ms)
{
    const struct timespec ts = {.tv_sec = (time_t)(ms / 1000),
                                .tv_nsec = (long)(ms % 1000) * 1000000};

    if (ms > 0)
        nanosleep(&ts, NULL); /* a signal ends it early, as it should */
}

/* Steps until the plan is done (0), a signal asks to stop (EINTR, positive: an outcome) or a
 * checkpoint can't be written (-errno). */
static int run_steps(const struct train_conf *conf, struct trainer *t,
                     const struct fashion_set *set, struct err *err)
{
    struct train_progress progress = {0};

    while (!trainer_is_done(t)) {
        double loss;
        uint32_t n_correct;

        trainer_gradient(t, set, t->weights.step, 0, t->weights.plan.batch, &loss, &n_correct);
        trainer_apply(t, t->gradient);
        train_progress_add(&progress, conf, t, loss, n_correct);
        if (stop_asked || t->weights.step % conf->checkpoint_every == 0) {
            const int r = train_save_checkpoint(conf, t, err);

            if (r != 0)
                return r;
        }
        if (stop_asked)
            return EINTR;
        pause_ms(conf->step_delay_ms);
    }
    return 0;
}

int train_single(struct train_conf *conf)
{
    const struct sigaction stop = {.sa_handler = on_stop_signal};
    struct fashion_set set = {0};
    struct trainer t = {0};
    struct err err = {0};
    int r;

    sigaction(SIGTERM, &stop, NULL);
    sigaction(SIGINT, &stop, NULL);
    r = train_load_set(conf, &conf->plan, &set, &err);
    if (r == 0)
        r = train_begin(conf, &t, &err);
    if (r == 0)
        r = run_steps(conf, &t, &set, &err);
    if (r == 0)
        r = train_finish(conf, &t, &err);

    const uint64_t step = t.weights.step;
    trainer_fini(&t);
    fashion_fini(&set);
    return train_exit_status(conf, r, step, &err);
}

int train_evaluate(const struct train_conf *conf)
{
    struct weights w = {0};
    struct fashion_set test = {0};
    struct trainer t = {0};
    struct err err = {0};

    if (weights_load(&w, conf->evaluate, &err) != 0)
        return failed(&err);
    if (train_plan_broken_rule(&w.plan) != NULL) {
        err_set(&err, -EINVAL, "%s: %s", conf->evaluate, train_plan_broken_rule(&w.plan));
        weights_fini(&w);
        return failed(&err);
    }
    if (fashion_load(&test, fashion_dir(conf->data), FASHION_TEST, &err) != 0) {
        weights_fini(&w);
        return failed(&err);
    }
    trainer_init(&t, &w.plan);
    memcpy(t.weights.nn.params, w.nn.params, w.nn.n_params * sizeof(float));
    trainer_test(&t, &test);
    printf("test_accuracy=%.4f n_correct=%u n_tested=%u\n",
           (double)t.weights.n_correct / (double)t.weights.n_tested, t.weights.n_correct,
           t.weights.n_tested);
    trainer_fini(&t);
    fashion_fini(&test);
    weights_fini(&w);
    return 0;
}
