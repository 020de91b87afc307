#include "net/h2_frame.h"

#include "base/check.h"

enum { ID_ZERO = 1, ID_NOT_ZERO, ID_ANY };

static const struct {
    const char *name;
    uint32_t min, max;
    int id;
} rules[] = {
    [FRAME_DATA] = {"DATA", 0, UINT32_MAX, ID_NOT_ZERO},
    [FRAME_HEADERS] = {"HEADERS", 0, UINT32_MAX, ID_NOT_ZERO},
    [FRAME_PRIORITY] = {"PRIORITY", 5, 5, ID_NOT_ZERO},
    [FRAME_RST_STREAM] = {"RST_STREAM", 4, 4, ID_NOT_ZERO},
    [FRAME_SETTINGS] = {"SETTINGS", 0, UINT32_MAX, ID_ZERO},
    [FRAME_PUSH_PROMISE] = {"PUSH_PROMISE", 4, UINT32_MAX, ID_NOT_ZERO},
    [FRAME_PING] = {"PING", 8, 8, ID_ZERO},
    [FRAME_GOAWAY] = {"GOAWAY", 8, UINT32_MAX, ID_ZERO},
    [FRAME_WINDOW_UPDATE] = {"WINDOW_UPDATE", 4, 4, ID_ANY},
    [FRAME_CONTINUATION] = {"CONTINUATION", 0, UINT32_MAX, ID_NOT_ZERO},
};

const char *frame_check(const struct frame *f, uint32_t max_len, enum h2_code *ret_code)
{
    *ret_code = H2_FRAME_SIZE_ERROR;
    if (f->len > max_len)
        return "frame over SETTINGS_MAX_FRAME_SIZE";
    if (f->type >= ARRAY_LEN(rules))
        return NULL;
    if (f->len < rules[f->type].min || f->len > rules[f->type].max)
        return "frame of a wrong length for its type";
    if (f->type == FRAME_SETTINGS && (f->flags & FRAME_ACK) != 0 && f->len != 0)
        return "SETTINGS ACK with a payload";
    if (f->type == FRAME_SETTINGS && f->len % 6 != 0)
        return "SETTINGS length is no multiple of 6";
    *ret_code = H2_PROTOCOL_ERROR;
    if (rules[f->type].id == ID_ZERO && f->id != 0)
        return "connection frame on a stream";
    if (rules[f->type].id == ID_NOT_ZERO && f->id == 0)
        return "stream frame on stream 0";
    return NULL;
}

bool frame_unpad(const struct frame *f, const uint8_t **p, size_t *len)
{
    size_t pad;

    if ((f->flags & FRAME_PADDED) == 0)
        return true;
    if (*len == 0 || (pad = **p) > *len - 1)
        return false;
    *p += 1;
    *len -= 1 + pad;
    return true;
}

const char *frame_check_setting(enum h2_role role, uint16_t id, uint32_t value,
                                enum h2_code *ret_code)
{
    *ret_code = H2_PROTOCOL_ERROR;
    switch (id) {
    case SETTING_ENABLE_PUSH:
        if (value > 1)
            return "SETTINGS_ENABLE_PUSH is neither 0 nor 1";
        if (role == H2_CLIENT && value == 1)
            return "a server may not enable push";
        break;
    case SETTING_INITIAL_WINDOW_SIZE:
        *ret_code = H2_FLOW_CONTROL_ERROR;
        if (value > FRAME_MAX_WINDOW)
            return "SETTINGS_INITIAL_WINDOW_SIZE over 2^31-1";
        break;
    case SETTING_MAX_FRAME_SIZE:
        if (value < 16384 || value > 0xffffff)
            return "SETTINGS_MAX_FRAME_SIZE outside 2^14..2^24-1";
        break;
    case SETTING_ENABLE_CONNECT_PROTOCOL:
    case SETTING_NO_RFC7540_PRIORITIES:
        if (value > 1)
            return "a boolean setting is neither 0 nor 1";
        break;
    default:
        break;
    }
    return NULL;
}
