/* loadtest/model_tf.c - the part of tensorflow.serving that a predictor needs. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "loadtest/model.h"
#include "proto/tensorflow_serving.pb-c.h"

typedef Tensorflow__Serving__ModelSpec model_spec;

/* TensorFlow Serving's own words for what it does not have: clients match on the beginning. */
static struct model_version *find_servable(struct model *m, const model_spec *spec,
                                           struct model_answer *a)
{
    char version[24] = "";
    struct model_version *v = NULL;

    if (spec == NULL) {
        model_answer_error(a, GRPC_INVALID_ARGUMENT, "Missing ModelSpec");
        return NULL;
    }
    if (spec->version_choice_case == TENSORFLOW__SERVING__MODEL_SPEC__VERSION_CHOICE_VERSION)
        snprintf(version, sizeof(version), "%" PRId64, spec->version->value);
    if (spec->version_choice_case != TENSORFLOW__SERVING__MODEL_SPEC__VERSION_CHOICE_VERSION_LABEL)
        v = model_find(m, spec->name, version, a);
    if (v == NULL)
        model_answer_error(a, GRPC_NOT_FOUND,
                           "Servable not found for request: unknown model \"%.64s\" version \"%s\"",
                           spec->name, version[0] != '\0' ? version : "of that label");
    return v;
}

/* dims of the shape, at most 8. */
static size_t tensor_images(const Tensorflow__TensorProto *t, struct model_answer *a)
{
    int64_t shape[8];
    size_t n_dims = 0;

    for (size_t i = 0; t->tensor_shape != NULL && i < t->tensor_shape->n_dim; i++) {
        if (i < ARRAY_LEN(shape))
            shape[n_dims++] = t->tensor_shape->dim[i]->size;
    }
    return model_check_shape(shape, n_dims, "inputs[\"" MODEL_INPUT "\"]", a);
}

static const uint8_t *tensor_pixels(const Tensorflow__TensorProto *t, size_t n,
                                    struct model_answer *a)
{
    const size_t n_values = n * FASHION_PIXELS;

    if (t->tensor_content.len == n_values * sizeof(float) && t->n_float_val == 0)
        return t->tensor_content.data;
    if (t->n_float_val == n_values && t->tensor_content.len == 0)
        return (const uint8_t *)t->float_val;
    model_answer_error(a, GRPC_INVALID_ARGUMENT,
                       "inputs[\"" MODEL_INPUT "\"]: %zu bytes of tensor_content and %zu "
                       "float_val; the shape asks for %zu bytes or %zu values",
                       t->tensor_content.len, t->n_float_val, n_values * sizeof(float), n_values);
    return NULL;
}

static const Tensorflow__TensorProto *find_input(const Tensorflow__Serving__PredictRequest *req,
                                                 struct model_answer *a)
{
    const Tensorflow__TensorProto *t = req->n_inputs == 1 ? req->inputs[0]->value : NULL;

    if (t == NULL || strcmp(req->inputs[0]->key, MODEL_INPUT) != 0) {
        model_answer_error(a, GRPC_INVALID_ARGUMENT,
                           "inputs: %zu given%s%.64s; exactly \"" MODEL_INPUT "\" expected",
                           req->n_inputs, req->n_inputs == 1 ? ", named " : "",
                           req->n_inputs == 1 ? req->inputs[0]->key : "");
        return NULL;
    }
    if (t->dtype != TENSORFLOW__DATA_TYPE__DT_FLOAT) {
        model_answer_error(a, GRPC_INVALID_ARGUMENT,
                           "inputs[\"" MODEL_INPUT "\"]: dtype %d is not DT_FLOAT (1)",
                           (int)t->dtype);
        return NULL;
    }
    return t;
}

struct shaped {
    Tensorflow__TensorProto tensor;
    Tensorflow__TensorShapeProto shape;
    Tensorflow__TensorShapeProto__Dim dims[2];
    Tensorflow__TensorShapeProto__Dim *dim[2];
    Tensorflow__Serving__PredictResponse__OutputsEntry entry;
};

static void shaped_init(struct shaped *s, const char *name, Tensorflow__DataType dtype, size_t rows,
                        size_t columns)
{
    tensorflow__tensor_proto__init(&s->tensor);
    tensorflow__tensor_shape_proto__init(&s->shape);
    tensorflow__serving__predict_response__outputs_entry__init(&s->entry);
    for (size_t i = 0; i < 2; i++) {
        tensorflow__tensor_shape_proto__dim__init(&s->dims[i]);
        s->dims[i].size = (int64_t)(i == 0 ? rows : columns);
        s->dim[i] = &s->dims[i];
    }
    s->shape.n_dim = columns > 0 ? 2 : 1;
    s->shape.dim = s->dim;
    s->tensor.dtype = dtype;
    s->tensor.tensor_shape = &s->shape;
    s->entry.key = (char *)name;
    s->entry.value = &s->tensor;
}

