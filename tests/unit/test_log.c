#include "base/log.h"

#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/err.h"

/* Runs with the sink set to a pipe; what was logged is read back. */
static int pipe_fds[2];

static void open_sink(enum log_level level)
{
    assert_int_equal(pipe2(pipe_fds, O_NONBLOCK | O_CLOEXEC), 0);
    log_set(level, pipe_fds[1]);
}

static const char *close_sink(void)
{
    static char text[65536];
    ssize_t n = read(pipe_fds[0], text, sizeof(text) - 1);

    text[n > 0 ? n : 0] = '\0';
    close(pipe_fds[0]);
    close(pipe_fds[1]);
    log_set(LOG_INFO, STDERR_FILENO);
    return text;
}

static void a_line_has_time_level_event_and_fields(void **state)
{
    int year, month, day, hour, minute, second, micro, end = 0;
    const char *line;

    (void)state;
    open_sink(LOG_INFO);
    log_warn("attempt_failed", "worker=%d grpc=%d", 3, 14);
    line = close_sink();
    assert_int_equal(sscanf(line,
                            "ts=%4d-%2d-%2dT%2d:%2d:%2d.%6dZ lvl=warn ev=attempt_failed "
                            "worker=3 grpc=14%n",
                            &year, &month, &day, &hour, &minute, &second, &micro, &end),
                     7);
    assert_string_equal(line + end, "\n");
    assert_int_equal(end, (int)strlen(line) - 1);
}

static void events_over_the_level_leave_no_line(void **state)
{
    enum log_level level = LOG_ERROR;

    (void)state;
    assert_true(log_level_parse("warn", &level));
    assert_int_equal(level, LOG_WARN);
    assert_false(log_level_parse("verbose", &level));
    open_sink(LOG_WARN);
    log_info("quiet", "a=%d", 1);
    log_debug("quiet", "a=%d", 1);
    assert_string_equal(close_sink(), "");
}

static void one_event_is_one_line_whatever_its_text(void **state)
{
    static char big[10000];
    const char *text;

    (void)state;
    memset(big, 'x', sizeof(big) - 1);
    open_sink(LOG_INFO);
    log_info("big", "msg=%s", big);
    log_info("newline", "msg=%s", "a\nts=fake");
    text = close_sink();
    assert_ptr_equal(strchr(text, '\n'), text + 4095);
    text = strchr(text, '\n') + 1;
    assert_non_null(strstr(text, "msg=a?ts=fake\n"));
    assert_ptr_equal(strchr(text, '\n'), text + strlen(text) - 1);
}

static void *log_many(void *arg)
{
    for (int i = 0; i < 100; i++)
        log_info("spin", "thread=%s", (const char *)arg);
    return NULL;
}

static void lines_of_two_threads_do_not_mix(void **state)
{
    pthread_t a, b;
    int n_lines = 0;

    (void)state;
    open_sink(LOG_INFO);
    assert_int_equal(pthread_create(&a, NULL, log_many, "aaaaaaaaaaaaaaaa"), 0);
    assert_int_equal(pthread_create(&b, NULL, log_many, "bbbbbbbbbbbbbbbb"), 0);
    pthread_join(a, NULL);
    pthread_join(b, NULL);
    for (const char *line = close_sink(); *line != '\0'; line = strchr(line, '\n') + 1) {
        const char *field = strstr(line, "thread=");

        assert_true(strncmp(field, "thread=aaaaaaaaaaaaaaaa\n", 24) == 0 ||
                    strncmp(field, "thread=bbbbbbbbbbbbbbbb\n", 24) == 0);
        n_lines++;
    }
    assert_int_equal(n_lines, 200);
}

static void values_are_quoted_where_logfmt_needs_it(void **state)
{
    char dst[32];

    (void)state;
    assert_string_equal(log_quote(dst, sizeof(dst), "digits/2#3"), "digits/2#3");
    assert_string_equal(log_quote(dst, sizeof(dst), ""), "\"\"");
    assert_string_equal(log_quote(dst, sizeof(dst), "a b"), "\"a b\"");
    assert_string_equal(log_quote(dst, sizeof(dst), "a=\"b\\\"\n"), "\"a=\\\"b\\\\\\\"\\n\"");
    assert_string_equal(log_quote(dst, sizeof(dst), "\x1b[0m"), "\"\\x1b[0m\"");
    assert_string_equal(log_quote(dst, 8, "abcdefgh"), "\"abcde\""); /* cut, still closed */
    assert_string_equal(log_quote(dst, 6, "a\nbcd"), "\"a\\n\"");
}

static void a_limit_passes_a_burst_then_one_each_second_and_counts_the_rest(void **state)
{
    struct log_limit l = {0};
    uint32_t suppressed, passed = 0, told = 0;

    (void)state;
    for (uint64_t us = 5000000; us < 10000000; us += 1000) {
        if (log_limit_pass(&l, us, &suppressed)) {
            passed++;
            told += suppressed;
        }
    }
    assert_int_equal(passed, 10 + 4);
    assert_int_equal(passed + told + l.suppressed, 5000);
}

static void err_keeps_its_code_and_grows_at_the_front(void **state)
{
    struct err err;
    char longer[1000];

    (void)state;
    assert_int_equal(err_set(NULL, -5, "x"), -5);
    assert_int_equal(err_prefix(NULL, "x"), 0);
    assert_int_equal(err_set(&err, -22, "%d is over the limit of %d ms", 90000, 60000), -22);
    assert_int_equal(err_prefix(&err, "models.json#/%s", "deadline_ms"), -22);
    assert_string_equal(err.text, "models.json#/deadline_ms: 90000 is over the limit of 60000 ms");
    memset(longer, 'y', sizeof(longer));
    longer[999] = '\0';
    assert_int_equal(err_prefix(&err, "%s", longer), -22);
    assert_int_equal(strlen(err.text), sizeof(err.text) - 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_line_has_time_level_event_and_fields),
        cmocka_unit_test(events_over_the_level_leave_no_line),
        cmocka_unit_test(one_event_is_one_line_whatever_its_text),
        cmocka_unit_test(lines_of_two_threads_do_not_mix),
        cmocka_unit_test(values_are_quoted_where_logfmt_needs_it),
        cmocka_unit_test(a_limit_passes_a_burst_then_one_each_second_and_counts_the_rest),
        cmocka_unit_test(err_keeps_its_code_and_grows_at_the_front),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
