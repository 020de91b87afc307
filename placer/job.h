/* placer/job.h - batch jobs: what they ask for, and the state machine that runs them.
 *
 * A job has tasks (ps, worker, ...). With gang they start together or not at all, and when one
 * fails all are stopped and the whole gang is tried again; without it each task starts when it has
 * room and is tried again alone. A gang with minimums starts when the minimum of each role and of
 * the whole has room, with as many more as fit; the rest start when they have room, and keep nobody
 * waiting meanwhile. The job has succeeded when every task that is not a service has
 * ended with status 0; services (ps) are then stopped.
 *
 * Order: in a queue higher priority first, then as its `order` says: first in, first out, or by
 * estimates (placer/order.h). Behind the first that has no room only those start that do not delay
 * it: they leave it its room, or end before it is free, by their estimate; so a large gang is never
 * overtaken for ever where the order is by age. One that can never fit is told so and passed over.
 * A job that has waited longer than its queue's max_wait_s goes before all others, and every queue
 * leaves it its room. Among queues the one with the least GPU (then CPU) in use per
 * weight goes first; a queue never holds more GPU than its cap. A waiting gang may end others
 * (placer/preempt.h) where its queue allows it; they go back to their place in their queue.
 *
 * Owns:      job_book: all jobs, live and ended, and their placements.
 * Called by: the controller: submit and cancel for operators, job_book_step after every change and
 *            at job_book_next_us, job_on_* from driver events.
 * Lifetime:  job_book_new .. job_book_free. A job lives until job_book_forget or its book ends.
 * Thread:    one; no clock, no I/O: effects go through struct job_effects.
 */
#ifndef PLACER_JOB_H
#define PLACER_JOB_H

#include "base/arena.h"
#include "base/list.h"
#include "conf/field.h"
#include "conf/generation.h"
#include "placer/driver.h"
#include "placer/plan.h"

enum job_state {
    JOB_QUEUED = 0, /* behind others of its queue */
    JOB_WAITING,    /* first of its queue, the placer has no room: job->why */
    JOB_STARTING,   /* placed; not every task runs yet */
    JOB_RUNNING,
    JOB_STOPPING,  /* a task failed, or it was cancelled: the others are being ended */
    JOB_RETRYING,  /* holds nothing until the back-off ends */
    JOB_SUSPENDED, /* by an operator: holds nothing until it is resumed */
    JOB_SUCCEEDED,
    JOB_FAILED,
    JOB_CANCELLED,
    JOB_N_STATES
};
enum task_state {
    TASK_PENDING = 0,
    TASK_STARTING,
    TASK_RUNNING,
    TASK_STOPPING,
    TASK_SUCCEEDED,
    TASK_FAILED,
    TASK_STOPPED, /* ended by us */
    TASK_N_STATES
};
const char *job_state_name(enum job_state s);
const char *task_state_name(enum task_state s);
bool job_state_is_final(enum job_state s);

/* One kind of task out of a job file: `count` tasks alike. */
struct role_spec {
    const char *role; /* "worker" */
    uint32_t count;
    uint32_t min; /* of a gang: how many it starts with at least; 0: job_role_min */
    const char **command;
    size_t n_command;
    bool literal;          /* the command has no {words} to fill */
    struct conf_pair *env; /* "env": {NAME: value} */
    size_t n_env;
    uint32_t cpu_milli, memory_mib;
    struct gpu_conf gpu;
    bool service; /* does not end by itself. Default: a role named "ps" */
};
/* What job_file_load made of a job file; all in one arena. */
struct job_spec {
    struct arena arena;
    const char *name;
    const char *queue;
    uint32_t priority; /* higher goes first */
    bool gang;
    uint32_t min_available; /* of a gang: tasks that it starts with at least; 0: by the roles */
    uint32_t retries;
    uint32_t backoff_ms;   /* before the first retry; doubles, at most 60 s */
    uint32_t grace_ms;     /* from SIGTERM to SIGKILL */
    bool preemptible;      /* a gang may be ended for another (queues decide whether) */
    uint32_t max_run_s;    /* a start that lasts longer fails the job. 0: no limit */
    uint32_t estimate_s;   /* it runs about so long. 0: not known */
    uint32_t checkpoint_s; /* work is saved so often: what an end costs. 0: never */
    struct role_spec *roles;
    size_t n_roles;
    const char *json; /* as it was submitted, for `show` and the store */
};
/* From JSON text (penstock jobs submit, POST /v1/jobs). file: for messages. NULL: problems has all
 * of it. */
struct job_spec *job_file_load(const char *file, const char *json, size_t len,
                               struct conf_problems *problems);
struct job_spec *job_spec_free(struct job_spec *spec); /* returns NULL */
/* How many tasks of a role its gang starts with at least: its min; without one all of them, or,
 * where the job has a min_available, none in particular. */
uint32_t job_role_min(const struct job_spec *spec, const struct role_spec *role);
/* A gang that may start before all of its tasks have room. */
bool job_starts_partly(const struct job_spec *spec);
extern const struct conf_table job_file_table; /* for the reference page */

struct job_task {
    struct job *job;
    const struct role_spec *role;
    uint32_t index; /* within its role */
    uint32_t rank;  /* within the job: 0 .. n_tasks - 1, in the order of the file */
    char *name;     /* "worker-0" */
    char *log;      /* name of its log, the same for each try */
    char *id;       /* unit id of the running or last try: "job:train/worker-0~2" */
    enum task_state state;
    bool placed; /* placement stands in the view */
    struct plan_placement placement;
    char address[DRIVER_ADDRESS_MAX]; /* given by effects->prepare at each start */
    int pid;
    int status;    /* of the last end: exit status, or -signal */
    char text[96]; /* the same for people */
    uint32_t tries;
    uint64_t started_us, ended_us; /* of the last try; 0: not yet */
};

