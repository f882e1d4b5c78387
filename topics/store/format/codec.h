/* Frames and batches in bulk. Layouts: log_format.py. Every function is total: any bytes give a
 * result, never a crash. Plain declarations, read by the C compiler and by cffi. */
#ifndef TOPICS_STORE_CODEC_H
#define TOPICS_STORE_CODEC_H

#include <stdint.h>

#include "rows.h"

/* The reasons why a scan stops. */
enum {
    TP_STOP_END = 0,     /* nothing more: zeros, or the end of the bytes given (frames) */
    TP_STOP_MORE = 1,    /* the batch or frame extends past the bytes given */
    TP_STOP_FOREIGN = 2, /* not a batch of this epoch: bytes of an earlier use of the file */
    TP_STOP_TORN = 3,    /* a batch (or frame) of this log whose checksum is wrong */
    TP_STOP_ORDER = 4,   /* a sound batch of this epoch that does not follow the one before */
    TP_STOP_BAD = 5,     /* right checksum, impossible contents: version or lengths */
    TP_STOP_ROOM = 6,    /* no room in the output */
    TP_STOP_KIND = 7     /* (columns of texts) data of bytes, for which there is no column */
};

/* One frame found by a scan. Texts follow the 52-byte header in the order ext, node, tag, data,
 * meta. 64 bytes. */
struct tp_frame {
    uint8_t type, flags, deleted, payload_kind;
    uint32_t length; /* whole frame, its length field included */
    uint64_t topic_id, seq, ts_ms;
    uint64_t offset; /* offset of the frame's first byte, plus the `base` given */
    uint32_t size, data_len, meta_len;
    uint16_t ext_len, node_len, tag_len, reserved;
    uint32_t batch; /* number of its batch, counted from the first of this scan */
};

/* In and out of tp_scan_log: what the next batch must have, and how far the scan came. */
struct tp_log_scan {
    uint64_t epoch, batch_no, chain; /* expected of the next batch */
    uint64_t position;               /* position of the next batch in the bytes given */
    uint64_t frames, batches;        /* applied by this call */
    uint64_t synced_upto;            /* highest seen */
    uint64_t written_ms;             /* of the last batch applied */
    uint32_t reason;                 /* TP_STOP_* */
    uint32_t needed;                 /* TP_STOP_MORE: bytes from `position` that contain one more batch */
};

/* In and out of tp_scan_frames. */
struct tp_frame_scan {
    uint64_t position; /* of the next frame */
    uint64_t frames;
    uint64_t sum;      /* running checksum of the frames' checksums; start with 0 */
    uint32_t reason;
    uint32_t reserved;
};

/* In and out of tp_project. */
struct tp_projection {
    uint64_t topic_id;
    uint32_t include_tags, include_meta, include_data;
    uint32_t limit;     /* records, over all calls */
    uint64_t budget;    /* accounted bytes, base64 for its own length, over all calls; the first record passes */
    uint32_t count;     /* delivered so far */
    uint32_t examined;  /* rows of this call that are done: delivered or skipped */
    uint64_t size;      /* bytes of the budget used so far */
    uint64_t written;   /* bytes in the output so far */
    uint64_t needed;    /* TP_STOP_ROOM: bytes the next record may take */
    uint32_t reason;    /* TP_STOP_END (rows done or limit met), _ROOM, _TORN (row `examined`) */
    uint32_t full;      /* 1: limit or budget met */
    /* The caller takes payloads of bytes itself: their data is rendered as null, and for each of
     * this call three numbers are written: its index among the records delivered, and start and
     * length of its payload in the bytes given. NULL: they are rendered as `data_base64`. */
    uint64_t *apart;
    uint32_t apart_count;
    uint32_t only_nodes; /* 1: rows whose node is not in `nodes` are skipped, instead of those whose node is */
};

