#include "placer/command.h"

#include <string.h>

/* The next blank at or after text: its word begins at *ret_word. NULL: none; else its brace. */
static const char *next_blank(const char *text, const char *begin, const char **ret_word,
                              size_t *ret_len)
{
    for (const char *open = strchr(text, '{'); open != NULL; open = strchr(open + 1, '{')) {
        const size_t len = strspn(open + 1, "abcdefghijklmnopqrstuvwxyz0123456789_");

        if (open[1] < 'a' || open[1] > 'z' || open[1 + len] != '}' ||
            (open > begin && open[-1] == '$'))
            continue;
        *ret_word = open + 1;
        *ret_len = len;
        return open;
    }
    return NULL;
}

bool command_knows(const char *text, const char *const *words)
{
    const char *word;
    size_t len;

    for (const char *at = text; (at = next_blank(at, text, &word, &len)) != NULL; at++) {
        bool known = false;

        for (size_t i = 0; words[i] != NULL && !known; i++)
            known = strlen(words[i]) == len && memcmp(words[i], word, len) == 0;
        if (!known)
            return false;
    }
    return true;
}

bool command_fill(struct buf *dst, const char *text, const struct env_pair *blanks, size_t n_blanks)
{
    const char *from = text, *at = text, *word;
    size_t len;

    while ((at = next_blank(at, text, &word, &len)) != NULL) {
        for (size_t i = 0; i < n_blanks; i++) {
            if (strlen(blanks[i].name) != len || memcmp(blanks[i].name, word, len) != 0)
                continue;
            buf_append(dst, from, (size_t)(at - from));
            buf_append_str(dst, blanks[i].value);
            from = word + len + 1;
            break;
        }
        at = word + len + 1;
    }
    buf_append_str(dst, from);
    return !dst->overflow;
}
