/* gateway/route.h - from a path, and what a message says, to a model and version of a snapshot.
 *
 * Owns:      constant tables only.
 * Called by: gateway/stream.
 * Thread:    any; pure.
 * Source:    KServe v2 and tensorflow.serving, which of their methods name a model and where.
 */
#ifndef GATEWAY_ROUTE_H
#define GATEWAY_ROUTE_H

#include "base/err.h"
#include "conf/snapshot.h"
#include "proto/grpc.h"
#include "proto/walker.h"

enum route_kind {
    ROUTE_BY_SERVICE = 0, /* a plain gRPC service: the path is enough */
    ROUTE_BY_MESSAGE,     /* the model is named in the message */
    ROUTE_REFUSED,        /* not for the data port, see why */
};

struct route_path {
    enum route_kind kind;
    enum model_protocol protocol;
    enum walker_kind walker;
    enum grpc_status status; /* of ROUTE_REFUSED */
    const char *why;
    const char *service; /* of ROUTE_BY_SERVICE: points into path */
    size_t service_len;
};

/* path: "/package.Service/Method", split before without fault. A model protocol's own services are
 * only known as such when the snapshot has models of that protocol: a relay without a catalogue
 * passes everything on by service. */
struct route_path route_of_path(const char *path, size_t len, bool has_kserve, bool has_tensorflow);

/* What a call asks for. */
struct route_want {
    const char *name; /* model; not used by ROUTE_BY_SERVICE */
    size_t name_len;
    enum walker_choice choice;
    const char *version; /* or label; of choice */
    size_t version_len;
};

struct route {
    size_t model;  /* index into snapshot.models */
    int version;   /* index into its versions; -1: the traffic split chooses */
    bool by_label; /* what was named is a label: the server must be told the number */
};

enum { ROUTE_OK = 0, ROUTE_E_NO_NAME, ROUTE_E_NO_MODEL, ROUTE_E_NO_VERSION };

/* 0, or ROUTE_E_* with err filled: a message for the client that names what was asked for. */
int route_find(struct route *ret_route, const struct snapshot *snap, const struct route_path *path,
               const struct route_want *want, struct err *err);

/* The client's status for ROUTE_E_*. */
enum grpc_status route_status(int route_error, const struct route_path *path);

#endif
