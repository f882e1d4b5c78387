/* Questions about 16 characters at once, where the machine has instructions for them: SSE2 of
 * x86-64, NEON of aarch64. Elsewhere there is no SIXTEEN_AT_ONCE, and a text is scanned byte by
 * byte.
 *
 * An answer is a number with a mark for each character that was asked for; 0 says that there is
 * none. */
#ifndef TOPICS_ENGINE_JSON_SIXTEEN_H
#define TOPICS_ENGINE_JSON_SIXTEEN_H

#include <stdint.h>

#if defined(__SSE2__)
#define SIXTEEN_AT_ONCE
#include <emmintrin.h>

typedef __m128i sixteen;
typedef unsigned marks; /* a bit for each character */

static inline sixteen load16(const uint8_t *p) { return _mm_loadu_si128((const __m128i *)p); }
static inline sixteen equal16(sixteen chunk, char c) { return _mm_cmpeq_epi8(chunk, _mm_set1_epi8(c)); }
/* Return the characters below c, of signed ones: bytes from 0x80 on are below all of ASCII. */
static inline sixteen below16(sixteen chunk, char c) { return _mm_cmplt_epi8(chunk, _mm_set1_epi8(c)); }
static inline sixteen either16(sixteen a, sixteen b) { return _mm_or_si128(a, b); }
static inline sixteen digits16(sixteen chunk)
{
    sixteen digits = _mm_sub_epi8(chunk, _mm_set1_epi8('0'));
    return _mm_cmpeq_epi8(_mm_min_epu8(digits, _mm_set1_epi8(9)), digits);
}
static inline marks marked(sixteen found) { return (marks)_mm_movemask_epi8(found); }
static inline marks unmarked(sixteen found) { return marked(found) ^ 0xffff; }
static inline int first_mark(marks found) { return __builtin_ctz(found); }

#elif defined(__aarch64__) && defined(__ARM_NEON) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
#define SIXTEEN_AT_ONCE
#include <arm_neon.h>

typedef uint8x16_t sixteen;
typedef uint64_t marks; /* four bits for each character */

static inline sixteen load16(const uint8_t *p) { return vld1q_u8(p); }
static inline sixteen equal16(sixteen chunk, char c) { return vceqq_u8(chunk, vdupq_n_u8((uint8_t)c)); }
static inline sixteen below16(sixteen chunk, char c)
{
    return vcltq_s8(vreinterpretq_s8_u8(chunk), vdupq_n_s8((int8_t)c));
}
static inline sixteen either16(sixteen a, sixteen b) { return vorrq_u8(a, b); }
static inline sixteen digits16(sixteen chunk)
{
    return vcleq_u8(vsubq_u8(chunk, vdupq_n_u8('0')), vdupq_n_u8(9));
}
static inline marks marked(sixteen found)
{
    return vget_lane_u64(vreinterpret_u64_u8(vshrn_n_u16(vreinterpretq_u16_u8(found), 4)), 0);
}
static inline marks unmarked(sixteen found) { return ~marked(found); }
static inline int first_mark(marks found) { return __builtin_ctzll(found) >> 2; }

#endif
#endif
