/* penstock/predict.c - `penstock predict MODEL`: one KServe v2 request, to see that it answers. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/json_out.h"
#include "base/xalloc.h"
#include "net/conn.h"
#include "net/grpc_client.h"
#include "net/loop.h"
#include "penstock/args.h"
#include "penstock/verb.h"
#include "proto/grpc.h"
#include "proto/kserve_v2.pb-c.h"

#define MESSAGE_CEILING (64u * 1024 * 1024)
#define VALUES_SHOWN    12
#define SERVICE         "/inference.GRPCInferenceService/"

struct predict {
    const char *to, *model, *version;
    struct args_list inputs; /* NAME=FILE: raw bytes */
    uint64_t timeout_ms;
    struct loop loop;
    struct grpc_channel *channel;
    /* of the call that runs */
    struct buf answer;
    int status;
    char message[512];
    char served_by[256]; /* penstock-replica of the answer, when the server sends it */
    uint64_t took_us;
};

/* ---- one call, waited for ---- */

static void on_headers(void *user, struct grpc_call *c, const struct h2_field *fields, size_t n)
{
    struct predict *const p = user;

    (void)c;
    for (size_t i = 0; i < n; i++) {
        if (fields[i].name_len == 16 && memcmp(fields[i].name, "penstock-replica", 16) == 0)
            snprintf(p->served_by, sizeof(p->served_by), "%.*s", (int)fields[i].value_len,
                     fields[i].value);
    }
}

static void on_message(void *user, struct grpc_call *c, const uint8_t *bytes, size_t len,
                       bool compressed)
{
    struct predict *const p = user;

    (void)c;
    (void)compressed; /* never: we do not offer it */
    buf_append(&p->answer, bytes, len);
}

static void on_end(void *user, struct grpc_call *c, int status, const char *message,
                   const struct h2_field *trailers, size_t n)
{
    struct predict *const p = user;

    (void)c;
    (void)trailers;
    (void)n;
    p->status = status;
    snprintf(p->message, sizeof(p->message), "%s", message);
    loop_stop(&p->loop);
}

/* EXIT_SUCCESS with p->answer filled, or EXIT_FAILURE with the error printed. Takes body. */
static int call(struct predict *p, const char *method, struct buf *body)
{
    static const struct grpc_call_ops ops = {
        .on_headers = on_headers, .on_message = on_message, .on_end = on_end};
    const uint64_t began_us = clock_mono_us();
    char path[128];
    const struct grpc_call_conf conf = {
        .path = path,
        .deadline_us = began_us + p->timeout_ms * US_PER_MS,
        .max_message_bytes = MESSAGE_CEILING,
    };

    snprintf(path, sizeof(path), SERVICE "%s", method);
    buf_reset(&p->answer);
    grpc_call_unary(p->channel, &conf, body->data, body->len, &ops, p);
    buf_fini(body);
    loop_run(&p->loop);
    p->took_us = clock_mono_us() - began_us;
    if (p->status == 0)
        return EXIT_SUCCESS;
    fprintf(stderr, "penstock predict: %s: %s (%d): %s\n", method,
            grpc_status_name((enum grpc_status)p->status), p->status, p->message);
    return EXIT_FAILURE;
}

/* ---- the request: what the metadata asks for, zeros or the bytes of a file ---- */

struct datatype {
    const char *name;
    size_t bytes; /* 0: not of a fixed size */
};
static const struct datatype datatypes[] = {
    {"BOOL", 1}, {"UINT8", 1}, {"UINT16", 2}, {"UINT32", 4}, {"UINT64", 8},
    {"INT8", 1}, {"INT16", 2}, {"INT32", 4},  {"INT64", 8},  {"FP16", 2},
    {"BF16", 2}, {"FP32", 4},  {"FP64", 8},   {"BYTES", 0},
};

static const struct datatype *find_datatype(const char *name)
{
    for (size_t i = 0; i < ARRAY_LEN(datatypes); i++) {
        if (strcmp(datatypes[i].name, name) == 0)
            return &datatypes[i];
    }
    return NULL;
}

