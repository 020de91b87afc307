#include "loadtest/fault.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static const char *const words[FAULT_N] = {
    [FAULT_UNKNOWN_MODEL] = "unknown-model",
    [FAULT_UNAVAILABLE] = "unavailable",
    [FAULT_UNAVAILABLE_IN_TRAILERS] = "unavailable-in-trailers",
    [FAULT_UNAVAILABLE_AFTER_DATA] = "unavailable-after-data",
    [FAULT_CLOSE_AFTER_REQUEST] = "close-after-request",
    [FAULT_RESET_AFTER_REQUEST] = "reset-after-request",
    [FAULT_REFUSE] = "refuse",
    [FAULT_GOAWAY_HALF] = "goaway-half",
    [FAULT_IGNORE_DEADLINE] = "ignore-deadline",
};

int fault_parse(struct fault_set *f, const char *text, struct err *err)
{
    const size_t len = strcspn(text, "=");
    uint64_t n = UINT64_MAX;

    if (text[len] == '=') {
        char *end;

        errno = 0;
        n = strtoull(text + len + 1, &end, 10);
        if (text[len + 1] < '0' || text[len + 1] > '9' || *end != '\0' || errno != 0 || n == 0)
            return err_set(err, -EINVAL, "--fault %s: the number must be whole and positive", text);
    }
    for (int k = 0; k < FAULT_N; k++) {
        if (strlen(words[k]) == len && memcmp(words[k], text, len) == 0) {
            if (n == UINT64_MAX && (k == FAULT_UNKNOWN_MODEL || k == FAULT_GOAWAY_HALF))
                return err_set(err, -EINVAL, "--fault %s: needs a number, as in %s=4", text, text);
            f->left[k] = n;
            return 0;
        }
    }
    return err_set(err, -EINVAL, "--fault %s: no such fault; --help lists them", text);
}

bool fault_is_on(const struct fault_set *f, enum fault_kind kind)
{
    return f->left[kind] > 0;
}

bool fault_take(struct fault_set *f, enum fault_kind kind)
{
    if (f->left[kind] == 0)
        return false;
    if (f->left[kind] != UINT64_MAX)
        f->left[kind]--;
    return true;
}

const char *fault_help(void)
{
    return "misbehave on data calls; N: how many of them (all without =N)\n"
           "  unavailable              Trailers-Only UNAVAILABLE\n"
           "  unavailable-in-trailers  headers, then trailers UNAVAILABLE\n"
           "  unavailable-after-data   headers, the answer, then trailers UNAVAILABLE\n"
           "  close-after-request      close the connection when the request is whole\n"
           "  reset-after-request      RST_STREAM INTERNAL_ERROR then\n"
           "  refuse                   RST_STREAM REFUSED_STREAM at once\n"
           "  ignore-deadline          go on past grpc-timeout\n"
           "  goaway-half=N            at N open calls of a connection: GOAWAY between them\n"
           "  unknown-model=S          S seconds NOT_FOUND \"unknown model\", then exit";
}
