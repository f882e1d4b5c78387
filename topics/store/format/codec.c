/* Frames and batches in bulk: one call per request, chunk or answer, never per record. Layouts:
 * log_format.py. */
#include <string.h>

#include "codec.h"
#include "elements.h"
#include "frames.h"

#define SUM_PIECE_BYTES 16384 /* half of a core's first cache */

static inline int outside(uint32_t off, uint32_t len, uint64_t bytes) { return (uint64_t)off + len > bytes; }

/* Rows and entries at any address. They are written in their place, because a copy of one that was
 * just built on the stack costs more: its wide loads wait for the narrow stores before them. */
typedef struct tp_row any_row __attribute__((aligned(1)));
typedef struct tp_placed any_placed __attribute__((aligned(1)));

/* How many of delay and ttl a row has. */
static inline uint32_t times_in(const any_row *row)
{
    return !!(row->flags & TP_ROW_DELAY) + !!(row->flags & TP_ROW_TTL);
}

/* Writes one frame of a record with a delay or a ttl up to its trailer, as put_unsealed, with them
 * before the rest of its extension. */
static __attribute__((noinline)) uint32_t put_timed(uint8_t *p, const any_row *row, uint8_t flags, uint8_t payload_kind,
                                                    uint64_t topic_id, uint64_t seq, uint64_t ts_ms, uint32_t size,
                                                    struct text ext, struct text node, struct text tag,
                                                    struct text data, struct text meta)
{
    uint8_t *q = p + FRAME_HEADER_BYTES;
    uint32_t times = times_in(row);
    uint32_t length = put_header(p, TYPE_RECORD, flags | FLAG_EXT, payload_kind, topic_id, seq, ts_ms, size,
                                 times * EXT_TIME_BYTES + ext.len, node.len, tag.len, data.len, meta.len);
    struct text texts[5] = {ext, node, tag, data, meta};
    if (row->flags & TP_ROW_DELAY) q = put_time(q, EXT_DELAY, data.at - TP_TIME_BYTES);
    if (row->flags & TP_ROW_TTL) q = put_time(q, EXT_TTL, data.at - times * TP_TIME_BYTES);
    for (int i = 0; i < 5; i++) {
        if (texts[i].len) memcpy(q, texts[i].at, texts[i].len);
        q += texts[i].len;
    }
    return length;
}

