#include "loadtest/load_payload.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/rng.h"
#include "base/xalloc.h"
#include "loadtest/model.h"
#include "proto/kserve_v2.pb-c.h"
#include "proto/tensorflow_serving.pb-c.h"

#define ECHO_ID_BYTES 16u /* thread and number */

static int read_file(const char *path, struct buf *ret, struct err *err)
{
    struct stat st;
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    int r = 0;

    if (fd < 0)
        return err_set(err, -errno, "%s: %s", path, strerror(errno));
    if (fstat(fd, &st) != 0 || st.st_size > (off_t)LOAD_MAX_MESSAGE_BYTES)
        r = err_set(err, -EFBIG, "%s: over the limit of %u bytes", path, LOAD_MAX_MESSAGE_BYTES);
    while (r == 0) {
        uint8_t *at = buf_reserve(ret, 65536);
        const ssize_t n = at != NULL ? read(fd, at, 65536) : -1;

        if (n < 0)
            r = err_set(err, -EIO, "%s: can't be read, or grew", path);
        if (n <= 0)
            break;
        ret->len += (size_t)n;
    }
    close(fd);
    return r;
}

static void pack(struct buf *ret, const ProtobufCMessage *message)
{
    const size_t len = protobuf_c_message_get_packed_size(message);
    uint8_t *at = buf_reserve(ret, len);

    check(at != NULL);
    protobuf_c_message_pack(message, at);
    ret->len += len;
}

/* --- KServe --- */

/* A message is the concatenation of its parts: field by field, that is what protobuf merges. */
static void kserve_head(struct load_payload *p)
{
    Inference__ModelInferRequest head = INFERENCE__MODEL_INFER_REQUEST__INIT;

    head.model_name = (char *)p->conf.model;
    head.model_version = (char *)(p->conf.version != NULL ? p->conf.version : "");
    pack(&p->head, &head.base);
}

static void kserve_tail(const struct load_payload *p, float *pixels, struct buf *ret)
{
    Inference__ModelInferRequest tail = INFERENCE__MODEL_INFER_REQUEST__INIT;
    Inference__ModelInferRequest__InferInputTensor in =
        INFERENCE__MODEL_INFER_REQUEST__INFER_INPUT_TENSOR__INIT;
    Inference__ModelInferRequest__InferInputTensor *inputs[] = {&in};
    Inference__InferTensorContents typed = INFERENCE__INFER_TENSOR_CONTENTS__INIT;
    const size_t n_values = (size_t)p->conf.batch * FASHION_PIXELS;
    ProtobufCBinaryData raw = {n_values * sizeof(float), (uint8_t *)pixels};
    int64_t shape[] = {p->conf.batch, FASHION_PIXELS};

    in.name = (char *)MODEL_INPUT;
    in.datatype = (char *)"FP32";
    in.n_shape = 2;
    in.shape = shape;
    tail.n_inputs = 1;
    tail.inputs = inputs;
    if (p->conf.is_typed) {
        typed.n_fp32_contents = n_values;
        typed.fp32_contents = pixels;
        in.contents = &typed;
    } else {
        tail.n_raw_input_contents = 1;
        tail.raw_input_contents = &raw;
    }
    pack(ret, &tail.base);
}

/* --- tensorflow.serving --- */

static void tf_head(struct load_payload *p)
{
    Tensorflow__Serving__PredictRequest head = TENSORFLOW__SERVING__PREDICT_REQUEST__INIT;
    Tensorflow__Serving__ModelSpec spec = TENSORFLOW__SERVING__MODEL_SPEC__INIT;
    Google__Protobuf__Int64Value number = GOOGLE__PROTOBUF__INT64_VALUE__INIT;

    spec.name = (char *)p->conf.model;
    if (p->conf.version != NULL && p->conf.version_is_label) {
        spec.version_choice_case = TENSORFLOW__SERVING__MODEL_SPEC__VERSION_CHOICE_VERSION_LABEL;
        spec.version_label = (char *)p->conf.version;
    } else if (p->conf.version != NULL) {
        number.value = strtoll(p->conf.version, NULL, 10);
        spec.version_choice_case = TENSORFLOW__SERVING__MODEL_SPEC__VERSION_CHOICE_VERSION;
        spec.version = &number;
    }
    head.model_spec = &spec;
    pack(&p->head, &head.base);
}

