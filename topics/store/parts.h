/* Included by codec.c alone: what parts of producers need, in bulk. */

enum { SUM_ROOM = 1024 }; /* a record up to here is summed in one go */

/* The texts of one record, hashed with their lengths and which of them there are. */
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
        uint32_t present = row.flags & (FLAG_TAG | FLAG_NODE | FLAG_META);
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
