#include "proto/walker.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"

#define TAG_MAX_BYTES   5 /* 32 bits */
#define VALUE_MAX_BYTES 10

enum phase { PHASE_TAG = 0, PHASE_LENGTH, PHASE_VALUE, PHASE_SKIP, PHASE_STRING };

enum wire { WIRE_VARINT = 0, WIRE_64 = 1, WIRE_LENGTH = 2, WIRE_32 = 5 };

enum level { /* messages that are entered */
             LEVEL_NONE = 0,
             LEVEL_NAME_VERSION,
             LEVEL_WITH_SPEC,
             LEVEL_WITH_TASKS,
             LEVEL_TASK,
             LEVEL_SPEC,
             LEVEL_INT64,
             LEVEL_N,
};

enum rule { RULE_SKIP = 0, RULE_NAME, RULE_VERSION, RULE_LABEL, RULE_NUMBER, RULE_ENTER };

/* The fields that count, by number - 1; all others are skipped. */
static const struct field {
    enum rule rule;
    enum wire wire;
    enum level enter;
} fields[LEVEL_N][4] = {
    [LEVEL_NAME_VERSION] = {{RULE_NAME, WIRE_LENGTH, 0}, {RULE_VERSION, WIRE_LENGTH, 0}},
    [LEVEL_WITH_SPEC] = {{RULE_ENTER, WIRE_LENGTH, LEVEL_SPEC}},
    [LEVEL_WITH_TASKS] = {{RULE_ENTER, WIRE_LENGTH, LEVEL_TASK}},
    [LEVEL_TASK] = {{RULE_ENTER, WIRE_LENGTH, LEVEL_SPEC}},
    [LEVEL_SPEC] = {{RULE_NAME, WIRE_LENGTH, 0},
                    {RULE_ENTER, WIRE_LENGTH, LEVEL_INT64},
                    {RULE_SKIP, WIRE_LENGTH, 0},
                    {RULE_LABEL, WIRE_LENGTH, 0}},
    [LEVEL_INT64] = {{RULE_NUMBER, WIRE_VARINT, 0}},
};

static const struct {
    enum level level;
    uint32_t last_field; /* a field behind it says that name and version have passed by */
} kinds[] = {
    [WALKER_NAME_VERSION] = {LEVEL_NAME_VERSION, 2},
    [WALKER_MODEL_SPEC] = {LEVEL_WITH_SPEC, 1},
    [WALKER_TASKS] = {LEVEL_WITH_TASKS, 1},
};

enum refusal {
    REFUSAL_NONE = 0,
    REFUSAL_TAG,
    REFUSAL_FIELD_0,
    REFUSAL_GROUP,
    REFUSAL_WIRE,
    REFUSAL_LENGTH,
    REFUSAL_VARINT,
    REFUSAL_NUMBER,
    REFUSAL_OVERRUN,
    REFUSAL_TRUNCATED,
    REFUSAL_NAME_TOO_LONG,
    REFUSAL_VERSION_TOO_LONG,
    REFUSAL_NAME_UTF8,
    REFUSAL_VERSION_UTF8,
    REFUSAL_NAME_DIFFERS, /* the other value is in scratch */
    REFUSAL_VERSION_DIFFERS,
    REFUSAL_NAME_MISSING,
    REFUSAL_VERSION_MISSING,
};

/* Those that need no value; the others are written out in walker_explain. */
static const char *const refusal_texts[] = {
    [REFUSAL_NONE] = "",
    [REFUSAL_TAG] = "the request message has a tag over 32 bits",
    [REFUSAL_FIELD_0] = "the request message has a field with number 0",
    [REFUSAL_GROUP] = "the request message has a group (wire type 3 or 4), which is not supported",
    [REFUSAL_WIRE] = "the request message has a field of wire type 6 or 7, which do not exist",
    [REFUSAL_LENGTH] = "the request message has a length over 32 bits",
    [REFUSAL_VARINT] = "the request message has a varint over 10 bytes",
    [REFUSAL_NUMBER] = "the version number in model_spec is over 64 bits",
    [REFUSAL_OVERRUN] = "the request message has a field that is longer than what holds it",
    [REFUSAL_TRUNCATED] = "the request message ends inside a field",
    [REFUSAL_NAME_UTF8] = "the model name is not UTF-8",
    [REFUSAL_VERSION_UTF8] = "the model version is not UTF-8",
};

