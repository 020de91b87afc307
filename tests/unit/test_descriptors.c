#include "proto/descriptors.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static void every_file_is_packed_under_its_name_and_brings_its_imports(void **state)
{
    (void)state;
    assert_true(descriptors_count() >= 7);
    for (size_t i = 0; i < descriptors_count(); i++) {
        const struct descriptor_file *f = descriptors_at(i);
        const size_t name_len = strlen(f->name);

        assert_ptr_equal(descriptors_by_file(f->name), f);
        assert_true(f->len > name_len + 2 && name_len < 128);
        assert_int_equal(f->bytes[0], 0x0a); /* FileDescriptorProto.name is field 1 */
        assert_int_equal(f->bytes[1], name_len);
        assert_memory_equal(f->bytes + 2, f->name, name_len);
        for (size_t k = 0; k < f->n_deps; k++)
            assert_ptr_not_equal(descriptors_at(f->deps[k]), f);
    }
    assert_int_equal(descriptors_by_file("tensorflow_serving.proto")->n_deps, 2);
    assert_null(descriptors_by_file("nonsense.proto"));
}

static void symbols_of_every_kind_lead_to_their_file(void **state)
{
    static const struct {
        const char *symbol, *file;
    } cases[] = {
        {"inference.GRPCInferenceService", "kserve_v2.proto"},
        {"inference.GRPCInferenceService.ModelInfer", "kserve_v2.proto"},
        {"inference.ModelInferRequest", "kserve_v2.proto"},
        {"inference.ModelInferRequest.InferInputTensor", "kserve_v2.proto"},
        {"inference.ModelInferRequest.model_name", "kserve_v2.proto"},
        {"grpc.health.v1.Health", "grpc_health_v1.proto"},
        {"grpc.health.v1.HealthCheckResponse.ServingStatus", "grpc_health_v1.proto"},
        {"grpc.reflection.v1.ServerReflection", "grpc_reflection_v1.proto"},
        {"grpc.reflection.v1alpha.ServerReflection", "grpc_reflection_v1alpha.proto"},
        {"tensorflow.serving.PredictionService", "tensorflow_serving.proto"},
        {"tensorflow.DataType", "tensorflow_tensor.proto"},
        {"google.protobuf.Int64Value", "google/protobuf/wrappers.proto"},
    };
    static const char *const none[] = {"",
                                       "inference",
                                       "inference.",
                                       ".inference.ModelInferRequest",
                                       "inference.ModelInferRequestX",
                                       "zzz"};

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const struct descriptor_file *f = descriptors_by_symbol(cases[i].symbol);

        assert_non_null(f);
        assert_string_equal(f->name, cases[i].file);
    }
    for (size_t i = 0; i < sizeof(none) / sizeof(none[0]); i++)
        assert_null(descriptors_by_symbol(none[i]));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_file_is_packed_under_its_name_and_brings_its_imports),
        cmocka_unit_test(symbols_of_every_kind_lead_to_their_file),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
