#include "tests/unit/balancer_fixture.h"

struct seen {
    int endpoints_added, endpoints_left, endpoints_removed;
    int clusters_added, clusters_left, clusters_removed;
    int rooms;
};

static void on_endpoint_added(void *arg, struct endpoint *ep)
{
    ((struct seen *)arg)->endpoints_added++;
    ep->pool = arg;
}

static void on_endpoint_left(void *arg, struct endpoint *ep)
{
    (void)ep;
    ((struct seen *)arg)->endpoints_left++;
}

static void on_endpoint_removed(void *arg, struct endpoint *ep)
{
    assert_ptr_equal(ep->pool, arg);
    ((struct seen *)arg)->endpoints_removed++;
}

static void on_cluster_added(void *arg, struct cluster *c)
{
    (void)c;
    ((struct seen *)arg)->clusters_added++;
}

static void on_cluster_left(void *arg, struct cluster *c)
{
    (void)c;
    ((struct seen *)arg)->clusters_left++;
}

static void on_cluster_removed(void *arg, struct cluster *c)
{
    (void)c;
    ((struct seen *)arg)->clusters_removed++;
}

static void on_room(void *arg, struct cluster *c)
{
    (void)c;
    ((struct seen *)arg)->rooms++;
}

static const struct balancer_hooks hooks = {
    .endpoint_added = on_endpoint_added,
    .endpoint_left = on_endpoint_left,
    .endpoint_removed = on_endpoint_removed,
    .cluster_added = on_cluster_added,
    .cluster_left = on_cluster_left,
    .cluster_removed = on_cluster_removed,
    .cluster_has_room = on_room,
};

struct fixture {
    struct seen seen;
    struct fix_snapshot snap;
    struct balancer *b;
    struct rng rng;
};

static int set_up(void **state)
{
    static struct fixture f;

    memset(&f, 0, sizeof(f));
    f.b = balancer_new(2, 1, &hooks, &f.seen);
    rng_init(&f.rng, 7);
    *state = &f;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *f = *state;

    f->b = balancer_free(f->b);
    assert_int_equal(f->seen.endpoints_added, f->seen.endpoints_removed);
    assert_int_equal(f->seen.endpoints_added, f->seen.endpoints_left);
    assert_int_equal(f->seen.clusters_added, f->seen.clusters_removed);
    assert_int_equal(f->seen.clusters_added, f->seen.clusters_left);
    return 0;
}

static struct member *pick(struct fixture *f, struct cluster *c, enum pick want)
{
    struct member *m;

    assert_int_equal(cluster_pick(c, &f->rng, 1, NULL, 0, &m), want);
    return m;
}

static void starting_and_draining_never_get_calls(void **state)
{
    struct fixture *f = *state;

    fix_replicas(&f->snap, 3, NULL, 0);
    f->snap.endpoints[0][0][0].state = ENDPOINT_STARTING;
    f->snap.endpoints[0][0][1].state = ENDPOINT_DRAINING;
    f->snap.endpoints[0][0][2].state = ENDPOINT_UNHEALTHY;
    balancer_apply(f->b, &f->snap.snap, 1);
    struct cluster *const c = fix_cluster(f->b, 0, 0);
    assert_false(cluster_is_ready(c, 1));
    for (int i = 0; i < 50; i++) { /* the unhealthy one is better than none */
        struct member *m = pick(f, c, PICK_OK);

        assert_string_equal(m->endpoint->address, "r2");
        member_done(m, OUTCOME_OK, 1);
    }
    f->snap.endpoints[0][0][2].state = ENDPOINT_STARTING;
    balancer_apply(f->b, &f->snap.snap, 1);
    assert_null(pick(f, c, PICK_NO_ENDPOINT));
    f->snap.endpoints[0][0][2].state = ENDPOINT_READY;
    balancer_apply(f->b, &f->snap.snap, 1);
    assert_int_equal(f->seen.rooms, 1);
}

static void the_unhealthy_get_none_while_one_is_ready(void **state)
{
    struct fixture *f = *state;

    fix_replicas(&f->snap, 3, NULL, 0);
    f->snap.endpoints[0][0][0].state = ENDPOINT_UNHEALTHY;
    f->snap.endpoints[0][0][1].state = ENDPOINT_UNHEALTHY;
    balancer_apply(f->b, &f->snap.snap, 1);
    for (int i = 0; i < 50; i++) {
        struct member *m = pick(f, fix_cluster(f->b, 0, 0), PICK_OK);

        assert_string_equal(m->endpoint->address, "r2");
        member_done(m, OUTCOME_OK, 1);
    }
}

