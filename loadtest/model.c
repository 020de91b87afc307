#include "loadtest/model.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/xalloc.h"
#include "proto/kserve_v2.pb-c.h" /* for protobuf-c itself, which comes in by proto/ only */

/* Images predicted at a time: their pixels (200 KB) stay in the second-level cache. */
#define CHUNK 64u

void model_init(struct model *m, const char *name)
{
    *m = (struct model){.name = xstrdup(name)};
    arena_init(&m->scratch, 0);
}

void model_fini(struct model *m)
{
    for (size_t i = 0; i < m->n_versions; i++) {
        weights_fini(&m->versions[i]->weights);
        nn_work_fini(&m->versions[i]->work);
        free(m->versions[i]);
    }
    for (size_t i = 0; i < m->about.n; i++)
        free((char *)m->about.items[i]);
    free(m->about.items);
    free(m->versions);
    free(m->name);
    arena_fini(&m->scratch);
    *m = (struct model){0};
}

int model_add_version(struct model *m, const char *number, const char *path, struct err *err)
{
    struct model_version *v = xcalloc(1, sizeof(*v));
    const char *rule;
    char *end;
    size_t at = 0;
    int r;

    errno = 0;
    v->number = strtoll(number, &end, 10);
    if (number[0] < '1' || number[0] > '9' || *end != '\0' || errno != 0) {
        r = err_set(err, -EINVAL, "version \"%s\": must be a positive decimal number", number);
        goto free_version;
    }
    snprintf(v->text, sizeof(v->text), "%" PRId64, v->number);
    while (at < m->n_versions && m->versions[at]->number < v->number)
        at++;
    if (at < m->n_versions && m->versions[at]->number == v->number) {
        r = err_set(err, -EEXIST, "version %s is given twice", number);
        goto free_version;
    }
    r = weights_load(&v->weights, path, err);
    if (r != 0)
        goto free_version;
    rule = train_plan_broken_rule(&v->weights.plan);
    if (rule != NULL) {
        r = err_set(err, -EINVAL, "%s: the plan breaks a rule: %s", path, rule);
        weights_fini(&v->weights);
        goto free_version;
    }
    nn_work_init(&v->work, &v->weights.nn.shape, CHUNK);
    m->versions = xrealloc(m->versions, m->n_versions + 1, sizeof(*m->versions));
    memmove(m->versions + at + 1, m->versions + at, (m->n_versions - at) * sizeof(*m->versions));
    m->versions[at] = v;
    m->n_versions++;
    return 0;

free_version:
    free(v);
    return r;
}

struct model_version *model_find(struct model *m, const char *name, const char *version,
                                 struct model_answer *a)
{
    if (strcmp(name, m->name) != 0) {
        model_answer_error(a, GRPC_NOT_FOUND, "unknown model \"%.128s\": this server has \"%s\"",
                           name, m->name);
        return NULL;
    }
    if (version[0] == '\0')
        return m->versions[m->n_versions - 1];
    for (size_t i = 0; i < m->n_versions; i++) {
        if (strcmp(version, m->versions[i]->text) == 0)
            return m->versions[i];
    }
    model_answer_error(a, GRPC_NOT_FOUND, "unknown model version \"%.64s\": \"%s\" has %s%s",
                       version, m->name,
                       m->n_versions > 1 ? "other versions, the highest is " : "only ",
                       m->versions[m->n_versions - 1]->text);
    return NULL;
}

void model_predict(struct model_version *v, const uint8_t *pixels, size_t n, float *ret_probs,
                   int64_t *ret_labels)
{
    const size_t stride = nn_stride(FASHION_CLASSES);
    float x[CHUNK * FASHION_PIXELS];

    for (size_t at = 0; at < n; at += CHUNK) {
        const size_t k = n - at < CHUNK ? n - at : CHUNK;

        memcpy(x, pixels + at * FASHION_PIXELS * sizeof(float), k * FASHION_PIXELS * sizeof(float));
        const float *probs = nn_forward(&v->weights.nn, &v->work, x, (uint32_t)k);
        for (size_t i = 0; i < k; i++) {
            memcpy(ret_probs + (at + i) * FASHION_CLASSES, probs + i * stride,
                   FASHION_CLASSES * sizeof(float));
            ret_labels[at + i] = nn_class(&v->weights.nn.shape, probs + i * stride);
        }
    }
    v->n_images += n;
}

static void print_shape(char *dst, size_t size, const int64_t *shape, size_t n_dims)
{
    size_t at = 0;

    dst[0] = '\0';
    for (size_t i = 0; i < n_dims && i < 6 && at + 32 < size; i++)
        at += (size_t)snprintf(dst + at, size - at, "%s%" PRId64, i > 0 ? ", " : "", shape[i]);
    if (n_dims > 6)
        snprintf(dst + at, size - at, ", ...");
}

size_t model_check_shape(const int64_t *shape, size_t n_dims, const char *what,
                         struct model_answer *a)
{
    const bool flat = n_dims == 2 && shape[1] == FASHION_PIXELS;
    const bool square = n_dims == 3 && shape[1] == FASHION_SIDE && shape[2] == FASHION_SIDE;
    char text[192];

    print_shape(text, sizeof(text), shape, n_dims);
    if (!flat && !square) {
        model_answer_error(a, GRPC_INVALID_ARGUMENT,
                           "%s: shape [%s] is neither [N, 784] nor [N, 28, 28]", what, text);
        return 0;
    }
    if (shape[0] < 1 || shape[0] > MODEL_MAX_IMAGES) {
        model_answer_error(a, GRPC_INVALID_ARGUMENT, "%s: shape [%s]: N must be 1 to %u", what,
                           text, MODEL_MAX_IMAGES);
        return 0;
    }
    return (size_t)shape[0];
}

void model_answer_init(struct model_answer *a)
{
    a->status = GRPC_OK;
    a->message[0] = a->request_id[0] = '\0';
    /* an echo may be as long as the largest message that gRPC can frame */
    buf_init(&a->body, UINT32_MAX);
}

void model_answer_fini(struct model_answer *a)
{
    buf_fini(&a->body);
}

void model_answer_error(struct model_answer *a, enum grpc_status status, const char *fmt, ...)
{
    va_list args;

    a->status = (int)status;
    va_start(args, fmt);
    vsnprintf(a->message, sizeof(a->message), fmt, args);
    va_end(args);
}

void model_answer(struct model *m, const struct model_method *method, const uint8_t *request,
                  size_t len, struct model_answer *ret_answer)
{
    arena_reset(&m->scratch);
    /* unpacked: at most the tensor once more, strings, and some structs; a message made of
     * thousands of empty submessages runs into this instead of into all memory */
    m->scratch.ceiling_bytes = 4 * len + 64 * 1024;
    method->answer(m, request, len, ret_answer);
}

void *model_pb_alloc(void *arena, size_t size)
{
    return arena_alloc(arena, size);
}

void model_pb_free(void *arena, void *p)
{
    (void)arena;
    (void)p; /* all at once, when the request is answered */
}

void model_pack(struct model_answer *a, const struct ProtobufCMessage *message)
{
    const size_t len = protobuf_c_message_get_packed_size(message);

    if (len == 0)
        return; /* an empty message has no bytes */
    uint8_t *at = buf_reserve(&a->body, len);
    if (at == NULL) {
        model_answer_error(a, GRPC_RESOURCE_EXHAUSTED, "an answer of %zu bytes", len);
        return;
    }
    protobuf_c_message_pack(message, at);
    a->body.len += len;
}
