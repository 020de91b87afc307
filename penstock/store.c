#include "penstock/store.h"

#include <errno.h>
#include <limits.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/xalloc.h"

#define SCHEMA_VERSION 1
#define NUMBER_MAX     (INT64_C(1) << 53) /* whole in JSON, and never reached by counting */

struct store {
    sqlite3 *db;
    sqlite3_stmt *add;
    sqlite3_stmt *each;
    uint64_t newest;
    char path[PATH_MAX];
};

static const char schema[] =
    "CREATE TABLE IF NOT EXISTS generation ("
    " number INTEGER PRIMARY KEY, created_us INTEGER NOT NULL, author TEXT NOT NULL,"
    " reason TEXT NOT NULL, source TEXT NOT NULL, diff TEXT NOT NULL);"
    "PRAGMA user_version = 1;";

static int damaged(const struct store *s, const char *how, struct err *err)
{
    return err_set(err, -EBADMSG, "%s is damaged (%s): restore it, or move it away to begin anew",
                   s->path, how);
}

static int fault(const struct store *s, const char *what, struct err *err)
{
    const int code = sqlite3_errcode(s->db) & 0xff;
    const char *const text = sqlite3_errmsg(s->db);

    if (code == SQLITE_BUSY || code == SQLITE_LOCKED)
        return err_set(err, -EBUSY, "%s: another process has this state folder", s->path);
    if (code == SQLITE_CORRUPT || code == SQLITE_NOTADB)
        return damaged(s, text, err);
    return err_set(err, code == SQLITE_FULL ? -ENOSPC : -EIO, "%s: %s: %s", s->path, what, text);
}

static int run(struct store *s, const char *sql, const char *what, struct err *err)
{
    return sqlite3_exec(s->db, sql, NULL, NULL, NULL) == SQLITE_OK ? 0 : fault(s, what, err);
}

static int first_int(struct store *s, const char *sql, int64_t *ret_value, struct err *err)
{
    sqlite3_stmt *st = NULL;
    int r = 0;

    if (sqlite3_prepare_v2(s->db, sql, -1, &st, NULL) != SQLITE_OK ||
        sqlite3_step(st) != SQLITE_ROW)
        r = fault(s, sql, err);
    else
        *ret_value = sqlite3_column_int64(st, 0);
    sqlite3_finalize(st);
    return r;
}

static int is_whole(struct store *s, struct err *err)
{
    sqlite3_stmt *st = NULL;
    const char *text = NULL;
    int r = 0;

    if (sqlite3_prepare_v2(s->db, "PRAGMA quick_check(1)", -1, &st, NULL) != SQLITE_OK ||
        sqlite3_step(st) != SQLITE_ROW) {
        r = fault(s, "check", err);
    } else {
        text = (const char *)sqlite3_column_text(st, 0);
        if (text == NULL || strcmp(text, "ok") != 0)
            r = damaged(s, text == NULL ? "?" : text, err);
    }
    sqlite3_finalize(st);
    return r;
}

static int prepare(struct store *s, struct err *err)
{
    static const char add[] =
        "INSERT INTO generation (number, created_us, author, reason, source, diff)"
        " VALUES (?, ?, ?, ?, ?, ?)";
    static const char each[] = "SELECT number, created_us, author, reason, source, diff"
                               " FROM generation WHERE number <= ? ORDER BY number DESC";

    if (sqlite3_prepare_v2(s->db, add, -1, &s->add, NULL) != SQLITE_OK ||
        sqlite3_prepare_v2(s->db, each, -1, &s->each, NULL) != SQLITE_OK)
        return fault(s, "prepare", err);
    return 0;
}

