/* proto/walker.h - finds model name and version in a request message while its bytes pass by.
 *
 * A state machine over protobuf tags. It reads one tag and one length for each field, skips tensors
 * by length, and keeps nothing but name and version.
 *
 * Owns:      copies of name and version, in itself (plain data; no end needed).
 * Called by: the relay, for each request message of a call, before it passes the bytes on.
 * Lifetime:  walker_init per call; walker_begin per message; walker_feed until its last byte.
 * Thread:    one.
 * Source:    protobuf encoding (protobuf.dev/programming-guides/encoding), KServe v2 and
 *            tensorflow.serving; what decoders really do with odd input was checked against the
 *            protobuf library (tests/unit/walker_oracle.py).
 *
 * Invariants:
 *  - What the walker reports at the end of a message is what a decoder of the protobuf library
 *    yields: the last value of a string wins, embedded messages merge, the later member of a oneof
 *    wins. Or the walker refuses. It never reports another name or version.
 *  - After walker_commit no message is completed that a decoder would read differently: the piece
 *    with the offending byte (or, where a committed name is missing, the last piece) is refused. So
 *    the caller feeds a piece first and passes it on after.
 *  - A field of a wrong wire type is an unknown field: skipped. Non-minimal varints are read as
 *    decoders read them: tags and lengths up to 5 bytes, values up to 10.
 *  - MultiInference: the first task counts, as in the server; the others must name the same model,
 *    and the same version or none.
 *  - Refused, since decoders differ or fail: groups (wire types 3 and 4), wire types 6 and 7, field
 *    number 0, tags and lengths past 32 bits or 5 bytes, varints over 10 bytes, an Int64Value past
 * 64 bits, a field that overruns its message, a truncated message, and a name, version or label
 * that is not UTF-8 or over WALKER_NAME_MAX bytes.
 *  - What lies inside skipped fields is the server's to judge.
 */
#ifndef PROTO_WALKER_H
#define PROTO_WALKER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define WALKER_NAME_MAX   255   /* bytes of a name, version or label; catalogues use far fewer */
#define WALKER_LOOK_BYTES 65536 /* how far into a message it looks for a name by default */

enum walker_kind {
    WALKER_NONE = 0,     /* no model in the message: route by path */
    WALKER_NAME_VERSION, /* KServe v2: name 1, version 2, strings */
    WALKER_MODEL_SPEC,   /* tensorflow.serving: model_spec 1 */
    WALKER_TASKS,        /* MultiInference: tasks 1, each with model_spec 1 */
};

/* path: "/inference.GRPCInferenceService/ModelInfer". WALKER_NONE for all others. */
enum walker_kind walker_kind_of_path(const char *path, size_t len);

enum walker_result {
    WALKER_MORE = 0, /* go on; after the commit: all is well so far */
    WALKER_READY,    /* not committed, and it makes sense to route now */
    WALKER_BLIND,    /* not committed, looked as far as allowed, and no name came */
    WALKER_REFUSED,  /* see walker_explain; answer INVALID_ARGUMENT. Stays so. */
};

enum walker_choice {
    WALKER_ANY = 0, /* no version named: the traffic split, or the server, chooses */
    WALKER_VERSION, /* a version; KServe strings may also hold one of our labels */
    WALKER_LABEL,   /* tensorflow.serving version_label */
};

struct walker_text {
    uint8_t len;
    char bytes[WALKER_NAME_MAX];
};

struct walker { /* read name, version, choice; the rest is walker.c's business */
    struct walker_text name;
    struct walker_text version; /* of choice; decimal for tensorflow.serving */
    enum walker_choice choice;

    enum walker_kind kind;
    uint32_t look_bytes;
    bool committed;
    bool past_fields; /* a top-level field behind those of name and version has begun */
    uint8_t why;      /* enum refusal; 0: none */
    uint8_t phase;    /* enum phase */
    uint8_t depth;
    uint8_t rule;         /* what the value that is being read means */
    uint8_t enter;        /* the level of the message that begins with it */
    uint8_t varint_bytes; /* of the tag, length or value that is being read */
    uint64_t varint;
    uint32_t at, message_bytes; /* position in the message, its length */
    uint32_t left_bytes;        /* of the field that is being skipped or copied */
    struct {
        uint32_t end;
        uint8_t level;
    } stack[4]; /* message, task, model_spec, Int64Value */

