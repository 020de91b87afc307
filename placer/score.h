/* placer/score.h - how good a node is for a shape: a table of functions, one a policy.
 *
 * Called by: placer/picker.c.
 * Thread:    any; pure functions of their arguments; integers only.
 */
#ifndef PLACER_SCORE_H
#define PLACER_SCORE_H

#include <stdint.h>

#include "placer/pack.h"

struct score_ops {
    const char *name; /* the word for --policy */
    /* node has room for s. Returns the score, the higher the better, never INT32_MIN;
     * ret_card: for a share, the card that it is for. */
    int32_t (*score)(const struct pack *p, const struct pack_node *node, const struct shape *s,
                     uint32_t *ret_card);
};

/* bestfit: least free CPU and cards afterwards; the fullest card. fgd: least added fragmentation,
 * 0 .. 100. penstock: the same in steps of 40 milli, then a node that is in use already. */
extern const struct score_ops score_bestfit, score_fgd, score_penstock;

#endif
