/* Valid JSON rewritten: without blanks, and without the members whose key comes again. Internal to this folder. */
#ifndef TOPICS_ENGINE_KEEP_LAST_H
#define TOPICS_ENGINE_KEEP_LAST_H

#include <stdint.h>

#include "json_strict.h"

/* memcpy, with rests between turns: into memory that was never touched, perhaps, which takes longer than the copy. */
void copy_in_turns(struct scan *s, uint8_t *to, const uint8_t *from, uint64_t len);
/* Copies the valid JSON at s->start without its blanks; returns its bytes. */
uint64_t compact(struct scan *s, uint8_t *out);
/* Of the valid compact JSON at s->start, in place. behind: room for a decoded key. work: see tp_keep_last. Returns the
 * bytes that are left, 0 when there are more than `keys` keys. */
uint64_t keep_last(struct scan *s, uint8_t *text, uint8_t *behind, void *work, uint64_t keys);

#endif
