#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "loadtest/load_schedule.h"

static void read_text(struct load_schedule *s, const char *text, int want, const char *word)
{
    char path[] = "/tmp/penstock-schedule-XXXXXX";
    const int fd = mkstemp(path);
    struct err err = {0};

    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
    close(fd);
    const int r = load_schedule_read(s, path, &err);
    unlink(path);
    assert_int_equal(r, want);
    if (word != NULL && strstr(err.text, word) == NULL)
        fail_msg("\"%s\" does not say \"%s\"", err.text, word);
}

static void even_calls_come_at_their_multiples(void **state)
{
    struct load_schedule whole, s;

    (void)state;
    load_schedule_constant(&whole, 400.0);
    load_schedule_split(&s, &whole, 0, 1, false, 1);
    for (uint64_t i = 0; i < 10000; i++)
        assert_int_equal(load_schedule_next(&s), i * 2500);
    load_schedule_fini(&s);
    load_schedule_fini(&whole);
}

static void threads_interleave_to_the_same_calls(void **state)
{
    struct load_schedule whole, parts[3];

    (void)state;
    load_schedule_constant(&whole, 1000.0);
    for (uint32_t k = 0; k < 3; k++)
        load_schedule_split(&parts[k], &whole, k, 3, false, 1);
    for (uint64_t i = 0; i < 3000; i++) {
        const uint64_t at = load_schedule_next(&parts[i % 3]);

        assert_true(at + 1 >= i * 1000 && at <= i * 1000 + 1); /* rounding */
    }
    for (uint32_t k = 0; k < 3; k++)
        load_schedule_fini(&parts[k]);
    load_schedule_fini(&whole);
}

static void poisson_gaps_have_mean_and_deviation_of_the_exponential(void **state)
{
    struct load_schedule whole, s;
    double sum = 0.0, squares = 0.0;
    uint64_t last = 0;
    enum { N = 40000 };

    (void)state;
    load_schedule_constant(&whole, 100.0);
    load_schedule_split(&s, &whole, 0, 1, true, 7);
    for (int i = 0; i < N; i++) {
        const uint64_t at = load_schedule_next(&s);
        const double gap = (double)(at - last);

        last = at;
        sum += gap;
        squares += gap * gap;
    }
    const double mean = sum / N, deviation = sqrt(squares / N - mean * mean);
    assert_true(fabs(mean - 10000.0) < 200.0); /* 4 standard errors of 10 ms / sqrt(40,000) */
    assert_true(fabs(deviation - 10000.0) < 400.0);
    load_schedule_fini(&s);
    load_schedule_fini(&whole);
}

static void a_trace_is_followed_through_pauses_to_its_end(void **state)
{
    struct load_schedule whole, s;
    uint64_t n = 0, n_pause = 0, at;

    (void)state;
    read_text(&whole, "# a comment\n\n0 10\n2 0\n3 100\n3.5 0\n", 0, NULL);
    assert_true(whole.ends);
    load_schedule_split(&s, &whole, 0, 1, false, 1);
    while ((at = load_schedule_next(&s)) != UINT64_MAX) {
        n += at < 3500000;
        n_pause += at > 2000000 && at < 3000000;
    }
    assert_int_equal(n_pause, 0);
    assert_true(n >= 69 && n <= 71); /* 2 s x 10 + 0.5 s x 100 */
    assert_true(load_schedule_rate(&whole, 3.2) == 100.0 && load_schedule_rate(&whole, 2.5) == 0.0);
    load_schedule_fini(&s);
    load_schedule_fini(&whole);
}

static void broken_traces_are_refused_with_file_line_and_rule(void **state)
{
    struct load_schedule s;

    (void)state;
    read_text(&s, "", -EINVAL, "no line");
    read_text(&s, "0 10\n1 2 3\n", -EINVAL, ":2: not \"SECONDS RATE\"");
    read_text(&s, "1 10\n", -EINVAL, ":1: time 1");
    read_text(&s, "0 10\n0 20\n", -EINVAL, ":2: time 0");
    read_text(&s, "0 -1\n", -EINVAL, "rate -1");
    read_text(&s, "0 nan\n", -EINVAL, "rate nan");
    read_text(&s, "0 2e6\n", -EINVAL, "not in 0..1e+06");
    read_text(&s, "0 1\nnan 5\n", -EINVAL, "time nan");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(even_calls_come_at_their_multiples),
        cmocka_unit_test(threads_interleave_to_the_same_calls),
        cmocka_unit_test(poisson_gaps_have_mean_and_deviation_of_the_exponential),
        cmocka_unit_test(a_trace_is_followed_through_pauses_to_its_end),
        cmocka_unit_test(broken_traces_are_refused_with_file_line_and_rule),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
