/* base/quantity.h - amounts with a unit, as Kubernetes writes them: "500m", "16Gi", "1.5", "1e9".
 *
 * Strict: a unit that is not in the list is an error that names it, nothing is read as zero,
 * nothing wraps. The arithmetic is exact; only the result is rounded, up, to the integer unit of
 * the placer.
 *
 * Owns:      nothing.
 * Called by: the readers of job manifests (placer/manifest_pod.c).
 * Thread:    any.
 * Source:    k8s.io/apimachinery/pkg/api/resource, quantity.go: the grammar in its type's comment.
 */
#ifndef BASE_QUANTITY_H
#define BASE_QUANTITY_H

#include <stdint.h>

#include "base/err.h"

/* Cores ("4", "500m", "0.5") as thousandths of a core, memory ("16Gi", "512Mi", "1G", "1e9", plain
 * bytes) as MiB. 0 with ret filled, or -EINVAL with what is wrong in err, without the text itself:
 * `unknown unit "mb"; known are ...`; also when the result is over 2^64 - 1, and for an amount of
 * memory between 0 and 1 byte (512m, where 512Mi was meant). */
int quantity_cpu_milli(const char *text, uint64_t *ret_cpu_milli, struct err *err);
int quantity_memory_mib(const char *text, uint64_t *ret_memory_mib, struct err *err);

#endif
