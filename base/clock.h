/* base/clock.h - the two clocks; read by shells only, never by pure cores.
 *
 * Thread:    any.
 */
#ifndef BASE_CLOCK_H
#define BASE_CLOCK_H

#include <stdint.h>

#define US_PER_S  UINT64_C(1000000)
#define US_PER_MS UINT64_C(1000)

uint64_t clock_mono_us(void); /* CLOCK_MONOTONIC; the now_us of every module */
uint64_t clock_wall_us(void); /* CLOCK_REALTIME, microseconds since 1970 */

#endif
