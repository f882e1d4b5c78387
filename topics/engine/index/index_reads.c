/* Many reads in one call, from the rows of indexes to JSON: see index_reads.h. */
#include "../../store/format/elements.h"
#include "../../store/format/frames.h"
#include "index_reads.h"

/* Ranges of file bytes in memory, sorted by file and start, and the one that was found last. */
struct in_memory {
    const struct tp_hot_range *hot, *prefetched, *ephemeral;
    uint32_t hot_count, prefetched_count, ephemeral_count;
    const struct tp_hot_range *last;
};

static int covers(const struct tp_hot_range *r, uint64_t file_id, uint64_t offset, uint64_t length)
{
    return r->file_id == file_id && offset >= r->start && offset + length <= r->start + r->used;
}

/* The last range that does not start after (file_id, offset), if it has all of the bytes. */
static const struct tp_hot_range *covering(const struct tp_hot_range *ranges, uint32_t count, uint64_t file_id, uint64_t offset,
                                           uint64_t length)
{
    uint32_t low = 0, high = count;
    while (low < high) {
        uint32_t middle = (low + high) / 2;
        const struct tp_hot_range *r = ranges + middle;
        if (r->file_id < file_id || (r->file_id == file_id && r->start <= offset)) low = middle + 1;
        else high = middle;
    }
    return low && covers(ranges + low - 1, file_id, offset, length) ? ranges + low - 1 : NULL;
}

static const struct tp_hot_range *found(struct in_memory *m, uint64_t file_id, uint64_t offset, uint64_t length)
{
    if (m->last && covers(m->last, file_id, offset, length)) return m->last;
    const struct tp_hot_range *r = covering(m->hot, m->hot_count, file_id, offset, length);
    if (!r) r = covering(m->prefetched, m->prefetched_count, file_id, offset, length);
    if (!r) r = covering(m->ephemeral, m->ephemeral_count, file_id, offset, length);
    if (r) m->last = r;
    return r;
}

/* Render one read at out + *at. Returns 1: taken; 0: not plain, left to Python. */
static int read_one(char *out, uint64_t *at, uint64_t room, struct tp_read *read, const struct tp_read_topic *topic,
                    struct in_memory *memory, const struct tp_read_limits *limits)
{
    if (!topic->usable || read->from_seq > topic->head || read->from_seq < topic->lost) return 0;
    uint32_t limit = read->limit ? read->limit : limits->default_limit;
    uint64_t budget = read->budget ? read->budget : limits->default_bytes;
    if (limit > limits->max_limit) limit = limits->max_limit;
    if (budget > limits->max_bytes) budget = limits->max_bytes;
    if (!limit) return 0;
    struct tp_projection s = {.topic_id = topic->topic_id, .include_tags = read->flags & TP_READ_TAGS,
                              .include_meta = !(read->flags & TP_READ_NO_META), .include_data = 1};
    const struct tp_index_chunk *chunks = (const struct tp_index_chunk *)(uintptr_t)topic->chunks;
    uint64_t from = read->from_seq + 1, cursor = read->from_seq;
    uint32_t low = 0, high = topic->chunk_count;
    while (low < high) {
        uint32_t middle = (low + high) / 2;
        if (chunks[middle].first <= from) low = middle + 1;
        else high = middle;
    }
    char *q = out + *at;
    int more = 0;
    for (uint32_t c = low ? low - 1 : 0; c < topic->chunk_count && !more; c++) {
        const struct tp_index_chunk *chunk = chunks + c;
        const uint8_t *flags = (const uint8_t *)(uintptr_t)chunk->flags;
        const uint32_t *file_ids = (const uint32_t *)(uintptr_t)chunk->file_ids;
        const uint32_t *offsets = (const uint32_t *)(uintptr_t)chunk->offsets;
        const uint32_t *lengths = (const uint32_t *)(uintptr_t)chunk->lengths;
        const uint32_t *sizes = (const uint32_t *)(uintptr_t)chunk->sizes;
        const uint64_t *ts = (const uint64_t *)(uintptr_t)chunk->ts;
        uint64_t rows = c + 1 == topic->chunk_count ? topic->last_rows : chunk->count;
        for (uint64_t row = from > chunk->first ? from - chunk->first : 0; row < rows; row++) {
            uint64_t seq = chunk->first + row;
            if (seq > topic->head) break;
            if (flags[row] & TP_ROW_DEAD) continue;
            if (s.count >= limit || (s.count && s.size + sizes[row] > budget)) {
                more = 1;
                break;
            }
            const struct tp_hot_range *r = found(memory, file_ids[row], offsets[row], lengths[row]);
            if (!r) return 0;
            struct tp_frame f;
            const uint8_t *p = (const uint8_t *)(uintptr_t)r->address + (offsets[row] - r->start);
            if (flags[row] & FLAG_COPY) {
                if (!is_copied_frame(p, lengths[row], flags[row], &f)) return 0;
                f.seq = seq;
                f.ts_ms = ts[row];
            } else if (!is_frame_of(p, lengths[row], topic->topic_id, seq, &f)) {
                return 0;
            }
            if (s.count && s.size + shown_size(&f, &s) > budget) {
                more = 1;
                break;
            }
            uint64_t most = most_bytes(&f, &s);
            if (room - (uint64_t)(q - out) < most) return 0;
            q = put_element(q, p, &f, NULL, &s);
            cursor = seq;
        }
    }
    if (!s.count && (read->flags & TP_READ_WAITS)) return 0;
    read->off = *at;
    read->len = (uint32_t)(q - (out + *at));
    if ((read->flags & TP_READ_SHORT) && read->len >= limits->long_bytes) return 0;
    read->count = s.count;
    read->budget = s.size;
    read->next = more ? cursor : topic->head;
    *at += read->len;
    return 1;
}

int64_t tp_project_reads(char *out, uint64_t room, struct tp_read *reads, uint32_t count,
                         const struct tp_read_topic *topics, const struct tp_hot_range *hot, uint32_t hot_count,
                         const struct tp_hot_range *prefetched, uint32_t prefetched_count,
                         const struct tp_hot_range *ephemeral, uint32_t ephemeral_count,
                         const struct tp_read_limits *limits, uint32_t *taken)
{
    struct in_memory memory = {hot, prefetched, ephemeral, hot_count, prefetched_count, ephemeral_count, NULL};
    uint64_t at = 0;
    *taken = 0;
    /* The receive of the last read that was not taken: nothing after it is taken either. */
    uint32_t stuck = 0xffffffff;
    for (uint32_t i = 0; i < count; i++) {
        struct tp_read *read = reads + i;
        const struct tp_read_topic *topic = topics + read->slot;
        read->taken = read->receive != stuck &&
                      read_one(out, &at, room, read, topic, &memory, limits);
        if (!read->taken) stuck = read->receive;
        *taken += read->taken;
    }
    return (int64_t)at;
}