static bool read_file(const char *path, struct buf *into)
{
    FILE *const f = fopen(path, "rb");
    uint8_t *room = NULL;
    size_t n = 0;

    if (f == NULL)
        return false;
    do {
        room = buf_reserve(into, 65536);
        n = room == NULL ? 0 : fread(room, 1, 65536, f);
        into->len += n;
    } while (n > 0);
    const bool whole = room != NULL && ferror(f) == 0;

    fclose(f);
    return whole;
}

/* The bytes of one input tensor; false with the error printed. */
static bool fill_input(const struct predict *p, const char *name, const char *datatype,
                       uint64_t n_elements, struct buf *into)
{
    const struct datatype *const type = find_datatype(datatype);
    const size_t name_len = strlen(name);

    for (size_t i = 0; i < p->inputs.n; i++) {
        const char *const item = p->inputs.items[i];

        if (strncmp(item, name, name_len) != 0 || item[name_len] != '=')
            continue;
        if (read_file(item + name_len + 1, into))
            return true;
        fprintf(stderr, "penstock predict: can't read %s, or it is over %u bytes\n",
                item + name_len + 1, MESSAGE_CEILING);
        return false;
    }
    if (type == NULL || type->bytes == 0) {
        fprintf(stderr, "penstock predict: input %s is of type %s: give --input %s=FILE\n", name,
                datatype, name);
        return false;
    }
    uint8_t *const zeros = n_elements > MESSAGE_CEILING / type->bytes
                               ? NULL
                               : buf_reserve(into, n_elements * type->bytes);

    if (zeros == NULL) {
        fprintf(stderr, "penstock predict: input %s is over %u bytes\n", name, MESSAGE_CEILING);
        return false;
    }
    memset(zeros, 0, n_elements * type->bytes);
    into->len += n_elements * type->bytes;
    return true;
}

/* A shape without its open dimensions (-1: taken as 1); the product, or UINT64_MAX past 2^32. */
static uint64_t close_shape(int64_t *shape, size_t n)
{
    uint64_t product = 1;

    for (size_t i = 0; i < n; i++) {
        if (shape[i] < 0)
            shape[i] = 1;
        if (__builtin_mul_overflow(product, (uint64_t)shape[i], &product) || product > UINT32_MAX)
            return UINT64_MAX;
    }
    return product;
}

static bool known_input(const Inference__ModelMetadataResponse *meta, const char *item)
{
    for (size_t i = 0; i < meta->n_inputs; i++) {
        const size_t len = strlen(meta->inputs[i]->name);

        if (strncmp(item, meta->inputs[i]->name, len) == 0 && item[len] == '=')
            return true;
    }
    return false;
}

static bool inputs_are_known(const struct predict *p, const Inference__ModelMetadataResponse *meta)
{
    for (size_t i = 0; i < p->inputs.n; i++) {
        if (known_input(meta, p->inputs.items[i]))
            continue;
        fprintf(stderr,
                "penstock predict: --input %s: the model's inputs are:", p->inputs.items[i]);
        for (size_t m = 0; m < meta->n_inputs; m++)
            fprintf(stderr, " %s", meta->inputs[m]->name);
        fputs("\n", stderr);
        return false;
    }
    return true;
}

/* Packs a ModelInfer request for these inputs; false with the error printed. */
static bool pack_request(const struct predict *p, Inference__ModelMetadataResponse *meta,
                         struct buf *body)
{
    Inference__ModelInferRequest request = INFERENCE__MODEL_INFER_REQUEST__INIT;
    const size_t n = meta->n_inputs;
    Inference__ModelInferRequest__InferInputTensor *const tensors =
        xcalloc(n + 1, sizeof(*tensors));
    Inference__ModelInferRequest__InferInputTensor **const list = xcalloc(n + 1, sizeof(*list));
    ProtobufCBinaryData *const raw = xcalloc(n + 1, sizeof(*raw));
    struct buf *const bytes = xcalloc(n + 1, sizeof(*bytes));
    bool good = inputs_are_known(p, meta);

