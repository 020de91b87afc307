/* placer/job_book.h - the inside of the job book, shared by job.c (states, ends, events) and
 * job_place.c (order, placing, starting). Nobody else includes it.
 */
#ifndef PLACER_JOB_BOOK_H
#define PLACER_JOB_BOOK_H

#include "base/hash.h"
#include "placer/job.h"
#include "placer/order.h"

/* What a queue holds of the cluster. Made on first use of its name and never removed: jobs point
 * to it. */
struct job_queue {
    char *name;
    const struct order_ops *order;
    uint32_t weight;        /* >= 1 */
    uint32_t gpu_milli_cap; /* 0: none */
    uint32_t gpu_milli_deserved;
    bool preempt;
    uint64_t min_run_us;
    uint64_t max_wait_us; /* 0: none */
    size_t index;         /* in the book */
    uint64_t used_gpu_milli, used_cpu_milli;
    const struct job *blocked_by; /* in one step: its first job that has no room */
    bool blocked_by_cap;          /* it waits for others of the queue to end, not for room */
    uint32_t n_tried_behind;      /* in one step: jobs tried after that */
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
    uint64_t protected_until_us; /* in one step: when the first gang that a waiting one would end
                                    has run its minimum; UINT64_MAX: none */
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
/* A gang that waits for room: ends others for it where the rules of the queues allow it and that
 * makes room (placer/preempt.h). Returns how many are being ended for it, now or since an earlier
 * call. */
size_t job_preempt(struct job_book *book, struct job *job, const struct plan_request *reqs,
                   size_t n_reqs, uint64_t now_us);
/* Whether every job that others are being ended for still fits once they are gone, as the view
 * stands now. placed: the job that was placed just now, which must not take the room that is made
 * for another; it is not looked at itself. ret_first: one that would not fit. */
bool job_preemptors_have_room(struct job_book *book, const struct job *placed,
                              const struct job **ret_first);
/* What the pending tasks ask for, in order of rank; ret_tasks says whose it is. Both have room for
 * all tasks. */
size_t job_pending(const struct job *job, struct plan_request *ret_reqs,
                   struct job_task **ret_tasks);
/* When a job that runs has run too long; UINT64_MAX: never. */
uint64_t job_run_limit_us(const struct job *job);
void job_check_run_limit(struct job_book *book, struct job *job, uint64_t now_us);
/* The same for what it has to have room for to start: less than all where a gang has minimums. */
size_t job_needed(const struct job *job, struct plan_request *ret_reqs,
                  struct job_task **ret_tasks);
/* When a waiting job has room if every job that runs ends by its estimate; UINT64_MAX: not known.
 */
uint64_t job_expected_us(struct job_book *book, const struct job *job, uint64_t now_us);
/* It waits longer than its queue wants. */
bool job_is_overdue(const struct job *job, uint64_t now_us);
/* Whether what was just placed, of job `placed` (plan, which stands in the view), lets the waiting
 * job start as early as without it: because it leaves it its room, or ends before by 1.5 times its
 * estimate. An overdue job, and one that waits for jobs without estimates, must be left its room.
 */
bool job_keeps_its_turn(struct job_book *book, const struct job *waiting, const struct job *placed,
                        const struct plan *plan, uint64_t now_us);
/* Ends a running gang for the sake of another; it goes back to its queue. */
void job_evict(struct job_book *book, struct job *job, const struct job *for_job, uint64_t now_us);
/* Frees a job that holds nothing any more (book_forget_old) or with its book. */
void job_free(struct job_book *book, struct job *job);

#endif
