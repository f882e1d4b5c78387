/* Texts of frames into columns in Arrow's layout: see codec.h. */
#include <string.h>

#include "codec.h"
#include "frames.h"

/* Copies a text. Short texts, which nearly all are, are copied as whole blocks where both sides
 * have room after them: the excess bytes are overwritten by the next text, or are not part of
 * the column. */
static inline void copy_text(uint8_t *to, uint64_t room, const uint8_t *from, uint64_t there, uint32_t length)
{
    if (length <= 16 && room >= 16 && there >= 16) {
        memcpy(to, from, 16);
    } else if (length <= 256 && room >= 288 && there >= 288) {
        for (uint32_t i = 0; i < length; i += 32) memcpy(to + i, from + i, 32);
    } else {
        memcpy(to, from, length);
    }
}

void tp_fill_texts(const char *bytes, uint64_t size, uint64_t base, const uint32_t *offsets, const uint32_t *lengths,
                   const uint64_t *seqs, uint32_t count, struct tp_text_fill *s)
{
    const uint8_t *end = (const uint8_t *)bytes + size;
    for (s->examined = 0; s->examined < count; s->examined++) {
        uint32_t i = s->examined;
        uint64_t at = (uint64_t)offsets[i] - base;
        struct tp_frame f;
        const uint8_t *p = (const uint8_t *)bytes + at;
        if (offsets[i] < base || at > size || lengths[i] > size - at || !get_frame(p, lengths[i], &f) ||
            f.length != lengths[i] || f.type != TYPE_RECORD || f.seq != seqs[i] || f.topic_id != s->topic_id ||
            (s->verify && !frame_is_sound(p, f.length))) {
            s->reason = TP_STOP_TORN;
            return;
        }
        int is_bytes = f.payload_kind != PAYLOAD_JSON;
        const uint8_t *node = p + FRAME_HEADER_BYTES + f.ext_len, *tag = node + f.node_len, *data = tag + f.tag_len;
        struct { const uint8_t *at; uint32_t len; int present; } texts[TP_TEXT_COLUMNS] = {
            {node, f.node_len, f.flags & FLAG_NODE},
            {tag, f.tag_len, f.flags & FLAG_TAG},
            {data, is_bytes ? 0 : f.data_len, !is_bytes},
            {data + f.data_len, f.meta_len, f.flags & FLAG_META},
            {data, is_bytes ? f.data_len : 0, is_bytes},
        };
        if (is_bytes && s->columns[2].bytes && !s->columns[4].bytes) {
            s->reason = TP_STOP_KIND;
            return;
        }
        if (s->rows == s->room) {
            s->reason = TP_STOP_ROOM;
            s->full = TP_TEXT_COLUMNS;
            return;
        }
        for (uint32_t k = 0; k < TP_TEXT_COLUMNS; k++) {
            const struct tp_text_column *column = s->columns + k;
            if (column->bytes && column->room - column->used < texts[k].len) {
                s->reason = TP_STOP_ROOM;
                s->full = k;
                s->needed = texts[k].len;
                return;
            }
        }
        uint32_t row = s->rows++;
        for (uint32_t k = 0; k < TP_TEXT_COLUMNS; k++) {
            struct tp_text_column *column = s->columns + k;
            if (!column->bytes) continue;
            if (texts[k].present) {
                copy_text((uint8_t *)column->bytes + column->used, column->room - column->used, texts[k].at,
                          (uint64_t)(end - texts[k].at), texts[k].len);
                column->used += texts[k].len;
                column->valid[row >> 3] |= (uint8_t)(1u << (row & 7));
            } else {
                column->nulls++;
            }
            column->ends[row + 1] = (int32_t)column->used;
        }
    }
    s->reason = TP_STOP_END;
}