/* Makes rows of a Python list or tuple of bytes objects, bytearrays and views of contiguous memory,
 * whose bytes are copied. Returns a new Python object, for a caller that holds the interpreter's
 * lock: the tuple (buffer, rows, count, bytes of all); the index of the first one of more than
 * record_max bytes; None if an element is anything else. NULL with an OverflowError if they have
 * more than UINT32_MAX bytes, or with a MemoryError. */
void *tp_rows_of_list(void *list, uint64_t record_max);

/* Slots of one class whose objects are about to be used, as offsets in an object of `bytes`. */
enum { TP_LOADED_SLOTS = 8 };
struct tp_slots {
    uint32_t bytes, count;
    uint32_t at[TP_LOADED_SLOTS]; /* slots with numbers and other small objects */
    uint32_t next;         /* the slot that leads to the next class */
};

/* The offset of a slot of a class in its objects, by its descriptor. 0: it is none. */
uint32_t tp_slot_offset(void *descriptor);

/* Loads each object of a list, None left out, and the objects in its slots into the caches; then
 * the same of the object in `next`, and of the last item of the list in that one's `next`. classes:
 * of these three. All lines are loaded side by side; one after the other, each would be waited for.
 * Returns how many were asked for. For a caller that holds the interpreter's lock. */
uint64_t tp_load_slots(void *list, const struct tp_slots *classes);

/* Frames `count` rows (struct tp_row) into dest[at:room]. Row i gets seq first_seq + i and its
 * own node, or else the default (has_node); delay and ttl come first in its extension. placed[i]
 * (struct tp_placed) describes it; starts count from `start`. The first frame gets the extension.
 * flags: FLAG_FSYNC and FLAG_ROUTED, or 0. Returns the bytes written; -n if n bytes of room are
 * needed; 0 if a span is outside the buffer. */
int64_t tp_frame_rows(char *dest, uint64_t at, uint64_t room, const char *buffer, uint64_t buffer_bytes,
                      const char *rows, uint32_t count, uint64_t topic_id, uint64_t first_seq, uint64_t ts_ms,
                      uint32_t flags, const char *node, uint32_t node_len, uint32_t has_node, const char *ext,
                      uint32_t ext_len, uint64_t start, char *placed);

/* Returns the flags that any of `count` rows (struct tp_row) has. */
uint32_t tp_row_flags(const char *rows, uint32_t count);

/* The next batch of lone writes to one topic, as long as nothing else happens: its place, what its
 * header and frames have, and its bounds. tp_frame_next moves all of this on. */
struct tp_next_batch {
    uint64_t chunk;        /* address of the memory that mirrors a part of the file, whole blocks */
    uint64_t at, capacity; /* where the batch begins in it; its size */
    uint64_t most, room;   /* bytes: of a batch; of all batches from here on */
    uint64_t epoch, batch_no, synced_upto, chain;
    uint64_t topic_id, seq, last_seq; /* seq: of the next record; last_seq: the last that may be given out */
    uint64_t last_ts_ms;   /* of the record before */
    uint32_t flags;        /* of each frame: FLAG_FSYNC, or 0 */
    uint32_t syncs;        /* 1: each batch is on stable storage before the next */
    /* the batch that the last call has framed */
    uint64_t begin, first_seq, count, size, ts_ms, checksum; /* size: accounted bytes of its records */
};

/* Frames the next batch: `count` rows without nodes of others, as tp_frame_batch does. size: their
 * accounted bytes. placed: room for `count` entries; starts count from the body. Returns the bytes
 * of the batch, which is to be written then; 0: nothing was done, because it exceeds a bound, its
 * memory or its seqs, or a span is outside the buffer. */
int64_t tp_frame_next(struct tp_next_batch *next, const char *buffer, uint64_t buffer_bytes, const char *rows,
                      uint32_t count, uint64_t size, uint64_t now_ms, char *placed);

/* Quick appends: to one topic, each by one call that frames and writes it, while nothing else
 * happens to the log. The rest of it is done for all of them together, before any other code looks:
 * see store/commits/quick_writes.py. */
enum { TP_QUICK_ROWS = 1024, TP_TIME_BUCKETS = 40 };

