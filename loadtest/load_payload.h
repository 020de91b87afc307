/* loadtest/load_payload.h - what penstock-load sends, and whether an answer belongs to it.
 *
 * Owns:      the prepared parts of the messages.
 * Called by: load_gen.c.
 * Lifetime:  load_payload_init .. load_payload_fini.
 * Thread:    after init read-only: all threads share one. load_check has its own scratch.
 *
 * Call number n of a run always has the same message. A KServe request is put together from a head
 * (model and version), the id and a prepared tail (the tensor), so that 50,000 a second cost
 * little.
 */
#ifndef LOADTEST_LOAD_PAYLOAD_H
#define LOADTEST_LOAD_PAYLOAD_H

#include "base/arena.h"
#include "base/buf.h"
#include "base/err.h"
#include "loadtest/fashion.h"

enum load_kind {
    LOAD_RAW = 0, /* --message: one file; answers can't be told apart unless --expect says what */
    LOAD_ECHO,    /* --echo: a number and bytes; the answer must be the same */
    LOAD_KSERVE,  /* --model: Fashion-MNIST images; the answer must have the id */
    LOAD_TF,      /* --model --protocol tf: the answer must have the model and the batch size */
};

struct load_payload_conf {
    enum load_kind kind;
    bool is_stream;      /* KServe: answers come as ModelStreamInferResponse */
    const char *path;    /* NULL: the kind's usual method */
    const char *message; /* file of RAW */
    const char *expect;  /* RAW: NULL: anything, "same", or a file */
    uint32_t echo_bytes;
    const char *model, *version; /* version NULL: the server's choice */
    bool version_is_label;       /* TF: version_label */
    uint32_t batch;              /* images of one request */
    bool is_typed;               /* tensors as repeated floats, not raw bytes */
    uint32_t n_images;           /* of the test set, in turn */
    const char *data;            /* Fashion-MNIST's folder or NULL */
    uint32_t run;                /* in each id: two runs have no id in common */
};

struct load_payload {
    struct load_payload_conf conf;
    const char *path;
    struct fashion_set set; /* KSERVE, TF */
    struct buf head;        /* RAW: the message; ECHO: bytes; KSERVE, TF: model and version */
    struct buf expect;      /* RAW */
    struct buf *tails;      /* KSERVE, TF: n_tails tensors */
    uint32_t n_tails;
};

/* 0 or -errno with err that names option or file. */
int load_payload_init(struct load_payload *p, const struct load_payload_conf *conf,
                      struct err *err);
void load_payload_fini(struct load_payload *p); /* works on a zeroed one */

#define LOAD_MAX_MESSAGE_BYTES (UINT32_C(1) << 30)

/* "RUN-THREAD-N", RUN in hex: the id in KServe requests, and of --request-ids. Returns its length.
 */
#define LOAD_ID_SIZE 48
size_t load_payload_id(const struct load_payload *p, uint32_t thread, uint64_t n,
                       char dst[LOAD_ID_SIZE]);
/* Append the message of call n. */
void load_payload_build(const struct load_payload *p, uint32_t thread, uint64_t n, struct buf *ret);

struct load_check {
    bool belongs;     /* the answer is one to this request */
    char version[32]; /* that answered; "": the answer does not say */
    uint32_t n_images, n_correct;
    char in_band[160]; /* error inside the stream; "": none */
};
/* Examine the answer to call n. scratch: reset by this. */
void load_payload_check(const struct load_payload *p, uint32_t thread, uint64_t n,
                        const uint8_t *answer, size_t len, struct arena *scratch,
                        struct load_check *ret_check);

#endif
