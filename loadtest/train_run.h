/* loadtest/train_run.h - the shells of penstock-train: files, lines of progress, signals.
 *
 * Called by: train_main.c (and the parameter server, for checkpoints and progress).
 * Thread:    main.
 */
#ifndef LOADTEST_TRAIN_RUN_H
#define LOADTEST_TRAIN_RUN_H

#include "loadtest/trainer.h"

struct train_conf {
    struct train_plan plan;
    const char *data; /* NULL: fashion_dir's default */
    const char *out;
    const char *checkpoint; /* NULL: none */
    const char *evaluate;
    uint64_t checkpoint_every; /* steps */
    uint64_t log_every;        /* steps */
    uint64_t step_delay_ms;
    uint64_t wait_ms; /* a worker waits so long for its parameter server */
    bool permute_labels;
};
void train_conf_default(struct train_conf *conf);

/* Both return the exit status of the process, after a line about what went wrong. */
int train_single(struct train_conf *conf);
int train_evaluate(const struct train_conf *conf);

/* Loss and accuracy since the last line. */
struct train_progress {
    double loss;
    uint64_t n_correct, n_examples;
};
void train_progress_add(struct train_progress *p, const struct train_conf *conf,
                        const struct trainer *t, double loss, uint32_t n_correct);

bool train_plans_are_equal(const struct train_plan *a, const struct train_plan *b);
/* The training images; -EINVAL when the plan wants more than there are. */
int train_load_set(const struct train_conf *conf, const struct train_plan *plan,
                   struct fashion_set *ret_set, struct err *err);

/* Fresh, or resumed from conf->checkpoint when that file exists; a checkpoint of another plan is
 * refused. 0 or -errno with err. */
int train_begin(const struct train_conf *conf, struct trainer *ret_trainer, struct err *err);
int train_save_checkpoint(const struct train_conf *conf, const struct trainer *t, struct err *err);
/* After the last step: test, print, write conf->out, remove the checkpoint. */
int train_finish(const struct train_conf *conf, struct trainer *t, struct err *err);

/* The process's exit status for a result: 0, EINTR (a signal; says where it stopped) or -errno
 * (says why, from err). */
int train_exit_status(const struct train_conf *conf, int result, uint64_t step,
                      const struct err *err);

#endif
