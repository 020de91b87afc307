/* base/csv.h - strict reader of a table in a CSV file: columns are found by the names of its
 * header.
 *
 * Owns:      the file's text; fields point into it.
 * Called by: `penstock simulate`, for traces.
 * Lifetime:  csv_open .. csv_close; a row's fields stay valid until then.
 * Thread:    one.
 * Source:    RFC 4180, but for a quoted field that goes over several lines, which is refused.
 *
 *     struct csv csv;
 *     int r = csv_open(&csv, path, err);
 *     const int cpu = r == 0 ? csv_column(&csv, "cpu_milli") : -1;
 *     while (r == 0 && (r = csv_next(&csv, err)) == CSV_ROW)
 *         r = csv_uint(&csv, cpu, 0, UINT32_MAX, &value, err);
 *     csv_close(&csv);
 *
 * A message names the file, the line, the column, the value and the rule:
 * `pods.csv:17: column "num_gpu": "-3" is not a whole number from 0 to 16`.
 */
#ifndef BASE_CSV_H
#define BASE_CSV_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

#define CSV_MAX_COLUMNS 64
#define CSV_MAX_BYTES   ((size_t)256 * 1024 * 1024) /* ten times the largest trace that we read */

enum { CSV_END = 0, CSV_ROW = 1 };

struct csv {
    const char *path; /* the caller's */
    char *text, *next, *end;
    const char *header[CSV_MAX_COLUMNS];
    const char *fields[CSV_MAX_COLUMNS]; /* of the row read last */
    size_t n_columns;
    uint64_t line; /* of the row read last, from 1; 1 is the header */
};

/* Read the file and its header. 0, or -errno with err filled: it can't be read, is too large, holds
 * a NUL byte, has no header, or a name twice in it. csv_close is right in either case. */
int csv_open(struct csv *csv, const char *path, struct err *err);
void csv_close(struct csv *csv); /* works on a zeroed csv */

int csv_column(const struct csv *csv, const char *name); /* its index, or -1 */
/* The same for a column that must be there: -EINVAL with err filled when it isn't. */
int csv_need_column(const struct csv *csv, const char *name, struct err *err);

/* The next row: CSV_ROW, CSV_END, or -EINVAL with err filled (wrong number of fields, bad quotes).
 */
int csv_next(struct csv *csv, struct err *err);

/* A field of the row; column: an index from csv_column. */
const char *csv_str(const struct csv *csv, int column);
/* The same as a whole number from min to max, or a decimal one: 0, or -EINVAL with err filled. */
int csv_uint(const struct csv *csv, int column, uint64_t min, uint64_t max, uint64_t *ret,
             struct err *err);
int csv_double(const struct csv *csv, int column, double min, double max, double *ret,
               struct err *err);
/* -EINVAL, with `FILE:LINE: column "NAME": "VALUE" RULE` in err: for rules of the caller's. */
int csv_field_error(const struct csv *csv, int column, struct err *err, const char *rule, ...)
    PRINTF_LIKE(4, 5);

#endif
