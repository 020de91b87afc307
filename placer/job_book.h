/* placer/job_book.h - the inside of the job book, shared by job.c (states, ends, events) and
 * job_place.c (order, placing, starting). Nobody else includes it.
 */
#ifndef PLACER_JOB_BOOK_H
#define PLACER_JOB_BOOK_H

#include "base/hash.h"
#include "placer/job.h"

/* What a queue holds of the cluster. Made on first use of its name and never removed: jobs point
 * to it. */
struct job_queue {
    char *name;
    uint32_t weight;        /* >= 1 */
    uint32_t gpu_milli_cap; /* 0: none */
    uint64_t used_gpu_milli, used_cpu_milli;
    const struct job *blocked_by; /* in one step: its first job that has no room */
};

struct job_book {
    struct cluster_view *view;
    struct job_effects effects;
    struct list jobs;
    size_t n_alive, n_ended;
    uint64_t next_number;
    struct job_queue **queues;
    size_t n_queues;
    struct map tasks; /* by unit id: tasks whose unit has not ended */
    uint64_t step;
};

/* Moves the job; insists that the table of states allows it. */
void job_set_state(struct job_book *book, struct job *job, enum job_state to, uint64_t now_us);
/* Says why it is where it is; effects->changed hears of it when that is news. */
void job_set_why(struct job_book *book, struct job *job, const char *fmt, ...) PRINTF_LIKE(3, 4);

/* Thousandths of cards that a placement holds. */
uint64_t placement_gpu_milli(const struct plan_placement *p);
/* Gives back what the task holds; safe when it holds nothing. */
void task_release(struct job_book *book, struct job_task *task);
/* The task's unit has ended, or never began. */
void task_end(struct job_book *book, struct job_task *task, enum task_state state, uint64_t now_us);
/* A task failed by itself (its text says how): spend a retry, or give up. */
void job_on_task_failure(struct job_book *book, struct job *job, struct job_task *task,
                         uint64_t now_us);
/* Frees a job that holds nothing any more (book_forget_old) or with its book. */
void job_free(struct job_book *book, struct job *job);

#endif
