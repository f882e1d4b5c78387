/* Many reads from cursors in one call, from index rows to JSON. http/lane/scan_reads.c fills the
 * requests, index_reads.c completes them, http/lane/scan_reads.c answers. Plain declarations,
 * read by the C compiler and by cffi. */
#ifndef TOPICS_ENGINE_INDEX_READS_H
#define TOPICS_ENGINE_INDEX_READS_H

#include <stdint.h>

#include "../../store/format/codec.h"

/* A bit in the flags of an index row, above the frame's own: the row is not live (deleted,
 * evicted, or a hole). */
enum { TP_ROW_DEAD = 0x80 };

/* One read of a pass: the request and its result. */
struct tp_read {
    uint32_t receive; /* the receive that the request came with; reads of one receive are adjacent and in order */
    uint32_t slot;    /* index of its topic among those of the pass */
    uint32_t flags;   /* TP_READ_* */
    uint32_t end;     /* end of the request in the buffer of the pass */
    uint64_t from_seq;
    uint64_t budget;  /* accounted bytes, 0 = the default; as a result, those of the records */
    uint32_t limit;   /* records, 0 = the default */
    /* results */
    uint32_t count;   /* records delivered */
    uint64_t next;    /* the cursor after them */
    uint64_t off;     /* offset of its JSON elements in the output */
    uint32_t len;     /* bytes of the elements */
    uint32_t taken;   /* 0: not plain, so that neither is any later read of its receive */
};
/* TAGS: with tags. NO_META: without meta. WAITS: not taken if it finds nothing. SHORT: not taken
 * if its elements are long (tp_read_limits). STRICT: only its answer differs. */
enum { TP_READ_TAGS = 1, TP_READ_NO_META = 2, TP_READ_WAITS = 4, TP_READ_SHORT = 8, TP_READ_STRICT = 16 };

/* A topic of the pass. Its index is `chunk_count` struct tp_index_chunk at the address `chunks`. */
struct tp_read_topic {
    uint64_t topic_id;
    uint64_t head, earliest;
    uint64_t lost;       /* a read from a lower cursor reports a loss, which is not plain */
    uint64_t chunks;     /* address */
    uint32_t chunk_count;
    uint32_t last_rows;  /* rows of the last chunk, which grows */
    uint32_t usable;     /* 0: no read of this topic is plain */
    uint32_t reserved;
};

/* Rows first, first + 1, ... of a topic's index. The columns are addresses; flags include
 * TP_ROW_DEAD. */
struct tp_index_chunk {
    uint64_t first, count;
    uint64_t flags, file_ids, offsets, lengths, sizes, ts; /* u8, then u32 four times, u64 */
};

/* The settings that bound a read (contract 5.2), and the caller's own limit. */
struct tp_read_limits {
    uint32_t default_limit, max_limit;
    uint64_t default_bytes, max_bytes; /* accounted */
    uint64_t long_bytes; /* a TP_READ_SHORT read with so many bytes of elements is not taken */
};

/* Complete `count` reads of `topics`, whose frames are in `hot_count` ranges of memory. The
 * elements of all reads are written one after another to out[:room]. A read is taken if it is a
 * plain run of live records that are all in memory, intact and within the room. All others are
 * left to tp_project, which reports what is wrong. `prefetched` is searched after `hot`, and
 * `ephemeral` after both. *taken: the number of reads taken. Returns the bytes written. */
int64_t tp_project_reads(char *out, uint64_t room, struct tp_read *reads, uint32_t count,
                         const struct tp_read_topic *topics, const struct tp_hot_range *hot, uint32_t hot_count,
                         const struct tp_hot_range *prefetched, uint32_t prefetched_count,
                         const struct tp_hot_range *ephemeral, uint32_t ephemeral_count,
                         const struct tp_read_limits *limits, uint32_t *taken);

#endif
