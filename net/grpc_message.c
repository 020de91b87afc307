#include "net/grpc_message.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/xalloc.h"

/* held_bytes: the stream window: no more can come while no credit is returned. */
void grpc_inbox_init(struct grpc_inbox *b, uint32_t max_message_bytes, size_t held_bytes)
{
    grpc_reader_init(&b->reader, max_message_bytes);
    buf_init(&b->partial, max_message_bytes);
    buf_init(&b->held, held_bytes);
    b->whole = NULL;
}

void grpc_inbox_fini(struct grpc_inbox *b)
{
    buf_fini(&b->partial);
    buf_fini(&b->held);
}

enum inbox_event grpc_inbox_next(struct grpc_inbox *b, const uint8_t **p, size_t *len,
                                 const uint8_t **ret_message, size_t *ret_len, bool *ret_compressed)
{
    const uint8_t *piece;
    size_t n;

    for (;;) {
        switch (grpc_reader_next(&b->reader, p, len, &piece, &n)) {
        case GRPC_READ_MORE:
            return INBOX_MORE;
        case GRPC_READ_BEGIN:
            buf_reset(&b->partial);
            b->whole = NULL;
            break;
        case GRPC_READ_BYTES:
            if (n == b->reader.message_bytes)
                b->whole = piece;
            else
                check(buf_append(&b->partial, piece, n)); /* the reader holds the limit */
            break;
        case GRPC_READ_END:
            *ret_len = b->reader.message_bytes;
            *ret_message = b->whole != NULL          ? b->whole
                           : b->partial.data != NULL ? b->partial.data
                                                     : (const uint8_t *)""; /* an empty one */
            *ret_compressed = b->reader.compressed;
            return INBOX_MESSAGE;
        case GRPC_READ_TOO_LONG:
            return INBOX_TOO_LONG;
        case GRPC_READ_BAD_FLAG:
            return INBOX_BAD_FLAG;
        }
    }
}

struct h2_field *fields_dup(const struct h2_field *fields, size_t n)
{
    size_t bytes = n * sizeof(*fields);
    struct h2_field *copy;
    char *p;

    if (n == 0)
        return NULL;
    for (size_t i = 0; i < n; i++)
        bytes += (size_t)fields[i].name_len + fields[i].value_len + 2;
    copy = xcalloc(1, bytes);
    p = (char *)(copy + n);
    for (size_t i = 0; i < n; i++) {
        copy[i] = fields[i];
        copy[i].name = memcpy(p, fields[i].name, fields[i].name_len);
        p += fields[i].name_len + 1;
        copy[i].value = memcpy(p, fields[i].value, fields[i].value_len);
        p += fields[i].value_len + 1;
    }
    return copy;
}

const struct h2_field *fields_find(const struct h2_field *fields, size_t n, const char *name)
{
    const size_t len = strlen(name);

    for (size_t i = 0; i < n; i++)
        if (fields[i].name_len == len && memcmp(fields[i].name, name, len) == 0)
            return &fields[i];
    return NULL;
}

int fields_http_status(const struct h2_field *fields, size_t n)
{
    const struct h2_field *f = fields_find(fields, n, ":status");
    int status = 0;

    if (f == NULL || f->value_len != 3)
        return 0;
    for (size_t i = 0; i < 3; i++) {
        if (f->value[i] < '0' || f->value[i] > '9')
            return 0;
        status = status * 10 + (f->value[i] - '0');
    }
    return status;
}

void grpc_send_message(struct h2_stream *s, struct slab *slab, const uint8_t *p, size_t len,
                       bool end)
{
    uint8_t prefix[GRPC_PREFIX_BYTES];

    check(len <= UINT32_MAX);
    grpc_prefix_write(prefix, false, (uint32_t)len);
    h2_send_data(s, NULL, prefix, sizeof(prefix), end && len == 0);
    if (len > 0)
        h2_send_data(s, slab, p, len, end);
}
