#include "placer/job_run.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json_out.h"
#include "base/xalloc.h"

#define TF_CONFIG_MAX (256u * 1024) /* 4,096 tasks with addresses of 40 bytes, and some */

struct job_runner {
    struct loop *loop;
    struct driver *driver;
    struct cluster_view *view;
    struct job_book *book;
    void (*changed)(void *arg, struct job *job, bool is_new_state);
    void *arg;
    struct timer again; /* a back-off ends */
};

/* ---- one task's surroundings ---- */

/* Names and values for the blanks of its command and for its environment; texts are ours. */
struct surroundings {
    char index[12], rank[12], world_size[12], tries[12];
    char master_host[DRIVER_ADDRESS_MAX], master_port[12];
    struct buf tf_config;
    struct env_pair blanks[8];
    struct env_pair *env;
    size_t n_env;
};

static void write_tf_config(struct buf *b, const struct job_task *task)
{
    const struct job *job = task->job;
    struct json_out j;

    json_out_init(&j, b);
    json_out_object(&j, NULL);
    json_out_object(&j, "cluster");
    for (size_t i = 0; i < job->n_tasks; i++) {
        if (job->tasks[i].index == 0) {
            if (i > 0)
                json_out_end_array(&j);
            json_out_array(&j, job->tasks[i].role->role);
        }
        json_out_str(&j, NULL, job->tasks[i].address);
    }
    json_out_end_array(&j);
    json_out_end_object(&j);
    json_out_object(&j, "task");
    json_out_str(&j, "type", task->role->role);
    json_out_uint(&j, "index", task->index);
    json_out_end_object(&j);
    json_out_end_object(&j);
}

static void surroundings_init(struct surroundings *s, const struct job_task *task)
{
    const struct job *job = task->job;
    const char *master = job->tasks[0].address, *colon = strrchr(master, ':');
    const struct role_spec *role = task->role;

    memset(s, 0, sizeof(*s));
    snprintf(s->index, sizeof(s->index), "%u", task->index);
    snprintf(s->rank, sizeof(s->rank), "%u", task->rank);
    snprintf(s->world_size, sizeof(s->world_size), "%zu", job->n_tasks);
    snprintf(s->tries, sizeof(s->tries), "%u", task->tries);
    if (colon != NULL) { /* without gang rank 0 may not have a place yet */
        snprintf(s->master_host, sizeof(s->master_host), "%.*s", (int)(colon - master), master);
        snprintf(s->master_port, sizeof(s->master_port), "%s", colon + 1);
    }
    buf_init(&s->tf_config, TF_CONFIG_MAX);
    write_tf_config(&s->tf_config, task);

    const struct env_pair blanks[] = {
        {"job", job->spec->name},
        {"task", task->name},
        {"role", role->role},
        {"index", s->index},
        {"rank", s->rank},
        {"world_size", s->world_size},
        {"master_addr", s->master_host},
        {"master_port", s->master_port},
    };
    const struct env_pair env[] = {
        {"PENSTOCK_JOB", job->spec->name},
        {"PENSTOCK_TASK", task->name},
        {"PENSTOCK_ROLE", role->role},
        {"PENSTOCK_INDEX", s->index},
        {"PENSTOCK_TRY", s->tries},
        {"RANK", s->rank},
        {"LOCAL_RANK", "0"}, /* each task is a process of its own and sees only its cards */
        {"WORLD_SIZE", s->world_size},
        {"MASTER_ADDR", s->master_host},
        {"MASTER_PORT", s->master_port},
        {"TF_CONFIG", buf_cstr(&s->tf_config)},
    };

    memcpy(s->blanks, blanks, sizeof(blanks));
    s->env = xcalloc(ARRAY_LEN(env) + role->n_env, sizeof(*s->env));
    memcpy(s->env, env, sizeof(env));
    s->n_env = ARRAY_LEN(env);
    for (size_t i = 0; i < role->n_env; i++)
        s->env[s->n_env++] = (struct env_pair){role->env[i].key, role->env[i].text};
}

