/* gateway/local_reflection.c - server reflection v1 and v1alpha (the same layout under two names),
 * from the descriptors compiled in.
 *
 * Lists what can be called here: our own services, KServe or TF-Serving when the catalogue has such
 * models, configured plain services. Of plain services we know no descriptors: asked for them, we
 * say NOT_FOUND, and a client with a protoset goes on.
 * Source: grpc/reflection/v1/reflection.proto. */
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/xalloc.h"
#include "gateway/local_call.h"
#include "proto/descriptors.h"
#include "proto/grpc.h"
#include "proto/grpc_reflection_v1.pb-c.h"

/* Short names of generated types. */
typedef Grpc__Reflection__V1__ServerReflectionRequest reflection_request;
typedef Grpc__Reflection__V1__ServerReflectionResponse reflection_response;
typedef Grpc__Reflection__V1__FileDescriptorResponse file_response;
typedef Grpc__Reflection__V1__ListServiceResponse list_response;
typedef Grpc__Reflection__V1__ServiceResponse service_response;
typedef Grpc__Reflection__V1__ExtensionNumberResponse extension_response;
typedef Grpc__Reflection__V1__ErrorResponse error_response;

#define FILES_MAX    64   /* of one answer; deps are indexes in 0..255, we have about a dozen */
#define SERVICES_MAX 4096 /* listed; a catalogue with more lists the first ones */

static void send_error(struct local_call *c, reflection_response *r, int32_t code, const char *text)
{
    error_response e = GRPC__REFLECTION__V1__ERROR_RESPONSE__INIT;

    e.error_code = code;
    e.error_message = (char *)(uintptr_t)text;
    r->message_response_case =
        GRPC__REFLECTION__V1__SERVER_REFLECTION_RESPONSE__MESSAGE_RESPONSE_ERROR_RESPONSE;
    r->error_response = &e;
    local_send_packed(c, &r->base);
}

/* The file, then everything it imports, each once. */
static size_t with_deps(const struct descriptor_file *first,
                        const struct descriptor_file *ret_files[FILES_MAX])
{
    size_t n = 1;

    ret_files[0] = first;
    for (size_t i = 0; i < n; i++) {
        for (size_t d = 0; d < ret_files[i]->n_deps; d++) {
            const struct descriptor_file *const f = descriptors_at(ret_files[i]->deps[d]);
            size_t at = 0;

            while (at < n && ret_files[at] != f)
                at++;
            if (at == n) {
                check(n < FILES_MAX);
                ret_files[n++] = f;
            }
        }
    }
    return n;
}

static void send_file(struct local_call *c, reflection_response *r,
                      const struct descriptor_file *file)
{
    const struct descriptor_file *files[FILES_MAX];
    ProtobufCBinaryData bytes[FILES_MAX];
    file_response f = GRPC__REFLECTION__V1__FILE_DESCRIPTOR_RESPONSE__INIT;

    if (file == NULL) {
        send_error(c, r, GRPC_NOT_FOUND, "penstock: no descriptor of that name");
        return;
    }
    f.n_file_descriptor_proto = with_deps(file, files);
    for (size_t i = 0; i < f.n_file_descriptor_proto; i++)
        bytes[i] = (ProtobufCBinaryData){.len = files[i]->len,
                                         .data = (uint8_t *)(uintptr_t)files[i]->bytes};
    f.file_descriptor_proto = bytes;
    r->message_response_case =
        GRPC__REFLECTION__V1__SERVER_REFLECTION_RESPONSE__MESSAGE_RESPONSE_FILE_DESCRIPTOR_RESPONSE;
    r->file_descriptor_response = &f;
    local_send_packed(c, &r->base);
}

static void list_add(void *arg, const char *service, bool can_serve)
{
    list_response *const l = arg;

    (void)can_serve;
    if (l->n_service == SERVICES_MAX)
        return;
    service_response *const s = xcalloc(1, sizeof(*s));
    grpc__reflection__v1__service_response__init(s);
    s->name = (char *)(uintptr_t)service;
    l->service[l->n_service++] = s;
}