static void tf_tail(const struct load_payload *p, float *pixels, struct buf *ret)
{
    Tensorflow__Serving__PredictRequest tail = TENSORFLOW__SERVING__PREDICT_REQUEST__INIT;
    Tensorflow__Serving__PredictRequest__InputsEntry entry =
        TENSORFLOW__SERVING__PREDICT_REQUEST__INPUTS_ENTRY__INIT;
    Tensorflow__Serving__PredictRequest__InputsEntry *entries[] = {&entry};
    Tensorflow__TensorProto tensor = TENSORFLOW__TENSOR_PROTO__INIT;
    Tensorflow__TensorShapeProto shape = TENSORFLOW__TENSOR_SHAPE_PROTO__INIT;
    Tensorflow__TensorShapeProto__Dim rows = TENSORFLOW__TENSOR_SHAPE_PROTO__DIM__INIT;
    Tensorflow__TensorShapeProto__Dim columns = TENSORFLOW__TENSOR_SHAPE_PROTO__DIM__INIT;
    Tensorflow__TensorShapeProto__Dim *dims[] = {&rows, &columns};
    const size_t n_values = (size_t)p->conf.batch * FASHION_PIXELS;

    rows.size = p->conf.batch;
    columns.size = FASHION_PIXELS;
    shape.n_dim = 2;
    shape.dim = dims;
    tensor.dtype = TENSORFLOW__DATA_TYPE__DT_FLOAT;
    tensor.tensor_shape = &shape;
    if (p->conf.is_typed) {
        tensor.n_float_val = n_values;
        tensor.float_val = pixels;
    } else {
        tensor.tensor_content.len = n_values * sizeof(float);
        tensor.tensor_content.data = (uint8_t *)pixels;
    }
    entry.key = (char *)MODEL_INPUT;
    entry.value = &tensor;
    tail.n_inputs = 1;
    tail.inputs = entries;
    pack(ret, &tail.base);
}

/* --- set-up --- */

static int init_images(struct load_payload *p, struct err *err)
{
    const struct load_payload_conf *c = &p->conf;
    const int r = fashion_load(&p->set, fashion_dir(c->data), FASHION_TEST, err);

    if (r != 0)
        return r;
    if (c->batch > c->n_images || c->n_images > p->set.n)
        return err_set(err, -EINVAL,
                       "--batch %u, --images %u: the set has %u images, and a batch "
                       "must not be larger than what is used of them",
                       c->batch, c->n_images, p->set.n);

    float *pixels = xcalloc((size_t)c->batch * FASHION_PIXELS, sizeof(float));
    p->n_tails = c->n_images / c->batch;
    p->tails = xcalloc(p->n_tails, sizeof(*p->tails));
    for (uint32_t t = 0; t < p->n_tails; t++) {
        for (uint32_t i = 0; i < c->batch; i++)
            fashion_pixels(&p->set, t * c->batch + i, pixels + (size_t)i * FASHION_PIXELS);
        buf_init(&p->tails[t], LOAD_MAX_MESSAGE_BYTES);
        if (c->kind == LOAD_KSERVE)
            kserve_tail(p, pixels, &p->tails[t]);
        else
            tf_tail(p, pixels, &p->tails[t]);
    }
    free(pixels);
    if (c->kind == LOAD_KSERVE)
        kserve_head(p);
    else
        tf_head(p);
    return 0;
}

/* Bytes without a pattern that a wrong offset could repeat. */
static void init_echo(struct load_payload *p)
{
    struct rng rng;

    rng_init(&rng, 42);
    for (uint32_t i = 0; i < p->conf.echo_bytes; i++)
        buf_append_byte(&p->head, (uint8_t)rng_next(&rng));
}