/* Times as common/histograms.py counts them: buckets[i] is how many took fewer than 1 << i ns, and
 * no fewer than half of that. */
struct tp_times {
    uint64_t buckets[TP_TIME_BUCKETS], total_ns;
};

struct tp_quick {
    struct tp_next_batch next;
    uint64_t is_open;    /* 1: batches may be written */
    uint64_t write;      /* address of tp_write_now of uring/ring.h; 0: a callable of Python writes */
    uint64_t until_ns;   /* the time at which other work may be due */
    uint64_t start;      /* offset in the file of the chunk's first byte */
    int32_t fd, dsync;
    uint64_t left_flags; /* TP_ROW_*: a request with such a row is left to others */
    /* written so far */
    uint64_t batches, rows, size, bytes; /* size: accounted bytes of the records; bytes: of batches */
    uint64_t expected;    /* bytes of the last write, and its result: also one that was not whole */
    int64_t result;
    uint64_t first_begin, end; /* in the chunk: begin of the first batch, end of the last */
    uint64_t ts_ms, checksum, ended_ns; /* of the last */
    struct tp_times appends, writes;
    uint64_t write_ns[TP_QUICK_ROWS]; /* of each batch */
    struct tp_placed placed[TP_QUICK_ROWS]; /* their starts count from the body of the first batch */
};

/* Returns a callable of Python, as a new reference: append(request, thread). The caller has the
 * interpreter's lock. The callable appends the rows of a request in one step, in which no signal's
 * handler runs, and returns the result; None, and nothing was done, if it may not.
 *
 * cells: a list of TP_QUICK_CELLS objects, which the callable reads at each call. */
enum {
    TP_CELL_NAME,    /* the name of the topic */
    TP_CELL_LOCK,    /* the lock of those that drive */
    TP_CELL_DRIVER,  /* its `_driving` is the id of the thread that holds the lock */
    TP_CELL_NOW_NS,  /* monotonic time */
    TP_CELL_NOW_MS,  /* the time of day */
    TP_CELL_RESULT,  /* the type of the result, a NamedTuple */
    TP_CELL_QUEUES,  /* a tuple of queues: while one has something, nothing is appended */
    TP_CELL_PLAIN,   /* a tuple: the fields of a plain request after its topic and its rows */
    TP_CELL_WRITE,   /* writes without a function in C: write(fd, view, offset, dsync) */
    TP_CELL_VIEW,    /* a view of the chunk, for it */
    TP_CELL_WAKE_NEXT_DRIVER, /* called once the lock is free, if a queue has something then */
    TP_QUICK_CELLS
};
void *tp_quick_append(struct tp_quick *quick, void *cells);

/* Frames rows of several topics in one call, without nodes of their own and without extensions.
 * ids, first_seqs, ts_ms, first_rows, counts: columns over the topics; the rows of topic i are
 * counts[i] from first_rows[i] on. `placed` gets the entries topic by topic, without gaps.
 * Returns as tp_frame_rows; -n may be less than all topics need. */
int64_t tp_frame_topics(char *dest, uint64_t at, uint64_t room, const char *buffer, uint64_t buffer_bytes,
                        const char *rows, const uint64_t *ids, const uint64_t *first_seqs, const uint64_t *ts_ms,
                        const uint32_t *first_rows, const uint32_t *counts, uint32_t topics, uint32_t flags,
                        uint64_t start, char *placed);

/* Writes framed rows into the columns of several indexes. runs: three u32 per index: its first
 * row in `placed`, its first row in the columns, and the number of rows, for which the columns
 * have room. columns: six addresses per index: file_ids, offsets, lengths, sizes (u32), ts
 * (u64), flags (u8). base: added to the rows' starts. Returns the sum of the rows' sizes. */
uint64_t tp_place_rows(const uint64_t *columns, const uint32_t *runs, uint32_t count, const char *placed, uint32_t file_id,
                       uint64_t base);

/* tp_place_rows for one index: `count` rows from placed[at] on, to row `first` on. columns:
 * packed. */