int64_t tp_frame_rows(char *dest, uint64_t at, uint64_t room, const char *buffer, uint64_t buffer_bytes,
                      const char *rows, uint32_t count, uint64_t topic_id, uint64_t first_seq, uint64_t ts_ms,
                      uint32_t flags, const char *node, uint32_t node_len, uint32_t has_node, const char *ext,
                      uint32_t ext_len, uint64_t start, char *placed)
{
    const uint8_t *base = (const uint8_t *)buffer;
    uint64_t needed = at + ext_len;
    const any_row *row = (const any_row *)rows;
    if (node_len > UINT16_MAX || ext_len > UINT16_MAX - 2 * EXT_TIME_BYTES) return 0;
    for (uint32_t i = 0; i < count; i++, row++) {
        uint32_t meta = row->flags & TP_ROW_META ? row->meta_len : 0;
        uint32_t tag = row->flags & TP_ROW_TAG ? row->tag_len : 0;
        uint32_t own = row->flags & TP_ROW_NODE ? row->node_len : 0;
        if (outside(row->data_off, row->data_len, buffer_bytes) || tag > UINT16_MAX || own > UINT16_MAX) return 0;
        if (meta && outside(row->meta_off, meta, buffer_bytes)) return 0;
        if (tag && outside(row->tag_off, tag, buffer_bytes)) return 0;
        if (own && outside(row->node_off, own, buffer_bytes)) return 0;
        if (!(row->flags & TP_ROW_NODE) && has_node) own = node_len;
        uint64_t length = (uint64_t)FRAME_MIN_BYTES + row->data_len + meta + tag + own;
        if (row->flags & TP_ROW_TIMES) {
            if (row->data_off < times_in(row) * TP_TIME_BYTES) return 0;
            length += times_in(row) * EXT_TIME_BYTES;
        }
        if (length + ext_len > INT32_MAX) return 0;
        needed += length;
    }
    if (needed > room) return -(int64_t)needed;
    uint8_t *begin = (uint8_t *)dest + at, *p = begin;
    any_placed *entry = (any_placed *)placed;
    row = (const any_row *)rows;
    for (uint32_t i = 0; i < count; i++, row++, entry++) {
        uint8_t frame_flags = (uint8_t)flags | (uint8_t)(row->flags & (FLAG_TAG | FLAG_NODE | FLAG_META));
        struct text x = {(const uint8_t *)ext, i == 0 ? ext_len : 0};
        struct text n = {base + row->node_off, row->node_len};
        struct text t = {base + row->tag_off, row->flags & TP_ROW_TAG ? row->tag_len : 0};
        struct text d = {base + row->data_off, row->data_len};
        struct text m = {base + row->meta_off, row->flags & TP_ROW_META ? row->meta_len : 0};
        if (!(row->flags & TP_ROW_NODE)) {
            n.at = (const uint8_t *)node;
            n.len = has_node ? node_len : 0;
            if (has_node) frame_flags |= FLAG_NODE;
        }
        if (x.len || row->flags & TP_ROW_TIMES) frame_flags |= FLAG_EXT;
        entry->start = (uint32_t)(start + (uint64_t)(p - begin));
        entry->size = row->size;
        entry->flags = frame_flags;
        memset(entry->zero, 0, sizeof entry->zero);
        entry->ts_ms = ts_ms;
        uint8_t kind = row->flags & TP_ROW_IS_BYTES ? PAYLOAD_BYTES : PAYLOAD_JSON;
        entry->length = __builtin_expect(row->flags & TP_ROW_TIMES, 0)
                            ? put_timed(p, row, frame_flags, kind, topic_id, first_seq + i, ts_ms, row->size, x, n, t, d, m)
                            : put_unsealed(p, TYPE_RECORD, frame_flags, kind, topic_id, first_seq + i, ts_ms, row->size,
                                           x, n, t, d, m);
        /* A checksum is cheaper once the stores of its frame have ended. */
        if (i) seal_frame(p - entry[-1].length, entry[-1].length);
        p += entry->length;
    }
    if (count) seal_frame(p - entry[-1].length, entry[-1].length);
    return (int64_t)(p - begin);
}

int64_t tp_frame_topics(char *dest, uint64_t at, uint64_t room, const char *buffer, uint64_t buffer_bytes,
                        const char *rows, const uint64_t *ids, const uint64_t *first_seqs, const uint64_t *ts_ms,
                        const uint32_t *first_rows, const uint32_t *counts, uint32_t topics, uint32_t flags,
                        uint64_t start, char *placed)
{
    const uint64_t begin = at;
    for (uint32_t i = 0; i < topics; i++) {
        int64_t written = tp_frame_rows(dest, at, room, buffer, buffer_bytes,
                                        rows + (uint64_t)first_rows[i] * sizeof(struct tp_row), counts[i], ids[i],
                                        first_seqs[i], ts_ms[i], flags, NULL, 0, 0, NULL, 0, start + (at - begin),
                                        placed);
        if (written < 0 || (!written && counts[i])) return written;
        at += (uint64_t)written;
        placed += (uint64_t)counts[i] * sizeof(struct tp_placed);
    }
    return (int64_t)(at - begin);
}

uint32_t tp_row_flags(const char *rows, uint32_t count)
{
    uint32_t flags = 0;
    for (const any_row *row = (const any_row *)rows, *end = row + count; row < end; row++) flags |= row->flags;
    return flags;
}

