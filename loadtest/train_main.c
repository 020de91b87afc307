/* penstock-train: train a Fashion-MNIST network, alone or as a gang of parameter server and
 * workers. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "loadtest/args.h"
#include "loadtest/train_dist.h"

static const char usage[] =
    "usage: penstock-train --out FILE [OPTION]...\n"
    "       penstock-train --evaluate FILE [--data DIR]\n"
    "\n"
    "Train a network that tells the ten classes of Fashion-MNIST apart, by SGD with momentum; "
    "write\n"
    "its weights for penstock-model. The same seed gives the same weights, also after a resume.\n"
    "\n"
    "As a job of several tasks the same command runs in each; who is who comes from TF_CONFIG "
    "(ps,\n"
    "chief, worker) or from MASTER_ADDR, MASTER_PORT, RANK and WORLD_SIZE (rank 0 keeps the\n"
    "parameters and works too). The parameter server has the plan, the checkpoint and the result;\n"
    "workers take the plan from it. Synchronous SGD: the result is that of one process.\n"
    "\n"
    "Progress on standard output: step, loss and training accuracy since the last line, then the\n"
    "accuracy on the 10,000 test images.\n";

/* "128" or "64,32" -> hidden layers; false when it breaks the rule. */
static bool parse_hidden(const char *text, struct nn_shape *shape)
{
    shape->n_layers = 0;
    for (const char *p = text; shape->n_layers + 1 < NN_MAX_LAYERS;) {
        char *end;
        const unsigned long width = strtoul(p, &end, 10);

        if (end == p || *p == '-' || width == 0 || width > NN_MAX_WIDTH)
            return false;
        shape->widths[++shape->n_layers] = (uint32_t)width;
        if (*end == '\0') {
            shape->widths[++shape->n_layers] = FASHION_CLASSES;
            return true;
        }
        if (*end != ',')
            return false;
        p = end + 1;
    }
    return false;
}

static int wrong(const char *text)
{
    fprintf(stderr, "penstock-train: %s\n", text);
    return EXIT_USAGE;
}

static int run(struct train_conf *conf, bool alone)
{
    const struct train_env env = {getenv("TF_CONFIG"), getenv("MASTER_ADDR"), getenv("MASTER_PORT"),
                                  getenv("RANK"), getenv("WORLD_SIZE")};
    struct train_cluster cluster = {.role = TRAIN_ALONE};
    struct err err = {0};

    if (!alone && train_cluster_read(&env, &cluster, &err) != 0)
        return wrong(err.text);
    switch (cluster.role) {
    case TRAIN_PS:
    case TRAIN_HOST:
        return train_serve(conf, &cluster);
    case TRAIN_WORKER:
        return train_work(conf, &cluster);
    case TRAIN_ALONE:
        break;
    }
    return train_single(conf);
}

int main(int argc, char **argv)
{
    struct train_conf conf;
    const char *hidden = NULL;
    uint64_t epochs = 3, batch = 32, examples = 60000, seed = 1;
    double rate = 0.05, momentum = 0.8;
    bool alone = false;
    const struct arg table[] = {
        {ARG_GROUP, "What is trained", NULL, NULL, 0, 0, NULL},
        {ARG_STR, "out", "FILE", &conf.out, 0, 0, "write the trained weights here"},
        {ARG_STR, "hidden", "N[,N]", &hidden, 0, 0,
         "units of one to three hidden ReLU layers\n(default: none, softmax regression)"},
        {ARG_UINT, "epochs", "N", &epochs, 1, TRAIN_MAX_EPOCHS, "passes over the data (3)"},
        {ARG_UINT, "examples", "N", &examples, 1, 60000, "of the training images (60000)"},
        {ARG_UINT, "batch", "N", &batch, 1, NN_MAX_BATCH,
         "examples of one step, over all workers (32)"},
        {ARG_NUM, "rate", "R", &rate, 1e-6, 10,
         "learning rate; a fifth of it in the last third (0.05)"},
        {ARG_NUM, "momentum", "M", &momentum, 0, 0.999, "of the optimizer (0.8)"},
        {ARG_UINT, "seed", "N", &seed, 0, 1e15, "of start values and order (1)"},
        {ARG_STR, "data", "DIR", &conf.data, 0, 0,
         "Fashion-MNIST's four files (default: $PENSTOCK_FASHION_MNIST, else\n"
         "/usr/share/datasets/fashion-mnist of Debian's dataset-fashion-mnist)"},
        {ARG_FLAG, "permute-labels", NULL, &conf.permute_labels, 0, 0,
         "spoil the result: answer class c + 1 for c (for rollback stories)"},
        {ARG_STR, "evaluate", "FILE", &conf.evaluate, 0, 0,
         "train nothing: print the accuracy of these weights"},
        {ARG_GROUP, "Checkpoints", NULL, NULL, 0, 0, NULL},
        {ARG_STR, "checkpoint", "FILE", &conf.checkpoint, 0, 0,
         "written at intervals and at SIGTERM; resumed from when it exists"},
        {ARG_UINT, "checkpoint-every", "N", &conf.checkpoint_every, 1, 1e9, "steps (1000)"},
        {ARG_UINT, "log-every", "N", &conf.log_every, 1, 1e9, "steps (500)"},
        {ARG_UINT, "step-delay-ms", "MS", &conf.step_delay_ms, 0, 60000,
         "wait so long after each step (a slower model, in tests and demos)"},
        {ARG_GROUP, "As a job of several tasks", NULL, NULL, 0, 0, NULL},
        {ARG_FLAG, "alone", NULL, &alone, 0, 0,
         "train in this process whatever the environment says"},
        {ARG_UINT, "wait-ms", "MS", &conf.wait_ms, 0, 86400000,
         "a worker waits so long for a parameter server that is not (or no more) there (60000)"},
        {0},
    };

    train_conf_default(&conf);
    switch (args_parse(table, usage, argc, argv)) {
    case ARGS_HELP:
        return 0;
    case ARGS_WRONG:
        return EXIT_USAGE;
    default:
        break;
    }
    if (conf.evaluate != NULL)
        return train_evaluate(&conf);
    if (hidden != NULL && !parse_hidden(hidden, &conf.plan.shape))
        return wrong("--hidden: not one to three numbers from 1 to 4096, separated by commas");
    if (conf.out == NULL)
        return wrong("--out FILE is missing");
    conf.plan.epochs = (uint32_t)epochs;
    conf.plan.batch = (uint32_t)batch;
    conf.plan.n_examples = (uint32_t)examples;
    conf.plan.seed = seed;
    conf.plan.rate = (float)rate;
    conf.plan.momentum = (float)momentum;

    const char *rule = train_plan_broken_rule(&conf.plan);
    if (rule != NULL) {
        fprintf(stderr, "penstock-train: the plan breaks a rule: %s\n", rule);
        return EXIT_USAGE;
    }
    return run(&conf, alone);
}
