/* penstock/store.h - the state folder: generations and their history, in SQLite.
 *
 * Owns:      FOLDER/penstock.db; the only file that calls SQLite.
 * Called by: the controller. The data path needs none of it.
 * Lifetime:  store_open .. store_close. One process at a time holds the folder.
 * Thread:    the control loop's. Writes wait for the disk: a generation that was answered for is
 *            there after a power cut.
 *
 * A damaged file is an error that names it, never replaced by an empty one.
 */
#ifndef PENSTOCK_STORE_H
#define PENSTOCK_STORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

struct store;

struct stored_generation {
    uint64_t number; /* 1, 2, ... without gaps */
    uint64_t created_us;
    const char *author, *reason;
    const char *source; /* generation->source_json */
    const char *diff;   /* against the one before, edit_diff */
};

/* Makes folder and file when they are not there. -EBUSY: another process has it; -EBADMSG: damaged;
 * else -errno. */
int store_open(struct store **ret_store, const char *folder, struct err *err);
struct store *store_close(struct store *s); /* returns NULL */

/* g->number must be one more than the newest, else -ESTALE. */
int store_add(struct store *s, const struct stored_generation *g, struct err *err);
uint64_t store_newest(const struct store *s); /* 0: none yet */

/* Newest first, from number `from` down (0: the newest); fn returns false to stop. The strings live
 * for the call. 0 or -errno. */
typedef bool (*store_each_fn)(void *arg, const struct stored_generation *g);
int store_each(struct store *s, uint64_t from, store_each_fn fn, void *arg, struct err *err);

#endif
