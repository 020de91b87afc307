#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "conf/generation.h"
#include "gateway/route.h"

static const char config[] =
    "{\"models\":{"
    "\"digits.json\":{\"model\":\"digits\",\"versions\":{\"1\":{\"command\":[\"m\"]},"
    "\"2\":{\"command\":[\"m\"]}},\"labels\":{\"canary\":\"2\"},\"traffic\":{\"1\":10000}},"
    "\"wide.json\":{\"model\":\"wide\",\"protocol\":\"tensorflow\",\"endpoints\":[\"127.0.0.1:1\"],"
    "\"versions\":{\"7\":{},\"8\":{}},\"labels\":{\"stable\":\"7\"},\"traffic\":{\"8\":10000}},"
    "\"any.json\":{\"model\":\"any\",\"endpoints\":[\"127.0.0.1:2\"]},"
    "\"echo.json\":{\"model\":\"echo\",\"protocol\":\"grpc\",\"services\":[\"test.Echo\"],"
    "\"endpoints\":[\"127.0.0.1:3\"]}}}";

static int setup(void **state)
{
    struct conf_problems problems;

    conf_problems_init(&problems);
    struct generation *g = generation_load_text(config, strlen(config), &problems);

    assert_string_equal(buf_cstr(&problems.text), "");
    conf_problems_fini(&problems);
    *state = snapshot_build(g, 1, NULL, 0, NULL, NULL);
    generation_unref(g);
    return 0;
}

static int teardown(void **state)
{
    snapshot_unref(*state);
    return 0;
}

static struct route_path path_of(const char *path)
{
    return route_of_path(path, strlen(path), true, true);
}

/* What asking for (name, choice, version) on path gives; the model's name and version in ret. */
static int find(void **state, const char *path, const char *name, enum walker_choice choice,
                const char *version, struct route *ret, const char **ret_model, struct err *err)
{
    const struct snapshot *snap = *state;
    const struct route_path p = path_of(path);
    const struct route_want want = {.name = name,
                                    .name_len = strlen(name),
                                    .choice = choice,
                                    .version = version,
                                    .version_len = strlen(version)};
    const int r = route_find(ret, snap, &p, &want, err);

    if (r == ROUTE_OK)
        *ret_model = snap->models[ret->model].conf->name;
    return r;
}

#define INFER   "/inference.GRPCInferenceService/ModelInfer"
#define PREDICT "/tensorflow.serving.PredictionService/Predict"

static void methods_that_name_a_model_are_read_others_go_by_service(void **state)
{
    (void)state;
    assert_int_equal(path_of(INFER).kind, ROUTE_BY_MESSAGE);
    assert_int_equal(path_of(INFER).walker, WALKER_NAME_VERSION);
    assert_int_equal(path_of("/inference.GRPCInferenceService/ModelStreamInfer").kind,
                     ROUTE_BY_MESSAGE);
    assert_int_equal(path_of(PREDICT).protocol, PROTOCOL_TENSORFLOW);
    assert_int_equal(path_of("/tensorflow.serving.PredictionService/MultiInference").walker,
                     WALKER_TASKS);

    const struct route_path echo = path_of("/test.Echo/Unary");

    assert_int_equal(echo.kind, ROUTE_BY_SERVICE);
    assert_int_equal(echo.service_len, strlen("test.Echo"));
    assert_memory_equal(echo.service, "test.Echo", echo.service_len);
}

static void control_calls_are_refused_only_where_a_catalogue_has_their_protocol(void **state)
{
    const char *const load = "/inference.GRPCInferenceService/RepositoryModelLoad";
    const char *const reload = "/tensorflow.serving.ModelService/HandleReloadConfigRequest";

    (void)state;
    assert_int_equal(path_of(load).kind, ROUTE_REFUSED);
    assert_int_equal(path_of(load).status, GRPC_PERMISSION_DENIED);
    assert_int_equal(path_of(reload).status, GRPC_PERMISSION_DENIED);
    assert_int_equal(path_of("/inference.GRPCInferenceService/CudaSharedMemoryRegister").status,
                     GRPC_UNIMPLEMENTED);
    assert_int_equal(path_of("/inference.GRPCInferenceService/NoSuchMethod").status,
                     GRPC_UNIMPLEMENTED);
    assert_int_equal(
        path_of("/inference.model_repository.ModelRepositoryService/RepositoryModelLoad").kind,
        ROUTE_REFUSED);
    /* A relay has no catalogue: all of it passes. */
    assert_int_equal(route_of_path(load, strlen(load), false, false).kind, ROUTE_BY_SERVICE);
    assert_int_equal(route_of_path(INFER, strlen(INFER), false, true).kind, ROUTE_BY_SERVICE);
    assert_int_equal(route_of_path(reload, strlen(reload), true, false).kind, ROUTE_BY_SERVICE);
}

