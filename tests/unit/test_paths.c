/* gateway/paths: what is remembered must be what a look-up without memory says. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "gateway/paths.h"

static const char *const methods[] = {
    "/inference.GRPCInferenceService/ModelInfer",
    "/inference.GRPCInferenceService/ModelStreamInfer",
    "/inference.GRPCInferenceService/ServerLive",
    "/inference.GRPCInferenceService/RepositoryModelLoad",
    "/inference.GRPCInferenceService/Nothing",
    "/tensorflow.serving.PredictionService/Predict",
    "/grpc.health.v1.Health/Check",
    "/a.B/C",
    "/a.B/D",
    "/a.C/C",
    "/",
    "no slash",
    "//x",
    "/x/",
};

static void check_row(struct paths *p, const struct paths_rules *rules, const char *path)
{
    const size_t len = strlen(path);
    const struct path_row *row = paths_find(p, rules, path, len);
    const struct route_path want =
        route_of_path(path, len, rules->has_kserve, rules->has_tensorflow);

    assert_ptr_equal(row->local, local_find(rules->local, path, len));
    assert_int_equal(row->route.kind, want.kind);
    assert_int_equal(row->route.protocol, want.protocol);
    assert_int_equal(row->route.walker, want.walker);
    assert_int_equal(row->route.status, want.status);
    assert_ptr_equal(row->route.why, want.why);
    assert_ptr_equal(row->route.service, want.service);
    assert_int_equal(row->route.service_len, want.service_len);
}

static void a_remembered_path_is_like_one_seen_for_the_first_time(void **state)
{
    struct local *local = local_new();
    struct paths p = {0};
    struct paths_rules rules = {.local = local, .has_kserve = true};
    char copy[64];

    (void)state;
    for (int round = 0; round < 3; round++) {
        for (size_t i = 0; i < ARRAY_LEN(methods); i++) {
            check_row(&p, &rules, methods[i]);
            strcpy(copy, methods[i]); /* the same path at another address */
            check_row(&p, &rules, copy);
        }
    }
    local_free(local);
}

static void after_a_reset_new_rules_count(void **state)
{
    struct local *local = local_new();
    struct paths p = {0};
    struct paths_rules rules = {.local = local, .has_kserve = true};

    (void)state;
    assert_int_equal(paths_find(&p, &rules, methods[0], strlen(methods[0]))->route.kind,
                     ROUTE_BY_MESSAGE);
    rules.has_kserve = false;
    paths_reset(&p);
    for (size_t i = 0; i < ARRAY_LEN(methods); i++)
        check_row(&p, &rules, methods[i]);
    assert_int_equal(paths_find(&p, &rules, methods[0], strlen(methods[0]))->route.kind,
                     ROUTE_BY_SERVICE);
    local_free(local);
}

static void paths_of_any_length_are_looked_up(void **state)
{
    struct local *local = local_new();
    struct paths p = {0};
    const struct paths_rules rules = {.local = local, .has_kserve = true};
    char path[300] = "/s/";

    (void)state;
    assert_null(paths_find(&p, &rules, "", 0)->route.service);
    for (size_t len = 3; len < sizeof(path) - 1; len++) {
        path[len] = (char)('a' + len % 26);
        path[len + 1] = '\0';
        check_row(&p, &rules, path);
        check_row(&p, &rules, path);
    }
    local_free(local);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_remembered_path_is_like_one_seen_for_the_first_time),
        cmocka_unit_test(after_a_reset_new_rules_count),
        cmocka_unit_test(paths_of_any_length_are_looked_up),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
