#include "gateway/request.h"

#include <string.h>

#include "proto/grpc.h"

bool field_is_hop_by_hop(const struct h2_field *f)
{
    switch (f->name_len) {
    case 2:
        return FIELD_IS(f, "te");
    case 7:
        return FIELD_IS(f, "upgrade");
    case 10:
        return FIELD_IS(f, "connection") || FIELD_IS(f, "keep-alive");
    case 16:
        return FIELD_IS(f, "proxy-connection");
    case 17:
        return FIELD_IS(f, "transfer-encoding");
    default:
        return false;
    }
}

/* Servers that make variables of names (CGI, WSGI) take _ and - for the same. */
static bool name_is_or_twin(const struct h2_field *f, const char *name)
{
    for (uint32_t i = 0; i < f->name_len; i++)
        if ((f->name[i] == '_' ? '-' : f->name[i]) != name[i])
            return false;
    return true;
}

bool field_claims_identity(const struct h2_field *f)
{
    switch (f->name_len) {
    case 15:
        return name_is_or_twin(f, "penstock-tenant");
    case 23:
        return name_is_or_twin(f, "x-forwarded-client-cert");
    default:
        return false;
    }
}

/* How many of the first fields have their strings one behind the other: those of a remembered
 * header block do. ret_bytes: of these strings. */
static size_t fields_in_a_run(const struct h2_field *fields, size_t n, size_t *ret_bytes)
{
    const char *at = n > 0 ? fields[0].name : NULL;
    size_t i = 0;

    for (; i < n && fields[i].name == at && fields[i].value == at + fields[i].name_len; i++)
        at = fields[i].value + fields[i].value_len;
    *ret_bytes = i > 0 ? (size_t)(at - fields[0].name) : 0;
    return i;
}

struct h2_field *fields_copy(struct arena *arena, const struct h2_field *fields, size_t n)
{
    size_t run_bytes;
    const size_t n_run = fields_in_a_run(fields, n, &run_bytes);
    size_t bytes = n * sizeof(struct h2_field) + run_bytes;

    for (size_t i = n_run; i < n; i++)
        bytes += (size_t)fields[i].name_len + fields[i].value_len;

    struct h2_field *copy = arena_alloc_raw(arena, bytes > 0 ? bytes : 1);

    if (copy == NULL || n == 0)
        return copy;

    char *text = (char *)(copy + n);

    memcpy(copy, fields, n * sizeof(*fields));
    memcpy(text, fields[0].name, run_bytes);
    for (size_t i = 0; i < n_run; i++) {
        copy[i].name = text;
        copy[i].value = text + fields[i].name_len;
        text += fields[i].name_len + fields[i].value_len;
    }
    for (size_t i = n_run; i < n; i++) {
        copy[i].name = memcpy(text, fields[i].name, fields[i].name_len);
        text += fields[i].name_len;
        copy[i].value = memcpy(text, fields[i].value, fields[i].value_len);
        text += fields[i].value_len;
    }
    return copy;
}

static enum request_encoding encoding_of(const struct h2_field *f)
{
    static const struct {
        const char *word;
        enum request_encoding encoding;
    } words[] = {
        {"identity", ENCODING_IDENTITY},
        {"gzip", ENCODING_ZLIB},
        {"deflate", ENCODING_ZLIB},
    };

    for (size_t i = 0; i < ARRAY_LEN(words); i++) {
        if (f->value_len == strlen(words[i].word) &&
            memcmp(f->value, words[i].word, f->value_len) == 0)
            return words[i].encoding;
    }
    return ENCODING_OTHER;
}

/* Digits, as the engine has checked; 0 also when they are too many to matter. */
static uint64_t content_bytes_of(const struct h2_field *f)
{
    uint64_t n = 0;

    if (f->value_len > 18)
        return 0;
    for (size_t i = 0; i < f->value_len; i++)
        n = n * 10 + (uint64_t)(f->value[i] - '0');
    return n;
}

/* Where head keeps a field of this name; NULL: not one that the gateway reads. */
static const struct h2_field **request_slot(struct request_head *head, const struct h2_field *f)
{
#define SLOT(name, member)                                                                         \
    if (FIELD_IS(f, name))                                                                         \
    return &head->member
    switch (f->name_len) {
    case 4:
        SLOT("host", host);
        break;
    case 5:
        SLOT(":path", path);
        break;
    case 7:
        SLOT(":scheme", scheme);
        break;
    case 10:
        SLOT(":authority", authority);
        break;
    case 11:
        SLOT("mm-model-id", model_hint);
        break;
    case 12:
        SLOT("content-type", content_type);
        SLOT("grpc-timeout", timeout);
        SLOT("seldon-model", model_hint);
        break;
    case 13:
        SLOT("grpc-encoding", encoding_field);
        break;
    case 14:
        SLOT("penstock-model", model_hint);
        SLOT("content-length", content_length);
        break;
    case 16:
        SLOT("penstock-version", version_hint);
        break;
    case 26:
        SLOT("grpc-previous-rpc-attempts", previous_attempts);
        break;
    default:
        break;
    }
    return NULL;
#undef SLOT
}

/* Point head at f when it is a field that the gateway reads. */
static void request_note_field(struct request_head *head, const struct h2_field *f)
{
    const struct h2_field **slot = request_slot(head, f);

    if (slot == NULL)
        return;
    /* Our own hint wins over another system's; of equals the first. */
    if (*slot == NULL || (FIELD_IS(f, "penstock-model") && !FIELD_IS(*slot, "penstock-model")))
        *slot = f;
}

