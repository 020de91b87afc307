#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "conf/snapshot.h"
#include "gateway/metrics.h"

struct fixture {
    struct gateway_stats stats;
    uint64_t counters[2][N_COUNTERS];
    uint64_t epochs[2];
    struct version_stats version, *versions[1];
    struct endpoint_stats endpoint, *endpoints[1];
    uint32_t in_flight[2], queued[2];
    struct snapshot snap;
    struct snap_model model;
    struct model_conf model_conf;
    struct snap_version snap_version;
    struct version_conf version_conf;
    struct snap_endpoint snap_endpoint;
    const struct snap_endpoint *snap_endpoints[1];
    struct buf page;
};

static char model_name[] = "a\"b\\c\nd", version_name[] = "7", address[] = "127.0.0.1:9001";

static int set_up(void **state)
{
    static struct fixture f;

    memset(&f, 0, sizeof(f));
    f.counters[0][COUNT_streams_started] = 40;
    f.counters[1][COUNT_streams_started] = 2;
    f.counters[0][COUNT_sessions_open] = 3;
    f.epochs[0] = 5;
    f.epochs[1] = 6;
    f.in_flight[0] = 1;
    f.in_flight[1] = 2;
    f.queued[1] = 9;
    f.version = (struct version_stats){.model = model_name,
                                       .version = version_name,
                                       .started = 12,
                                       .finished = 4,
                                       .failed = 1,
                                       .in_flight = f.in_flight,
                                       .queued = f.queued};
    f.version.codes[0] = 3;
    f.version.codes[14] = 1;
    histogram_init(&f.version.latency_us);
    histogram_add(&f.version.latency_us, 500, 1);
    histogram_add(&f.version.latency_us, 1500, 2);
    histogram_add(&f.version.latency_us, 90000000, 1); /* past the last bucket */
    f.endpoint = (struct endpoint_stats){
        .address = address, .in_flight = f.in_flight, .started = 14, .failed = 2};
    f.versions[0] = &f.version;
    f.endpoints[0] = &f.endpoint;
    f.stats = (struct gateway_stats){.n_workers = 2,
                                     .worker_counters = f.counters,
                                     .worker_epochs = f.epochs,
                                     .versions = f.versions,
                                     .n_versions = 1,
                                     .endpoints = f.endpoints,
                                     .n_endpoints = 1};
    f.model_conf.name = model_name;
    f.version_conf.name = version_name;
    f.snap_endpoint = (struct snap_endpoint){
        .address = address, .replica = "r", .state = ENDPOINT_DRAINING, .weight = 1000};
    f.snap_endpoints[0] = &f.snap_endpoint;
    f.snap_version = (struct snap_version){
        .conf = &f.version_conf, .weight = 9900, .endpoints = f.snap_endpoints, .n_endpoints = 1};
    f.model =
        (struct snap_model){.conf = &f.model_conf, .versions = &f.snap_version, .n_versions = 1};
    f.snap = (struct snapshot){.generation = 4, .epoch = 6, .models = &f.model, .n_models = 1};
    buf_init(&f.page, 1 << 20);
    metrics_write(&f.page, &f.stats, &f.snap);
    *state = &f;
    return 0;
}

static int tear_down(void **state)
{
    buf_fini(&((struct fixture *)*state)->page);
    return 0;
}

static void assert_line(struct fixture *f, const char *line)
{
    const char *const page = buf_cstr(&f->page);
    const size_t len = strlen(line);

    for (const char *p = strstr(page, line); p != NULL; p = strstr(p + 1, line)) {
        if ((p == page || p[-1] == '\n') && p[len] == '\n')
            return;
    }
    fail_msg("no line %s in\n%s", line, page);
}

#define LABELS "{model=\"a\\\"b\\\\c\\nd\",version=\"7\""

static void sums_and_samples_have_their_names_and_labels(void **state)
{
    struct fixture *const f = *state;

    assert_line(f, "penstock_streams_started_total 42");
    assert_line(f, "penstock_sessions_open 3");
    assert_line(f, "penstock_calls_started_total" LABELS "} 12");
    assert_line(f, "penstock_calls_failed_total" LABELS "} 1");
    assert_line(f, "penstock_calls_in_flight" LABELS "} 3");
    assert_line(f, "penstock_calls_queued" LABELS "} 9");
    assert_line(f, "penstock_calls_total" LABELS ",code=\"OK\"} 3");
    assert_line(f, "penstock_calls_total" LABELS ",code=\"UNAVAILABLE\"} 1");
    assert_line(f, "penstock_endpoint_calls_total{address=\"127.0.0.1:9001\"} 14");
    assert_line(f, "penstock_endpoint_calls_failed_total{address=\"127.0.0.1:9001\"} 2");
    assert_line(f, "penstock_endpoint_in_flight{address=\"127.0.0.1:9001\"} 3");
    assert_line(f, "penstock_generation 4");
    assert_line(f, "penstock_worker_epoch{worker=\"1\"} 6");
    assert_line(f, "penstock_version_weight" LABELS "} 9900");
    assert_line(f, "penstock_endpoints" LABELS ",state=\"draining\"} 1");
    assert_line(f, "penstock_endpoints" LABELS ",state=\"ready\"} 0");
}

static void durations_are_cumulative_seconds(void **state)
{
    struct fixture *const f = *state;

    assert_line(f, "penstock_call_duration_seconds_bucket" LABELS ",le=\"0.001\"} 1");
    assert_line(f, "penstock_call_duration_seconds_bucket" LABELS ",le=\"0.002\"} 3");
    assert_line(f, "penstock_call_duration_seconds_bucket" LABELS ",le=\"60\"} 3");
    assert_line(f, "penstock_call_duration_seconds_bucket" LABELS ",le=\"+Inf\"} 4");
    assert_line(f, "penstock_call_duration_seconds_sum" LABELS "} 90.003500");
    assert_line(f, "penstock_call_duration_seconds_count" LABELS "} 4");
}

/* Prometheus refuses a page where a family comes twice or a sample has no TYPE. */
static void every_family_is_declared_once_and_first(void **state)
{
    struct fixture *const f = *state;
    char *const page = strdup(buf_cstr(&f->page));
    char *rest = page, *line;
    char seen[200][64], family[64] = "";
    size_t n_seen = 0;

    while ((line = strsep(&rest, "\n")) != NULL && *line != '\0') {
        if (strncmp(line, "# TYPE ", 7) == 0) {
            sscanf(line, "# TYPE %63s", family);
            for (size_t i = 0; i < n_seen; i++)
                assert_string_not_equal(seen[i], family);
            assert_true(n_seen < 200);
            strcpy(seen[n_seen++], family);
        } else if (line[0] != '#') {
            assert_true(strncmp(line, family, strlen(family)) == 0);
        }
    }
    assert_true(n_seen > N_COUNTERS);
    free(page);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        CASE(sums_and_samples_have_their_names_and_labels),
        CASE(durations_are_cumulative_seconds),
        CASE(every_family_is_declared_once_and_first),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