int load_payload_init(struct load_payload *p, const struct load_payload_conf *conf, struct err *err)
{
    static const char *const paths[][2] = {
        [LOAD_RAW] = {NULL, NULL},
        [LOAD_ECHO] = {"/penstock.test.Echo/Unary", "/penstock.test.Echo/Bidi"},
        [LOAD_KSERVE] = {"/inference.GRPCInferenceService/ModelInfer",
                         "/inference.GRPCInferenceService/ModelStreamInfer"},
        [LOAD_TF] = {"/tensorflow.serving.PredictionService/Predict", NULL},
    };
    int r = 0;

    *p = (struct load_payload){.conf = *conf};
    buf_init(&p->head, LOAD_MAX_MESSAGE_BYTES);
    buf_init(&p->expect, LOAD_MAX_MESSAGE_BYTES);
    p->path = conf->path != NULL ? conf->path : paths[conf->kind][conf->is_stream];
    if (p->path == NULL)
        return err_set(err, -EINVAL,
                       conf->kind == LOAD_RAW ? "--message needs --method /package.Service/Method"
                                              : "--protocol tf has no streaming method");
    switch (conf->kind) {
    case LOAD_RAW:
        r = read_file(conf->message, &p->head, err);
        if (r == 0 && conf->expect != NULL && strcmp(conf->expect, "same") != 0)
            r = read_file(conf->expect, &p->expect, err);
        break;
    case LOAD_ECHO:
        init_echo(p);
        break;
    case LOAD_KSERVE:
    case LOAD_TF:
        r = init_images(p, err);
        break;
    }
    return r;
}

void load_payload_fini(struct load_payload *p)
{
    for (uint32_t t = 0; t < p->n_tails; t++)
        buf_fini(&p->tails[t]);
    free(p->tails);
    fashion_fini(&p->set);
    buf_fini(&p->head);
    buf_fini(&p->expect);
    *p = (struct load_payload){0};
}

/* --- one call --- */

size_t load_payload_id(const struct load_payload *p, uint32_t thread, uint64_t n,
                       char dst[LOAD_ID_SIZE])
{
    return (size_t)snprintf(dst, LOAD_ID_SIZE, "%08" PRIx32 "-%" PRIu32 "-%" PRIu64, p->conf.run,
                            thread, n);
}

static void echo_id(uint8_t dst[ECHO_ID_BYTES], uint32_t thread, uint64_t n)
{
    const uint64_t t = thread;

    memcpy(dst, &t, 8);
    memcpy(dst + 8, &n, 8);
}

void load_payload_build(const struct load_payload *p, uint32_t thread, uint64_t n, struct buf *ret)
{
    uint8_t number[ECHO_ID_BYTES];
    char id[LOAD_ID_SIZE];
    size_t len;

    switch (p->conf.kind) {
    case LOAD_RAW:
        buf_append(ret, p->head.data, p->head.len);
        return;
    case LOAD_ECHO:
        echo_id(number, thread, n);
        buf_append(ret, number, sizeof(number));
        buf_append(ret, p->head.data, p->head.len);
        return;
    case LOAD_KSERVE:
        len = load_payload_id(p, thread, n, id);
        buf_append(ret, p->head.data, p->head.len);
        buf_append_byte(ret, 3 << 3 | 2); /* ModelInferRequest.id, length-delimited */
        buf_append_byte(ret, (uint8_t)len);
        buf_append(ret, id, len);
        break;
    case LOAD_TF:
        buf_append(ret, p->head.data, p->head.len);
        break;
    }

    const struct buf *tail = &p->tails[n % p->n_tails];
    buf_append(ret, tail->data, tail->len);
}

static void count_correct(const struct load_payload *p, uint64_t n, const int64_t *labels,
                          struct load_check *c)
{
    const uint8_t *want = p->set.labels + (n % p->n_tails) * p->conf.batch;

    c->n_images = p->conf.batch;
    for (uint32_t i = 0; i < p->conf.batch; i++)
        c->n_correct += labels[i] == want[i];
}

static void check_kserve_response(const struct load_payload *p, uint32_t thread, uint64_t n,
                                  const Inference__ModelInferResponse *res, struct arena *scratch,
                                  struct load_check *c)
{
    char id[LOAD_ID_SIZE];

