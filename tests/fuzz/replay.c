/* tests/fuzz/replay.c - runs a fuzz target once on each file of the folders named as arguments: its
 * corpus, with every past crash, in the ordinary test run and without libFuzzer. */
#include <dirent.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/xalloc.h"

#define INPUT_MAX (1 << 20)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void replay(const char *path)
{
    uint8_t *data = xcalloc(INPUT_MAX, 1);
    FILE *f = fopen(path, "rb");
    uint8_t *own;
    size_t size;

    check(f != NULL);
    size = fread(data, 1, INPUT_MAX, f);
    check(ferror(f) == 0);
    fclose(f);
    own = xcalloc(size, 1); /* exactly as long: ASan sees a read past it */
    for (size_t i = 0; i < size; i++)
        own[i] = data[i];
    LLVMFuzzerTestOneInput(own, size);
    free(own);
    free(data);
}

int main(int argc, char **argv)
{
    unsigned n = 0;

    for (int i = 1; i < argc; i++) {
        DIR *dir = opendir(argv[i]);

        if (dir == NULL) {
            fprintf(stderr, "%s: no such corpus\n", argv[i]);
            return 1;
        }
        for (struct dirent *entry; (entry = readdir(dir)) != NULL;) {
            char path[PATH_MAX];

            if (entry->d_name[0] == '.')
                continue;
            snprintf(path, sizeof(path), "%s/%s", argv[i], entry->d_name);
            fprintf(stderr, "%s\n", path); /* the last line names the one that broke it */
            replay(path);
            n++;
        }
        closedir(dir);
    }
    printf("%u inputs\n", n);
    return n > 0 ? 0 : 1;
}
