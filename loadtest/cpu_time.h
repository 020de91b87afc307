/* loadtest/cpu_time.h - CPU time of other processes, as the scheduler counts it.
 *
 * Owns:      nothing.
 * Called by: saturate.c.
 * Source:    proc(5): /proc/PID/task/TID/schedstat, first number: nanoseconds on a CPU.
 */
#ifndef LOADTEST_CPU_TIME_H
#define LOADTEST_CPU_TIME_H

#include <stddef.h>
#include <sys/types.h>

/* Of all threads that these processes have now, in microseconds; those that can't be read count
 * nothing. */
double cpu_time_us(const pid_t *pids, size_t n);

#endif