static const struct {
    const char *path;
    enum walker_kind kind;
} paths[] = {
    {"/inference.GRPCInferenceService/ModelInfer", WALKER_NAME_VERSION},
    {"/inference.GRPCInferenceService/ModelStreamInfer", WALKER_NAME_VERSION},
    {"/inference.GRPCInferenceService/ModelReady", WALKER_NAME_VERSION},
    {"/inference.GRPCInferenceService/ModelMetadata", WALKER_NAME_VERSION},
    {"/inference.GRPCInferenceService/ModelConfig", WALKER_NAME_VERSION},
    {"/inference.GRPCInferenceService/ModelStatistics", WALKER_NAME_VERSION},
    {"/tensorflow.serving.PredictionService/Predict", WALKER_MODEL_SPEC},
    {"/tensorflow.serving.PredictionService/Classify", WALKER_MODEL_SPEC},
    {"/tensorflow.serving.PredictionService/Regress", WALKER_MODEL_SPEC},
    {"/tensorflow.serving.PredictionService/MultiInference", WALKER_TASKS},
    {"/tensorflow.serving.PredictionService/GetModelMetadata", WALKER_MODEL_SPEC},
    {"/tensorflow.serving.ModelService/GetModelStatus", WALKER_MODEL_SPEC},
    {"/tensorflow.serving.SessionService/SessionRun", WALKER_MODEL_SPEC},
};

enum walker_kind walker_kind_of_path(const char *path, size_t len)
{
    for (size_t i = 0; i < ARRAY_LEN(paths); i++)
        if (strlen(paths[i].path) == len && memcmp(paths[i].path, path, len) == 0)
            return paths[i].kind;
    return WALKER_NONE;
}

void walker_init(struct walker *w, enum walker_kind kind, uint32_t look_bytes)
{
    check(kind > WALKER_NONE && kind <= WALKER_TASKS);
    /* All but the bytes of names, which count up to their len. */
    memset(&w->choice, 0, offsetof(struct walker, scratch) - offsetof(struct walker, choice));
    w->name.len = w->version.len = w->scratch.len = 0;
    w->kind = kind;
    w->look_bytes = look_bytes > 0 ? look_bytes : WALKER_LOOK_BYTES;
}

static void refuse(struct walker *w, enum refusal why)
{
    if (w->why == REFUSAL_NONE)
        w->why = (uint8_t)why;
}

static bool text_is(const struct walker_text *t, const struct walker_text *other)
{
    return t->len == other->len && memcmp(t->bytes, other->bytes, t->len) == 0;
}

static void text_set(struct walker_text *t, const char *bytes, size_t len)
{
    check(len <= WALKER_NAME_MAX);
    if (len > 0)
        memcpy(t->bytes, bytes, len);
    t->len = (uint8_t)len;
}

/* RFC 3629: no overlong forms, no surrogates, nothing past U+10FFFF. proto3 decoders fail on
 * others. */
static bool is_utf8(const struct walker_text *t)
{
    const uint8_t *s = (const uint8_t *)t->bytes, *end = s + t->len;

    while (s < end) {
        const uint8_t c = *s++;
        uint8_t low = 0x80, high = 0xbf; /* of the second byte */
        int more;

        if (c < 0x80)
            continue;
        if (c < 0xc2 || c > 0xf4)
            return false;
        more = c < 0xe0 ? 1 : c < 0xf0 ? 2 : 3;
        if (c == 0xe0)
            low = 0xa0;
        else if (c == 0xed)
            high = 0x9f;
        else if (c == 0xf0)
            low = 0x90;
        else if (c == 0xf4)
            high = 0x8f;
        for (; more > 0; more--, low = 0x80, high = 0xbf)
            if (s == end || *s < low || *s++ > high)
                return false;
    }
    return true;
}

/* True when name and version stand: what comes now may only agree. */
static bool is_pinned(const struct walker *w)
{
    return w->committed || w->n_tasks > 0;
}

/* scratch is the name that was read. */
static void take_name(struct walker *w)
{
    if (!is_utf8(&w->scratch))
        refuse(w, REFUSAL_NAME_UTF8);
    else if (!is_pinned(w))
        w->name = w->scratch;
    else if (!text_is(&w->name, &w->scratch))
        refuse(w, REFUSAL_NAME_DIFFERS);
    w->name_seen = true;
}

