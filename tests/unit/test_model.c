#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include <zlib.h>

#include "base/rng.h"
#include "loadtest/load_payload.h"
#include "loadtest/model.h"
#include "loadtest/unzip.h"
#include "proto/kserve_v2.pb-c.h"

struct fixture {
    char path[64];
    struct model model;
    struct model_answer answer;
    struct buf request;
};

/* A model with made-up weights: what is tested here is the way in and out. */
static int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof(*f));
    struct weights w = {0};
    struct err err;

    strcpy(f->path, "/tmp/penstock-model-XXXXXX");
    close(mkstemp(f->path));
    train_plan_default(&w.plan);
    nn_init(&w.nn, &w.plan.shape);
    if (weights_save(&w, f->path, &err) != 0)
        return -1;
    weights_fini(&w);
    model_init(&f->model, "m");
    f->model.is_ready = true;
    model_answer_init(&f->answer);
    buf_init(&f->request, 1 << 20);
    *state = f;
    return model_add_version(&f->model, "7", f->path, &err);
}

static int teardown(void **state)
{
    struct fixture *f = *state;

    unlink(f->path);
    model_fini(&f->model);
    model_answer_fini(&f->answer);
    buf_fini(&f->request);
    free(f);
    return 0;
}

static const struct model_method *method(const struct model_method *table, const char *name)
{
    for (; table->path != NULL; table++) {
        if (strstr(table->path, name) != NULL)
            return table;
    }
    fail_msg("no method %s", name);
    return NULL;
}

/* n zero images. */
static void make_request(struct fixture *f, int64_t n)
{
    Inference__ModelInferRequest req = INFERENCE__MODEL_INFER_REQUEST__INIT;
    Inference__ModelInferRequest__InferInputTensor in =
        INFERENCE__MODEL_INFER_REQUEST__INFER_INPUT_TENSOR__INIT;
    Inference__ModelInferRequest__InferInputTensor *inputs[] = {&in};
    int64_t shape[] = {n, 784};
    ProtobufCBinaryData raw = {(size_t)n * 784 * 4, calloc((size_t)n * 784, 4)};

    in.name = (char *)"image";
    in.datatype = (char *)"FP32";
    in.n_shape = 2;
    in.shape = shape;
    req.model_name = (char *)"m";
    req.id = (char *)"id-1";
    req.n_inputs = 1;
    req.inputs = inputs;
    req.n_raw_input_contents = 1;
    req.raw_input_contents = &raw;
    buf_reset(&f->request);
    inference__model_infer_request__pack(
        &req, buf_reserve(&f->request, inference__model_infer_request__get_packed_size(&req)));
    f->request.len = inference__model_infer_request__get_packed_size(&req);
    free(raw.data);
}

static void a_network_of_zeros_is_equally_sure_of_all_classes(void **state)
{
    struct fixture *f = *state;

    make_request(f, 2);
    model_answer(&f->model, method(kserve_methods, "ModelInfer"), f->request.data, f->request.len,
                 &f->answer);
    assert_int_equal(f->answer.status, GRPC_OK);
    assert_string_equal(f->answer.request_id, "id-1");
    Inference__ModelInferResponse *res =
        inference__model_infer_response__unpack(NULL, f->answer.body.len, f->answer.body.data);
    assert_string_equal(res->model_version, "7");
    assert_int_equal(res->raw_output_contents[0].len, 80);
    for (size_t i = 0; i < 20; i++) {
        float p;

        memcpy(&p, res->raw_output_contents[0].data + i * 4, 4);
        assert_true(p > 0.0999f && p < 0.1001f);
    }
    inference__model_infer_response__free_unpacked(res, NULL);
}

/* Every cut and thousands of mutations, through every method: a status or an answer, never more. */
static void broken_requests_get_an_answer_whatever_is_broken(void **state)
{
    struct fixture *f = *state;
    const struct model_method *tables[] = {kserve_methods, tf_methods, health_methods,
                                           echo_methods};
    struct rng rng;

    rng_init(&rng, 3);
    make_request(f, 1);
    for (int round = 0; round < 4000; round++) {
        uint8_t *copy = malloc(f->request.len); /* exact, so that ASan sees a step too far */
        size_t len = round < 64 ? (size_t)round : f->request.len;

        memcpy(copy, f->request.data, f->request.len);
        for (int k = round < 64 ? 0 : 1 + round % 3; k > 0; k--)
            copy[rng_below(&rng, 48)] = (uint8_t)rng_next(&rng);
        if (round % 7 == 0)
            len = (size_t)rng_below(&rng, f->request.len);
        uint8_t *cut = malloc(len > 0 ? len : 1);
        memcpy(cut, copy, len);
        for (size_t t = 0; t < 4; t++) {
            for (const struct model_method *m = tables[t]; m->path != NULL; m++) {
                struct model_answer a;

                model_answer_init(&a);
                model_answer(&f->model, m, cut, len, &a);
                assert_in_range(a.status, 0, GRPC_N_STATUS - 1);
                assert_true(a.status == GRPC_OK || a.message[0] != '\0');
                model_answer_fini(&a);
            }
        }
        free(cut);
        free(copy);
    }
}

