/* tests/fuzz/fuzz_grpc.c - message framing on any bytes in any pieces, and the small parsers of
 * gRPC on any text.
 *
 * Input: message limit, seed of the pieces, then the bytes.
 * Holds: pieces change nothing, no byte is lost, what was formatted reads back.
 */
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/hash.h"
#include "base/rng.h"
#include "base/xalloc.h"
#include "proto/grpc.h"

#define TEXT_MAX 512

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct digest { /* what a reader said */
    uint64_t hash;
    size_t payload_bytes, messages;
    enum grpc_read refusal;
    bool between;
};

static struct digest read_all(const uint8_t *data, size_t size, uint32_t limit, struct rng *rng)
{
    struct digest d = {.refusal = GRPC_READ_MORE};
    struct grpc_reader r;

    grpc_reader_init(&r, limit);
    while (size > 0) {
        const size_t n = rng == NULL ? size : 1 + rng_below(rng, size < 20 ? size : 20);
        uint8_t *own = xcalloc(n, 1);
        const uint8_t *p = own, *piece = NULL;
        size_t left = n, len = 0;
        enum grpc_read event;

        memcpy(own, data, n);
        data += n;
        size -= n;
        while ((event = grpc_reader_next(&r, &p, &left, &piece, &len)) != GRPC_READ_MORE) {
            if (event == GRPC_READ_BYTES) {
                check(piece >= own && len > 0 && piece + len <= own + n);
                for (size_t i = 0; i < len; i++) /* byte by byte: where pieces end must not show */
                    d.hash = hash_bytes(piece + i, 1, d.hash);
                d.payload_bytes += len;
                continue;
            }
            d.hash = hash_bytes(&event, sizeof(event), d.hash);
            if (event == GRPC_READ_BEGIN) {
                check(r.message_bytes <= limit);
            } else if (event == GRPC_READ_END) {
                d.messages++;
            } else {
                d.refusal = event;
                free(own);
                return d;
            }
        }
        check(left == 0);
        free(own);
    }
    d.between = grpc_reader_is_between(&r);
    return d;
}

static void check_texts(const char *text, size_t len)
{
    char encoded[3 * TEXT_MAX + 1], decoded[TEXT_MAX + 1], short_text[17];
    char timeout[GRPC_TIMEOUT_SIZE], base64[GRPC_BIN_TEXT_SIZE(TEXT_MAX)];
    uint8_t binary[TEXT_MAX + 2];
    const char *service, *method;
    size_t n, service_len, method_len;
    uint64_t us, again_us;

    n = grpc_message_encode(encoded, sizeof(encoded), text, len);
    check(grpc_metadata_value_is_ok(encoded, n));
    check(n == 0 || (encoded[0] != ' ' && encoded[n - 1] != ' '));
    check(grpc_message_decode(decoded, sizeof(decoded), encoded, n) == len);
    check(memcmp(decoded, text, len) == 0);
    grpc_message_decode(decoded, sizeof(decoded), text, len);
    check(grpc_message_encode(short_text, sizeof(short_text), text, len) < sizeof(short_text));

    if (grpc_timeout_parse(text, len, &us)) {
        n = grpc_timeout_format(timeout, us);
        check(grpc_timeout_parse(timeout, n, &again_us) && again_us <= us);
    }

    n = grpc_bin_encode(base64, (const uint8_t *)text, len);
    check(grpc_bin_decode(binary, base64, n, &n) && n == len && memcmp(binary, text, len) == 0);
    if (grpc_bin_decode(binary, text, len, &n))
        check(n <= len / 4 * 3 + 2);

    if (grpc_path_split(text, len, &service, &service_len, &method, &method_len))
        check(service_len + method_len + 2 == len && service_len > 0 && method_len > 0);
    check((unsigned)grpc_status_parse(text, len) < GRPC_N_STATUS);
    grpc_content_type_is_ok(text, len);
    grpc_metadata_name_is_ok(text, len);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct digest whole, split;
    struct rng rng;

    if (size < 2)
        return 0;
    rng_init(&rng, data[1]);
    whole = read_all(data + 2, size - 2, data[0], NULL);
    split = read_all(data + 2, size - 2, data[0], &rng);
    check(whole.hash == split.hash && whole.payload_bytes == split.payload_bytes);
    check(whole.messages == split.messages && whole.refusal == split.refusal);
    check(whole.between == split.between);
    if (whole.refusal == GRPC_READ_MORE && whole.between)
        check(whole.payload_bytes + GRPC_PREFIX_BYTES * whole.messages == size - 2);
    check_texts((const char *)data + 2, size - 2 < TEXT_MAX ? size - 2 : TEXT_MAX);
    return 0;
}
