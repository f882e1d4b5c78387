/* One frame: the positions of its fields, written and read. Layouts: log_format.py. Internal to
 * C files that handle frames; inline, because each function is called for every record. */
#ifndef TOPICS_STORE_FRAMES_H
#define TOPICS_STORE_FRAMES_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "_log_format.h"
#include "codec.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "files are little-endian and so must the machine be");

static inline void put32(uint8_t *p, uint32_t v) { memcpy(p, &v, 4); }
static inline void put64(uint8_t *p, uint64_t v) { memcpy(p, &v, 8); }
static inline uint32_t get32(const uint8_t *p) { uint32_t v; memcpy(&v, p, 4); return v; }
static inline uint64_t get64(const uint8_t *p) { uint64_t v; memcpy(&v, p, 8); return v; }

/* The beginning of every frame, at any address. ext, node, tag, data, meta and a trailer follow;
 * the trailer is the checksum of everything from `type` on (u64), and a byte that says whether
 * the frame is deleted. */
struct __attribute__((packed)) frame_header {
    uint32_t rest_bytes; /* bytes of the frame after this field */
    uint8_t type, flags;
    uint64_t topic_id, seq, ts_ms;
    uint16_t node_len, tag_len;
    uint32_t data_len;
    uint8_t version, payload_kind;
    uint16_t ext_len, zero;
    uint32_t meta_len, size;
};
enum { REST_FROM = offsetof(struct frame_header, type) }; /* start of the bytes that the checksum covers */

_Static_assert(sizeof(struct frame_header) == FRAME_HEADER_BYTES, "the header of a frame as log_format.py has it");
_Static_assert(TP_ROW_TAG == FLAG_TAG && TP_ROW_NODE == FLAG_NODE && TP_ROW_META == FLAG_META,
               "a row's flags are put into its frame");

struct text {
    const uint8_t *at;
    uint32_t len;
};

/* The checksum that a frame of `length` bytes should have. */
static inline uint64_t frame_checksum(const uint8_t *p, uint32_t length)
{
    return XXH3_64bits(p + REST_FROM, length - FRAME_TRAILER_BYTES - REST_FROM);
}

/* Completes a frame of `length` bytes: its checksum, and that it lives. */
static inline void seal_frame(uint8_t *p, uint32_t length)
{
    put64(p + length - FRAME_TRAILER_BYTES, frame_checksum(p, length));
    p[length - 1] = DELETED_LIVE;
}

/* Writes a frame's header, for texts of these lengths. Returns the length of the frame. */
static inline uint32_t put_header(uint8_t *p, uint8_t type, uint8_t flags, uint8_t payload_kind, uint64_t topic_id,
                                  uint64_t seq, uint64_t ts_ms, uint32_t size, uint32_t ext_len, uint32_t node_len,
                                  uint32_t tag_len, uint32_t data_len, uint32_t meta_len)
{
    uint32_t length = FRAME_MIN_BYTES + ext_len + node_len + tag_len + data_len + meta_len;
    struct frame_header *h = (struct frame_header *)p;
    h->rest_bytes = length - REST_FROM;
    h->type = type;
    h->flags = flags;
    h->topic_id = topic_id;
    h->seq = seq;
    h->ts_ms = ts_ms;
    h->node_len = (uint16_t)node_len;
    h->tag_len = (uint16_t)tag_len;
    h->data_len = data_len;
    h->version = FRAME_VERSION;
    h->payload_kind = payload_kind;
    h->ext_len = (uint16_t)ext_len;
    h->zero = 0;
    h->meta_len = meta_len;
    h->size = size;
    return length;
}

/* Writes one frame up to its trailer; the caller has ensured the room. Returns its length. */
static inline uint32_t put_unsealed(uint8_t *p, uint8_t type, uint8_t flags, uint8_t payload_kind, uint64_t topic_id,
                                 uint64_t seq, uint64_t ts_ms, uint32_t size, struct text ext, struct text node,
                                 struct text tag, struct text data, struct text meta)
{
    uint32_t length = put_header(p, type, flags, payload_kind, topic_id, seq, ts_ms, size, ext.len, node.len, tag.len,
                                 data.len, meta.len);
    uint8_t *q = p + FRAME_HEADER_BYTES;
    if (ext.len) { memcpy(q, ext.at, ext.len); q += ext.len; }
    if (node.len) { memcpy(q, node.at, node.len); q += node.len; }
    if (tag.len) { memcpy(q, tag.at, tag.len); q += tag.len; }
    if (data.len) { memcpy(q, data.at, data.len); q += data.len; }
    if (meta.len) memcpy(q, meta.at, meta.len);
    return length;
}