enum request_fault request_read(struct request_head *ret_head, struct arena *arena,
                                const struct h2_field *fields, size_t n)
{
    struct h2_field *own = fields_copy(arena, fields, n);

    if (own != NULL)
        return request_read_fields(ret_head, own, n);
    *ret_head = (struct request_head){0};
    return REQUEST_OK;
}

enum request_fault request_read_fields(struct request_head *ret_head, struct h2_field *own,
                                       size_t n)
{
    const struct h2_field *method = NULL;
    size_t kept = 0;

    *ret_head = (struct request_head){0};
    for (size_t i = 0; i < n; i++) {
        if (field_is_hop_by_hop(&own[i]) || field_claims_identity(&own[i]))
            continue;
        if (kept != i)
            own[kept] = own[i];
        if (FIELD_IS(&own[kept], ":method"))
            method = &own[kept];
        else
            request_note_field(ret_head, &own[kept]);
        kept++;
    }
    ret_head->fields = own;
    ret_head->n = kept;

    if (method == NULL || method->value_len != 4 || memcmp(method->value, "POST", 4) != 0) {
        ret_head->is_head =
            method != NULL && method->value_len == 4 && memcmp(method->value, "HEAD", 4) == 0;
        return REQUEST_NOT_POST;
    }
    if (ret_head->content_type == NULL ||
        !grpc_content_type_is_ok(ret_head->content_type->value, ret_head->content_type->value_len))
        return REQUEST_NOT_GRPC;

    const char *part;
    size_t len;

    if (ret_head->path == NULL || !grpc_path_split(ret_head->path->value, ret_head->path->value_len,
                                                   &part, &len, &part, &len))
        return REQUEST_BAD_PATH;
    if (ret_head->content_length != NULL)
        ret_head->content_bytes = content_bytes_of(ret_head->content_length);
    if (ret_head->encoding_field != NULL)
        ret_head->encoding = encoding_of(ret_head->encoding_field);
    if (ret_head->timeout != NULL &&
        !grpc_timeout_parse(ret_head->timeout->value, ret_head->timeout->value_len,
                            &ret_head->timeout_us))
        return REQUEST_BAD_TIMEOUT;
    return REQUEST_OK;
}

static struct h2_field field_of(const char *name, size_t name_len, const char *value)
{
    return (struct h2_field){.name = name,
                             .value = value,
                             .name_len = (uint32_t)name_len,
                             .value_len = (uint32_t)strlen(value),
                             .flags = H2_FIELD_NO_INDEX};
}

size_t request_base(const struct request_head *head, struct h2_field *dst, bool https,
                    bool no_timeout, bool no_previous)
{
    static const struct h2_field te = H2_FIELD_INIT("te", "trailers");
    const char *scheme = https ? "https" : "http";
    size_t n = 0;

    for (size_t i = 0; i < head->n; i++) {
        const struct h2_field *f = &head->fields[i];

        if (f == head->content_length) /* DATA frames say it; and we may lengthen messages */
            continue;
        if (f == head->host && head->authority != NULL) /* RFC 9113 8.3.1: one of them is true */
            continue;
        if (f == head->timeout && no_timeout)
            continue;
        if (f == head->previous_attempts && no_previous)
            continue;
        dst[n] = *f;
        if (f == head->scheme) {
            dst[n].value = scheme;
            dst[n].value_len = (uint32_t)strlen(scheme);
        }
        n++;
    }
    dst[n++] = te;
    return n;
}

size_t request_extra(struct h2_field *dst, const struct request_edits *edits)
{
    size_t n = 0;

    if (edits->timeout != NULL)
        dst[n++] = field_of("grpc-timeout", sizeof("grpc-timeout") - 1, edits->timeout);
    if (edits->previous_attempts != NULL)
        dst[n++] = field_of("grpc-previous-rpc-attempts", sizeof("grpc-previous-rpc-attempts") - 1,
                            edits->previous_attempts);
    if (edits->tenant != NULL) {
        dst[n] = field_of("penstock-tenant", sizeof("penstock-tenant") - 1, edits->tenant);
        dst[n++].flags = 0; /* few values: worth a place in the table */
    }
    return n;
}

size_t request_fields(const struct request_head *head, struct h2_field *dst,
                      const struct request_edits *edits)
{
    const size_t n = request_base(head, dst, edits->https, edits->timeout != NULL,
                                  edits->previous_attempts != NULL);

    return n + request_extra(dst + n, edits);
}

bool request_read_loose(const struct request_head *head, struct h2_field *dst,
                        const struct h2_field *fields, size_t n, struct request_loose *ret_loose)
{
    struct request_head slots = {0}; /* only for their places */

    *ret_loose = (struct request_loose){0};
    for (size_t i = 0; i < n; i++) {
        const struct h2_field *f = &fields[i];
        const struct h2_field **slot = request_slot(&slots, f);

        if (slot == &slots.timeout) {
            if (head->timeout != NULL || ret_loose->has_timeout ||
                !grpc_timeout_parse(f->value, f->value_len, &ret_loose->timeout_us))
                return false;
            ret_loose->has_timeout = true;
        } else if (slot == &slots.content_length) {
            ret_loose->content_bytes = content_bytes_of(f); /* and no more: as from the whole */
        } else if (slot != NULL || f->name_len == 0 || f->name[0] == ':') {
            return false;
        } else if (!field_is_hop_by_hop(f) && !field_claims_identity(f)) {
            dst[ret_loose->n++] = *f;
        }
    }
    return true;
}
