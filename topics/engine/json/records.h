/* Strict JSON, in bulk: values (records.c), bodies of writes (write_scan.c), long texts in turns (work.c). The numbers that
 * Python knows, too, are the enums here. Plain declarations, read by the C compiler and by cffi. */
#ifndef TOPICS_ENGINE_RECORDS_H
#define TOPICS_ENGINE_RECORDS_H

#include <stdint.h>

#include "../../store/format/rows.h"
#include "columns.h"

enum {
    DEPTH_MAX = 127,         /* containers around a value */
    NO_RECORD = 0xffffffff,  /* in tp_error.record: outside of one */
};

/* What a value is; 0: nothing. */
enum { KIND_NULL = 1, KIND_FALSE, KIND_TRUE, KIND_NUMBER, KIND_STRING, KIND_ARRAY, KIND_OBJECT };

/* Why a text was refused; worded in strict_json.py and write_body.py. */
enum {
    E_END = 1, E_SYNTAX, E_UTF8, E_CONTROL, E_ESCAPE, E_SURROGATE, E_NUMBER, E_RANGE, E_DEPTH, E_LITERAL, E_TRAILING,
    E_BOM, E_LONG,
    E_ROOM,    /* more keys than there is room for: call again with more */
    E_TYPE,    /* a field, or the text, is of another kind */
    E_MISSING, /* a field */
    E_TWICE,   /* a field */
    E_MANY     /* members of the body or of a record */
};

/* The fields of a write. */
enum {
    FIELD_RECORDS, FIELD_NODE, FIELD_KEY, FIELD_CREATE, FIELD_CONFIG, FIELD_BACKPRESSURE, /* of the body ... */
    FIELD_INCARNATION, FIELD_PRODUCER,                                                    /* ... and more of it */
    FIELD_DATA, FIELD_TAG, FIELD_RECORD_NODE, FIELD_META,                                 /* of a record */
    FIELD_BODY, FIELD_RECORD, FIELD_UNKNOWN,                                              /* the thing itself; others */
    FIELD_OP, FIELD_TOPIC, FIELD_REQUEST_ID, FIELD_RETURN_SEQS, FIELDS                    /* of a command; how many */
};

/* In tp_row.flags until the rows are cleaned: payloads with white space, labels with escapes, keys that may be there twice. */
enum { MARK_WHITE = 8, MARK_TAG_ESCAPED = 16, MARK_NODE_ESCAPED = 32, MARK_TWICE = 64 };

/* The limit that a record breaks; 0: none. */
enum { V_TAG = 1, V_NODE, V_META_BYTES, V_META_KEYS, V_SIZE };

/* What tp_keep_last needs of memory: so much a key, and so much besides. */
enum { KEY_WORK_BYTES = 40, KEY_WORK_LEAST = 128 };

struct tp_span {
    uint32_t off, len, kind; /* kind: KIND_*, 0 = absent */
};

/* Where and why a text was refused. Worded in strict_json.py and write_body.py. */
struct tp_error {
    uint32_t code;   /* E_*, 0 = none */
    uint32_t at;     /* byte offset */
    uint32_t field;  /* FIELD_* for the errors that name a field */
    uint32_t record; /* index in `records`, 0xffffffff outside of one */
    uint32_t kind;   /* what was found, for E_TYPE */
};

/* Limits on client input, in bytes of compact or decoded text. */
struct tp_limits {
    uint32_t records, record_bytes, meta_bytes, meta_keys, tag_bytes, node_bytes;
    uint32_t members; /* of the body, and of a record, unknown ones included: E_MANY beyond them */
};

/* One scanner of write bodies: settings and caller-given room, then the results of the last call. */
struct tp_writer {
    struct tp_limits limits;
    struct tp_row *rows;   /* room for limits.records of them */
    uint64_t *keys;        /* room for the hashes of the keys of all objects open at once */
    uint64_t key_room;
    uint64_t secret[2];    /* random, so that nobody can prepare colliding keys */
    uint32_t command;      /* 1: the body is a command with fields of its own, and may have no records */
    /* results */
    uint64_t size;         /* accounted bytes of all records */
    uint32_t count;        /* records in the body, also those beyond the room */
    uint32_t marks;        /* MARK_* of all rows together */
    uint32_t violation;    /* V_* of the first record over a limit, 0 = none */
    uint32_t violation_record;
    struct tp_error error;
    struct tp_span fields[FIELDS]; /* by FIELD_*: of the body and of a command */
    uint32_t alone;        /* 1: no other field than records, within all limits, if perhaps with rows to clean */
};

