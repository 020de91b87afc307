/* penstock/ctl.h - verbs that talk to a running penstock: requests, errors, tables.
 *
 * Owns:      struct ctl is on the verb's stack; answers are freed by json_doc_free.
 * Called by: apply, diff, status, history, rollback, traffic, replicas, nodes, why, jobs.
 * Thread:    main.
 *
 *     struct ctl ctl;
 *     ctl_init(&ctl);
 *     const struct arg options[] = {CTL_OPTIONS(&ctl), ARG_END};
 *     ...
 *     struct json_doc *doc = NULL;
 *     const int r = ctl_get(&ctl, "/v1/replicas", &doc);
 *     if (r != EXIT_SUCCESS)
 *         return r;
 */
#ifndef PENSTOCK_CTL_H
#define PENSTOCK_CTL_H

#include "base/buf.h"
#include "conf/json_in.h"
#include "penstock/args.h"
#include "penstock/verb.h"

struct ctl {
    const char *admin; /* host:port */
    bool json;         /* print the answer as it came */
};
#define CTL_OPTIONS(ctl)                                                                           \
    ARG_STR("admin", "ADDR", &(ctl)->admin,                                                        \
            "admin address of the process; default $PENSTOCK_ADMIN or 127.0.0.1:7080"),            \
        ARG_FLAG("json", &(ctl)->json, "print the answer as JSON")

void ctl_init(struct ctl *c);

/* The answer of a request in ret_doc (NULL after an error). Returns EXIT_SUCCESS, or the exit
 * status of the verb with the error printed: EX_UNAVAILABLE nobody answers there, EX_CONFIG a
 * config was refused (422), EXIT_FAILURE any other. body: JSON. */
int ctl_get(const struct ctl *c, const char *path, struct json_doc **ret_doc);
int ctl_post(const struct ctl *c, const char *path, const char *body, size_t len,
             struct json_doc **ret_doc);
/* With --json: prints the answer and returns true. */
bool ctl_print_json(const struct ctl *c, const struct json_doc *doc);

/* text as it may stand in a path or query: percent-encoded; to be freed. */
char *ctl_escape(const char *text);

/* Rows of cells, printed with columns aligned (the last one is not padded). */
struct ctl_table {
    struct buf cells; /* NUL-terminated strings, row by row */
    size_t n_columns;
    size_t n_cells;
};
void ctl_table_init(struct ctl_table *t, size_t n_columns);
void ctl_table_cell(struct ctl_table *t, const char *fmt, ...) PRINTF_LIKE(2, 3);
void ctl_table_print(struct ctl_table *t); /* and frees */

/* "3 s", "12 min", "4.2 h", "3 d" ago or long. */
void ctl_print_age(char *dst, size_t size, uint64_t us);

#endif
