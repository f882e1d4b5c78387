/* The requests of one pass, as columns. http/lane/scan.c fills them, engine/json/write_scan.c
 * completes them, and Python reads them as packed numbers (http/lane/lane.py). */
#ifndef TOPICS_ENGINE_COLUMNS_H
#define TOPICS_ENGINE_COLUMNS_H

#include <stdint.h>

/* One plain write. Offsets count from the start of the buffer with all receives of the pass. */
struct tp_request {
    uint32_t receive;  /* index of the receive with the request */
    uint32_t topic;    /* number of the topic's name, see tp_learn_topic */
    uint32_t off, len; /* of the body */
    uint32_t flags;    /* TP_FEW_RECORDS, TP_STRICT; the other bits of TP_FLAGS are scan.c's */
    uint32_t end;      /* offset after its body, the end of the request */
    uint32_t key_off, key_len; /* its idempotency key; 0 = none */
};
/* FEW_RECORDS: not plain with more records than `few_records` of its writer. STRICT: not plain with
 * an unknown key, and answered with the line that says so. */
enum { TP_FEW_RECORDS = 2, TP_STRICT = 4, TP_FLAGS = 0xff };

/* The requests of one topic: `count` of them from `first` on. Their records are the rows `row`
 * to `row + rows`. */
struct tp_group {
    uint32_t topic, first, count; /* topic: with TP_KEYED if the group is one request with an idempotency key */
    uint32_t taken; /* requests whose body was plain */
    uint32_t row, rows;
    uint64_t size; /* accounted bytes of the rows */
};

enum { TP_KEYED = 1u << 31 };

#endif
