/* Rewriting of valid JSON: without blanks, and without members whose key is repeated. Internal
 * to this folder. */
#ifndef TOPICS_ENGINE_KEEP_LAST_H
#define TOPICS_ENGINE_KEEP_LAST_H

#include <stdint.h>

#include "json_strict.h"

/* Copy like memcpy, with rests between turns. Copying into memory that was never touched may
 * take longer than the copy itself. */
void copy_in_turns(struct scan *s, uint8_t *to, const uint8_t *from, uint64_t len);
/* Copy the valid JSON at s->start without its blanks; return the bytes written. */
uint64_t compact(struct scan *s, uint8_t *out);
/* Drop repeated members of the valid compact JSON at s->start, in place. after: room for a
 * decoded key. work: see tp_keep_last. Returns the bytes left; 0 if there are more than `keys`
 * keys. */
uint64_t keep_last(struct scan *s, uint8_t *text, uint8_t *after, void *work, uint64_t keys);

#endif
