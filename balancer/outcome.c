#include "balancer/outcome.h"

#include <string.h>

#include "base/check.h"
#include "proto/grpc.h"

static const char *const names[OUTCOME_N] = {
    [OUTCOME_OK] = "ok",
    [OUTCOME_SERVER_ERROR] = "server_error",
    [OUTCOME_CONNECT_FAILED] = "connect_failed",
    [OUTCOME_LOST] = "lost",
    [OUTCOME_RESET] = "reset",
    [OUTCOME_REFUSED] = "refused",
    [OUTCOME_UNAVAILABLE] = "unavailable",
    [OUTCOME_FULL] = "full",
    [OUTCOME_STOPPING] = "stopping",
    [OUTCOME_NOT_READY] = "not_ready",
    [OUTCOME_UNKNOWN_MODEL] = "unknown_model",
    [OUTCOME_CANCELLED] = "cancelled",
};

/* One code says many things; only the text tells them apart. Compared without spaces (grpc-message
 * is percent-encoded on the wire, so a space may be "%20" or " ") and without case. */
static const struct {
    uint32_t grpc_status;
    const char *text;
    enum outcome outcome;
} texts[] = {
    /* Triton 2.51 after SIGTERM, on old and new connections alike */
    {GRPC_UNAVAILABLE, "serverisstopping", OUTCOME_STOPPING},
    {GRPC_UNAVAILABLE, "serverexiting", OUTCOME_STOPPING},
    {GRPC_UNAVAILABLE, "notatreadystate", OUTCOME_NOT_READY},
    {GRPC_NOT_FOUND, "hasnoavailableversions", OUTCOME_NOT_READY},
    /* grpc core and grpc-java servers that shut down; penstock's own */
    {GRPC_UNAVAILABLE, "shuttingdown", OUTCOME_STOPPING},
    {GRPC_UNAVAILABLE, "serverstopping", OUTCOME_STOPPING},
    {GRPC_UNAVAILABLE, "servershutdown", OUTCOME_STOPPING},
    /* Triton's bounded queue; overload, which a retry elsewhere multiplies */
    {GRPC_UNAVAILABLE, "exceedsmaximumqueuesize", OUTCOME_FULL},
    {GRPC_UNAVAILABLE, "requesttimeoutexpired", OUTCOME_FULL},
    /* Triton "Request for unknown model", MLServer "Model X not found", KServe "Model with name X
     * does not exist", TF-Serving "Servable not found for request" */
    {GRPC_NOT_FOUND, "unknownmodel", OUTCOME_UNKNOWN_MODEL},
    {GRPC_NOT_FOUND, "notfound", OUTCOME_UNKNOWN_MODEL},
    {GRPC_NOT_FOUND, "doesnotexist", OUTCOME_UNKNOWN_MODEL},
};

const char *outcome_name(enum outcome o)
{
    check((unsigned)o < OUTCOME_N);
    return names[o];
}

/* Lower-case letters and digits of text, without its spaces; what does not fit is left out: servers
 * put the reason first or soon after a name. */
static size_t squeeze(char *dst, size_t size, const char *text, size_t n)
{
    size_t len = 0;

    for (size_t i = 0; i < n && len + 1 < size; i++) {
        if (n - i >= 3 && memcmp(text + i, "%20", 3) == 0) {
            i += 2;
            continue;
        }
        if (text[i] >= 'A' && text[i] <= 'Z')
            dst[len++] = (char)(text[i] - 'A' + 'a');
        else if (text[i] != ' ' && text[i] != '\0')
            dst[len++] = text[i];
    }
    dst[len] = '\0';
    return len;
}

enum outcome outcome_of_status(uint32_t grpc_status, const char *message, size_t n, bool goaway)
{
    char text[512];

    if (n > 0 && (grpc_status == GRPC_UNAVAILABLE || grpc_status == GRPC_NOT_FOUND)) {
        squeeze(text, sizeof(text), message, n);
        for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
            if (texts[i].grpc_status == grpc_status && strstr(text, texts[i].text) != NULL)
                return texts[i].outcome;
        }
    }
    switch (grpc_status) {
    case GRPC_UNAVAILABLE:
        return OUTCOME_UNAVAILABLE;
    case GRPC_CANCELLED:
        /* MLServer answers so, at shutdown, to calls that it accepted and never ran. */
        return goaway ? OUTCOME_REFUSED : OUTCOME_OK;
    case GRPC_UNKNOWN:
    case GRPC_DEADLINE_EXCEEDED:
    case GRPC_RESOURCE_EXHAUSTED: /* a quota, or a message over the server's limit: not its queue */
    case GRPC_INTERNAL:
    case GRPC_DATA_LOSS:
        return OUTCOME_SERVER_ERROR;
    default:
        return grpc_status >= GRPC_N_STATUS ? OUTCOME_SERVER_ERROR : OUTCOME_OK;
    }
}