    /* What this message (in MultiInference: this task) has said so far. */
    bool name_seen;
    enum walker_choice seen_choice;
    int64_t number;             /* while seen_choice is WALKER_VERSION in a model_spec */
    uint32_t n_tasks;           /* complete ones */
    struct walker_text scratch; /* the string that is being read */
};

/* look_bytes: 0 for WALKER_LOOK_BYTES. kind: not WALKER_NONE. */
void walker_init(struct walker *w, enum walker_kind kind, uint32_t look_bytes);

/* A message of message_bytes (from its prefix; uncompressed) begins. An empty one is also complete:
 * the result is walker_feed's. */
enum walker_result walker_begin(struct walker *w, uint32_t message_bytes);

/* The next bytes of that message, in any pieces; together never more than message_bytes.
 * WALKER_READY comes when the name is known and a field behind name and version begins, or the
 * message is complete (then also without a name), or look_bytes were seen. It repeats until
 * walker_commit. */
enum walker_result walker_feed(struct walker *w, const uint8_t *p, size_t len);

/* The same, but it takes no byte past the one with which WALKER_READY comes for the first time: who
 * commits there refuses or takes a message alike however its bytes were cut. ret_taken: of len. */
enum walker_result walker_feed_to_ready(struct walker *w, const uint8_t *p, size_t len,
                                        size_t *ret_taken);

bool walker_is_complete(const struct walker *w); /* the whole message was seen */

/* The call is routed by name, version and choice as they are now: from here on, in this and in
 * later messages, everything must agree with them. */
void walker_commit(struct walker *w);

/* The same after WALKER_BLIND, with a name and version from a header (up to WALKER_NAME_MAX bytes
 * each). Refuses when the message has already named another version. choice: with WALKER_ANY the
 * message may not name a version later. */
enum walker_result walker_commit_hint(struct walker *w, const char *name, size_t name_len,
                                      enum walker_choice choice, const char *version,
                                      size_t version_len);

/* Messages of one shape: alike in kind, length and every byte that the walker reads, whatever lies
 * in the fields that it skips. It makes the same of each of them. */
#define WALKER_SHAPE_RUNS  12 /* stretches of bytes that it reads */
#define WALKER_SHAPE_BYTES 96 /* of all of them */
struct walker_shape {
    enum walker_kind kind;
    uint32_t message_bytes; /* 0: no shape */
    uint32_t n_runs;
    struct {
        uint32_t at;       /* in the message */
        uint8_t from, len; /* in bytes */
    } runs[WALKER_SHAPE_RUNS];
    uint8_t bytes[WALKER_SHAPE_BYTES];
};

/* Walk a whole message, with the commit as soon as it is READY. true: it names a model, is to be
 * relayed, and has a shape. ret_walker: as after its last byte. */
bool walker_take_shape(struct walker_shape *ret_shape, struct walker *ret_walker,
                       enum walker_kind kind, const uint8_t *message, uint32_t message_bytes);
bool walker_shape_fits(const struct walker_shape *shape, enum walker_kind kind,
                       const uint8_t *message, uint32_t message_bytes);
/* w, not begun, becomes what it is after a message that walked was fed with; later ones may come.
 * walked: of walker_take_shape. */
void walker_resume(struct walker *w, const struct walker *walked);

/* Why it refused, as a sentence without end mark that names field, value and rule. "" if it did
 * not. */
const char *walker_explain(const struct walker *w, char *dst, size_t size);

/* The bytes to append to a message of this kind so that the server uses version, whatever the
 * message says: KServe field 2; a model_spec with only the version (a decimal int64) else. Add
 * their count to the length in the message's prefix. Returns it; 0: can't be done (WALKER_TASKS: a
 * second task would be added; version not a number; too long). */
#define WALKER_OVERRIDE_MAX (WALKER_NAME_MAX + 3)
size_t walker_override(enum walker_kind kind, const char *version, size_t version_len,
                       uint8_t dst[WALKER_OVERRIDE_MAX]);

#endif
