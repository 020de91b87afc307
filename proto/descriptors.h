/* proto/descriptors.h - the descriptors of our .proto files, packed, for the reflection service.
 *
 * Owns:      constant tables, made at build time by proto/embed.py.
 * Called by: the gateway's local answers to grpc.reflection.v1 and v1alpha.
 * Lifetime:  the program's.
 * Thread:    any.
 */
#ifndef PROTO_DESCRIPTORS_H
#define PROTO_DESCRIPTORS_H

#include <stddef.h>
#include <stdint.h>

struct descriptor_file {
    const char *name;     /* as in import statements: "kserve_v2.proto" */
    const uint8_t *bytes; /* a packed google.protobuf.FileDescriptorProto */
    size_t len;
    const uint8_t *deps; /* imports, as arguments of descriptors_at */
    size_t n_deps;
};

size_t descriptors_count(void);
const struct descriptor_file *descriptors_at(size_t i);

/* NULL: no such file. name: file_by_filename of a request. */
const struct descriptor_file *descriptors_by_file(const char *name);

/* The file that defines symbol: full name of a message, field, enum, service or method, without a
 * leading dot: "inference.GRPCInferenceService.ModelInfer". NULL: no such symbol. */
const struct descriptor_file *descriptors_by_symbol(const char *symbol);

#endif
