/* The limits of clients: each can be set by name, within its bounds, and what net/ does without a
 * config is what the config says by default. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "conf/process.h"
#include "conf/tables.h"
#include "net/conn.h"

static void the_defaults_of_the_config_are_those_of_the_code(void **state)
{
    struct process_conf p;
    struct conn_conf c;
    const struct client_limits *l = &p.limits;

    (void)state;
    process_conf_default(&p);
    conn_conf_default(&c);
    assert_int_equal(c.limits.max_concurrent_streams, p.max_streams);
    assert_int_equal(c.limits.max_header_bytes, l->header_kib * 1024);
    assert_int_equal(c.limits.max_header_fields, l->header_fields);
    assert_int_equal(c.limits.max_header_frames, l->header_frames);
    assert_int_equal(c.limits.max_ids_used, l->calls_per_connection);
    assert_int_equal(c.limits.score, l->score);
    assert_int_equal(c.limits.score_per_s, l->score_per_s);
    assert_int_equal(c.limits.resets, l->resets);
    assert_int_equal(c.limits.resets_per_s, l->resets_per_s);
    assert_int_equal(c.limits.ping_strikes, l->pings);
    assert_int_equal(c.limits.ping_interval_ms, l->ping_interval_ms);
    assert_int_equal(c.limits.answers_to_stop, l->answers_stop);
    assert_int_equal(c.limits.answers_to_end, l->answers_max);
    assert_int_equal(c.block_timeout_us, l->block_s * 1000000ull);
    assert_int_equal(c.stall_timeout_us, l->stall_s * 1000000ull);
    assert_int_equal(c.settings_ack_us, l->settings_ack_s * 1000000ull);
    process_conf_fini(&p);
}

static uint64_t value_of(const struct client_limits *l, const struct conf_field *f)
{
    const char *at = (const char *)l + f->offset;

    return f->kind == CONF_KIND_BOOL ? *(const bool *)at : *(const uint32_t *)(const void *)at;
}

/* And nothing else: its neighbours stay. */
static void every_limit_can_be_set_to_its_bounds_and_not_over_them(void **state)
{
    char text[80];
    struct err err;

    (void)state;
    for (const struct conf_field *f = conf_client_limits_table.fields; f->kind != CONF_KIND_END;
         f++) {
        const uint64_t tries[2] = {f->kind == CONF_KIND_BOOL ? 0 : f->min,
                                   f->kind == CONF_KIND_BOOL ? 1 : f->max};

        assert_non_null(f->why);
        for (int i = 0; i < 2; i++) {
            struct process_conf p;

            process_conf_default(&p);
            if (f->kind == CONF_KIND_BOOL)
                snprintf(text, sizeof(text), "%s=%s", f->key, i == 0 ? "false" : "true");
            else
                snprintf(text, sizeof(text), "%s=%llu", f->key, (unsigned long long)tries[i]);
            assert_int_equal(client_limits_set(&p, text, &err), 0);
            for (const struct conf_field *g = conf_client_limits_table.fields;
                 g->kind != CONF_KIND_END; g++)
                assert_int_equal(value_of(&p.limits, g), g == f ? tries[i] : g->dflt);
            process_conf_fini(&p);
        }
    }
}

static void what_is_no_limit_or_no_value_of_it_is_refused(void **state)
{
    static const char *const bad[] = {
        "score=99",
        "score=",
        "score",
        "score=1e3",
        "score=-1",
        "scor=1000",
        "=1",
        "",
        "score=99999999999999999999",
        "admin=x",
        "count_loopback=1",
        "memory_mib=15",
        "memory_mib=1048577",
    };
    struct process_conf p;
    struct err err;

    (void)state;
    process_conf_default(&p);
    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        assert_int_not_equal(client_limits_set(&p, bad[i], &err), 0);
    assert_int_equal(client_limits_set(&p, "memory_mib=16", &err), 0);
    assert_int_equal(p.memory_mib, 16);
    process_conf_fini(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_defaults_of_the_config_are_those_of_the_code),
        cmocka_unit_test(every_limit_can_be_set_to_its_bounds_and_not_over_them),
        cmocka_unit_test(what_is_no_limit_or_no_value_of_it_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
