/* One record as an element of a JSON array, from its frame. Internal to C files that render;
 * inline, because it is called for every record. */
#ifndef TOPICS_STORE_ELEMENTS_H
#define TOPICS_STORE_ELEMENTS_H

#include <stdint.h>
#include <string.h>

#include "codec.h"
#include "frames.h"

static const char DIGITS[] = "00010203040506070809101112131415161718192021222324252627282930313233343536373839"
                             "40414243444546474849505152535455565758596061626364656667686970717273747576777879"
                             "8081828384858687888990919293949596979899";

/* Writes a number in decimal. */
static inline char *put_decimal(char *out, uint64_t v)
{
    char digits[20];
    int at = 20;
    while (v >= 100) {
        at -= 2;
        memcpy(digits + at, DIGITS + (v % 100) * 2, 2);
        v /= 100;
    }
    if (v >= 10) {
        at -= 2;
        memcpy(digits + at, DIGITS + v * 2, 2);
    } else {
        digits[--at] = (char)('0' + v);
    }
    memcpy(out, digits + at, (size_t)(20 - at));
    return out + (20 - at);
}

/* Writes a literal's characters. */
#define PUT(out, literal) (memcpy(out, literal, sizeof(literal) - 1), (out) + sizeof(literal) - 1)

/* Writes a JSON string with the shortest escapes; at most 6 bytes per byte, and the quotes. */
static inline char *put_string(char *out, const uint8_t *at, uint32_t len)
{
    static const char HEX[] = "0123456789abcdef";
    *out++ = '"';
    for (uint32_t i = 0; i < len; i++) {
        uint8_t c = at[i];
        if (c >= 0x20 && c != '"' && c != '\\') {
            *out++ = (char)c;
            continue;
        }
        *out++ = '\\';
        switch (c) {
        case '"': *out++ = '"'; break;
        case '\\': *out++ = '\\'; break;
        case '\b': *out++ = 'b'; break;
        case '\f': *out++ = 'f'; break;
        case '\n': *out++ = 'n'; break;
        case '\r': *out++ = 'r'; break;
        case '\t': *out++ = 't'; break;
        default:
            out = PUT(out, "u00");
            *out++ = HEX[c >> 4];
            *out++ = HEX[c & 15];
        }
    }
    *out++ = '"';
    return out;
}

#define ELEMENT_FIXED 96u /* braces, keys, two numbers of 20 digits, a comma */

#define LEASE_MOST 112u /* three keys, 16 hex digits, two numbers */

/* Writes the members that a claimed record has in addition; at most LEASE_MOST bytes. */
static inline char *put_lease(char *q, const struct tp_lease *lease)
{
    static const char HEX[] = "0123456789abcdef";
    int shift = 60;
    while (shift && !(lease->lease_id >> shift)) shift -= 4;
    q = PUT(q, ",\"lease_id\":\"lease_");
    for (; shift >= 0; shift -= 4) *q++ = HEX[lease->lease_id >> shift & 15];
    q = PUT(q, "\",\"deadline\":");
    q = put_decimal(q, lease->deadline_ms);
    q = PUT(q, ",\"deliveries\":");
    return put_decimal(q, lease->deliveries);
}

/* The room that one element may take, without a lease. */
static inline uint64_t most_bytes(const struct tp_frame *f)
{
    return ELEMENT_FIXED + 6ull * f->node_len + 6ull * f->tag_len + f->data_len + f->meta_len;
}

/* Writes one element of the array, with the comma before it, for the sound frame at p; counts
 * it. lease: NULL if none. */
static inline char *put_element(char *q, const uint8_t *p, const struct tp_frame *f, const struct tp_lease *lease,
                                struct tp_projection *s)
{
    const uint8_t *node = p + FRAME_HEADER_BYTES + f->ext_len;
    const uint8_t *tag = node + f->node_len, *data = tag + f->tag_len, *meta = data + f->data_len;
    if (s->count) *q++ = ',';
    q = PUT(q, "{\"$seq\":");
    q = put_decimal(q, f->seq);
    q = PUT(q, ",\"$ts\":");
    q = put_decimal(q, f->ts_ms);
    if (lease) {
        q = put_lease(q, lease);
    } else if (f->flags & FLAG_NODE) {
        q = PUT(q, ",\"$node\":");
        q = put_string(q, node, f->node_len);
    }
    if (s->include_tags && (f->flags & FLAG_TAG)) {
        q = PUT(q, ",\"$tag\":");
        q = put_string(q, tag, f->tag_len);
    }
    if (s->include_data) {
        q = PUT(q, ",\"data\":");
        memcpy(q, data, f->data_len);
        q += f->data_len;
    }
    if (s->include_meta && (f->flags & FLAG_META)) {
        q = PUT(q, ",\"meta\":");
        memcpy(q, meta, f->meta_len);
        q += f->meta_len;
    }
    *q++ = '}';
    s->count++;
    s->size += f->size;
    return q;
}

#endif
