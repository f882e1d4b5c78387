/* Connections whose receives and answers are columns of a pass: see links.c and links.py.
 * Plain declarations, read by the C compiler and by cffi.
 *
 * A link is a connection's row, by slot. It is owned by the columns or left to its Connection object; an owned one has
 * at most one request unit at a time: received, then taken, then answered by one send. A `ref` names a link for good:
 * its send's user_data without the kind, (serial << 24 | slot). */
#ifndef TOPICS_LOOP_LINKS_H
#define TOPICS_LOOP_LINKS_H

#include <stdint.h>

/* A user_data is a serial, the slot of its connection (or listener) and its kind, from the highest bits down. */
enum { TP_KIND_BITS = 4, TP_SLOT_BITS = 24 };
enum { TP_FILE = 1, TP_RECV, TP_SEND, TP_ACCEPT, TP_CONTROL };
/* Flags of a completion, as io_uring's: data in a provided buffer, whose number is flags >> 16; a multishot goes on. */
enum { TP_F_BUFFER = 1, TP_F_MORE = 2 };

typedef struct tp_links tp_links;

/* `receives`: rows of a pass there is room for. NULL: no memory. */
tp_links *tp_links_new(uint32_t receives);
/* Buffers the kernel may still read from are not freed. */
void tp_links_free(tp_links *l);
/* A slot for a connection, or -ENOMEM. */
int64_t tp_link_open(tp_links *l);
void tp_link_set(tp_links *l, uint32_t slot, int fd, uint64_t send_data);
/* The receive in flight, 0 for none. */
void tp_link_reads(tp_links *l, uint32_t slot, uint64_t recv_data);
void tp_link_close(tp_links *l, uint32_t slot);
/* From the next receive on they are rows; one that was received already is to be answered first. */
void tp_link_own(tp_links *l, uint32_t slot);
/* Back to its Connection. Returns 1 when a request was received and not answered; *flying and *length get the bytes of
 * the send in flight (length 0: none), good until its completion, and if that has come, until the next call. */
int tp_link_leave(tp_links *l, uint32_t slot, char **flying, uint32_t *length);
/* The tick of its last answer; *busy as tp_link_leave returns it, *length of the send in flight. */
uint64_t tp_link_since(tp_links *l, uint32_t slot, int *busy, uint32_t *length);

/* Takes from `count` completions what needs no Connection: sends of owned links that went out whole, and the receives of
 * owned links between requests, which become rows. The others move together, in order; returns their number.
 * buffer_bytes: size of a receive buffer in memory they all lie in; 0: starts and ends count what was received. */
uint32_t tp_links_sort(tp_links *l, uint32_t count, uint64_t *user_data, int *res, uint32_t *flags,
                       uint64_t buffer_bytes);
/* The rows since tp_links_begin, in these columns, which never move. */
uint32_t tp_links_rows(tp_links *l, uint64_t **refs, uint32_t **flags, uint64_t **starts, uint64_t **ends);
void tp_links_begin(tp_links *l);
/* Sends that went out whole since the last call. */
uint64_t tp_links_sent(tp_links *l);

/* Room for answers of at least `bytes`; returns its number, its memory in *memory, or -ENOMEM: no memory, or 4096 of them
 * are in flight. It may be had again as soon as nothing is in flight from it. */
int tp_links_buffer(tp_links *l, uint64_t bytes, char **memory);
/* The sends in flight from a buffer, `room` of them at most: their user_data, and for each its share of the buffer beyond
 * its own bytes, as that is kept until the last of them has ended. Returns how many there are. */
uint32_t tp_links_pinned(tp_links *l, uint32_t room, uint64_t *send_data, uint64_t *bytes);
/* Frees idle buffers beyond a few, and returns their bytes; not between tp_links_buffer and tp_links_answer. */
uint64_t tp_links_trim(tp_links *l);
/* Answers, one behind the other in a buffer, lengths[i] bytes to refs[i]. The other columns get one row each: fds -1
 * where the link is not owned any more, else the send to queue, in flight from here on. Returns how many are -1. */
uint32_t tp_links_answer(tp_links *l, int buffer, const uint64_t *refs, const uint32_t *lengths, uint32_t count,
                         uint64_t tick, uint64_t *user_data, int *fds);
/* Copies the spans memory[starts[i] .. ends[i]), of `bytes`, one behind the other into a buffer and answers with them, as
 * tp_links_answer; *data gets the buffer's memory, lengths the size of each. Returns how many fds are -1, or -EINVAL for a
 * span that is empty or not within the memory, or -ENOMEM; then nothing was done. */
int64_t tp_links_answer_spans(tp_links *l, const char *memory, uint64_t bytes, const uint64_t *refs,
                              const uint64_t *starts, const uint64_t *ends, uint32_t count, uint64_t tick,
                              uint32_t *lengths, uint64_t *user_data, int *fds, char **data);

#endif
