/* Strict JSON, in bulk: values (records.c), bodies of writes (write_scan.c), long texts in turns
 * (work.c). Numbers that Python uses, too, are the enums here. Plain declarations, read by the C
 * compiler and by cffi. */
#ifndef TOPICS_ENGINE_RECORDS_H
#define TOPICS_ENGINE_RECORDS_H

#include <stdint.h>

#include "../../store/format/codec.h"
#include "columns.h"

enum {
    DEPTH_MAX = 127,         /* containers around a value */
    NO_RECORD = 0xffffffff,  /* in tp_error.record: the error is in no record */
};

/* The kind of a value; 0 = absent. */
enum { KIND_NULL = 1, KIND_FALSE, KIND_TRUE, KIND_NUMBER, KIND_STRING, KIND_ARRAY, KIND_OBJECT };

/* The reason of a refusal, worded in strict_json.py and write_body.py. */
enum {
    E_END = 1, E_SYNTAX, E_UTF8, E_CONTROL, E_ESCAPE, E_SURROGATE, E_NUMBER, E_RANGE, E_DEPTH, E_LITERAL, E_TRAILING,
    E_BOM, E_LONG,
    E_ROOM,    /* more keys than there is room for: call again with more */
    E_TYPE,    /* a field, or the text, has another kind */
    E_MISSING, /* a field is missing */
    E_TWICE,   /* a field is given twice */
    E_MANY,    /* too many members of the body or of a record */
    E_BASE64,  /* the string is not base64 (RFC 4648, with padding) */
    E_BOTH,    /* a record has data and data_base64 */
    E_COUNT    /* a field is no unsigned integer of 64 bits */
};

/* The fields of a write. */
enum {
    FIELD_RECORDS, FIELD_NODE, FIELD_KEY, FIELD_CREATE, FIELD_CONFIG, FIELD_BACKPRESSURE, /* of the body ... */
    FIELD_INCARNATION, FIELD_PRODUCER,                                                    /* ... and more of it */
    FIELD_DATA, FIELD_TAG, FIELD_RECORD_NODE, FIELD_META, FIELD_BASE64, FIELD_DELAY, /* of a record ... */
    FIELD_TTL,                                                                       /* ... and more of it */
    FIELD_BODY, FIELD_RECORD, FIELD_UNKNOWN,                                              /* the thing itself; others */
    FIELD_OP, FIELD_TOPIC, FIELD_REQUEST_ID, FIELD_RETURN_SEQS, FIELDS                    /* of a command; how many */
};

/* In tp_row.flags until the rows are cleaned: payloads with white space, labels with escapes,
 * keys that may be repeated, data of bytes as a string of base64, with escapes. */
enum {
    MARK_WHITE = 8, MARK_TAG_ESCAPED = 16, MARK_NODE_ESCAPED = 32, MARK_TWICE = 64, MARK_BASE64 = 256,
    MARK_BASE64_ESCAPED = 512
};

/* The limit that a record breaks; 0 = none. */
enum { V_TAG = 1, V_NODE, V_META_BYTES, V_META_KEYS, V_SIZE, V_DELAY, V_TTL };

/* The memory that tp_keep_last needs: bytes a key, and bytes in addition. */
enum { KEY_WORK_BYTES = 40, KEY_WORK_LEAST = 128 };

struct tp_span {
    uint32_t off, len, kind; /* kind: KIND_*, 0 = absent */
};

/* The place and the reason of a refusal, worded in strict_json.py and write_body.py. */
struct tp_error {
    uint32_t code;   /* E_*, 0 = none */
    uint32_t at;     /* byte offset */
    uint32_t field;  /* FIELD_* for the errors that name a field */
    uint32_t record; /* index in `records`, NO_RECORD outside of one */
    uint32_t kind;   /* for E_TYPE: the kind that was found */
};

/* Limits on client input, in bytes of compact or decoded text. */
struct tp_limits {
    uint32_t records, record_bytes, meta_bytes, meta_keys, tag_bytes, node_bytes;
    uint32_t members; /* of the body, and of a record, unknown ones included: more are E_MANY */
    uint64_t delay_ms, ttl_ms; /* the longest delay, and the longest ttl */
};

