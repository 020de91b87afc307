#include "tests/unit/balancer_fixture.h"

#include "base/clock.h"

static const struct balancer_hooks no_hooks = {.endpoint_added = NULL};

struct fixture {
    struct fix_snapshot snap;
    struct balancer *b;
    struct cluster *c;
    struct rng rng;
    uint64_t now_us;
};

static void begin(struct fixture *f, size_t n_replicas)
{
    fix_replicas(&f->snap, n_replicas, NULL, 0);
    f->b = balancer_new(1, 1, &no_hooks, NULL);
    f->now_us = US_PER_S;
    rng_init(&f->rng, 5);
    balancer_apply(f->b, &f->snap.snap, f->now_us);
    f->c = fix_cluster(f->b, 0, 0);
}

static void end(struct fixture *f)
{
    f->b = balancer_free(f->b);
}

/* One call at this replica, whatever the policy thinks. */
static void call_at(struct fixture *f, const char *address, enum outcome how)
{
    struct member *const m = fix_member(f->c, address);

    m->in_flight++;
    m->endpoint->in_flight++;
    f->c->in_flight++;
    member_done(m, how, f->now_us);
}

/* How many of 200 calls, all at once, go there. */
static uint32_t share_of(struct fixture *f, const char *address)
{
    struct member *held[200];

    for (size_t i = 0; i < ARRAY_LEN(held); i++)
        assert_int_equal(cluster_pick(f->c, &f->rng, f->now_us, NULL, 0, &held[i]), PICK_OK);
    const uint32_t n = fix_member(f->c, address)->in_flight;
    for (size_t i = 0; i < ARRAY_LEN(held); i++)
        member_done(held[i], OUTCOME_CANCELLED, f->now_us);
    return n;
}

static void texts_of_real_servers_are_told_apart(void **state)
{
    static const struct {
        uint32_t status;
        const char *message;
        bool goaway;
        enum outcome want;
    } cases[] = {
        {14, "Server is stopping, scheduler for model has stopped accepting new inference requests",
         false, OUTCOME_STOPPING},
        {14, "Server%20is%20stopping%2C%20scheduler", false, OUTCOME_STOPPING},
        {14, "Server exiting", false, OUTCOME_STOPPING},
        {14, "Request for unknown model: 'fmnist' version 3 is not at ready state", false,
         OUTCOME_NOT_READY},
        {5, "Request for unknown model: 'fmnist' has no available versions", false,
         OUTCOME_NOT_READY},
        {5, "Request for unknown model: 'nope' is not found", false, OUTCOME_UNKNOWN_MODEL},
        {5, "Servable not found for request: Latest(nope)", false, OUTCOME_UNKNOWN_MODEL},
        {5, "Model nope with version v1 not found", false, OUTCOME_UNKNOWN_MODEL},
        {5, "Model with name nope does not exist.", false, OUTCOME_UNKNOWN_MODEL},
        {5, "no such user", false, OUTCOME_OK},
        {14, "[request id: 1] Exceeds maximum queue size", false, OUTCOME_FULL},
        {14, "Request timeout expired", false, OUTCOME_FULL},
        {14, "", false, OUTCOME_UNAVAILABLE},
        {14, "connect to the feature store failed", false, OUTCOME_UNAVAILABLE},
        {8, "Received message larger than max (5000000 vs. 4194304)", false, OUTCOME_SERVER_ERROR},
        {1, "", true, OUTCOME_REFUSED},
        {1, "", false, OUTCOME_OK},
        {13, "unexpected shape", false, OUTCOME_SERVER_ERROR},
        {3, "unexpected shape", false, OUTCOME_OK},
        {0, "", false, OUTCOME_OK},
        {77, "", false, OUTCOME_SERVER_ERROR},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        const enum outcome got = outcome_of_status(cases[i].status, cases[i].message,
                                                   strlen(cases[i].message), cases[i].goaway);

        if (got != cases[i].want)
            fail_msg("%u \"%s\": %s, not %s", cases[i].status, cases[i].message, outcome_name(got),
                     outcome_name(cases[i].want));
    }
}

static void a_long_or_hostile_text_is_only_text(void **state)
{
    char text[4096];

    (void)state;
    memset(text, '%', sizeof(text));
    assert_int_equal(outcome_of_status(14, text, sizeof(text), false), OUTCOME_UNAVAILABLE);
    memset(text, 0, sizeof(text));
    assert_int_equal(outcome_of_status(5, text, sizeof(text), false), OUTCOME_OK);
    assert_int_equal(outcome_of_status(14, "%2", 2, false), OUTCOME_UNAVAILABLE);
}

