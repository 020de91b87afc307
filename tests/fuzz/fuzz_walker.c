/* tests/fuzz/fuzz_walker.c - the tag walker on any bytes, in any pieces.
 *
 * Input: kind, look_bytes (0: default), seed of the pieces, then the message.
 * Holds: pieces change nothing; a call that was committed early and passed ends where an unhurried
 * reading ends; an appended override wins.
 */
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/rng.h"
#include "base/xalloc.h"
#include "proto/walker.h"

#define MESSAGE_MAX 4096 /* long ones find nothing that short ones don't */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static bool same_text(const struct walker_text *a, const struct walker_text *b)
{
    return a->len == b->len && memcmp(a->bytes, b->bytes, a->len) == 0;
}

static bool same_finding(const struct walker *a, const struct walker *b)
{
    return same_text(&a->name, &b->name) && a->choice == b->choice &&
           same_text(&a->version, &b->version);
}

/* Each piece lies in memory of its own, so that ASan sees a read past it. rng NULL: one piece. */
static enum walker_result walk(struct walker *w, enum walker_kind kind, uint32_t look_bytes,
                               const uint8_t *p, size_t len, struct rng *rng, bool commit)
{
    enum walker_result r;
    char why[1200];

    walker_init(w, kind, look_bytes);
    r = walker_begin(w, (uint32_t)len);
    while (len > 0) {
        const size_t n = rng == NULL ? len : 1 + rng_below(rng, len < 40 ? len : 40);
        uint8_t *piece = xcalloc(n, 1);

        memcpy(piece, p, n);
        r = walker_feed(w, piece, n);
        free(piece);
        if (r == WALKER_READY && commit) {
            walker_commit(w);
            r = WALKER_MORE;
        }
        p += n;
        len -= n;
    }
    check((r == WALKER_REFUSED) == (walker_explain(w, why, sizeof(why))[0] != '\0'));
    check(r == WALKER_REFUSED || walker_is_complete(w));
    return r;
}

static void check_override(const struct walker *w, enum walker_kind kind, const uint8_t *p,
                           size_t len)
{
    uint8_t joined[MESSAGE_MAX + WALKER_OVERRIDE_MAX];
    struct walker again;
    size_t n;

    memcpy(joined, p, len);
    n = walker_override(kind, "42", 2, joined + len);
    check((n == 0) == (kind == WALKER_TASKS));
    if (n == 0)
        return;
    check(walk(&again, kind, 0, joined, len + n, NULL, false) == WALKER_READY);
    check(same_text(&again.name, &w->name) && again.choice == WALKER_VERSION);
    check(again.version.len == 2 && memcmp(again.version.bytes, "42", 2) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct walker whole, split, early;
    enum walker_result r;
    enum walker_kind kind;
    struct rng rng;

    if (size < 3 || size > MESSAGE_MAX + 3)
        return 0;
    kind = (enum walker_kind)(1 + data[0] % 3);
    rng_init(&rng, data[2]);
    r = walk(&whole, kind, 0, data + 3, size - 3, NULL, false);
    check(walk(&split, kind, 0, data + 3, size - 3, &rng, false) == r);
    check(split.why == whole.why);
    if (r != WALKER_REFUSED) {
        check(same_finding(&split, &whole));
        check_override(&whole, kind, data + 3, size - 3);
    }
    if (walk(&early, kind, data[1], data + 3, size - 3, &rng, true) != WALKER_REFUSED) {
        check(r == WALKER_READY);
        check(same_finding(&early, &whole));
    }
    return 0;
}
