/* gateway/request.h - what the gateway reads of a call's request header fields.
 *
 * Owns:      nothing; the fields lie in the call's arena.
 * Called by: gateway/note (a new call), stream and attempt (the fields to send on).
 * Thread:    any.
 * Source:    the gRPC document PROTOCOL-HTTP2.md; RFC 9113 8.2.2 for what may not be forwarded.
 */
#ifndef GATEWAY_REQUEST_H
#define GATEWAY_REQUEST_H

#include <string.h>

#include "base/arena.h"
#include "net/h2.h"

enum request_fault {
    REQUEST_OK = 0,
    REQUEST_NOT_POST,    /* HTTP 405 */
    REQUEST_NOT_GRPC,    /* HTTP 415 */
    REQUEST_BAD_PATH,    /* UNIMPLEMENTED */
    REQUEST_BAD_TIMEOUT, /* INVALID_ARGUMENT */
};

enum request_encoding {
    ENCODING_IDENTITY = 0, /* also: no grpc-encoding */
    ENCODING_ZLIB,         /* gzip or deflate: zlib reads both */
    ENCODING_OTHER,
};

struct request_head {
    const struct h2_field *fields; /* without those that end at each hop */
    size_t n;
    const struct h2_field *path; /* each NULL: absent */
    const struct h2_field *scheme;
    const struct h2_field *authority, *host;
    const struct h2_field *content_type;
    const struct h2_field *timeout;
    const struct h2_field *encoding_field;
    const struct h2_field *model_hint;   /* penstock-model, or another system's name for it */
    const struct h2_field *version_hint; /* penstock-version */
    const struct h2_field *previous_attempts;
    const struct h2_field *content_length;
    enum request_encoding encoding;
    uint64_t timeout_us;    /* of grpc-timeout; valid when timeout is set */
    uint64_t content_bytes; /* of content-length; 0: none */
    bool is_head; /* with REQUEST_NOT_POST: the method is HEAD, so no body may come back */
};

/* Copy the fields of a request into arena, without the hop-by-hop ones, and read them. NULL in
 * ret_head->fields: the arena is full. */
enum request_fault request_read(struct request_head *ret_head, struct arena *arena,
                                const struct h2_field *fields, size_t n);

/* The same of fields that live as long as the head: own is reordered. */
enum request_fault request_read_fields(struct request_head *ret_head, struct h2_field *own,
                                       size_t n);

/* Is this a field that ends at each hop (connection, te, ...)? */
bool field_is_hop_by_hop(const struct h2_field *f);
/* Does it say who the client is? Only its certificate does; the gateway says it on to replicas. */
bool field_claims_identity(const struct h2_field *f);
/* Inline: with a literal it is a few compares of words. */
static inline bool field_is(const struct h2_field *f, const char *name, size_t name_len)
{
    return f->name_len == name_len && memcmp(f->name, name, name_len) == 0;
}
#define FIELD_IS(f, literal) field_is((f), (literal), sizeof(literal) - 1)

/* Copies, strings too; NULL: the arena is full. */
struct h2_field *fields_copy(struct arena *arena, const struct h2_field *fields, size_t n);

/* How an attempt's fields differ from the call's. The texts live until the fields are sent. */
struct request_edits {
    bool https;                    /* scheme of the hop to the replica */
    const char *timeout;           /* grpc-timeout; NULL: as it is */
    const char *previous_attempts; /* grpc-previous-rpc-attempts; NULL: as it is */
    const char *tenant;            /* penstock-tenant; NULL: none */
};

/* What an attempt sends: the call's fields, edited; te at the end. dst: room for head->n +
 * REQUEST_EXTRA_FIELDS. Returns how many. */
#define REQUEST_EXTRA_FIELDS 4
size_t request_fields(const struct request_head *head, struct h2_field *dst,
                      const struct request_edits *edits);
/* The same in two parts: what is the same for each call with these fields, and what is not. */
size_t request_base(const struct request_head *head, struct h2_field *dst, bool https,
                    bool no_timeout, bool no_previous);
size_t request_extra(struct h2_field *dst, const struct request_edits *edits);

/* Fields that came behind those of head and differ from call to call. */
struct request_loose {
    bool has_timeout;
    uint64_t timeout_us;
    uint64_t content_bytes;
    size_t n; /* to be sent on, in dst */
};
/* dst: room for n; points into fields. false: one of them says more than a timeout to us: read all
 * fields together. */
bool request_read_loose(const struct request_head *head, struct h2_field *dst,
                        const struct h2_field *fields, size_t n, struct request_loose *ret_loose);

#endif