/* One scanner of write bodies: settings and room from the caller, then the results of the last
 * call. */
struct tp_writer {
    struct tp_limits limits;
    struct tp_row *rows;   /* room for limits.records rows */
    uint64_t *delays;      /* room for as many delays, in ms; NULL: a body with one is not plain */
    uint64_t *ttls;        /* likewise */
    uint64_t *keys;        /* room for the hashes of the keys of all objects open at the same time */
    uint64_t key_room;
    uint64_t secret[2];    /* random, so that no client can prepare colliding keys */
    uint32_t few_records;  /* the most of a request with TP_FEW_RECORDS (columns.h) */
    uint32_t command;      /* 1: the body is a command with fields of its own, and may have no records */
    /* results */
    uint64_t size;         /* accounted bytes of all records */
    uint32_t count;        /* records in the body, including those beyond the room */
    uint32_t marks;        /* MARK_* of all rows together */
    uint32_t violation;    /* V_* of the first record over a limit, 0 = none */
    uint32_t violation_record;
    struct tp_error error;
    struct tp_span fields[FIELDS]; /* by FIELD_*: of the body and of a command */
    uint32_t records_only; /* 1: no field except records, within all limits; rows may need cleaning */
    struct tp_span unknown;  /* the first key that no FIELD_* names, with its quotes; kind 0: none */
    uint32_t unknown_record; /* the record of that key, NO_RECORD outside of one */
};

/* Scan the body of a write. Returns 0: plain (rows final, spans into body, no other field
 * given); 1: see the results; -1: error. */
int tp_scan_write(struct tp_writer *w, const unsigned char *body, uint64_t len);
/* Scan the bodies of the requests of a pass (columns.h), all in `buffer`. For each group in
 * turn, the rows of its plain bodies are appended to those before, with offsets from the
 * buffer's start. counts[i]: records of request i, 0 if it is not plain; later requests of its
 * receive are not scanned then. upto[r]: end of the last plain request of receive r, unchanged
 * if there is none. `room`: rows there is room for. A body whose rows must be cleaned is
 * overwritten with the cleaned bytes if it fits into `scratch`; nothing else in the buffer
 * changes. */
void tp_scan_writes(struct tp_writer *w, unsigned char *buffer, const struct tp_request *requests,
                    struct tp_group *groups, uint32_t group_count, uint32_t room, uint32_t *counts, uint32_t *upto, unsigned char *scratch,
                    uint64_t scratch_bytes);
/* Scan the body of one request, as tp_scan_writes does, and change none of its bytes: rows that
 * must be cleaned are written to `scratch`. w->count and w->size are those of the rows; w->rows has
 * room for limits.records. Returns 0: the rows count from `buffer`; 1: from `scratch`; -1: not
 * plain. */
int tp_scan_single_write(struct tp_writer *w, unsigned char *scratch, uint64_t scratch_bytes,
                         const unsigned char *buffer, const struct tp_request *request);
/* Scan the body of one request as tp_scan_single_write does, and frame its rows as the next batch.
 *
 * frame_next: the address of tp_frame_next of store/format/codec.h, which gets `next` and `placed`,
 * room for `placed_rows` entries. buffer_bytes: of `buffer`. Returns as tp_frame_next; 0 also if
 * the body is not plain, or has more rows, a tag, data of bytes, a delay or a ttl. */
int64_t tp_write_next(struct tp_writer *w, unsigned char *scratch, uint64_t scratch_bytes,
                      const struct tp_request *request, uint64_t frame_next, struct tp_next_batch *next,
                      unsigned char *placed, uint32_t placed_rows, const unsigned char *buffer, uint64_t buffer_bytes,
                      uint64_t now_ms);
/* A publish over a WebSocket as tp_publish_next takes it: what it must be, then what was found. */
struct tp_publish {
    unsigned char *text; /* room for `most` bytes: the message */
    uint32_t most;       /* bytes of a message, below 65,536 */
    uint32_t request_id_most;
    uint32_t strict;     /* 1: an unknown key is not plain */
    uint32_t topic_len;
    char topic[260];     /* its name as JSON, with quotes */
    uint32_t id_off, id_len; /* its request_id in `text`; id_len 0: none */
    uint32_t without_seqs;   /* 1: its return_seqs is false */
};
/* Scan one masked frame with a publish and frame its rows as the next batch, as tp_write_next does.
 * w: a scanner of commands. Returns as tp_write_next; 0 also if `frame` is anything but one whole
 * text frame, or the message has another topic or a request_id that is neither a string nor a
 * number. */
