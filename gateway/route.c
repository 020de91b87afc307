#include "gateway/route.h"

#include <string.h>

#define KSERVE_SERVICE "inference.GRPCInferenceService"
#define SHOWN_NAME_MAX 100 /* of a client's name in our message to it */

struct method_row {
    const char *service;
    const char *method; /* NULL: every other method of the service */
    enum route_kind kind;
    enum model_protocol protocol;
    enum grpc_status status;
    const char *why;
};

#define CONTROL(service, method, protocol)                                                         \
    {                                                                                              \
        service, method, ROUTE_REFUSED, protocol, GRPC_PERMISSION_DENIED,                          \
            "changes the model server itself and is not for the data port"                         \
    }
#define HOST_LOCAL(method)                                                                         \
    {                                                                                              \
        KSERVE_SERVICE, method, ROUTE_REFUSED, PROTOCOL_KSERVE, GRPC_UNIMPLEMENTED,                \
            "is about memory of one host and means nothing behind a balancer"                      \
    }
#define UNKNOWN_METHOD(service, protocol)                                                          \
    {                                                                                              \
        service, NULL, ROUTE_REFUSED, protocol, GRPC_UNIMPLEMENTED, "is no method that is routed"  \
    }

/* The first row that matches counts. Methods that name a model are known by walker_kind_of_path
 * and not repeated here. */
static const struct method_row rows[] = {
    CONTROL(KSERVE_SERVICE, "RepositoryModelLoad", PROTOCOL_KSERVE),
    CONTROL(KSERVE_SERVICE, "RepositoryModelUnload", PROTOCOL_KSERVE),
    CONTROL(KSERVE_SERVICE, "TraceSetting", PROTOCOL_KSERVE),
    CONTROL(KSERVE_SERVICE, "LogSettings", PROTOCOL_KSERVE),
    HOST_LOCAL("SystemSharedMemoryStatus"),
    HOST_LOCAL("SystemSharedMemoryRegister"),
    HOST_LOCAL("SystemSharedMemoryUnregister"),
    HOST_LOCAL("CudaSharedMemoryStatus"),
    HOST_LOCAL("CudaSharedMemoryRegister"),
    HOST_LOCAL("CudaSharedMemoryUnregister"),
    UNKNOWN_METHOD(KSERVE_SERVICE, PROTOCOL_KSERVE),
    CONTROL("inference.model_repository.ModelRepositoryService", NULL, PROTOCOL_KSERVE),
    CONTROL("tensorflow.serving.ModelService", "HandleReloadConfigRequest", PROTOCOL_TENSORFLOW),
    UNKNOWN_METHOD("tensorflow.serving.ModelService", PROTOCOL_TENSORFLOW),
    UNKNOWN_METHOD("tensorflow.serving.PredictionService", PROTOCOL_TENSORFLOW),
    UNKNOWN_METHOD("tensorflow.serving.SessionService", PROTOCOL_TENSORFLOW),
};

static bool text_is(const char *text, size_t len, const char *literal)
{
    return len == strlen(literal) && memcmp(text, literal, len) == 0;
}

static bool protocol_is_known(enum model_protocol p, bool has_kserve, bool has_tensorflow)
{
    return (p == PROTOCOL_KSERVE && has_kserve) || (p == PROTOCOL_TENSORFLOW && has_tensorflow);
}

struct route_path route_of_path(const char *path, size_t len, bool has_kserve, bool has_tensorflow)
{
    struct route_path r = {.kind = ROUTE_BY_SERVICE, .protocol = PROTOCOL_GRPC};
    const char *method;
    size_t method_len;

    if (!grpc_path_split(path, len, &r.service, &r.service_len, &method, &method_len))
        return r;
    if (!has_kserve && !has_tensorflow)
        return r;

    const enum walker_kind walker = walker_kind_of_path(path, len);

    if (walker != WALKER_NONE) {
        const enum model_protocol protocol =
            walker == WALKER_NAME_VERSION ? PROTOCOL_KSERVE : PROTOCOL_TENSORFLOW;

        if (protocol_is_known(protocol, has_kserve, has_tensorflow)) {
            r.kind = ROUTE_BY_MESSAGE;
            r.protocol = protocol;
            r.walker = walker;
        }
        return r;
    }
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        const struct method_row *row = &rows[i];

        if (!text_is(r.service, r.service_len, row->service) ||
            (row->method != NULL && !text_is(method, method_len, row->method)) ||
            !protocol_is_known(row->protocol, has_kserve, has_tensorflow))
            continue;
        r.kind = row->kind;
        r.protocol = row->protocol;
        r.status = row->status;
        r.why = row->why;
        return r;
    }
    return r;
}

static int shown(size_t len)
{
    return (int)(len < SHOWN_NAME_MAX ? len : SHOWN_NAME_MAX);
}

static int route_find_version(struct route *r, const struct snap_model *m,
                              const struct route_want *want, struct err *err)
{
    r->version = -1;
    r->by_label = false;
    if (want->choice == WALKER_ANY || want->version_len == 0)
        return ROUTE_OK;
    r->version = snap_model_version(m, want->version, want->version_len);
    if (r->version >= 0) {
        const char *name = m->conf->versions[r->version].name;

        if (strcmp(name, VERSION_ANY) == 0)
            return ROUTE_OK; /* its replicas alone know what they have */
        r->by_label = !text_is(want->version, want->version_len, name);
        /* A tensorflow.serving number may not be taken for a label, nor a label for a number. */
        if (m->conf->protocol != PROTOCOL_TENSORFLOW ||
            r->by_label == (want->choice == WALKER_LABEL))
            return ROUTE_OK;
    }
    err_set(err, 0, "model \"%s\" has no %s \"%.*s\"", m->conf->name,
            want->choice == WALKER_LABEL               ? "label"
            : m->conf->protocol == PROTOCOL_TENSORFLOW ? "version"
                                                       : "version or label",
            shown(want->version_len), want->version);
    return ROUTE_E_NO_VERSION;
}

int route_find(struct route *ret_route, const struct snapshot *snap, const struct route_path *path,
               const struct route_want *want, struct err *err)
{
    const struct snap_model *m;

    if (path->kind == ROUTE_BY_SERVICE) {
        m = snapshot_service(snap, path->service, path->service_len);
        if (m == NULL) {
            err_set(err, 0, "no model serves the service \"%.*s\"", shown(path->service_len),
                    path->service);
            return ROUTE_E_NO_MODEL;
        }
    } else {
        if (want->name_len == 0) {
            err_set(err, 0, "the request names no model");
            return ROUTE_E_NO_NAME;
        }
        m = snapshot_model(snap, path->protocol, want->name, want->name_len);
        if (m == NULL) {
            err_set(err, 0, "there is no model \"%.*s\"", shown(want->name_len), want->name);
            return ROUTE_E_NO_MODEL;
        }
    }
    ret_route->model = (size_t)(m - snap->models);
    return route_find_version(ret_route, m, want, err);
}

enum grpc_status route_status(int route_error, const struct route_path *path)
{
    if (route_error == ROUTE_E_NO_NAME)
        return GRPC_INVALID_ARGUMENT;
    if (route_error == ROUTE_E_NO_MODEL && path->kind == ROUTE_BY_SERVICE)
        return GRPC_UNIMPLEMENTED;
    return GRPC_NOT_FOUND;
}
