/* Plain requests of a pass, found and answered in bulk: see scan.c. What is not plain is left to the general path.
 * Plain declarations, read by the C compiler and by cffi; the columns are those of engine/json/columns.h. */
#ifndef TOPICS_HTTP_SCAN_H
#define TOPICS_HTTP_SCAN_H

#include <stdint.h>

#include "../../engine/index/index_reads.h"
#include "../../engine/json/columns.h"

typedef struct tp_scanner tp_scanner;

/* Why a receive, or the end of one, was not taken; 0: it was. */
enum {
    TP_MISS_PART = 1, /* head or body not whole */
    TP_MISS_LINE,     /* another method, target or version */
    TP_MISS_TOPIC,    /* a name not learnt */
    TP_MISS_HOST,     /* a Host not learnt */
    TP_MISS_FIELD,    /* a field, or a value of one, that is not known to be harmless */
    TP_MISS_MIXED,    /* behind requests of another topic */
    TP_MISS_ROOM,     /* more requests than the columns have room for */
    TP_MISS_BUSY,     /* what a connection said before is not answered yet: noted by lane.py */
    TP_MISS_BODY,     /* of a read: anything but its usual fields */
};

/* What a whole server's scans share: names and hosts learnt, limits. `secret` seeds the hash. `texts`: of the answer to a
 * write, those around name, first seq, last seq, seqs, head and count (engine/values/write_answer.py), each ended by a
 * zero byte. NULL: no memory, or these are not 7 texts of 16 bytes at most. */
tp_scanner *tp_scanner_new(uint32_t max_head_bytes, uint32_t max_head_fields, uint64_t max_body_bytes,
                           uint64_t max_command_bytes, uint32_t max_key_bytes, uint64_t secret, const char *texts,
                           uint32_t texts_len);
void tp_scanner_free(tp_scanner *s);
/* A Host value requests may carry, exactly so; one that is not known yet. Its place, below 16: when all are taken, that of the one
 * which no scan has met for the longest time, and which is forgotten. -1: too long. */
int tp_learn_host(tp_scanner *s, const char *host, uint32_t len);
/* `count` digests (SHA-256, 32 bytes each) of the secrets that requests must have one of as `Authorization: Bearer`.
 * 0, or -1: no memory. Without this, a request with that field is not plain. */
int tp_learn_keys(tp_scanner *s, const unsigned char *digests, uint32_t count);
void tp_digest(const unsigned char *text, uint64_t len, unsigned char *digest);
/* A topic's name as it stands in a target, and the key (index of its digest) that may write to it; TP_NO_KEY without
 * keys. With "/diff" behind it: the same for reads. Returns the number of both, counted up from 0, or -1: full (then forget all). */
#define TP_NO_KEY 0xffffffff
int64_t tp_learn_topic(tp_scanner *s, const char *name, uint32_t len, uint32_t key);
/* Requests for it are not plain any more. */
void tp_forget_topic(tp_scanner *s, uint32_t number);
void tp_forget_topics(tp_scanner *s);

/* Finds the plain requests of `count` receives; receive i lies at starts[i] to ends[i] of `buffer`.
 *
 * Of each receive the leading plain requests of one topic, all writes or all reads, are taken; reasons[i] says why it ends there (TP_MISS_*; 0:
 * whole receive taken). `requests` (room rows) gets them grouped by topic, in order of arrival within one; `groups`
 * (room too) one row a topic, with topic, first and count set; a request with an idempotency key, the only one taken of its
 * receive, has one of its own. Returns the number of groups. */
int64_t tp_scan_requests(tp_scanner *s, const char *buffer, const uint64_t *starts, const uint64_t *ends,
                         uint32_t count, struct tp_request *requests, struct tp_group *groups, uint32_t room,
                         uint8_t *reasons);
/* The reads among them, which are not in `requests`: the number of them in *reads, and the
 * numbers of their topics, by slot, in *topics. To be completed by tp_project_reads; good until the next scan. */
uint32_t tp_scanned_reads(tp_scanner *s, struct tp_read **reads, uint32_t **topics, uint32_t *topic_count);
/* Renders the answers to the reads taken, whose elements are in `elements`; topics: by slot, as
 * tp_project_reads left them; total: `server_total_ms`. upto[r] gets the end of what was taken of receive r; refs, out_refs
 * and so on as in tp_render_answers. Returns the bytes written; -1: no room for them. */
int64_t tp_render_reads(tp_scanner *s, char *out, uint64_t room, const char *elements,
                        const struct tp_read_topic *topics, const uint64_t *refs, const char *head, uint32_t head_len,
                        const char *total, uint32_t total_len, uint32_t *upto, uint64_t *out_refs, uint32_t *out_lengths, uint32_t *sends);
/* Rows of receives that were not taken to their end: upto[i] is not ends[i]. Returns how many there are. */
uint32_t tp_missed(const uint64_t *ends, const uint32_t *upto, uint32_t count, uint32_t *rows);

/* tp_render_answers for several groups; topics: three u64 each: its first request among `requests` and `counts`, how many
 * requests it has, its first seq; names: their names, each ended by a zero byte. Returns the bytes written; -1: no room. */
int64_t tp_render_topics(const tp_scanner *s, char *out, uint64_t room, const struct tp_request *requests,
                         const uint32_t *counts, const uint64_t *topics, uint32_t count, const char *names,
                         const uint64_t *refs, const char *head, uint32_t head_len, const char *after,
                         uint32_t after_len, uint64_t *out_refs, uint32_t *out_lengths, uint32_t *sends);

/* Renders the answers of one group's requests, `counts[i]` records each (0: not taken, no answer), their first seq
 * `first_seq` and the others following: head, Content-Length, body = the scanner's texts, filled in, and after. name: as
 * it is to stand between quotes. Those of one receive are one send: out_refs gets refs[receive], out_lengths its bytes,
 * *sends how many there are. Returns the bytes written, or the negative room needed. */
int64_t tp_render_answers(const tp_scanner *s, char *out, uint64_t room, const struct tp_request *requests,
                          const uint32_t *counts, uint32_t count, uint64_t first_seq, const uint64_t *refs,
                          const char *head, uint32_t head_len, const char *name, uint32_t name_len,
                          const char *after, uint32_t after_len, uint64_t *out_refs, uint32_t *out_lengths,
                          uint32_t *sends);

#endif
