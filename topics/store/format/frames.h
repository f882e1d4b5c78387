/* One frame: where its fields are, written and read. Layouts: log_format.py. Internal to C files that handle frames; inline,
 * because each is called for every record. */
#ifndef TOPICS_STORE_FRAMES_H
#define TOPICS_STORE_FRAMES_H

#include <stdint.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "codec.h"

#define FRAME_HEADER 52u
#define FRAME_TRAILER 9u /* checksum, deleted */
#define FRAME_MIN (FRAME_HEADER + FRAME_TRAILER)
#define FRAME_VERSION 1u
#define BATCH_HEADER 64u
#define BATCH_MAGIC 0x54425054u /* "TPBT" */
#define BATCH_VERSION 1u
#define TYPE_RECORD 1u
#define FLAG_TAG 1u
#define FLAG_NODE 2u
#define FLAG_META 4u
#define FLAG_EXT 8u
#define ROW_COPY 0x20u /* FLAG_COPY in log_format.py */

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "files are little-endian and so must the machine be");
_Static_assert(sizeof(struct tp_frame) == 64, "FRAME_DTYPE of codec.py says so");

static inline void put16(uint8_t *p, uint16_t v) { memcpy(p, &v, 2); }
static inline void put32(uint8_t *p, uint32_t v) { memcpy(p, &v, 4); }
static inline void put64(uint8_t *p, uint64_t v) { memcpy(p, &v, 8); }
static inline uint16_t get16(const uint8_t *p) { uint16_t v; memcpy(&v, p, 2); return v; }
static inline uint32_t get32(const uint8_t *p) { uint32_t v; memcpy(&v, p, 4); return v; }
static inline uint64_t get64(const uint8_t *p) { uint64_t v; memcpy(&v, p, 8); return v; }

struct text {
    const uint8_t *at;
    uint32_t len;
};

/* Writes one frame; the caller has made sure of the room. Returns its length. */
static inline uint32_t put_frame(uint8_t *p, uint8_t type, uint8_t flags, uint64_t topic_id, uint64_t seq,
                                 uint64_t ts_ms, uint32_t size, struct text ext, struct text node, struct text tag,
                                 struct text data, struct text meta)
{
    uint32_t length = FRAME_MIN + ext.len + node.len + tag.len + data.len + meta.len;
    put32(p, length - 4);
    p[4] = type;
    p[5] = flags;
    put64(p + 6, topic_id);
    put64(p + 14, seq);
    put64(p + 22, ts_ms);
    put16(p + 30, (uint16_t)node.len);
    put16(p + 32, (uint16_t)tag.len);
    put32(p + 34, data.len);
    p[38] = FRAME_VERSION;
    p[39] = 0;
    put16(p + 40, (uint16_t)ext.len);
    put16(p + 42, 0);
    put32(p + 44, meta.len);
    put32(p + 48, size);
    uint8_t *q = p + FRAME_HEADER;
    if (ext.len) { memcpy(q, ext.at, ext.len); q += ext.len; }
    if (node.len) { memcpy(q, node.at, node.len); q += node.len; }
    if (tag.len) { memcpy(q, tag.at, tag.len); q += tag.len; }
    if (data.len) { memcpy(q, data.at, data.len); q += data.len; }
    if (meta.len) { memcpy(q, meta.at, meta.len); q += meta.len; }
    put64(q, XXH3_64bits(p + 4, (size_t)(q - p - 4)));
    q[8] = 0;
    return length;
}

/* Reads one frame's header into *f; 0 when its version is unknown or its lengths disagree with each other or `room`. */
static inline int get_frame(const uint8_t *p, uint64_t room, struct tp_frame *f)
{
    if (room < FRAME_MIN) return 0;
    uint64_t length = (uint64_t)get32(p) + 4;
    if (length < FRAME_MIN || length > room || p[38] != FRAME_VERSION) return 0;
    f->length = (uint32_t)length;
    f->type = p[4];
    f->flags = p[5];
    f->payload_kind = p[39];
    f->topic_id = get64(p + 6);
    f->seq = get64(p + 14);
    f->ts_ms = get64(p + 22);
    f->node_len = get16(p + 30);
    f->tag_len = get16(p + 32);
    f->data_len = get32(p + 34);
    f->ext_len = get16(p + 40);
    f->meta_len = get32(p + 44);
    f->size = get32(p + 48);
    f->deleted = p[length - 1];
    f->reserved = 0;
    return (uint64_t)FRAME_MIN + f->ext_len + f->node_len + f->tag_len + f->data_len + f->meta_len == length;
}

static inline int frame_is_sound(const uint8_t *p, uint32_t length)
{
    return get64(p + length - FRAME_TRAILER) == XXH3_64bits(p + 4, length - FRAME_TRAILER - 4);
}

/* Whether exactly this record's frame lies at p, unharmed. */
static inline int is_frame_of(const uint8_t *p, uint32_t length, uint64_t topic_id, uint64_t seq, struct tp_frame *f)
{
    return get_frame(p, length, f) && f->length == length && f->seq == seq && f->topic_id == topic_id &&
           frame_is_sound(p, length);
}

#endif
