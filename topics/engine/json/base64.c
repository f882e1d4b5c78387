/* Base64 of writes: see base64.h. */
#include "base64.h"

/* The value of a character of the alphabet, else 0xFF. */
static inline uint8_t value_of(uint32_t c)
{
    static const uint8_t VALUES[128] = {
        0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF,
        0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF,
        0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 62, 0xFF, 0xFF, 0xFF, 63,
        52, 53, 54, 55, 56, 57, 58, 59, 60, 61, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF,
        0xFF, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14,
        15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF,
        0xFF, 26, 27, 28, 29, 30, 31, 32, 33, 34, 35, 36, 37, 38, 39, 40,
        41, 42, 43, 44, 45, 46, 47, 48, 49, 50, 51, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF,
    };
    return c < 128 ? VALUES[c] : 0xFF;
}

/* Return the characters of the last group that are not padding, 2 to 4; 0 if it is malformed. */
static int last_group(const uint8_t *q)
{
    uint8_t a = value_of(q[0]), b = value_of(q[1]), c = value_of(q[2]), d = value_of(q[3]);
    if ((a | b) & 0x80) return 0;
    if (q[3] != '=') return (c | d) & 0x80 ? 0 : 4;
    if (q[2] != '=') return c & 0x80 || c & 3 ? 0 : 3;
    return b & 15 ? 0 : 2;
}

/* base64_bytes for an inside with escapes, character by character. */
static int64_t escaped_bytes(struct scan *s, const uint8_t *p, const uint8_t *end)
{
    uint8_t group[4];
    uint64_t count = 0;
    while (p < end) {
        uint32_t c = next_character(&p);
        MAY_REST(s, p);
        if (count && !(count & 3) && last_group(group) != 4) return -1; /* nothing follows padding */
        group[count++ & 3] = c < 128 ? (uint8_t)c : 0;
    }
    if (!count) return 0;
    int used = count & 3 ? 0 : last_group(group);
    return used ? (int64_t)(count / 4 * 3) - (4 - used) : -1;
}

int64_t base64_bytes(struct scan *s, const uint8_t *p, const uint8_t *end, int escaped)
{
    if (escaped) return escaped_bytes(s, p, end);
    uint64_t count = (uint64_t)(end - p);
    if (!count) return 0;
    if (count & 3) return -1;
    for (const uint8_t *last = end - 4; p < last; p += 4) {
        MAY_REST(s, p);
        if ((value_of(p[0]) | value_of(p[1]) | value_of(p[2]) | value_of(p[3])) & 0x80) return -1;
    }
    int used = last_group(end - 4);
    return used ? (int64_t)(count / 4 * 3) - (4 - used) : -1;
}

uint32_t move_base64(struct scan *s, const uint8_t *from, uint32_t len, int escaped, uint8_t *out)
{
    uint8_t *to = out;
    rest_from(s, from);
    if (escaped) { /* bytes are fewer than their characters, so that these may be there before */
        for (const uint8_t *end = from + len; from < end; *to++ = (uint8_t)next_character(&from)) MAY_REST(s, from);
        from = out, len = (uint32_t)(to - out), to = out;
        rest_from(s, from);
    }
    if (!len) return 0;
    const uint8_t *last = from + len - 4;
    for (; from < last; from += 4, to += 3) {
        MAY_REST(s, from);
        uint32_t v = (uint32_t)value_of(from[0]) << 18 | (uint32_t)value_of(from[1]) << 12 |
                     (uint32_t)value_of(from[2]) << 6 | value_of(from[3]);
        to[0] = (uint8_t)(v >> 16), to[1] = (uint8_t)(v >> 8), to[2] = (uint8_t)v;
    }
    int used = last_group(last);
    uint32_t v = (uint32_t)value_of(last[0]) << 18 | (uint32_t)value_of(last[1]) << 12;
    if (used > 2) v |= (uint32_t)value_of(last[2]) << 6;
    if (used > 3) v |= value_of(last[3]);
    *to++ = (uint8_t)(v >> 16);
    if (used > 2) *to++ = (uint8_t)(v >> 8);
    if (used > 3) *to++ = (uint8_t)v;
    return (uint32_t)(to - out);
}