/* scratch is the version or label that was read. */
static void take_version(struct walker *w, enum walker_choice choice)
{
    w->seen_choice = choice;
    if (!is_utf8(&w->scratch)) {
        refuse(w, REFUSAL_VERSION_UTF8);
    } else if (!is_pinned(w)) {
        w->choice = choice;
        w->version = w->scratch;
    } else if (choice != w->choice || !text_is(&w->version, &w->scratch)) {
        refuse(w, REFUSAL_VERSION_DIFFERS);
    }
}

/* An Int64Value is complete. */
static void take_number(struct walker *w)
{
    char text[24];
    const int len = snprintf(text, sizeof(text), "%" PRId64, w->number);

    text_set(&w->scratch, text, (size_t)len);
    take_version(w, WALKER_VERSION);
}

/* All that this message, or this task, says is known: it must not be less than what stands. */
static void check_nothing_is_missing(struct walker *w)
{
    const bool may_omit_version = w->kind == WALKER_TASKS;

    if (!w->name_seen && w->name.len > 0)
        refuse(w, REFUSAL_NAME_MISSING);
    else if (w->seen_choice == WALKER_ANY && w->choice != WALKER_ANY && !may_omit_version)
        refuse(w, REFUSAL_VERSION_MISSING);
}

static void enter(struct walker *w, enum level level, uint32_t bytes)
{
    check(w->depth + 1u < ARRAY_LEN(w->stack));
    w->depth++;
    w->stack[w->depth].level = (uint8_t)level;
    w->stack[w->depth].end = w->at + bytes;
    if (level == LEVEL_TASK) {
        w->name_seen = false;
        w->seen_choice = WALKER_ANY;
    } else if (level == LEVEL_INT64 && w->seen_choice != WALKER_VERSION) {
        w->seen_choice = WALKER_VERSION; /* the oneof's other member is gone */
        w->number = 0;
    }
}

static void leave(struct walker *w)
{
    const enum level level = w->stack[w->depth].level;

    w->depth--;
    if (level == LEVEL_INT64) {
        take_number(w);
    } else if (level == LEVEL_TASK) {
        if (is_pinned(w))
            check_nothing_is_missing(w);
        w->n_tasks++;
    }
}

/* A field is complete, and so may be the messages that end with it. */
static void field_done(struct walker *w)
{
    w->phase = PHASE_TAG;
    w->varint_bytes = 0;
    while (w->depth > 0 && w->at == w->stack[w->depth].end)
        leave(w);
}

static bool has_room(const struct walker *w, uint64_t bytes)
{
    return bytes <= w->stack[w->depth].end - w->at;
}

static void skip(struct walker *w, uint32_t bytes)
{
    if (!has_room(w, bytes)) {
        refuse(w, REFUSAL_OVERRUN);
    } else if (bytes == 0) {
        field_done(w);
    } else {
        w->left_bytes = bytes;
        w->phase = PHASE_SKIP;
    }
}

static const struct field *field_of(const struct walker *w, uint32_t number)
{
    static const struct field other = {RULE_SKIP, WIRE_LENGTH, LEVEL_NONE};

    return number <= ARRAY_LEN(fields[0]) ? &fields[w->stack[w->depth].level][number - 1] : &other;
}

static void take_tag(struct walker *w, uint32_t tag)
{
    const uint32_t number = tag >> 3, wire = tag & 7;
    const struct field *f;

    if (number == 0) {
        refuse(w, REFUSAL_FIELD_0);
        return;
    }
    if (w->depth == 0)
        w->past_fields = number > kinds[w->kind].last_field && w->name.len > 0;
    f = field_of(w, number);
    w->rule = f->wire == wire ? (uint8_t)f->rule : RULE_SKIP;
    w->enter = (uint8_t)f->enter;
    w->varint_bytes = 0;
    switch (wire) {
    case WIRE_VARINT:
        w->phase = PHASE_VALUE;
        break;
    case WIRE_64:
        skip(w, 8);
        break;
    case WIRE_LENGTH:
        w->phase = PHASE_LENGTH;
        break;
    case WIRE_32:
        skip(w, 4);
        break;
    case 3:
    case 4:
        refuse(w, REFUSAL_GROUP);
        break;
    default:
        refuse(w, REFUSAL_WIRE);
        break;
    }
}

static void string_done(struct walker *w)
{
    if (w->rule == RULE_NAME)
        take_name(w);
    else if (w->rule == RULE_LABEL)
        take_version(w, WALKER_LABEL);
    else
        take_version(w, w->scratch.len > 0 ? WALKER_VERSION : WALKER_ANY);
    field_done(w);
}