    for (size_t i = 0; i < n && good; i++) {
        Inference__ModelMetadataResponse__TensorMetadata *const in = meta->inputs[i];

        buf_init(&bytes[i], MESSAGE_CEILING);
        good =
            fill_input(p, in->name, in->datatype, close_shape(in->shape, in->n_shape), &bytes[i]);
        inference__model_infer_request__infer_input_tensor__init(&tensors[i]);
        tensors[i].name = in->name;
        tensors[i].datatype = in->datatype;
        tensors[i].n_shape = in->n_shape;
        tensors[i].shape = in->shape;
        list[i] = &tensors[i];
        raw[i] = (ProtobufCBinaryData){.data = bytes[i].data, .len = bytes[i].len};
    }
    request.model_name = (char *)(uintptr_t)p->model;
    request.model_version = (char *)(uintptr_t)p->version;
    request.id = (char *)(uintptr_t) "penstock-predict";
    request.n_inputs = request.n_raw_input_contents = n;
    request.inputs = list;
    request.raw_input_contents = raw;
    if (good) {
        uint8_t *const room =
            buf_reserve(body, inference__model_infer_request__get_packed_size(&request));

        good = room != NULL;
        if (good)
            body->len += inference__model_infer_request__pack(&request, room);
        else
            fprintf(stderr, "penstock predict: the request is over %u bytes\n", MESSAGE_CEILING);
    }
    for (size_t i = 0; i < n; i++)
        buf_fini(&bytes[i]);
    free(bytes);
    free(raw);
    free(list);
    free(tensors);
    return good;
}

/* ---- the answer ---- */

static double value_at(const uint8_t *p, const char *datatype)
{
    union {
        float f32;
        double f64;
        int64_t i64;
        int32_t i32;
        int16_t i16;
        uint64_t u64;
        uint32_t u32;
        uint16_t u16;
    } v = {.u64 = 0};
    const struct datatype *const type = find_datatype(datatype);

    memcpy(&v, p, type->bytes); /* both little-endian: the protocol's order, and this machine's */
    if (strcmp(datatype, "FP32") == 0)
        return (double)v.f32;
    if (strcmp(datatype, "FP64") == 0)
        return v.f64;
    if (strcmp(datatype, "INT64") == 0)
        return (double)v.i64;
    if (strcmp(datatype, "INT32") == 0)
        return v.i32;
    if (strcmp(datatype, "INT16") == 0)
        return v.i16;
    if (strcmp(datatype, "INT8") == 0)
        return (int8_t)p[0];
    if (strcmp(datatype, "UINT64") == 0)
        return (double)v.u64;
    if (strcmp(datatype, "UINT32") == 0)
        return v.u32;
    return type->bytes == 2 ? v.u16 : p[0]; /* halves are shown as their bits */
}

static void put_output(struct json_out *j, const Inference__ModelInferResponse *r, size_t i)
{
    const Inference__ModelInferResponse__InferOutputTensor *const out = r->outputs[i];
    const struct datatype *const type = find_datatype(out->datatype);

    json_out_object(j, NULL);
    json_out_str(j, "name", out->name);
    json_out_str(j, "datatype", out->datatype);
    json_out_array(j, "shape");
    for (size_t d = 0; d < out->n_shape; d++)
        json_out_int(j, NULL, out->shape[d]);
    json_out_end_array(j);
    if (i < r->n_raw_output_contents && type != NULL && type->bytes > 0) {
        const ProtobufCBinaryData *const raw = &r->raw_output_contents[i];

        json_out_uint(j, "bytes", raw->len);
        json_out_array(j, "first_values");
        for (size_t v = 0; v < VALUES_SHOWN && (v + 1) * type->bytes <= raw->len; v++)
            json_out_double(j, NULL, value_at(raw->data + v * type->bytes, out->datatype));
        json_out_end_array(j);
    }
    json_out_end_object(j);
}

