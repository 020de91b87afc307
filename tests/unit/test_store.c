#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include <sqlite3.h>

#include "penstock/store.h"

static int set_up(void **state)
{
    static char folder[] = "/tmp/penstock-store-XXXXXX";

    memcpy(folder + sizeof(folder) - 7, "XXXXXX", 6);
    *state = mkdtemp(folder);
    return *state == NULL;
}

static int tear_down(void **state)
{
    static const char *const names[] = {"penstock.db", "penstock.db-wal", "penstock.db-shm"};
    char path[128];

    for (size_t i = 0; i < 3; i++) {
        snprintf(path, sizeof(path), "%s/%s", (char *)*state, names[i]);
        unlink(path);
    }
    return rmdir(*state);
}

static struct store *open_store(const char *folder)
{
    struct store *s = NULL;
    struct err err = {0};

    if (store_open(&s, folder, &err) < 0)
        fail_msg("%s", err.text);
    return s;
}

static int add(struct store *s, uint64_t number, struct err *err)
{
    char reason[32];

    snprintf(reason, sizeof(reason), "reason %u", (unsigned)number);
    return store_add(s,
                     &(struct stored_generation){.number = number,
                                                 .created_us = number * 1000,
                                                 .author = "it's \"me\"",
                                                 .reason = reason,
                                                 .source = "{}",
                                                 .diff = "d"},
                     err);
}

struct seen {
    uint64_t numbers[16];
    size_t n, most;
};

static bool see(void *arg, const struct stored_generation *g)
{
    struct seen *const seen = arg;

    assert_int_equal(g->created_us, g->number * 1000);
    assert_string_equal(g->author, "it's \"me\"");
    seen->numbers[seen->n++] = g->number;
    return seen->n < seen->most;
}

static void generations_are_there_after_a_restart_newest_first(void **state)
{
    struct store *s = open_store(*state);
    struct seen seen = {.most = 16};

    assert_int_equal(store_newest(s), 0);
    for (uint64_t i = 1; i <= 5; i++)
        assert_int_equal(add(s, i, NULL), 0);
    s = store_close(s);
    s = open_store(*state);
    assert_int_equal(store_newest(s), 5);
    assert_int_equal(store_each(s, 0, see, &seen, NULL), 0);
    assert_int_equal(seen.n, 5);
    assert_int_equal(seen.numbers[0], 5);
    assert_int_equal(seen.numbers[4], 1);
    seen = (struct seen){.most = 1};
    assert_int_equal(store_each(s, 3, see, &seen, NULL), 0);
    assert_int_equal(seen.n, 1);
    assert_int_equal(seen.numbers[0], 3);
    store_close(s);
}

static void numbers_have_no_gaps_and_are_never_written_twice(void **state)
{
    struct store *const s = open_store(*state);
    struct err err;

    assert_int_equal(add(s, 1, NULL), 0);
    assert_int_equal(add(s, 1, &err), -ESTALE);
    assert_int_equal(add(s, 3, &err), -ESTALE);
    assert_string_equal(err.text, "generation 3 does not follow 1");
    assert_int_equal(store_newest(s), 1);
    store_close(s);
}

static void a_second_process_is_refused(void **state)
{
    struct store *const s = open_store(*state);
    struct store *second = NULL;
    struct err err;

    assert_int_equal(add(s, 1, NULL), 0);
    assert_int_equal(store_open(&second, *state, &err), -EBUSY);
    assert_null(second);
    assert_non_null(strstr(err.text, "another process"));
    store_close(s);
}

static void a_damaged_file_is_named_and_left_as_it_is(void **state)
{
    struct store *s = open_store(*state);
    char path[128];
    struct err err;

    for (uint64_t i = 1; i <= 50; i++)
        assert_int_equal(add(s, i, NULL), 0);
    s = store_close(s);
    snprintf(path, sizeof(path), "%s/penstock.db", (char *)*state);
    FILE *const f = fopen(path, "r+");

    fseek(f, 4096 + 100, SEEK_SET); /* in the table's pages, behind the header */
    for (int i = 0; i < 3000; i++)
        fputc(0xa5, f);
    fseek(f, 0, SEEK_END);
    const long size = ftell(f);

    fclose(f);
    assert_int_equal(store_open(&s, *state, &err), -EBADMSG);
    assert_non_null(strstr(err.text, "penstock.db is damaged"));
    FILE *const again = fopen(path, "r");

    fseek(again, 0, SEEK_END);
    assert_int_equal(ftell(again), size);
    fclose(again);
}

static void a_number_beyond_counting_is_damage(void **state)
{
    static const char *const numbers[] = {"9223372036854775807", "9007199254740992", "-1"};
    char path[128], sql[128];
    struct err err = {0};

    snprintf(path, sizeof(path), "%s/penstock.db", (char *)*state);
    for (size_t i = 0; i < 3; i++) {
        struct store *s = open_store(*state);
        sqlite3 *db = NULL;

        store_close(s);
        snprintf(sql, sizeof(sql),
                 "DELETE FROM generation; INSERT INTO generation VALUES (%s, 1, '', '', '{}', '')",
                 numbers[i]);
        assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
        assert_int_equal(sqlite3_exec(db, sql, NULL, NULL, NULL), SQLITE_OK);
        assert_int_equal(sqlite3_close(db), SQLITE_OK);
        assert_int_equal(store_open(&s, *state, &err), -EBADMSG);
        assert_non_null(strstr(err.text, "number is out of range"));
        unlink(path);
    }
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(generations_are_there_after_a_restart_newest_first),
        TEST(numbers_have_no_gaps_and_are_never_written_twice),
        TEST(a_second_process_is_refused),
        TEST(a_damaged_file_is_named_and_left_as_it_is),
        TEST(a_number_beyond_counting_is_damage),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
