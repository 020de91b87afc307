#include "net/slab.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#include "base/check.h"
#include "base/rng.h"

static void slab_goes_back_with_its_last_reference(void **state)
{
    struct slab_pool pool;
    struct slab *a, *b;

    (void)state;
    slab_pool_init(&pool);
    a = slab_get(&pool, 1);
    assert_int_equal(a->cap, SLAB_SMALL_BYTES);
    assert_int_equal(pool.pinned_bytes, SLAB_SMALL_BYTES);
    slab_ref(a);
    slab_unref(a);
    assert_int_equal(pool.pinned_bytes, SLAB_SMALL_BYTES);
    slab_unref(a);
    assert_int_equal(pool.pinned_bytes, 0);
    b = slab_get(&pool, SLAB_SMALL_BYTES);
    assert_ptr_equal(a, b); /* the one that is warm */
    slab_unref(b);
    slab_unref(NULL);
    slab_pool_fini(&pool);
}

static void sizes_round_up_to_a_class_and_past_it_are_exact(void **state)
{
    struct slab_pool pool;
    struct slab *large, *huge;

    (void)state;
    slab_pool_init(&pool);
    large = slab_get(&pool, SLAB_SMALL_BYTES + 1);
    huge = slab_get(&pool, SLAB_LARGE_BYTES + 1);
    assert_int_equal(large->cap, SLAB_LARGE_BYTES);
    assert_int_equal(huge->cap, SLAB_LARGE_BYTES + 1);
    slab_unref(huge); /* not kept */
    slab_unref(large);
    assert_int_equal(pool.n_free[0] + pool.n_free[1], 1);
    slab_pool_fini(&pool);
}

static void pool_gives_back_what_a_burst_took(void **state)
{
    struct slab *many[1000];
    struct slab_pool pool;

    (void)state;
    slab_pool_init(&pool);
    for (size_t i = 0; i < ARRAY_LEN(many); i++)
        many[i] = slab_get(&pool, 1);
    for (size_t i = 0; i < ARRAY_LEN(many); i++)
        slab_unref(many[i]);
    assert_in_range(pool.n_free[0], 1, 300);
    slab_pool_fini(&pool);
}

/* The oracle is one flat array: whatever was appended comes out in order, however it was cut. */
static void queue_gives_back_the_bytes_in_order(uint64_t seed)
{
    static uint8_t want[4000000], got[4000000];
    size_t n_want = 0, n_got = 0;
    struct slab_pool pool;
    struct outq q;
    struct rng r;

    rng_init(&r, seed);
    slab_pool_init(&pool);
    outq_init(&q, &pool);
    for (int step = 0; step < 400; step++) {
        const size_t len = rng_below(&r, 3) == 0 ? rng_below(&r, 9000) : rng_below(&r, 100);
        struct slab *slab = slab_get(&pool, len + 1);
        struct iovec iov[8];
        size_t room;
        int n;

        for (size_t i = 0; i < len; i++)
            slab->data[i] = want[n_want + i] = (uint8_t)rng_next(&r);
        n_want += len;
        if (rng_below(&r, 2) == 0)
            outq_copy(&q, slab->data, len);
        else
            outq_ref(&q, slab, slab->data, len);
        slab_unref(slab);
        assert_int_equal(q.bytes, n_want - n_got);
        n = outq_iov(&q, iov, 1 + (int)rng_below(&r, 8));
        room = rng_below(&r, 12000);
        for (int i = 0; i < n && room > 0; i++) {
            const size_t take = iov[i].iov_len < room ? iov[i].iov_len : room;

            memcpy(got + n_got, iov[i].iov_base, take);
            n_got += take;
            room -= take;
        }
        outq_sent(&q, q.bytes - (n_want - n_got));
    }
    assert_memory_equal(got, want, n_got);
    outq_sent(&q, 0);
    outq_fini(&q);
    assert_int_equal(pool.pinned_bytes, 0);
    slab_pool_fini(&pool);
}

static void output_queue_keeps_order_over_random_cuts(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 30; seed++)
        queue_gives_back_the_bytes_in_order(seed);
}

static void short_payload_is_copied_and_long_is_held(void **state)
{
    struct slab_pool pool;
    struct slab *slab;
    struct outq q;
    struct iovec iov[4];

    (void)state;
    slab_pool_init(&pool);
    outq_init(&q, &pool);
    slab = slab_get(&pool, SLAB_LARGE_BYTES);
    memset(slab->data, 0, SLAB_LARGE_BYTES);
    outq_ref(&q, slab, slab->data, OUTQ_COPY_BELOW - 1);
    assert_int_equal(slab->refs, 1);
    outq_ref(&q, slab, slab->data, OUTQ_COPY_BELOW);
    assert_int_equal(slab->refs, 2);
    outq_copy(&q, "head", 4);
    assert_int_equal(outq_iov(&q, iov, 4), 3);
    assert_ptr_equal(iov[1].iov_base, slab->data);
    outq_sent(&q, q.bytes);
    assert_int_equal(slab->refs, 1);
    assert_int_equal(pool.pinned_bytes, SLAB_LARGE_BYTES); /* an empty queue holds none */
    slab_unref(slab);
    outq_fini(&q);
    slab_pool_fini(&pool);
}

static void neighbouring_copies_are_one_segment(void **state)
{
    struct slab_pool pool;
    struct outq q;
    struct iovec iov[4];

    (void)state;
    slab_pool_init(&pool);
    outq_init(&q, &pool);
    for (int i = 0; i < 100; i++)
        outq_copy(&q, "0123456789", 10);
    assert_int_equal(outq_iov(&q, iov, 4), 1);
    assert_int_equal(iov[0].iov_len, 1000);
    outq_fini(&q);
    slab_pool_fini(&pool);
}

/* What lay free all the time goes by halves, what was needed stays. */
static void trim_follows_the_need(void **state)
{
    struct slab_pool pool;
    struct slab *s[64];

    (void)state;
    slab_pool_init(&pool);
    for (size_t i = 0; i < ARRAY_LEN(s); i++)
        s[i] = slab_get(&pool, 1);
    for (size_t i = 0; i < ARRAY_LEN(s); i++)
        slab_unref(s[i]);
    assert_int_equal(slab_pool_trim(&pool), 0); /* all of them were just needed */
    for (size_t i = 0; i < 48; i++)
        s[i] = slab_get(&pool, 1);
    for (size_t i = 0; i < 48; i++)
        slab_unref(s[i]);
    assert_int_equal(slab_pool_trim(&pool), 8 * SLAB_SMALL_BYTES); /* 16 were not */
    for (int i = 0; i < 10; i++)
        slab_pool_trim(&pool);
    assert_int_equal(pool.n_free[0], 0);
    slab_pool_fini(&pool);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(trim_follows_the_need),
        cmocka_unit_test(slab_goes_back_with_its_last_reference),
        cmocka_unit_test(sizes_round_up_to_a_class_and_past_it_are_exact),
        cmocka_unit_test(pool_gives_back_what_a_burst_took),
        cmocka_unit_test(output_queue_keeps_order_over_random_cuts),
        cmocka_unit_test(short_payload_is_copied_and_long_is_held),
        cmocka_unit_test(neighbouring_copies_are_one_segment),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
