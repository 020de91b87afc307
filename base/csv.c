#include "base/csv.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/xalloc.h"

static int read_all(struct csv *csv, struct err *err)
{
    FILE *const f = fopen(csv->path, "re");
    size_t len = 0, cap = 64 * 1024;

    if (f == NULL)
        return err_set(err, -errno, "%s: %s", csv->path, strerror(errno));
    csv->text = xrealloc(NULL, cap + 1, 1);
    for (size_t n; (n = fread(csv->text + len, 1, cap - len, f)) > 0;) {
        len += n;
        if (len > CSV_MAX_BYTES) {
            fclose(f);
            return err_set(err, -EFBIG, "%s: over the limit of %zu MiB", csv->path,
                           CSV_MAX_BYTES >> 20);
        }
        if (len == cap)
            csv->text = xrealloc(csv->text, (cap *= 2) + 1, 1);
    }
    const int failed = ferror(f) ? errno : 0;

    fclose(f);
    if (failed != 0)
        return err_set(err, -failed, "%s: %s", csv->path, strerror(failed));
    csv->text[len] = '\0';
    if (memchr(csv->text, '\0', len) != NULL)
        return err_set(err, -EINVAL, "%s: holds a NUL byte: no CSV text", csv->path);
    csv->next = csv->text;
    csv->end = csv->text + len;
    return 0;
}

/* A quoted field at p: its text is moved over the quotes. Returns what follows the closing quote,
 * NULL when there is none. */
static char *unquote(char *p)
{
    char *to = p;

    for (char *from = p + 1; *from != '\0'; from++) {
        if (*from == '"' && *++from != '"') {
            const char after = *from;

            *to = '\0'; /* at or before the closing quote */
            return after == ',' || after == '\0' ? from : NULL;
        }
        *to++ = *from;
    }
    return NULL;
}

/* Split the line at csv->next, which is taken. Returns its number of fields (CSV_MAX_COLUMNS + 1:
 * too many), or -EINVAL. */
static int split_line(struct csv *csv, const char **fields, struct err *err)
{
    char *p = csv->next;
    char *const newline = memchr(p, '\n', (size_t)(csv->end - p));
    char *const stop = newline != NULL ? newline : csv->end;
    int n = 0;

    csv->line++;
    csv->next = newline != NULL ? newline + 1 : csv->end;
    *stop = '\0';
    if (stop > p && stop[-1] == '\r')
        stop[-1] = '\0';
    for (;;) {
        char *after = p;

        if (n == CSV_MAX_COLUMNS)
            return n + 1;
        fields[n++] = p;
        if (*p == '"')
            after = unquote(p);
        else
            after = p + strcspn(p, ",\"");
        if (after == NULL || *after == '"')
            return err_set(err, -EINVAL,
                           "%s:%llu: field %d: a quote that is not closed, or not at its ends",
                           csv->path, (unsigned long long)csv->line, n);
        if (*after == '\0')
            return n;
        *after = '\0';
        p = after + 1;
    }
}

int csv_open(struct csv *csv, const char *path, struct err *err)
{
    memset(csv, 0, sizeof(*csv));
    csv->path = path;

    int r = read_all(csv, err);

    if (r != 0)
        return r;
    if (csv->next == csv->end)
        return err_set(err, -EINVAL, "%s: is empty: a header line is wanted", path);
    if (strncmp(csv->next, "\xef\xbb\xbf", 3) == 0)
        csv->next += 3; /* a byte order mark, as spreadsheets write it */
    r = split_line(csv, csv->header, err);
    if (r < 0)
        return r;
    if (r > CSV_MAX_COLUMNS)
        return err_set(err, -EINVAL, "%s:1: over the limit of %d columns", path, CSV_MAX_COLUMNS);
    csv->n_columns = (size_t)r;
    for (size_t i = 0; i < csv->n_columns; i++)
        if (csv_column(csv, csv->header[i]) != (int)i)
            return err_set(err, -EINVAL, "%s:1: column \"%s\": is there twice", path,
                           csv->header[i]);
    return 0;
}

void csv_close(struct csv *csv)
{
    free(csv->text);
    memset(csv, 0, sizeof(*csv));
}

int csv_column(const struct csv *csv, const char *name)
{
    for (size_t i = 0; i < csv->n_columns; i++)
        if (strcmp(csv->header[i], name) == 0)
            return (int)i;
    return -1;
}

int csv_need_column(const struct csv *csv, const char *name, struct err *err)
{
    const int column = csv_column(csv, name);

    if (column < 0)
        return err_set(err, -EINVAL, "%s:1: column \"%s\": is missing from the header", csv->path,
                       name);
    return column;
}

int csv_next(struct csv *csv, struct err *err)
{
    if (csv->next == csv->end)
        return CSV_END;

    const int n = split_line(csv, csv->fields, err);

    if (n < 0)
        return n;
    if ((size_t)n != csv->n_columns)
        return err_set(err, -EINVAL, "%s:%llu: has %s%d fields, its header %zu", csv->path,
                       (unsigned long long)csv->line, n > CSV_MAX_COLUMNS ? "at least " : "", n,
                       csv->n_columns);
    return CSV_ROW;
}

const char *csv_str(const struct csv *csv, int column)
{
    check(column >= 0 && (size_t)column < csv->n_columns);
    return csv->fields[column];
}

int csv_field_error(const struct csv *csv, int column, struct err *err, const char *rule, ...)
{
    char text[200];
    va_list args;

    va_start(args, rule);
    vsnprintf(text, sizeof(text), rule, args);
    va_end(args);
    return err_set(err, -EINVAL, "%s:%llu: column \"%s\": \"%.60s\" %s", csv->path,
                   (unsigned long long)csv->line, csv->header[column], csv_str(csv, column), text);
}

int csv_uint(const struct csv *csv, int column, uint64_t min, uint64_t max, uint64_t *ret,
             struct err *err)
{
    const char *const s = csv_str(csv, column);
    uint64_t value = 0;
    bool bad = *s == '\0';

    for (const char *p = s; *p != '\0' && !bad; p++) {
        const uint64_t digit = (uint64_t)(*p - '0');

        bad = *p < '0' || *p > '9' || value > (UINT64_MAX - digit) / 10;
        value = bad ? 0 : value * 10 + digit;
    }
    if (bad || value < min || value > max)
        return csv_field_error(csv, column, err, "is not a whole number from %llu to %llu",
                               (unsigned long long)min, (unsigned long long)max);
    *ret = value;
    return 0;
}

int csv_double(const struct csv *csv, int column, double min, double max, double *ret,
               struct err *err)
{
    const char *const s = csv_str(csv, column);
    char *after;
    /* Only what a decimal number is written with: strtod takes hexadecimal and "inf" too. */
    const bool plain = s[0] != '\0' && s[strspn(s, "0123456789+-.eE")] == '\0';
    const double value = plain ? strtod(s, &after) : NAN;

    if (!plain || *after != '\0' || !(value >= min && value <= max))
        return csv_field_error(csv, column, err, "is not a number from %g to %g", min, max);
    *ret = value;
    return 0;
}