static void slots_are_shared_among_workers_and_full_is_not_empty(void **state)
{
    struct fixture *f = *state;
    struct member *held[6];

    fix_replicas(&f->snap, 3, NULL, 3); /* two workers: ceil(3 / 2) = 2 each */
    balancer_apply(f->b, &f->snap.snap, 1);
    struct cluster *const c = fix_cluster(f->b, 0, 0);
    for (int i = 0; i < 6; i++)
        held[i] = pick(f, c, PICK_OK);
    for (size_t i = 0; i < 3; i++)
        assert_int_equal(c->members[i]->in_flight, 2);
    assert_null(pick(f, c, PICK_ALL_FULL));
    member_done(held[0], OUTCOME_OK, 1);
    assert_int_equal(f->seen.rooms, 1);
    member_done(held[1], OUTCOME_OK, 1); /* told once; it has not asked again */
    assert_int_equal(f->seen.rooms, 1);
    for (int i = 2; i < 6; i++)
        member_done(held[i], OUTCOME_OK, 1);
}

static void tried_endpoints_are_passed_over(void **state)
{
    struct fixture *f = *state;
    struct member *m;
    uint64_t tried[3];

    fix_replicas(&f->snap, 3, NULL, 0);
    balancer_apply(f->b, &f->snap.snap, 1);
    struct cluster *const c = fix_cluster(f->b, 0, 0);
    for (size_t n = 0; n < 3; n++) {
        assert_int_equal(cluster_pick(c, &f->rng, 1, tried, n, &m), PICK_OK);
        for (size_t i = 0; i < n; i++)
            assert_int_not_equal(m->endpoint->id, tried[i]);
        tried[n] = m->endpoint->id;
        member_done(m, OUTCOME_REFUSED, 1);
    }
    assert_int_equal(cluster_pick(c, &f->rng, 1, tried, 3, &m), PICK_ALL_TRIED);
    assert_null(m);
}

static void a_second_try_prefers_an_unhealthy_stranger_to_nobody(void **state)
{
    struct fixture *f = *state;
    struct member *m;

    fix_replicas(&f->snap, 2, NULL, 0);
    f->snap.endpoints[0][0][1].state = ENDPOINT_UNHEALTHY;
    balancer_apply(f->b, &f->snap.snap, 1);
    struct cluster *const c = fix_cluster(f->b, 0, 0);
    const uint64_t tried = fix_member(c, "r0")->endpoint->id;
    assert_int_equal(cluster_pick(c, &f->rng, 1, &tried, 1, &m), PICK_OK);
    assert_string_equal(m->endpoint->address, "r1");
    member_done(m, OUTCOME_OK, 1);
}

static void objects_that_stay_keep_their_counts_over_snapshots(void **state)
{
    struct fixture *f = *state;

    fix_replicas(&f->snap, 2, NULL, 0);
    balancer_apply(f->b, &f->snap.snap, 1);
    struct cluster *const c = fix_cluster(f->b, 0, 0);
    struct member *const m = pick(f, c, PICK_OK);
    struct endpoint *const ep = m->endpoint;
    struct fix_snapshot next;
    fix_replicas(&next, 3, NULL, 0);
    balancer_apply(f->b, &next.snap, 2);
    assert_ptr_equal(fix_cluster(f->b, 0, 0), c);
    assert_int_equal(c->n_members, 3);
    assert_int_equal(m->in_flight, 1);
    assert_ptr_equal(fix_member(c, ep->address), m);
    assert_int_equal(f->seen.endpoints_added, 3);
    member_done(m, OUTCOME_OK, 3);
    assert_int_equal(ep->in_flight, 0);
}

static void an_endpoint_that_left_lives_until_its_last_call_ended(void **state)
{
    struct fixture *f = *state;
    struct member *held[2];

    fix_replicas(&f->snap, 1, NULL, 0);
    balancer_apply(f->b, &f->snap.snap, 1);
    struct cluster *const c = fix_cluster(f->b, 0, 0);
    held[0] = pick(f, c, PICK_OK);
    held[1] = pick(f, c, PICK_OK);
    f->snap.versions[0][0].n_endpoints = 0;
    balancer_apply(f->b, &f->snap.snap, 2);
    assert_int_equal(f->seen.endpoints_left, 1);
    assert_null(pick(f, c, PICK_NO_ENDPOINT));
    member_done(held[0], OUTCOME_OK, 3);
    assert_int_equal(f->seen.endpoints_removed, 0);
    member_done(held[1], OUTCOME_LOST, 3);
    assert_int_equal(f->seen.endpoints_removed, 1);
}

