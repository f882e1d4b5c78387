/* SHA-256 (FIPS 180-4) of short texts, the tokens of requests. Internal to this folder. */
#ifndef TOPICS_HTTP_SHA256_H
#define TOPICS_HTTP_SHA256_H

#include <stdint.h>

/* Write the digest of `text`: 32 bytes. */
void sha256(const uint8_t *text, uint64_t len, uint8_t *digest);

#endif