/* Writes rows into the columns of one index, whose six addresses are given, from `first` on. */
static uint64_t place_run(const uint64_t *columns, uint32_t first, const any_placed *entry, uint32_t count,
                          uint32_t file_id, uint32_t base)
{
    uint32_t *file_ids = (uint32_t *)(uintptr_t)columns[0] + first;
    uint32_t *offsets = (uint32_t *)(uintptr_t)columns[1] + first;
    uint32_t *lengths = (uint32_t *)(uintptr_t)columns[2] + first;
    uint32_t *sizes = (uint32_t *)(uintptr_t)columns[3] + first;
    uint64_t *ts = (uint64_t *)(uintptr_t)columns[4] + first;
    uint8_t *flags = (uint8_t *)(uintptr_t)columns[5] + first;
    uint64_t size = 0;
    for (uint32_t row = 0; row < count; row++, entry++) {
        file_ids[row] = file_id;
        offsets[row] = entry->start + base;
        lengths[row] = entry->length;
        sizes[row] = entry->size;
        ts[row] = entry->ts_ms;
        flags[row] = entry->flags;
        size += entry->size;
    }
    return size;
}

uint64_t tp_place_rows(const uint64_t *columns, const uint32_t *runs, uint32_t count, const char *placed, uint32_t file_id,
                       uint64_t base)
{
    uint64_t size = 0;
    for (uint32_t i = 0; i < count; i++, columns += 6, runs += 3)
        size += place_run(columns, runs[1], (const any_placed *)placed + runs[0], runs[2], file_id, (uint32_t)base);
    return size;
}

uint64_t tp_place_run(const char *columns, uint32_t first, const char *placed, uint32_t at, uint32_t count,
                      uint32_t file_id, uint64_t base)
{
    uint64_t own[6];
    memcpy(own, columns, sizeof own);
    return place_run(own, first, (const any_placed *)placed + at, count, file_id, (uint32_t)base);
}

int64_t tp_frame_control(char *dest, uint64_t at, uint64_t room, uint32_t type, uint32_t flags, uint64_t topic_id,
                         uint64_t seq, uint64_t ts_ms, const char *payload, uint32_t payload_len)
{
    uint64_t needed = at + FRAME_MIN_BYTES + payload_len;
    if (needed > room) return -(int64_t)needed;
    struct text none = {0, 0}, data = {(const uint8_t *)payload, payload_len};
    return put_frame((uint8_t *)dest + at, (uint8_t)type, (uint8_t)flags, PAYLOAD_JSON, topic_id, seq, ts_ms, 0, none,
                     none, none, data, none);
}

/* The header of every batch; its frames follow. */
struct __attribute__((packed)) batch_header {
    uint32_t magic;
    uint16_t version, flags;
    uint64_t epoch, batch_no, synced_upto, chain;
    uint32_t body_bytes, frame_count;
    uint64_t written_ms, checksum;
};

_Static_assert(sizeof(struct batch_header) == BATCH_HEADER_BYTES, "the header of a batch as log_format.py has it");

static inline uint64_t header_checksum(const struct batch_header *h, uint64_t body_sum)
{
    return XXH3_64bits_withSeed(h, offsetof(struct batch_header, checksum), body_sum);
}

/* Whether a batch, whose body is complete, has its checksum. */
static inline int batch_is_sound(const struct batch_header *h)
{
    return h->checksum == header_checksum(h, XXH3_64bits((const uint8_t *)h + BATCH_HEADER_BYTES, h->body_bytes));
}

uint64_t tp_seal_summed(char *batch, uint64_t epoch, uint64_t batch_no, uint64_t synced_upto, uint64_t chain,
                        uint32_t body_bytes, uint32_t frame_count, uint64_t written_ms, uint64_t body_sum)
{
    struct batch_header *h = (struct batch_header *)batch;
    h->magic = BATCH_MAGIC;
    h->version = BATCH_VERSION;
    h->flags = 0;
    h->epoch = epoch;
    h->batch_no = batch_no;
    h->synced_upto = synced_upto;
    h->chain = chain;
    h->body_bytes = body_bytes;
    h->frame_count = frame_count;
    h->written_ms = written_ms;
    return h->checksum = header_checksum(h, body_sum);
}

uint64_t tp_seal_batch(char *batch, uint64_t epoch, uint64_t batch_no, uint64_t synced_upto, uint64_t chain,
                       uint32_t body_bytes, uint32_t frame_count, uint64_t written_ms)
{
    return tp_seal_summed(batch, epoch, batch_no, synced_upto, chain, body_bytes, frame_count, written_ms,
                          XXH3_64bits(batch + BATCH_HEADER_BYTES, body_bytes));
}