uint64_t tp_place_run(const char *columns, uint32_t first, const char *placed, uint32_t at, uint32_t count,
                      uint32_t file_id, uint64_t base);

/* Writes one control frame; returns as tp_frame_rows. */
int64_t tp_frame_control(char *dest, uint64_t at, uint64_t room, uint32_t type, uint32_t flags, uint64_t topic_id,
                         uint64_t seq, uint64_t ts_ms, const char *payload, uint32_t payload_len);

/* Fills the 64-byte header batch[0:64] of the body batch[64:64 + body_bytes]. Returns its
 * checksum. */
uint64_t tp_seal_batch(char *batch, uint64_t epoch, uint64_t batch_no, uint64_t synced_upto, uint64_t chain,
                       uint32_t body_bytes, uint32_t frame_count, uint64_t written_ms);
/* tp_seal_batch with the checksum of the body given. */
uint64_t tp_seal_summed(char *batch, uint64_t epoch, uint64_t batch_no, uint64_t synced_upto, uint64_t chain,
                        uint32_t body_bytes, uint32_t frame_count, uint64_t written_ms, uint64_t body_sum);

/* Writes a batch of `count` rows of one topic to chunk[at:room]: frames as from tp_frame_rows,
 * whose starts count from the body, then the whole frames of `more`, the header as from
 * tp_seal_batch, and zeros up to the end of the last block (or of the room), counted from the
 * chunk. *checksum is the header's. Returns the bytes of the batch; -n if n bytes of room are
 * needed; 0 without rows, or if a span is outside the buffer. */
int64_t tp_frame_batch(char *chunk, uint64_t at, uint64_t room, const char *buffer, uint64_t buffer_bytes, const char *rows,
                       uint32_t count, uint64_t topic_id, uint64_t first_seq, uint64_t ts_ms, uint32_t flags,
                       const char *node, uint32_t node_len, uint32_t has_node, const char *more, uint32_t more_bytes,
                       uint32_t more_frames, uint64_t epoch, uint64_t batch_no, uint64_t synced_upto, uint64_t chain,
                       uint64_t written_ms, char *placed, uint64_t *checksum);

/* A batch of one row whose data stays where it is: writes what is before it to `head` (the headers
 * of batch and frame) and what is after it to `trailer`, so that head, data and trailer one after
 * the other are the batch that tp_frame_batch writes. The data is read once, for both checksums.
 * Returns the bytes of the batch; 0 if the row has a tag, a node, meta, a delay or a ttl, if its
 * span is outside the buffer, or if it is longer than a frame may be. */
int64_t tp_frame_apart(char *head, char *trailer, const char *buffer, uint64_t buffer_bytes, const char *row,
                       uint64_t topic_id, uint64_t first_seq, uint64_t ts_ms, uint32_t flags, uint64_t epoch,
                       uint64_t batch_no, uint64_t synced_upto, uint64_t chain, uint64_t written_ms, char *placed,
                       uint64_t *checksum);

/* Verifies batches from state->position on and emits their frames, batch by batch (whole or not
 * at all). */
void tp_scan_log(const char *bytes, uint64_t size, uint64_t base, struct tp_log_scan *state, struct tp_frame *out,
                 uint64_t capacity);

/* Position of the first sound batch of `epoch` at or after `start` (multiples of 8), or -1; sets
 * *state's batch_no and synced_upto to that batch's. Distinguishes a torn tail from a torn
 * middle. */
int64_t tp_find_batch(const char *bytes, uint64_t size, uint64_t start, uint64_t epoch, struct tp_log_scan *state);

/* Verifies frames that follow each other without gaps from state->position on. */
void tp_scan_frames(const char *bytes, uint64_t size, uint64_t base, struct tp_frame_scan *state,
                    struct tp_frame *out, uint64_t capacity);

/* Renders rows as JSON array elements joined by ','. Row i: bytes[offsets[i] - base, +
 * lengths[i]), seq seqs[i]. Skips rows whose node is in `nodes` (see only_nodes): u32 count; the
 * end of each name (u32), counted from the first name; the names, ascending by length and then by
 * bytes. Verifies every frame it delivers or skips. */