static void send_list(struct local_call *c, reflection_response *r)
{
    list_response l = GRPC__REFLECTION__V1__LIST_SERVICE_RESPONSE__INIT;

    l.service = xcalloc(SERVICES_MAX, sizeof(service_response *));
    local_each_service(c->local, list_add, &l);
    r->message_response_case =
        GRPC__REFLECTION__V1__SERVER_REFLECTION_RESPONSE__MESSAGE_RESPONSE_LIST_SERVICES_RESPONSE;
    r->list_services_response = &l;
    local_send_packed(c, &r->base);
    for (size_t i = 0; i < l.n_service; i++)
        free(l.service[i]);
    free(l.service);
}

/* None of our messages has extensions: a known type has an empty list. */
static void send_extension_numbers(struct local_call *c, reflection_response *r, char *type)
{
    extension_response e = GRPC__REFLECTION__V1__EXTENSION_NUMBER_RESPONSE__INIT;

    if (descriptors_by_symbol(type) == NULL) {
        send_error(c, r, GRPC_NOT_FOUND, "penstock: no descriptor of that name");
        return;
    }
    e.base_type_name = type;
    r->message_response_case =
        GRPC__REFLECTION__V1__SERVER_REFLECTION_RESPONSE__MESSAGE_RESPONSE_ALL_EXTENSION_NUMBERS_RESPONSE;
    r->all_extension_numbers_response = &e;
    local_send_packed(c, &r->base);
}

static void answer(struct local_call *c, reflection_request *q)
{
    reflection_response r = GRPC__REFLECTION__V1__SERVER_REFLECTION_RESPONSE__INIT;

    r.valid_host = q->host;
    r.original_request = q;
    switch (q->message_request_case) {
    case GRPC__REFLECTION__V1__SERVER_REFLECTION_REQUEST__MESSAGE_REQUEST_FILE_BY_FILENAME:
        send_file(c, &r, descriptors_by_file(q->file_by_filename));
        break;
    case GRPC__REFLECTION__V1__SERVER_REFLECTION_REQUEST__MESSAGE_REQUEST_FILE_CONTAINING_SYMBOL:
        send_file(c, &r, descriptors_by_symbol(q->file_containing_symbol));
        break;
    case GRPC__REFLECTION__V1__SERVER_REFLECTION_REQUEST__MESSAGE_REQUEST_FILE_CONTAINING_EXTENSION:
        send_error(c, &r, GRPC_NOT_FOUND, "penstock: no extension of that type");
        break;
    case GRPC__REFLECTION__V1__SERVER_REFLECTION_REQUEST__MESSAGE_REQUEST_ALL_EXTENSION_NUMBERS_OF_TYPE:
        send_extension_numbers(c, &r, q->all_extension_numbers_of_type);
        break;
    case GRPC__REFLECTION__V1__SERVER_REFLECTION_REQUEST__MESSAGE_REQUEST_LIST_SERVICES:
        send_list(c, &r);
        break;
    default:
        send_error(c, &r, GRPC_INVALID_ARGUMENT, "penstock: the request asks for nothing we know");
        break;
    }
}

static void reflection_on_message(struct local_call *c, const uint8_t *message, size_t len)
{
    reflection_request *const q =
        grpc__reflection__v1__server_reflection_request__unpack(NULL, len, message);

    if (q == NULL) {
        local_bad_request(c);
        return;
    }
    answer(c, q);
    grpc__reflection__v1__server_reflection_request__free_unpacked(q, NULL);
}

const struct local_method local_reflection_methods[] = {
    {.service = "grpc.reflection.v1.ServerReflection",
     .method = "ServerReflectionInfo",
     .client_streams = true,
     .on_message = reflection_on_message},
    {.service = "grpc.reflection.v1alpha.ServerReflection",
     .method = "ServerReflectionInfo",
     .client_streams = true,
     .on_message = reflection_on_message},
    {.service = NULL},
};
