/* loadtest/model_kserve.c - the Open Inference Protocol v2 over gRPC, with Triton's additions. */
#include <stdio.h>
#include <string.h>

#include "loadtest/model.h"
#include "proto/kserve_v2.pb-c.h"

typedef Inference__ModelInferRequest infer_request;
typedef Inference__ModelInferRequest__InferInputTensor input_tensor;
typedef Inference__ModelInferResponse__InferOutputTensor output_tensor;

#define N_OUTPUTS 2u

static void malformed(struct model_answer *a, const char *type)
{
    model_answer_error(a, GRPC_INVALID_ARGUMENT, "the message is no inference.%s", type);
}

/* --- server and model facts --- */

static void answer_server_live(struct model *m, const uint8_t *request, size_t len,
                               struct model_answer *a)
{
    Inference__ServerLiveResponse res = INFERENCE__SERVER_LIVE_RESPONSE__INIT;

    (void)m;
    (void)request;
    (void)len;
    res.live = true;
    model_pack(a, &res.base);
}

static void answer_server_ready(struct model *m, const uint8_t *request, size_t len,
                                struct model_answer *a)
{
    Inference__ServerReadyResponse res = INFERENCE__SERVER_READY_RESPONSE__INIT;

    (void)request;
    (void)len;
    res.ready = m->is_ready;
    model_pack(a, &res.base);
}

static void answer_model_ready(struct model *m, const uint8_t *request, size_t len,
                               struct model_answer *a)
{
    Inference__ModelReadyResponse res = INFERENCE__MODEL_READY_RESPONSE__INIT;
    const Inference__ModelReadyRequest *req =
        MODEL_UNPACK(m, inference__model_ready_request__unpack, request, len);

    if (req == NULL) {
        malformed(a, "ModelReadyRequest");
        return;
    }
    if (model_find(m, req->name, req->version, a) == NULL)
        return;
    res.ready = m->is_ready;
    model_pack(a, &res.base);
}

static void answer_server_metadata(struct model *m, const uint8_t *request, size_t len,
                                   struct model_answer *a)
{
    Inference__ServerMetadataResponse res = INFERENCE__SERVER_METADATA_RESPONSE__INIT;

    (void)request;
    (void)len;
    res.name = (char *)"penstock-model";
    res.version = (char *)"0.1.0";
    res.n_extensions = m->about.n;
    res.extensions = (char **)m->about.items;
    model_pack(a, &res.base);
}

static void answer_model_metadata(struct model *m, const uint8_t *request, size_t len,
                                  struct model_answer *a)
{
    static int64_t image_shape[] = {-1, FASHION_PIXELS};
    static int64_t probs_shape[] = {-1, FASHION_CLASSES};
    static int64_t label_shape[] = {-1};
    Inference__ModelMetadataResponse res = INFERENCE__MODEL_METADATA_RESPONSE__INIT;
    Inference__ModelMetadataResponse__TensorMetadata image, probs, label;
    Inference__ModelMetadataResponse__TensorMetadata *inputs[] = {&image};
    Inference__ModelMetadataResponse__TensorMetadata *outputs[] = {&probs, &label};
    const Inference__ModelMetadataRequest *req =
        MODEL_UNPACK(m, inference__model_metadata_request__unpack, request, len);
    char *versions[64];

    if (req == NULL) {
        malformed(a, "ModelMetadataRequest");
        return;
    }
    if (model_find(m, req->name, req->version, a) == NULL)
        return;
    inference__model_metadata_response__tensor_metadata__init(&image);
    image.name = (char *)MODEL_INPUT;
    image.datatype = (char *)"FP32";
    image.n_shape = ARRAY_LEN(image_shape);
    image.shape = image_shape;
    inference__model_metadata_response__tensor_metadata__init(&probs);
    probs.name = (char *)MODEL_OUT_PROBS;
    probs.datatype = (char *)"FP32";
    probs.n_shape = ARRAY_LEN(probs_shape);
    probs.shape = probs_shape;
    inference__model_metadata_response__tensor_metadata__init(&label);
    label.name = (char *)MODEL_OUT_LABEL;
    label.datatype = (char *)"INT64";
    label.n_shape = ARRAY_LEN(label_shape);
    label.shape = label_shape;
    for (size_t i = 0; i < m->n_versions && i < ARRAY_LEN(versions); i++)
        versions[res.n_versions++] = m->versions[i]->text;
    res.name = m->name;
    res.versions = versions;
    res.platform = (char *)"penstock_dense";
    res.n_inputs = ARRAY_LEN(inputs);
    res.inputs = inputs;
    res.n_outputs = ARRAY_LEN(outputs);
    res.outputs = outputs;
    model_pack(a, &res.base);
}

