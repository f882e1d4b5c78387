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

/* The length of the base64 text of `len` bytes. */
static inline uint64_t base64_length(uint32_t len) { return ((uint64_t)len + 2) / 3 * 4; }

/* Writes bytes as base64 (RFC 4648, with padding). */
static inline char *put_base64(char *out, const uint8_t *at, uint32_t len)
{
    static const char ALPHABET[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for (; len >= 3; len -= 3, at += 3, out += 4) {
        uint32_t v = (uint32_t)at[0] << 16 | (uint32_t)at[1] << 8 | at[2];
        out[0] = ALPHABET[v >> 18];
        out[1] = ALPHABET[v >> 12 & 63];
        out[2] = ALPHABET[v >> 6 & 63];
        out[3] = ALPHABET[v & 63];
    }
    if (!len) return out;
    uint32_t v = (uint32_t)at[0] << 16 | (len == 2 ? (uint32_t)at[1] << 8 : 0);
    out[0] = ALPHABET[v >> 18];
    out[1] = ALPHABET[v >> 12 & 63];
    out[2] = len == 2 ? ALPHABET[v >> 6 & 63] : '=';
    out[3] = '=';
    return out + 4;
}

#define ELEMENT_FIXED 170u /* braces, keys, four numbers of 20 digits, a comma */

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

/* Whether an element shows the frame's payload as base64. */
static inline int shows_base64(const struct tp_frame *f, const struct tp_projection *s)
{
    return f->payload_kind != PAYLOAD_JSON && s->include_data && !s->apart;
}

/* The bytes of a budget that one element takes: base64 counts for its own length. */
static inline uint64_t shown_size(const struct tp_frame *f, const struct tp_projection *s)
{
    return f->size + (shows_base64(f, s) ? base64_length(f->data_len) - f->data_len : 0);
}

/* The room that one element may take, without a lease. */
static inline uint64_t most_bytes(const struct tp_frame *f, const struct tp_projection *s)
{
    uint64_t data = f->payload_kind == PAYLOAD_JSON ? f->data_len : s->apart ? 0 : base64_length(f->data_len);
    return ELEMENT_FIXED + 6ull * f->node_len + 6ull * f->tag_len + data + f->meta_len;
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
    if (f->flags & FLAG_EXT) {
        uint32_t at = 0;
        uint64_t delay = take_time(p, f, EXT_DELAY, &at), ttl = take_time(p, f, EXT_TTL, &at);
        if (delay) {
            q = PUT(q, ",\"$delay_ms\":");
            q = put_decimal(q, delay);
        }
        if (ttl) {
            q = PUT(q, ",\"$ttl_ms\":");
            q = put_decimal(q, ttl);
        }
    }
    if (shows_base64(f, s)) {
        q = PUT(q, ",\"data_base64\":\"");
        q = put_base64(q, data, f->data_len);
        *q++ = '"';
    } else if (s->include_data && f->payload_kind != PAYLOAD_JSON) {
        q = PUT(q, ",\"data\":null");
    } else if (s->include_data) {
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
    s->size += shown_size(f, s);
    return q;
}

#endif
