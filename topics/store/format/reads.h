/* Reads from cursors, as columns over one pass: filled by http/lane/scan.c, completed by bulk_reads.c, answered by http/lane/scan_reads.c.
 * Python sees packed numbers (engine/read/plain_reads.py, http/lane/lane.py). Not read by cffi: C files include it. */
#ifndef TOPICS_STORE_READS_H
#define TOPICS_STORE_READS_H

#include <stdint.h>

/* One read. Where a request stands in its receive is the business of scan.c, and what became of it that of bulk_reads.c. */
struct tp_read {
    uint32_t receive; /* whose bytes these are; those of one receive lie together, in order */
    uint32_t slot;    /* of its topic among those of the pass */
    uint32_t flags;   /* TP_READ_* */
    uint32_t end;     /* where the request ends in the buffer of the pass */
    uint64_t from_seq;
    uint64_t budget;  /* accounted bytes, 0: the default */
    uint32_t limit;   /* records, 0: the default */
    /* results */
    uint32_t count;   /* records delivered */
    uint64_t next;    /* the cursor behind them */
    uint64_t off;     /* of its JSON elements in the output */
    uint32_t len;     /* of them */
    uint32_t taken;   /* 0: not plain after all, and nothing behind it in its receive is */
};
enum { TP_READ_TAGS = 1, TP_READ_NO_META = 2, TP_READ_WAITS = 4, TP_READ_GZIP = 8 };

/* A topic of the pass. Rows of the index are `chunk_count` struct tp_index_chunk at the address `chunks`. */
struct tp_read_topic {
    uint64_t topic_id;
    uint64_t head, earliest;
    uint64_t lost;       /* cursors below are told of a loss, which is not plain */
    uint64_t chunks;     /* address */
    uint32_t chunk_count;
    uint32_t last_rows;  /* of the last chunk, which grows */
    uint32_t usable;     /* 0: nothing of it is plain */
    uint32_t reserved;
};

/* Rows first, first + 1, ... of a topic's index; columns by address. flags: 0x80 is a row that is not live. */
struct tp_index_chunk {
    uint64_t first, count;
    uint64_t flags, file_ids, offsets, lengths, sizes; /* u8, and u32 four times */
};

/* File bytes [start, start + used) in memory at `address`. Sorted by file, then by start. */
struct tp_hot_range {
    uint64_t file_id, start, used, address;
};

_Static_assert(sizeof(struct tp_read) == 64, "READ of store/read/render_bulk.py says so");
_Static_assert(sizeof(struct tp_read_topic) == 56, "TOPIC of store/read/render_bulk.py says so");
_Static_assert(sizeof(struct tp_index_chunk) == 56, "INDEX_CHUNK of store/read/render_bulk.py says so");
_Static_assert(sizeof(struct tp_hot_range) == 32, "HOT_RANGE of store/in_memory/hot_tail.py says so");

#endif
