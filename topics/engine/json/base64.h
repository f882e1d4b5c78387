/* Base64 in a write: RFC 4648 with padding, where unused bits are zero. Internal to this folder. */
#ifndef TOPICS_ENGINE_BASE64_H
#define TOPICS_ENGINE_BASE64_H

#include "json_strict.h"

/* Return the number of bytes that the inside [p, end) of a valid string is base64 of, or -1. */
int64_t base64_bytes(struct scan *s, const uint8_t *p, const uint8_t *end, int escaped);
/* Decode `len` bytes of such an inside at `from` to out, which has room for them all. Returns the
 * number of bytes. */
uint32_t move_base64(struct scan *s, const uint8_t *from, uint32_t len, int escaped, uint8_t *out);

#endif