static void take_length(struct walker *w, uint32_t bytes)
{
    if (!has_room(w, bytes)) {
        refuse(w, REFUSAL_OVERRUN);
    } else if (w->rule == RULE_SKIP) {
        skip(w, bytes);
    } else if (w->rule == RULE_ENTER) {
        enter(w, w->enter, bytes);
        field_done(w);
    } else if (bytes > WALKER_NAME_MAX) {
        refuse(w, w->rule == RULE_NAME ? REFUSAL_NAME_TOO_LONG : REFUSAL_VERSION_TOO_LONG);
    } else {
        w->scratch.len = 0;
        w->left_bytes = bytes;
        w->phase = PHASE_STRING;
        if (bytes == 0)
            string_done(w);
    }
}

/* One byte of a tag, a length or a varint value. */
static void take_varint_byte(struct walker *w, uint8_t byte)
{
    const uint8_t max_bytes = w->phase == PHASE_VALUE ? VALUE_MAX_BYTES : TAG_MAX_BYTES;
    const enum refusal too_long = w->phase == PHASE_VALUE ? REFUSAL_VARINT
                                  : w->phase == PHASE_TAG ? REFUSAL_TAG
                                                          : REFUSAL_LENGTH;

    if (w->at == w->stack[w->depth].end) {
        refuse(w, REFUSAL_OVERRUN);
        return;
    }
    if (w->varint_bytes == 0)
        w->varint = 0;
    w->varint |= (uint64_t)(byte & 0x7f) << (7 * w->varint_bytes);
    w->varint_bytes++;
    w->at++;
    if (byte >= 0x80) {
        if (w->varint_bytes == max_bytes)
            refuse(w, too_long);
        return;
    }
    if (w->phase == PHASE_VALUE) {
        if (w->rule == RULE_NUMBER) {
            if (w->varint_bytes == VALUE_MAX_BYTES && byte > 1)
                refuse(w, REFUSAL_NUMBER);
            w->number = (int64_t)w->varint;
        }
        field_done(w);
    } else if (w->varint > UINT32_MAX) {
        refuse(w, too_long);
    } else if (w->phase == PHASE_TAG) {
        take_tag(w, (uint32_t)w->varint);
    } else {
        take_length(w, (uint32_t)w->varint);
    }
}

/* After each piece: is the message complete, and what does that mean for the caller? */
static enum walker_result judge(struct walker *w)
{
    if (w->why == REFUSAL_NONE && w->at == w->message_bytes) {
        if (w->phase != PHASE_TAG || w->varint_bytes > 0)
            refuse(w, REFUSAL_TRUNCATED);
        else if (w->committed && (w->kind != WALKER_TASKS || w->n_tasks == 0))
            check_nothing_is_missing(w);
    }
    if (w->why != REFUSAL_NONE)
        return WALKER_REFUSED;
    if (w->committed)
        return WALKER_MORE;
    if (w->at == w->message_bytes)
        return WALKER_READY;
    if (w->at >= w->look_bytes)
        return w->name.len > 0 ? WALKER_READY : WALKER_BLIND;
    return w->past_fields ? WALKER_READY : WALKER_MORE;
}

enum walker_result walker_begin(struct walker *w, uint32_t message_bytes)
{
    if (!w->committed) {
        w->name.len = w->version.len = 0;
        w->choice = WALKER_ANY;
    }
    w->past_fields = false;
    w->phase = PHASE_TAG;
    w->depth = 0;
    w->varint_bytes = 0;
    w->at = 0;
    w->message_bytes = message_bytes;
    w->stack[0].end = message_bytes;
    w->stack[0].level = (uint8_t)kinds[w->kind].level;
    w->name_seen = false;
    w->seen_choice = WALKER_ANY;
    w->n_tasks = 0;
    return message_bytes == 0 || w->why != REFUSAL_NONE ? judge(w) : WALKER_MORE;
}