    load_payload_id(p, thread, n, id);
    c->belongs = strcmp(res->id, id) == 0;
    snprintf(c->version, sizeof(c->version), "%.31s", res->model_version);
    for (size_t i = 0; i < res->n_outputs && c->belongs; i++) {
        const Inference__ModelInferResponse__InferOutputTensor *out = res->outputs[i];
        const size_t bytes = p->conf.batch * sizeof(int64_t);

        if (strcmp(out->name, MODEL_OUT_LABEL) != 0)
            continue;
        if (out->contents != NULL && out->contents->n_int64_contents == p->conf.batch) {
            count_correct(p, n, out->contents->int64_contents, c);
        } else if (i < res->n_raw_output_contents && res->raw_output_contents[i].len == bytes) {
            int64_t *labels = arena_dup(scratch, res->raw_output_contents[i].data, bytes);

            if (labels != NULL) /* aligned now */
                count_correct(p, n, labels, c);
        } else {
            c->belongs = false; /* labels for another number of images than were asked */
        }
    }
}

static void check_kserve(const struct load_payload *p, uint32_t thread, uint64_t n,
                         const uint8_t *answer, size_t len, struct arena *scratch,
                         struct load_check *c)
{
    ProtobufCAllocator alloc = {model_pb_alloc, model_pb_free, scratch};
    const Inference__ModelInferResponse *res;

    if (p->conf.is_stream) {
        const Inference__ModelStreamInferResponse *wrap =
            inference__model_stream_infer_response__unpack(&alloc, len, answer);

        if (wrap == NULL || wrap->infer_response == NULL)
            return;
        snprintf(c->in_band, sizeof(c->in_band), "%.159s", wrap->error_message);
        res = wrap->infer_response;
    } else {
        res = inference__model_infer_response__unpack(&alloc, len, answer);
    }
    if (res != NULL)
        check_kserve_response(p, thread, n, res, scratch, c);
}

static void check_tf(const struct load_payload *p, uint64_t n, const uint8_t *answer, size_t len,
                     struct arena *scratch, struct load_check *c)
{
    ProtobufCAllocator alloc = {model_pb_alloc, model_pb_free, scratch};
    const Tensorflow__Serving__PredictResponse *res =
        tensorflow__serving__predict_response__unpack(&alloc, len, answer);

    if (res == NULL || res->model_spec == NULL || strcmp(res->model_spec->name, p->conf.model) != 0)
        return;
    if (res->model_spec->version_choice_case ==
        TENSORFLOW__SERVING__MODEL_SPEC__VERSION_CHOICE_VERSION)
        snprintf(c->version, sizeof(c->version), "%" PRId64, res->model_spec->version->value);
    for (size_t i = 0; i < res->n_outputs; i++) {
        const Tensorflow__TensorProto *t = res->outputs[i]->value;

        if (strcmp(res->outputs[i]->key, MODEL_OUT_LABEL) != 0 || t == NULL ||
            t->n_int64_val != p->conf.batch)
            continue;
        count_correct(p, n, t->int64_val, c);
        c->belongs = true;
    }
}

void load_payload_check(const struct load_payload *p, uint32_t thread, uint64_t n,
                        const uint8_t *answer, size_t len, struct arena *scratch,
                        struct load_check *ret_check)
{
    const struct buf *want = p->expect.len > 0 ? &p->expect : &p->head;
    uint8_t number[ECHO_ID_BYTES];

    *ret_check = (struct load_check){.belongs = false};
    arena_reset(scratch);
    scratch->ceiling_bytes = 4 * len + 64 * 1024;
    switch (p->conf.kind) {
    case LOAD_RAW:
        ret_check->belongs =
            p->conf.expect == NULL || (len == want->len && memcmp(answer, want->data, len) == 0);
        break;
    case LOAD_ECHO:
        echo_id(number, thread, n);
        ret_check->belongs =
            len == sizeof(number) + p->head.len && memcmp(answer, number, sizeof(number)) == 0 &&
            (p->head.len == 0 || memcmp(answer + sizeof(number), p->head.data, p->head.len) == 0);
        break;
    case LOAD_KSERVE:
        check_kserve(p, thread, n, answer, len, scratch, ret_check);
        break;
    case LOAD_TF:
        check_tf(p, n, answer, len, scratch, ret_check);
        break;
    }
}
