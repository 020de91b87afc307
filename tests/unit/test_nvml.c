/* Cards as a management library tells them; the library is tests/unit/fake_nvml.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <string.h>

#include "placer/nvml.h"
#include "tests/unit/fake_nvml.h"

static const struct fake_card three[] = {
    {"GPU-1", "NVIDIA H200", 150754820096ULL},
    {"GPU-2", "Tesla T4", 16106127360ULL},
    {"GPU-3", "NVIDIA A100-SXM4-80GB", 85899345920ULL},
};

static void cards_have_uuid_model_and_memory(void **state)
{
    struct nvml_card cards[4];
    uint32_t n_lost;

    (void)state;
    fake_nvml_set(three, 3, 0, 0);
    assert_int_equal(nvml_cards(cards, 4, &n_lost, NULL), 3);
    assert_string_equal(cards[0].uuid, "GPU-1");
    assert_string_equal(cards[0].model, "H200");
    assert_int_equal(cards[0].memory_mib, 143771);
    assert_string_equal(cards[1].model, "T4");
    assert_int_equal(cards[1].memory_mib, 15360);
    assert_string_equal(cards[2].model, "A100-SXM4-80GB");
    assert_int_equal(nvml_cards(cards, 2, &n_lost, NULL), 2); /* as many as were asked for */
    assert_int_equal(fake_nvml_open_sessions(), 0);
}

static void a_library_without_its_driver_has_no_cards(void **state)
{
    struct nvml_card cards[4];
    uint32_t n_lost;

    (void)state;
    fake_nvml_set(three, 3, 9, 0); /* NVML_ERROR_DRIVER_NOT_LOADED */
    assert_int_equal(nvml_cards(cards, 4, &n_lost, NULL), 0);
    assert_int_equal(fake_nvml_open_sessions(), 0);
}

static void a_library_that_does_not_count_is_a_fault(void **state)
{
    struct nvml_card cards[4];
    uint32_t n_lost;
    struct err err;

    (void)state;
    fake_nvml_set(three, 3, 0, 999);
    assert_int_equal(nvml_cards(cards, 4, &n_lost, &err), -EIO);
    assert_non_null(strstr(err.text, "error 999"));
    assert_int_equal(fake_nvml_open_sessions(), 0);
}

static void a_lost_card_does_not_stop_the_rest(void **state)
{
    static const struct fake_card cards_one_lost[] = {
        {"GPU-1", "NVIDIA H200", 1 << 20}, {"GPU-2", NULL, 0}, {"GPU-3", "Tesla T4", 1 << 20}};
    struct nvml_card cards[4];
    uint32_t n_lost;
    struct err err;

    (void)state;
    fake_nvml_set(cards_one_lost, 3, 0, 0);
    assert_int_equal(nvml_cards(cards, 4, &n_lost, &err), 2);
    assert_int_equal(n_lost, 1);
    assert_string_equal(cards[1].uuid, "GPU-3");
    assert_non_null(strstr(err.text, "card 1: error 15"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cards_have_uuid_model_and_memory),
        cmocka_unit_test(a_library_without_its_driver_has_no_cards),
        cmocka_unit_test(a_library_that_does_not_count_is_a_fault),
        cmocka_unit_test(a_lost_card_does_not_stop_the_rest),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
