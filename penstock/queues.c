/* penstock queues - what each queue may hold, holds, and who waits in it. */
#include <inttypes.h>
#include <stdio.h>

#include "base/json_out.h"
#include "penstock/args.h"
#include "penstock/ctl.h"
#include "penstock/verb.h"

/* Thousandths of cards as cards; "-" for none. */
static void cards_cell(struct ctl_table *t, uint64_t milli)
{
    if (milli == 0)
        ctl_table_cell(t, "-");
    else
        ctl_table_cell(t, "%" PRIu64 ".%03" PRIu64, milli / 1000, milli % 1000);
}

static void queue_row(struct ctl_table *t, const struct json_at *q)
{
    char wait[32];

    ctl_print_age(wait, sizeof(wait), json_at_uint(q, "oldest_wait_us", 0));
    ctl_table_cell(t, "%s", json_at_str(q, "queue", "?"));
    ctl_table_cell(t, "%" PRIu64, json_at_uint(q, "weight", 0));
    cards_cell(t, json_at_uint(q, "used_gpu_milli", 0));
    cards_cell(t, json_at_uint(q, "gpu_milli_deserved", 0));
    cards_cell(t, json_at_uint(q, "gpu_milli_cap", 0));
    ctl_table_cell(t, "%" PRIu64, json_at_uint(q, "jobs_running", 0));
    ctl_table_cell(t, "%" PRIu64, json_at_uint(q, "jobs_waiting", 0));
    ctl_table_cell(t, "%" PRIu64, json_at_uint(q, "jobs_suspended", 0));
    ctl_table_cell(t, "%s", json_at_uint(q, "jobs_waiting", 0) > 0 ? wait : "-");
}

int verb_queues(int argc, char **argv)
{
    static const char *const heads[] = {"QUEUE",   "WEIGHT",  "CARDS",     "DESERVED",    "CAP",
                                        "RUNNING", "WAITING", "SUSPENDED", "LONGEST WAIT"};
    struct ctl ctl;
    struct ctl_table t;
    const struct arg options[] = {CTL_OPTIONS(&ctl), ARG_END};
    const struct args_spec spec = {
        .verb = "queues",
        .positional = "",
        .about =
            "Queues of batch jobs: cards that each holds, deserves and may hold, and its jobs.",
        .options = options,
    };
    struct json_doc *doc = NULL;

    ctl_init(&ctl);
    int r = args_parse(&spec, &argc, argv);

    if (r != ARGS_OK)
        return args_exit(r);
    r = ctl_get(&ctl, "/v1/queues", &doc);
    if (doc == NULL)
        return r;
    if (!ctl_print_json(&ctl, doc)) {
        const struct json_at *const queues = json_at_member(json_doc_top(doc), "queues");

        ctl_table_init(&t, ARRAY_LEN(heads));
        for (size_t i = 0; i < ARRAY_LEN(heads); i++)
            ctl_table_cell(&t, "%s", heads[i]);
        for (size_t i = 0; i < json_at_n(queues); i++)
            queue_row(&t, json_at_item(queues, i));
        ctl_table_print(&t);
    }
    json_doc_free(doc);
    return r;
}
