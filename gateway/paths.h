/* gateway/paths.h - what a worker knows of the paths that its clients call: few, again and again.
 *
 * Owns:      its rows; what they point to belongs to tables that do not change.
 * Called by: session.c (a new call), worker.c (another snapshot).
 * Lifetime:  member of struct worker; a zeroed one is empty.
 * Thread:    its worker's.
 */
#ifndef GATEWAY_PATHS_H
#define GATEWAY_PATHS_H

#include "gateway/local.h"
#include "gateway/route.h"

#define PATHS_ROWS     16u  /* a client calls a handful of methods */
#define PATHS_TEXT_MAX 112u /* longer ones are looked up each time */

struct path_row {
    const struct local_method *local; /* answered by the gateway; NULL: relayed, by route */
    struct route_path route;          /* its service points to the path that was asked for */
    uint32_t len;                     /* of text; 0: empty */
    char text[PATHS_TEXT_MAX];
};

struct paths {
    struct path_row rows[PATHS_ROWS];
    struct path_row last; /* of a path that is not kept */
};

/* What the snapshot makes of paths; the same from paths_reset to paths_reset. */
struct paths_rules {
    const struct local *local;
    bool has_kserve, has_tensorflow; /* as of route_of_path */
};

/* Valid until the next call. path as the client sent it, well-formed or not. */
const struct path_row *paths_find(struct paths *p, const struct paths_rules *rules,
                                  const char *path, size_t len);
void paths_reset(struct paths *p);

#endif