int64_t tp_frame_batch(char *chunk, uint64_t at, uint64_t room, const char *buffer, uint64_t buffer_bytes, const char *rows,
                       uint32_t count, uint64_t topic_id, uint64_t first_seq, uint64_t ts_ms, uint32_t flags,
                       const char *node, uint32_t node_len, uint32_t has_node, const char *more, uint32_t more_bytes,
                       uint32_t more_frames, uint64_t epoch, uint64_t batch_no, uint64_t synced_upto, uint64_t chain,
                       uint64_t written_ms, char *placed, uint64_t *checksum)
{
    uint64_t least = at + BATCH_HEADER_BYTES + more_bytes;
    if (room < least) return -(int64_t)least;
    int64_t body = tp_frame_rows(chunk, at + BATCH_HEADER_BYTES, room - more_bytes, buffer, buffer_bytes, rows, count, topic_id,
                                 first_seq, ts_ms, flags, node, node_len, has_node, NULL, 0, 0, placed);
    if (body <= 0) return body < 0 ? body - more_bytes : 0;
    if (more_bytes) memcpy(chunk + at + BATCH_HEADER_BYTES + body, more, more_bytes);
    body += more_bytes;
    uint64_t sum = tp_seal_batch(chunk + at, epoch, batch_no, synced_upto, chain, (uint32_t)body, count + more_frames,
                                 written_ms);
    uint64_t end = at + BATCH_HEADER_BYTES + (uint64_t)body;
    uint64_t block_end = (end + BLOCK_BYTES - 1) / BLOCK_BYTES * BLOCK_BYTES;
    memset(chunk + end, 0, (block_end < room ? block_end : room) - end);
    checksum[0] = sum;
    return BATCH_HEADER_BYTES + body;
}

int64_t tp_frame_next(struct tp_next_batch *next, const char *buffer, uint64_t buffer_bytes, const char *rows,
                      uint32_t count, uint64_t size, uint64_t now_ms, char *placed)
{
    if (!count || size > next->most || next->seq > next->last_seq || count - 1 > next->last_seq - next->seq) return 0;
    uint64_t at = next->at, ts_ms = now_ms > next->last_ts_ms ? now_ms : next->last_ts_ms, sum = 0;
    int64_t used = tp_frame_batch((char *)(uintptr_t)next->chunk, at, next->capacity, buffer, buffer_bytes, rows, count,
                                  next->topic_id, next->seq, ts_ms, next->flags, NULL, 0, 0, NULL, 0, 0, next->epoch,
                                  next->batch_no, next->synced_upto, next->chain, now_ms, placed, &sum);
    if (used <= 0 || (uint64_t)used > next->most || (uint64_t)used > next->room) return 0;
    next->begin = at;
    next->first_seq = next->seq;
    next->count = count;
    next->size = size;
    next->ts_ms = next->last_ts_ms = ts_ms;
    next->checksum = next->chain = sum;
    next->at = (at + (uint64_t)used + BATCH_ALIGN - 1) / BATCH_ALIGN * BATCH_ALIGN;
    uint64_t spent = next->at - at;
    next->room -= spent < next->room ? spent : next->room;
    if (next->syncs) next->synced_upto = next->batch_no;
    next->batch_no++;
    next->seq += count;
    return used;
}

/* Updates two checksums with the same bytes, a piece at a time, which the first one brings into the
 * cache for the second. */
static void sum_twice(XXH3_state_t *a, XXH3_state_t *b, const uint8_t *p, uint64_t size)
{
    while (size) {
        uint64_t piece = size < SUM_PIECE_BYTES ? size : SUM_PIECE_BYTES;
        XXH3_64bits_update(a, p, piece);
        XXH3_64bits_update(b, p, piece);
        p += piece;
        size -= piece;
    }
}