static void answer_model_config(struct model *m, const uint8_t *request, size_t len,
                                struct model_answer *a)
{
    Inference__ModelConfigResponse res = INFERENCE__MODEL_CONFIG_RESPONSE__INIT;
    Inference__ModelConfig config = INFERENCE__MODEL_CONFIG__INIT;
    const Inference__ModelConfigRequest *req =
        MODEL_UNPACK(m, inference__model_config_request__unpack, request, len);

    if (req == NULL) {
        malformed(a, "ModelConfigRequest");
        return;
    }
    if (model_find(m, req->name, req->version, a) == NULL)
        return;
    config.name = m->name;
    config.platform = (char *)"penstock_dense";
    config.backend = (char *)"penstock";
    config.max_batch_size = (int32_t)MODEL_MAX_IMAGES;
    res.config = &config;
    model_pack(a, &res.base);
}

static void answer_model_statistics(struct model *m, const uint8_t *request, size_t len,
                                    struct model_answer *a)
{
    Inference__ModelStatisticsResponse res = INFERENCE__MODEL_STATISTICS_RESPONSE__INIT;
    const Inference__ModelStatisticsRequest *req =
        MODEL_UNPACK(m, inference__model_statistics_request__unpack, request, len);
    struct one {
        Inference__ModelStatistics stats;
        Inference__InferStatistics infer;
        Inference__StatisticDuration success, fail;
    };

    if (req == NULL) {
        malformed(a, "ModelStatisticsRequest");
        return;
    }
    if (req->name[0] != '\0' && model_find(m, req->name, req->version, a) == NULL)
        return;

    struct one *all = arena_alloc(&m->scratch, m->n_versions * sizeof(*all));
    res.model_stats = arena_alloc(&m->scratch, m->n_versions * sizeof(*res.model_stats));
    if (all == NULL || res.model_stats == NULL) {
        model_answer_error(a, GRPC_RESOURCE_EXHAUSTED, "%zu versions", m->n_versions);
        return;
    }
    for (size_t i = 0; i < m->n_versions; i++) {
        struct model_version *v = m->versions[i];
        struct one *o = &all[res.n_model_stats];

        if (req->version[0] != '\0' && strcmp(req->version, v->text) != 0)
            continue;
        inference__model_statistics__init(&o->stats);
        inference__infer_statistics__init(&o->infer);
        inference__statistic_duration__init(&o->success);
        inference__statistic_duration__init(&o->fail);
        o->success.count = v->n_success;
        o->fail.count = v->n_fail;
        o->infer.success = &o->success;
        o->infer.fail = &o->fail;
        o->stats.name = m->name;
        o->stats.version = v->text;
        o->stats.inference_count = v->n_images;
        o->stats.execution_count = v->n_success;
        o->stats.inference_stats = &o->infer;
        res.model_stats[res.n_model_stats++] = &o->stats;
    }
    model_pack(a, &res.base);
}

static void answer_repository_index(struct model *m, const uint8_t *request, size_t len,
                                    struct model_answer *a)
{
    Inference__RepositoryIndexResponse res = INFERENCE__REPOSITORY_INDEX_RESPONSE__INIT;
    Inference__RepositoryIndexResponse__ModelIndex *rows;
    const Inference__RepositoryIndexRequest *req =
        MODEL_UNPACK(m, inference__repository_index_request__unpack, request, len);

    if (req == NULL) {
        malformed(a, "RepositoryIndexRequest");
        return;
    }
    rows = arena_alloc(&m->scratch, m->n_versions * sizeof(*rows));
    res.models = arena_alloc(&m->scratch, m->n_versions * sizeof(*res.models));
    if (rows == NULL || res.models == NULL) {
        model_answer_error(a, GRPC_RESOURCE_EXHAUSTED, "%zu versions", m->n_versions);
        return;
    }
    for (size_t i = 0; i < m->n_versions && (m->is_ready || !req->ready); i++) {
        inference__repository_index_response__model_index__init(&rows[i]);
        rows[i].name = m->name;
        rows[i].version = m->versions[i]->text;
        rows[i].state = (char *)(m->is_ready ? "READY" : "UNAVAILABLE");
        rows[i].reason = (char *)(m->is_ready ? "" : "loading or draining");
        res.models[res.n_models++] = &rows[i];
    }
    model_pack(a, &res.base);
}

/* --- inference --- */

