/* tests/unit/walker_driver.c - lets walker_oracle.py feed messages to the tag walker.
 *
 * Standard input: records of big-endian numbers,
 *   'W' kind:u8 commit:u8 look_bytes:u32 n_pieces:u16 { len:u32 bytes }...   one message in pieces
 *   'O' kind:u8 len:u8 version                                              an override
 * Standard output, one line each:
 *   "ok NAME CHOICE VERSION" (NAME and VERSION in hex, "-" when empty), "refused WHY", or
 *   "override HEX" ("override -": not possible).
 * commit: as the relay does, at the first WALKER_READY; then NAME... is what was routed by. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/xalloc.h"
#include "proto/walker.h"

static void read_exactly(void *dst, size_t len)
{
    check(fread(dst, 1, len, stdin) == len);
}

static uint32_t read_number(size_t len)
{
    uint8_t bytes[4];
    uint32_t n = 0;

    read_exactly(bytes, len);
    for (size_t i = 0; i < len; i++)
        n = n << 8 | bytes[i];
    return n;
}

static void print_hex(const void *p, size_t len)
{
    for (size_t i = 0; i < len; i++)
        printf("%02x", ((const uint8_t *)p)[i]);
    if (len == 0)
        putchar('-');
}

static void walk(void)
{
    const enum walker_kind kind = (enum walker_kind)read_number(1);
    const bool commit = read_number(1) != 0;
    const uint32_t look_bytes = read_number(4), n_pieces = read_number(2);
    uint8_t **pieces = xcalloc(n_pieces, sizeof(*pieces));
    uint32_t *lens = xcalloc(n_pieces, sizeof(*lens)), total = 0;
    enum walker_result r;
    struct walker w;
    char why[1200];

    for (uint32_t i = 0; i < n_pieces; i++) {
        lens[i] = read_number(4);
        pieces[i] = xcalloc(lens[i], 1); /* own memory: a read past a piece is seen by ASan */
        read_exactly(pieces[i], lens[i]);
        total += lens[i];
    }
    walker_init(&w, kind, look_bytes);
    r = walker_begin(&w, total);
    for (uint32_t i = 0; i < n_pieces; i++) {
        r = walker_feed(&w, pieces[i], lens[i]);
        if (r == WALKER_READY && commit) {
            walker_commit(&w);
            r = WALKER_MORE;
        }
        free(pieces[i]);
    }
    free(pieces);
    free(lens);
    if (r == WALKER_REFUSED) {
        walker_explain(&w, why, sizeof(why));
        for (char *c = why; *c != '\0'; c++) /* it quotes names: they must not end the line */
            if (*c < ' ')
                *c = '?';
        printf("refused %s\n", why);
        return;
    }
    check(walker_is_complete(&w) && (commit || r == WALKER_READY));
    printf("ok ");
    print_hex(w.name.bytes, w.name.len);
    printf(" %d ", (int)w.choice);
    print_hex(w.version.bytes, w.version.len);
    putchar('\n');
}

static void override(void)
{
    const enum walker_kind kind = (enum walker_kind)read_number(1);
    const uint32_t len = read_number(1);
    uint8_t bytes[WALKER_OVERRIDE_MAX];
    char version[UINT8_MAX];

    read_exactly(version, len);
    printf("override ");
    print_hex(bytes, walker_override(kind, version, len, bytes));
    putchar('\n');
}

int main(void)
{
    for (int op; (op = getchar()) != EOF;) {
        check(op == 'W' || op == 'O');
        if (op == 'W')
            walk();
        else
            override();
    }
    return 0;
}
