/* loadtest/model.h - what penstock-model serves: one named model in one or more versions.
 *
 * Owns:      the networks; a model_answer's body.
 * Called by: model_server.c (the shell), through the tables kserve_methods and tf_methods.
 * Lifetime:  model_init, model_add_version ..., model_fini.
 * Thread:    one.
 *
 * The rest is a function from a request's bytes to an answer: no sockets, no clock.
 */
#ifndef LOADTEST_MODEL_H
#define LOADTEST_MODEL_H

#include "base/arena.h"
#include "base/buf.h"
#include "loadtest/args.h"
#include "loadtest/fashion.h"
#include "loadtest/weights.h"
#include "proto/grpc.h"

#define MODEL_INPUT      "image" /* FP32 [N, 784] or [N, 28, 28] */
#define MODEL_OUT_PROBS  "probs" /* FP32 [N, 10] */
#define MODEL_OUT_LABEL  "label" /* INT64 [N]: the most probable class */
#define MODEL_MAX_IMAGES 65536u  /* of one request; 196 MiB of pixels */

struct model_version {
    int64_t number;
    char text[24]; /* the number in decimal, as the wire has it */
    struct weights weights;
    struct nn_work work;
    uint64_t n_success, n_fail, n_images; /* requests, requests, images of successes */
};

struct model {
    char *name;
    struct model_version **versions; /* ascending by number */
    size_t n_versions;
    bool is_ready;         /* false: still "loading" (--start-delay-ms), or draining */
    struct arg_list about; /* extensions of ServerMetadata: how this replica is set up */
    struct arena scratch;  /* of the request at hand */
};

struct model_answer {
    int status; /* enum grpc_status */
    char message[512];
    char request_id[64]; /* the request's own id, where the protocol has one; for the event log */
    struct buf body;     /* the packed response; meaningless unless status is GRPC_OK */
};

void model_init(struct model *m, const char *name);
void model_fini(struct model *m);
/* number: a positive decimal. 0 or -errno with err: no such weights, not 784-...-10, twice. */
int model_add_version(struct model *m, const char *number, const char *path, struct err *err);

/* The version of a request, or NULL with the answer set to NOT_FOUND ("unknown model ...").
 * version: "" picks the highest. */
struct model_version *model_find(struct model *m, const char *name, const char *version,
                                 struct model_answer *a);
/* pixels: n x 784 floats, little-endian, any alignment. ret_probs: n x 10. ret_labels: n. */
void model_predict(struct model_version *v, const uint8_t *pixels, size_t n, float *ret_probs,
                   int64_t *ret_labels);
/* How many images a shape asks for, or 0 with the answer set: what names the tensor. */
size_t model_check_shape(const int64_t *shape, size_t n_dims, const char *what,
                         struct model_answer *a);

void model_answer_init(struct model_answer *a); /* an empty message, OK */
void model_answer_fini(struct model_answer *a);
void model_answer_error(struct model_answer *a, enum grpc_status status, const char *fmt, ...)
    PRINTF_LIKE(3, 4);

/* What a message of a method is answered with. Appends the packed response to a->body. */
typedef void (*model_answer_fn)(struct model *m, const uint8_t *request, size_t len,
                                struct model_answer *a);

enum model_method_kind {
    METHOD_UNARY = 0,
    METHOD_EACH,   /* a stream: each message has its answer */
    METHOD_GATHER, /* one answer when the client has half-closed; gets all messages joined */
    METHOD_REPEAT, /* as unary, sent as often as metadata echo-count says */
    METHOD_WATCH,  /* as unary, again whenever readiness changes; never ends by itself */
};

struct model_method {
    const char *path;
    model_answer_fn answer;
    enum model_method_kind kind;
    bool is_data; /* takes a slot and service time, fails while loading, misbehaves as scripted */
};
/* Tables end with a path of NULL. */
extern const struct model_method kserve_methods[], tf_methods[], health_methods[], echo_methods[];

/* Answer one request by method->answer; the scratch memory is bounded by the request's size. */
void model_answer(struct model *m, const struct model_method *method, const uint8_t *request,
                  size_t len, struct model_answer *ret_answer);

/* protobuf-c on the model's scratch memory; NULL: malformed, or over its ceiling. */
#define MODEL_UNPACK(m, unpack, request, len)                                                      \
    unpack(&(ProtobufCAllocator){.alloc = model_pb_alloc,                                          \
                                 .free = model_pb_free,                                            \
                                 .allocator_data = &(m)->scratch},                                 \
           (len), (request))
void *model_pb_alloc(void *arena, size_t size);
void model_pb_free(void *arena, void *p);
struct ProtobufCMessage;
void model_pack(struct model_answer *a, const struct ProtobufCMessage *message);

#endif