/* Returns 0: plain (rows final, spans into body, no other field given); 1: ask the results; -1: error. */
int tp_scan_write(struct tp_writer *w, const unsigned char *body, uint64_t len);
/* The bodies of the requests of a pass (columns.h), all in `buffer`: for each group in turn the rows of its plain bodies
 * go behind those before, offsets counted from the buffer. counts[i]: records of request i, 0 when it is not plain, and
 * then what follows it in its receive is not looked at. upto[r]: end of the last plain request of receive r, as it was
 * before when there is none. `room`: rows there is room for. A body whose rows must be cleaned is written over with what
 * they point at, if it fits into `scratch`; nothing else of the buffer changes. */
void tp_scan_writes(struct tp_writer *w, unsigned char *buffer, const struct tp_request *requests,
                    struct tp_group *groups, uint32_t group_count, uint32_t room, uint32_t *counts, uint32_t *upto, unsigned char *scratch,
                    uint64_t scratch_bytes);
/* As tp_scan_texts for texts that each end with a newline and hold no other: `count` of them in `size` bytes. 0, or 1 when
 * anything is not so or not plain: nothing was said about it, ask tp_scan_texts. */
int tp_scan_lines(struct tp_writer *w, const unsigned char *text, uint64_t size, uint32_t count);
/* Rows of `data` alone from `count` JSON texts, one after another, text i ending at ends[i]. As tp_scan_write. */
int tp_scan_texts(struct tp_writer *w, const unsigned char *text, const uint64_t *ends, uint32_t count);
/* Copies what the rows of a body point at into `out`: compact, labels decoded, of equal keys of an object the last one.
 * Rewrites the rows' spans, and what the writer says of rows that had keys twice: their sizes, and the limits they break.
 * Rows from the first one on that is over a limit stay as they were. out: room for `len` bytes, for twice as many with
 * MARK_TWICE, and then `room` is as for tp_keep_last: a row with more than `keys` keys is too large. Returns the bytes. */
uint64_t tp_clean_rows(struct tp_writer *w, const unsigned char *body, uint64_t len, unsigned char *out, void *room,
                       uint64_t keys);

/* tp_scan_write and tp_clean_rows in turns (work.h): tp_work_on goes on for about so many bytes of the body, and returns
 * 1 when there is more to do, 0 when it is done and tp_work_result is what the function would have returned. Arguments
 * have to stay; the writer's fields mean nothing before the end. NULL, or -1: no memory. */
typedef struct tp_work tp_work;
tp_work *tp_scan_work(struct tp_writer *w, const unsigned char *body, uint64_t len);
tp_work *tp_clean_work(struct tp_writer *w, const unsigned char *body, uint64_t len, unsigned char *out, void *room,
                       uint64_t keys);
int tp_work_on(tp_work *work, uint64_t bytes);
int64_t tp_work_result(const tp_work *work);
void tp_work_free(tp_work *work);

/* What a scan of one value found out. */
struct tp_value {
    struct tp_error error;
    uint32_t kind;
    uint32_t keys;       /* of the outermost object */
    uint64_t white;      /* bytes of white space inside it */
    uint64_t compact;    /* bytes of its compact form, shortest escapes */
    uint32_t maybe_twice; /* some object may have a key twice */
};

/* One whole strict JSON text, blanks around it allowed; `open` containers count as already around it. 0 or -1. */
int tp_scan_value(struct tp_value *out, const unsigned char *text, uint64_t len, uint32_t open,
                  uint64_t *keys, uint64_t key_room, const uint64_t *secret);
/* The members of one object (name, value, name, value ...) or array (value ...), validated. The spans of names and
 * strings include the quotes. Returns how many spans there are, also beyond `room` (then call again), or -1. Returns as
 * soon as there are more than `most`: the text behind them is not looked at. */
int64_t tp_members(const unsigned char *text, uint64_t len, uint32_t kind, struct tp_span *spans, uint64_t room,
                   uint64_t most, struct tp_error *error);
/* Copies valid JSON without white space outside strings; out has room for len bytes. Returns the bytes written. */
uint64_t tp_compact(const unsigned char *text, uint64_t len, unsigned char *out);
/* Drops the members of valid compact JSON whose key comes again later in the same object, in place; behind the text there
 * is room for as much. `work`: 40 bytes a key, of which there are at most `keys`, and 128 more. Returns the bytes that
 * are left; 0: there are more keys. */
uint64_t tp_keep_last(unsigned char *text, uint64_t len, void *work, uint64_t keys, const uint64_t *secret);

#endif