int64_t tp_frame_apart(char *head, char *trailer, const char *buffer, uint64_t buffer_bytes, const char *row,
                       uint64_t topic_id, uint64_t first_seq, uint64_t ts_ms, uint32_t flags, uint64_t epoch,
                       uint64_t batch_no, uint64_t synced_upto, uint64_t chain, uint64_t written_ms, char *placed,
                       uint64_t *checksum)
{
    const any_row *r = (const any_row *)row;
    if (r->flags & (TP_ROW_TAG | TP_ROW_NODE | TP_ROW_META | TP_ROW_TIMES) || outside(r->data_off, r->data_len, buffer_bytes)) return 0;
    if ((uint64_t)FRAME_MIN_BYTES + r->data_len > INT32_MAX) return 0;
    const uint8_t *data = (const uint8_t *)buffer + r->data_off;
    uint8_t *frame = (uint8_t *)head + BATCH_HEADER_BYTES, *end = (uint8_t *)trailer;
    uint32_t length = put_header(frame, TYPE_RECORD, (uint8_t)flags, r->flags & TP_ROW_IS_BYTES ? PAYLOAD_BYTES : PAYLOAD_JSON,
                                 topic_id, first_seq, ts_ms, r->size, 0, 0, 0, r->data_len, 0);
    XXH3_state_t of_frame, of_body;
    XXH3_64bits_reset(&of_frame);
    XXH3_64bits_reset(&of_body);
    XXH3_64bits_update(&of_frame, frame + REST_FROM, FRAME_HEADER_BYTES - REST_FROM);
    XXH3_64bits_update(&of_body, frame, FRAME_HEADER_BYTES);
    sum_twice(&of_frame, &of_body, data, r->data_len);
    put64(end, XXH3_64bits_digest(&of_frame));
    end[FRAME_TRAILER_BYTES - 1] = DELETED_LIVE;
    XXH3_64bits_update(&of_body, end, FRAME_TRAILER_BYTES);
    any_placed *entry = (any_placed *)placed;
    memset(entry, 0, sizeof *entry);
    entry->length = length;
    entry->size = r->size;
    entry->flags = (uint8_t)flags;
    entry->ts_ms = ts_ms;
    checksum[0] = tp_seal_summed(head, epoch, batch_no, synced_upto, chain, length, 1, written_ms,
                                 XXH3_64bits_digest(&of_body));
    return BATCH_HEADER_BYTES + (int64_t)length;
}

void tp_scan_log(const char *bytes, uint64_t size, uint64_t base, struct tp_log_scan *s, struct tp_frame *out,
                 uint64_t capacity)
{
    s->frames = s->batches = 0;
    s->needed = 0;
    for (;;) {
        uint64_t at = (s->position + 7) & ~(uint64_t)7;
        if (at > size || size - at < BATCH_HEADER_BYTES) {
            s->needed = BATCH_HEADER_BYTES;
            s->reason = TP_STOP_MORE;
            return;
        }
        const struct batch_header *h = (const struct batch_header *)(bytes + at);
        if (h->magic != BATCH_MAGIC || h->epoch != s->epoch) {
            s->reason = h->magic == 0 && h->epoch == 0 ? TP_STOP_END : TP_STOP_FOREIGN;
            return;
        }
        uint32_t body_bytes = h->body_bytes, frame_count = h->frame_count;
        if (size - at - BATCH_HEADER_BYTES < body_bytes) {
            uint64_t needed = (uint64_t)BATCH_HEADER_BYTES + body_bytes;
            s->needed = needed > UINT32_MAX ? UINT32_MAX : (uint32_t)needed;
            s->reason = TP_STOP_MORE;
            return;
        }
        if (!batch_is_sound(h)) {
            s->reason = TP_STOP_TORN;
            return;
        }
        if (h->version != BATCH_VERSION) {
            s->reason = TP_STOP_BAD;
            return;
        }
        if (h->batch_no != s->batch_no || h->chain != s->chain) {
            s->reason = TP_STOP_ORDER;
            return;
        }
        if (frame_count > capacity - s->frames) {
            s->reason = TP_STOP_ROOM;
            return;
        }
        const uint8_t *q = (const uint8_t *)h + BATCH_HEADER_BYTES, *end = q + body_bytes;
        struct tp_frame *f = out + s->frames;
        for (uint32_t i = 0; i < frame_count; i++, f++) {
            if (!get_frame(q, (uint64_t)(end - q), f)) {
                s->reason = TP_STOP_BAD;
                return;
            }
            f->offset = base + (uint64_t)(q - (const uint8_t *)bytes);
            f->batch = (uint32_t)s->batches;
            q += f->length;
        }
        if (q != end) {
            s->reason = TP_STOP_BAD;
            return;
        }
        s->frames += frame_count;
        s->batches++;
        s->batch_no++;
        s->chain = h->checksum;
        s->written_ms = h->written_ms;
        if (h->synced_upto > s->synced_upto) s->synced_upto = h->synced_upto;
        s->position = at + BATCH_HEADER_BYTES + body_bytes;
    }
}