static int print_answer(const struct predict *p)
{
    Inference__ModelInferResponse *const r =
        inference__model_infer_response__unpack(NULL, p->answer.len, p->answer.data);
    struct json_out j;
    struct buf out;

    if (r == NULL) {
        fputs("penstock predict: the answer is no ModelInferResponse\n", stderr);
        return EXIT_FAILURE;
    }
    buf_init(&out, MESSAGE_CEILING);
    json_out_init(&j, &out);
    json_out_object(&j, NULL);
    json_out_str(&j, "model", r->model_name);
    json_out_str(&j, "version", r->model_version);
    json_out_str(&j, "replica", p->served_by[0] == '\0' ? NULL : p->served_by);
    json_out_uint(&j, "took_us", p->took_us);
    json_out_array(&j, "outputs");
    for (size_t i = 0; i < r->n_outputs; i++)
        put_output(&j, r, i);
    json_out_end_array(&j);
    json_out_end_object(&j);
    puts(buf_cstr(&out));
    buf_fini(&out);
    inference__model_infer_response__free_unpacked(r, NULL);
    return EXIT_SUCCESS;
}

/* ---- the verb ---- */

static void pack_metadata(const struct predict *p, struct buf *body)
{
    Inference__ModelMetadataRequest q = INFERENCE__MODEL_METADATA_REQUEST__INIT;

    q.name = (char *)(uintptr_t)p->model;
    q.version = (char *)(uintptr_t)p->version;
    uint8_t *const room = buf_reserve(body, inference__model_metadata_request__get_packed_size(&q));

    check(room != NULL); /* two arguments of a command line */
    body->len += inference__model_metadata_request__pack(&q, room);
}

static int run(struct predict *p)
{
    struct buf body;

    buf_init(&body, MESSAGE_CEILING);
    pack_metadata(p, &body);
    int r = call(p, "ModelMetadata", &body);

    if (r != EXIT_SUCCESS)
        return r;
    Inference__ModelMetadataResponse *const meta =
        inference__model_metadata_response__unpack(NULL, p->answer.len, p->answer.data);

    if (meta == NULL) {
        fputs("penstock predict: the answer is no ModelMetadataResponse\n", stderr);
        return EXIT_FAILURE;
    }
    buf_init(&body, MESSAGE_CEILING);
    r = pack_request(p, meta, &body) ? EXIT_SUCCESS : EXIT_FAILURE;
    inference__model_metadata_response__free_unpacked(meta, NULL);
    if (r != EXIT_SUCCESS) {
        buf_fini(&body);
        return r;
    }
    r = call(p, "ModelInfer", &body);
    return r == EXIT_SUCCESS ? print_answer(p) : r;
}

int verb_predict(int argc, char **argv)
{
    struct predict p = {.to = "127.0.0.1:7070", .version = "", .timeout_ms = 10000};
    struct grpc_channel_conf conf;
    struct net_addr addr;
    struct err err = {0};
    const struct arg options[] = {
        ARG_STR("to", "ADDR", &p.to, "gateway or server; default 127.0.0.1:7070"),
        ARG_STR("version", "V", &p.version,
                "version or label; default: what the traffic split says"),
        ARG_LIST("input", "NAME=FILE", &p.inputs, "raw bytes of an input; default: zeros"),
        ARG_UINT("timeout-ms", "MS", &p.timeout_ms, 1, 3600000,
                 "deadline of each call; default 10000"),
        ARG_END,
    };
    const struct args_spec spec = {
        .verb = "predict",
        .positional = "MODEL",
        .about =
            "Asks a KServe v2 model for its metadata, sends one request (zeros where no file is\n"
            "given) and prints what came back, as JSON.",
        .options = options,
        .min_positional = 1,
        .max_positional = 1,
    };
    int r = args_parse(&spec, &argc, argv);

    if (r != ARGS_OK)
        return args_exit(r);
    p.model = argv[1];
    if (net_addr_parse(&addr, p.to, &err) < 0)
        return args_usage_error(&spec, "--to: %s", err.text);
    loop_init(&p.loop, NULL);
    buf_init(&p.answer, MESSAGE_CEILING);
    grpc_channel_conf_default(&conf);
    p.channel = grpc_channel_new(&p.loop, &addr, &conf);
    r = run(&p);
    p.channel = grpc_channel_free(p.channel);
    buf_fini(&p.answer);
    loop_fini(&p.loop);
    return r;
}