static void a_failed_connect_ejects_at_once_and_a_trial_brings_back(void **state)
{
    struct fixture f;

    (void)state;
    begin(&f, 3);
    call_at(&f, "r0", OUTCOME_CONNECT_FAILED);
    assert_string_equal(member_out_name(fix_member(f.c, "r0")), "ejected");
    assert_int_equal(share_of(&f, "r0"), 0);
    f.now_us += 101 * US_PER_MS;
    assert_int_equal(share_of(&f, "r0"), 1); /* one call at a time until it has proved itself */
    call_at(&f, "r0", OUTCOME_OK);
    assert_in_range(share_of(&f, "r0"), 60, 74);
    end(&f);
}

static void a_connection_that_stands_again_brings_back_who_had_none(void **state)
{
    struct fixture f;

    (void)state;
    begin(&f, 3);
    call_at(&f, "r0", OUTCOME_CONNECT_FAILED);
    for (int i = 0; i < 5; i++)
        call_at(&f, "r1", OUTCOME_UNAVAILABLE);
    assert_false(member_is_usable(fix_member(f.c, "r0"), f.now_us));
    endpoint_connected(fix_member(f.c, "r0")->endpoint, f.now_us);
    endpoint_connected(fix_member(f.c, "r1")->endpoint, f.now_us);
    assert_true(member_is_usable(fix_member(f.c, "r0"), f.now_us));
    assert_false(
        member_is_usable(fix_member(f.c, "r1"), f.now_us)); /* it was reached, and failed */
    assert_int_equal(share_of(&f, "r0"), 1);                /* on trial */
    call_at(&f, "r0", OUTCOME_OK);
    assert_in_range(share_of(&f, "r0"), 90, 110);
    end(&f);
}

static void ejections_double_up_to_a_limit(void **state)
{
    struct fixture f;
    uint64_t last_us = 0;

    (void)state;
    begin(&f, 2);
    for (int i = 0; i < 12; i++) {
        const struct member *const m = fix_member(f.c, "r0");

        call_at(&f, "r0", OUTCOME_CONNECT_FAILED);
        const uint64_t for_us = m->out_until_us - f.now_us;
        assert_true(i == 0 || for_us == last_us * 2 || for_us == 5 * US_PER_S);
        last_us = for_us;
        f.now_us = m->out_until_us;
        cluster_refresh(f.c, f.now_us);
    }
    assert_int_equal(last_us, 5 * US_PER_S);
    end(&f);
}

static void five_unavailable_in_a_row_eject_and_a_success_between_does_not(void **state)
{
    struct fixture f;

    (void)state;
    begin(&f, 2);
    for (int i = 0; i < 20; i++)
        call_at(&f, "r0", i % 5 == 4 ? OUTCOME_OK : OUTCOME_UNAVAILABLE);
    assert_string_equal(member_out_name(fix_member(f.c, "r0")), "");
    for (int i = 0; i < 5; i++)
        call_at(&f, "r0", OUTCOME_UNAVAILABLE);
    assert_string_equal(member_out_name(fix_member(f.c, "r0")), "ejected");
    end(&f);
}

static void one_bad_client_ejects_nobody(void **state)
{
    struct fixture f;

    (void)state;
    begin(&f, 2);
    for (int i = 0; i < 100; i++) {
        call_at(&f, "r0", OUTCOME_SERVER_ERROR);
        call_at(&f, "r0", OUTCOME_FULL);
        call_at(&f, "r0", OUTCOME_CANCELLED);
        call_at(&f, "r0", OUTCOME_REFUSED);
    }
    assert_string_equal(member_out_name(fix_member(f.c, "r0")), "");
    end(&f);
}

static void a_connection_that_dies_under_many_calls_is_one_failure(void **state)
{
    struct fixture f;

    (void)state;
    begin(&f, 2);
    for (int i = 0; i < 100; i++)
        call_at(&f, "r0", OUTCOME_LOST);
    assert_string_equal(member_out_name(fix_member(f.c, "r0")), "");
    for (int i = 0; i < 4; i++) {
        f.now_us += 50 * US_PER_MS;
        call_at(&f, "r0", OUTCOME_LOST);
    }
    assert_string_equal(member_out_name(fix_member(f.c, "r0")), "ejected");
    end(&f);
}

static void the_last_usable_replica_is_never_ejected(void **state)
{
    struct fixture f;

    (void)state;
    begin(&f, 2);
    call_at(&f, "r0", OUTCOME_CONNECT_FAILED);
    for (int i = 0; i < 20; i++)
        call_at(&f, "r1", OUTCOME_UNAVAILABLE);
    assert_string_equal(member_out_name(fix_member(f.c, "r1")), "");
    assert_int_equal(share_of(&f, "r1"), 200);
    end(&f);
}

