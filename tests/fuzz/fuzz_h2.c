/* tests/fuzz/fuzz_h2.c - any bytes from a peer into both HTTP/2 engines, in either role.
 *
 * Input: role and whether the server answers (bits 0 and 1), bytes per read (0: all at once), then
 * what follows the preface (server) or the first SETTINGS (client).
 * Holds: the same events or two refusals, but for the differences of tests/unit/h2_diff.h; and what
 * h2_script.h checks of every event and at the end.
 */
#define H2_SCRIPT_IN_FUZZER
#include "../unit/h2_diff.h"

#define INPUT_MAX (64u * 1024)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    enum h2_role role;
    struct script *s;
    struct watch *a, *b;
    const char *what;
    char text[512];
    size_t at;

    if (size < 2 || size > INPUT_MAX)
        return 0;
    role = (data[0] & 1) != 0 ? H2_CLIENT : H2_SERVER;
    s = script_new(role, "");
    at = s->len;
    script_put(s, data + 2, size - 2);
    script_trim(s, at);
    a = watch_new(&h2_engine_session, role, NULL, role == H2_CLIENT ? 4 : 0);
    b = watch_new(&h2_engine_native, role, NULL, role == H2_CLIENT ? 4 : 0);
    a->answer = b->answer = (data[0] & 2) != 0;
    watch_script(a, s, data[1]);
    watch_script(b, s, data[1]);
    what = watch_compare(a, b, text, sizeof(text));
    if (what != NULL) {
        fprintf(stderr, "%s\nsession: %s\nnative:  %s\n", what, a->text, b->text);
        abort();
    }
    watch_free(a);
    watch_free(b);
    script_free(s);
    return 0;
}