static int open_db(struct store *s, struct err *err)
{
    int64_t version = 0, newest = 0;
    int r = 0;

    if (sqlite3_open_v2(s->path, &s->db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, NULL) !=
        SQLITE_OK)
        return fault(s, "open", err);
    /* Exclusive: a second controller on the same state is refused, not interleaved. */
    r = run(
        s, "PRAGMA locking_mode = EXCLUSIVE; PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;",
        "open", err);
    if (r == 0)
        r = first_int(s, "PRAGMA user_version", &version, err);
    if (r == 0 && version > SCHEMA_VERSION)
        r = err_set(err, -EPROTO, "%s was written by a newer penstock (schema %lld, this is %d)",
                    s->path, (long long)version, SCHEMA_VERSION);
    if (r == 0)
        r = is_whole(s, err);
    if (r == 0)
        r = run(s, schema, "schema", err);
    if (r == 0)
        r = first_int(s, "SELECT coalesce(max(number), 0) FROM generation", &newest, err);
    if (r == 0 && (newest < 0 || newest >= NUMBER_MAX))
        r = damaged(s, "a generation's number is out of range", err);
    if (r == 0)
        r = prepare(s, err);
    s->newest = (uint64_t)newest;
    return r;
}

int store_open(struct store **ret_store, const char *folder, struct err *err)
{
    struct store *const s = xcalloc(1, sizeof(*s));
    int r = 0;

    if ((size_t)snprintf(s->path, sizeof(s->path), "%s/penstock.db", folder) >= sizeof(s->path))
        r = err_set(err, -ENAMETOOLONG, "state folder: the path is over %d bytes", PATH_MAX - 1);
    else if (mkdir(folder, 0750) != 0 && errno != EEXIST)
        r = err_set(err, -errno, "state folder %s: %s", folder, strerror(errno));
    else
        r = open_db(s, err);
    *ret_store = r == 0 ? s : store_close(s);
    return r;
}

struct store *store_close(struct store *s)
{
    if (s == NULL)
        return NULL;
    sqlite3_finalize(s->add);
    sqlite3_finalize(s->each);
    sqlite3_close(s->db);
    free(s);
    return NULL;
}

uint64_t store_newest(const struct store *s)
{
    return s->newest;
}

int store_add(struct store *s, const struct stored_generation *g, struct err *err)
{
    int r = 0;

    if (g->number != s->newest + 1)
        return err_set(err, -ESTALE, "generation %llu does not follow %llu",
                       (unsigned long long)g->number, (unsigned long long)s->newest);
    sqlite3_bind_int64(s->add, 1, (sqlite3_int64)g->number);
    sqlite3_bind_int64(s->add, 2, (sqlite3_int64)g->created_us);
    sqlite3_bind_text(s->add, 3, g->author, -1, SQLITE_STATIC);
    sqlite3_bind_text(s->add, 4, g->reason, -1, SQLITE_STATIC);
    sqlite3_bind_text(s->add, 5, g->source, -1, SQLITE_STATIC);
    sqlite3_bind_text(s->add, 6, g->diff, -1, SQLITE_STATIC);
    if (sqlite3_step(s->add) != SQLITE_DONE)
        r = fault(s, "add a generation", err);
    else
        s->newest = g->number;
    sqlite3_reset(s->add);
    sqlite3_clear_bindings(s->add);
    return r;
}

static const char *column(sqlite3_stmt *st, int i)
{
    const char *const text = (const char *)sqlite3_column_text(st, i);

    return text == NULL ? "" : text;
}

int store_each(struct store *s, uint64_t from, store_each_fn fn, void *arg, struct err *err)
{
    int r = SQLITE_DONE;

    sqlite3_bind_int64(s->each, 1, from == 0 ? INT64_MAX : (sqlite3_int64)from);
    while ((r = sqlite3_step(s->each)) == SQLITE_ROW) {
        const struct stored_generation g = {
            .number = (uint64_t)sqlite3_column_int64(s->each, 0),
            .created_us = (uint64_t)sqlite3_column_int64(s->each, 1),
            .author = column(s->each, 2),
            .reason = column(s->each, 3),
            .source = column(s->each, 4),
            .diff = column(s->each, 5),
        };

        if (!fn(arg, &g)) {
            r = SQLITE_DONE;
            break;
        }
    }
    if (r != SQLITE_DONE)
        r = fault(s, "read generations", err);
    else
        r = 0;
    sqlite3_reset(s->each);
    return r;
}
