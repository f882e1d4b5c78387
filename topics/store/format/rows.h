/* One record of a request: filled by engine/json/write_scan.c, consumed by store/format/codec.c.
 * Offsets count from the start of Rows.buffer. */
#ifndef TOPICS_STORE_ROWS_H
#define TOPICS_STORE_ROWS_H

#include <stdint.h>

/* The bits between are marks that only a scan of write bodies uses (engine/json/records.h). */
enum { TP_ROW_TAG = 1, TP_ROW_NODE = 2, TP_ROW_META = 4, TP_ROW_IS_BYTES = 128, TP_ROW_DELAY = 1024, TP_ROW_TTL = 2048 };

/* The flags of a record with a delay or a ttl. */
enum { TP_ROW_TIMES = TP_ROW_DELAY | TP_ROW_TTL };

/* With TP_ROW_DELAY, so many bytes before the data are the delay in milliseconds. With TP_ROW_TTL,
 * as many before these, or before the data, are the ttl. */
enum { TP_TIME_BYTES = 8 };

struct tp_row {
    uint32_t data_off, data_len; /* JSON text without white space outside strings; with TP_ROW_IS_BYTES any bytes */
    uint32_t meta_off, meta_len; /* likewise */
    uint32_t tag_off, tag_len;   /* decoded UTF-8 */
    uint32_t node_off, node_len; /* decoded UTF-8 */
    uint32_t size;               /* accounted bytes: compact JSON of data + meta; of bytes their number */
    uint32_t flags;              /* TP_ROW_*: which of the optional parts are present, and the kind of data */
};

/* The position and properties of a row's frame: filled by store/format/codec.c, kept until the
 * index takes it. */
struct tp_placed {
    uint32_t start;  /* start of the frame, as the caller counts */
    uint32_t length; /* length of the frame */
    uint32_t size;   /* accounted bytes */
    uint8_t flags;   /* flags of the frame */
    uint8_t zero[3];
    uint64_t ts_ms;
};

#endif
