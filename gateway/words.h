/* gateway/words.h - the words for enums in pages, metrics and messages: the same everywhere.
 *
 * Thread:    any.
 */
#ifndef GATEWAY_WORDS_H
#define GATEWAY_WORDS_H

#include "conf/snapshot.h"

const char *word_of_state(enum endpoint_state state);       /* "starting", "ready", ... */
const char *word_of_protocol(enum model_protocol protocol); /* as in the config */
const char *word_of_grpc(int code);                         /* "UNAVAILABLE" */

#endif