static void answer_predict(struct model *m, const uint8_t *request, size_t len,
                           struct model_answer *a)
{
    const Tensorflow__Serving__PredictRequest *req =
        MODEL_UNPACK(m, tensorflow__serving__predict_request__unpack, request, len);

    if (req == NULL) {
        model_answer_error(a, GRPC_INVALID_ARGUMENT,
                           "the message is no tensorflow.serving.PredictRequest");
        return;
    }

    struct model_version *v = find_servable(m, req->model_spec, a);
    const Tensorflow__TensorProto *t = v != NULL ? find_input(req, a) : NULL;
    const size_t n = t != NULL ? tensor_images(t, a) : 0;
    const uint8_t *pixels = n > 0 ? tensor_pixels(t, n, a) : NULL;
    if (pixels == NULL)
        return;

    float *probs = arena_alloc(&m->scratch, n * FASHION_CLASSES * sizeof(float));
    int64_t *labels = arena_alloc(&m->scratch, n * sizeof(int64_t));
    if (probs == NULL || labels == NULL) {
        model_answer_error(a, GRPC_RESOURCE_EXHAUSTED, "no memory for the answers to %zu images",
                           n);
        return;
    }
    model_predict(v, pixels, n, probs, labels);
    v->n_success++;

    Tensorflow__Serving__PredictResponse res = TENSORFLOW__SERVING__PREDICT_RESPONSE__INIT;
    Tensorflow__Serving__ModelSpec spec = TENSORFLOW__SERVING__MODEL_SPEC__INIT;
    Google__Protobuf__Int64Value number = GOOGLE__PROTOBUF__INT64_VALUE__INIT;
    struct shaped p, l;
    Tensorflow__Serving__PredictResponse__OutputsEntry *outputs[] = {&p.entry, &l.entry};

    shaped_init(&p, MODEL_OUT_PROBS, TENSORFLOW__DATA_TYPE__DT_FLOAT, n, FASHION_CLASSES);
    p.tensor.n_float_val = n * FASHION_CLASSES;
    p.tensor.float_val = probs;
    shaped_init(&l, MODEL_OUT_LABEL, TENSORFLOW__DATA_TYPE__DT_INT64, n, 0);
    l.tensor.n_int64_val = n;
    l.tensor.int64_val = labels;
    number.value = v->number;
    spec.name = m->name;
    spec.version_choice_case = TENSORFLOW__SERVING__MODEL_SPEC__VERSION_CHOICE_VERSION;
    spec.version = &number;
    spec.signature_name = (char *)"serving_default";
    res.n_outputs = ARRAY_LEN(outputs);
    res.outputs = outputs;
    res.model_spec = &spec;
    model_pack(a, &res.base);
}

static void answer_model_status(struct model *m, const uint8_t *request, size_t len,
                                struct model_answer *a)
{
    const Tensorflow__Serving__GetModelStatusRequest *req =
        MODEL_UNPACK(m, tensorflow__serving__get_model_status_request__unpack, request, len);
    Tensorflow__Serving__GetModelStatusResponse res =
        TENSORFLOW__SERVING__GET_MODEL_STATUS_RESPONSE__INIT;
    Tensorflow__Serving__StatusProto ok = TENSORFLOW__SERVING__STATUS_PROTO__INIT;

    if (req == NULL) {
        model_answer_error(a, GRPC_INVALID_ARGUMENT,
                           "the message is no tensorflow.serving.GetModelStatusRequest");
        return;
    }

    struct model_version *only = find_servable(m, req->model_spec, a);
    if (only == NULL)
        return;
    const bool all = req->model_spec->version_choice_case ==
                     TENSORFLOW__SERVING__MODEL_SPEC__VERSION_CHOICE__NOT_SET;
    Tensorflow__Serving__ModelVersionStatus *rows =
        arena_alloc(&m->scratch, m->n_versions * sizeof(*rows));
    res.model_version_status =
        arena_alloc(&m->scratch, m->n_versions * sizeof(*res.model_version_status));
    if (rows == NULL || res.model_version_status == NULL) {
        model_answer_error(a, GRPC_RESOURCE_EXHAUSTED, "%zu versions", m->n_versions);
        return;
    }
    for (size_t i = m->n_versions; i-- > 0;) { /* the newest first, as TensorFlow Serving does */
        if (!all && m->versions[i] != only)
            continue;
        tensorflow__serving__model_version_status__init(&rows[i]);
        rows[i].version = m->versions[i]->number;
        rows[i].state = m->is_ready ? TENSORFLOW__SERVING__MODEL_VERSION_STATUS__STATE__AVAILABLE
                                    : TENSORFLOW__SERVING__MODEL_VERSION_STATUS__STATE__LOADING;
        rows[i].status = &ok;
        res.model_version_status[res.n_model_version_status++] = &rows[i];
    }
    model_pack(a, &res.base);
}

const struct model_method tf_methods[] = {
    {"/tensorflow.serving.PredictionService/Predict", answer_predict, METHOD_UNARY, true},
    {"/tensorflow.serving.ModelService/GetModelStatus", answer_model_status, METHOD_UNARY, false},
    {0},
};