static void surroundings_fini(struct surroundings *s)
{
    buf_fini(&s->tf_config);
    free(s->env);
}

/* ---- effects ---- */

static int runner_prepare(void *arg, struct job_task *task, struct err *err)
{
    struct job_runner *r = arg;

    return driver_reserve_address(r->driver, r->view->nodes[task->placement.node].name,
                                  task->address, sizeof(task->address), err);
}

static int runner_start(void *arg, struct job_task *task, struct err *err)
{
    struct job_runner *r = arg;
    const struct plan_placement *p = &task->placement;
    const struct plan_node *node = &r->view->nodes[p->node];
    const char *cards[PLAN_MAX_CARDS];
    struct surroundings s;
    int rc;

    for (uint32_t i = 0; i < p->n_cards; i++)
        cards[i] = node->cards[p->cards[i]].id;
    surroundings_init(&s, task);
    const struct unit_spec unit = {.id = task->id,
                                   .command = (const char *const *)task->role->command,
                                   .n_command = task->role->n_command,
                                   .literal = task->role->literal,
                                   .blanks = s.blanks,
                                   .n_blanks = ARRAY_LEN(s.blanks),
                                   .env = s.env,
                                   .n_env = s.n_env,
                                   .address = task->address,
                                   .node = node->name,
                                   .cards = cards,
                                   .n_cards = p->n_cards,
                                   .cpu_milli = p->cpu_milli,
                                   .memory_mib = p->memory_mib,
                                   .gpu_milli = p->gpu_milli,
                                   .gpu_memory_mib = p->gpu_memory_mib,
                                   .log = task->log};
    rc = driver_start(r->driver, &unit, err);
    surroundings_fini(&s);
    return rc;
}

static void runner_stop(void *arg, struct job_task *task, uint64_t grace_us)
{
    struct job_runner *r = arg;

    /* -ENOENT: it has ended by itself, its event is under way. */
    (void)driver_stop(r->driver, task->id, grace_us);
}

static void runner_changed(void *arg, struct job *job, bool is_new_state)
{
    struct job_runner *r = arg;

    if (r->changed != NULL)
        r->changed(r->arg, job, is_new_state);
}

/* ---- life ---- */

static void runner_on_again(struct timer *t)
{
    job_runner_step(container_of(t, struct job_runner, again));
}

struct job_runner *job_runner_new(const struct job_runner_conf *conf)
{
    struct job_runner *r = xcalloc(1, sizeof(*r));
    const struct job_effects effects = {.arg = r,
                                        .prepare = runner_prepare,
                                        .start = runner_start,
                                        .stop = runner_stop,
                                        .changed = runner_changed};

    r->loop = conf->loop;
    r->driver = conf->driver;
    r->view = conf->view;
    r->changed = conf->changed;
    r->arg = conf->arg;
    r->again.fire = runner_on_again;
    r->book = job_book_new(conf->view, &effects);
    return r;
}

struct job_runner *job_runner_free(struct job_runner *r)
{
    if (r == NULL)
        return NULL;
    timer_stop(r->loop, &r->again);
    job_book_free(r->book);
    free(r);
    return NULL;
}

struct job_book *job_runner_book(struct job_runner *r)
{
    return r->book;
}

void job_runner_step(struct job_runner *r)
{
    uint64_t next_us;

    job_book_step(r->book, r->loop->now_us);
    next_us = job_book_next_us(r->book);
    if (next_us == UINT64_MAX)
        timer_stop(r->loop, &r->again);
    else
        timer_start(r->loop, &r->again, next_us);
}

bool job_runner_on_event(struct job_runner *r, const struct driver_event *ev)
{
    switch (ev->kind) {
    case DRIVER_STARTED:
        return job_on_started(r->book, ev->id, ev->pid, r->loop->now_us);
    case DRIVER_EXITED:
        return job_on_exited(r->book, ev->id, ev->status, r->loop->now_us);
    case DRIVER_FAILED:
        return job_on_failed(r->book, ev->id, ev->text, r->loop->now_us);
    }
    return false;
}
