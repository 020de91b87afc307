/* gateway/book.h - what the workers' reports add up to: the one struct gateway_stats.
 *
 * Owns:      the statistics (gateway/stats.h) and the accounts that their sums are made from.
 * Called by: gateway.c, for each report.
 * Lifetime:  book_new .. book_free.
 * Thread:    control.
 */
#ifndef GATEWAY_BOOK_H
#define GATEWAY_BOOK_H

#include "gateway/report.h"
#include "gateway/stats.h"

struct book;

struct book *book_new(uint32_t n_workers);
struct book *book_free(struct book *b); /* returns NULL */
void book_add(struct book *b, const struct report *r);
const struct gateway_stats *book_stats(const struct book *b);

#endif