static void a_version_is_found_by_number_and_by_label_and_else_the_split_chooses(void **state)
{
    struct route r;
    const char *model;

    assert_int_equal(find(state, INFER, "digits", WALKER_ANY, "", &r, &model, NULL), ROUTE_OK);
    assert_string_equal(model, "digits");
    assert_int_equal(r.version, -1);
    assert_int_equal(find(state, INFER, "digits", WALKER_VERSION, "2", &r, &model, NULL), ROUTE_OK);
    assert_int_equal(r.version, 1);
    assert_false(r.by_label);
    assert_int_equal(find(state, INFER, "digits", WALKER_VERSION, "canary", &r, &model, NULL),
                     ROUTE_OK);
    assert_int_equal(r.version, 1);
    assert_true(r.by_label);
}

static void tensorflow_labels_and_numbers_are_not_taken_for_each_other(void **state)
{
    struct route r;
    const char *model;
    struct err err = {0};

    assert_int_equal(find(state, PREDICT, "wide", WALKER_LABEL, "stable", &r, &model, NULL),
                     ROUTE_OK);
    assert_true(r.by_label);
    assert_int_equal(find(state, PREDICT, "wide", WALKER_VERSION, "8", &r, &model, NULL), ROUTE_OK);
    assert_false(r.by_label);
    assert_int_equal(find(state, PREDICT, "wide", WALKER_LABEL, "8", &r, &model, &err),
                     ROUTE_E_NO_VERSION);
    assert_string_equal(err.text, "model \"wide\" has no label \"8\"");
}

static void what_is_unknown_is_named_in_the_message(void **state)
{
    const struct route_path path = path_of(INFER), plain = path_of("/test.Other/Unary");
    struct route r;
    const char *model;
    struct err err = {0};

    assert_int_equal(find(state, INFER, "digit", WALKER_ANY, "", &r, &model, &err),
                     ROUTE_E_NO_MODEL);
    assert_string_equal(err.text, "there is no model \"digit\"");
    assert_int_equal(route_status(ROUTE_E_NO_MODEL, &path), GRPC_NOT_FOUND);

    assert_int_equal(find(state, INFER, "digits", WALKER_VERSION, "3", &r, &model, &err),
                     ROUTE_E_NO_VERSION);
    assert_string_equal(err.text, "model \"digits\" has no version or label \"3\"");
    assert_int_equal(route_status(ROUTE_E_NO_VERSION, &path), GRPC_NOT_FOUND);

    assert_int_equal(find(state, INFER, "", WALKER_ANY, "", &r, &model, &err), ROUTE_E_NO_NAME);
    assert_int_equal(route_status(ROUTE_E_NO_NAME, &path), GRPC_INVALID_ARGUMENT);

    assert_int_equal(find(state, "/test.Other/Unary", "", WALKER_ANY, "", &r, &model, &err),
                     ROUTE_E_NO_MODEL);
    assert_int_equal(route_status(ROUTE_E_NO_MODEL, &plain), GRPC_UNIMPLEMENTED);
    /* A model of one protocol is unknown to the other. */
    assert_int_equal(find(state, PREDICT, "digits", WALKER_ANY, "", &r, &model, &err),
                     ROUTE_E_NO_MODEL);
}

static void a_model_without_versions_takes_any_version_as_it_is(void **state)
{
    struct route r;
    const char *model;

    assert_int_equal(find(state, INFER, "any", WALKER_VERSION, "41", &r, &model, NULL), ROUTE_OK);
    assert_int_equal(r.version, 0);
    assert_false(r.by_label); /* so nothing is put into the message */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(methods_that_name_a_model_are_read_others_go_by_service),
        cmocka_unit_test(control_calls_are_refused_only_where_a_catalogue_has_their_protocol),
        cmocka_unit_test(a_version_is_found_by_number_and_by_label_and_else_the_split_chooses),
        cmocka_unit_test(tensorflow_labels_and_numbers_are_not_taken_for_each_other),
        cmocka_unit_test(what_is_unknown_is_named_in_the_message),
        cmocka_unit_test(a_model_without_versions_takes_any_version_as_it_is),
    };

    return cmocka_run_group_tests(tests, setup, teardown);
}
