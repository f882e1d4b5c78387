/* Checksums and frames for parts of producers, in bulk: see codec.h. */
#include <string.h>

#include "codec.h"
#include "frames.h"
#include "rows.h"

enum { SUM_ROOM = 1024 }; /* a record up to this size is summed in one step */

/* Checksum of one record: its texts, their lengths and which of them are present. */
static uint64_t sum_of(const struct text *texts, uint32_t present)
{
    uint8_t room[SUM_ROOM], *p = room;
    put32(p, present);
    p += 4;
    for (int i = 0; i < 4; i++, p += 4) put32(p, texts[i].len);
    uint64_t size = (uint64_t)(p - room) + texts[0].len + texts[1].len + texts[2].len + texts[3].len;
    if (size <= SUM_ROOM) {
        for (int i = 0; i < 4; i++) {
            if (texts[i].len) memcpy(p, texts[i].at, texts[i].len);
            p += texts[i].len;
        }
        return XXH3_64bits(room, (size_t)size);
    }
    XXH3_state_t state;
    XXH3_64bits_reset(&state);
    XXH3_64bits_update(&state, room, (size_t)(p - room));
    for (int i = 0; i < 4; i++)
        if (texts[i].len) XXH3_64bits_update(&state, texts[i].at, texts[i].len);
    return XXH3_64bits_digest(&state);
}

int tp_sum_rows(const char *buffer, uint64_t buffer_bytes, const char *rows, uint32_t count, const char *node,
                uint32_t node_len, uint32_t has_node, uint64_t *sum)
{
    const uint8_t *base = (const uint8_t *)buffer;
    struct tp_row row;
    for (uint32_t i = 0; i < count; i++) {
        memcpy(&row, rows + (size_t)i * sizeof row, sizeof row);
        uint32_t present = row.flags & (FLAG_TAG | FLAG_NODE | FLAG_META | TP_ROW_IS_BYTES);
        struct text texts[4] = {{base + row.tag_off, present & FLAG_TAG ? row.tag_len : 0},
                                {base + row.node_off, present & FLAG_NODE ? row.node_len : 0},
                                {base + row.data_off, row.data_len},
                                {base + row.meta_off, present & FLAG_META ? row.meta_len : 0}};
        for (int j = 0; j < 4; j++)
            if (texts[j].len && (uint64_t)(texts[j].at - base) + texts[j].len > buffer_bytes) return -1;
        if (has_node && !(present & FLAG_NODE)) {
            texts[1] = (struct text){(const uint8_t *)node, node_len};
            present |= FLAG_NODE;
        }
        *sum += sum_of(texts, present);
    }
    return 0;
}

int64_t tp_take_frames(char *out, const char *bytes, uint64_t size, uint64_t base, const uint32_t *offsets,
                       const uint32_t *lengths, const uint64_t *seqs, uint32_t count, uint64_t topic_id,
                       const char *ext, uint32_t ext_len)
{
    uint8_t *q = (uint8_t *)out;
    for (uint32_t i = 0; i < count; i++, ext_len = 0) {
        uint64_t at = (uint64_t)offsets[i] - base;
        struct tp_frame f;
        const uint8_t *p = (const uint8_t *)bytes + at;
        if (offsets[i] < base || at > size || lengths[i] > size - at ||
            !is_frame_of(p, lengths[i], topic_id, seqs[i], &f) || f.type != TYPE_RECORD)
            return -1 - (int64_t)i;
        uint32_t texts = lengths[i] - FRAME_MIN_BYTES - f.ext_len, length = FRAME_MIN_BYTES + ext_len + texts;
        memcpy(q, p, FRAME_HEADER_BYTES);
        struct frame_header *h = (struct frame_header *)q;
        h->rest_bytes = length - REST_FROM;
        h->flags = (uint8_t)((f.flags & (FLAG_TAG | FLAG_NODE | FLAG_META)) | (ext_len ? FLAG_EXT : 0));
        h->ext_len = (uint16_t)ext_len;
        if (ext_len) memcpy(q + FRAME_HEADER_BYTES, ext, ext_len);
        memcpy(q + FRAME_HEADER_BYTES + ext_len, p + FRAME_HEADER_BYTES + f.ext_len, texts);
        memset(q + length - FRAME_TRAILER_BYTES, 0, FRAME_TRAILER_BYTES);
        q += length;
    }
    return (int64_t)(q - (uint8_t *)out);
}

int64_t tp_number_frames(char *frames, uint64_t size, uint64_t topic_id, uint64_t first_seq, uint64_t ts_ms,
                         uint32_t flags, uint64_t start, char *placed, uint32_t count)
{
    uint8_t *p = (uint8_t *)frames, *end = p + size;
    uint32_t i = 0;
    for (struct tp_frame f; p < end; p += f.length, i++) {
        if (i == count || !get_frame(p, (uint64_t)(end - p), &f) || f.type != TYPE_RECORD) return -1;
        struct frame_header *h = (struct frame_header *)p;
        h->flags = (uint8_t)(f.flags | flags);
        h->topic_id = topic_id;
        h->seq = first_seq + i;
        h->ts_ms = ts_ms;
        put64(p + f.length - FRAME_TRAILER_BYTES, frame_checksum(p, f.length));
        struct tp_placed entry = {.start = (uint32_t)(start + (uint64_t)(p - (uint8_t *)frames)), .length = f.length};
        entry.size = f.size;
        entry.flags = h->flags;
        entry.ts_ms = ts_ms;
        memcpy(placed + (size_t)i * sizeof entry, &entry, sizeof entry);
    }
    return i == count ? (int64_t)i : -1;
}