/* Returns how many bytes it took: all, unless it refused, or stops where the route may be taken. */
static size_t walk(struct walker *w, const uint8_t *p, size_t len, bool to_ready)
{
    const uint8_t *const first = p;

    check(len <= w->message_bytes - w->at || w->why != REFUSAL_NONE);
    while (len > 0 && w->why == REFUSAL_NONE && !(to_ready && w->past_fields && !w->committed)) {
        size_t n;

        if (w->phase != PHASE_SKIP && w->phase != PHASE_STRING) {
            take_varint_byte(w, *p);
            p++;
            len--;
            continue;
        }
        n = len < w->left_bytes ? len : w->left_bytes;
        if (w->phase == PHASE_STRING) {
            memcpy(w->scratch.bytes + w->scratch.len, p, n);
            w->scratch.len = (uint8_t)(w->scratch.len + n);
        }
        p += n;
        len -= n;
        w->at += (uint32_t)n;
        w->left_bytes -= (uint32_t)n;
        if (w->left_bytes > 0)
            break;
        if (w->phase == PHASE_STRING)
            string_done(w);
        else
            field_done(w);
    }
    return (size_t)(p - first);
}

enum walker_result walker_feed(struct walker *w, const uint8_t *p, size_t len)
{
    walk(w, p, len, false);
    return judge(w);
}

enum walker_result walker_feed_to_ready(struct walker *w, const uint8_t *p, size_t len,
                                        size_t *ret_taken)
{
    *ret_taken = walk(w, p, len, true);
    return judge(w);
}

bool walker_is_complete(const struct walker *w)
{
    return w->why == REFUSAL_NONE && w->at == w->message_bytes;
}

void walker_commit(struct walker *w)
{
    w->committed = true;
}

enum walker_result walker_commit_hint(struct walker *w, const char *name, size_t name_len,
                                      enum walker_choice choice, const char *version,
                                      size_t version_len)
{
    const struct walker_text said = w->version;
    const bool version_was_said = w->choice != WALKER_ANY;

    if (version_was_said && (choice != w->choice || version_len != said.len ||
                             memcmp(version, said.bytes, said.len) != 0)) {
        w->scratch = said;
        refuse(w, REFUSAL_VERSION_DIFFERS);
    }
    text_set(&w->name, name, name_len);
    text_set(&w->version, version, version_len);
    w->choice = choice;
    w->committed = true;
    return judge(w);
}

/* A byte that the walker read; false: the shape is full. */
static bool shape_note(struct walker_shape *shape, uint32_t at, uint8_t byte, bool begins_run)
{
    uint32_t used = 0;

    if (shape->n_runs > 0)
        used = shape->runs[shape->n_runs - 1].from + shape->runs[shape->n_runs - 1].len;
    if (used == WALKER_SHAPE_BYTES)
        return false;
    if (begins_run) {
        if (shape->n_runs == WALKER_SHAPE_RUNS)
            return false;
        shape->runs[shape->n_runs].at = at;
        shape->runs[shape->n_runs].from = (uint8_t)used;
        shape->runs[shape->n_runs++].len = 0;
    }
    shape->bytes[used] = byte;
    shape->runs[shape->n_runs - 1].len++;
    return true;
}

bool walker_take_shape(struct walker_shape *ret_shape, struct walker *ret_walker,
                       enum walker_kind kind, const uint8_t *message, uint32_t message_bytes)
{
    struct walker *w = ret_walker;
    bool skipped = true; /* the next byte read begins a run */
    enum walker_result r;
    uint32_t at = 0;

    *ret_shape = (struct walker_shape){.kind = kind};
    /* Past look_bytes the place of the commit depends on how the message is cut. */
    if (message_bytes == 0 || message_bytes > WALKER_LOOK_BYTES)
        return false;
    walker_init(w, kind, 0);
    walker_begin(w, message_bytes);
    while (at < message_bytes) {
        const bool skips = w->phase == PHASE_SKIP;
        const uint32_t take = skips ? w->left_bytes : 1;

        if (!skips && !shape_note(ret_shape, at, message[at], skipped))
            return false;
        skipped = skips;
        r = walker_feed(w, message + at, take);
        at += take;
        if (r == WALKER_REFUSED || r == WALKER_BLIND)
            return false;
        if (r == WALKER_READY && w->name.len > 0)
            walker_commit(w);
    }
    ret_shape->message_bytes = message_bytes;
    return w->committed && walker_is_complete(w);
}

bool walker_shape_fits(const struct walker_shape *shape, enum walker_kind kind,
                       const uint8_t *message, uint32_t message_bytes)
{
    if (shape->message_bytes != message_bytes || shape->kind != kind || message_bytes == 0)
        return false;
    for (uint32_t i = 0; i < shape->n_runs; i++) {
        if (memcmp(shape->bytes + shape->runs[i].from, message + shape->runs[i].at,
                   shape->runs[i].len) != 0)
            return false;
    }
    return true;
}