/* The pixels of the one input: little-endian floats; NULL with the answer set. */
static const uint8_t *input_pixels(const infer_request *req, size_t *ret_n, struct model_answer *a)
{
    if (req->n_inputs != 1) {
        model_answer_error(a, GRPC_INVALID_ARGUMENT,
                           "inputs: %zu given, exactly one (\"" MODEL_INPUT "\") expected",
                           req->n_inputs);
        return NULL;
    }

    const input_tensor *in = req->inputs[0];
    if (strcmp(in->name, MODEL_INPUT) != 0) {
        model_answer_error(a, GRPC_INVALID_ARGUMENT,
                           "inputs[0]: name \"%.64s\" is not \"" MODEL_INPUT "\"", in->name);
        return NULL;
    }
    if (strcmp(in->datatype, "FP32") != 0) {
        model_answer_error(a, GRPC_INVALID_ARGUMENT,
                           "inputs[0] \"" MODEL_INPUT "\": datatype \"%.16s\" is not \"FP32\"",
                           in->datatype);
        return NULL;
    }
    *ret_n = model_check_shape(in->shape, in->n_shape, "inputs[0] \"" MODEL_INPUT "\"", a);
    if (*ret_n == 0)
        return NULL;

    const size_t n_typed = in->contents != NULL ? in->contents->n_fp32_contents : 0;
    const size_t n_values = *ret_n * FASHION_PIXELS;
    if (req->n_raw_input_contents > 0 && in->contents != NULL) {
        model_answer_error(a, GRPC_INVALID_ARGUMENT,
                           "raw_input_contents and inputs[0].contents are given: one of them only");
        return NULL;
    }
    if (req->n_raw_input_contents == 0) {
        if (n_typed == n_values)
            return (const uint8_t *)in->contents->fp32_contents;
        model_answer_error(a, GRPC_INVALID_ARGUMENT,
                           "inputs[0].contents: %zu fp32_contents, the shape asks for %zu", n_typed,
                           n_values);
        return NULL;
    }
    if (req->n_raw_input_contents != 1 ||
        req->raw_input_contents[0].len != n_values * sizeof(float)) {
        model_answer_error(a, GRPC_INVALID_ARGUMENT,
                           "raw_input_contents: %zu of them, the first of %zu bytes; the shape "
                           "asks for one of %zu bytes",
                           req->n_raw_input_contents, req->raw_input_contents[0].len,
                           n_values * sizeof(float));
        return NULL;
    }
    return req->raw_input_contents[0].data;
}

/* Which outputs are wanted: all when none is named. */
static bool wanted_outputs(const infer_request *req, bool ret_wanted[N_OUTPUTS],
                           struct model_answer *a)
{
    ret_wanted[0] = ret_wanted[1] = req->n_outputs == 0;
    for (size_t i = 0; i < req->n_outputs; i++) {
        const char *name = req->outputs[i]->name;

        if (strcmp(name, MODEL_OUT_PROBS) == 0) {
            ret_wanted[0] = true;
        } else if (strcmp(name, MODEL_OUT_LABEL) == 0) {
            ret_wanted[1] = true;
        } else {
            model_answer_error(a, GRPC_INVALID_ARGUMENT,
                               "outputs[%zu]: name \"%.64s\" is neither \"" MODEL_OUT_PROBS
                               "\" nor \"" MODEL_OUT_LABEL "\"",
                               i, name);
            return false;
        }
    }
    return true;
}

/* Everything of one response that protobuf-c points into. */
struct response {
    Inference__ModelInferResponse res;
    output_tensor probs, label;
    output_tensor *outputs[N_OUTPUTS];
    Inference__InferTensorContents probs_typed, label_typed;
    ProtobufCBinaryData raw[N_OUTPUTS];
    int64_t probs_shape[2], label_shape[1];
};

/* Raw tensors for whoever sent raw ones, typed for typed. */
static void fill_outputs(struct response *r, const bool wanted[N_OUTPUTS], bool is_raw, size_t n,
                         float *probs, int64_t *labels)
{
    r->probs_shape[0] = r->label_shape[0] = (int64_t)n;
    r->probs_shape[1] = FASHION_CLASSES;
    r->res.outputs = r->outputs;
    if (is_raw)
        r->res.raw_output_contents = r->raw;
    if (wanted[0]) {
        inference__model_infer_response__infer_output_tensor__init(&r->probs);
        r->probs.name = (char *)MODEL_OUT_PROBS;
        r->probs.datatype = (char *)"FP32";
        r->probs.n_shape = 2;
        r->probs.shape = r->probs_shape;
        inference__infer_tensor_contents__init(&r->probs_typed);
        r->probs_typed.n_fp32_contents = n * FASHION_CLASSES;
        r->probs_typed.fp32_contents = probs;
        r->probs.contents = is_raw ? NULL : &r->probs_typed;
        r->raw[r->res.n_outputs] =
            (ProtobufCBinaryData){n * FASHION_CLASSES * sizeof(float), (uint8_t *)probs};
        r->outputs[r->res.n_outputs++] = &r->probs;
    }
    if (wanted[1]) {
        inference__model_infer_response__infer_output_tensor__init(&r->label);
        r->label.name = (char *)MODEL_OUT_LABEL;
        r->label.datatype = (char *)"INT64";
        r->label.n_shape = 1;
        r->label.shape = r->label_shape;
        inference__infer_tensor_contents__init(&r->label_typed);
        r->label_typed.n_int64_contents = n;
        r->label_typed.int64_contents = labels;
        r->label.contents = is_raw ? NULL : &r->label_typed;
        r->raw[r->res.n_outputs] = (ProtobufCBinaryData){n * sizeof(int64_t), (uint8_t *)labels};
        r->outputs[r->res.n_outputs++] = &r->label;
    }
    r->res.n_raw_output_contents = is_raw ? r->res.n_outputs : 0;
}