int64_t tp_publish_next(struct tp_writer *w, unsigned char *scratch, uint64_t scratch_bytes,
                        struct tp_publish *publish, uint64_t frame_next, struct tp_next_batch *next,
                        unsigned char *placed, uint32_t placed_rows, const unsigned char *frame, uint64_t frame_bytes,
                        uint64_t now_ms);
/* Scan `count` texts in `size` bytes, each ended by its only newline, like tp_scan_texts.
 * Returns 0, or 1 if one is not like that or not plain; tp_scan_texts then gives the reason. */
int tp_scan_lines(struct tp_writer *w, const unsigned char *text, uint64_t size, uint32_t count);
/* Build rows of only `data` from `count` adjacent JSON texts, text i ending at ends[i]. Returns
 * as tp_scan_write. */
int tp_scan_texts(struct tp_writer *w, const unsigned char *text, const uint64_t *ends, uint32_t count);
/* Copy the bytes that the rows of a body point to into `out`: compact, with labels and base64
 * decoded and, of equal keys in an object, the last one. The rows' spans are rewritten and, for
 * rows with repeated keys, their sizes and the limits they break. From the first row over a limit
 * on, rows stay unchanged. out: room for `len` bytes, for twice as many with MARK_TWICE; `room`
 * is then as for tp_keep_last, and a row with more than `keys` keys is too large. Returns the
 * bytes written. */
uint64_t tp_clean_rows(struct tp_writer *w, const unsigned char *body, uint64_t len, unsigned char *out, void *room,
                       uint64_t keys);

/* tp_scan_write and tp_clean_rows in turns (work.h). tp_work_on continues for about so many
 * bytes of the body and returns 1 if there is more to do, 0 at the end; tp_work_result is then
 * the function's result. The arguments must stay valid, and the writer's fields are undefined
 * before the end. NULL, or -1: no memory. */
typedef struct tp_work tp_work;
tp_work *tp_scan_work(struct tp_writer *w, const unsigned char *body, uint64_t len);
tp_work *tp_clean_work(struct tp_writer *w, const unsigned char *body, uint64_t len, unsigned char *out, void *room,
                       uint64_t keys);
int tp_work_on(tp_work *work, uint64_t bytes);
int64_t tp_work_result(const tp_work *work);
void tp_work_free(tp_work *work);

/* The result of a scan of one value. */
struct tp_value {
    struct tp_error error;
    uint32_t kind;
    uint32_t keys;       /* of the outermost object */
    uint64_t compact;    /* bytes of its compact form, shortest escapes */
    uint32_t maybe_twice; /* whether some object may have a key twice */
};

/* Scan one whole strict JSON text, with blanks around it, inside `open` containers. Returns 0 or
 * -1. */
int tp_scan_value(struct tp_value *out, const unsigned char *text, uint64_t len, uint32_t open,
                  uint64_t *keys, uint64_t key_room, const uint64_t *secret);
/* Find the members of one object (name, value, name, value ...) or array (value ...), validated.
 * The spans of names and strings include the quotes. Returns the number of spans, even beyond
 * `room` (call again then), or -1. Stops at more than `most` spans: the text after them is not
 * read. */
int64_t tp_members(const unsigned char *text, uint64_t len, uint32_t kind, struct tp_span *spans, uint64_t room,
                   uint64_t most, struct tp_error *error);
/* Copy valid JSON without white space outside strings; out has room for len bytes. Returns the
 * bytes written. */
uint64_t tp_compact(const unsigned char *text, uint64_t len, unsigned char *out);
/* Drop members of valid compact JSON whose key is repeated later in the same object, in place;
 * after the text there is room for as many bytes. `work`: 40 bytes a key, of which there are at
 * most `keys`, and 128 more. Returns the bytes left; 0 if there are more keys. */
uint64_t tp_keep_last(unsigned char *text, uint64_t len, void *work, uint64_t keys, const uint64_t *secret);

#endif