void walker_resume(struct walker *w, const struct walker *walked)
{
    w->kind = walked->kind;
    w->look_bytes = walked->look_bytes;
    w->committed = true;
    w->why = REFUSAL_NONE;
    w->at = w->message_bytes = walked->message_bytes;
    w->choice = walked->choice;
    text_set(&w->name, walked->name.bytes, walked->name.len);
    text_set(&w->version, walked->version.bytes, walked->version.len);
}

const char *walker_explain(const struct walker *w, char *dst, size_t size)
{
    const struct walker_text *other = &w->scratch;
    const char *what = w->seen_choice == WALKER_LABEL ? "label" : "version";

    switch ((enum refusal)w->why) {
    case REFUSAL_NAME_TOO_LONG:
        snprintf(dst, size, "the model name has %" PRIu64 " bytes, over the limit of %d", w->varint,
                 WALKER_NAME_MAX);
        break;
    case REFUSAL_VERSION_TOO_LONG:
        snprintf(dst, size, "the model version has %" PRIu64 " bytes, over the limit of %d",
                 w->varint, WALKER_NAME_MAX);
        break;
    case REFUSAL_NAME_DIFFERS:
        snprintf(dst, size,
                 "the request names model \"%.*s\" and then \"%.*s\": one call, one model",
                 w->name.len, w->name.bytes, other->len, other->bytes);
        break;
    case REFUSAL_VERSION_DIFFERS:
        snprintf(dst, size, "the request for model \"%.*s\" names %s \"%.*s\" after \"%.*s\"",
                 w->name.len, w->name.bytes, what, other->len, other->bytes, w->version.len,
                 w->version.bytes);
        break;
    case REFUSAL_NAME_MISSING:
        snprintf(dst, size, "a message of the call for model \"%.*s\" names no model", w->name.len,
                 w->name.bytes);
        break;
    case REFUSAL_VERSION_MISSING:
        snprintf(dst, size,
                 "a message of the call for version \"%.*s\" of \"%.*s\" names no version",
                 w->version.len, w->version.bytes, w->name.len, w->name.bytes);
        break;
    default:
        snprintf(dst, size, "%s", refusal_texts[w->why]);
        break;
    }
    return dst;
}

static size_t put_varint(uint8_t *dst, uint64_t value)
{
    size_t n = 0;

    for (; value >= 0x80; value >>= 7)
        dst[n++] = (uint8_t)(value | 0x80);
    dst[n++] = (uint8_t)value;
    return n;
}

/* -?[0-9]+ within int64 */
static bool parse_number(const char *text, size_t len, int64_t *ret_number)
{
    char copy[24];
    char *end;

    if (len == 0 || len >= sizeof(copy) || !(text[0] == '-' || (text[0] >= '0' && text[0] <= '9')))
        return false;
    memcpy(copy, text, len);
    copy[len] = '\0';
    errno = 0;
    *ret_number = strtoll(copy, &end, 10);
    return errno == 0 && end == copy + len && end[-1] != '-';
}

size_t walker_override(enum walker_kind kind, const char *version, size_t version_len,
                       uint8_t dst[WALKER_OVERRIDE_MAX])
{
    uint8_t value[VALUE_MAX_BYTES];
    size_t n = 0, value_len;
    int64_t number;

    if (kind == WALKER_NAME_VERSION && version_len <= WALKER_NAME_MAX) {
        dst[n++] = 2 << 3 | WIRE_LENGTH;
        n += put_varint(dst + n, version_len);
        if (version_len > 0)
            memcpy(dst + n, version, version_len);
        return n + version_len;
    }
    if (kind != WALKER_MODEL_SPEC || !parse_number(version, version_len, &number))
        return 0;
    value_len = put_varint(value, (uint64_t)number);
    dst[n++] = 1 << 3 | WIRE_LENGTH; /* model_spec */
    dst[n++] = (uint8_t)(value_len + 3);
    dst[n++] = 2 << 3 | WIRE_LENGTH; /* version: Int64Value */
    dst[n++] = (uint8_t)(value_len + 1);
    dst[n++] = 1 << 3 | WIRE_VARINT; /* value */
    memcpy(dst + n, value, value_len);
    return n + value_len;
}