/* Fills r from req; false with the answer set. */
static bool infer(struct model *m, const infer_request *req, struct response *r,
                  struct model_answer *a)
{
    bool wanted[N_OUTPUTS];
    size_t n;

    snprintf(a->request_id, sizeof(a->request_id), "%s", req->id);
    struct model_version *v = model_find(m, req->model_name, req->model_version, a);

    if (v == NULL)
        return false;

    const uint8_t *pixels = input_pixels(req, &n, a);
    if (pixels == NULL || !wanted_outputs(req, wanted, a)) {
        v->n_fail++;
        return false;
    }

    float *probs = arena_alloc(&m->scratch, n * FASHION_CLASSES * sizeof(float));
    int64_t *labels = arena_alloc(&m->scratch, n * sizeof(int64_t));
    if (probs == NULL || labels == NULL) {
        model_answer_error(a, GRPC_RESOURCE_EXHAUSTED, "no memory for the answers to %zu images",
                           n);
        return false;
    }
    model_predict(v, pixels, n, probs, labels);
    v->n_success++;
    *r = (struct response){.res = INFERENCE__MODEL_INFER_RESPONSE__INIT};
    r->res.model_name = m->name;
    r->res.model_version = v->text;
    r->res.id = req->id;
    fill_outputs(r, wanted, req->n_raw_input_contents > 0, n, probs, labels);
    return true;
}

static void answer_model_infer(struct model *m, const uint8_t *request, size_t len,
                               struct model_answer *a)
{
    const infer_request *req =
        MODEL_UNPACK(m, inference__model_infer_request__unpack, request, len);
    struct response r;

    if (req == NULL)
        malformed(a, "ModelInferRequest");
    else if (infer(m, req, &r, a))
        model_pack(a, &r.res.base);
}

/* As Triton: an error travels inside the stream, with the request's id, unless the client asked
 * for real statuses (the shell looks at that: it gets both, the status and this body). */
static void answer_model_stream_infer(struct model *m, const uint8_t *request, size_t len,
                                      struct model_answer *a)
{
    Inference__ModelStreamInferResponse res = INFERENCE__MODEL_STREAM_INFER_RESPONSE__INIT;
    const infer_request *req =
        MODEL_UNPACK(m, inference__model_infer_request__unpack, request, len);
    struct response r = {.res = INFERENCE__MODEL_INFER_RESPONSE__INIT};

    if (req == NULL) {
        malformed(a, "ModelInferRequest");
    } else if (!infer(m, req, &r, a)) {
        r.res.id = req->id;
    }
    res.infer_response = &r.res;
    if (a->status != GRPC_OK)
        res.error_message = a->message;
    model_pack(a, &res.base);
}

#define SERVICE "/inference.GRPCInferenceService/"

const struct model_method kserve_methods[] = {
    {SERVICE "ServerLive", answer_server_live, METHOD_UNARY, false},
    {SERVICE "ServerReady", answer_server_ready, METHOD_UNARY, false},
    {SERVICE "ServerMetadata", answer_server_metadata, METHOD_UNARY, false},
    {SERVICE "ModelReady", answer_model_ready, METHOD_UNARY, false},
    {SERVICE "ModelMetadata", answer_model_metadata, METHOD_UNARY, false},
    {SERVICE "ModelConfig", answer_model_config, METHOD_UNARY, false},
    {SERVICE "ModelStatistics", answer_model_statistics, METHOD_UNARY, false},
    {SERVICE "RepositoryIndex", answer_repository_index, METHOD_UNARY, false},
    {SERVICE "ModelInfer", answer_model_infer, METHOD_UNARY, true},
    {SERVICE "ModelStreamInfer", answer_model_stream_infer, METHOD_EACH, true},
    {0},
};
