/* proto/grpc.h - the parts of gRPC over HTTP/2 that are bytes and tables: message framing,
 * timeouts, grpc-message, status codes, metadata.
 *
 * Owns:      nothing; a struct grpc_reader is the caller's and needs no end.
 * Called by: the relay, the gRPC client and server.
 * Thread:    any.
 * Source:    the gRPC documents PROTOCOL-HTTP2.md, http-grpc-status-mapping.md, statuscodes.md.
 */
#ifndef PROTO_GRPC_H
#define PROTO_GRPC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum grpc_status {
    GRPC_OK = 0,
    GRPC_CANCELLED = 1,
    GRPC_UNKNOWN = 2,
    GRPC_INVALID_ARGUMENT = 3,
    GRPC_DEADLINE_EXCEEDED = 4,
    GRPC_NOT_FOUND = 5,
    GRPC_ALREADY_EXISTS = 6,
    GRPC_PERMISSION_DENIED = 7,
    GRPC_RESOURCE_EXHAUSTED = 8,
    GRPC_FAILED_PRECONDITION = 9,
    GRPC_ABORTED = 10,
    GRPC_OUT_OF_RANGE = 11,
    GRPC_UNIMPLEMENTED = 12,
    GRPC_INTERNAL = 13,
    GRPC_UNAVAILABLE = 14,
    GRPC_DATA_LOSS = 15,
    GRPC_UNAUTHENTICATED = 16,
    GRPC_N_STATUS = 17,
};

const char *grpc_status_name(enum grpc_status status); /* "UNAVAILABLE"; "UNKNOWN" out of range */
bool grpc_status_find(const char *name, enum grpc_status *ret_status);

/* The value of a grpc-status field. What is no code of the table (also with a leading zero, a sign
 * or blanks) reads as GRPC_UNKNOWN: a broken server is not a success. */
enum grpc_status grpc_status_parse(const char *value, size_t len);

/* For a response that ended without grpc-status; never the other way round. */
enum grpc_status grpc_status_of_http(int http_status);

/* For a stream that was reset, by RFC 9113 error code. */
enum grpc_status grpc_status_of_h2(uint32_t h2_code);

/* --- Message framing: 1 byte compressed flag, 4 bytes length (big-endian), the message. --- */

#define GRPC_PREFIX_BYTES 5

struct grpc_reader {
    uint32_t max_message_bytes; /* longer ones are GRPC_READ_TOO_LONG */
    uint32_t message_bytes;     /* of the message that began last, without the prefix */
    uint32_t left_bytes;        /* of it, not yet seen */
    bool compressed;            /* flag of that message */
    uint8_t prefix_seen;        /* 0..5; 5: inside a message */
    uint8_t prefix[GRPC_PREFIX_BYTES];
};

enum grpc_read {
    GRPC_READ_MORE = 0, /* everything given was taken */
    GRPC_READ_BEGIN,    /* a prefix is complete: see message_bytes and compressed */
    GRPC_READ_BYTES,    /* a piece of the message */
    GRPC_READ_END,      /* the message is complete */
    GRPC_READ_TOO_LONG, /* message_bytes is over the limit: RESOURCE_EXHAUSTED; reads no further */
    GRPC_READ_BAD_FLAG, /* flag neither 0 nor 1: INTERNAL; reads no further */
};

void grpc_reader_init(struct grpc_reader *r, uint32_t max_message_bytes);

/* Takes bytes from the front of [*p, *p + *len), in any pieces, and returns the next event. Call it
 * until GRPC_READ_MORE. ret_piece, ret_len: for GRPC_READ_BYTES the piece (inside what was given,
 * never empty); not touched otherwise. */
enum grpc_read grpc_reader_next(struct grpc_reader *r, const uint8_t **p, size_t *len,
                                const uint8_t **ret_piece, size_t *ret_len);

/* The usual chunk: exactly one uncompressed message, not over the limit, begins and ends with it.
 * true: it was taken, as grpc_reader_next would have in its steps. false: nothing was. */
static inline bool grpc_reader_take_whole(struct grpc_reader *r, const uint8_t *p, size_t len)
{
    uint32_t bytes;

    if (r->prefix_seen != 0 || len < GRPC_PREFIX_BYTES || p[0] != 0)
        return false;
    bytes = (uint32_t)p[1] << 24 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 8 | p[4];
    if (bytes != len - GRPC_PREFIX_BYTES || bytes > r->max_message_bytes)
        return false;
    r->message_bytes = bytes;
    r->compressed = false;
    return true;
}

/* True between messages: the only place where a stream may end. */
bool grpc_reader_is_between(const struct grpc_reader *r);

void grpc_prefix_write(uint8_t dst[GRPC_PREFIX_BYTES], bool compressed, uint32_t message_bytes);

/* --- grpc-timeout --- */

/* 1 to 8 digits and one unit of H M S m u n; nanoseconds round down. false: malformed. */
bool grpc_timeout_parse(const char *value, size_t len, uint64_t *ret_us);

/* Writes the longest time that fits 8 digits and is not over us (1n for 0: the format wants a
 * positive number); a NUL follows. Returns the length without it. */
#define GRPC_TIMEOUT_SIZE 10
size_t grpc_timeout_format(char dst[GRPC_TIMEOUT_SIZE], uint64_t us);

/* --- grpc-message: UTF-8 with %XX for everything outside 0x20..0x7e, for '%', and for a space at
 * either end, which no header field may have (RFC 9113 8.2.1) --- */

/* Cut to fit size (never inside an escape), NUL-terminated. Returns the length. size > 0. */
size_t grpc_message_encode(char *dst, size_t size, const char *text, size_t len);

/* Never fails: an escape that is none stays as it came. Cut to fit size, NUL-terminated. Returns
 * the length; the text may hold any byte. size > 0. */
size_t grpc_message_decode(char *dst, size_t size, const char *value, size_t len);

/* --- Requests and metadata --- */

/* application/grpc, +anything or ;anything after it, any case. Not application/grpc-web. */
bool grpc_content_type_is_ok(const char *value, size_t len);

/* "/package.Service/Method": false unless both parts are there and plain: letters, digits and _ . -
 * between the slashes, in no segment dots alone, GRPC_PATH_MAX bytes at most. The service ends at
 * the last slash. */
#define GRPC_PATH_MAX 1024
bool grpc_path_split(const char *path, size_t len, const char **ret_service,
                     size_t *ret_service_len, const char **ret_method, size_t *ret_method_len);

bool grpc_metadata_name_is_ok(const char *name, size_t len);   /* [0-9a-z_.-]+ */
bool grpc_metadata_is_binary(const char *name, size_t len);    /* ends in -bin */
bool grpc_metadata_is_reserved(const char *name, size_t len);  /* begins with grpc- */
bool grpc_metadata_value_is_ok(const char *value, size_t len); /* 0x20..0x7e; for names not -bin */

/* One -bin value: base64 without padding. Returns the length, NUL after it; dst holds at least
 * GRPC_BIN_TEXT_SIZE(len) bytes. */
#define GRPC_BIN_TEXT_SIZE(len) (((len) + 2) / 3 * 4 + 1)
size_t grpc_bin_encode(char *dst, const uint8_t *bytes, size_t len);

/* One value (a list joined by ',' is split by the caller), padded or not. false: no base64, or
 * stray bits at the end. dst holds at least len / 4 * 3 + 2 bytes. */
bool grpc_bin_decode(uint8_t *dst, const char *text, size_t len, size_t *ret_len);

#endif