struct job {
    struct list node; /* in the book, in order of submission */
    uint64_t number;  /* rises with each submission */
    struct job_spec *spec;
    struct job_queue *queue;
    enum job_state state;
    enum job_state ending; /* STOPPING: what it becomes when every task has ended */
    struct job_task *tasks;
    size_t n_tasks;
    uint32_t failures;    /* of tasks, by themselves; over spec->retries the job fails */
    uint64_t expected_us; /* WAITING: when it will start, by estimates; UINT64_MAX: not known */
    uint32_t evictions;   /* ends for the sake of others; never counted as failures */
    uint64_t evicted_for; /* number of the job that the last one was for */
    uint64_t submitted_us;
    uint64_t first_start_us; /* 0: not yet; less submitted_us: the wait for room */
    uint64_t start_us;       /* of the last start */
    uint64_t ended_us;
    uint64_t retry_us;   /* nothing is placed before this */
    uint64_t tried_step; /* the book's step that last looked at it */
    char why[640];       /* why it is where it is: the placer's words, the failed task's end */
};

/* What the book wants done; the shell turns these into driver calls. */
struct job_effects {
    void *arg;
    /* Placed and about to start, all tasks of a start before the first of them: fill
     * task->address. 0 or -errno. */
    int (*prepare)(void *arg, struct job_task *task, struct err *err);
    /* Start one. 0: exactly one job_on_exited or job_on_failed follows. */
    int (*start)(void *arg, struct job_task *task, struct err *err);
    void (*stop)(void *arg, struct job_task *task, uint64_t grace_us);
    /* After each change of the job's state (is_new_state) or of its reason alone, for the log and
     * the store; must not call the book. NULL: nobody listens. */
    void (*changed)(void *arg, struct job *job, bool is_new_state);
};

struct job_book;
struct job_book *job_book_new(struct cluster_view *view, const struct job_effects *effects);
/* Gives back the room of its tasks; stops nothing. Returns NULL. */
struct job_book *job_book_free(struct job_book *book);
/* The queues of a generation, copied. A queue that jobs name and it does not have: weight 1. */
void job_book_set_queues(struct job_book *book, const struct queue_conf *queues, size_t n_queues);

enum job_outcome {
    JOB_OK = 0,
    JOB_E_EXISTS,  /* a job of this name has not ended */
    JOB_E_UNKNOWN, /* no such job */
    JOB_E_ENDED,   /* it has ended already */
    JOB_E_FULL,    /* JOB_BOOK_MAX jobs that have not ended */
};
#define JOB_BOOK_MAX   10000 /* jobs alive at once */
#define JOB_ENDED_KEPT 200   /* ended ones kept for `list`; the oldest are forgotten */
/* n more: else job_submit says JOB_E_FULL. */
bool job_book_has_room(const struct job_book *book, size_t n);
/* Takes spec over when it returns JOB_OK. Call job_book_step after it. */
enum job_outcome job_submit(struct job_book *book, struct job_spec *spec, uint64_t now_us,
                            struct job **ret_job); /* ret_job may be NULL */
enum job_outcome job_cancel(struct job_book *book, const char *name, const char *why,
                            uint64_t now_us);
/* Stops it, keeping its place: what has run of a gang runs again when it is resumed; of other jobs
 * the tasks that have ended with status 0 stay ended. JOB_E_ENDED also when it is ending anyway. */
enum job_outcome job_suspend(struct job_book *book, const char *name, uint64_t now_us);
/* JOB_E_ENDED: it is not suspended. Call job_book_step after it. */
enum job_outcome job_resume(struct job_book *book, const char *name, uint64_t now_us);
struct job *job_find(const struct job_book *book, const char *name); /* the newest of that name */

/* Place what can be placed, in order. Cheap when nothing changed. Jobs that wait for cards are
 * looked at again at each call. */
void job_book_step(struct job_book *book, uint64_t now_us);
/* When step has something to do by itself (a back-off ends); UINT64_MAX: never. */
uint64_t job_book_next_us(const struct job_book *book);

/* From driver events; an id that is not (or no longer) a task of the book is ignored: false. Call
 * job_book_step after them. */
bool job_on_started(struct job_book *book, const char *id, int pid, uint64_t now_us);
bool job_on_exited(struct job_book *book, const char *id, int status, uint64_t now_us);
bool job_on_failed(struct job_book *book, const char *id, const char *text, uint64_t now_us);

/* What a queue is allowed and holds. */
struct job_queue_use {
    const char *name; /* lives as long as the book */
    uint32_t weight;
    uint32_t gpu_milli_cap, gpu_milli_deserved; /* 0: none */
    uint64_t used_gpu_milli, used_cpu_milli;
    uint32_t n_waiting, n_running, n_suspended; /* jobs; waiting: queued and retrying, too */
    uint64_t oldest_wait_us;                    /* of those that wait */
};
size_t job_book_n_queues(const struct job_book *book);
/* i: below job_book_n_queues, in the order in which they were first named. O(jobs). */
struct job_queue_use job_book_queue_use(struct job_book *book, size_t i, uint64_t now_us);

typedef void (*job_each_fn)(void *arg, struct job *job);
void job_book_each(struct job_book *book, job_each_fn fn, void *arg); /* in order of submission */

#endif
