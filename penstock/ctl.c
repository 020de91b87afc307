#include "penstock/ctl.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/xalloc.h"
#include "net/http.h"

#define TABLE_CEILING (16u * 1024 * 1024)
#define TABLE_COLUMNS 16

void ctl_init(struct ctl *c)
{
    c->admin = args_default_admin();
    c->json = false;
}

/* {"error": "one line", "problems": ["...", ...]} */
static int print_refusal(const struct ctl *c, const char *path, int status, const char *body,
                         size_t len)
{
    struct json_doc *const doc = json_doc_parse(body, len, NULL);
    const struct json_at *const top = doc == NULL ? NULL : json_doc_top(doc);
    const struct json_at *const problems = json_at_member(top, "problems");

    for (size_t i = 0; i < json_at_n(problems); i++)
        fprintf(stderr, "%s\n", json_at_str(json_at_item(problems, i), NULL, ""));
    if (doc == NULL)
        fprintf(stderr,
                "penstock: %s answered HTTP %d without JSON: is it a penstock's admin "
                "address?\n",
                c->admin, status);
    else if (json_at_member(top, "pages") != NULL)
        fprintf(stderr,
                "penstock: the process at %s has no %.*s: only `penstock up` has a controller\n",
                c->admin, (int)strcspn(path, "?"), path);
    else
        fprintf(stderr, "penstock: %s\n", json_at_str(top, "error", "the answer makes no sense"));
    json_doc_free(doc);
    return status == 422 ? EX_CONFIG : EXIT_FAILURE;
}

static int request(const struct ctl *c, const char *path, const char *body, size_t len,
                   struct json_doc **ret_doc)
{
    char *const url = xasprintf("http://%s%s", c->admin, path);
    const char *const headers[] = {"Content-Type: application/json", NULL};
    const struct http_request req = {
        .url = url, .headers = headers, .body = body, .body_len = len, .timeout_us = 60 * US_PER_S};
    struct http_response resp = {0};
    struct err err = {0};
    int result = EXIT_SUCCESS;

    *ret_doc = NULL;
    if (http_do(&req, &resp, &err) < 0) {
        fprintf(stderr, "penstock: no answer from the admin address %s: %s\n", c->admin, err.text);
        free(url);
        return EX_UNAVAILABLE;
    }
    free(url);
    if (resp.status < 200 || resp.status > 299) {
        result = print_refusal(c, path, resp.status, resp.body, resp.body_len);
    } else {
        *ret_doc = json_doc_parse(resp.body, resp.body_len, &err);
        if (*ret_doc == NULL) {
            fprintf(stderr, "penstock: answer of %s: %s\n", c->admin, err.text);
            result = EXIT_FAILURE;
        }
    }
    http_response_fini(&resp);
    return result;
}

int ctl_get(const struct ctl *c, const char *path, struct json_doc **ret_doc)
{
    return request(c, path, NULL, 0, ret_doc);
}

int ctl_post(const struct ctl *c, const char *path, const char *body, size_t len,
             struct json_doc **ret_doc)
{
    return request(c, path, body, len, ret_doc);
}

bool ctl_print_json(const struct ctl *c, const struct json_doc *doc)
{
    if (!c->json)
        return false;
    char *const text = json_at_text(json_doc_top(doc));

    puts(text);
    free(text);
    return true;
}

char *ctl_escape(const char *text)
{
    static const char plain[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~";
    char *const out = xcalloc(strlen(text) + 1, 3);
    size_t n = 0;

    for (; *text != '\0'; text++) {
        if (strchr(plain, *text) != NULL)
            out[n++] = *text;
        else
            n += (size_t)sprintf(out + n, "%%%02X", (unsigned char)*text);
    }
    return out;
}

void ctl_table_init(struct ctl_table *t, size_t n_columns)
{
    check(n_columns > 0 && n_columns <= TABLE_COLUMNS);
    buf_init(&t->cells, TABLE_CEILING);
    t->n_columns = n_columns;
    t->n_cells = 0;
}

void ctl_table_cell(struct ctl_table *t, const char *fmt, ...)
{
    char cell[1024];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(cell, sizeof(cell), fmt, ap);
    va_end(ap);
    t->n_cells += buf_append(&t->cells, cell, strlen(cell) + 1);
}

void ctl_table_print(struct ctl_table *t)
{
    size_t widths[TABLE_COLUMNS] = {0};
    const char *cell = (const char *)t->cells.data;

    for (size_t i = 0; i < t->n_cells; i++, cell += strlen(cell) + 1) {
        const size_t len = strlen(cell);

        if (len > widths[i % t->n_columns])
            widths[i % t->n_columns] = len;
    }
    cell = (const char *)t->cells.data;
    for (size_t i = 0; i < t->n_cells; i++, cell += strlen(cell) + 1) {
        if ((i + 1) % t->n_columns == 0)
            printf("%s\n", cell);
        else
            printf("%-*s  ", (int)widths[i % t->n_columns], cell);
    }
    buf_fini(&t->cells);
}

void ctl_print_age(char *dst, size_t size, uint64_t us)
{
    const double s = (double)us / 1e6;

    if (s < 100)
        snprintf(dst, size, "%.0f s", s);
    else if (s < 6000)
        snprintf(dst, size, "%.0f min", s / 60);
    else if (s < 48 * 3600)
        snprintf(dst, size, "%.1f h", s / 3600);
    else
        snprintf(dst, size, "%.0f d", s / 86400);
}
