#include "gateway/words.h"

#include "base/check.h"
#include "proto/grpc.h"

const char *word_of_state(enum endpoint_state state)
{
    static const char *const words[] = {
        [ENDPOINT_STARTING] = "starting",
        [ENDPOINT_READY] = "ready",
        [ENDPOINT_UNHEALTHY] = "unhealthy",
        [ENDPOINT_DRAINING] = "draining",
    };

    check((unsigned)state < ARRAY_LEN(words));
    return words[state];
}

const char *word_of_protocol(enum model_protocol protocol)
{
    static const char *const words[] = {
        [PROTOCOL_KSERVE] = "kserve",
        [PROTOCOL_TENSORFLOW] = "tensorflow",
        [PROTOCOL_GRPC] = "grpc",
    };

    check((unsigned)protocol < ARRAY_LEN(words));
    return words[protocol];
}

const char *word_of_grpc(int code)
{
    return grpc_status_name((enum grpc_status)code);
}
