/* loadtest/unzip.h - one compressed gRPC message (grpc-encoding gzip or deflate) unpacked.
 *
 * Called by: model_server.c; stock clients may compress what they send.
 * Thread:    any.
 */
#ifndef LOADTEST_UNZIP_H
#define LOADTEST_UNZIP_H

#include <stdint.h>

#include "base/buf.h"

enum { UNZIP_OK = 0, UNZIP_E_ENCODING, UNZIP_E_BROKEN, UNZIP_E_TOO_LONG };

/* encoding: value of grpc-encoding, NULL: none given. ret_buf: appended to; its ceiling is the
 * limit of UNZIP_E_TOO_LONG, so that a few bytes can't become gigabytes. */
int unzip_message(const char *encoding, const uint8_t *p, size_t len, struct buf *ret_buf);

#endif