int64_t tp_find_batch(const char *bytes, uint64_t size, uint64_t start, uint64_t epoch, struct tp_log_scan *s)
{
    for (uint64_t at = (start + 7) & ~(uint64_t)7; at <= size && size - at >= BATCH_HEADER_BYTES; at += 8) {
        const struct batch_header *h = (const struct batch_header *)(bytes + at);
        if (h->magic != BATCH_MAGIC || h->epoch != epoch) continue;
        if (size - at - BATCH_HEADER_BYTES < h->body_bytes || !batch_is_sound(h)) continue;
        s->batch_no = h->batch_no;
        s->synced_upto = h->synced_upto;
        return (int64_t)at;
    }
    return -1;
}

void tp_scan_frames(const char *bytes, uint64_t size, uint64_t base, struct tp_frame_scan *s, struct tp_frame *out,
                    uint64_t capacity)
{
    for (s->frames = 0;; s->frames++) {
        if (s->position >= size) {
            s->reason = s->position == size ? TP_STOP_END : TP_STOP_MORE;
            return;
        }
        const uint8_t *p = (const uint8_t *)bytes + s->position;
        uint64_t room = size - s->position;
        if (room < 4) {
            s->reason = TP_STOP_MORE;
            return;
        }
        uint64_t length = (uint64_t)get32(p) + REST_FROM;
        if (length == REST_FROM) {
            s->reason = TP_STOP_END;
            return;
        }
        if (length < FRAME_MIN_BYTES) {
            s->reason = TP_STOP_TORN;
            return;
        }
        if (length > room) {
            s->reason = TP_STOP_MORE;
            return;
        }
        if (s->frames == capacity) {
            s->reason = TP_STOP_ROOM;
            return;
        }
        if (!frame_is_sound(p, (uint32_t)length)) {
            s->reason = TP_STOP_TORN;
            return;
        }
        struct tp_frame *f = out + s->frames;
        if (!get_frame(p, room, f)) {
            s->reason = TP_STOP_BAD;
            return;
        }
        f->offset = base + s->position;
        f->batch = 0;
        s->sum = XXH3_64bits_withSeed(p + length - FRAME_TRAILER_BYTES, 8, s->sum);
        s->position += length;
    }
}

/* Whether a set of names (tp_project) has this node; 0 if its bytes are not a set. */
static int node_is_listed(const uint8_t *node, uint32_t len, const uint8_t *set, uint32_t size)
{
    if (size < 4 || get32(set) > (size - 4) / 4) return 0;
    uint32_t low = 0, high = get32(set);
    const uint8_t *ends = set + 4, *names = ends + 4ull * high;
    uint32_t names_bytes = size - 4 - 4 * high;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        uint32_t from = middle ? get32(ends + 4ull * (middle - 1)) : 0, end = get32(ends + 4ull * middle);
        if (from > end || end > names_bytes) return 0;
        int order = end - from != len ? (end - from < len ? -1 : 1) : memcmp(names + from, node, len);
        if (!order) return 1;
        if (order < 0) low = middle + 1;
        else high = middle;
    }
    return 0;
}