void tp_project(char *out, uint64_t room, const char *bytes, uint64_t size, uint64_t base, const uint32_t *offsets,
                const uint32_t *lengths, const uint64_t *seqs, uint32_t count, const char *nodes,
                uint32_t nodes_bytes, struct tp_projection *state);

/* The holder of a job and the end of its lease: members that a claimed record has in addition.
 * 24 bytes. */
struct tp_lease {
    uint64_t lease_id, deadline_ms;
    uint32_t deliveries, zero;
};

/* tp_project for jobs: row i also has leases[i], always its tag, never its node. */
void tp_project_jobs(char *out, uint64_t room, const char *bytes, uint64_t size, uint64_t base,
                     const uint32_t *offsets, const uint32_t *lengths, const uint64_t *seqs, uint32_t count,
                     const struct tp_lease *leases, struct tp_projection *state);

/* Copies the data of rows into columns: payloads without gaps in out, whose room is the sum of
 * the lengths; ts[i]; kinds[i] (PAYLOAD_*); and ends[i], where payload i ends, counted from
 * `end`. Verifies every frame. Returns the bytes written, or -1 - i if row i is not a sound frame
 * in its place. */
int64_t tp_project_columns(char *out, const char *bytes, uint64_t size, uint64_t base, const uint32_t *offsets,
                           const uint32_t *lengths, const uint64_t *seqs, uint32_t count, uint64_t topic_id,
                           uint64_t *ts, uint8_t *kinds, uint64_t *ends, uint64_t end);

/* In and out of tp_copy_frames. */
struct tp_copied {
    uint64_t sum;     /* running checksum of the frames' checksums; start with 0 */
    uint64_t size;    /* accounted bytes of the rows */
    uint64_t last_ts; /* of the last row */
};

/* Copies the frames of rows unchanged, without gaps, into out, whose room is the sum of the
 * lengths. Row i must be the sound record frame of topic_id and seqs[i] at bytes[offsets[i] -
 * base, + lengths[i]). Returns the bytes written, or -1 - i if row i is not. */
int64_t tp_copy_frames(char *out, const char *bytes, uint64_t size, uint64_t base, const uint32_t *offsets,
                       const uint32_t *lengths, const uint64_t *seqs, uint32_t count, uint64_t topic_id,
                       struct tp_copied *state);

/* Writes frames of topic_id's own for rows that may be copies. Row i with FLAG_COPY in flags[i]
 * has another record's frame at bytes[offsets[i] - base, + lengths[i]); its seq, ts and which of
 * tag and node it keeps are its own, and its frame has no extension. Without FLAG_COPY the frame
 * is copied unchanged. out holds the frames without gaps, with room for the sum of the lengths;
 * lengths_out[i] is the new length. Verifies the frames it rewrites. Returns the bytes written,
 * or -1 - i if row i is not a sound record frame in its place. */
int64_t tp_reframe(char *out, const char *bytes, uint64_t size, uint64_t base, const uint32_t *offsets,
                   const uint32_t *lengths, const uint64_t *seqs, const uint64_t *ts, const uint8_t *flags,
                   uint32_t count, uint64_t topic_id, uint32_t *lengths_out);

/* Describes record frames of topic_id as rows (rows.h) whose offsets count from `start` before the
 * bytes. Row i must be the sound frame of seqs[i] at bytes[offsets[i] - base, + lengths[i]). keep:
 * TP_ROW_TAG and TP_ROW_NODE, if the rows keep them. Returns count, or -1 - i if frame i is not
 * that frame. */
int64_t tp_rows_of_frames(char *rows, const char *bytes, uint64_t size, uint64_t base, const uint32_t *offsets,
                          const uint32_t *lengths, const uint64_t *seqs, uint32_t count, uint64_t topic_id,
                          uint32_t keep, uint32_t start);

/* File bytes [start, start + used) in memory at `address`. Sorted by file, then by start. */
struct tp_hot_range {
    uint64_t file_id, start, used, address;
};

