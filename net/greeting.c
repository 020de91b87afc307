#include "net/greeting.h"

#include <string.h>

#include "base/check.h"

#define TLS_ALERT     0x15
#define TLS_HANDSHAKE 0x16
#define TLS_MAJOR     0x03

bool greeting_is_http1_request(const uint8_t *p, size_t len)
{
    static const char *const methods[] = {"GET ",    "POST ",    "PUT ",   "HEAD ",
                                          "DELETE ", "OPTIONS ", "PATCH ", "CONNECT "};

    for (size_t i = 0; i < ARRAY_LEN(methods); i++)
        if (len >= strlen(methods[i]) && memcmp(p, methods[i], strlen(methods[i])) == 0)
            return true;
    return false;
}

bool greeting_is_tls_hello(const uint8_t *p, size_t len)
{
    return len >= 2 && p[0] == TLS_HANDSHAKE && p[1] == TLS_MAJOR;
}

const char *greeting_of_server(struct greeting *g, const uint8_t *p, size_t len)
{
    static const uint8_t http1[sizeof(g->bytes)] = {'H', 'T', 'T', 'P', '/', '1'};

    for (size_t i = 0; i < len && g->n < sizeof(g->bytes); i++)
        g->bytes[g->n++] = p[i];
    if (memcmp(g->bytes, http1, sizeof(http1)) == 0)
        return "the server speaks HTTP/1, not HTTP/2 (gRPC)";
    if ((g->bytes[0] == TLS_ALERT || g->bytes[0] == TLS_HANDSHAKE) && g->bytes[1] == TLS_MAJOR)
        return "the server speaks TLS, and is dialled in cleartext";
    return NULL;
}
