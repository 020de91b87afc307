/* loadtest/fashion_models.c - at build time: train the versions that tests and the demo serve.
 *
 *     fashion_models DATA-FOLDER FASHION-1 FASHION-2 FASHION-3 FASHION-BAD
 *
 * Writes four weights files. Accuracies on the 10,000 test images: 83.5, 86.4, 87.8 %;
 * the bad one is version 2 with its class columns moved on by one, so that it answers quickly,
 * surely and wrongly. One child process per version, so that two cores train two of them.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "loadtest/trainer.h"

struct recipe {
    uint32_t hidden; /* 0: softmax regression */
    uint32_t epochs;
};

static const struct recipe recipes[] = {{128, 5}, {32, 8}, {0, 1}}; /* the longest starts first */

static void train(struct trainer *t, const struct recipe *recipe, const struct fashion_set *set,
                  const struct fashion_set *test)
{
    struct train_plan plan;
    double loss;
    uint32_t correct;

    train_plan_default(&plan);
    plan.epochs = recipe->epochs;
    plan.n_examples = set->n;
    if (recipe->hidden > 0)
        plan.shape = (struct nn_shape){.n_layers = 2,
                                       .widths = {FASHION_PIXELS, recipe->hidden, FASHION_CLASSES}};
    trainer_init(t, &plan);
    while (!trainer_is_done(t)) {
        trainer_gradient(t, set, t->weights.step, 0, plan.batch, &loss, &correct);
        trainer_apply(t, t->gradient);
    }
    trainer_test(t, test);
}

static int save(struct trainer *t, const char *path)
{
    struct err err = {0};

    free(t->weights.velocity);
    t->weights.velocity = NULL;
    if (weights_save(&t->weights, path, &err) != 0) {
        fprintf(stderr, "fashion_models: %s\n", err.text);
        return 1;
    }
    printf("%s: %u of %u test images right\n", path, t->weights.n_correct, t->weights.n_tested);
    return 0;
}

/* In a child: train one version and write it; bad_path: also its permuted twin, or NULL. */
static int make_version(const struct recipe *recipe, const struct fashion_set *set,
                        const struct fashion_set *test, const char *path, const char *bad_path)
{
    struct trainer t;
    int failed;

    train(&t, recipe, set, test);
    failed = save(&t, path);
    if (bad_path != NULL) {
        nn_rotate_classes(&t.weights.nn);
        trainer_test(&t, test);
        failed |= save(&t, bad_path);
    }
    trainer_fini(&t);
    return failed;
}

int main(int argc, char **argv)
{
    struct fashion_set set = {0}, test = {0};
    struct err err = {0};
    int failed = 0;

    if (argc != 6) {
        fprintf(stderr, "usage: fashion_models DATA FASHION-1 FASHION-2 FASHION-3 FASHION-BAD\n");
        return 64;
    }
    if (fashion_load(&set, argv[1], FASHION_TRAIN, &err) != 0 ||
        fashion_load(&test, argv[1], FASHION_TEST, &err) != 0) {
        fprintf(stderr, "fashion_models: %s\n", err.text);
        return 1;
    }
    for (size_t i = 0; i < ARRAY_LEN(recipes); i++) {
        const pid_t pid = fork();

        if (pid < 0) {
            perror("fashion_models: fork");
            failed = 1;
            break;
        }
        if (pid == 0) {
            failed = make_version(&recipes[i], &set, &test, argv[4 - i], i == 1 ? argv[5] : NULL);
            fashion_fini(&set);
            fashion_fini(&test);
            return failed;
        }
    }
    for (int status; wait(&status) > 0;)
        failed |= status != 0;
    fashion_fini(&set);
    fashion_fini(&test);
    return failed;
}