/* Columns of texts: node, tag, data, meta, in their order in a frame, and bytes: data that is no
 * JSON, which then is null in the column of data. */
enum { TP_TEXT_COLUMNS = 5 };

/* A column of texts in Arrow's layout, while rows are added to it: row r is bytes[ends[r] ..
 * ends[r + 1]). */
struct tp_text_column {
    char *bytes;    /* NULL: the column is not asked for */
    int32_t *ends;  /* room + 1 of them, the first one 0 */
    uint8_t *valid; /* one bit per row, cleared before */
    uint64_t room;  /* room in bytes, at most INT32_MAX */
    uint64_t used;
    uint64_t nulls;
};

/* In and out of tp_fill_texts. */
struct tp_text_fill {
    struct tp_text_column columns[TP_TEXT_COLUMNS];
    uint64_t topic_id;
    uint64_t needed;   /* TP_STOP_ROOM: bytes the next row takes in column `full` */
    uint32_t verify;   /* also compare checksums, not only lengths, type, topic and seq */
    uint32_t room;     /* rows there is room for */
    uint32_t rows;     /* filled so far, over all calls */
    uint32_t examined; /* rows of this call that are done */
    uint32_t reason;   /* TP_STOP_END: all done; TP_STOP_ROOM; TP_STOP_TORN or TP_STOP_KIND: row `examined` */
    uint32_t full;     /* TP_STOP_ROOM: the full column; TP_TEXT_COLUMNS: no row left */
};

/* Adds the texts of rows to columns. Row i must be the record frame of topic_id and seqs[i] at
 * bytes[offsets[i] - base, + lengths[i]). A text that is absent by the frame's flags is null. A
 * row is added to all columns or to none; to continue after TP_STOP_ROOM, begin with row
 * `examined`. Bytes in the room after `used` are undefined. */
void tp_fill_texts(const char *bytes, uint64_t size, uint64_t base, const uint32_t *offsets, const uint32_t *lengths,
                   const uint64_t *seqs, uint32_t count, struct tp_text_fill *state);

/* Adds to *sum a checksum of each row, whose order does not matter: XXH3-64 of five u32
 * (TP_ROW_* of the texts present and of the data's kind; bytes of tag, node, data and meta) and
 * the four texts. node:
 * the node of rows without their own. Returns 0, or -1 if a span is outside the buffer. */
int tp_sum_rows(const char *buffer, uint64_t buffer_bytes, const char *rows, uint32_t count, const char *node,
                uint32_t node_len, uint32_t has_node, uint64_t *sum);

/* Copies record frames of topic_id, without gaps, into out, for another topic: without their
 * extensions, the first with `ext` instead. They may be used only after tp_number_frames has
 * completed them. Row i must be the sound frame of seqs[i] at bytes[offsets[i] - base, +
 * lengths[i]). `out` has room for the sum of the lengths and ext_len. Returns the bytes written,
 * or -1 - i if row i is not that frame. */
int64_t tp_take_frames(char *out, const char *bytes, uint64_t size, uint64_t base, const uint32_t *offsets,
                       const uint32_t *lengths, const uint64_t *seqs, uint32_t count, uint64_t topic_id,
                       const char *ext, uint32_t ext_len);

/* Completes `count` record frames that fill frames[0:size]. Frame i gets topic_id, seq first_seq
 * + i, ts_ms, `flags` (FLAG_FSYNC or 0) besides its own, and its checksum. `placed` gets entries
 * as from tp_frame_rows, with starts that count from `start`. Returns count; -1 if there are
 * more or fewer frames, or a frame of another type. */
int64_t tp_number_frames(char *frames, uint64_t size, uint64_t topic_id, uint64_t first_seq, uint64_t ts_ms,
                         uint32_t flags, uint64_t start, char *placed, uint32_t count);

/* XXH3-64 of the bytes. */
uint64_t tp_checksum(const char *bytes, uint64_t size, uint64_t seed);

#endif
