/* conf/text.c - files and texts into JSON values: size, depth, syntax, duplicate keys. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/xalloc.h"
#include "conf/load.h"

/* jansson follows brackets by recursion, 2048 deep; a shallower limit is met before it starts. */
static bool depth_is_fine(const char *text, size_t len, const char *file,
                          struct conf_problems *problems)
{
    bool in_string = false;
    int depth = 0, line = 1, column = 0;

    for (size_t i = 0; i < len; i++) {
        const char c = text[i];

        column++;
        if (c == '\n') {
            line++;
            column = 0;
        } else if (in_string) {
            if (c == '\\')
                i++, column++;
            else if (c == '"')
                in_string = false;
        } else if (c == '"') {
            in_string = true;
        } else if (c == '{' || c == '[') {
            if (++depth > CONF_DEPTH_MAX) {
                conf_problem_file(problems, file, line, column,
                                  "brackets nest deeper than the limit of %d", CONF_DEPTH_MAX);
                return false;
            }
        } else if (c == '}' || c == ']') {
            depth--;
        }
    }
    return true;
}

json_t *conf_parse(const char *text, size_t len, size_t max_bytes, const char *file,
                   struct conf_problems *problems)
{
    json_error_t error;

    if (len > max_bytes) {
        conf_problem_file(problems, file, 0, 0, "is over the limit of %zu bytes", max_bytes);
        return NULL;
    }
    if (!depth_is_fine(text, len, file, problems))
        return NULL;

    json_t *const root = json_loadb(text, len, JSON_REJECT_DUPLICATES, &error);

    if (root == NULL) {
        const bool duplicate = json_error_code(&error) == json_error_duplicate_key;

        conf_problem_file(problems, file, error.line, error.column, "%s%s",
                          duplicate ? "" : "not JSON: ", error.text);
    }
    return root;
}

static int read_all(int fd, char *into, size_t size, size_t *ret_len)
{
    size_t len = 0;

    while (len < size) {
        const ssize_t n = read(fd, into + len, size - len);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -errno;
        if (n == 0)
            break;
        len += (size_t)n;
    }
    *ret_len = len;
    return 0;
}

json_t *conf_parse_file(const char *path, const char *shown, struct conf_problems *problems)
{
    json_t *root = NULL;
    struct stat st;
    size_t len = 0;
    int r = 0;

    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a FIFO must not hold us */
    if (fd < 0) {
        conf_problem_file(problems, shown, 0, 0, "can't open: %s", strerror(errno));
        return NULL;
    }
    if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode)) {
        conf_problem_file(problems, shown, 0, 0, "is not a regular file");
        close(fd);
        return NULL;
    }
    /* One byte more than allowed, so that a file that grew meanwhile is seen too. */
    char *const text = xcalloc(1, CONF_FILE_BYTES_MAX + 1);

    r = read_all(fd, text, CONF_FILE_BYTES_MAX + 1, &len);
    if (r < 0)
        conf_problem_file(problems, shown, 0, 0, "can't read: %s", strerror(-r));
    else
        root = conf_parse(text, len, CONF_FILE_BYTES_MAX, shown, problems);
    free(text);
    close(fd);
    return root;
}