static void memory_for_a_request_is_bounded_by_its_size(void **state)
{
    struct fixture *f = *state;

    for (int i = 0; i < 100000; i++) {
        buf_append_byte(&f->request, 0x2a); /* inputs: an empty tensor */
        buf_append_byte(&f->request, 0);
    }
    model_answer(&f->model, method(kserve_methods, "ModelInfer"), f->request.data, f->request.len,
                 &f->answer);
    assert_int_equal(f->answer.status, GRPC_INVALID_ARGUMENT);
    assert_true(f->model.scratch.used_bytes <= 4 * f->request.len + 64 * 1024);
}

static void an_echo_answer_is_only_right_for_its_own_call(void **state)
{
    const struct load_payload_conf conf = {.kind = LOAD_ECHO, .echo_bytes = 100};
    struct load_payload p;
    struct load_check c;
    struct arena scratch;
    struct buf message;
    struct err err;

    (void)state;
    arena_init(&scratch, 0);
    buf_init(&message, 4096);
    assert_int_equal(load_payload_init(&p, &conf, &err), 0);
    load_payload_build(&p, 1, 5, &message);
    assert_int_equal(message.len, 116);
    load_payload_check(&p, 1, 5, message.data, message.len, &scratch, &c);
    assert_true(c.belongs);
    load_payload_check(&p, 1, 6, message.data, message.len, &scratch, &c);
    assert_false(c.belongs);
    load_payload_check(&p, 2, 5, message.data, message.len, &scratch, &c);
    assert_false(c.belongs);
    load_payload_check(&p, 1, 5, message.data, message.len - 1, &scratch, &c);
    assert_false(c.belongs);
    for (size_t i = 0; i < message.len; i++) {
        message.data[i] ^= 1;
        load_payload_check(&p, 1, 5, message.data, message.len, &scratch, &c);
        assert_false(c.belongs);
        message.data[i] ^= 1;
    }
    buf_fini(&message);
    arena_fini(&scratch);
    load_payload_fini(&p);
}

static size_t deflate_all(const uint8_t *p, size_t len, int window, uint8_t *dst, size_t cap)
{
    z_stream z = {0};

    assert_int_equal(deflateInit2(&z, 6, Z_DEFLATED, window, 8, Z_DEFAULT_STRATEGY), Z_OK);
    z.next_in = (Bytef *)p;
    z.avail_in = (uInt)len;
    z.next_out = dst;
    z.avail_out = (uInt)cap;
    assert_int_equal(deflate(&z, Z_FINISH), Z_STREAM_END);
    deflateEnd(&z);
    return cap - z.avail_out;
}

static void compressed_messages_unpack_up_to_the_limit(void **state)
{
    static uint8_t plain[300000], packed[400000];
    struct rng rng;
    struct buf out;

    (void)state;
    rng_init(&rng, 1);
    for (size_t i = 0; i < sizeof(plain); i++)
        plain[i] = (uint8_t)(rng_next(&rng) & 3);
    for (int k = 0; k < 2; k++) {
        const char *encoding = k == 0 ? "gzip" : "deflate";
        const size_t len =
            deflate_all(plain, sizeof(plain), k == 0 ? 31 : 15, packed, sizeof(packed));

        buf_init(&out, sizeof(plain) + 1);
        assert_int_equal(unzip_message(encoding, packed, len, &out), UNZIP_OK);
        assert_int_equal(out.len, sizeof(plain));
        assert_memory_equal(out.data, plain, sizeof(plain));
        buf_reset(&out);
        assert_int_equal(unzip_message(encoding, packed, len - 1, &out), UNZIP_E_BROKEN);
        buf_reset(&out);
        packed[len] = 0; /* bytes behind the end */
        assert_int_equal(unzip_message(encoding, packed, len + 1, &out), UNZIP_E_BROKEN);
        buf_fini(&out);
        buf_init(&out, sizeof(plain) / 2);
        assert_int_equal(unzip_message(encoding, packed, len, &out), UNZIP_E_TOO_LONG);
        buf_fini(&out);
    }
    buf_init(&out, 100);
    assert_int_equal(unzip_message("br", packed, 10, &out), UNZIP_E_ENCODING);
    assert_int_equal(unzip_message(NULL, packed, 10, &out), UNZIP_E_ENCODING);
    buf_fini(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_network_of_zeros_is_equally_sure_of_all_classes, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(broken_requests_get_an_answer_whatever_is_broken, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(memory_for_a_request_is_bounded_by_its_size, setup,
                                        teardown),
        cmocka_unit_test(an_echo_answer_is_only_right_for_its_own_call),
        cmocka_unit_test(compressed_messages_unpack_up_to_the_limit),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