static void a_replica_that_denies_the_model_is_quarantined_for_it(void **state)
{
    struct fixture f;

    (void)state;
    begin(&f, 3);
    call_at(&f, "r1", OUTCOME_UNKNOWN_MODEL);
    assert_string_equal(member_out_name(fix_member(f.c, "r1")), "quarantined");
    assert_int_equal(share_of(&f, "r1"), 0);
    end(&f);
}

static void a_stopping_server_is_left_for_all_its_versions(void **state)
{
    struct fixture f;

    (void)state;
    begin(&f, 2);
    fix_version(&f.snap, 0, "2", 0, 0);
    fix_endpoint(&f.snap, 0, 1, "r0", ENDPOINT_READY, 1000);
    fix_endpoint(&f.snap, 0, 1, "r1", ENDPOINT_READY, 1000);
    balancer_apply(f.b, &f.snap.snap, f.now_us);
    call_at(&f, "r0", OUTCOME_STOPPING);
    assert_string_equal(member_out_name(fix_member(f.c, "r0")), "stopping");
    assert_string_equal(member_out_name(fix_member(fix_cluster(f.b, 0, 1), "r0")), "stopping");
    call_at(&f, "r1", OUTCOME_NOT_READY); /* the last one of both: stays */
    assert_string_equal(member_out_name(fix_member(f.c, "r1")), "");
    end(&f);
}

static void a_fresh_ready_or_another_process_starts_with_a_clean_sheet(void **state)
{
    struct fixture f;

    (void)state;
    begin(&f, 2);
    call_at(&f, "r0", OUTCOME_CONNECT_FAILED);
    f.snap.endpoints[0][0][0].state = ENDPOINT_UNHEALTHY;
    balancer_apply(f.b, &f.snap.snap, f.now_us);
    assert_string_equal(member_out_name(fix_member(f.c, "r0")), "ejected");
    f.snap.endpoints[0][0][0].state = ENDPOINT_READY;
    balancer_apply(f.b, &f.snap.snap, f.now_us);
    assert_string_equal(member_out_name(fix_member(f.c, "r0")), "");
    call_at(&f, "r0", OUTCOME_CONNECT_FAILED);
    f.snap.endpoints[0][0][0].replica = "r0, started again";
    balancer_apply(f.b, &f.snap.snap, f.now_us);
    assert_string_equal(member_out_name(fix_member(f.c, "r0")), "");
    end(&f);
}

static void one_failure_on_trial_is_enough(void **state)
{
    struct fixture f;

    (void)state;
    begin(&f, 2);
    for (int i = 0; i < 5; i++)
        call_at(&f, "r0", OUTCOME_UNAVAILABLE);
    f.now_us = fix_member(f.c, "r0")->out_until_us;
    assert_int_equal(share_of(&f, "r0"), 1);
    call_at(&f, "r0", OUTCOME_UNAVAILABLE);
    assert_int_equal(share_of(&f, "r0"), 0);
    end(&f);
}

static void when_all_are_on_trial_none_is_held_back(void **state)
{
    struct fixture f;

    (void)state;
    begin(&f, 2);
    call_at(&f, "r0", OUTCOME_CONNECT_FAILED);
    f.now_us += 200 * US_PER_MS;
    cluster_refresh(f.c, f.now_us);
    f.snap.endpoints[0][0][1].state = ENDPOINT_DRAINING;
    balancer_apply(f.b, &f.snap.snap, f.now_us);
    assert_int_equal(share_of(&f, "r0"), 200);
    end(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(texts_of_real_servers_are_told_apart),
        cmocka_unit_test(a_long_or_hostile_text_is_only_text),
        cmocka_unit_test(a_failed_connect_ejects_at_once_and_a_trial_brings_back),
        cmocka_unit_test(a_connection_that_stands_again_brings_back_who_had_none),
        cmocka_unit_test(ejections_double_up_to_a_limit),
        cmocka_unit_test(five_unavailable_in_a_row_eject_and_a_success_between_does_not),
        cmocka_unit_test(one_bad_client_ejects_nobody),
        cmocka_unit_test(a_connection_that_dies_under_many_calls_is_one_failure),
        cmocka_unit_test(the_last_usable_replica_is_never_ejected),
        cmocka_unit_test(a_replica_that_denies_the_model_is_quarantined_for_it),
        cmocka_unit_test(a_stopping_server_is_left_for_all_its_versions),
        cmocka_unit_test(a_fresh_ready_or_another_process_starts_with_a_clean_sheet),
        cmocka_unit_test(one_failure_on_trial_is_enough),
        cmocka_unit_test(when_all_are_on_trial_none_is_held_back),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
