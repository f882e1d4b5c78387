/* Many reads from cursors in one call, from the rows of indexes to JSON: filled by http/lane/scan_reads.c, completed by
 * index_reads.c, answered by http/lane/scan_reads.c. Plain declarations, read by the C compiler and by cffi. */
#ifndef TOPICS_ENGINE_INDEX_READS_H
#define TOPICS_ENGINE_INDEX_READS_H

#include <stdint.h>

#include "../../store/format/codec.h"

/* In the flags of an index's row, above the frame's own: the row is not live (deleted, evicted, or a hole). */
enum { TP_ROW_DEAD = 0x80 };

/* One read: a request of a pass, and what became of it. */
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
/* With tags; without meta; not taken if it finds nothing; not taken if its elements are long (tp_read_limits). */
enum { TP_READ_TAGS = 1, TP_READ_NO_META = 2, TP_READ_WAITS = 4, TP_READ_SHORT = 8 };

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

/* Rows first, first + 1, ... of a topic's index; columns by address. flags: with TP_ROW_DEAD. */
struct tp_index_chunk {
    uint64_t first, count;
    uint64_t flags, file_ids, offsets, lengths, sizes; /* u8, and u32 four times */
};

/* Settings that bound a read (5.2), and the caller's own bound. */
struct tp_read_limits {
    uint32_t default_limit, max_limit;
    uint64_t default_bytes, max_bytes; /* accounted */
    uint64_t long_bytes; /* bytes of elements from which on a read with TP_READ_SHORT is not taken */
};

/* Completes `count` reads of `topics`, whose frames are in `hot_count` ranges of memory. The elements of each go behind
 * those before into out[:room]. A read is taken when it is no more than a run of live records that are all here, sound and
 * within the room; the others are left to tp_project, with its words for what is wrong. *taken: how many were. Returns the
 * bytes written. */
int64_t tp_project_reads(char *out, uint64_t room, struct tp_read *reads, uint32_t count,
                         const struct tp_read_topic *topics, const struct tp_hot_range *hot, uint32_t hot_count,
                         const struct tp_read_limits *limits, uint32_t *taken);

#endif