/* Renders rows, see tp_project. leases: NULL for plain records. */
static void project(char *out, uint64_t room, const char *bytes, uint64_t size, uint64_t base, const uint32_t *offsets,
                    const uint32_t *lengths, const uint64_t *seqs, uint32_t count, const char *nodes,
                    uint32_t nodes_bytes, const struct tp_lease *leases, struct tp_projection *s)
{
    s->reason = TP_STOP_END;
    s->full = s->apart_count = 0;
    char *q = out + s->written;
    for (s->examined = 0; s->examined < count; s->examined++) {
        uint32_t i = s->examined;
        if (s->count >= s->limit) {
            s->full = 1;
            break;
        }
        uint64_t at = (uint64_t)offsets[i] - base;
        struct tp_frame f;
        const uint8_t *p = (const uint8_t *)bytes + at;
        if (offsets[i] < base || at > size || lengths[i] > size - at ||
            !is_frame_of(p, lengths[i], s->topic_id, seqs[i], &f)) {
            s->reason = TP_STOP_TORN;
            break;
        }
        const uint8_t *node = p + FRAME_HEADER_BYTES + f.ext_len;
        if (nodes_bytes) {
            int listed = (f.flags & FLAG_NODE) &&
                         node_is_listed(node, f.node_len, (const uint8_t *)nodes, nodes_bytes);
            if (listed != (s->only_nodes != 0)) continue;
        }
        if (s->count && s->size + shown_size(&f, s) > s->budget) {
            s->full = 1;
            break;
        }
        uint64_t most = most_bytes(&f, s) + (leases ? LEASE_MOST : 0);
        if (room - (uint64_t)(q - out) < most) {
            s->needed = most;
            s->reason = TP_STOP_ROOM;
            break;
        }
        if (s->apart && s->include_data && f.payload_kind != PAYLOAD_JSON) {
            uint64_t *span = s->apart + 3 * s->apart_count++;
            span[0] = s->count;
            span[1] = at + FRAME_HEADER_BYTES + f.ext_len + f.node_len + f.tag_len;
            span[2] = f.data_len;
        }
        q = put_element(q, p, &f, leases ? leases + i : NULL, s);
    }
    s->written = (uint64_t)(q - out);
}

void tp_project(char *out, uint64_t room, const char *bytes, uint64_t size, uint64_t base, const uint32_t *offsets,
                const uint32_t *lengths, const uint64_t *seqs, uint32_t count, const char *nodes,
                uint32_t nodes_bytes, struct tp_projection *s)
{
    project(out, room, bytes, size, base, offsets, lengths, seqs, count, nodes, nodes_bytes, NULL, s);
}

void tp_project_jobs(char *out, uint64_t room, const char *bytes, uint64_t size, uint64_t base,
                     const uint32_t *offsets, const uint32_t *lengths, const uint64_t *seqs, uint32_t count,
                     const struct tp_lease *leases, struct tp_projection *s)
{
    project(out, room, bytes, size, base, offsets, lengths, seqs, count, "", 0, leases, s);
}

int64_t tp_project_columns(char *out, const char *bytes, uint64_t size, uint64_t base, const uint32_t *offsets,
                           const uint32_t *lengths, const uint64_t *seqs, uint32_t count, uint64_t topic_id,
                           uint64_t *ts, uint8_t *kinds, uint64_t *ends, uint64_t end)
{
    const uint64_t begin = end;
    for (uint32_t i = 0; i < count; i++) {
        uint64_t at = (uint64_t)offsets[i] - base;
        struct tp_frame f;
        const uint8_t *p = (const uint8_t *)bytes + at;
        if (offsets[i] < base || at > size || lengths[i] > size - at ||
            !is_frame_of(p, lengths[i], topic_id, seqs[i], &f))
            return -1 - (int64_t)i;
        memcpy(out, p + FRAME_HEADER_BYTES + f.ext_len + f.node_len + f.tag_len, f.data_len);
        out += f.data_len;
        ts[i] = f.ts_ms;
        kinds[i] = f.payload_kind;
        ends[i] = end += f.data_len;
    }
    return (int64_t)(end - begin);
}

