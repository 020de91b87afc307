/* tests/fuzz/frames.c - libFuzzer's mutator for inputs that are HTTP/2 frames behind a few bytes of
 * options: it cuts, doubles, swaps, retypes and changes whole frames and keeps their lengths true,
 * so that most of what it makes comes past the first frame.
 *
 * Called by: libFuzzer only (the replay in ./dev test has nothing to mutate).
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#ifndef FRAMES_AFTER
#define FRAMES_AFTER 3u /* bytes of options; the build of each target says how many */
#endif
#define FRAMES_MAX  256u
#define HEAD_BYTES  9u
#define TYPES_KNOWN 10u

size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t max_size);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned seed);
size_t LLVMFuzzerCustomCrossOver(const uint8_t *a, size_t a_len, const uint8_t *b, size_t b_len,
                                 uint8_t *dst, size_t max_len, unsigned seed);

struct span {
    size_t at, len;
};

static uint32_t next(uint32_t *seed)
{
    *seed = *seed * 1664525u + 1013904223u;
    return *seed >> 8;
}

static size_t find_frames(const uint8_t *p, size_t size, struct span *frames)
{
    size_t at = FRAMES_AFTER, n = 0;

    while (n < FRAMES_MAX && at + HEAD_BYTES <= size) {
        const size_t len = (size_t)p[at] << 16 | (size_t)p[at + 1] << 8 | p[at + 2];

        if (len > size - at - HEAD_BYTES)
            break;
        frames[n++] = (struct span){at, HEAD_BYTES + len};
        at += HEAD_BYTES + len;
    }
    return n;
}

/* Put src where was lies; what follows moves. Returns the new size, or size when there's no room.
 */
static size_t replace(uint8_t *data, size_t size, size_t max_size, struct span was,
                      const uint8_t *src, size_t len)
{
    if (size - was.len + len > max_size)
        return size;
    memmove(data + was.at + len, data + was.at + was.len, size - was.at - was.len);
    if (len > 0)
        memcpy(data + was.at, src, len);
    return size - was.len + len;
}

static void set_length(uint8_t *frame, size_t len)
{
    frame[0] = (uint8_t)(len >> 16);
    frame[1] = (uint8_t)(len >> 8);
    frame[2] = (uint8_t)len;
}

static size_t change_payload(uint8_t *data, size_t size, size_t max_size, struct span f)
{
    const size_t payload = f.len - HEAD_BYTES;
    const size_t room = payload + 64 < max_size - size + payload ? payload + 64 : payload;
    uint8_t *copy = malloc(HEAD_BYTES + room + 1);
    size_t len;

    if (copy == NULL)
        return size;
    memcpy(copy, data + f.at, f.len);
    len = room > 0 ? LLVMFuzzerMutate(copy + HEAD_BYTES, payload, room) : 0;
    set_length(copy, len);
    size = replace(data, size, max_size, f, copy, HEAD_BYTES + len);
    free(copy);
    return size;
}

static void change_head(uint8_t *frame, uint32_t *seed)
{
    const uint32_t how = next(seed) % 6;

    if (how == 0)
        frame[3] = (uint8_t)(next(seed) % (TYPES_KNOWN + 1));
    else if (how == 1)
        frame[4] ^= (uint8_t)(1u << next(seed) % 6);
    else if (how == 2)
        frame[8] = (uint8_t)(1 + 2 * (next(seed) % 8));
    else if (how == 3)
        frame[8] = (uint8_t)(frame[8] + 2);
    else if (how == 4)
        frame[8] = (uint8_t)next(seed);
    else
        frame[next(seed) % HEAD_BYTES] ^= (uint8_t)(1u << next(seed) % 8);
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned seed)
{
    struct span frames[FRAMES_MAX], *f;
    uint32_t s = seed;
    size_t n = find_frames(data, size, frames);

    if (n == 0 || next(&s) % 8 == 0)
        return LLVMFuzzerMutate(data, size, max_size);
    f = &frames[next(&s) % n];
    switch (next(&s) % 8) {
    case 0:
        return replace(data, size, max_size, *f, NULL, 0);
    case 1: { /* double it, in place or at another place */
        uint8_t *copy = malloc(f->len);
        const struct span to = {frames[next(&s) % n].at, 0};

        if (copy == NULL)
            return size;
        memcpy(copy, data + f->at, f->len);
        size = replace(data, size, max_size, to, copy, f->len);
        free(copy);
        return size;
    }
    case 2: /* a piece of a frame on its own, with flags that may say that more comes */
        if (f->len > HEAD_BYTES + 1 && size + HEAD_BYTES <= max_size) {
            const size_t cut = HEAD_BYTES + 1 + next(&s) % (f->len - HEAD_BYTES - 1);
            uint8_t head[HEAD_BYTES];

            memcpy(head, data + f->at, HEAD_BYTES);
            set_length(head, f->len - cut);
            if (head[3] == 1) {
                head[3] = 9;
                data[f->at + 4] &= (uint8_t)~4u;
            }
            set_length(data + f->at, cut - HEAD_BYTES);
            return replace(data, size, max_size, (struct span){f->at + cut, 0}, head, HEAD_BYTES);
        }
        return size;
    case 3:
    case 4:
        change_head(data + f->at, &s);
        return size;
    case 5:
        data[next(&s) % FRAMES_AFTER] = (uint8_t)next(&s);
        return size;
    default:
        return change_payload(data, size, max_size, *f);
    }
}

/* The first frames of a, then the last ones of b. */
size_t LLVMFuzzerCustomCrossOver(const uint8_t *a, size_t a_len, const uint8_t *b, size_t b_len,
                                 uint8_t *dst, size_t max_len, unsigned seed)
{
    struct span frames_a[FRAMES_MAX], frames_b[FRAMES_MAX];
    const size_t n_a = find_frames(a, a_len, frames_a), n_b = find_frames(b, b_len, frames_b);
    uint32_t s = seed;
    size_t head, from;

    if (n_a == 0 || n_b == 0)
        return 0;
    head = frames_a[next(&s) % n_a].at;
    from = frames_b[next(&s) % n_b].at;
    if (head + (b_len - from) > max_len)
        return 0;
    memcpy(dst, a, head);
    memcpy(dst + head, b + from, b_len - from);
    return head + (b_len - from);
}
