/* Plain requests of a pass, found and answered in bulk: see scan.c. Others take the general path.
 *
 * The declarations are read by the C compiler and by cffi; the columns are those of
 * engine/json/columns.h. */
#ifndef TOPICS_HTTP_SCAN_H
#define TOPICS_HTTP_SCAN_H

#include <stdint.h>

#include "../../engine/index/index_reads.h"
#include "../../engine/json/columns.h"

typedef struct tp_scanner tp_scanner;

/* In tp_request.flags, beside those of columns.h: the answer is without the list of seqs. */
enum { TP_WITHOUT_SEQS = 1 };

/* Reasons why a receive, or the end of one, was not taken; 0: it was. */
enum {
    TP_MISS_PART = 1, /* head or body incomplete */
    TP_MISS_LINE,     /* another method, target or version */
    TP_MISS_TOPIC,    /* an unknown name */
    TP_MISS_HOST,     /* an unknown Host */
    TP_MISS_FIELD,    /* a field or value that is not known to be harmless */
    TP_MISS_MIXED,    /* after requests of another topic */
    TP_MISS_ROOM,     /* more requests than rows */
    TP_MISS_BUSY,     /* an earlier request awaits its answer; set by lane.py */
    TP_MISS_BODY,     /* a read with unusual fields */
    TP_MISS_LONE,     /* the only receive of a pass, for which columns would cost more than they
                         save: the first of its connection, none of HTTP/1.1, or a write whose
                         commit may block clients other than one, or two by turns, that have the
                         loop to themselves; set by single.py */
};

/* Make the state that all scans of a server share: known names and hosts, and limits.
 *
 * with_request_ids: 1: a request with `X-Request-Id` is not plain, because its line in the access
 * log has that. secret: seeds the hash. texts: LANE_TEXTS of engine/values/write_answer.py, then
 * those of read_answer.py beside it, each ended by a zero byte. Returns NULL without memory, or if
 * their number or sizes are not those of scanner.h. */
tp_scanner *tp_scanner_new(uint32_t max_head_bytes, uint32_t max_head_fields, uint64_t max_body_bytes,
                           uint64_t max_command_bytes, uint32_t max_key_bytes, uint32_t with_request_ids,
                           uint64_t secret, const char *texts, uint32_t texts_len);
void tp_scanner_free(tp_scanner *s);
/* Add a Host value, not known yet, that requests may carry exactly so.
 *
 * Returns its place, below 16; -1: too long. If all places are taken, it replaces the host that no
 * scan has met for the longest time. */
int tp_learn_host(tp_scanner *s, const char *host, uint32_t len);
/* Set the keys: `count` SHA-256 digests of 32 bytes. Requests must then carry one of their secrets
 * as `Authorization: Bearer`; without keys a request with that field is not plain. Returns 0; -1:
 * no memory. */
int tp_learn_keys(tp_scanner *s, const unsigned char *digests, uint32_t count);
void tp_digest(const unsigned char *text, uint64_t len, unsigned char *digest);
/* Add a topic's name as it is in a target, and the key (index of its digest) that may write to it,
 * TP_NO_KEY without keys. A name followed by "/diff" stands for reads.
 *
 * Returns the number of both, counted up from 0; -1: full, so that all must be forgotten. */
#define TP_NO_KEY 0xffffffff
int64_t tp_learn_topic(tp_scanner *s, const char *name, uint32_t len, uint32_t key);
/* Forget a topic: its requests are not plain any more. */
void tp_forget_topic(tp_scanner *s, uint32_t number);
void tp_forget_topics(tp_scanner *s);

/* Find the plain requests of `count` receives; receive i is starts[i] to ends[i] of `buffer`.
 *
 * Of each receive the leading plain requests of one topic are taken, all writes or all reads;
 * reasons[i] is why it ends there (TP_MISS_*; 0: the whole receive was taken). `requests` (`room`
 * rows) gets them grouped by topic, in order of arrival in each group. `groups` (`room` rows, too)
 * gets one row per topic, with topic, first and count set. A request with an idempotency key has a
 * group of its own, and is the only one taken of its receive. Returns the number of groups. */
int64_t tp_scan_requests(tp_scanner *s, const char *buffer, const uint64_t *starts, const uint64_t *ends,
                         uint32_t count, struct tp_request *requests, struct tp_group *groups, uint32_t room,
                         uint8_t *reasons);
/* tp_scan_requests of one receive that is one request. Returns the number of its topic if it is a
 * write, which is *request then (with TP_KEYED: it has an idempotency key); -1: it is a read;
 * -1 - TP_MISS_*: it is neither, or there is more in the receive. */
int64_t tp_scan_single(tp_scanner *s, struct tp_request *request, const char *buffer, uint64_t len);
/* Return the number of reads found, which are not in `requests`. Sets *reads to them, and *topics
 * to the numbers of their topics, by slot. tp_project_reads completes them; valid until the next
 * scan. */
uint32_t tp_scanned_reads(tp_scanner *s, struct tp_read **reads, uint32_t **topics, uint32_t *topic_count);
/* Render the answers to the reads taken. elements: the rendered records. topics: by slot, as
 * tp_project_reads set them. times: the text between the lag and `records_scanned`. upto[r] gets
 * the end of the bytes taken of receive r. refs, out_refs and so on: as in tp_render_answers.
 * Returns the bytes written; -1: no room for them. */
int64_t tp_render_reads(tp_scanner *s, char *out, uint64_t room, const char *elements,
                        const struct tp_read_topic *topics, const uint64_t *refs, const char *head, uint32_t head_len,
                        const char *times, uint32_t times_len, uint32_t *upto, uint64_t *out_refs, uint32_t *out_lengths, uint32_t *sends);
/* Find receives that were not taken to their end: upto[i] is not ends[i]. Returns their number. */
uint32_t tp_missed(const uint64_t *ends, const uint32_t *upto, uint32_t count, uint32_t *rows);

/* Render the answers of several groups, as tp_render_answers does.
 *
 * firsts, sizes, first_seqs: columns over the groups: its first request in `requests` and `counts`,
 * its number of requests, its first seq. names: of their topics, each ended by a zero byte. Returns
 * the bytes written; -1: no room for them. */
int64_t tp_render_topics(const tp_scanner *s, char *out, uint64_t room, const struct tp_request *requests,
                         const uint32_t *counts, const uint32_t *firsts, const uint32_t *sizes,
                         const uint64_t *first_seqs, uint32_t groups, const char *names, const uint64_t *refs,
                         const char *head, uint32_t head_len, const char *after, uint32_t after_len,
                         uint64_t *out_refs, uint32_t *out_lengths, uint32_t *sends);

/* Render the answers of one group's requests.
 *
 * counts[i]: records of a request; 0: not taken, no answer. first_seq: the first seq of the first
 * request; the others follow. An answer is head, Content-Length, and a body of the scanner's texts,
 * filled in, and `after`. name: as it is between quotes. The answers of one receive are one send:
 * out_refs gets refs[receive], out_lengths its bytes, *sends the number of sends. Returns the bytes
 * written, or the negative room needed. */
int64_t tp_render_answers(const tp_scanner *s, char *out, uint64_t room, const struct tp_request *requests,
                          const uint32_t *counts, uint32_t count, uint64_t first_seq, const uint64_t *refs,
                          const char *head, uint32_t head_len, const char *name, uint32_t name_len,
                          const char *after, uint32_t after_len, uint64_t *out_refs, uint32_t *out_lengths,
                          uint32_t *sends);

#endif