/* Writes one frame; the caller has ensured the room. Returns its length. */
static inline uint32_t put_frame(uint8_t *p, uint8_t type, uint8_t flags, uint8_t payload_kind, uint64_t topic_id,
                                 uint64_t seq, uint64_t ts_ms, uint32_t size, struct text ext, struct text node,
                                 struct text tag, struct text data, struct text meta)
{
    uint32_t length = put_unsealed(p, type, flags, payload_kind, topic_id, seq, ts_ms, size, ext, node, tag, data, meta);
    seal_frame(p, length);
    return length;
}

/* Reads one frame's header into *f; 0 if its version is unknown or its lengths disagree with
 * each other or `room`. */
static inline int get_frame(const uint8_t *p, uint64_t room, struct tp_frame *f)
{
    const struct frame_header *h = (const struct frame_header *)p;
    if (room < FRAME_MIN_BYTES) return 0;
    uint64_t length = (uint64_t)h->rest_bytes + REST_FROM;
    if (length < FRAME_MIN_BYTES || length > room || h->version != FRAME_VERSION) return 0;
    f->length = (uint32_t)length;
    f->type = h->type;
    f->flags = h->flags;
    f->payload_kind = h->payload_kind;
    f->topic_id = h->topic_id;
    f->seq = h->seq;
    f->ts_ms = h->ts_ms;
    f->node_len = h->node_len;
    f->tag_len = h->tag_len;
    f->data_len = h->data_len;
    f->ext_len = h->ext_len;
    f->meta_len = h->meta_len;
    f->size = h->size;
    f->deleted = p[length - 1];
    f->reserved = 0;
    return (uint64_t)FRAME_MIN_BYTES + f->ext_len + f->node_len + f->tag_len + f->data_len + f->meta_len == length;
}

/* Writes the entry of a delay or a ttl. A delay comes first in an extension, and a ttl comes next.
 * at: its 8 bytes. Returns the end. */
static inline uint8_t *put_time(uint8_t *p, uint8_t kind, const uint8_t *at)
{
    p[0] = kind;
    p[1] = TP_TIME_BYTES;
    p[2] = 0;
    memcpy(p + EXT_TIME_BYTES - TP_TIME_BYTES, at, TP_TIME_BYTES);
    return p + EXT_TIME_BYTES;
}

/* The delay or ttl in ms in the entry at *at of the extension of the frame at p, and moves *at
 * after it; 0 if there is another entry, or none. */
static inline uint64_t take_time(const uint8_t *p, const struct tp_frame *f, uint8_t kind, uint32_t *at)
{
    const uint8_t *entry = p + FRAME_HEADER_BYTES + *at;
    if (f->ext_len < *at + EXT_TIME_BYTES || entry[0] != kind || entry[1] != TP_TIME_BYTES || entry[2]) return 0;
    *at += EXT_TIME_BYTES;
    return get64(entry + EXT_TIME_BYTES - TP_TIME_BYTES);
}

/* Whether a frame of `length` bytes has its checksum. */
static inline int frame_is_sound(const uint8_t *p, uint32_t length)
{
    return get64(p + length - FRAME_TRAILER_BYTES) == frame_checksum(p, length);
}

/* Whether exactly this record's frame is at p, undamaged. */
static inline int is_frame_of(const uint8_t *p, uint32_t length, uint64_t topic_id, uint64_t seq, struct tp_frame *f)
{
    return get_frame(p, length, f) && f->length == length && f->seq == seq && f->topic_id == topic_id &&
           frame_is_sound(p, length);
}

/* Whether a record's frame, undamaged, is at p, for a row with FLAG_COPY: a copy of it with a seq
 * and a ts of its own. *f gets the flags of the fields that the copy keeps. */
static inline int is_copied_frame(const uint8_t *p, uint32_t length, uint8_t row_flags, struct tp_frame *f)
{
    if (!get_frame(p, length, f) || f->length != length || f->type != TYPE_RECORD || !frame_is_sound(p, length)) return 0;
    f->flags &= row_flags & (FLAG_TAG | FLAG_NODE | FLAG_META);
    return 1;
}

#endif