int64_t tp_copy_frames(char *out, const char *bytes, uint64_t size, uint64_t base, const uint32_t *offsets,
                       const uint32_t *lengths, const uint64_t *seqs, uint32_t count, uint64_t topic_id,
                       struct tp_copied *s)
{
    uint64_t written = 0, begin = 0, run = 0; /* adjoining frames are copied in one step */
    s->size = s->last_ts = 0;
    for (uint32_t i = 0; i < count; i++) {
        uint64_t at = (uint64_t)offsets[i] - base;
        struct tp_frame f;
        const uint8_t *p = (const uint8_t *)bytes + at;
        if (offsets[i] < base || at > size || lengths[i] > size - at ||
            !is_frame_of(p, lengths[i], topic_id, seqs[i], &f) || f.type != TYPE_RECORD)
            return -1 - (int64_t)i;
        s->sum = XXH3_64bits_withSeed(p + lengths[i] - FRAME_TRAILER_BYTES, 8, s->sum);
        s->size += f.size;
        s->last_ts = f.ts_ms;
        if (at != begin + run) {
            memcpy(out + written, bytes + begin, run);
            written += run;
            begin = at;
            run = 0;
        }
        run += lengths[i];
    }
    memcpy(out + written, bytes + begin, run);
    return (int64_t)(written + run);
}

int64_t tp_reframe(char *out, const char *bytes, uint64_t size, uint64_t base, const uint32_t *offsets,
                   const uint32_t *lengths, const uint64_t *seqs, const uint64_t *ts, const uint8_t *flags,
                   uint32_t count, uint64_t topic_id, uint32_t *lengths_out)
{
    uint8_t *q = (uint8_t *)out;
    for (uint32_t i = 0; i < count; i++) {
        uint64_t at = (uint64_t)offsets[i] - base;
        if (offsets[i] < base || at > size || lengths[i] > size - at) return -1 - (int64_t)i;
        const uint8_t *p = (const uint8_t *)bytes + at;
        if (!(flags[i] & FLAG_COPY)) {
            memcpy(q, p, lengths[i]);
            q += lengths_out[i] = lengths[i];
            continue;
        }
        struct tp_frame f;
        if (!is_copied_frame(p, lengths[i], flags[i], &f)) return -1 - (int64_t)i;
        uint8_t kept = f.flags;
        const uint8_t *node = p + FRAME_HEADER_BYTES + f.ext_len, *tag = node + f.node_len, *data = tag + f.tag_len;
        struct text none = {0, 0};
        struct text n = {node, f.node_len}, t = {tag, f.tag_len}, d = {data, f.data_len};
        struct text m = {data + f.data_len, f.meta_len};
        q += lengths_out[i] = put_frame(q, TYPE_RECORD, kept, f.payload_kind, topic_id, seqs[i], ts[i], f.size, none,
                                        kept & FLAG_NODE ? n : none, kept & FLAG_TAG ? t : none, d,
                                        kept & FLAG_META ? m : none);
    }
    return (int64_t)(q - (uint8_t *)out);
}

int64_t tp_rows_of_frames(char *rows, const char *bytes, uint64_t size, uint64_t base, const uint32_t *offsets,
                          const uint32_t *lengths, const uint64_t *seqs, uint32_t count, uint64_t topic_id,
                          uint32_t keep, uint32_t start)
{
    any_row *row = (any_row *)rows;
    for (uint32_t i = 0; i < count; i++, row++) {
        uint64_t at = (uint64_t)offsets[i] - base;
        struct tp_frame f;
        if (offsets[i] < base || at > size || lengths[i] > size - at ||
            !is_frame_of((const uint8_t *)bytes + at, lengths[i], topic_id, seqs[i], &f) || f.type != TYPE_RECORD)
            return -1 - (int64_t)i;
        row->node_off = start + (uint32_t)at + FRAME_HEADER_BYTES + f.ext_len;
        row->tag_off = row->node_off + f.node_len;
        row->data_off = row->tag_off + f.tag_len;
        row->meta_off = row->data_off + f.data_len;
        row->node_len = f.node_len;
        row->tag_len = f.tag_len;
        row->data_len = f.data_len;
        row->meta_len = f.meta_len;
        row->size = f.size;
        row->flags = (f.flags & (TP_ROW_META | (keep & (TP_ROW_TAG | TP_ROW_NODE)))) |
                     (f.payload_kind == PAYLOAD_BYTES ? TP_ROW_IS_BYTES : 0);
    }
    return count;
}

uint64_t tp_checksum(const char *bytes, uint64_t size, uint64_t seed)
{
    return XXH3_64bits_withSeed(bytes, size, seed);
}