static void a_model_that_left_keeps_its_running_calls(void **state)
{
    struct fixture *f = *state;
    const struct snapshot nothing = {.n_models = 0};

    fix_replicas(&f->snap, 1, NULL, 0);
    balancer_apply(f->b, &f->snap.snap, 1);
    struct cluster *const c = fix_cluster(f->b, 0, 0);
    struct member *const m = pick(f, c, PICK_OK);
    balancer_apply(f->b, &nothing, 2);
    assert_int_equal(f->seen.clusters_left, 1);
    assert_int_equal(f->seen.clusters_removed, 0);
    assert_null(pick(f, c, PICK_NO_ENDPOINT));
    balancer_apply(f->b, &f->snap.snap, 3); /* back while the old one still lives: a new one */
    assert_ptr_not_equal(fix_cluster(f->b, 0, 0), c);
    member_done(m, OUTCOME_OK, 4);
    assert_int_equal(f->seen.clusters_removed, 1);
    assert_int_equal(f->seen.endpoints_removed, 1);
}

static void one_server_of_two_versions_is_one_endpoint(void **state)
{
    struct fixture *f = *state;

    fix_init(&f->snap);
    fix_model(&f->snap, "m");
    fix_version(&f->snap, 0, "1", 5000, 0);
    fix_version(&f->snap, 0, "2", 5000, 0);
    for (size_t v = 0; v < 2; v++) {
        fix_endpoint(&f->snap, 0, v, "a", ENDPOINT_READY, 1000);
        fix_endpoint(&f->snap, 0, v, "b", ENDPOINT_READY, 1000);
    }
    f->snap.endpoints[0][1][0].state = ENDPOINT_STARTING; /* "a" still loads version 2 */
    balancer_apply(f->b, &f->snap.snap, 1);
    assert_int_equal(f->seen.endpoints_added, 2);
    struct cluster *const v1 = fix_cluster(f->b, 0, 0), *const v2 = fix_cluster(f->b, 0, 1);
    assert_ptr_equal(fix_member(v1, "a")->endpoint, fix_member(v2, "a")->endpoint);
    struct member *first = pick(f, v2, PICK_OK);
    assert_string_equal(first->endpoint->address, "b");
    struct member *second = pick(f, v1, PICK_OK); /* b's load from version 2 counts for version 1 */
    assert_string_equal(second->endpoint->address, "a");
    member_done(first, OUTCOME_OK, 1);
    member_done(second, OUTCOME_OK, 1);
}

static void a_version_without_replicas_is_passed_over_by_the_split(void **state)
{
    struct fixture *f = *state;

    fix_init(&f->snap);
    fix_model(&f->snap, "m");
    fix_version(&f->snap, 0, "1", 9000, 0);
    fix_version(&f->snap, 0, "2", 1000, 0);
    fix_endpoint(&f->snap, 0, 0, "a", ENDPOINT_READY, 1000);
    fix_endpoint(&f->snap, 0, 1, "b", ENDPOINT_STARTING, 1000);
    balancer_apply(f->b, &f->snap.snap, 1);
    for (int i = 0; i < 100; i++)
        assert_int_equal(model_pick_version(balancer_model(f->b, 0), 1), 0);
    f->snap.endpoints[0][1][0].state = ENDPOINT_READY;
    balancer_apply(f->b, &f->snap.snap, 2);
    int canary = 0;
    for (int i = 0; i < 1000; i++)
        canary += model_pick_version(balancer_model(f->b, 0), 1);
    assert_in_range(canary, 99, 101);
}

static void one_address_twice_in_a_version_counts_once(void **state)
{
    struct fixture *f = *state;

    fix_replicas(&f->snap, 1, NULL, 0);
    fix_endpoint(&f->snap, 0, 0, "r0", ENDPOINT_READY, 1000);
    balancer_apply(f->b, &f->snap.snap, 1);
    assert_int_equal(fix_cluster(f->b, 0, 0)->n_members, 1);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        CASE(starting_and_draining_never_get_calls),
        CASE(the_unhealthy_get_none_while_one_is_ready),
        CASE(slots_are_shared_among_workers_and_full_is_not_empty),
        CASE(tried_endpoints_are_passed_over),
        CASE(a_second_try_prefers_an_unhealthy_stranger_to_nobody),
        CASE(objects_that_stay_keep_their_counts_over_snapshots),
        CASE(an_endpoint_that_left_lives_until_its_last_call_ended),
        CASE(a_model_that_left_keeps_its_running_calls),
        CASE(one_server_of_two_versions_is_one_endpoint),
        CASE(a_version_without_replicas_is_passed_over_by_the_split),
        CASE(one_address_twice_in_a_version_counts_once),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
